"""What the next steps of a slider will ask for, worked out while nobody waits: the stops beside it first, one at a time.

For panels whose maths takes longer than a step may, and remembers what it has answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

QUIET, BETWEEN = 0.25, 0.01  # seconds without an edit before it begins; seconds left to others between two stops
FAR = 32  # stops at most


class Ahead:
    """``answer`` each of some values in turn, in the running event loop, until told to stop. Without a loop nothing is done."""

    def __init__(self, answer: Callable):
        self.answer, self._timer = answer, None

    def begin(self, values: Iterable) -> None:
        """Stop, and begin with these values once it has been quiet for a while."""
        self.stop()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._timer = loop.call_later(QUIET, self._one, loop, iter(values))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _one(self, loop, values) -> None:
        value = next(values, None)
        if value is not None:
            self._timer = loop.call_later(BETWEEN, self._one, loop, values)
            self.answer(value)


def nearest_first(values: list, at) -> list:
    """The values other than the one nearest to ``at``, by how many stops they are away from that; at most FAR.

    >>> nearest_first([10, 20, 30, 40], at=21)
    [10, 30, 40]
    """
    here = min(range(len(values)), key=lambda i: abs(values[i] - at))
    return [values[i] for i in sorted(range(len(values)), key=lambda i: abs(i - here))[1:FAR + 1]]
