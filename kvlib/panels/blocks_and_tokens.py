"""The panels of notebook 03: a page and a block, the pool, what fits at real lengths, the planning rule.

Its other panels stand in ``program_rows`` and ``length_checks`` and are passed on from here. The drawing of the
pool uses blocks of a few tokens, as vLLM would not.
"""

from __future__ import annotations

import math
from functools import cache

import altair as alt

from kvlib import Engine, SizingError, charts
from kvlib.controls import (
    Choice, Col, Number, Panel, PowerOfTwo, Predict, Toggle, View, gib as shown, html, strong, table,
)
from kvlib.panels.length_checks import AutoFit, EightAtOnce, Refusal, llama, longest_for
from kvlib.panels.pool_drawing import PREFIX, SLOTS, Drawing, pool_chart, pool_rows, share_out
from kvlib.panels.program_rows import KV, PROGRAM, REFUSED, Program, model_of, on_a_card
from kvlib.pool import plan
from kvlib.units import KiB

__all__ = ["BATCH", "MEND", "PROGRAM", "AutoFit", "EightAtOnce", "PageAndBlock", "Planning", "Pool",
           "Program", "Refusal", "WorstCase", "llama", "longest_for", "margin", "on_a_card", "planning_verdict"]
INK, UNUSED = "currentColor", charts.COLOURS["unused"]


class PageAndBlock(Panel):
    """One block drawn to scale: a row a layer, a column a token, green the bytes."""

    name = "03-page-and-block"
    title = "One block, drawn to scale"
    inputs = [
        Choice("model", ["Qwen2.5-1.5B", "Qwen3-8B", "Llama-3.1-8B", "Llama-3.3-70B"], "Llama-3.1-8B", label="Model",
               help="Its layers are the rows; its KV heads and head_dim make a row thick or thin."),
        Choice("block_size", {"16": 16, "32": 32, "64": 64}, 16, style="buttons", label="Tokens in a block",
               unit="tokens", flag="--block-size", help="vLLM takes 16 here unless told otherwise."),
        Choice("kv_cache_dtype", {"16-bit": "auto", "fp8": "fp8"}, style="buttons", label="KV cache dtype",
               flag="--kv-cache-dtype", help="Bytes of one stored number: 2 or 1."),
    ]
    predict = Predict("Go from blocks of 16 tokens to blocks of 64. What happens to the bytes one token costs?",
                      answer="the same", options=["a quarter", "the same", "four times"],
                      because="A block four times as long weighs four times as much: per token nothing changes.")

    def chart(self):
        x = charts.axis_x("x", "tokens in the block", (0, 72), axis=alt.Axis(values=[0, 16, 32, 48, 64], grid=False))
        y = alt.Y("y:Q", title="layers", scale=alt.Scale(domain=[109, 0], nice=False),
                  axis=alt.Axis(values=[0, 20, 40, 60, 80], grid=False))
        pages = alt.Chart(alt.NamedData("pages")).mark_rect().encode(
            x=x, x2="x2:Q", y=y, y2="y2:Q", color=alt.Color("colour:N", scale=None, legend=None))
        token = alt.Chart(alt.NamedData("token")).mark_rect(fillOpacity=0, stroke=INK, strokeWidth=1.5).encode(
            x=x, x2="x2:Q", y=y, y2="y2:Q")
        words = alt.Chart(alt.NamedData("words")).mark_text(align="left", baseline="middle").encode(
            x=x, y=y, text="text:N")
        return alt.layer(pages, token, words).properties(width=charts.WIDTH, height=380)

    def compute(self, s):
        made = plan(model_of(s.model), Engine(block_size=s.block_size, kv_cache_dtype=s.kv_cache_dtype))
        group, block, token = made.groups[0], made.stage_bytes_per_block[0], made.bytes_per_token
        page, layers = group.page_size_bytes, group.layers
        thick = 0.86 * page / s.block_size / (4 * KiB)
        rows = [{"x": 0, "x2": s.block_size, "y": i + 0.5 - thick / 2, "y2": i + 0.5 + thick / 2,
                 "colour": charts.COLOURS["weights"] if i == 0 else KV} for i in range(layers)]
        words = [f"blue row, one page: 1 layer × {s.block_size} tokens = {shown(page)}",
                 f"frame, one token: {layers} layers × 1 token = {shown(token)}",
                 f"all rows, one block: {layers} layers × {s.block_size} tokens = {shown(block)}"]
        if self.guess:
            words.append(f"your guess for a token in blocks of 64: {self.guess}")
        return View(
            answer=html("{}: a page is {}, a block is {} pages = {}, and a token costs {}.", s.model, shown(page), layers,
                        strong(shown(block)), strong(shown(token))),
            rows={"pages": rows, "token": [{"x": 2, "x2": 3, "y": 0, "y2": layers}],
                  "words": [{"x": 0, "y": layers + 4.5 + 6 * i, "text": text} for i, text in enumerate(words)]},
            table=table([{"what": "page", "of": f"1 layer, {s.block_size} tokens", "bytes": page},
                         {"what": "block", "of": f"{layers} layers, {s.block_size} tokens", "bytes": block},
                         {"what": "token", "of": f"{layers} layers, 1 token", "bytes": token}],
                        [Col("what"), Col("of"), Col("bytes", fmt="int")]),
            description=f"A block of {s.model}: {layers} rows of {s.block_size} tokens, {block:,} bytes.",
            note="Drawn to scale: the area of the rows is the bytes of the block.")


class Pool(Panel):
    """Four requests share 96 token slots; they take whole blocks and give them back."""

    name = "03-pool"
    title = "A pool of 96 token slots, cut into blocks"
    inputs = [
        Choice("block_size", {str(n): n for n in (1, 2, 4, 8, 16)}, 4, style="buttons", label="Tokens in a block",
               unit="tokens", help="4 keeps the drawing readable; vLLM's blocks hold 16."),
        *(Number(name, tokens, min=0, max=48, label=f"Request {name}", unit="tokens",
                 help="Prompt and answer so far; 0 leaves it out.")
          for name, tokens in (("A", 18), ("B", 11), ("C", 31), ("D", 44))),
        Choice("finished", ["nobody", "A", "B", "C"], style="buttons", label="Who finishes",
               help="Its blocks go back to the pool; then whoever waits may come in."),
        Toggle("shared", False, label=f"All begin with the same {PREFIX} tokens",
               help="Whole blocks of a common beginning are stored once."),
    ]
    predict = Predict("Same requests, blocks of 16 tokens: how many slots of A, B and C's last blocks stay empty?",
                      answer=20, unit="slots", because="18, 11 and 31 tokens take 2, 1 and 2 blocks: 14 + 5 + 1 empty.")

    def chart(self):
        bar = charts.memory_bar(limit=SLOTS, title="token slots", tiers=1)
        guess = alt.Chart(alt.NamedData("guess"))
        rule = guess.mark_rule(strokeDash=[5, 4], strokeWidth=2).encode(x="value:Q")
        words = [guess.transform_filter(f"datum.side == '{side}'").mark_text(align=side, dx=dx, fontStyle="italic").encode(
            x="value:Q", y=alt.value(80), text="label:N") for side, dx in (("left", 5), ("right", -5))]
        return [pool_chart(), alt.layer(bar, rule, *words)]

    def compute(self, s):
        lengths = {name: getattr(s, name) for name in "ABCD"}
        d = share_out(lengths, s.block_size, finished=s.finished, shared=PREFIX if s.shared else 0)
        parts = [("tokens", d.stored, "kv", f"{d.stored}"), ("empty ends", d.empty, "padding", f"{d.empty}"),
                 ("free", SLOTS - d.stored - d.empty, "unused", f"{SLOTS - d.stored - d.empty}")]
        guess = None if self.guess is None else min(SLOTS, max(0, d.stored + self.guess))
        side = "right" if guess and guess > SLOTS / 2 else "left"
        return View(
            answer=self._answer(d, s),
            rows=pool_rows(d) | {"bar": charts.memory_bar_rows(parts, limit=SLOTS, unit="slots", tiers=1),
                                 "guess": [row | {"side": side} for row in charts.guess_rows(
                                     guess, label=f"your guess for 16: {self.guess} empty")]},
            table=table([self._row(d, name, tokens) for name, tokens in lengths.items()],
                        [Col("request"), Col("tokens"), Col("blocks"), Col("which", "block table", "text"),
                         Col("empty", "empty slots"), Col("state")],
                        caption="A block table lists a request's blocks in the order of its tokens"),
            description=[f"{d.count} blocks of {s.block_size} tokens: {d.used} taken, {d.count - d.used} free.",
                         f"{d.stored} slots hold tokens, {d.empty} are empty ends, the rest is free."])

    def _answer(self, d: Drawing, s):
        said = html("{} of {} blocks are taken; {} slots in last blocks stay empty.", strong(d.used), d.count, d.empty)
        if s.shared:
            once = d.shared_blocks
            said = html("{} {}", said, html("The common beginning takes {} once, which saves {} blocks.",
                                            f"{once} whole block{'s' * (once != 1)}", d.saved) if once else
                        html("{} tokens fill no whole block of {}, so nothing is shared.", PREFIX, s.block_size))
        first = next((name for name in "ABCD" if d.state[name] == "waits"), None)
        if first:
            return html("{} {} needs {} and waits: {} free.", said, first, d.wanted[first],
                        f"{d.count - d.used} block{'s are' if d.count - d.used != 1 else ' is'}")
        if d.reused:
            return html("{} Of {}'s {} blocks, {} are in use again.", said, s.finished, len(d.returned), d.reused)
        return said

    @staticmethod
    def _row(d: Drawing, name, tokens):
        blocks, state = d.blocks[name], d.state[name]
        which = ", ".join(map(str, blocks[:8])) + (" …" if len(blocks) > 8 else "")
        return {"request": name, "tokens": tokens, "blocks": len(blocks), "which": which or "–",
                "empty": len(blocks) * d.block_size - tokens if blocks else 0, "state": state}

class WorstCase(Panel):
    """The log's concurrency beside what fits at the length requests really have."""

    name = "03-worst-case"
    title = "The same cache, full-length requests and yours: Qwen2.5-1.5B on 24 GiB"
    inputs = [
        PowerOfTwo("average_tokens", 2000, min=512, max=16384, at_most=32768, label="Your average request", unit="tokens",
                   help="Prompt and answer together, on average."),
        PowerOfTwo("max_model_len", 32768, min=2048, max=32768, at_most=32768, label="Longest request", unit="tokens",
                   flag="--max-model-len", help="What the log's concurrency assumes of every request."),
    ]
    predict = Predict("And at 500 tokens each, how many requests fit at once?",
                      answer=lambda: int(_row_one(500).max_concurrency), unit="requests", within=5,
                      because="500 tokens take 32 blocks, which is room for 512: 43,019 blocks / 32.")

    def chart(self):
        x = charts.axis_x("value", "requests at once", (0, 1500))
        y = alt.Y("row:O", axis=None, scale=alt.Scale(domain=[0, 1], paddingInner=0.55, paddingOuter=0.5))
        base = alt.Chart(alt.NamedData("bars"))
        bar = base.mark_bar().encode(x=x, y=y, color=alt.Color("colour:N", scale=None, legend=None))
        word = base.mark_text(align="left", dx=2, dy=-24, fontWeight="bold").encode(x=alt.value(0), y=y, text="name:N")
        figure = base.mark_text(align="left", dx=4).encode(x="value:Q", y=y, text="figure:N")
        return (bar + word + figure + charts.guess_rule()).properties(width=charts.WIDTH, height=210)

    def compute(self, s):
        if s.average_tokens > s.max_model_len:
            raise SizingError(f"Your average request has {s.average_tokens:,} tokens, but --max-model-len allows "
                              f"{s.max_model_len:,}; raise the one or lower the other.")
        full, real = _row_one(s.max_model_len), _row_one(s.average_tokens)
        fits = int(real.max_concurrency)
        rows = [{"of": f"{each.max_model_len:,} tokens, {what}", "blocks": each.blocks_per_request,
                 "fit": each.max_concurrency, "times": each.max_concurrency / full.max_concurrency}
                for each, what in ((full, "the longest allowed"), (real, "your average"))]
        guess = None if self.guess is None else min(1500, self.guess)
        return View(
            answer=html("The log says {}x; requests of {} tokens on average fit {} at a time.",
                        strong(f"{full.max_concurrency:.2f}"), f"{s.average_tokens:,}", strong(f"{fits:,}")),
            rows={"bars": [{"row": 0, "name": f"all {s.max_model_len:,} tokens long (the log)", "colour": UNUSED,
                            "value": full.max_concurrency, "figure": f"{full.max_concurrency:.2f}"},
                           {"row": 1, "name": f"{s.average_tokens:,} tokens on average", "value": real.max_concurrency,
                            "colour": KV, "figure": f"{fits:,}"}],
                  "guess": charts.guess_rows(guess)},
            table=table(rows, [Col("of", "requests of"), Col("blocks", "blocks each"), Col("fit", "fit at once", ".2f"),
                               Col("times", "times the log's figure", ".2f")],
                        caption=f"A cache of {full.num_gpu_blocks:,} blocks, {full.kv_cache_tokens:,} tokens as printed"),
            description=f"{full.max_concurrency:.2f} requests of full length, {fits} at the average length.")


@cache
def _row_one(max_model_len):
    """The program's first row at another longest length."""
    return on_a_card(**PROGRAM[0], max_model_len=max_model_len)

COMFORTABLE = 1.25  # our own reading of "comfortably"
PLACES = [{"x": 560, "y": 5.5, "word": "all of them fit", "align": "left"},
          {"x": 62000, "y": 1500, "word": "they push each other out", "align": "right"}]


def margin(kv_cache_tokens: int, p95_tokens: int, max_num_seqs: int) -> float:
    """How many times over the cache holds ``max_num_seqs`` requests of the p95 length.

    >>> margin(681_600, 8_000, 64)
    1.33125
    """
    return kv_cache_tokens / p95_tokens / max_num_seqs


def planning_verdict(value: float) -> str:
    """The margin in words."""
    return "comfortable" if value >= COMFORTABLE else "too close to call" if value >= 1 else "short"


class Planning(Panel):
    """cache ÷ p95 against max_num_seqs, on a map of both."""

    name = "03-planning"
    title = "Will long requests push each other out?"
    inputs = [
        PowerOfTwo("p95_tokens", 8000, min=512, max=65536, label="p95 request", unit="tokens",
                   help="95 of 100 requests are no longer than this, prompt and answer together."),
        PowerOfTwo("max_num_seqs", 256, min=8, max=1024, at_most=100_000, label="Sequences at once", unit="requests",
                   flag="--max-num-seqs", help="The most requests the scheduler runs together."),
        PowerOfTwo("kv_cache_tokens", 681600, min=32768, max=4194304, at_most=2**40, label="Cache", unit="tokens",
                   help="From your log line: GPU KV cache size."),
    ]
    predict = Predict("At a p95 of 2,000 tokens, up to how many sequences does a cache of 681,600 tokens hold?",
                      answer=681600 // 2000, unit="sequences", within=3, because="681,600 / 2,000 = 340.8.")

    def chart(self):
        x = alt.X("x:Q", title="p95 tokens of a request (each step twice as long)",
                  scale=alt.Scale(type="log", base=2, domain=[512, 65536], nice=False, clamp=True),
                  axis=alt.Axis(values=[512, 2048, 8192, 32768], format=","))
        y = alt.Y("y:Q", title="sequences at once (each step twice as many)",
                  scale=alt.Scale(type="log", base=2, domain=[4, 2048], nice=False, clamp=True),
                  axis=alt.Axis(values=[4, 16, 64, 256, 1024], format=","))
        area = alt.Chart(alt.NamedData("room")).mark_area(color=KV, opacity=0.28).encode(x=x, y=y, y2=alt.datum(4))
        edge = alt.Chart(alt.NamedData("room")).mark_line(color=KV, strokeWidth=2.5).encode(x=x, y=y)
        safe = alt.Chart(alt.NamedData("room")).mark_line(color=KV, strokeDash=[6, 4]).encode(x=x, y="safe:Q")
        you = alt.Chart(alt.NamedData("you"))
        dot = you.mark_point(filled=True, size=150, opacity=1, stroke=INK, strokeWidth=1).encode(
            x=x, y=y, color=alt.Color("colour:N", scale=None, legend=None), shape=alt.Shape("shape:N", scale=None))
        word = you.mark_text(align="center", dy=-16, fontWeight="bold").encode(x=x, y=y, text="word:N")
        place = alt.Chart(alt.NamedData("places"))
        places = [place.transform_filter(f"datum.align == '{align}'").mark_text(align=align, fontStyle="italic").encode(
            x=x, y=y, text="word:N") for align in ("left", "right")]
        return alt.layer(area, edge, safe, *places, dot, word, charts.guess_rule(axis="y", field="y")).properties(
            width=charts.WIDTH, height=340)

    def compute(self, s):
        value = margin(s.kv_cache_tokens, s.p95_tokens, s.max_num_seqs)
        said, fit = planning_verdict(value), s.kv_cache_tokens / s.p95_tokens
        line = [{"x": x, "y": s.kv_cache_tokens / x, "safe": s.kv_cache_tokens / x / COMFORTABLE}
                for x in (2 ** (9 + i / 4) for i in range(29))]
        guess = None if self.guess is None or self.guess <= 0 else min(2048, max(4, self.guess))
        colour, shape = (KV, "circle") if value >= 1 else (REFUSED, "cross")
        todo = {"comfortable": "preemption should be rare.", "too close to call": "a burst of long requests can preempt.",
                "short": "expect preemption when many long requests meet."}[said]
        return View(
            answer=html("{}: room for {} requests of p95 length against {} sequences, {} times over; {}",
                        strong(said.capitalize()), strong(f"{fit:,.0f}" if fit >= 10 else f"{fit:.1f}"),
                        f"{s.max_num_seqs:,}", strong(f"{value:.2f}"), todo),
            rows={"room": line, "guess": charts.guess_rows(guess, field="y"), "places": PLACES,
                  "you": [{"x": s.p95_tokens, "y": s.max_num_seqs, "word": f"you: {value:.2f}", "colour": colour,
                           "shape": shape}]},
            table=table([
                {"if": "sequences stay at " + f"{s.max_num_seqs:,}", "then": "p95 up to",
                 "edge": s.kv_cache_tokens // s.max_num_seqs,
                 "safe": math.floor(s.kv_cache_tokens / s.max_num_seqs / COMFORTABLE), "unit": "tokens"},
                {"if": "p95 stays at " + f"{s.p95_tokens:,}", "then": "sequences up to",
                 "edge": s.kv_cache_tokens // s.p95_tokens,
                 "safe": math.floor(s.kv_cache_tokens / s.p95_tokens / COMFORTABLE), "unit": "requests"}],
                [Col("if"), Col("then", ""), Col("edge", "just enough (1.00)"), Col("safe", "comfortable (1.25)"),
                 Col("unit", "")]),
            description=f"Margin {value:.2f}: {said}.",
            note="Green: the cache holds that many requests of that length. Dashed: with a quarter to spare, our own "
                 "reading of “comfortably”.")


# ---- questions ------------------------------------------------------------------------------

MEND = Predict("Which single change gets row 4 past the check at the length it then has?", name="03-mend",
               answer="--max-model-len 51424",
               options=["--max-model-len 51424", "--kv-cache-dtype fp8", "--gpu-memory-utilization 0.97",
                        "--max-num-seqs 1"],
               because="It asks for 6.28 GiB instead of 16. fp8 still asks for 8, 0.97 offers 7.48, and the number of "
                       "sequences is not part of the check.")
BATCH = Predict("Why does a larger --max-num-batched-tokens leave fewer blocks?", name="03-batch",
                answer="the pass that measures memory is larger",
                options=["each block is larger", "the pass that measures memory is larger",
                         "each request takes more blocks"],
                because="Before it cuts the pool, vLLM runs one dummy batch of the largest size it may ever send and "
                        "keeps that pass's memory free. A larger batch needs more, and the pool gets what is left.")
