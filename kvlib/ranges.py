"""How a range is written: two ends, rounded outward, so that it is never drawn narrower than it is."""

from __future__ import annotations

import math

from .units import GiB


def span(low: float, high: float) -> str:
    """Two ends with three significant figures.

    >>> span(19_856, 43_520), span(2.42, 15.025), span(1.0, 1.0), span(-3, 0.2)
    ('19,800 to 43,600', '2.42 to 15.1', '1.00', '0 to 0.20')
    """
    ends = [_three_figures(max(0.0, low), math.floor), _three_figures(max(0.0, high), math.ceil)]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def exact_span(low: int, high: int) -> str:
    """Two whole numbers to the last digit; one where they are the same.

    >>> exact_span(681_568, 681_712), exact_span(42_600, 42_600)
    ('681,568 to 681,712', '42,600')
    """
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def gib_span(low: int, high: int, decimals: int = 1) -> str:
    """Bytes as GiB; one figure where both ends read alike.

    >>> gib_span(2 * GiB, 5 * GiB), gib_span(GiB, GiB, 2)
    ('2.0 to 5.0', '1.00')
    """
    ends = [f"{value / GiB:.{decimals}f}".replace("-", "−") for value in (low, high)]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _three_figures(value: float, away) -> str:
    if value == 0:
        return "0"
    if value < 100:
        decimals = 2 if value < 10 else 1
        return f"{away(round(value * 10**decimals, 9)) / 10**decimals:.{decimals}f}"
    unit = 10 ** max(0, len(str(int(value))) - 3)
    return f"{away(value / unit) * unit:,}"
