"""Boxes and words placed in pixels, and the layers of a model as a strip of cells.

A drawing is a spec without data (:func:`canvas`) and rows for it: ``name`` takes :func:`box`, ``name_words`` takes
:func:`word`. Colours are meanings of :data:`kvlib.charts.COLOURS`; a letter is the second cue.
"""

from __future__ import annotations

import altair as alt

from kvlib import charts

PADDING = 16  # what Vega's padding takes of a picture's height
INK = "currentColor"
LINE = 20     # pixels of one line of a strip
COLUMNS = 44  # layers to a line

LAYERS = {  # kind of layer: (its letter, words, meaning)
    "full": ("F", "full attention", "kv"), "mla": ("L", "latent attention", "kv"),
    "indexer": ("I", "sparse indexer", "kv"), "sliding": ("W", "sliding window", "window"),
    "chunked": ("C", "chunked attention", "window"), "gdn": ("G", "Gated DeltaNet", "state"),
    "mamba1": ("M", "Mamba-1", "state"), "mamba2": ("M", "Mamba-2", "state"),
    "kda": ("K", "Kimi Delta Attention", "state"), "short_conv": ("S", "short convolution", "state"),
    "lightning": ("A", "lightning attention", "state"), "none": ("", "no cache", "unused"),
}


def canvas(name="drawing", *, width=charts.WIDTH, height, outlined=True):
    """An empty drawing of that size in pixels, origin at the upper left."""
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, width], nice=False), axis=None)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[height, 0], nice=False), axis=None)
    own = {field: alt.Color(f"{field}:N", scale=None, legend=None) for field in ("colour", "ink")}
    boxes = alt.Chart(alt.NamedData(name)).mark_rect(
        stroke=INK, strokeOpacity=0.45 if outlined else 0, strokeWidth=0.7).encode(
        x=x, x2="x2:Q", y=y, y2="y2:Q", color=own["colour"], opacity=alt.Opacity("opacity:Q", scale=None),
        tooltip=["tip:N"])
    words = alt.Chart(alt.NamedData(f"{name}_words")).mark_text(
        baseline="middle", align=alt.expr("datum.align"), fontSize=alt.expr("datum.size"),
        fontWeight=alt.expr("datum.weight")).encode(x=x, y=y, text="text:N", color=own["ink"])
    return (boxes + words).properties(width=width, height=height + PADDING)


def box(x, y, width, height, colour, *, opacity=None, tip=""):
    """A box of a meaning or colour; ``tip`` shows on hover."""
    if opacity is None:
        opacity = 0.4 if colour == "unused" else 1.0
    return {"x": x, "x2": x + width, "y": y, "y2": y + height, "colour": charts.COLOURS.get(colour, colour),
            "opacity": opacity, "tip": tip}


def word(x, y, text, *, align="left", bold=False, size=12, on=None):
    """Words at a point; ``on`` is the meaning or colour of the box they stand on."""
    ink = INK if on in (None, "unused") else charts.ink_on(charts.COLOURS.get(on, on))
    return {"x": x, "y": y, "text": str(text), "align": align, "weight": "bold" if bold else "normal", "size": size,
            "ink": ink}


def strip(kinds, *, x=26, y=1, width=charts.WIDTH - 26, columns=COLUMNS):
    """Boxes and words for the layers of a model, ``columns`` to a line.

    ``kinds`` has a word of LAYERS for each layer, two joined by "+" where a layer keeps both. The number of a
    line's first layer stands before it.

    >>> boxes, words = strip(["gdn", "full"])
    >>> [w["text"] for w in words]
    ['0', 'G', 'F']
    """
    cell, boxes, words = width / columns, [], []
    for index, kind in enumerate(kinds):
        line, column = divmod(index, columns)
        left, top = x + column * cell, y + line * LINE
        if not column:
            words.append(word(x - 6, top + LINE / 2 - 1, index, align="right", size=10))
        parts = kind.split("+")
        high = (LINE - 2) / len(parts)
        for place, part in enumerate(parts):
            letter, what, meaning = LAYERS[part]
            boxes.append(box(left + 0.5, top + place * high, cell - 1, high, meaning, tip=f"layer {index}: {what}"))
            words.append(word(left + cell / 2, top + (place + 0.5) * high, letter, align="center",
                              size=9 if len(parts) == 1 else 8, on=meaning))
    return boxes, words
