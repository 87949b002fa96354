"""What the lesson on traffic asks of kvlib: lengths, arrivals, a window of simulated steps, and the arithmetic beside it.

Time is counted in scheduler steps; seconds come from an assumed time a step. Every load is drawn by a fixed seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import takewhile

from kvlib import Engine, load_model, traffic
from kvlib.traffic_launch import settings_for

MODEL, CARD, LENGTH = "Qwen3-8B", "GB10 (DGX Spark)", 40_960
WHOLE = 42_600          # blocks of the series' launch: 93.61 GiB
QUARTER = WHOLE // 4    # 23.4 GiB, where other programs share the machine
WINDOW, SAMPLES, SEED = 1_500, 3_000, 1   # steps looked at, requests drawn for the arithmetic
OPENING = 2_000         # tokens of the text that requests may begin with
SHAPES = ("log-normal", "uniform", "fixed")
model_of = cache(load_model)


@dataclass(frozen=True)
class Asked:
    """Lengths of requests, in tokens. ``rows`` are a reader's own and take the place of ``prompt`` and ``output``, which are
    median and 95th percentile, the two ends, or the one length of all (then the first). A ``share`` begins with one text."""

    shape: str = "log-normal"
    prompt: tuple[int, int] = (2_000, 6_000)
    output: tuple[int, int] = (250, 800)
    share: float = 0.0
    rows: tuple = ()


DOCUMENTS = Asked()


class Opening:
    """A mix in which a share of the prompts begins with the same text; the lengths are those of the mix, whatever the share."""

    def __init__(self, mix, share: float):
        self.mix, self.share, self.luck = mix, share, random.Random(SEED)

    def draw(self, rng: random.Random) -> tuple:
        prompt, output, *prefix = self.mix.draw(rng)
        shares = self.luck.random() < self.share
        if prefix or not shares:
            return prompt, output, *prefix
        return prompt, output, "opening", min(OPENING, prompt)


def mix_of(asked: Asked) -> Opening:
    """The mix behind what was asked, to be drawn from once. Raises TrafficError where a p95 is below its median."""
    return Opening(_lengths_of(asked), asked.share)


def _lengths_of(asked: Asked):
    if asked.rows:
        return traffic.FromRows(dict(row) for row in asked.rows)
    return traffic.Mix(_lengths(asked.shape, *asked.prompt), _lengths(asked.shape, *asked.output))


def _lengths(shape: str, first: int, second: int):
    if shape == "fixed":
        return traffic.fixed(first)
    return (traffic.uniform if shape == "uniform" else traffic.lognormal)(first, second)


def own_rows(text: str) -> tuple:
    """The requests of a pasted file or of a path, none for an empty box. Raises TrafficError that names the line."""
    if not text.strip():
        return ()
    return tuple(tuple(sorted(row.items())) for row in traffic.read_requests(text, max_model_len=LENGTH))


@cache
def engine_of(max_num_seqs: int | None = None, max_num_batched_tokens: int | None = None) -> Engine:
    """The launch of the series on one GB10; None: vLLM's own figures there, 256 and 2,048."""
    return Engine(gpu=CARD, max_model_len=LENGTH, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)


@lru_cache(maxsize=64)
def arrivals(asked: Asked, rate: float, seed: int = SEED) -> tuple[list, int]:
    """The requests that arrive within the window, ``rate`` a step on average, and how many prompts had to be cut."""
    load = traffic.Load(mix_of(asked), 100_000, rate, seed, LENGTH)
    rows = list(takewhile(lambda row: row[0] < WINDOW, load))
    return rows, load.cut


@lru_cache(maxsize=64)
def run_of(asked: Asked, rate: float, pool: int, seqs: int, batched: int, seed: int = SEED):
    """The first steps of that load, from an empty pool. Raises TrafficError where the pool holds no request of full length."""
    rows, _ = arrivals(asked, rate, seed)
    run = traffic.simulate(model_of(MODEL), engine_of(seqs, batched), rows, num_gpu_blocks=pool, max_steps=WINDOW)
    if not run.startup_ok:
        raise traffic.TrafficError(
            f"The pool has {pool - 1:,} usable blocks and one request of max_model_len, {LENGTH:,} tokens, takes "
            f"{run.blocks_per_request:,}: vLLM would not start; enlarge the pool", field="num_gpu_blocks", found=pool)
    return run


@lru_cache(maxsize=64)
def most_seqs(asked: Asked, rate: float, pool: int, batched: int, seed: int = SEED) -> int | None:
    """The largest max_num_seqs found with which the requests of the window run to their end without a preemption."""
    rows, _ = arrivals(asked, rate, seed)
    return traffic.seqs_without_preemption(model_of(MODEL), engine_of(None, batched), rows, num_gpu_blocks=pool)


@lru_cache(maxsize=64)
def drawn(asked: Asked, model: str = MODEL) -> traffic.Expectation:
    """The requests drawn for the arithmetic, against the whole pool; what they begin with does not matter."""
    return traffic.expect(model_of(model), engine_of(), _lengths_of(asked), num_gpu_blocks=WHOLE,
                          samples=SAMPLES)


def expected(asked: Asked, pool: int, seqs: int | None = None, batched: int | None = None, model: str = MODEL) -> traffic.Expectation:
    """What those lengths ask of a pool, by arithmetic.

    >>> expected(DOCUMENTS, QUARTER).blocks_p95
    419
    """
    return drawn(replace(asked, share=0.0), model).against(model_of(model), engine_of(seqs, batched), pool)


def per_step(a_minute: float, seconds: float) -> float:
    """Requests a step from requests a minute.

    >>> per_step(75, 0.2)
    0.25
    """
    return a_minute * seconds / 60


def settled(run, name: str) -> float:
    """The mean of a column over the second half of the window, when the pool has filled."""
    values = run.series[name][WINDOW // 2:]
    return sum(values) / max(1, len(values))


# A pool small enough to look at

GROUP = [{"kind": "full", "block_size": 16}]
LETTERS = "ABCDEFG"


@dataclass(frozen=True)
class Moment:
    """One step of the small pool, after it was scheduled: blocks of each running request in order of admission, who waits
    (first in line first), who was thrown out in this step, and who has finished before."""

    holds: tuple[tuple[str, int], ...]
    waiting: tuple[str, ...]
    thrown: tuple[str, ...]
    done: tuple[str, ...]

    @property
    def used(self) -> int:
        return sum(blocks for _, blocks in self.holds)


@lru_cache(maxsize=64)
def moments(usable: int, prompt: int, output: int, gap: int, seqs: int, most: int = 2_000) -> tuple[Moment, ...]:
    """Every step of seven equal requests, A to G, ``gap`` steps apart, in a pool of ``usable`` blocks of 16 tokens.

    The scheduler is the one of the simulation, without prefix caching. Raises TrafficError where the pool cannot hold one.

    >>> found = moments(40, 64, 100, 6, 7)
    >>> found[0].holds, len(found[0].waiting)
    ((('A', 4),), 0)
    """
    from kvlib.traffic_requests import Arrivals
    from kvlib.traffic_scheduler import STEADY, Scheduler

    needs = -(-(prompt + output - 1) // 16)
    if needs > usable:
        raise traffic.TrafficError(f"request A needs {needs} blocks at its end and the pool has {usable}: it would wait for ever, and "
                                   "so would all behind it; enlarge the pool or shorten the answers")
    engine = Engine(max_model_len=4096, max_num_seqs=seqs, max_num_batched_tokens=2048, enable_prefix_caching=False,
                    async_scheduling=False)
    settings = settings_for(None, engine, usable + 1, GROUP)[0]
    coming = Arrivals([(gap * number, prompt, output) for number in range(len(LETTERS))], settings)
    scheduler, found, done = Scheduler(settings), [], []
    for t in range(most):
        while coming.next is not None and coming.next.arrival <= t:
            scheduler.waiting.append(coming.next)
            coming.advance()
        if coming.next is None and not scheduler.running and not scheduler.waiting:
            break
        scheduler.schedule(t)
        computed = {r: r.base + t + 1 if r.state is STEADY else r.c for r in scheduler.running}
        found.append(Moment(tuple((LETTERS[r.row], -(-c // 16)) for r, c in computed.items()),
                            tuple(LETTERS[r.row] for r in scheduler.waiting),
                            tuple(LETTERS[r.row] for r in scheduler.thrown_out), tuple(done)))
        done += [LETTERS[r.row] for r in scheduler.read(t)]
    return tuple(found)
