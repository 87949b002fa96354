"""Which layer keeps what, and the groups that vLLM makes of layers: for any model of the catalogue."""

from __future__ import annotations

from functools import lru_cache

import altair as alt

from kvlib import charts
from kvlib.controls import Choice, Col, Panel, PowerOfTwo, Predict, View, gib, html, size as in_units, strong, table
from kvlib.panels.drawing import COLUMNS, LAYERS, LINE, PADDING, box, canvas, strip, word
from kvlib.panels.hybrid_inputs import CACHE_DTYPE, PREFIX_CACHING, TP, longest_request, own
from kvlib.panels.hybrid_setups import MODEL, kept, last_version, launch, mixed, readable
from kvlib.units import cdiv

W = charts.WIDTH
_LINES, _KEY = 3, 19  # lines of the strip (the longest model has 126 layers); pixels of a line of the key
_LENGTHS = [2 ** (step / 4) for step in range(4 * 6, 4 * 20 + 1)]  # 64 to 1,048,576 tokens
_GROWTH = (("kv", "grows with each token"), ("window", "grows up to the window"), ("state", "fixed state"))


class LayersOfAModel(Panel):
    """The layers of any model of the catalogue, and which of them fill the memory of a sequence."""

    name = "08-layers"
    title = "The layers of a model, and what a sequence leaves in them"
    inputs = [
        Choice("model", readable(), MODEL, label="Model", help="Every model of the catalogue that can be read."),
        PowerOfTwo("tokens", 1024, min=64, max=2**20, label="Tokens so far", unit="tokens",
                   help="The length of one sequence, prompt and answer."),
        CACHE_DTYPE,
    ]
    predict = Predict(
        "Qwen3.8-27B, FP8 cache: at how many tokens does a sequence's growing cache take as much memory as its "
        "fixed states?", answer=lambda: even(MODEL), unit="tokens", within=10,
        because=lambda: f"The 48 states are {gib(kept(MODEL, 'fp8')[0].fixed)}, a token is 32 KiB over the 16 "
                        "full-attention layers.")

    def chart(self):
        x = alt.X("tokens:Q", title="tokens of the sequence (logarithmic)",
                  scale=alt.Scale(type="log", base=2, domain=[64, 2**20], nice=False, clamp=True),
                  axis=alt.Axis(values=[2**e for e in range(6, 21, 2)], format=","))
        y = charts.axis_y("low", "share of what it keeps (%)", (0, 100))
        area = alt.Chart(alt.NamedData("share")).mark_area(opacity=0.85).encode(
            x=x, y=y, y2="high:Q", color=own(), detail="part:N")
        names = alt.Chart(alt.NamedData("names")).mark_text(fontWeight="bold").encode(
            x=x, y="at:Q", text="part:N", color=own("ink"))
        now = alt.Chart(alt.NamedData("now")).mark_rule(strokeWidth=2).encode(x=x)
        guess = alt.Chart(alt.NamedData("guess"))
        rule = guess.mark_rule(strokeDash=[5, 4], strokeWidth=2, color="#000000").encode(x=x)
        said = guess.mark_text(align="left", dx=5, fontStyle="italic", color="#000000").encode(
            x=x, y=alt.value(10), text="label:N")
        return [canvas("layers", height=_LINES * LINE + 4 * _KEY + 6),
                (area + names + now + rule + said).properties(width=W, height=190)]

    def compute(self, s):
        parts = kept(s.model, s.kv_cache_dtype)
        each = {part: part.bytes(s.tokens) for part in parts}
        total = sum(each.values())
        boxes, words = strip([layer.kind for layer in s.model.layers])
        key_boxes, key_words = _key(s.model, parts)
        share, names = _shares(parts)
        rows = {"layers": boxes + key_boxes, "layers_words": words + key_words, "share": share, "names": names,
                "now": [{"tokens": s.tokens}], "guess": charts.guess_rows(self.guess, field="tokens")}
        lines = [{"kind": LAYERS[p.kind][1], "layers": p.layers, "one": _keeps(p), "all": in_units(n),
                  "share": 100 * n / total} for p, n in each.items()]
        kinds = ", ".join(f"{count} {LAYERS[kind][1]}" for kind, count in s.model.kinds.items())
        said = ", ".join(f"{LAYERS[p.kind][1]} {gib(n)}" for p, n in each.items())
        return View(
            answer=_kept_answer(s.tokens, parts, total), rows=rows, note=_kept_note(s.model),
            table=table(lines, [Col("kind", "Kind of layer", fmt="text"), Col("layers", "Layers"),
                                Col("one", "One layer keeps", fmt="text"), Col("all", "All of them, this sequence"),
                                Col("share", "Share", ".1f", "%")]),
            description=[f"{s.model.name}, {len(s.model.layers)} layers: {kinds}.", f"At {s.tokens:,} tokens: {said}."])


def even(model) -> int:
    """Tokens from which the growing part of an FP8 cache is as large as the states."""
    parts = kept(model, "fp8")
    return cdiv(sum(p.fixed for p in parts), sum(p.per_token for p in parts if not p.reach))


@lru_cache(maxsize=128)
def _shares(parts):
    """Stacked shares in per cent, the growing part lowest, and where the name of each has most room."""
    stacks = {name: (meaning, [p for p in parts if LAYERS[p.kind][2] == meaning]) for meaning, name in _GROWTH}
    rows, best = [], {}
    for tokens in _LENGTHS:
        total, low = sum(p.bytes(int(tokens)) for p in parts), 0.0
        for name, (meaning, inside) in stacks.items():
            if not inside:
                continue
            wide = 100 * sum(p.bytes(int(tokens)) for p in inside) / total
            rows.append({"tokens": tokens, "low": low, "high": low + wide, "part": name,
                         "colour": charts.COLOURS[meaning]})
            if 512 <= tokens <= 131_072 and wide > best.get(name, (24,))[0] + 1e-9:
                best[name] = (wide, tokens, low + wide / 2, charts.ink_on(charts.COLOURS[meaning]))
            low += wide
    return rows, [{"part": name, "tokens": at, "at": y, "ink": ink} for name, (_, at, y, ink) in best.items()]


def _keeps(part) -> str:
    if part.fixed:
        return f"{gib(part.fixed // part.layers)} a sequence"
    each = f"{gib(part.per_token // part.layers)} a token"
    return f"{each}, for the last {part.reach:,}" if part.reach else each


def _key(model, parts):
    """One line a kind under the strip: its letter, how many layers, what one keeps."""
    lines = [(part.kind, f"{part.layers} {LAYERS[part.kind][1]}: {_keeps(part)} each") for part in parts[:4]]
    bare = sum(layer.kind == "none" for layer in model.layers)
    if bare and len(lines) < 4:
        lines.append(("none", f"{bare} layers without a cache"))
    boxes, words, top = [], [], cdiv(len(model.layers), COLUMNS) * LINE + 6
    for kind, text in lines:
        letter, _, meaning = LAYERS[kind]
        boxes.append(box(26, top, 15, 15, meaning))
        words += [word(33.5, top + 8, letter, align="center", size=10, on=meaning), word(48, top + 8, text)]
        top += _KEY
    return boxes, words


def _kept_answer(tokens, parts, total):
    fixed, windows = sum(p.fixed for p in parts), sum(p.bytes(tokens) for p in parts if p.reach)
    start = html("A sequence of {} tokens keeps {}", f"{tokens:,}", strong(gib(total)))
    if fixed:
        return html("{}; {} of it ({} %) is state, the same for every length.", start, strong(gib(fixed)),
                    f"{100 * fixed / total:.0f}")
    if windows:
        return html("{}; {} of it lies in layers that stop growing at their window.", start, strong(gib(windows)))
    return html("{}, and every further token adds as much as the one before.", start)


def _kept_note(model):
    note, version = "For the whole model, before TP, and without what the pool adds.", last_version(model)
    if version == "0.33":
        return note
    return f"{note} vLLM stopped serving {model.name} after {version}; sized as by that release."


_HEAD, _PAGES_AT, _SHARE_AT, _GROUPS_HIGH = 24, 112, 376, 250  # pixels


class Groups(Panel):
    """The groups of any model whose layers differ: as wide as the rarest kind allows."""

    name = "08-groups"
    title = "The groups of a model, and what each asks of the pool"
    inputs = [
        Choice("model", mixed(), MODEL, label="Model", help="Every model of the catalogue with more than one group."),
        longest_request(32_768, "The length of the request whose blocks are counted."), TP, CACHE_DTYPE, PREFIX_CACHING,
    ]
    predict = Predict(
        "Granite-4.0-H-Small has 36 Mamba-2 layers and 4 of attention. How many groups does vLLM make of them?",
        answer=lambda: len(launch(mixed()["Granite-4.0-H-Small"]).groups), unit="groups", within=0,
        because="Groups are as wide as the rarer kind: 4 layers. 36 ÷ 4 = 9, and one of attention.")

    def chart(self):
        guess = alt.Chart(alt.NamedData("guess")).encode(y=alt.Y("value:Q"))
        rule = guess.mark_rule(strokeDash=[5, 4], strokeWidth=2)
        said = guess.mark_text(align="right", dy=-7, fontStyle="italic").encode(x=alt.value(W - 8), text="label:N")
        high = _HEAD + _GROUPS_HIGH
        return alt.layer(*canvas("groups", height=high).layer, rule, said).properties(width=W, height=high + PADDING)

    def compute(self, s):
        found = launch(s.model, vllm_version=last_version(s.model), max_model_len=s.max_model_len,
                       kv_cache_dtype=s.kv_cache_dtype, tensor_parallel_size=s.tensor_parallel_size,
                       enable_prefix_caching=s.enable_prefix_caching)
        widest = max(group.layers for group in found.groups)
        boxes, words = _group_lines(found, widest)
        lines = [{"group": str(n), "kind": _kinds(g), "layers": g.layers, "block": g.block_size,
                  "page": in_units(g.page_size_bytes), "blocks": g.blocks_per_request,
                  "share": 100 * g.blocks_per_request / found.blocks_per_request}
                 for n, g in enumerate(found.groups, 1)]
        said = "; ".join(f"{g.layers} {_kinds(g)}, {g.blocks_per_request:,} blocks a request" for g in found.groups)
        return View(
            answer=html("{} groups of up to {} layers, so a block is {} pages: {}. A request of {} tokens takes {} blocks.",
                        strong(len(found.groups)), widest, widest, gib(found.bytes_per_block), f"{s.max_model_len:,}",
                        strong(f"{found.blocks_per_request:,}")),
            rows={"groups": boxes, "groups_words": words, "guess": _group_guess(self.guess, found)},
            table=table(lines, [
                Col("group", "Group", fmt="text"), Col("kind", "Kind of layer", fmt="text"), Col("layers", "Layers"),
                Col("block", "Block", "int", "tokens"), Col("page", "Page of one layer"),
                Col("blocks", "Blocks a request"), Col("share", "Share", ".1f", "%")]),
            description=f"{s.model.name}: {said}.", note=_group_note(found))


def _kinds(group) -> str:
    return " + ".join(LAYERS[kind][1] for kind in group.kind.split("+"))


def _line_high(found) -> float:
    return min(52, _GROUPS_HIGH / len(found.groups))


def _group_guess(guess, found):
    if guess is None:
        return []
    at = _HEAD + min(max(guess, 0) * _line_high(found), _GROUPS_HIGH) - 2
    return charts.guess_rows(at)


def _group_lines(found, widest):
    boxes = []
    words = [word(_PAGES_AT, 10, f"a block: one page in each of {widest} layers", size=11),
             word(_SHARE_AT, 10, "blocks a request takes", size=11)]
    room, high, cell = W - _SHARE_AT - 50, _line_high(found), min(15, (_SHARE_AT - _PAGES_AT - 16) / widest)
    for line, group in enumerate(found.groups):
        y, tall = _HEAD + line * high, high - 5
        middle = y + tall / 2
        _, what, meaning = LAYERS[group.kind.split("+")[0]]
        short = what if len(what) < 20 else " ".join(what.split()[:2])
        words.append(word(_PAGES_AT - 8, middle, short, align="right", size=11))
        for page in range(widest):
            filled = page < group.layers
            tip = f"layer {group.layer_indices[page]}" if page < len(group.layer_indices) else "empty"
            boxes.append(box(_PAGES_AT + page * cell + 0.5, y, cell - 1, tall, meaning if filled else "padding", tip=tip))
            if not filled:
                words.append(word(_PAGES_AT + (page + 0.5) * cell, middle, "/", align="center", size=10, on="padding"))
        share = group.blocks_per_request / found.blocks_per_request
        boxes.append(box(_SHARE_AT, y, max(1.0, room * share), tall, meaning))
        words.append(word(_SHARE_AT + room * share + 6, middle, f"{group.blocks_per_request:,}", size=11))
    return boxes, words


def _group_note(found):
    note = "Green grows with the request, blue up to its window, pink is state."
    if len({group.layers for group in found.groups}) > 1:
        note += " Yellow: a page that the narrower group leaves empty in each of its blocks."
    return note
