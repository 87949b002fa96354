"""The printed size of a hybrid against max_model_len: as a curve, and as Table 2 of the hybrid note."""

from __future__ import annotations

from functools import lru_cache

import altair as alt

from kvlib import catalog, charts
from kvlib.controls import Col, Number, Panel, PowerOfTwo, Predict, Rows, View, html, mark, strong, table
from kvlib.panels.drawing import INK
from kvlib.panels.hybrid_inputs import CACHE_DTYPE, DRAFTS, PREFIX_CACHING, longest_request, own
from kvlib.panels.hybrid_setups import AVAILABLE_GIB, LENGTH, MODEL, blocks, drafts, launch, prints, with_groups
from kvlib.tables import reproduced
from kvlib.units import gib

W = charts.WIDTH
LONGEST = 262_144
_CURVE_LIMIT, _SLOTS_LIMIT = 4.0, 7.0  # millions of tokens


class SizeAgainstLength(Panel):
    """The printed size of the hybrid and of its attention layers alone with the same pool."""

    name = "08-size-against-length"
    title = "What vLLM prints, against max_model_len; the memory stays as it is"
    inputs = [
        longest_request(LENGTH, "Only the division changes with it, not the memory."),
        Number("available_gib", AVAILABLE_GIB, min=5, max=60, step=1, at_least=1, label="Cache memory", unit="GiB",
               help="Per GPU, as the log prints it; 52.89 there."),
        CACHE_DTYPE, PREFIX_CACHING, DRAFTS,
    ]
    predict = Predict(
        "As in the log, TP = 2, FP8: at which max_model_len is the printed size half of what the slots of the pool add "
        "up to?", answer=lambda: extra(launch()), unit="tokens", within=10,
        because=lambda: f"There the {blocks(launch())[1]} blocks of state of a request equal its blocks of tokens.")

    def chart(self):
        x = alt.X("tokens:Q", title="max_model_len, tokens (logarithmic)",
                  scale=alt.Scale(type="log", base=2, domain=[512, LONGEST], nice=False, clamp=True),
                  axis=alt.Axis(values=[4**e for e in range(5, 10)], format=","))
        y = charts.axis_y("printed", "printed size, millions of tokens", (0, _CURVE_LIMIT))
        data = {name: alt.Chart(alt.NamedData(name)) for name in ("taken", "lines", "names", "here", "guess")}
        dash = alt.StrokeDash("dash:N", legend=None, scale=alt.Scale(domain=[0, 1], range=[[1, 0], [6, 4]]))
        return alt.layer(
            data["taken"].mark_area(color=charts.COLOURS["state"], opacity=0.45).encode(x=x, y=y, y2="slots:Q"),
            data["lines"].mark_line().encode(x=x, y=y, detail="series:N", color=own(), strokeDash=dash),
            data["names"].mark_text(align="left", fontWeight="bold").encode(x=x, y=y, text="text:N"),
            data["here"].mark_point(filled=True, size=90, opacity=1).encode(x=x, y=y, color=own()),
            data["here"].mark_text(align=alt.expr("datum.align"), dy=alt.expr("datum.dy"), fontWeight="bold").encode(
                x=x, y=y, text="label:N"),
            data["guess"].mark_rule(strokeDash=[5, 4], strokeWidth=2).encode(x=x),
            data["guess"].mark_text(align="left", dx=5, fontStyle="italic").encode(
                x=x, y=alt.value(236), text="label:N"),
        ).properties(width=W, height=300)

    def compute(self, s):
        available, more = gib(s.available_gib), drafts(MODEL, s.num_speculative_tokens)
        flags = {"kv_cache_dtype": s.kv_cache_dtype, "enable_prefix_caching": s.enable_prefix_caching, **more}
        found = launch(available_bytes=available, max_model_len=s.max_model_len, **flags)
        plain = _plain(found.block_size, found.num_gpu_blocks, s.max_model_len, bool(more))
        slots = found.num_gpu_blocks * found.block_size
        hybrid, full = _curves(available, **flags)
        here = {"tokens": s.max_model_len, "printed": found.kv_cache_tokens / 1e6, "label": f"{found.kv_cache_tokens:,}",
                "colour": INK if prints(found) else charts.COLOURS["refused"],
                "align": "right" if s.max_model_len > 16_384 else "left", "dy": 18 if found.kv_cache_tokens > 4e5 else -14}
        rows = {"lines": [*_line("hybrid", hybrid, INK, 0), *_line("full", full, charts.COLOURS["kv"], 1)],
                "taken": [{"tokens": at, "printed": printed, "slots": slots / 1e6} for at, printed in hybrid],
                "names": _names(hybrid, slots), "here": [here],
                "guess": charts.guess_rows(self.guess, field="tokens")}
        return View(
            answer=_size_answer(found, slots), rows=rows,
            table=table([_model_line("Qwen3.8-27B", found), _model_line("full attention alone", plain)], [
                Col("model", "Model", fmt="text"), Col("tokens", "Blocks of tokens"), Col("states", "Blocks of state"),
                Col("pool", "Blocks in the pool"), Col("fit", "Concurrency", ".2f", "x"),
                Col("printed", "Printed size", "int", "tokens")]),
            description=f"Qwen3.8-27B prints {found.kv_cache_tokens:,} tokens at {s.max_model_len:,}; full attention alone "
                        f"{plain.kv_cache_tokens:,}; the pool has {slots:,} slots.",
            note=f"The lines join lengths that are whole blocks of {found.block_size:,} tokens; in between the last block "
                 "counts whole, so the point may lie a little lower. The dashed line is full attention alone.")


def extra(found) -> int:
    """The tokens that would fit where the states of a request lie.

    >>> extra(launch())
    9408
    """
    return blocks(found)[1] * found.block_size


@lru_cache(maxsize=4096)
def _plain(block_size, num_blocks, length, draft):
    """The attention layers alone, with the same pool and block."""
    return launch(with_groups(0, draft), block_size=block_size, num_gpu_blocks_override=max(1, num_blocks),
                  max_model_len=length)


@lru_cache(maxsize=256)
def _curves(available, **flags):
    """(length, millions of printed tokens) of the hybrid and of attention alone, at whole blocks."""
    hybrid = []
    for length in _whole_blocks(launch(**flags).block_size):
        found = launch(available_bytes=available, max_model_len=length, **flags)
        hybrid.append((length, found.kv_cache_tokens / 1e6))
    ends = (hybrid[0][0], hybrid[-1][0])
    draft = "num_speculative_tokens" in flags
    return hybrid, [(length, _plain(found.block_size, found.num_gpu_blocks, length, draft).kv_cache_tokens / 1e6)
                    for length in ends]


@lru_cache(maxsize=64)
def _whole_blocks(block: int) -> tuple[int, ...]:
    most = LONGEST // block
    return tuple(sorted({max(1, min(most, round(most ** (step / 26)))) * block for step in range(27)}))


def _line(name, points, colour, dash):
    return [{"tokens": at, "printed": printed, "series": name, "colour": colour, "dash": dash} for at, printed in points]


def _names(hybrid, slots):
    """Names beside the lines: over the dashed one, under the curve, and in the room that states take."""
    at, printed = hybrid[len(hybrid) // 3]
    top = slots / 1e6
    dashed = {"tokens": 600, "printed": min(top + 0.15, _CURVE_LIMIT - 0.08), "text": f"all slots: {slots:,}"}
    if top < 0.7:  # no room for more
        return [dashed]
    return [dashed, {"tokens": 2_200, "printed": (printed + 2.2 * top) / 3.2, "text": "taken by states"},
            {"tokens": at * 1.25, "printed": max(0.15, printed - 0.08), "text": "Qwen3.8-27B"}]


def _size_answer(found, slots):
    length, printed = f"{found.max_model_len:,}", strong(f"{found.kv_cache_tokens:,}")
    if not prints(found):
        return html("Refused: a request of {} tokens needs {} of {} blocks, and one is held back. {} would pass.", length,
                    found.blocks_per_request, f"{found.num_gpu_blocks:,}", strong(f"{found.estimated_max_model_len:,}"))
    if not found.fits:
        return html("At {} tokens a request vLLM prints {}, and then stops: {}.", length, printed, found.refusal.message)
    return html("At {} tokens a request vLLM prints {}: {} % of the pool's {} slots.", length, printed,
                f"{100 * found.kv_cache_tokens / slots:.1f}", f"{slots:,}")


def _model_line(name, found):
    tokens, states = blocks(found)
    return {"model": name, "tokens": tokens, "states": states, "pool": found.num_gpu_blocks,
            "fit": found.max_concurrency, "printed": found.kv_cache_tokens}


NOTE_ROWS = {8_192: "B50", 32_768: "B51", 132_096: "B52", 262_144: "B53"}


class LengthTable(Panel):
    """Table 2 of the note, under another pool, another number of groups, other lengths."""

    name = "08-length-table"
    title = "Table 2: one pool, several max_model_len"
    inputs = [
        Number("num_gpu_blocks", 2_210, min=110, max=4_410, step=100, at_least=1, at_most=1_000_000, label="Pool",
               unit="blocks", flag="--num-gpu-blocks-override",
               help="Each block holds 1,568 tokens of attention, or one state of 16 layers."),
        Number("groups", 3, min=0, max=8, label="GDN groups", unit="groups",
               help="16 layers each, beside the one group of 16 full-attention layers. 0: attention alone."),
        PREFIX_CACHING,
        Rows("lengths", [PowerOfTwo("max_model_len", 8192, min=1024, max=LONGEST, label="max_model_len", unit="tokens")],
             [{"max_model_len": length} for length in NOTE_ROWS], max_rows=8, label="Lengths", flag="--max-model-len",
             help="Any lengths; each is a launch of its own."),
    ]
    predict = Predict(
        "Prefix caching off: what does vLLM print at max_model_len 8,192, from the same 2,210 blocks?",
        answer=lambda: launch(max_model_len=8192, enable_prefix_caching=False).kv_cache_tokens, unit="tokens", within=5,
        because="6 + 3 = 9 blocks a request instead of 12: a third more requests, a third more tokens.")

    def chart(self):
        x = charts.axis_x("start", "slots of the pool, millions of tokens", (0, _SLOTS_LIMIT))
        y = alt.Y("line:O", axis=None, scale=alt.Scale(domain=list(range(8)), paddingInner=0.3))
        bars = alt.Chart(alt.NamedData("split")).mark_bar(stroke=INK, strokeOpacity=0.4, strokeWidth=0.6).encode(
            x=x, x2="end:Q", y=y, color=own(), opacity=alt.Opacity("opacity:Q", scale=None), tooltip=["tip:N"])
        words = alt.Chart(alt.NamedData("split_words")).mark_text(align="left", dx=6).encode(
            x=x, y=y, text="text:N", color=own("ink"))
        return (bars + words + charts.guess_rule()).properties(width=W, height=250)

    def compute(self, s):
        found = [_launch(s.groups, s.num_gpu_blocks, s.enable_prefix_caching, row.max_model_len) for row in s.lengths]
        lines = [{"length": each.max_model_len, "blocks": "{} + {} = {}".format(*blocks(each), each.blocks_per_request),
                  "fit": each.max_concurrency, "printed": each.kv_cache_tokens if prints(each) else mark("refused", "computed")}
                 for each in found]
        split = [_split(place, each) for place, each in enumerate(found)]
        words = [_split_word(place, bars[-1]["end"], each) for place, (bars, each) in enumerate(zip(split, found))]
        said = "; ".join(f"{each.max_model_len:,}: {each.kv_cache_tokens:,} tokens printed" if prints(each) else
                         f"{each.max_model_len:,}: refused" for each in found)
        return View(
            answer=_table_answer(s, found),
            rows={"split": [bar for bars in split for bar in bars], "split_words": words,
                  "guess": charts.guess_rows(None if self.guess is None else self.guess / 1e6)},
            table=table(lines, [
                Col("length", "max_model_len"), Col("blocks", "Blocks a request (tokens + states)", fmt="text"),
                Col("fit", "Concurrency", ".2f", "x"), Col("printed", "Printed size", "int", "tokens")],
                footer=_against_the_note(s, found)),
            description=f"{said}. The pool has {s.num_gpu_blocks * 1_568:,} slots.",
            note=_table_note(found))


@lru_cache(maxsize=1024)
def _launch(groups, num_blocks, caching, length):
    return launch(with_groups(groups), num_gpu_blocks_override=num_blocks, enable_prefix_caching=caching,
                  max_model_len=length, block_size=None if groups else launch().block_size)


def _split(place, found):
    """The pool of one launch as boxes: printed tokens, unfilled ends, blocks of state, in millions of tokens."""
    tokens, states = blocks(found)
    slots = found.num_gpu_blocks * found.block_size
    filled = slots * tokens / (tokens + states)
    ends = ((0, found.kv_cache_tokens, "kv", "printed"), (found.kv_cache_tokens, filled, "unused", "unfilled"),
            (filled, slots, "state", "states"))
    return [{"line": place, "start": a / 1e6, "end": b / 1e6, "colour": charts.COLOURS[meaning],
             "opacity": 0.3 if not prints(found) else 0.4 if meaning == "unused" else 1.0, "tip": tip}
            for a, b, meaning, tip in ends if b > a]


def _split_word(place, end, found):
    """What a bar says: after it where there is room, else in it."""
    inside = end > 0.6 * _SLOTS_LIMIT
    if not prints(found):
        text = f"at {found.max_model_len:,}: refused"
    elif inside:
        text = f"at {found.max_model_len:,}: {found.kv_cache_tokens:,}"
    else:
        text = f"{found.kv_cache_tokens:,} = {found.max_concurrency:.2f} × {found.max_model_len:,}"
    ink = charts.ink_on(charts.COLOURS["kv"]) if inside and prints(found) else INK
    return {"line": place, "start": 0 if inside else end, "text": text, "ink": ink}


def _table_answer(s, found):
    pool, fit = f"{s.num_gpu_blocks:,}", [each for each in found if prints(each)]
    if not fit:
        return html("{} blocks are too few for one request of {} tokens.", strong(pool), f"{found[0].max_model_len:,}")
    short, long = (pick(fit, key=lambda each: each.max_model_len) for pick in (min, max))
    if short.max_model_len == long.max_model_len:
        return html("{} blocks print {} tokens at {}.", pool, strong(f"{short.kv_cache_tokens:,}"),
                    f"{short.max_model_len:,}")
    why = "short requests pay most for their states" if s.groups else "only the unfilled last blocks differ"
    return html("The same {} blocks print {} at {} and {} at {}: {}.", pool, strong(f"{short.kv_cache_tokens:,}"),
                f"{short.max_model_len:,}", strong(f"{long.kv_cache_tokens:,}"), f"{long.max_model_len:,}", why)


def _table_note(found):
    note = ("Each bar is the whole pool. Green: the printed tokens. Pink: blocks of state. Grey: the unfilled part of each "
            "request's last block.")
    late = next((each for each in found if each.outcome == "max_num_seqs"), None)
    return note if late is None else f"{note} vLLM prints this and then stops: {late.refusal.message}."


def _against_the_note(s, found):
    """How many rows of the note's Table 2 stand here and agree; nothing under another set-up."""
    if (s.num_gpu_blocks, s.groups, s.enable_prefix_caching) != (2_210, 3, True):
        return ""
    printed = {length: int(catalog.note_row(row)["exact"].split()[2]) for length, row in NOTE_ROWS.items()}
    known = [each for each in found if each.max_model_len in printed]
    same = sum(each.kv_cache_tokens == printed[each.max_model_len] for each in known)
    return f"{reproduced(same, len(known))} (the note's Table 2)" if known else ""
