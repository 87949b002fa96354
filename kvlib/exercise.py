"""Exercises that answer at once, and name the slip behind a wrong number.

>>> kib = Exercise(144, unit="KiB", slips={576: "the 32 query heads are counted; only the 8 KV heads are kept"})
>>> kib.check(144)
Right: 144 KiB.
>>> kib.check(576)
Not yet: 576 KiB – the 32 query heads are counted; only the 8 KV heads are kept.
>>> kib.check(None)
Put your answer in place of None, then run the cell again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvlib.tables import Html, html, number

_MARKS = {"right": ("✓", "#009E73"), "wrong": ("✗", "#D55E00"), "open": ("…", "#999999")}


@dataclass(frozen=True)
class Verdict:
    """What :meth:`Exercise.check` says: ``state`` is "right", "wrong" or "open" (no answer yet)."""

    state: str
    text: str

    def _repr_html_(self) -> Html:
        sign, colour = _MARKS[self.state]
        return html('<div style="border-left:4px solid {};padding:2px 10px">{} {}</div>', colour, sign, self.text)

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Exercise:
    """A question with one number, or one text, as its answer.

    ``expected`` may be a function without arguments. ``within`` is the distance, in per cent, that still counts
    as right; ``slips`` maps a wrong answer to what was probably done; ``because`` follows a right answer.
    """

    expected: object
    unit: str = ""
    within: float = 0
    slips: Mapping = field(default_factory=dict)
    because: str = ""

    def check(self, answer) -> Verdict:
        """Right, wrong with a reason where one is known, or what to type. It never raises."""
        if answer is None or answer is Ellipsis:
            return Verdict("open", "Put your answer in place of None, then run the cell again.")
        expected = self.expected() if callable(self.expected) else self.expected
        if isinstance(expected, str):
            return self._judge(answer, str(answer).strip().lower() == expected.lower())
        if isinstance(answer, bool) or not isinstance(answer, (int, float)) or not math.isfinite(answer):
            return Verdict("wrong", f"Found {answer!r}; a number is expected, such as 12 or 4.5.")
        return self._judge(answer, self._near(answer, expected))

    def _near(self, answer, value) -> bool:
        return abs(answer - value) <= abs(value) * max(self.within, 1e-9) / 100

    def _judge(self, answer, right: bool) -> Verdict:
        said = f"{answer if isinstance(answer, str) else number(answer)} {self.unit}".strip()
        if right:
            return Verdict("right", f"Right: {said}." + (f" {self.because}" if self.because else ""))
        for slip, why in self.slips.items():
            if slip == answer or (isinstance(slip, (int, float)) and isinstance(answer, (int, float))
                                  and self._near(answer, slip)):
                return Verdict("wrong", f"Not yet: {said} – {why}.")
        expected = self.expected() if callable(self.expected) else self.expected
        if isinstance(expected, str):
            return Verdict("wrong", f"Not yet: {said}. Read the question once more, or open the worked answer.")
        return Verdict("wrong", f"Not yet: {said} is too {'large' if answer > expected else 'small'}.")
