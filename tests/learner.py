"""Exercises are written once, solved, in notebooks/solutions; the learner's cells are made from them.

    python tests/learner.py            # write the blank cells into the lessons and the workshop notebook
    python tests/learner.py --check    # write nothing, say what differs

A question and its check stand in a solutions notebook under the ids ``ex-01-1`` and ``ex-01-1-check``. A lesson that has
cells of these ids gets the question word for word, and the check with ``None`` in place of the answer.
"""
from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
SOLUTIONS = NOTEBOOKS / "solutions"
_ID = re.compile(r"ex-(\d\d-\d+|capstone)(-check)?")
_ANSWER = re.compile(r"(my_\w+) = (.+?)(\s*# .*)?")


def number_of(cell_id):
    """The exercise a cell belongs to ("ex-01-2-check" -> "01.2"), or None."""
    found = _ID.fullmatch(cell_id)
    return found and found[1].replace("-", ".")


def blank(source):
    """A solved check with None in place of the answer; a comment stays.

    >>> print(blank('my_kib = 96 / 4      # KiB'))
    my_kib = None                      # KiB
    """
    lines = []
    for line in source.splitlines():
        found = _ANSWER.fullmatch(line)
        if found:
            line = f"{found[1]} = None"
            comment = (found[3] or "").strip()
            line += " " * max(2, 35 - len(line)) + comment if comment else ""
        lines.append(line)
    return "\n".join(lines)


def cells_of(path):
    return nbformat.read(path, as_version=4).cells


def exercises(folder=SOLUTIONS):
    """Cell id -> what a learner's cell of that id must hold, over all solutions."""
    return {cell.id: cell.source if cell.cell_type == "markdown" else blank(cell.source)
            for path in sorted(folder.glob("*_solutions.ipynb")) for cell in cells_of(path) if number_of(cell.id)}


def learners():
    """The notebooks with exercises: the lessons, and the one for the 90 minutes."""
    return [path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if any(number_of(cell.id) for cell in cells_of(path))]


def drifted():
    """Cells of learners' notebooks that are not what the solutions make of them: (file name, cell id, in the solutions)."""
    wanted = exercises()
    return [(path.name, cell.id, cell.id in wanted) for path in learners() for cell in cells_of(path)
            if number_of(cell.id) and cell.source != wanted.get(cell.id)]


def write():
    """Put the blank cells into the notebooks; the names of those that changed."""
    changed, wanted = [], exercises()
    for path in learners():
        content = json.loads(path.read_text("utf-8"))
        new = [cell for cell in content["cells"] if "".join(cell["source"]) != wanted.get(cell["id"], "".join(cell["source"]))]
        for cell in new:
            cell["source"] = wanted[cell["id"]].splitlines(keepends=True)
        if new:
            path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
            changed.append(path.name)
    return changed


def main(argv=None):
    parser = argparse.ArgumentParser(description="Make the learners' cells from the solutions.")
    parser.add_argument("--check", action="store_true", help="write nothing, only say what differs")
    if parser.parse_args(argv).check:
        found = drifted()
        for name, cell, known in found:
            print(f"{name}: {cell} " + ("differs from the solutions" if known else "is not in the solutions"))
        return 1 if found else 0
    changed = write()
    print("written: " + ", ".join(changed) if changed else "unchanged")
    return 0


if __name__ == "__main__":
    sys.exit(main())
