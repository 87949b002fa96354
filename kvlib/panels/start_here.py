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
        words = alt.Chart(alt.NamedData("words")).mark_text(fontSize=13, align="left", baseline="top").encode(
            x=alt.value(0), y=_down("y"), text="text:N")
        guess = alt.Chart(alt.NamedData("guess")).encode(x=alt.X("value:Q"), y=_down("y"))
        tick = guess.mark_rule(strokeWidth=3).encode(y2="y2:Q")
        said = guess.mark_text(fontSize=12, fontStyle="italic", align="left", baseline="top").encode(
            x=alt.value(0), y=alt.value(_POOL + 2), text="label:N")
        pools = _strips("worst", 0) + _strips("everyday", _POOL + _GAP)
        return (pools + words + tick + said).properties(width=charts.WIDTH, height=HEIGHT)

    def compute(self, s):
        found, everyday = launch(s.max_model_len), launch(EACH)
        refused, served = s.max_model_len > LIMIT, s.max_model_len >= EACH
        full = f"{found.max_concurrency:.2f}"
        many = f"{everyday.max_concurrency:.0f}"
        upper = f"Worst case: {full} requests of {s.max_model_len:,} tokens"
        lower = f"Everyday: about {many} requests of {EACH:,} tokens" if served else \
            f"Everyday: {EACH:,} tokens are turned away, limit {s.max_model_len:,}"
        rows = {
            "worst": _pool(found, "refused" if refused else "kv", numbered=True),
            "everyday": _pool(everyday, "kv" if served else "unused"),
            "words": [{"y": 1, "text": upper}, {"y": _POOL + _GAP + 1, "text": lower}],
            "guess": _guess(self.guess, found),
        }
        return View(
            answer=_answer(s.max_model_len, full, many), rows=rows, table=[_lines(found, refused), _two(found, everyday, served)],
            description=f"The same pool twice, {_pool_tokens(found):,} tokens. {upper}. {lower}.",
            note=_note(found, refused))


def _down(field):
    return alt.Y(f"{field}:Q", scale=alt.Scale(domain=[0, HEIGHT], range=[0, HEIGHT], nice=False), axis=None)


def _strips(name: str, top: int):
    """A pool that begins at ``top``: a row of :func:`_pool` is a strip, from block ``start`` to block ``end``."""
    per_line = launch(LIMIT).num_gpu_blocks / _LINES
    y = f"{top + _HEAD} + datum.line * {_TALL}"
    base = alt.Chart(alt.NamedData(name)).transform_calculate(
        x=f"datum.start / {per_line} - datum.line", y=y, y2=f"{y} + {_TALL - 1.5}", middle=f"{y} + {_TALL / 2 - 0.5}",
        opacity="datum.number ? 1 : 0.4",
        says="datum.number ? 'request ' + datum.number + ' of ' + format(datum.tokens, ',') + ' tokens' : 'left over'",
    ).transform_calculate(x2=f"max(datum.end / {per_line} - datum.line - {1 / charts.WIDTH}, datum.x)").encode(
        x=alt.X("x:Q", scale=alt.Scale(domain=[0, 1], nice=False), axis=None), y=_down("y"))
    bars = base.mark_rect().encode(
        x2="x2:Q", y2="y2:Q", color=alt.Color("colour:N", scale=None, legend=None), opacity=alt.Opacity("opacity:Q", scale=None),
        description=alt.Description("says:N"))
    numbers = base.transform_filter("datum.named").mark_text(fontSize=11, align="left", dx=4, color="#000000").encode(
        y=_down("middle"), text="number:N")
    return bars + numbers


@lru_cache(maxsize=64)
def _pool(found, meaning: str, numbered: bool = False) -> list[dict]:
    """A pool as lines of blocks, filled by requests of one length from the upper left on; one row a strip.

    ``number`` 0 is what is left over; ``named`` says that a request's number stands in this strip of it.
    """
    per_line, each, blocks = found.num_gpu_blocks / _LINES, found.blocks_per_request, found.num_gpu_blocks
    whole = 0 if meaning == "unused" else int(found.max_concurrency)
    room = charts.WIDTH / per_line
    shared = {"tokens": found.max_model_len, "colour": charts.COLOURS[meaning]}
    rest = shared | {"colour": charts.COLOURS["unused"]}
    rows = []
    for number in [*range(1, whole + 1), 0]:
        start, end = ((number - 1) * each, number * each) if number else (whole * each, blocks)
        named = not (numbered and number)
        wide = 10 + 7 * len(str(number))
        while start < end:
            line = int(start / per_line)
            stop = min(end, (line + 1) * per_line)
            here = not named and (stop - start) * room >= wide
            named = named or here
            rows.append({"start": start, "end": stop, "line": line, "number": number, "named": here, **(shared if number else rest)})
            start = stop
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
