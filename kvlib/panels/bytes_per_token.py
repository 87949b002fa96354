"""Notebook 01: why a cache, what a token's slab is made of, the two traps, and the price of a token."""

from __future__ import annotations

import altair as alt

from kvlib import catalog, charts
from kvlib.controls import Choice, Col, Number, Panel, PowerOfTwo, Predict, View, html, mark, strong, table
from kvlib.engine import Engine
from kvlib.panels.token_facts import (
    declared, factors, full_attention_models, others, price, request_bytes, shortcut_rows,
)
from kvlib.panels.token_pictures import (
    INK, KV, W, box, kib_bar, kib_rows, line, pixels, price_chart, shortcut_chart, word, x_at, y_at,
)
from kvlib.tables import gib
from kvlib.units import GiB, KiB

__all__ = ["DecodeWork", "Outweigh", "SharedHeads", "TokenPrice", "TokenSlab", "factors",
           "full_attention_models", "price_chart", "request_bytes", "shortcut_chart", "shortcut_rows"]

DTYPES = {"16 bits": "auto", "fp8": "fp8"}
RULER = (2 * KiB, 2048 * KiB)  # the ends of the ruler, bytes a token


class DecodeWork(Panel):
    """Tokens run through the model at each step of an answer, with and without a cache."""

    name = "01-decode-work"
    title = "Writing an answer, token by token"
    inputs = [
        Number("prompt_tokens", 4, min=1, max=8, label="Prompt", unit="tokens", help="What the model is given."),
        Number("new_tokens", 5, min=1, max=8, label="Answer", unit="tokens", help="What it writes, one token a step."),
    ]
    predict = Predict(
        "Leave the prompt at 4 tokens and let the answer be 8. With a cache the model then runs 11 tokens through its "
        "layers, all steps together. How many without one?", answer=60, unit="tokens", within=10,
        because="Each step begins again at the first token: 4 + 5 + 6 + 7 + 8 + 9 + 10 + 11.")
    cell, row, top, left = 14, 16, 40, (46, 292)  # pixels; left edges of the two triangles
    sides = ("without a cache", "with a cache")

    def chart(self):
        grid = pixels(self.top + 8 * self.row + 12, boxes="cells", lines="lines", words="words")
        base = alt.Chart(alt.NamedData("bars"))
        x = charts.axis_x("value", "tokens run through the model, all steps together", (0, 100))
        y = alt.Y("side:N", title=None, sort=None, scale=alt.Scale(domain=list(self.sides)))
        bars = base.mark_bar(color=INK, opacity=0.6, height=18).encode(x=x, y=y)
        figures = base.mark_text(align="left", dx=5, fontWeight="bold").encode(x=x, y=y, text="value:Q")
        return [grid, (bars + figures + charts.guess_rule()).properties(width=W, height=104)]

    @staticmethod
    def work(prompt, new):
        """For each step: tokens run without a cache, run with one, and read from it."""
        return [(prompt + k, 1 if k else prompt, prompt + k - 1 if k else 0) for k in range(new)]

    def compute(self, s):
        steps, cell, tall = self.work(s.prompt_tokens, s.new_tokens), self.cell, self.row
        cells, words, lines = [], [], []
        for side, x0 in zip(self.sides, self.left, strict=True):
            edge = x0 + s.prompt_tokens * cell
            lines.append(line(edge - 0.5, self.top - 5, edge - 0.5, self.top + s.new_tokens * tall + 1, dash=1))
            words += [word(x0, 10, side, weight="bold"), word(edge + 4, 28, "written"),
                      word(edge - 4, 28, "prompt" if s.prompt_tokens > 2 else "", "right")]
        for k, (without, fresh, read) in enumerate(steps):
            y = self.top + k * tall
            words.append(word(self.left[0] - 6, y + 7, f"step {k + 1}", "right"))
            for x0, known, run in ((self.left[0], 0, without), (self.left[1], read, fresh)):
                cells += [box(x0 + i * cell + 3, y + 3, cell - 7, tall - 8) for i in range(known)]
                cells += [box(x0 + i * cell, y, cell - 1, tall - 2, INK, 0.7) for i in range(known, known + run)]
                words.append(word(x0 + (known + run) * cell + 4, y + 7, f"{run}"))
        total, cached = sum(step[0] for step in steps), sum(step[1] for step in steps)
        kept = s.prompt_tokens + s.new_tokens - 1
        return View(
            answer=html("{} tokens run through the model without a cache, {} with one.", strong(f"{total}"),
                        strong(f"{cached}")),
            rows={"cells": cells, "words": words, "lines": lines, "guess": charts.guess_rows(self.guess),
                  "bars": [{"side": self.sides[0], "value": total}, {"side": self.sides[1], "value": cached}]},
            note=html("Large squares: run through all layers in this step; the number counts them. Small and green: keys "
                      "and values read from the cache. What it takes in return: memory, {} of it in Qwen3-8B after "
                      "the last step, and more with every token.", strong(gib(kept * price("Qwen3-8B")))),
            table=table([{"step": k + 1, "without": a, "with": b, "kept": a} for k, (a, b, _) in enumerate(steps)],
                        [Col("step"), Col("without", "run without a cache", unit="tokens"),
                         Col("with", "run with one", unit="tokens"),
                         Col("kept", "in the cache afterwards", unit="tokens")]),
            description=[
                (f"Two triangles of {s.new_tokens} steps. Without a cache the first step runs {steps[0][0]} tokens and "
                 f"the last {steps[-1][0]}; with one, every step after the first runs a single token."),
                f"Bars: {total} tokens without a cache, {cached} with one."])


class TokenSlab(Panel):
    """One token's keys and values: layers wide, heads high, and one cell of it enlarged."""

    name = "01-token-slab"
    title = "All that is kept for one token"
    inputs = [
        Number("num_hidden_layers", 36, min=1, max=96, label="Layers", flag="num_hidden_layers",
               help="How often the token is stored: once in each layer."),
        Number("num_key_value_heads", 8, min=1, max=16, label="KV heads", flag="num_key_value_heads",
               help="Heads that keep keys and values of their own."),
        Number("head_dim", 128, min=32, max=256, step=8, label="Head width", flag="head_dim",
               help="Numbers in one key, and in one value.", unit="numbers"),
        Choice("kv_cache_dtype", DTYPES, style="buttons", label="Stored in", flag="--kv-cache-dtype",
               help="Bytes of each number: 2, or 1 with fp8."),
    ]
    predict = Predict(
        "Qwen3-32B has 64 layers and is otherwise like the model drawn here: 8 KV heads, 128 wide, 16 bits. What does "
        "one of its tokens cost, in KiB?", answer=256, unit="KiB", within=5,
        because="Only the layers change: 64 slices of 4 KiB each.")
    high, x0, zoom, y0 = 252, 78, 24, 96
    per_layer, per_head, per_number = 4.4, 9, 1.6

    def chart(self):
        return [pixels(self.high, boxes="boxes", lines="lines", words="words"), kib_bar(1536)]

    def compute(self, s):
        each = declared(s.num_hidden_layers, s.num_key_value_heads, s.head_dim, s.kv_cache_dtype)
        one = declared(1, 1, s.head_dim, s.kv_cache_dtype)
        number = one // (2 * s.head_dim)
        wide, tall = s.num_hidden_layers * self.per_layer, s.num_key_value_heads * self.per_head
        x0, y0, zoom = self.x0, self.y0, self.zoom
        boxes = []
        for head in range(s.num_key_value_heads):
            y = y0 + head * self.per_head
            boxes += [box(x0, y, wide, 4), box(x0, y + 4, wide, 4, opacity=0.45)]
        lines = [line(x0 + i * self.per_layer, y0, x0 + i * self.per_layer, y0 + tall - 1, opacity=0.25)
                 for i in range(1, s.num_hidden_layers)]
        strip, thick = s.head_dim * self.per_number, 9 * number
        for y, opacity in ((zoom, 1.0), (zoom + 22, 0.45)):
            boxes.append(box(x0, y, strip, thick, opacity=opacity))
            lines += [line(x0 + i * self.per_number, y, x0 + i * self.per_number, y + thick, opacity=0.25)
                      for i in range(8, s.head_dim, 8)]
        foot = zoom + 22 + thick
        lines += [line(x0, foot, x0, y0, dash=1), line(x0 + strip, foot, x0 + self.per_layer, y0, dash=1),
                  line(x0, y0 + 8, x0 + self.per_layer, y0 + 8, opacity=1),
                  line(x0 + self.per_layer, y0, x0 + self.per_layer, y0 + 8, opacity=1)]
        heads, layers = count(s.num_key_value_heads, "KV head"), count(s.num_hidden_layers, "layer")
        words = [word(x0, y0 + tall + 12, layers), word(x0 - 8, y0 + tall / 2, heads, "right"),
                 word(x0 - 8, zoom + thick / 2, "key K", "right", "bold"),
                 word(x0 - 8, zoom + 22 + thick / 2, "value V", "right", "bold"),
                 word(x0, 11, f"one head of one layer: 2 × {s.head_dim} numbers × {number} B = {one:,} B")]
        chain = f"{s.num_hidden_layers} × {s.num_key_value_heads} × {s.head_dim} × 2 × {number} B"
        return View(
            answer=html("{} = {}: {} for one token.", chain, f"{each:,} B", strong(gib(each))),
            rows={"boxes": boxes, "lines": lines, "words": words} | kib_rows(each, self.guess),
            table=table([{"of": "one head of one layer", "n": one},
                         {"of": f"× {heads} = one layer", "n": one * s.num_key_value_heads},
                         {"of": f"× {layers} = one token", "n": each}],
                        [Col("of", "part", "text"), Col("n", "bytes")]),
            description=[(f"A slab of {layers} by {heads}; each cell is a key and a value of {s.head_dim} numbers of "
                          f"{number} bytes."), f"A bar of {gib(each)}."])


class SharedHeads(Panel):
    """Which of 32 query heads share keys and values, and what that saves."""

    name = "01-shared-heads"
    title = "32 query heads and the keys they look into"
    query_heads = 32
    inputs = [Choice("num_key_value_heads", {str(n): n for n in (1, 2, 4, 8, 16, 32)}, 8, style="buttons",
                     label="KV heads", flag="num_key_value_heads",
                     help="Heads that keep keys and values. 8 in Qwen3-8B; all else stays as in that model.")]
    predict = Predict("With 2 KV heads in place of 8, what would a token of Qwen3-8B cost, in KiB?", answer=36,
                      unit="KiB", within=5, because="A quarter of the heads keep a quarter of the bytes.")
    high = 180

    def chart(self):
        circles = alt.Chart(alt.NamedData("queries")).mark_point(
            shape="circle", size=70, filled=False, color=INK, strokeWidth=1.4, opacity=0.9).encode(
            x=x_at("x"), y=y_at("y", self.high))
        return [circles + pixels(self.high, boxes="boxes", lines="lines", words="words"), kib_bar(640)]

    def compute(self, s):
        kept, queries, gap = s.num_key_value_heads, self.query_heads, 15.2
        share, layers = queries // kept, 36
        each, all_kept = declared(layers, kept, 128), declared(layers, queries, 128)
        xs = [26 + gap * i for i in range(queries)]
        centre = [sum(xs[h * share:(h + 1) * share]) / share for h in range(kept)]
        boxes = []
        for x in centre:
            boxes += [box(x - 5, 128, 10, 9), box(x - 5, 137, 10, 9, opacity=0.45)]
        words = [word(20, 12, f"{queries} query heads ask"),
                 word(20, 162, f"{count(kept, 'KV head')} kept in the cache: key above, value below")]
        how = ("each query head keeps its own: multi-head attention (MHA)" if share == 1 else
               "all share one: multi-query attention (MQA)" if kept == 1 else
               f"{share} query heads share each: grouped-query attention (GQA)")
        return View(
            answer=html("{} for one token; {}.", strong(gib(each)), how),
            rows={"queries": [{"x": x, "y": 34} for x in xs], "boxes": boxes, "words": words,
                  "lines": [line(x, 40, centre[i // share], 127, opacity=0.45) for i, x in enumerate(xs)]}
            | kib_rows(each, self.guess),
            table=table([{"what": "heads that are kept", "heads": kept, "bytes": each},
                         {"what": "query heads", "heads": queries, "bytes": all_kept}],
                        [Col("what", "count", "text"), Col("heads"), Col("bytes", "one token", unit="B")],
                        footer=f"Counting query heads would overstate the cache {share} times." if share > 1 else
                        "Here both counts agree."),
            description=[f"{queries} query heads in a row, joined in groups of {share} to {count(kept, 'KV head')}.",
                         f"A bar of {gib(each)}."])


class Outweigh(Panel):
    """Requests of one length beside the weights."""

    name = "01-outweigh"
    title = "Requests against weights, Qwen3-8B"
    limit = 72
    inputs = [
        Number("requests", 1, min=1, max=12, label="Requests at once", help="All as long as the next control says."),
        PowerOfTwo("request_tokens", 32768, min=1024, max=40960, at_most=40960, label="Tokens in each", unit="tokens",
                   help="Prompt and answer together; the config of Qwen3-8B allows 40,960."),
        Choice("kv_cache_dtype", DTYPES, style="buttons", label="Cache stored in", flag="--kv-cache-dtype",
               help="The weights stay in 16 bits."),
    ]
    predict = Predict("How many requests of 32,768 tokens does it take until their cache outweighs the weights?",
                      answer=4, unit="requests", within=0,
                      because="3 hold 13.5 GiB and 4 hold 18 GiB; the weights are 15.27 GiB.")

    def chart(self):
        base = alt.Chart(alt.NamedData("parts"))
        x = charts.axis_x("start", "GiB", (0, self.limit))
        y = alt.Y("row:N", title=None, sort=None, scale=alt.Scale(domain=["weights", "KV cache"], paddingInner=0.3))
        bars = base.mark_bar(stroke=INK, strokeWidth=0.8, strokeOpacity=0.7).encode(
            x=x, x2="end:Q", y=y, color=alt.Color("colour:N", scale=None, legend=None))
        figures = alt.Chart(alt.NamedData("figures")).mark_text(align="left", dx=6, fontWeight="bold").encode(
            x=alt.X("end:Q"), y=y, text="figure:N")
        level = alt.Chart(alt.NamedData("weights")).mark_rule(strokeDash=[2, 3]).encode(x=alt.X("end:Q"))
        return (bars + figures + level + charts.guess_rule(field="end")).properties(width=W, height=170)

    def compute(self, s):
        weights = catalog.weights("Qwen3-8B")
        held = f"{weights.bytes / GiB:.2f} GiB"
        each = price("Qwen3-8B", s.kv_cache_dtype) * s.request_tokens
        cache, one = each * s.requests, each / GiB
        needed = weights.bytes // each + 1
        parts = [{"row": "weights", "start": 0, "end": weights.bytes / GiB, "colour": charts.COLOURS["weights"]}]
        parts += [{"row": "KV cache", "start": i * one, "end": (i + 1) * one, "colour": KV} for i in range(s.requests)]
        figures = [{"row": "weights", "end": weights.bytes / GiB, "figure": held},
                   {"row": "KV cache", "end": cache / GiB, "figure": gib(cache)}]
        verdict = "more than" if cache > weights.bytes else "less than"
        plural = "s" if s.requests > 1 else ""
        return View(
            answer=html("{} request{} of {} tokens: {} of cache, {} the {} of weights.", s.requests, plural,
                        f"{s.request_tokens:,}", strong(gib(cache)), verdict, mark(held, weights.kind)),
            rows={"parts": parts, "figures": figures, "weights": figures[:1],
                  "guess": charts.guess_rows(None if self.guess is None else self.guess * one, field="end")},
            table=table([{"n": s.requests, "one": each, "all": cache, "share": 100 * cache / weights.bytes}],
                        [Col("n", "requests"), Col("one", "one of them", "bytes"), Col("all", "all of them", "bytes"),
                         Col("share", "of the weights", ".0f", "%")]),
            note="The dotted line marks the weights as one launch measured them. A guess is drawn at the length and "
                 "width of number set here.",
            description=f"Two bars from zero: weights {held}, and cache {gib(cache)} in {count(s.requests, 'part')}."
                        + (f" {needed} requests would outweigh the weights." if s.requests >= needed else ""))


class TokenPrice(Panel):
    """What a token costs in any full-attention model of the catalogue."""

    name = "01-token-price"
    title = "What does a token cost?"
    longest = 131072
    inputs = [
        Choice("model", list(full_attention_models()), "Qwen3-8B", label="Model",
               help="Models in which every layer keeps every token."),
        Choice("kv_cache_dtype", DTYPES, style="buttons", label="Cache stored in", flag="--kv-cache-dtype",
               help="16 bits is 'auto', the type of the model; fp8 is one byte a number."),
        Choice("tensor_parallel_size", {str(n): n for n in (1, 2, 4, 8, 16)}, style="buttons",
               label="GPUs that share the model", flag="--tensor-parallel-size",
               help="Each keeps its share of the KV heads, at least one."),
        PowerOfTwo("request_tokens", 32768, min=1024, max=longest, label="One request", unit="tokens",
                   help="Prompt and answer together."),
    ]
    predict = Predict("Llama-3.3-70B costs 320 KiB a token on one GPU. Spread over 4 GPUs and with an fp8 cache, how "
                      "many KiB does each GPU keep of it?", answer=40, unit="KiB", within=5,
                      because="A quarter of the heads, and half the bytes of each number: 320 ÷ 4 ÷ 2.")

    def chart(self):
        scale = alt.Scale(type="log", base=2, domain=list(RULER), nice=False, clamp=True)
        axis = alt.Axis(values=[RULER[0] * 2**k for k in range(11)], tickCount=20, labelOverlap=False,
                        labelExpr="datum.value < 1048576 ? datum.value / 1024 : datum.value > 1048576 ? '' : '1 MiB'")
        x = alt.X("bytes:Q", title="KiB for one token on each GPU; each line is twice the one before", scale=scale,
                  axis=axis)
        middle, base = alt.value(54), alt.Chart(alt.NamedData("way"))
        others_ = alt.Chart(alt.NamedData("others")).mark_rule(strokeWidth=1.5, opacity=0.4).encode(
            x=x, y=alt.value(46), y2=alt.value(62))
        way = base.mark_rule(color=KV, strokeWidth=2).encode(x=x, x2="start:Q", y=middle)
        start = base.mark_point(color=KV, filled=False, size=110, strokeWidth=2, opacity=1).encode(
            x=alt.X("start:Q"), y=middle)
        now = base.mark_point(color=KV, filled=True, size=170, opacity=1).encode(x=x, y=middle)
        names = [base.transform_filter(f"datum.align == '{side}'").mark_text(align=side, fontWeight="bold").encode(
            x=x, y=alt.value(31), text="label:N") for side in ("left", "right")]
        ruler = alt.layer(others_, way, start, now, *names, charts.guess_rule(field="bytes"))
        return [ruler.properties(width=W, height=112), self._request()]

    @staticmethod
    def _request():
        base = alt.Chart(alt.NamedData("request"))
        x = alt.X("value:Q", title="GiB for the request, on each GPU", scale=alt.Scale(zero=True, nice=False))
        top, foot = alt.value(26), alt.value(52)
        edge = alt.Chart(alt.NamedData("limit")).mark_point(opacity=0).encode(x=x, y=alt.value(40))
        plain = base.mark_rect(filled=False, stroke=KV, strokeWidth=1.5, strokeDash=[4, 3]).encode(
            x=alt.X("plain:Q"), x2="zero:Q", y=top, y2=foot)
        bar = base.mark_rect(color=KV).encode(x=x, x2="zero:Q", y=top, y2=foot)
        name = base.mark_text(align="left", fontWeight="bold").encode(
            x=alt.X("zero:Q"), y=alt.value(13), text="label:N")
        return alt.layer(edge, plain, bar, name).properties(width=W, height=104)

    def compute(self, s):
        model = full_attention_models()[s.model]
        engine = Engine(kv_cache_dtype=s.kv_cache_dtype, tensor_parallel_size=s.tensor_parallel_size)
        each, start = price(s.model, s.kv_cache_dtype, s.tensor_parallel_size), price(s.model)
        request, all_gpus = each * s.request_tokens, each * s.request_tokens * s.tensor_parallel_size
        where = "on one GPU" if s.tensor_parallel_size == 1 else f"on each of {s.tensor_parallel_size} GPUs"
        bound = model.max_position_embeddings
        note = "Hollow: 16 bits on one GPU. Filled: as set. Grey strokes: the other models, as set."
        if bound and s.request_tokens > bound:
            note += f" The config of {s.model} allows requests of {bound:,} tokens at most."
        return View(
            answer=html("{}: {} ({}) a token {}; a request of {} tokens holds {} there.", s.model, strong(gib(each)),
                        f"{each:,} B", where, f"{s.request_tokens:,}", strong(gib(request))),
            rows={"others": [{"bytes": n} for n in others(s.kv_cache_dtype, s.tensor_parallel_size) if n != each],
                  "way": [{"bytes": each, "start": start, "label": f"{s.model}  {gib(each)}",
                           "align": "left" if each < 90 * KiB else "right"}],
                  "guess": charts.guess_rows(None if self.guess is None else self.guess * KiB, field="bytes"),
                  "limit": [{"value": start * self.longest / GiB}],
                  "request": [{"value": request / GiB, "plain": start * s.request_tokens / GiB, "zero": 0,
                               "label": f"{gib(request)} {where}"}]},
            table=[factors(model, engine),
                   table([{"n": s.request_tokens, "one": request, "gpus": s.tensor_parallel_size, "all": all_gpus}],
                         [Col("n", "request", unit="tokens"), Col("one", "on each GPU", "bytes"), Col("gpus", "GPUs"),
                          Col("all", "on all of them", "bytes")])],
            note=note,
            description=[(f"A ruler whose lines double: {s.model} at {gib(each)} a token, {gib(start)} as its config "
                          "stands on one GPU."), f"A bar of {gib(request)} for {s.request_tokens:,} tokens."])


def count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
