"""Who may import whom: the maths needs Python alone, and an arrow points only downward."""
import ast
import graphlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "kvlib"

# What draws, shows, sweeps or simulates. All other modules are maths.
SHOWN = {"__main__", "ahead", "hub", "tables", "charts", "live", "inputs", "controls", "lab_server", "ready", "exercise", "panels", "workshop", "website", "sweep", "traffic", "traffic_plan"}
HEAVY = {"numpy", "pandas", "altair", "ipywidgets", "anywidget", "traitlets", "IPython", "vl_convert", "numba"}
# The data's way, from the bottom up: none imports one that stands further right.
ORDER = [{"errors", "units"}, {"versions", "layers"}, {"fields"}, {"families", "model"}, {"config"}, {"engine"}, {"resolve"},
         {"spec"}, {"pool"}, {"memory"}, {"steps", "log_lines"}, {"capacity"}]

FOLDERS = {"panels", "sweep", "website", "workshop"}
MODULES = sorted(path for path in PACKAGE.glob("*.py") if path.stem != "__init__")
MATHS = [path for path in MODULES if path.stem not in SHOWN]


def imports(path):
    """(kvlib's modules, other top-level modules) that a file imports, wherever in it the import stands."""
    own, other = set(), set()
    inside = path.relative_to(PACKAGE).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ["kvlib", *inside[:len(inside) + 1 - node.level]] if node.level else []
            base += (node.module or "").split(".") if node.module else []
            names = [base + [alias.name] for alias in node.names]
        else:
            continue
        for first, *rest in names:
            if first != "kvlib":
                other.add(first)
            elif rest:
                own.add(rest[0])
    known = {module.stem for module in MODULES} | FOLDERS
    return own & known, other


def place(name):
    return next((index for index, names in enumerate(ORDER) if name in names), None)


def names(paths):
    return [path.stem for path in paths]


@pytest.mark.parametrize("path", MATHS, ids=names(MATHS))
def test_maths_needs_the_standard_library_alone(path):
    own, other = imports(path)
    assert not other - sys.stdlib_module_names, "only Python's own modules, and kvlib's"
    assert not own & SHOWN, "the maths does not know who shows it"


def test_the_package_itself_loads_the_maths_alone():
    own, other = imports(PACKAGE / "__init__.py")
    assert not own & SHOWN
    assert not other - sys.stdlib_module_names


@pytest.mark.parametrize("path", [path for path in MATHS if place(path.stem) is not None], ids=lambda path: path.stem)
def test_the_data_flows_one_way(path):
    above = {name for name in imports(path)[0] if (place(name) or 0) > place(path.stem)}
    assert not above, "these stand further down the data's way"


def test_no_circle():
    graph = {path.stem: imports(path)[0] - {path.stem} for path in MODULES}
    for folder in FOLDERS:
        graph[folder] = set().union(*(imports(path)[0] for path in (PACKAGE / folder).glob("*.py"))) - {folder}
    tuple(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, and names the circle


def fresh(code, **environment):
    """Run code in a Python of its own; returns what it printed."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | environment
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent, env=env).stdout


def test_import_brings_in_none_of_the_heavy_packages():
    loaded = set(json.loads(fresh("import sys, json; import kvlib; print(json.dumps([n.split('.')[0] for n in sys.modules]))")))
    assert not loaded & HEAVY


# Times the import, and beside it a loop that takes 12 ms on a laptop of 2022 with nothing else to do.
STOPWATCH = """
import time
def loop():
    start = time.process_time()
    sum(i * i for i in range(200_000))
    return time.process_time() - start
before = loop()
start = time.process_time()
import kvlib
spent = time.process_time() - start
print(spent / max(1, (before + loop()) / 2 / 0.012))
"""


def test_import_takes_under_a_tenth_of_a_second(tmp_path):
    """On a computer that does nothing else and has imported it before; here other tests run beside it, so the loop sets the clock."""
    fresh("import kvlib", PYTHONPYCACHEPREFIX=str(tmp_path))
    seconds = []
    while len(seconds) < 10 and not (seconds and min(seconds) < 0.1):
        seconds.append(float(fresh(STOPWATCH, PYTHONPYCACHEPREFIX=str(tmp_path))))
    assert min(seconds) < 0.1


def test_the_arithmetic_on_a_mix_needs_numpy_alone():
    own, other = imports(PACKAGE / "traffic_plan.py")
    assert not own & SHOWN
    assert other - sys.stdlib_module_names == {"numpy"}


def test_the_sweep_needs_numpy_and_pandas_alone():
    for path in (PACKAGE / "sweep").glob("*.py"):
        own, other = imports(path)
        assert not own & SHOWN - {"sweep"}
        assert other - sys.stdlib_module_names <= {"numpy", "pandas"}
