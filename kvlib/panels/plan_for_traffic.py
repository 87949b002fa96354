"""Notebook 09: a small pool step by step, lengths as blocks, and whether a load preempts."""

from __future__ import annotations

import re

from kvlib.controls import (
    Action,
    Choice,
    Col,
    Fraction,
    Number,
    Panel,
    PowerOfTwo,
    Predict,
    TextBox,
    View,
    html,
    mark,
    strong,
    table,
)
from kvlib.panels import traffic_facts as facts
from kvlib.panels import traffic_pictures as pictures
from kvlib.panels.budget_pictures import tier
from kvlib.panels.parallel_pictures import spans_rows, spans_spec
from kvlib.panels.traffic_facts import (
    DOCUMENTS,
    LENGTH,
    LETTERS,
    MODEL,
    OPENING,
    QUARTER,
    SHAPES,
    WHOLE,
    WINDOW,
    Asked,
    expected,
    moments,
    own_rows,
    run_of,
)
from kvlib.panels.traffic_words import headline, held_back, per_minute, times
from kvlib.traffic import StepTime

MODELS = {"Qwen3-8B: full attention": MODEL, "gpt-oss-20b: windows and full": "gpt-oss-20b", "Qwen3.8-27B: states and full": "Qwen3.8-27B"}
POOLS = {MODEL: QUARTER, "gpt-oss-20b": QUARTER, "Qwen3.8-27B": 2_210}   # blocks; of the last, those of the hybrid note
KIND_WORDS = {"full": "full attention", "mla": "latent attention", "sliding": "sliding window", "chunked": "chunked attention",
              "state": "recurrent state"}
OLDEST, LONGEST, NEWEST, ASKER = "the oldest", "the longest", "the newest", "the one that asks"


class SmallPool(Panel):
    """Seven requests in a pool that is small enough to see, one step after another."""

    name = "09-small-pool"
    title = "Seven requests, one pool, step by step"
    inputs = [
        Number("moment", 30, min=0, max=300, step=10, at_most=2_000, label="Look at step", unit="step",
               help="Which scheduler step the pool is shown at."),
        Number("usable", 40, min=12, max=pictures.MOST, step=4, label="Pool", unit="blocks", help="Of 16 tokens each."),
        Number("output", 100, min=20, max=200, step=10, label="Each answer", unit="tokens", help="After a prompt of 64 tokens."),
        Number("gap", 6, min=0, max=24, step=2, label="Steps between arrivals", unit="steps", help="A comes at step 0."),
        Number("seqs", 7, min=1, max=7, label="Sequences", flag="--max-num-seqs", help="Requests that may run at once."),
    ]
    predict = Predict(
        "The pool is full, and a running request needs one more block. Which running request does vLLM throw out?",
        options=[OLDEST, LONGEST, ASKER, NEWEST], answer=NEWEST,
        because="The one admitted last, whoever asks: it has the least work to lose, and the oldest get done. Only if nobody "
                "newer runs does the asker throw out itself.")

    def chart(self):
        return [pictures.pool_spec(), pictures.turns_spec(300)]

    def compute(self, s):
        found = moments(s.usable, 64, s.output, s.gap, s.seqs)
        rows, last = pictures.small_rows(found, s.moment, s.usable, s.output)
        now = found[s.moment] if s.moment < len(found) else None
        out = [(t, letter) for t, each in enumerate(found[:s.moment + 1]) for letter in each.thrown]
        holds = dict(now.holds) if now else {}
        table_rows = [{"who": letter, "state": _state(found, s.moment, letter), "blocks": holds.get(letter, 0),
                       "out": sum(letter == who for _, who in out)} for letter in LETTERS]
        return View(
            answer=html("Step {}: {}. {}", s.moment, _blocks_words(now, s.usable, len(found)), _thrown_words(out)),
            rows=rows, chart=[pictures.pool_spec(), pictures.turns_spec(last)],
            table=table(table_rows, [Col("who", "request", "text"), Col("state", "at this step", "text"), Col("blocks", "blocks held"),
                                     Col("out", "thrown out so far")],
                        caption=f"A prompt of 64 tokens and an answer of {s.output}: {-(-(63 + s.output) // 16)} blocks at its end"),
            note="Above: each letter is a block that the request holds, pale ones are free. Below: grey waits, colour runs, a cross is "
                 "a throw-out, pale colour is what those running still have to write.",
            description=[_blocks_words(now, s.usable, len(found)) + ".", "; ".join(f"{letter} thrown out at step {t}" for t, letter in out)
                         + "." if out else "0 throw-outs so far."])


def _state(found, at: int, letter: str) -> str:
    if at >= len(found) or letter in found[at].done:
        return "finished"
    if any(letter == who for who, _ in found[at].holds):
        return "runs"
    if letter in found[at].waiting:
        back = any(letter in each.thrown for each in found[:at + 1])
        return "waits, thrown out" if back else "waits"
    return "not here yet"


def _blocks_words(now, usable: int, steps: int) -> str:
    if now is None:
        return f"all have finished, the last one in step {steps - 1:,}"
    return f"{now.used} of {usable} blocks taken, {len(now.holds)} running, {len(now.waiting)} waiting"


def _thrown_words(before) -> str:
    if not before:
        return "Nobody has been thrown out so far."
    step, letter = before[-1]
    return html("So far {}; the last was {}, at step {}: of those running, it had come in last.",
                times(len(before), "throw-out", "throw-outs", ""), strong(letter), step)


# Lengths

def _lengths(**more) -> list:
    return [
        Choice("shape", list(SHAPES), label="Shape of lengths", help="Log-normal: by median and p95. Uniform: between the two. Fixed: the "
               "first figure for all.", **more),
        PowerOfTwo("prompt", 2_000, min=128, max=16_384, at_most=LENGTH, label="Prompt: median", unit="tokens",
                   help="Half of the prompts are shorter."),
        PowerOfTwo("prompt_p95", 6_000, min=128, max=32_768, at_most=LENGTH, label="Prompt: p95", unit="tokens",
                   help="One in twenty is longer."),
        PowerOfTwo("output", 250, min=16, max=2_048, at_most=LENGTH, label="Answer: median", unit="tokens",
                   help="Half of the answers are shorter."),
        PowerOfTwo("output_p95", 800, min=16, max=8_192, at_most=LENGTH, label="Answer: p95", unit="tokens",
                   help="One in twenty is longer."),
    ]


def _own_box() -> TextBox:
    return TextBox("rows", "", lines=3, wide=True, read=own_rows,
                   label="Or your own requests (CSV or JSON lines; a path, or drop the file)",
                   placeholder="prompt_tokens,output_tokens", help="A line each. They take the place of the lengths above; "
                   "a line that is wrong is named, none is dropped.")


def _asked(s, share: float = 0.0) -> Asked:
    return Asked(s.shape, (s.prompt, s.prompt_p95), (s.output, s.output_p95), share, s.rows)


def _above(name: str, s) -> dict | None:
    """A median moved above its p95 takes that along."""
    for low, high in (("prompt", "prompt_p95"), ("output", "output_p95")):
        if name == low and getattr(s, low) > getattr(s, high):
            return {high: min(3 * getattr(s, low), LENGTH)}
    return None


class BlocksOfAMix(Panel):
    """Lengths as they come, in blocks; and the rule of thumb."""

    name = "09-mix"
    title = "What a mix of requests asks of a pool"
    inputs = [
        Choice("model", MODELS, MODEL, label="Model", help="Its groups of layers take their blocks from one pool."),
        *_lengths(),
        Number("num_gpu_blocks", QUARTER, min=550, max=WHOLE, step=1_450, at_most=10_000_000, label="Pool", unit="blocks",
               help="num_gpu_blocks of the log; the null block is one of them."),
        PowerOfTwo("max_num_seqs", 32, min=4, max=512, label="Sequences", flag="--max-num-seqs", help="Requests that may run at once."),
        _own_box(),
    ]
    predict = Predict(
        "On the whole GB10, 42,600 blocks, vLLM prints a maximum concurrency of 16.64x. How many requests that are as long as the 95th of "
        "a hundred of this mix fit at once?", answer=lambda: expected(DOCUMENTS, WHOLE).concurrency_p95, unit="requests", within=15,
        shown=lambda value: f"{value:,.0f} requests",
        because=f"Even the long ones take some 420 blocks, and the printed figure charges each with {LENGTH:,} tokens: 2,560 blocks.")

    def chart(self):
        return [pictures.lengths_spec(1_024, 25), spans_spec(_WAYS, 100, "requests at once")]

    def follow(self, name, s):
        return {"num_gpu_blocks": POOLS[s.model]} if name == "model" else _above(name, s)

    def compute(self, s):
        asked = _asked(s)
        found = expected(asked, s.num_gpu_blocks, s.max_num_seqs, None, s.model)
        rows, most, share = pictures.lengths_rows(found.ends, found.blocks_mean, found.blocks_p95)
        values = (found.concurrency_worst, found.concurrency_p95, found.concurrency_expected, s.max_num_seqs)
        limit = tier(1.12 * max(values), pictures.AT_ONCE)
        meanings = ("refused", "reserve", "kv", "weights")
        items = [(way, value, value, f"{value:,.4g}" if value < 1_000 else f"{value:,.0f}", meaning, 1.0)
                 for way, value, meaning in zip(_WAYS, values, meanings, strict=True)]
        return View(
            answer=html("{}{}", *_finding_and_meaning(found.verdict)),
            rows=rows | spans_rows(items, limit, self.guess), chart=[pictures.lengths_spec(most, share),
                                                                      spans_spec(_WAYS, limit, "requests at once")],
            table=[_kinds_table(found), _tokens_table(found)],
            note=html("{} The histogram's last bar: those and all that are longer. Printed worst case: each is of max_model_len, "
                      "{} tokens. On average: what it holds over its life, not at its end.",
                      _drawn_words(found.samples, found.cut), f"{LENGTH:,}"),
            description=[f"A histogram: mean {found.blocks_mean:,.0f} blocks, 95th of a hundred {found.blocks_p95:,}.",
                         "; ".join(f"{way} {value:,.1f}" for way, value in zip(_WAYS, values, strict=True)) + "."])


_WAYS = ("printed worst case", "pool ÷ p95", "pool ÷ average", "max_num_seqs")


def _finding_and_meaning(verdict: str):
    """The finding in bold, up to its first comma or colon, and what it means."""
    finding, meaning = re.split("(?=[,:] )", verdict, maxsplit=1)
    return strong(finding), meaning


def _drawn_words(samples: int, cut: int) -> str:
    return f"Of {samples:,} drawn requests {cut:,} are cut at max_model_len." if cut else f"{samples:,} drawn requests."


def _kinds_table(found):
    rows = [{"kind": KIND_WORDS[each.kind], "groups": each.groups, "mean": each.mean, "median": each.median, "p95": each.p95,
             "largest": each.largest} for each in found.by_kind]
    return table(rows, [Col("kind", "kind of group", "text"), Col("groups"), Col("mean", fmt=",.1f"), Col("median"), Col("p95"),
                        Col("largest")], caption="Blocks that one request holds at its end, by kind of group")


def _tokens_table(found):
    rows = [{"what": "tokens, prompt and answer", "mean": found.tokens_mean, "p95": found.tokens_p95},
            {"what": "blocks at its end", "mean": found.blocks_mean, "p95": found.blocks_p95},
            {"what": "blocks on average over its life", "mean": found.blocks_over_life, "p95": None},
            {"what": "steps, one a token of the answer", "mean": found.steps_mean, "p95": None}]
    return table(rows, [Col("what", "a request takes", "text"), Col("mean", fmt=",.1f"), Col("p95")])


# Traffic

class WillItPreempt(Panel):
    """A load, a launch, and what its first 1,500 steps come to."""

    name = "09-traffic"
    title = "Will it preempt?"
    ahead = True
    inputs = [
        Number("a_minute", 75, min=5, max=pictures.FASTEST, step=5, at_most=2_000, label="Requests a minute", unit="a minute",
               help="They arrive by chance, so many on average."),
        Number("seconds", 0.2, min=0.05, max=0.5, step=0.025, at_least=0.001, at_most=60.0, label="Time of a step (assumed)", unit="s",
               help="What your dashboard calls time per output token, or inter-token latency."),
        Number("num_gpu_blocks", QUARTER, min=3_000, max=WHOLE, step=1_275, at_least=2, at_most=10_000_000, label="Pool", unit="blocks",
               help="num_gpu_blocks of the log; the whole GB10 of this series has 42,600."),
        PowerOfTwo("max_num_seqs", 256, min=8, max=512, at_most=2_048, label="Sequences", flag="--max-num-seqs",
                   help="Requests that may run at once."),
        PowerOfTwo("max_num_batched_tokens", 2_048, min=512, max=16_384, at_most=131_072, label="Batched tokens",
                   flag="--max-num-batched-tokens", help="Tokens that one step may compute: prompts are cut into such pieces."),
        *_lengths(),
        Fraction("share", 0.0, min=0.0, max=1.0, step=0.05, label="Begin with one text",
                 help=f"Share of the requests whose first {OPENING:,} tokens are the same."),
        Number("seed", 1, min=1, max=20, step=1, at_least=0, at_most=1_000_000, label="Draw", help="Another draw of the same traffic."),
        _own_box(),
    ]
    predict = Predict(
        "At 0.2 s a step the pool is used up from about 57 requests a minute on. A faster GPU of the same memory takes 0.1 s. From how "
        "many requests a minute on is it used up then?", answer=lambda: 600 * expected(DOCUMENTS, QUARTER).rate_pool,
        unit="a minute", within=10, shown=lambda value: f"{value:,.0f} a minute",
        because="A request holds its blocks for as many steps as before, half as long: speed spares memory.")

    def chart(self):
        return [pictures.occupancy_spec(), pictures.requests_spec(100), pictures.knee_spec(100)]

    def follow(self, name, s):
        return _above(name, s)

    def compute(self, s):
        asked, rate = _asked(s, s.share), facts.per_step(s.a_minute, s.seconds)
        run = run_of(asked, rate, s.num_gpu_blocks, s.max_num_seqs, s.max_num_batched_tokens, s.seed)
        found = expected(asked, s.num_gpu_blocks, s.max_num_seqs, s.max_num_batched_tokens)
        running, waiting = facts.settled(run, "running"), facts.settled(run, "waiting")
        knee, little = 60 * found.rate_knee / s.seconds, rate * found.steps_mean
        limits = [("max_num_seqs", s.max_num_seqs), (f"rule of thumb {found.concurrency_p95:,.0f}", found.concurrency_p95),
                  (f"Little's law {little:,.0f}", little)]
        rows, top = pictures.requests_rows(run, limits)
        at_knee, knee_top = pictures.knee_rows(found, knee, s.a_minute, running, self.guess)
        time = StepTime(s.seconds)
        over = pictures.occupancy_rows(run)
        return View(
            answer=html("At {} requests a minute it {}. {}", f"{s.a_minute:g}", strong(headline(run, s.seconds)),
                        held_back(run, found, s, running, waiting, knee)),
            rows={"used": over["used"], "full": over["full"], "thrown": over["thrown"], "words": over["words"]} | rows | at_knee,
            chart=[pictures.occupancy_spec(), pictures.requests_spec(top), pictures.knee_spec(knee_top)],
            table=[_ways_table(found, run, little, running, s), _outcome_table(run, time, waiting)],
            note=html("{} steps from an empty pool: {} minutes at {} a step. Little's law does not know of prefixes, queues and "
                      "throw-outs. {}", f"{WINDOW:,}", mark(f"{WINDOW * s.seconds / 60:.1f}", "assumed"),
                      mark(f"{s.seconds:g} s", "assumed"),
                      _cut_prompts(asked, rate, s.seed, run)),
            actions=_actions(found, s),
            description=[f"Blocks in use: at most {run.peak_used / run.usable_blocks:.0%} of the pool; {run.preemptions} preemptions.",
                         f"On average {running:.1f} run and {waiting:.1f} wait in the second half.",
                         f"By arithmetic {min(little, found.rate_knee * found.steps_mean):.1f} run at once; the knee lies at {knee:.0f} "
                         "requests a minute."])

    def act(self, key, s):
        asked, rate = _asked(s, s.share), facts.per_step(s.a_minute, s.seconds)
        if key == "whole":
            return {"num_gpu_blocks": WHOLE}
        if key == "thumb":
            return {"max_num_seqs": _thumb(expected(asked, s.num_gpu_blocks, s.max_num_seqs, s.max_num_batched_tokens))}
        return {"max_num_seqs": facts.most_seqs(asked, rate, s.num_gpu_blocks, s.max_num_batched_tokens, s.seed) or 1}


def _thumb(found) -> int:
    """The rule of thumb as a flag: so many of the 95th percentile fit."""
    return max(1, int(found.concurrency_p95))


def _actions(found, s) -> tuple:
    offered = []
    if _thumb(found) < s.max_num_seqs:
        offered.append(Action("thumb", f"max_num_seqs {_thumb(found)}",
                              "the rule of thumb: pool ÷ p95; gives up requests that would have fitted"))
    offered.append(Action("search", "Find max_num_seqs",
                          "the largest found without a preemption: runs this load some ten times, about a second"))
    if s.num_gpu_blocks != WHOLE:
        offered.append(Action("whole", f"Pool of {WHOLE:,}", "the GB10 for this server alone"))
    return tuple(offered)


def _ways_table(found, run, little: float, running: float, s):
    rows = [
        {"way": "printed maximum concurrency", "count": found.concurrency_worst, "takes": f"each request is {LENGTH:,} tokens long"},
        {"way": "rule of thumb, pool ÷ p95", "count": found.concurrency_p95,
         "takes": "each is as long as the 95th of a hundred, at its end"},
        {"way": "pool ÷ average", "count": found.concurrency_expected, "takes": "the pool can be filled to the last block"},
        {"way": "Little's law, rate × steps", "count": little, "takes": "nobody waits, every prompt takes one step"},
        {"way": "simulated, second half", "count": running, "takes": "nothing: this load, step by step"},
        {"way": "simulated, most at once", "count": run.peak_running, "takes": ""},
        {"way": "max_num_seqs", "count": s.max_num_seqs, "takes": "the flag"}]
    return table(rows, [Col("way", "requests at once", "text"),
                        Col("count", "how many", lambda value: f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"),
                        Col("takes", "what it takes for granted", "text")], highlight=4)


def _outcome_table(run, time: StepTime, waiting: float):
    per = per_minute(run, time)
    rows = [
        {"what": "preemptions", "value": run.preemptions, "minute": mark(per, "assumed")},
        {"what": "requests thrown out at least once", "value": len({row for _, row in run.preemption_events}), "minute": ""},
        {"what": "in the queue, second half", "value": round(waiting, 1),
         "minute": mark(f"those served waited {run.mean_steps_waiting * time.seconds:,.1f} s", "assumed")},
        {"what": "prompt tokens found in the prefix cache", "value": run.hit_tokens, "minute": ""},
        {"what": "answers finished", "value": run.finished,
         "minute": mark(f"{60 * run.finished / time.run_seconds(run):,.1f} a minute" if run.busy_steps else "", "assumed")}]
    return table(rows, [Col("what", "in these steps", "text"), Col("value", "count"), Col("minute", "in time", "text")])


def _cut_prompts(asked: Asked, rate: float, seed: int, run) -> str:
    rows, cut = facts.arrivals(asked, rate, seed)
    words = [f"{cut:,} of {len(rows):,} prompts are longer than max_model_len and cut to one token less."] if cut else []
    words += [note + "." for note in run.notes if "cut short" in note]
    if asked.rows:
        words.append(f"Drawn by chance from {len(asked.rows):,} requests of yours; arrival times in the file are not used.")
    return " ".join(words)

