"""The rows of a sweep while they come in: one array a column, made at once, filled piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..capacity import OUTCOMES

MISSING = np.iinfo(np.int64).min  # stands for <NA> until the frame is made
NOT_SIZED = ("flags_refused", "unknown_architecture", "weights_unknown")
WORDS = (*OUTCOMES, *NOT_SIZED)
VERDICTS = ("passes", "too close to call", "fails")


class Column(NamedTuple):
    """How a column is stored while it is filled, and what makes it a column of the frame."""

    dtype: Any
    finish: Callable[[np.ndarray], Any]
    missing: Any = None


def whole_numbers(values: np.ndarray):
    """Int64 with <NA>; Python's own ints where one is too large for 64 bits."""
    if values.dtype == object:
        return pd.array([pd.NA if value == MISSING else value for value in values], dtype=object)
    return pd.arrays.IntegerArray(values, values == MISSING)


def words(choices: Sequence[str]) -> Column:
    """A column of few words, stored as their positions; -1 is missing."""
    return Column(np.int32, lambda codes: pd.Categorical.from_codes(codes, list(choices)), -1)


WHOLE, REAL = Column(np.int64, whole_numbers, MISSING), Column(np.float64, lambda values: values, np.nan)
OUTCOME, VERDICT = words(WORDS), words(VERDICTS)


class Axis(NamedTuple):
    """A column with the values of one axis: ``cells`` has what is stored for each value."""

    column: Column
    cells: list

    @classmethod
    def of(cls, values: Sequence[Any]) -> Axis:
        known = [value for value in values if value is not None]
        kinds = {type(value) for value in known}
        if kinds == {int}:
            plain = len(known) == len(values)
            return cls(Column(np.int64, (lambda stored: stored) if plain else whole_numbers),
                       [MISSING if value is None else value for value in values])
        if kinds == {bool} and len(known) == len(values):
            return cls(Column(bool, lambda stored: stored), list(values))
        if kinds and kinds <= {int, float}:
            return cls(REAL, [np.nan if value is None else value for value in values])
        names = [str(getattr(value, "name", value)) for value in known]
        places = {name: place for place, name in enumerate(dict.fromkeys(names))}
        return cls(words(places), [-1 if value is None else places[str(getattr(value, "name", value))] for value in values])


class Table:
    """Columns for ``size`` rows. :meth:`put` writes into the next rows, :meth:`close` counts them as written."""

    def __init__(self, columns: dict[str, Column], size: int, reasons: Sequence[str]):
        self.columns, self.size, self.filled = columns, size, 0
        self.stored = {name: np.empty(size, column.dtype) for name, column in columns.items()}
        self.reasons = {sentence: place for place, sentence in enumerate(reasons)}

    def reason(self, sentence: str) -> int:
        """The number of a sentence among those that stand in ``reason``."""
        return self.reasons.setdefault(sentence, len(self.reasons))

    def put(self, shape: tuple[int, int], positions, values: Mapping[str, Any]) -> None:
        """Write values into lengths × memories rows; ``positions`` says into which of the lengths."""
        start, end = self.filled, self.filled + shape[0] * shape[1]
        for name, value in values.items():
            try:
                self.stored[name][start:end].reshape(shape)[positions] = value
            except OverflowError:  # larger than 64 bits: from here on the column holds Python's own ints
                self.stored[name] = self.stored[name].astype(object)
                self.stored[name][start:end].reshape(shape)[positions] = value

    def close(self, rows: int) -> None:
        """These rows are whole; what an interruption leaves half written is not."""
        self.filled += rows

    def frame(self) -> pd.DataFrame:
        """The rows written so far."""
        stored = {name: values[:self.filled] for name, values in self.stored.items()}
        finished = {name: column.finish(stored[name]) for name, column in self.columns.items() if name != "reason"}
        finished["reason"] = pd.Categorical.from_codes(stored["reason"], list(self.reasons))
        return pd.DataFrame(finished, copy=False)
