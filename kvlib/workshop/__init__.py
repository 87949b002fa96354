"""The workshop's exercises: by number, checked at once, with two hints each.

>>> check("03.2", "num_attention_heads")
Not yet: num_attention_heads – those are the query heads, which leave nothing behind; keys and values are shared by several.
>>> check("01.1", "188 KiB").state
'right'
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from kvlib.exercise import About, Exercise, Verdict
from kvlib.workshop import progress as _kept

LESSONS = ("lesson_01", "lesson_02", "lesson_03", "lesson_04", "lesson_05", "lesson_06", "lesson_07", "lesson_08", "lesson_09",
           "capstone")


@cache
def register() -> dict[str, Exercise]:
    """Every exercise by its number, in the order of the notebooks.

    >>> register()["02.1"].about.kind
    'read this log'
    """
    found = {}
    for lesson in LESSONS:
        for each in import_module(f"kvlib.workshop.{lesson}").EXERCISES:
            found[each.about.number] = each
    return found


def ninety() -> list[About]:
    """The six exercises of the 90-minute plan.

    >>> [about.number for about in ninety()]
    ['01.1', '01.2', '02.1', '03.1', '03.3', 'capstone']
    """
    return [each.about for each in register().values() if each.about.ninety]


def check(number: str, answer) -> Verdict:
    """What is right or wrong with an answer: a number, or text such as "681,600 tokens". Never raises."""
    exercise = register().get(str(number).strip())
    if exercise is None:
        return _unknown(number)
    verdict = exercise.check(answer)
    if verdict.state == "right":
        _kept.note(exercise.about.number)
    return verdict


_asked: dict[str, int] = {}


def hint(number: str, step: int | None = None) -> Verdict:
    """The first hint of an exercise; the second when asked again, or with ``step=2``.

    >>> hint("02.1")
    Hint 1 of 2: Which of the card's GiB does vLLM count with? The share is of the total.
    """
    exercise = register().get(str(number).strip())
    if exercise is None:
        return _unknown(number)
    now = step if step in (1, 2) else min(2, _asked.get(exercise.about.number, 0) + 1)
    _asked[exercise.about.number] = now
    return Verdict("hint", f"Hint {now} of 2: {exercise.about.hints[now - 1]}")


def progress() -> Verdict:
    """One line: which exercises were answered right so far, in this folder."""
    return Verdict("open", _kept.line(list(register())))


def _unknown(number) -> Verdict:
    near = [known for known in register() if known.split(".")[0] == str(number).strip()[:2]]
    return Verdict("wrong", f"There is no exercise {str(number)[:20]!r}; " + (
        f"this notebook's are {', '.join(near)}." if near else "they are numbered as in the notebooks, such as \"03.2\"."))
