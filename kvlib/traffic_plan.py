"""What to expect of a mix without simulating it: blocks per request, how many fit, the rate at which it fills up, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from .engine import Engine
from .model import Model
from .traffic_files import TrafficError
from .traffic_groups import ChunkGroup, FullGroup, StateGroup, WindowGroup
from .traffic_launch import settings_for
from .traffic_mix import Mix, one_by_one
from .units import cdiv

COMFORTABLE = 0.10  # margin from which the rule of thumb is called comfortably met


class GroupBlocks(NamedTuple):
    """Blocks of one kind of group that a request holds when it ends: over the mix, all groups of the kind together."""

    kind: str
    groups: int
    mean: float
    median: int
    p95: int
    largest: int


@dataclass(frozen=True)
class Expectation:
    """What a mix asks of a pool, by arithmetic on ``samples`` requests drawn from it.

    ``concurrency_*`` are requests at once: ``worst`` charges each with max_model_len tokens, as the printed maximum concurrency
    does; ``p95`` with the blocks of a request of the 95th percentile (the rule of thumb); ``expected`` with what a request holds on
    average over its life. ``rate_*`` are requests a step at which the pool, the token budget or max_num_seqs would be used up.
    ``ends`` are the blocks that each request holds at its end, in the order in which they were drawn.
    """

    samples: int
    usable_blocks: int
    max_num_seqs: int
    tokens_mean: float
    tokens_p95: int
    by_kind: tuple[GroupBlocks, ...]
    blocks_mean: float
    blocks_p95: int
    blocks_over_life: float
    steps_mean: float
    concurrency_worst: float
    concurrency_p95: float
    concurrency_expected: float
    rate_pool: float
    rate_tokens: float
    rate_seqs: float
    never_fit: int
    cut: int
    ends: tuple[int, ...] = field(repr=False, compare=False)

    def against(self, model: Model | None, engine: Engine, num_gpu_blocks: int, groups=None) -> Expectation:
        """The same requests against another pool, ``max_num_seqs`` or token budget; model and ``max_model_len`` stay.

        >>> from kvlib import Engine, load_model, traffic
        >>> model, engine = load_model("Qwen3-8B"), Engine(max_model_len=4096, max_num_seqs=64)
        >>> found = expect(model, engine, traffic.Mix(traffic.fixed(500), traffic.fixed(100)), num_gpu_blocks=1001, samples=10)
        >>> found.against(model, engine, 2001).concurrency_p95
        52.63157894736842
        """
        settings, needed, _ = settings_for(model, engine, num_gpu_blocks, groups)
        return replace(self, **_quotients(settings, needed, self.ends, self.blocks_p95, self.tokens_mean, self.blocks_over_life,
                                            self.steps_mean))

    @property
    def margin(self) -> float:
        """How far capacity ÷ p95 lies above max_num_seqs, as a share of it; below 0: beneath it."""
        return self.concurrency_p95 / self.max_num_seqs - 1

    @property
    def rate_knee(self) -> float:
        """Requests a step beyond which a queue builds up, whichever limit comes first."""
        return min(self.rate_pool, self.rate_tokens, self.rate_seqs)

    @property
    def limit(self) -> str:
        """Which limit comes first as the rate rises: "pool", "tokens" or "seqs"."""
        return min(("pool", self.rate_pool), ("tokens", self.rate_tokens), ("seqs", self.rate_seqs), key=lambda each: each[1])[0]

    @property
    def verdict(self) -> str:
        """The rule of thumb in a sentence."""
        fits = self.concurrency_p95
        most = max(1, int(fits / (1 + COMFORTABLE)))
        if self.never_fit:
            return (f"{self.never_fit:,} of {self.samples:,} requests are larger than the whole pool of {self.usable_blocks:,} usable "
                    "blocks: the first of them waits for ever and so does everything behind it.")
        if self.margin >= COMFORTABLE:
            return (f"Room for {fits:,.1f} requests of the 95th percentile, {self.margin:.0%} more than max_num_seqs "
                    f"{self.max_num_seqs:,}: preemption is unlikely.")
        if self.margin >= 0:
            return (f"Room for {fits:,.1f} requests of the 95th percentile, only {self.margin:.0%} more than max_num_seqs "
                    f"{self.max_num_seqs:,}: too close to call; max_num_seqs {most:,} leaves a margin.")
        return (f"Room for {fits:,.1f} requests of the 95th percentile, {-self.margin:.0%} less than max_num_seqs "
                f"{self.max_num_seqs:,}: expect preemption when that many come; max_num_seqs {most:,} leaves a margin.")


def expect(model: Model | None, engine: Engine, mix, *, num_gpu_blocks: int, samples: int = 10_000, seed: int = 0,
           groups=None) -> Expectation:
    """What a mix asks of a pool of ``num_gpu_blocks``, shared prefixes not counted off.

    Prompts longer than the launch allows are cut, as in :class:`kvlib.traffic.Load`; ``cut`` counts them and the outputs cut short.

    >>> from kvlib import Engine, load_model, traffic
    >>> chat = traffic.Mix(traffic.fixed(500), traffic.fixed(100))
    >>> found = expect(load_model("Qwen3-8B"), Engine(max_model_len=4096, max_num_seqs=64), chat, num_gpu_blocks=1001, samples=10)
    >>> found.blocks_p95, found.concurrency_p95, round(found.concurrency_worst, 2)
    (38, 26.31578947368421, 3.91)
    """
    if not isinstance(samples, int) or samples < 1:
        raise TrafficError(f"samples is {samples!r:.40}; it must be a whole number of at least 1", field="samples", found=samples)
    settings, needed, _ = settings_for(model, engine, num_gpu_blocks, groups)
    longest = settings.max_model_len
    prompts, outputs = mix.lengths(samples, seed) if isinstance(mix, Mix) else one_by_one(mix, samples, seed)
    small = max(longest, max(prompts), max(outputs)) ** 2 * samples < 1 << 62  # then no sum below overflows; else Python's integers
    prompts, outputs = (np.array(drawn, np.int64 if small else object) for drawn in (prompts, outputs))
    tokens = prompts + outputs
    cut = int((tokens > longest).sum())
    prompts, tokens = np.minimum(prompts, longest - 1), np.minimum(tokens, longest)
    kinds, lives = {}, 0
    for group in {id(group.alike): group for group in settings.groups}.values():
        alike = len(group.alike)
        groups, blocks = kinds.get(group.kind, (0, 0))
        kinds[group.kind] = groups + alike, blocks + alike * _at_end(group, tokens)
        lives += alike * _block_steps(group, prompts, tokens)
    ends = np.sum([blocks for _, blocks in kinds.values()], axis=0)
    steps, blocks_p95 = int((tokens - prompts).sum()), percentile(ends, 0.95)
    tokens_mean, steps_mean, over_life = int(tokens.sum()) / samples, steps / samples, lives / steps
    return Expectation(
        samples=samples, tokens_mean=tokens_mean, tokens_p95=percentile(tokens, 0.95),
        by_kind=tuple(_by_kind(kind, groups, blocks) for kind, (groups, blocks) in kinds.items()),
        blocks_mean=int(ends.sum()) / samples, blocks_p95=blocks_p95, blocks_over_life=over_life,
        steps_mean=steps_mean, cut=cut, ends=tuple(ends.tolist()),
        **_quotients(settings, needed, ends, blocks_p95, tokens_mean, over_life, steps_mean))


def _quotients(settings, needed: int, ends: Sequence[int], blocks_p95: int, tokens_mean: float, over_life: float,
               steps_mean: float) -> dict:
    """What the requests come to in one pool: how many at once, and the rates at which a limit is reached."""
    usable, budget = settings.usable_blocks, tokens_mean - 1  # the last token is never computed
    return {
        "usable_blocks": usable, "max_num_seqs": settings.max_num_seqs, "concurrency_worst": (usable + 1) / needed,
        "concurrency_p95": usable / blocks_p95, "concurrency_expected": usable / over_life,
        "rate_pool": usable / over_life / steps_mean,
        "rate_tokens": settings.max_num_batched_tokens / budget if budget else float("inf"),
        "rate_seqs": settings.max_num_seqs / steps_mean,
        "never_fit": int((np.asarray(ends) > usable).sum())}


def percentile(values: Sequence[int], share: float) -> int:
    """The smallest of the values that at least that share of them does not exceed.

    >>> percentile([5, 1, 4, 2, 3], 0.5), percentile(list(range(1, 101)), 0.95)
    (3, 95)
    """
    ordered = np.sort(values)
    return int(ordered[max(0, cdiv(int(share * 10_000) * len(ordered), 10_000) - 1)])


def _by_kind(kind: str, groups: int, blocks: np.ndarray) -> GroupBlocks:
    median, p95 = percentile(blocks, 0.5), percentile(blocks, 0.95)
    return GroupBlocks(kind, groups, int(blocks.sum()) / len(blocks), median, p95, int(blocks.max()))


def _at_end(group, tokens: np.ndarray) -> np.ndarray:
    """Blocks of a group that each request holds once all but the last of its ``tokens`` are computed."""
    if isinstance(group, StateGroup):
        return np.ones_like(tokens)
    taken = _blocks_below(tokens, group.block)
    if type(group) is FullGroup:
        return taken
    return taken - np.array([group.out_of_view(total - 2) for total in tokens.tolist()], tokens.dtype)


def _block_steps(group, prompts: np.ndarray, tokens: np.ndarray) -> int:
    """Blocks held, summed over the steps of all requests, each with its prompt computed in one."""
    if isinstance(group, StateGroup):
        return int((tokens - prompts).sum())
    block = group.block
    total = _sum_up(tokens, block) - _sum_up(prompts, block)
    if isinstance(group, WindowGroup):
        return total - (_sum_down(tokens - group.reach, block) - _sum_down(prompts - group.reach, block))
    if isinstance(group, ChunkGroup):
        return total - sum(group.out_of_view(at) for first, end in zip(prompts.tolist(), tokens.tolist())
                           for at in range(first - 1, end - 1))
    return total


def _blocks_below(ends: np.ndarray, block: int) -> np.ndarray:
    """For each end, the blocks that one token less takes."""
    return (ends + (block - 2)) // block


def _sum_up(ends: np.ndarray, block: int) -> int:
    """For each end, the sum of k / block, rounded up, for k from 1 to below it; all of them together.

    >>> _sum_up(np.array([6]), 2), _sum_up(np.array([6, 2]), 2)  # 1 + 1 + 2 + 2 + 3, and 1
    (9, 10)
    """
    blocks = _blocks_below(ends, block)
    return int((blocks * (2 * (ends - 1) - block * (blocks - 1))).sum()) // 2


def _sum_down(ends: np.ndarray, block: int) -> int:
    """For each end, the sum of k / block, rounded down, for k from 1 to below it; all of them together.

    >>> _sum_down(np.array([6]), 2), _sum_down(np.array([6, -2]), 2)  # 0 + 1 + 1 + 2 + 2, and nothing
    (6, 6)
    """
    ends = np.maximum(ends, 0)
    whole = ends // block
    return int((whole * (2 * ends - block * (whole + 1))).sum()) // 2


@dataclass(frozen=True)
class StepTime:
    """How long a step takes, for a reader who knows their server: *assumed*, never measured here.

    ``seconds`` for each step that has requests, and ``seconds_per_token`` for each token scheduled in it.

    >>> StepTime(0.02, 0.00001).of(tokens=1000)
    0.03
    """

    seconds: float
    seconds_per_token: float = 0.0
    basis: str = "assumed"

    def __post_init__(self):
        for name in ("seconds", "seconds_per_token"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 3600 or name == "seconds" and not value:
                raise TrafficError(f"{name} of a step is {value!r:.40}; it must be seconds, "
                                   + ("more than 0" if name == "seconds" else "at least 0") + " and less than an hour",
                                   field=name, found=value)

    def of(self, tokens: int) -> float:
        """Seconds of a step that computes that many tokens."""
        return self.seconds + tokens * self.seconds_per_token

    def run_seconds(self, run) -> float:
        """Seconds in which a simulated run had requests to serve."""
        return run.busy_steps * self.seconds + run.scheduled_tokens * self.seconds_per_token

    def preemptions_per_minute(self, run) -> float:
        return 60 * run.preemptions / self.run_seconds(run) if run.busy_steps else 0.0
