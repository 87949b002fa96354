"""Integers for bytes, blocks and tokens; this module holds the few rounding rules everything else uses.

>>> cdiv(132_096, 1_568)          # a partly filled block is a whole block
85
>>> gib_text(100_510_000_000)     # as vLLM prints a figure in GiB
'93.61'
"""

from __future__ import annotations

import math
import re

KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30
GB = 10**9


def cdiv(a: int, b: int) -> int:
    """a / b rounded up, in integers."""
    return -(-a // b)


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of ``multiple`` that is at least ``value``."""
    return cdiv(value, multiple) * multiple


def gib(value: float) -> int:
    """GiB to bytes, rounded to the nearest byte.

    >>> gib(1.5)
    1610612736
    """
    return round(value * GiB)


def gib_text(num_bytes: int) -> str:
    """Bytes as vLLM prints GiB: two decimals, trailing zeros dropped (vllm/utils/mem_utils.py, 0.28 to 0.33).

    >>> gib_text(4 * GiB), gib_text(4831838208)
    ('4.0', '4.5')
    """
    return str(round(num_bytes / GiB, 2))


def human(num_bytes: int) -> str:
    """Bytes with three significant figures and the binary unit that fits.

    >>> human(147_456), human(1_605_632), human(0), human(1023 * 1024)
    ('144 KiB', '1.53 MiB', '0 B', '1020 KiB')
    """
    sign, size = ("−" if num_bytes < 0 else ""), abs(num_bytes)
    for unit, width in (("GiB", GiB), ("MiB", MiB), ("KiB", KiB)):
        if size >= width:
            value = size / width
            digits = max(0, 2 - int(math.floor(math.log10(value))))
            text = f"{round(value, 2 - int(math.floor(math.log10(value)))):.{digits}f}"
            return f"{sign}{text} {unit}"
    return f"{sign}{size} B"


_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([kmgt]?)(i?)(b?)\s*", re.I)


def parse_bytes(text: str | int) -> int:
    """Bytes from an int or from text such as '24 GiB', '80GB' (decimal) or '512 MiB'.

    Raises ValueError when the text is not a size.

    >>> parse_bytes("24 GiB"), parse_bytes("24 GB")
    (25769803776, 24000000000)
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    match = _SIZE.fullmatch(str(text))
    if not match or not math.isfinite(float(match[1])):
        raise ValueError(f"{text!r} is not a size in bytes; write it as 24 GiB, 80 GB or a number of bytes")
    power = " kmgt".index(match[2].lower() or " ")
    return round(float(match[1]) * (1024 if match[3] else 1000) ** power)
