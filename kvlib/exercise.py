"""Exercises that answer at once, and name the slip behind a wrong number.

>>> kib = Exercise(144, unit="KiB", slips={576: "the 32 query heads are counted; only the 8 KV heads are kept"})
>>> kib.check("144 KiB")
Right: 144 KiB.
>>> kib.check(576)
Not yet: 576 KiB – the 32 query heads are counted; only the 8 KV heads are kept.
>>> kib.check("147456 bytes")
Right: 144 KiB.
>>> kib.check(None)
Put your answer in place of None, then run the cell again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kvlib.tables import Html, html, number
from kvlib.typed import BYTES, COUNTS, DECIMAL, NotANumber, read, short

KINDS = ("predict", "fill the cell", "find the mistake", "read this log", "choose the flags")
LEVELS = ("easy", "medium", "hard")
OPEN = "Put your answer in place of None, then run the cell again."
_MARKS = {"right": ("✓", "#009E73"), "wrong": ("✗", "#D55E00"), "open": ("…", "#767676"), "hint": ("?", "#0072B2")}


@dataclass(frozen=True)
class Verdict:
    """What :meth:`Exercise.check` says: ``state`` is "right", "wrong", "open" (no answer yet) or "hint"."""

    state: str
    text: str

    def _repr_html_(self) -> Html:
        sign, colour = _MARKS[self.state]
        return html('<div style="border-left:4px solid {};padding:2px 10px">{} {}</div>', colour, sign, self.text)

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class About:
    """What a teacher wants to know of an exercise; ``minutes`` include reading the question."""

    number: str
    title: str
    kind: str
    level: str
    minutes: int
    misconception: str
    hints: tuple[str, str]
    ninety: bool = False

    @property
    def heading(self) -> str:
        """How the exercise is headed in a notebook, in Markdown."""
        return f"### {self.number.capitalize()} · {self.title}\n*{self.kind} · {self.level} · {self.minutes} min*"


@dataclass(frozen=True)
class Exercise:
    """A question with one number, or one text, as its answer.

    ``expected`` may be a function without arguments. ``within`` is the distance, in per cent, that still counts
    as right; ``slips`` maps a wrong answer to what was probably done (a mapping, pairs, or a function that gives them);
    ``because`` follows a right answer. ``judge``, where given, takes the answer as text and returns a Verdict:
    for questions with more than one right answer. An answer in another unit of memory is converted.
    """

    expected: object
    unit: str = ""
    within: float = 0
    slips: Mapping | Iterable | Callable = field(default_factory=dict)
    because: str = ""
    about: About | None = None
    judge: Callable[[str], Verdict] | None = None

    def check(self, answer) -> Verdict:
        """Right, wrong with a reason where one is known, or what to type. It never raises."""
        if answer is None or answer is Ellipsis or isinstance(answer, str) and not answer.strip():
            return Verdict("open", OPEN)
        if self.judge:
            return self.judge(answer) if isinstance(answer, str) else Verdict(
                "wrong", f"Found {short(answer)}; text in quotes is expected.")
        if isinstance(self.right, str):
            return self._word(answer)
        try:
            typed = read(answer)
        except NotANumber as problem:
            return Verdict("wrong", str(problem))
        return self._number(typed.value, typed.unit)

    @property
    def right(self):
        """The answer, worked out now."""
        return self.expected() if callable(self.expected) else self.expected

    @property
    def wrong(self) -> tuple:
        """Pairs of a foreseen wrong answer and what was probably done, worked out now."""
        slips = self.slips() if callable(self.slips) else self.slips
        return tuple(slips.items() if isinstance(slips, Mapping) else slips)

    def _word(self, answer) -> Verdict:
        said = " ".join(str(answer).split())
        if _plain(said) == _plain(self.right):
            return self._yes(said)
        for slip, why in self.wrong:
            if _plain(said) == _plain(slip):
                return Verdict("wrong", f"Not yet: {said} – {_ended(why)}")
        return Verdict("wrong", f"Not yet: {short(said)}. Read the question once more, or ask for a hint.")

    def _number(self, value, unit) -> Verdict:
        if unit and unit != self.unit:
            if unit in BYTES and self.unit in BYTES:
                return self._converted(value, unit)
            if unit == "%" and self.unit == "":
                value = value / 100
            elif not (unit == "x" and self.unit in ("", "requests", "sequences")):
                return Verdict("wrong", f"Not yet: that is a figure in {unit}; {self._asked()}.")
        if self._near(value, self.right):
            return self._yes(self._said(value))
        return self._no(value, unit)

    def _converted(self, value, unit) -> Verdict:
        there = value * BYTES[unit] / BYTES[self.unit]
        there = int(there) if there == int(there) else there
        if self._near(there, self.right):
            return self._yes(self._said(there))
        meant = DECIMAL.get(unit)
        if meant and self._near(value * BYTES[meant] / BYTES[self.unit], self.right):
            return Verdict("wrong", f"Not yet: the figure is right in {meant}, and {unit} was written, steps of 1,000 and not of 1,024.")
        return self._no(there, unit)

    def _no(self, value, unit) -> Verdict:
        for slip, why in self.wrong:
            if self._near(value, slip) or self._rounded(value, slip):
                return Verdict("wrong", f"Not yet: {self._said(value)} – {_ended(why)}")
        if not unit and self.unit in BYTES:
            for other in ("B", "KiB", "MiB", "GiB"):
                if other != self.unit and self._near(value * BYTES[other] / BYTES[self.unit], self.right):
                    return Verdict("wrong", f"Not yet: that would be right in {other}; {self._asked()}. "
                                            f"Or write the unit: \"{number(value)} {other}\".")
        return Verdict("wrong", f"Not yet: {self._said(value)} is too {'large' if value > self.right else 'small'}.")

    def _yes(self, said) -> Verdict:
        return Verdict("right", f"Right: {said}." + (f" {self.because}" if self.because else ""))

    def _asked(self) -> str:
        return f"{self.unit} are asked for" if self.unit else "a plain number is asked for"

    def _said(self, value) -> str:
        unit = self.unit[:-1] if self.unit in COUNTS and value == 1 else self.unit
        return f"{number(value)} {unit}".strip()

    @staticmethod
    def _rounded(answer, slip) -> bool:
        """True for a slip that was typed with some of its decimals."""
        decimals = str(answer).partition(".")[2]
        return bool(decimals) and "e" not in decimals and round(slip, len(decimals)) == answer

    def _near(self, answer, value) -> bool:
        return abs(answer - value) <= abs(value) * max(self.within, 1e-9) / 100


def _plain(text) -> str:
    return str(text).strip().strip("`'\" ").replace("=", " ").replace("-", "_").lower().strip("_")


def _ended(text: str) -> str:
    return text if text.endswith("?") else text + "."
