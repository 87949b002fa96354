"""The fixed pictures of the hybrid lesson: the layers of a model, and one repeating unit enlarged."""

from __future__ import annotations

import altair as alt

from kvlib import charts
from kvlib.layers import FullAttention, GatedDeltaNet
from kvlib.model import Model
from kvlib.panels.drawing import INK, LAYERS, PADDING, box, canvas, word
from kvlib.panels.hybrid_setups import kept
from kvlib.spec import state_shapes
from kvlib.tables import gib

_WIDE, _HIGH, _GAP = 780, 392, 14
_TOP, _UNIT = 30, 104  # where the strip and the enlarged unit begin, in pixels


def unit_length(model: Model) -> int:
    """Layers after which the pattern repeats.

    >>> from kvlib import load_model
    >>> unit_length(load_model("Qwen3.8-27B"))
    4
    """
    kinds = [layer.kind for layer in model.layers]
    return next(n for n in range(1, len(kinds) + 1) if all(a == b for a, b in zip(kinds, kinds[n:])))


def layer_pattern(model: Model, kv_cache_dtype: str = "fp8") -> charts.Static:
    """All layers of a model of GDN and full attention, and what one unit of it keeps; sizes before TP, not to scale."""
    unit = unit_length(model)
    boxes, words, rules = _all_layers(model, unit)
    wide = (_WIDE - (unit - 1) * _GAP) / unit
    for place, layer in enumerate(model.layers[:unit]):
        draw = _state_layer if isinstance(layer, GatedDeltaNet) else _full_layer
        more = draw(place * (wide + _GAP), wide, place, layer, model, kv_cache_dtype)
        boxes, words = boxes + more[0], words + more[1]
    total = {part.kind: part for part in kept(model, kv_cache_dtype)}
    state, full = total["gdn"], total["full"]
    edge = (unit - 1) * (wide + _GAP)
    rules += [_rule(2, _HIGH - 36, edge - _GAP - 2, _HIGH - 36), _rule(edge + 2, _HIGH - 36, _WIDE - 2, _HIGH - 36)]
    told = [(edge / 2 - 7, f"all {state.layers}: {gib(state.fixed)} a sequence, whatever its length"),
            (edge + wide / 2, f"all {full.layers}: {gib(full.per_token)} a token")]
    words += [word(x, _HIGH - 18, text, align="center", bold=True, size=13) for x, text in told]
    rows = {"drawing": boxes, "drawing_words": words, "rules": rules}
    lines = alt.Chart(alt.NamedData("rules")).mark_rule(color=INK, strokeOpacity=0.5).encode(
        x="x:Q", y="y:Q", x2="x2:Q", y2="y2:Q")
    picture = (canvas(width=_WIDE, height=_HIGH) + lines).properties(width=_WIDE, height=_HIGH + PADDING, datasets=rows)
    return charts.static(picture, f"{model.name}: {len(model.layers)} layers in units of {unit}, "
                                  f"{unit - 1} Gated DeltaNet and one full attention. {told[0][1]}; {told[1][1]}.")


def _rule(x, y, x2, y2):
    return {"x": x, "y": y, "x2": x2, "y2": y2}


def _all_layers(model, unit):
    count = len(model.layers)
    cell = _WIDE / count
    words = [word(0, 10, f"{model.name}: {count} layers", bold=True, size=13)]
    boxes = []
    for index, layer in enumerate(model.layers):
        letter, what, meaning = LAYERS[layer.kind]
        tall = 6 if meaning == "kv" else 0  # a second cue beside colour and letter
        boxes.append(box(index * cell + 0.5, _TOP - tall / 2, cell - 1, 24 + tall, meaning, tip=f"layer {index}: {what}"))
        words.append(word((index + 0.5) * cell, _TOP + 12, letter, align="center", size=9, on=meaning))
    words += [word((index + 0.5) * cell, _TOP + 38, index, align="center", size=10)
              for index in (0, unit - 1, count - 1)]
    return boxes, words, [_rule(0, _TOP + 46, 0, _UNIT), _rule(unit * cell, _TOP + 30, _WIDE, _UNIT)]


def _frame(x, wide, place, kind):
    letter, what, meaning = LAYERS[kind]
    boxes = [box(x, _UNIT, wide, 238, meaning, opacity=0.13), box(x, _UNIT, wide, 24, meaning)]
    return boxes, [word(x + wide / 2, _UNIT + 12, f"{place}  {letter}  {what}", align="center", bold=True, on=meaning)]


def _state_layer(x, wide, place, layer, model, kv_cache_dtype):
    boxes, words = _frame(x, wide, place, "gdn")
    shapes = dict(state_shapes(layer))
    rows, channels = shapes["conv"]
    heads, value, key = shapes["ssm"]
    whole = next(part for part in kept(model, kv_cache_dtype) if part.kind == "gdn")
    conv = rows * channels * 2
    middle, top = x + wide / 2, _UNIT + 38
    for step in (8, 4, 0):  # heads, one behind the other
        boxes.append(box(middle - 32 + step, top + step, 56, 56, "state"))
    words += [word(middle, top + 78, f"{gib(whole.fixed // whole.layers - conv)} recurrent state", align="center",
                   bold=True),
              word(middle, top + 94, f"{heads} heads × {value} × {key}, FP32", align="center", size=11)]
    boxes += [box(middle - 50, top + 112 + row * 8, 100, 7, "state") for row in range(rows)]
    words += [word(middle, top + 150, f"{gib(conv)} convolution state", align="center", bold=True),
              word(middle, top + 166, f"last {rows} inputs × {channels:,}, BF16", align="center", size=11),
              word(middle, top + 188, "fixed for each sequence", align="center", size=11)]
    return boxes, words


def _full_layer(x, wide, place, layer: FullAttention, model, kv_cache_dtype):
    boxes, words = _frame(x, wide, place, "full")
    whole = next(part for part in kept(model, kv_cache_dtype) if part.kind == "full")
    middle, top = x + wide / 2, _UNIT + 38
    values = f"{layer.num_kv_heads} KV heads × {layer.head_dim} × 2 = {layer.num_kv_heads * layer.head_dim * 2:,}"
    width = "values, one byte each in FP8" if kv_cache_dtype == "fp8" else "values"
    for token in range(9):  # one row of K and V a token, the newest still to come
        for side in (0, 1):
            boxes.append(box(middle - 52 + side * 53, top + token * 12, 51, 10, "kv" if token < 7 else "unused"))
    words += [word(middle - 26, top + 42, "K", align="center", bold=True, on="kv"),
              word(middle + 26, top + 42, "V", align="center", bold=True, on="kv"),
              word(middle, top + 126, f"{gib(whole.per_token // whole.layers)} a token", align="center", bold=True),
              word(middle, top + 142, values, align="center", size=11),
              word(middle, top + 158, width, align="center", size=11),
              word(middle, top + 188, "one more row for each token", align="center", size=11)]
    return boxes, words
