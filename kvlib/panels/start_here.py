"""The first screen: one pool, one control, and the line vLLM prints."""

from __future__ import annotations

from functools import lru_cache

import altair as alt

from kvlib import catalog, charts, load_model, size
from kvlib.controls import Col, Panel, PowerOfTwo, Predict, View, code, html, mark, size as in_units, strong, table
from kvlib.engine import Engine
from kvlib.lesson import here, running_example
from kvlib.panels.start_words import before_launch, log_table
from kvlib.reserve import assumed_budget
from kvlib.tables import Html

__all__ = ["FirstLine", "assumed_budget", "before_launch", "here", "launch", "log_table"]

MODEL = load_model("Qwen3-8B")
LIMIT = MODEL.max_position_embeddings
EACH = 4_000         # tokens of an everyday request
ASKED = 8_192        # the length in the question
_LINES, _TALL, _HEAD, _GAP = 8, 15, 20, 22
_POOL = _HEAD + _LINES * _TALL
HEIGHT = 2 * _POOL + _GAP + 8


AVAILABLE = running_example().available_bytes


@lru_cache(maxsize=64)
def launch(max_model_len: int):
    """The GB10 launch with another ``max_model_len`` (tokens): the same pool, so the same available bytes.

    >>> launch(8_192).num_gpu_blocks, f"{launch(8_192).max_concurrency:.2f}"
    (42600, '83.20')
    """
    return size(MODEL, Engine(vllm_version="0.28", max_model_len=max_model_len),
                available_bytes=AVAILABLE)


class FirstLine(Panel):
    """Move ``max_model_len``; the pool stays, the number of full-length requests in it changes."""

    name = "00-first-line"
    title = "Qwen3-8B on a GB10: the cache that was left, and the requests that fit into it"
    inputs = [PowerOfTwo("max_model_len", LIMIT, min=1024, max=131_072, at_least=1024, at_most=131_072,
                         label="Longest request", unit="tokens", flag="--max-model-len",
                         help=f"Prompt and answer together. Qwen3-8B's own maximum is {LIMIT:,}.")]
    predict = Predict(f"The server's longest request is cut from {LIMIT:,} to {ASKED:,} tokens. "
                      "How many of these shorter requests fit at once?",
                      answer=lambda: launch(ASKED).max_concurrency, unit="requests", within=3, shown=lambda n: f"{n:.4g} requests",
                      because="The pool stays as it is; a fifth of the length, so five times as many.")

    def chart(self):
        base = alt.Chart(alt.NamedData("requests")).encode(
            x=alt.X("x:Q", scale=alt.Scale(domain=[0, 1], nice=False), axis=None), y=_down("y"))
        strips = base.mark_rect().encode(
            x2="x2:Q", y2="y2:Q", color=_as_is("colour"), opacity=alt.Opacity("opacity:Q", scale=None),
            description=alt.Description("says:N"))
        numbers = base.transform_filter("datum.label").mark_text(fontSize=11, align="left", dx=4, color="#000000").encode(
            y=_down("middle"), text="label:N")
        words = alt.Chart(alt.NamedData("words")).mark_text(fontSize=13, align="left", baseline="top").encode(
            x=alt.value(0), y=_down("y"), text="text:N")
        guess = alt.Chart(alt.NamedData("guess")).encode(x=alt.X("value:Q"), y=_down("y"))
        tick = guess.mark_rule(strokeWidth=3).encode(y2="y2:Q")
        said = guess.mark_text(fontSize=12, fontStyle="italic", align="left", baseline="top").encode(
            x=alt.value(0), y=alt.value(_POOL + 2), text="label:N")
        return (strips + numbers + words + tick + said).properties(width=charts.WIDTH, height=HEIGHT)

    def compute(self, s):
        found, everyday = launch(s.max_model_len), launch(EACH)
        refused, served = s.max_model_len > LIMIT, s.max_model_len >= EACH
        full = f"{found.max_concurrency:.2f}"
        many = f"{everyday.max_concurrency:.0f}"
        upper = f"Worst case: {full} requests of {s.max_model_len:,} tokens"
        lower = f"Everyday: about {many} requests of {EACH:,} tokens" if served else \
            f"Everyday: {EACH:,} tokens are turned away, limit {s.max_model_len:,}"
        rows = {
            "requests": [*_pool(found, s.max_model_len, 0, "refused" if refused else "kv", numbered=True),
                         *_pool(everyday, EACH, _POOL + _GAP, "kv" if served else "unused")],
            "words": [{"y": 1, "text": upper}, {"y": _POOL + _GAP + 1, "text": lower}],
            "guess": _guess(self.guess, found),
        }
        return View(
            answer=_answer(s.max_model_len, full, many), rows=rows, table=[_lines(found, refused), _two(found, everyday, served)],
            description=f"The same pool twice, {_pool_tokens(found):,} tokens. {upper}. {lower}.",
            note=_note(found, refused))


def _down(field):
    return alt.Y(f"{field}:Q", scale=alt.Scale(domain=[0, HEIGHT], range=[0, HEIGHT], nice=False), axis=None)


def _as_is(field):
    return alt.Color(f"{field}:N", scale=None, legend=None)


@lru_cache(maxsize=64)
def _pool(found, tokens: int, top: int, meaning: str, numbered: bool = False) -> list[dict]:
    """A pool as lines of blocks, filled by requests of one length from the upper left on; one row a strip."""
    per_line, each = found.num_gpu_blocks / _LINES, found.blocks_per_request
    whole = int(found.max_concurrency)
    ends = [(i * each, (i + 1) * each, i + 1) for i in range(whole)]
    ends.append((whole * each, found.num_gpu_blocks, 0))
    if meaning == "unused":
        ends = [(0, found.num_gpu_blocks, 0)]
    rows = []
    for start, end, number in ends:
        at, named = start, not number
        while at < end:
            line = int(at / per_line)
            stop = min(end, (line + 1) * per_line)
            y = top + _HEAD + line * _TALL
            here = numbered and not named and (stop - at) / per_line * charts.WIDTH >= 10 + 7 * len(str(number))
            named = named or here
            rows.append({
                "x": at / per_line - line, "x2": max(stop / per_line - line - 1 / charts.WIDTH, at / per_line - line),
                "y": y, "y2": y + _TALL - 1.5, "middle": y + _TALL / 2 - 0.5,
                "colour": charts.COLOURS[meaning if number else "unused"], "opacity": 1.0 if number else 0.4,
                "label": str(number) if here else "",
                "says": f"request {number} of {tokens:,} tokens" if number else "left over"})
            at = stop
    return rows


def _pool_tokens(found) -> int:
    return found.num_gpu_blocks * found.block_size


def _guess(guess, found) -> list[dict]:
    """Where the guessed number of requests of the question would end in the pool."""
    if guess is None or guess < 0:
        return []
    share = guess * ASKED / _pool_tokens(found)
    inside = min(share, 1.0) * _LINES
    line = min(int(inside), _LINES - 1)
    y = _HEAD + line * _TALL
    label = f"Your guess: {guess:,} × {ASKED:,} tokens " + ("end at the mark." if share <= 1 else f"would need {share:.1f} such pools.")
    return [{"value": inside - line, "y": y - 2, "y2": y + _TALL, "label": label}]


def _answer(length: int, full: str, many: str) -> Html:
    if length > LIMIT:
        return html("vLLM refuses {} tokens; stretched on purpose, {} requests would fit in the worst case.",
                    f"{length:,}", strong(full))
    if length < EACH:
        return html("{} requests of {} tokens fit at once in the worst case; one of {} tokens is turned away.",
                    strong(full), f"{length:,}", f"{EACH:,}")
    return html("{} requests of {} tokens fit at once in the worst case; at {} tokens each, about {}.",
                strong(full), f"{length:,}", f"{EACH:,}", strong(many))


def _lines(found, refused: bool):
    measured = catalog.log_text("qwen3-8b-gb10").splitlines()[-1]
    ours = found.log_lines()[-1]
    rows = [("Stretched, it would print" if refused else "vLLM would print", _line(ours)),
            (mark("The GB10 printed", "measured"), _line(measured))]
    said = "Unstretched, vLLM prints an error that names max_model_len." if refused else \
        "The same to the last digit." if ours == measured else \
        f"It ran at {LIMIT:,} tokens a request: the same pool, another division."
    return table([{"from": who, "line": line} for who, line in rows],
                 [Col("from", "From", fmt="text"), Col("line", "The line in the log", fmt="text")],
                 footer=f"The GB10's line is from a launch of vLLM 0.28.0 on 2026-10-02. {said}")


def _line(text: str) -> Html:
    return html('<code style="white-space:nowrap">{}</code>', text)


def _two(found, everyday, served: bool):
    rows = [_row("worst case", found)]
    if served:
        rows.append(_row("everyday, say", everyday))
    return table(rows, [Col("request", "Request", fmt="text"), Col("tokens", "Tokens"), Col("bytes", "Cache it takes"),
                        Col("blocks", "Blocks of 16 tokens"), Col("fit", "Fit at once", ".2f")])


def _row(name: str, sizing) -> dict:
    return {"request": name, "tokens": sizing.max_model_len, "bytes": in_units(sizing.needed_bytes),
            "blocks": sizing.blocks_per_request, "fit": sizing.max_concurrency}


def _note(found, refused: bool) -> Html:
    if refused:
        return html("Qwen3-8B's own maximum is {}. Above it vLLM stops at once, unless YaRN stretches it ({}) or {} lets it pass, "
                    "at the answers' risk.", f"{LIMIT:,}", code("--hf-overrides"), code("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"))
    return html("Both pictures are one pool: {} left for the cache, {} blocks of 16 tokens, {} tokens. One strip is one request "
                "(it may run on in the next line); grey is left over.", mark("93.61 GiB", "measured"), f"{found.num_gpu_blocks:,}", f"{_pool_tokens(found):,}")
