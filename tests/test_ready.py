"""The first line of the first notebook: what it says when all is well, and when something is missing."""
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from kvlib import catalog, ready

ROOT = Path(__file__).resolve().parent.parent


def refusing(monkeypatch, **errors):
    """Make imports of these modules fail as given."""
    real = importlib.import_module

    def pretend(name, *rest):
        if name in errors:
            raise errors[name]
        return real(name, *rest)
    monkeypatch.setattr(ready.importlib, "import_module", pretend)


def gone(name):
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def well(monkeypatch):
    """A computer without faults and doubts, whatever this one is."""
    for part in ("_python", "_packages", "_data", "_versions", "_browser_half", "_drawing"):
        monkeypatch.setattr(ready, part, list)
    return monkeypatch


def test_all_is_well_in_one_green_line(well):
    report = ready.ready()
    assert repr(report) == "Ready: " + ready.FOUND
    page = report._repr_html_()
    assert page.count("<p") == 1 and "#00734f" in page and "✓ Ready</b>" in page
    assert not any(letter.isdigit() for letter in ready.FOUND), "no versions: the stored line is the same everywhere"


def test_this_computer():
    assert ready.look().faults == ()


def test_what_is_missing_is_named_with_the_way_to_mend_it(monkeypatch):
    refusing(monkeypatch, altair=gone("altair"), anywidget=gone("anywidget"))
    (fault,) = ready._packages()
    assert fault.startswith("anywidget and Altair are missing: ")
    assert "python run.py lab" in fault


def test_what_is_there_but_broken_is_not_called_missing(monkeypatch):
    refusing(monkeypatch, vl_convert=ImportError("DLL load failed while importing vl_convert"), pandas=gone("numpy"))
    (fault,) = ready._packages()
    assert fault.startswith("pandas and vl-convert cannot be loaded: delete the folder .venv")


def test_a_fault_stops_the_notebook_without_a_traceback(well):
    well.setattr(ready, "_data", lambda: ["the models' data is missing"])
    with pytest.raises(ready.NotReady) as caught:
        ready.ready()
    assert caught.value._render_traceback_() == ["This notebook cannot run yet:", "  - the models' data is missing"]
    assert repr(ready.look()) == "Not ready: the models' data is missing."
    assert "✗ Not ready" in ready.look()._repr_html_()


def test_an_old_python(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    assert ready._python() == ["this is Python 3.9, and the workbook needs 3.11 or newer: start run.py with a newer Python"]


def test_a_folder_without_data(monkeypatch):
    monkeypatch.setattr(catalog, "models", list)
    assert "unpack or clone it again" in ready._data()[0]


def test_a_version_nobody_tried_is_a_doubt(monkeypatch):
    monkeypatch.setattr(ready, "_version", lambda name: "5.4.0" if name == "altair" else None)
    monkeypatch.setattr(ready.metadata, "requires", lambda name: ["altair<7,>=6", "pandas>=2", "pytest>=8; extra == 'test'"])
    (doubt,) = ready._versions()
    assert doubt.startswith("altair is 5.4.0, tried is <7,>=6; ")


def test_a_package_without_its_own_record_is_no_doubt(monkeypatch):
    def lost(name):
        raise ready.metadata.PackageNotFoundError(name)
    monkeypatch.setattr(ready.metadata, "requires", lost)
    assert ready._versions() == []


def test_controls_without_their_half_in_the_browser(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    (doubt,) = ready._browser_half()
    assert "@jupyter-widgets/jupyterlab-manager and anywidget" in doubt and "python run.py lab" in doubt
    for name in ("@jupyter-widgets/jupyterlab-manager", "anywidget"):
        (tmp_path / "share" / "jupyter" / "labextensions" / name).mkdir(parents=True)
    assert ready._browser_half() == []


def test_a_kernel_of_another_jupyterlab(monkeypatch):
    monkeypatch.setattr(ready, "_version", lambda name: None)
    assert "runs from elsewhere" in ready._browser_half()[0]


def test_a_chart_that_cannot_be_drawn(monkeypatch):
    class Broken:
        @staticmethod
        def vegalite_to_svg(spec):
            raise OSError("no font")
    real = importlib.import_module
    monkeypatch.setattr(ready.importlib, "import_module", lambda name: Broken if name == "vl_convert" else real(name))
    assert "a chart could not be drawn on this computer (OSError)" in ready._drawing()[0]


def test_doubts_do_not_stop(well):
    well.setattr(ready, "_drawing", lambda: ["a <chart> could not be drawn"])
    report = ready.ready()
    assert repr(report) == "Ready, with a doubt: a <chart> could not be drawn."
    assert "&lt;chart&gt;" in report._repr_html_() and "! Ready, with a doubt" in report._repr_html_()


def test_it_speaks_where_everything_else_is_missing():
    """In a Python without a single package, as a reader's own Jupyter may be."""
    code = "from kvlib.ready import look; print(look())"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Not ready: ipywidgets, anywidget, pandas, Altair and vl-convert are missing: ")
