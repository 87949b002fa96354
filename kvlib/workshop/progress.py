"""What a learner has got right, kept in one small file beside the notebooks.

Where the file cannot be read or written, only the running notebook remembers.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

NAME = ".workshop-progress.json"
_right: set[str] = set()


def _file() -> Path | None:
    """The file, in the folder of the notebook that runs; none outside a notebook, or while notebooks are stored or tested."""
    return Path.cwd() / NAME if "ipykernel" in sys.modules and os.environ.get("KVLIB_STRICT") != "1" else None


def read() -> set[str]:
    """The numbers answered right, in this notebook and in others of the folder."""
    path = _file()
    try:
        kept = json.loads(path.read_text(encoding="utf-8")) if path else []
    except (OSError, ValueError):
        kept = []
    return _right | {each for each in kept if isinstance(each, str)} if isinstance(kept, list) else set(_right)


def note(number: str) -> None:
    """Remember a right answer."""
    if number in _right:
        return
    _right.update(read() | {number})
    path = _file()
    if path is None:
        return
    try:
        path.write_text(json.dumps(sorted(_right)), encoding="utf-8")
    except OSError:
        pass


def forget() -> None:
    """Start from nothing, for this notebook; the file stays."""
    _right.clear()


def line(numbers: list[str]) -> str:
    """One line: how many are right, and a mark for each, by notebook."""
    right, lessons = read(), {}
    for number in numbers:
        lessons.setdefault(number.partition(".")[0], []).append("✓" if number in right else "·")
    done = sum(number in right for number in numbers)
    return f"{done} of {len(numbers)} right: " + "  ".join(f"{lesson} {''.join(marks)}" for lesson, marks in lessons.items())
