"""Reads what a person typed as an answer: a number, with or without its unit.

>>> read("681,600 tokens"), read("1.70 GiB"), read("16.64x"), read(147456)
(Typed(value=681600, unit='tokens'), Typed(value=1.7, unit='GiB'), Typed(value=16.64, unit='x'), Typed(value=147456, unit=''))
"""

from __future__ import annotations

import math
import numbers
import re
from typing import NamedTuple

BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
DECIMAL = {"kB": "KiB", "MB": "MiB", "GB": "GiB", "TB": "TiB"}   # each with its binary sister
COUNTS = ("tokens", "blocks", "requests", "sequences", "layers", "heads", "GPUs")
_SPOKEN = {name.lower(): name for name in BYTES} | {"bytes": "B", "byte": "B", "kb": "kB", "kibibytes": "KiB", "gibibytes": "GiB",
                                                    "gigabytes": "GB", "x": "x", "×": "x", "times": "x", "%": "%", "percent": "%"}
_SPOKEN |= {name.lower(): name for name in COUNTS} | {name.lower()[:-1]: name for name in COUNTS}
_SHAPE = re.compile(r"([-+−]?[\d.,_'\s]*\d(?:\.(?!\d))?(?:e[-+]?\d+)?)\s*(.*)", re.I | re.S)


class Typed(NamedTuple):
    """A number as typed; ``unit`` is one of :data:`BYTES` or :data:`COUNTS`, "x", "%", or "" where none was given."""

    value: float
    unit: str = ""


class NotANumber(ValueError):
    """What was typed is not a number with a known unit; the message says what was expected."""


def read(answer) -> Typed:
    """The number and the unit of an answer. Raises NotANumber.

    Groups may be set off by commas, blanks, underscores or apostrophes; "1,70" is 1.7 and "1,700" is 1700.
    """
    if isinstance(answer, numbers.Real) and not isinstance(answer, bool):
        if not math.isfinite(answer):
            raise NotANumber(f"Found {answer!r}; a number is expected, such as 12 or 4.5.")
        return Typed(answer)
    if not isinstance(answer, str):
        raise NotANumber(f"Found {short(answer)}; a number is expected, such as 12 or \"4.5 GiB\".")
    found = _SHAPE.fullmatch(answer.strip().lstrip("≈~= "))
    if not found:
        raise NotANumber(f"There is no number in {short(answer)}; one is expected, such as 12 or \"4.5 GiB\".")
    word = found[2].strip().rstrip(".")
    unit = word if word in BYTES else _SPOKEN.get(word.lower(), None if word else "")
    if unit is None:
        raise NotANumber(f"{short(word)} is not a unit that is known here; write a number such as 12, or \"4.5 GiB\".")
    return Typed(_figure(found[1], answer), unit)


def _figure(text: str, answer: str) -> float:
    text = re.sub(r"[\s_']", "", text).replace("−", "-")
    if re.fullmatch(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", text):
        text = text.replace(",", "")
    elif re.fullmatch(r"[-+]?[1-9]\d{0,2}(\.\d{3}){2,}", text):
        text = text.replace(".", "")
    elif text.count(",") == 1 and "." not in text:
        text = text.replace(",", ".")
    try:
        value = float(text)
    except ValueError:
        raise NotANumber(f"{short(answer)} cannot be read as one number; write it as 681600, 681,600 or 4.5.") from None
    if not math.isfinite(value):
        raise NotANumber(f"Found {short(answer)}; a number is expected, such as 12 or 4.5.")
    return int(value) if value == int(value) and "e" not in text.lower() and abs(value) < 2**53 else value


def short(answer) -> str:
    """What was typed, in quotes, at most forty characters."""
    text = " ".join(str(answer).split())
    return repr(text if len(text) <= 40 else text[:39] + "…")
