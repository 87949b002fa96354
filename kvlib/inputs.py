"""What a panel may ask for: each input knows its name, unit, range, flag and how to read typed text.

An input never clamps. Text that is not a value raises :class:`InputError` with one sentence that
names the field, what was found and what is expected.

>>> length = PowerOfTwo("max_model_len", 40960, min=1024, max=131072, unit="tokens")
>>> length.parse("40,960"), length.parse("32K"), length.text(65536)
(40960, 32768, '65,536')
>>> length.parse("-5")
Traceback (most recent call last):
    ...
kvlib.inputs.InputError: Max model len: found -5, expected a whole number from 1 to 16,777,216 tokens.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from types import SimpleNamespace

_GROUPED = re.compile(r"[+-]?\d{1,3}([,_\u2009\u202f ]\d{3})+(\.\d+)?")
_SUFFIX = {"k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}


class InputError(ValueError):
    """A typed value that an input cannot use; the message is one sentence for the reader."""


def _shown(raw) -> str:
    text = str(raw).strip()
    if not text:
        return "nothing"
    return text if len(text) <= 40 else text[:37] + "…"


def read_number(text: str) -> Decimal | None:
    """The number a person typed, or None. Grouped digits and vLLM's k (1000) and K (1024) are read."""
    text = str(text).strip()
    if _GROUPED.fullmatch(text):
        text = re.sub(r"[,_\u2009\u202f ]", "", text)
    factor = _SUFFIX.get(text[-1:], 1)
    if factor != 1:
        text = text[:-1].strip()
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    # Nobody means a number of more than forty digits, and it must not be multiplied out.
    return number * factor if number.is_finite() and abs(number.adjusted()) < 40 else None


class Input:
    """Base of all inputs. ``name`` is the key in the state; ``label`` is what the reader sees."""

    kind = "text"
    wide = False  # a wide input stands under the picture, not in the column of inputs
    top = False   # an input on top stands above the answer
    row = False   # an input of the row stands beside others under the picture

    def __init__(self, name, default, *, label=None, unit="", flag="", help="", row=False):
        self.name, self.default, self.row = name, default, row
        self.label = label or name.replace("_", " ").capitalize()
        self.unit, self.flag, self.help = unit, flag, help

    def text(self, value):
        """The value as it stands in the box."""
        return str(value)

    def parse(self, raw):
        """The value behind what stands in the box; raises InputError."""
        return str(raw)

    def range_text(self) -> str:
        """The range, in words, for the hint and the key."""
        return ""

    def describe(self) -> dict:
        """What the browser needs to draw the input."""
        return {
            "name": self.name, "kind": self.kind, "label": self.label, "unit": self.unit,
            "flag": self.flag, "hint": self.range_text(), "wide": self.wide, "top": self.top, "row": self.row,
        }

    def _error(self, raw, expected) -> InputError:
        return InputError(f"{self.label}: found {_shown(raw)}, expected {expected}.")


class Number(Input):
    """A number with a slider and a box. ``min`` and ``max`` bound the slider;
    ``at_least`` and ``at_most`` (by default the same) bound what the box accepts."""

    kind = "number"

    def __init__(self, name, default, *, min, max, step=1, at_least=None, at_most=None,
                 integer=None, slider=True, **words):
        super().__init__(name, default, **words)
        self.min, self.max, self.step, self.slider = min, max, step, slider
        self.at_least = min if at_least is None else at_least
        self.at_most = max if at_most is None else at_most
        self.integer = isinstance(step, int) and isinstance(default, int) if integer is None else integer
        self.decimals = 0 if self.integer else -Decimal(str(step)).as_tuple().exponent

    def text(self, value):
        if self.integer:
            return f"{int(value):,}"
        short = f"{value:,.{self.decimals}f}"
        return short if float(short.replace(",", "")) == float(value) else f"{value:,}"

    def range_text(self):
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.text(self.at_least)} to {self.text(self.at_most)}{unit}"

    def parse(self, raw):
        number = read_number(raw)
        inside = number is not None and Decimal(str(self.at_least)) <= number <= Decimal(str(self.at_most))
        if not inside or self.integer and number != number.to_integral_value():
            what = "a whole number" if self.integer else "a number"
            raise self._error(raw, f"{what} from {self.range_text()}")
        return int(number) if self.integer else float(number)

    def describe(self):
        slider = {"min": self.min, "max": self.max, "step": self.step, "decimals": self.decimals,
                  "stops": self.stops()}
        return super().describe() | {"slider": slider if self.slider else None}

    def stops(self):
        """The values the slider rests on, or None for even steps."""
        return None

    def every_stop(self) -> list:
        """The values the slider rests on, from end to end.

        >>> Number("n", 0.2, min=0.1, max=0.3, step=0.1).every_stop()
        [0.1, 0.2, 0.3]
        """
        if (found := self.stops()) is not None:
            return found
        count = round((self.max - self.min) / self.step)
        even = [round(self.min + i * self.step, 9) for i in range(count + 1)]
        return [int(value) for value in even] if self.integer else even


class PowerOfTwo(Number):
    """A length or count: the slider moves on powers of two, the box takes any whole number."""

    def __init__(self, name, default, *, min, max, at_least=1, at_most=2**24, **words):
        super().__init__(name, default, min=min, max=max, at_least=at_least, at_most=at_most,
                         integer=True, **words)

    def stops(self):
        """Powers of two between the ends, the ends themselves and the default."""
        powers = {2**e for e in range(self.min.bit_length() - 1, self.max.bit_length() + 1)}
        inside = {p for p in powers if self.min <= p <= self.max}
        return sorted(inside | {self.min, self.max, self.default})


class Fraction(Number):
    """A share between 0 and 1, such as ``gpu_memory_utilization``; the box also takes ``92%``."""

    def __init__(self, name, default, *, min=0.05, max=1.0, step=0.01, **words):
        super().__init__(name, default, min=min, max=max, step=step, integer=False, **words)

    def parse(self, raw):
        text = str(raw).strip()
        number = read_number(text[:-1]) if text.endswith("%") else None
        return super().parse(str(number / 100) if number is not None else raw)


class Choice(Input):
    """One of a few. ``options`` is a list, or a dict from what is shown to the value it stands for.
    ``style`` is "menu" or "buttons"."""

    kind = "choice"

    def __init__(self, name, options, default=None, *, style="menu", **words):
        self.options = options if isinstance(options, dict) else {str(o): o for o in options}
        first = next(iter(self.options.values()))
        super().__init__(name, first if default is None else default, **words)
        self.style = style

    def text(self, value):
        for shown, option in self.options.items():
            if option == value or shown == value:
                return shown
        return str(value)

    def parse(self, raw):
        if str(raw) in self.options:
            return self.options[str(raw)]
        raise self._error(raw, "one of " + ", ".join(self.options))

    def range_text(self):
        return "" if len(self.options) > 8 else ", ".join(self.options)

    def describe(self):
        return super().describe() | {"options": list(self.options), "style": self.style, "hint": ""}


class Toggle(Input):
    """On or off."""

    kind = "toggle"

    def __init__(self, name, default=False, **words):
        super().__init__(name, bool(default), **words)

    def text(self, value):
        return "on" if value and value != "off" else "off"

    def parse(self, raw):
        if raw in (True, False):
            return bool(raw)
        if str(raw).lower() in ("on", "off"):
            return str(raw).lower() == "on"
        raise self._error(raw, "on or off")

    def range_text(self):
        return "on or off"

    def describe(self):
        return super().describe() | {"hint": ""}


class TextBox(Input):
    """Free text: one line, or ``lines`` of them (a pasted config or log, then usually ``wide=True``).
    ``read`` may turn the text into a value; a ValueError it raises becomes the field's sentence.
    Of a text longer than ``most`` characters the browser sends the length alone; ``instead`` says what to do.
    ``suggestions`` are offered while one types; ``placeholder`` says what an empty box is for. A file may be dropped."""

    kind = "text"

    def __init__(self, name, default="", *, lines=1, wide=False, top=False, read=None, most=4_000_000, instead="shorten it",
                 suggestions=(), placeholder="", **words):
        super().__init__(name, default, **words)
        self.lines, self.wide, self.top, self.read, self.most, self.instead = lines, wide, top, read, most, instead
        self.suggestions, self.placeholder = list(suggestions), placeholder

    def parse(self, raw):
        length = int(raw[1:]) if str(raw)[:1] == "\0" and raw[1:].isdigit() else len(raw)
        if length > self.most:
            raise InputError(f"{self.label}: {length:,} characters are more than the {self.most:,} that can be sent; "
                             f"{self.instead}.")
        if self.read is None:
            return str(raw)
        try:
            return self.read(str(raw))
        except ValueError as problem:
            raise InputError(f"{self.label}: {problem}") from None

    def describe(self):
        return super().describe() | {"lines": self.lines, "most": self.most, "suggestions": self.suggestions,
                                     "placeholder": self.placeholder}


class Rows(Input):
    """An editable table: ``columns`` are inputs, ``default`` a list of dicts. The reader changes cells,
    adds rows (a copy of the last) and removes them; the value is a list of namespaces."""

    kind = "rows"
    wide = True

    def __init__(self, name, columns, default, *, max_rows=12, **words):
        super().__init__(name, default, **words)
        self.columns, self.max_rows = list(columns), max_rows

    def text(self, value):
        rows = [row if isinstance(row, dict) else vars(row) for row in value]
        return [[c.text(row[c.name]) for c in self.columns] for row in rows]

    def parse(self, raw):
        if not 1 <= len(raw) <= self.max_rows:
            raise self._error(f"{len(raw)} rows", f"1 to {self.max_rows} rows")
        out = []
        for number, cells in enumerate(raw, 1):
            row = SimpleNamespace()
            for column, cell in zip(self.columns, cells, strict=True):
                try:
                    setattr(row, column.name, column.parse(cell))
                except InputError as problem:
                    raise InputError(f"{self.label}, row {number}, {problem}") from None
            out.append(row)
        return out

    def range_text(self):
        return f"1 to {self.max_rows} rows"

    def describe(self):
        return super().describe() | {"columns": [c.describe() for c in self.columns], "max_rows": self.max_rows}
