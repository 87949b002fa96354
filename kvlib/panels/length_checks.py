"""Start-up checks as panels: a refusal, the search of auto-fit, and eight requests at once. Llama-3.1-8B throughout."""

from __future__ import annotations

from functools import cache, lru_cache

import altair as alt

from kvlib import Engine, SizingError, bytes_per_token, charts, size
from kvlib.capacity import _longest
from kvlib.controls import Choice, Col, Number, Panel, PowerOfTwo, Predict, View, code, html, strong, table
from kvlib.panels.program_rows import KV, NOTE_VERSION, PROGRAM, REFUSED, model_of, on_a_card, verdict
from kvlib.pool import plan
from kvlib.units import GiB, gib

UNUSED, INK = charts.COLOURS["unused"], "currentColor"


@lru_cache(maxsize=512)
def llama(available_gib, vllm_version=NOTE_VERSION, **flags):
    """Llama-3.1-8B with that much memory for its cache, in GiB.

    >>> [llama(6.28, version).estimated_max_model_len for version in ("0.28", "0.30")]
    [51440, 51424]
    """
    return size(model_of("Llama-3.1-8B"), Engine(vllm_version=vllm_version, **flags), available_bytes=gib(available_gib))


def _bar(row: int, name: str, value: float, colour: str) -> dict:
    """A bar of at most 20 GiB with its figure behind it or, where no room is left there, at its end in an ink that fits."""
    end, figure = min(value, 20), f"{value:.2f} GiB"
    inside = end > 17.4
    return {"row": row, "name": name, "colour": colour, "end": end, "figure": figure,
            "at": end - 0.26 * len(figure) - 0.3 if inside else end, "ink": charts.ink_on(colour) if inside else INK}


VERSIONS = Choice("vllm_version", {"up to 0.28": "0.28", "since 0.29": NOTE_VERSION}, NOTE_VERSION, style="buttons",
                  label="vLLM", help="Since 0.29 the check keeps one block back.")


class Refusal(Panel):
    """One request against the memory for the cache."""

    name = "03-refusal"
    title = "Does one request of full length fit? Llama-3.1-8B"
    inputs = [
        Number("available_gib", 6.28, min=1, max=20, step=0.01, at_least=0.01, at_most=1000, label="Available",
               unit="GiB", help="What the log calls Available KV cache memory."),
        PowerOfTwo("max_model_len", 131072, min=1024, max=131072, at_most=131072, label="Longest request",
                   unit="tokens", flag="--max-model-len", help="Prompt and answer together."),
        Choice("kv_cache_dtype", {"16-bit": "auto", "fp8": "fp8"}, style="buttons", label="KV cache dtype",
               flag="--kv-cache-dtype", help="fp8 halves what a token costs."),
        VERSIONS,
    ]
    predict = Predict("Keep 6.28 GiB and switch to an fp8 cache. Which is the longest length that passes?",
                      answer=lambda: llama(6.28, kv_cache_dtype="fp8").estimated_max_model_len, unit="tokens", within=2,
                      because="6,430 blocks of 1 MiB, one of them kept back: 6,429 × 16 tokens.")

    def chart(self):
        x = charts.axis_x("end", "GiB on one GPU", (0, 20))
        y = alt.Y("row:O", axis=None, scale=alt.Scale(domain=[0, 1], paddingInner=0.55, paddingOuter=0.5))
        base = alt.Chart(alt.NamedData("bars"))
        bar = base.mark_bar().encode(x=x, y=y, color=alt.Color("colour:N", scale=None, legend=None))
        word = base.mark_text(align="left", dx=2, dy=-24, fontWeight="bold").encode(x=alt.value(0), y=y, text="name:N")
        figure = base.mark_text(align="left", dx=4).encode(x="at:Q", y=y, text="figure:N",
                                                           color=alt.Color("ink:N", scale=None, legend=None))
        return (bar + word + figure + charts.guess_rule(field="end")).properties(width=charts.WIDTH, height=210)

    def compute(self, s):
        sized = llama(s.available_gib, s.vllm_version, max_model_len=s.max_model_len, kv_cache_dtype=s.kv_cache_dtype)
        longest = llama(s.available_gib, s.vllm_version, kv_cache_dtype=s.kv_cache_dtype).estimated_max_model_len
        need = sized.needed_bytes / GiB
        per_token = bytes_per_token(sized.model, Engine(kv_cache_dtype=s.kv_cache_dtype)) / GiB
        bars = [(0, f"one request of {s.max_model_len:,} tokens needs", need, KV if sized.fits else REFUSED),
                (1, f"available: {sized.num_gpu_blocks:,} blocks", s.available_gib, KV)]
        guess = None if self.guess is None else min(20, self.guess * per_token)
        return View(
            answer=self._answer(sized, longest, need, s),
            rows={"bars": [_bar(*each) for each in bars],
                  "guess": charts.guess_rows(guess, field="end")},
            table=[html("<p>{}</p>", code(sized.log_lines()[-1])), self._pairs(s)],
            description=f"One request needs {need:.2f} GiB, {s.available_gib:.2f} GiB are available: {verdict(sized)}.")

    @staticmethod
    def _answer(sized, longest, need, s):
        if sized.fits:
            return html("Passes vLLM's memory checks: {:} GiB needed of {}. Lengths up to {} pass.", f"{need:.2f}",
                        f"{s.available_gib:.2f}", strong(f"{longest:,}"))
        if not longest:
            return html("{}: not one block can be handed out.", strong("Refused"))
        return html("{}: {} GiB needed, {} available. The longest length that passes is {} tokens.", strong("Refused"),
                    f"{need:.2f}", f"{s.available_gib:.2f}", strong(f"{longest:,}"))

    @staticmethod
    def _pairs(s):
        lines = {6.28: "24 × 0.92 − 15.0 − 0.8, the program's row 4", 6.31: "printed in the note's message, with 51,440"}
        if s.available_gib not in lines:
            lines[s.available_gib] = "yours"
        rows = [{"gib": f"{value:.2f}", "old": llama(value, "0.28").estimated_max_model_len,
                 "new": llama(value).estimated_max_model_len, "where": where} for value, where in lines.items()]
        at = next(i for i, value in enumerate(lines) if value == s.available_gib)
        return table(rows, [Col("gib", "available", unit="GiB"), Col("old", "up to 0.28", "int"),
                            Col("new", "since 0.29", "int"), Col("where", "where that memory comes from", "text")],
                     caption="Longest length that passes with a 16-bit cache, in tokens", highlight=at)

@lru_cache(maxsize=64)
def search(available_gib, vllm_version=NOTE_VERSION):
    """Auto-fit's tries for Llama-3.1-8B: (low, high, middle, blocks, fits) each, and the length it ends with.

    >>> tries, length = search(6.28, "0.28")
    >>> tries[0], length
    ((1, 131072, 65537, 4097, False), 51440)
    """
    made = plan(model_of("Llama-3.1-8B"), Engine(vllm_version=vllm_version, max_model_len=-1))
    room = gib(available_gib) // made.stage_bytes_per_block[0] - made.held_back_blocks
    asked = []

    def blocks_for(length):
        asked.append(length)
        return made.blocks_per_request(length)

    longest = made.setup.max_model_len
    length = _longest(blocks_for, room, longest)
    low, high, tries = 1, longest, []
    for middle in asked[1:]:
        blocks = made.blocks_per_request(middle)
        tries.append((low, high, middle, blocks, blocks <= room))
        low, high = (middle, high) if blocks <= room else (low, middle - 1)
    return tries, length


class AutoFit(Panel):
    """The binary search behind --max-model-len -1, a try at a time."""

    name = "03-auto-fit"
    title = "How --max-model-len -1 finds its length: Llama-3.1-8B"
    inputs = [
        Number("tries", 4, min=1, max=17, label="Tries shown", unit="tries", help="Each try halves what is left."),
        Number("available_gib", 6.28, min=0.25, max=15.75, step=0.01, at_least=0.01, at_most=1000, label="Available",
               unit="GiB", help="What the log calls Available KV cache memory."),
        VERSIONS,
    ]
    predict = Predict("131,072 lengths are possible. How many does the search try before it is sure?",
                      answer=lambda: len(search(6.28)[0]), unit="tries", within=1,
                      because="Each try halves what is left, and 2 to the power 17 is 131,072.")

    def chart(self):
        across = alt.Scale(domain=[0, 131072], nice=False)
        below = alt.Scale(domain=[18, 0], nice=False)

        def x(name):
            return alt.X(f"{name}:Q", title="tokens", scale=across,
                         axis=alt.Axis(values=[0, 32768, 65536, 98304, 131072], format=",d"))

        y = alt.Y("try:Q", title="try", scale=below, axis=alt.Axis(
            values=list(range(1, 18)), grid=False, labelOverlap=False, format="d"))
        base = alt.Chart(alt.NamedData("tries"))
        left = base.mark_bar(size=9, color=UNUSED, opacity=0.4).encode(x=x("low"), x2="high:Q", y=y)
        tick = base.mark_point(filled=True, size=70, opacity=1).encode(
            x=x("middle"), y=y, color=alt.Color("colour:N", scale=None, legend=None),
            shape=alt.Shape("shape:N", scale=None))
        word = base.mark_text(align="left", dx=9).encode(x=x("middle"), y=y, text="word:N")
        guess = alt.Chart(alt.NamedData("guess"))
        rule = guess.mark_rule(strokeDash=[5, 4], strokeWidth=2).encode(y=y)
        label = guess.mark_text(align="right", dy=-7, fontStyle="italic").encode(x=alt.value("width"), y=y, text="label:N")
        return alt.layer(left, tick, word, rule, label).properties(width=charts.WIDTH, height=400)

    def compute(self, s):
        tries, length = search(s.available_gib, s.vllm_version)
        if not tries:
            raise SizingError(f"Available: {s.available_gib:.2f} GiB hold not even one token's blocks; give more")
        shown_, now = tries[:s.tries], tries[min(s.tries, len(tries)) - 1]
        low, high, middle, blocks, fits = now
        left = (middle, high) if fits else (low, middle - 1)
        done = left[0] == left[1]
        said = html("Try {}: {} tokens need {} blocks and {}.", len(shown_), f"{middle:,}", f"{blocks:,}",
                    "fit" if fits else "are too long")
        rest = html("Found: {} tokens.", strong(f"{length:,}")) if done else \
            html("Left: {} tokens.", strong(f"{left[0]:,} to {left[1]:,}"))
        return View(
            answer=html("{} {}", said, rest),
            rows={"tries": [self._try(number, *each) for number, each in enumerate(shown_, 1)],
                  "guess": charts.guess_rows(None if self.guess is None else min(18, self.guess), field="try")},
            table=table([{"try": number, "middle": each[2], "blocks": each[3], "gib": each[3] * 2 / 1024,
                          "verdict": "fits" if each[4] else "too long"}
                         for number, each in list(enumerate(shown_, 1))[-3:]],
                        [Col("try"), Col("middle", "length tried", unit="tokens"), Col("blocks"),
                         Col("gib", "needs", ".2f", "GiB"), Col("verdict")], caption="The last three tries shown"),
            description=f"{len(shown_)} tries; {left[0]:,} to {left[1]:,} tokens are left.")

    @staticmethod
    def _try(number, low, high, middle, blocks, fits):
        return {"try": number, "low": low, "high": high, "middle": middle, "colour": KV if fits else REFUSED,
                "shape": "circle" if fits else "cross", "word": f"{middle:,} " + ("fits" if fits else "is too long")}


class EightAtOnce(Panel):
    """Eight requests laid end to end beside the pool of the program's row 4."""

    name = "03-eight"
    title = "Eight requests of full length in 3,215 blocks: Llama-3.1-8B on 24 GiB"
    inputs = [Number("max_model_len", 8192, min=4096, max=8192, step=128, at_most=131072, at_least=1, label="Longest request",
                     unit="tokens", flag="--max-model-len", help="Prompt and answer together.")]
    predict = Predict("Which is the longest max_model_len with which eight requests fit at once?",
                      answer=lambda: longest_for(8), unit="tokens", within=1,
                      because="51,440 / 8 = 6,430 tokens take 402 blocks each, and 8 × 402 is one block too many; "
                              "401 blocks hold 6,416 tokens.")

    def chart(self):
        x = charts.axis_x("start", "blocks", (0, 4200))
        base = alt.Chart(alt.NamedData("pieces"))
        rect = base.mark_rect(stroke=INK, strokeOpacity=0.5).encode(
            x=x, x2="end:Q", y=alt.value(58), y2=alt.value(104), color=alt.Color("colour:N", scale=None, legend=None),
            opacity=alt.Opacity("opacity:Q", scale=None))
        number = base.mark_text(fontWeight="bold").encode(x="middle:Q", y=alt.value(81), text="word:N",
                                                          color=alt.Color("ink:N", scale=None, legend=None))
        pool = alt.Chart(alt.NamedData("pool"))
        rule = pool.mark_rule(strokeWidth=2.5).encode(x="end:Q", y=alt.value(44), y2=alt.value(118))
        word = pool.mark_text(align="right", dx=-4, fontWeight="bold").encode(x="end:Q", y=alt.value(47), text="word:N")
        rest = pool.mark_text(align="right", dx=-4).encode(x="end:Q", y=alt.value(116), text="rest:N")
        return alt.layer(rect, number, rule, word, rest, charts.guess_rule(field="end")).properties(
            width=charts.WIDTH, height=180)

    def compute(self, s):
        sized = on_a_card(**PROGRAM[3], max_model_len=s.max_model_len)
        each, pool = sized.blocks_per_request, sized.num_gpu_blocks
        spare = pool - 8 * each
        pieces = [{"start": i * each, "end": (i + 1) * each, "middle": (i + 0.5) * each, "word": str(i + 1),
                   "colour": (colour := KV if (i + 1) * each <= pool else REFUSED), "opacity": 1.0 if i % 2 else 0.75,
                   "ink": charts.ink_on(colour) if i % 2 else INK} for i in range(8) if i * each < 4200]
        count = f"{abs(spare):,} block{'s' * (abs(spare) != 1)} " + ("left over" if spare >= 0 else "missing")
        guess = None if self.guess is None else min(4200, 8 * on_a_card(
            **PROGRAM[3], max_model_len=max(1, min(131072, int(self.guess)))).blocks_per_request)
        return View(
            answer=html("{} tokens take {} blocks each: {}x, printed as {}. For eight, {}.", f"{s.max_model_len:,}",
                        each, strong(f"{sized.max_concurrency:.4f}"), f"{sized.max_concurrency:.2f}x", strong(count)),
            rows={"pieces": pieces, "pool": [{"end": pool, "word": f"the pool: {pool:,} blocks", "rest": count}],
                  "guess": charts.guess_rows(guess, field="end", label="8 × your guess")},
            table=table([{"length": s.max_model_len, "blocks": each, "eight": 8 * each, "pool": pool,
                          "x": sized.max_concurrency, "tokens": sized.kv_cache_tokens}],
                        [Col("length", "max_model_len"), Col("blocks", "blocks each"), Col("eight", "8 requests"),
                         Col("pool", "blocks in the pool"), Col("x", "concurrency", ".4f"),
                         Col("tokens", "printed tokens")]),
            description=f"Eight requests of {each} blocks end to end against {pool:,} blocks: {count}.")


@cache
def longest_for(requests: int) -> int:
    """The longest max_model_len at which that many requests fit in the program's row 4.

    >>> longest_for(8)
    6416
    """
    pool = on_a_card(**PROGRAM[3])
    return _longest(pool.plan.blocks_per_request, pool.num_gpu_blocks // requests, 131072)
