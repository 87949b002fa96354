"""Formulas as MathML, which browsers draw by themselves."""

from __future__ import annotations

import functools
import re

from latex2mathml.converter import convert

_GROUPED = re.compile(r"<mn>([\d,]+)</mn><mrow><mo>&#x0002C;</mo></mrow><mn>(\d{3}[\d.]*)</mn>")


@functools.cache
def mathml(latex: str, block: bool = False) -> str:
    """A formula in LaTeX as MathML, with its source as the fallback for programs that read aloud.

    >>> "<mn>147,456</mn>" in mathml("147{,}456")
    True
    """
    text = convert(latex.strip(), display="block" if block else "inline").replace(r"\_", "_")
    while (joined := _GROUPED.sub(r"<mn>\1,\2</mn>", text)) != text:   # a grouped number is one number
        text = joined
    return f'<div class="formula" tabindex="-1">{text}</div>' if block else text
