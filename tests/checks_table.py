"""What every check says: to a right answer, three likely wrong ones, and nonsense; as Markdown, to be read for its tone.

    python tests/checks_table.py [01 capstone ...]
"""
from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
from test_workshop import ANSWERS  # noqa: E402

from kvlib.workshop import check, register  # noqa: E402

NONSENSE = "hello"


def rows(number: str):
    """(what kind of answer, what was typed, what was said) for one exercise."""
    right, wrong = ANSWERS[number]
    yield "right", (right or [register()[number].right])[0]
    for answer, _ in wrong[:3]:
        yield "wrong", answer
    yield "nonsense", NONSENSE


def table(numbers=()) -> str:
    """The table, of all exercises or of those whose number begins with one of the texts."""
    lines = ["| No. | Answer | Typed | What is said |", "|---|---|---|---|"]
    for number in register():
        if not numbers or number.startswith(tuple(numbers)):
            lines += [f"| {number} | {kind} | `{answer}` | {check(number, answer)} |" for kind, answer in rows(number)]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(sys.argv[1:]))
