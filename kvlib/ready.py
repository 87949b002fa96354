"""One look at this computer before a lesson: what a notebook needs, and how to mend what is missing.

Only Python's own library is imported here, so that it can still speak where everything else is missing.

>>> Report((), ("Altair is older than 6",))
Ready, with a doubt: Altair is older than 6.
"""

from __future__ import annotations

import html
import importlib
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

OLDEST = (3, 11)
# name on the package index -> (name to import, name for people)
NEEDED = {
    "ipywidgets": ("ipywidgets", "ipywidgets"),
    "anywidget": ("anywidget", "anywidget"),
    "pandas": ("pandas", "pandas"),
    "altair": ("altair", "Altair"),
    "vl-convert-python": ("vl_convert", "vl-convert"),
}
MEND = "close JupyterLab, go to the workbook's folder and start it with: python run.py lab (it fetches what is missing, once)"
FOUND = "Python, JupyterLab, widgets, charts and the models' data are in place; nothing will be fetched from the network."
_BAR = {"$schema": "https://vega.github.io/schema/vega-lite/v6.json", "mark": "bar", "data": {"values": [{"a": 1}]},
        "encoding": {"x": {"field": "a", "type": "quantitative"}}}


class NotReady(Exception):
    """What stops this notebook, and how to mend it. A notebook shows the sentences alone, without a traceback."""

    def _render_traceback_(self):
        return str(self).splitlines()


class Report(NamedTuple):
    """What was found. ``faults`` stop a notebook; ``doubts`` may."""

    faults: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if self.faults:
            return "Not ready: " + "; ".join(self.faults) + "."
        if self.doubts:
            return "Ready, with a doubt: " + "; ".join(self.doubts) + "."
        return "Ready: " + FOUND

    def _repr_html_(self) -> str:
        word, _, rest = repr(self).partition(": ")
        colour = "#b3261e" if self.faults else "#8a5a00" if self.doubts else "#00734f"
        mark = "✗" if self.faults else "!" if self.doubts else "✓"
        return (f'<p role="status" style="font-size:13px"><b style="background:{colour};color:#fff;border-radius:4px;'
                f'padding:1px 8px">{mark} {html.escape(word)}</b> {html.escape(rest, quote=False)}</p>')


def ready() -> Report:
    """Check this computer; the last line of a set-up cell shows the result. Raises NotReady if the lesson cannot run."""
    report = look()
    if report.faults:
        raise NotReady("\n".join(("This notebook cannot run yet:", *(f"  - {fault}" for fault in report.faults))))
    return report


def look() -> Report:
    """The same without raising."""
    faults = [*_python(), *_packages(), *_data()]
    doubts = [] if faults else [*_versions(), *_browser_half(), *_drawing()]
    return Report(tuple(faults), tuple(doubts))


def _python() -> list[str]:
    if sys.version_info[:2] >= OLDEST:
        return []
    return ["this is Python {0}.{1}, and the workbook needs {2}.{3} or newer: start run.py with a newer Python".format(
        *sys.version_info[:2], *OLDEST)]


def _packages() -> list[str]:
    missing, broken = [], []
    for module, name in NEEDED.values():
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as problem:
            (missing if problem.name == module else broken).append(name)
        except Exception:  # a compiled part that this system cannot load may raise anything
            broken.append(name)
    said = []
    if missing:
        said.append(f"{_and(missing)} {'is' if len(missing) == 1 else 'are'} missing: {MEND}")
    if broken:
        said.append(f"{_and(broken)} cannot be loaded: delete the folder .venv, then {MEND}")
    return said


def _data() -> list[str]:
    from . import catalog

    if "Qwen3-8B" in catalog.models():
        return []
    return ["the models' data is missing: the workbook's folder is not whole, so unpack or clone it again"]


def _versions() -> list[str]:
    try:
        from packaging.requirements import Requirement
        lines = metadata.requires("kvlib") or []
    except (ImportError, metadata.PackageNotFoundError):
        return []
    said = []
    for wanted in map(Requirement, lines):
        found = _version(wanted.name)
        if wanted.marker is not None or found is None or wanted.specifier.contains(found, prereleases=True):
            continue
        said.append(f"{wanted.name} is {found}, tried is {wanted.specifier}; if a chart stays empty, {MEND}")
    return said


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _browser_half() -> list[str]:
    """Each widget has a half that JupyterLab serves to the browser; without it a control shows as an error."""
    if _version("jupyterlab") is None:
        return ["JupyterLab is not installed beside this notebook's Python, so it runs from elsewhere; if no slider shows "
                "below, " + MEND]
    folders = [Path(top) / "share" / "jupyter" / "labextensions" for top in (sys.prefix, sys.base_prefix)]
    lost = [name for name in ("@jupyter-widgets/jupyterlab-manager", "anywidget")
            if not any((folder / name).is_dir() for folder in folders)]
    return [f"the browser's half of the controls ({_and(lost)}) is not where JupyterLab looks; if no slider shows below, {MEND}"
            ] if lost else []


def _drawing() -> list[str]:
    try:
        drawn = importlib.import_module("vl_convert").vegalite_to_svg(_BAR)
    except Exception as problem:
        drawn = f"{type(problem).__name__}"
    return [] if "<svg" in drawn else [f"a chart could not be drawn on this computer ({drawn[:60]}); the numbers are not affected"]


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
