"""What to expect of a mix without simulating it: blocks per request, how many fit, the rate at which it fills up, and a verdict."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .engine import Engine
from .model import Model
from .traffic_files import TrafficError
from .traffic_groups import ChunkGroup, StateGroup, WindowGroup
from .traffic_launch import settings_for
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
        return replace(self, **_quotients(settings, needed, self.ends, self.tokens_mean, self.blocks_over_life, self.steps_mean))

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
    rng = random.Random(seed)
    longest, cut = settings.max_model_len, 0
    tokens, ends, steps, lives, kinds = [], [], [], [], {}
    for _ in range(samples):
        prompt, output, *_ = mix.draw(rng)
        if prompt >= longest or prompt + output > longest:
            cut += 1
        prompt = min(prompt, longest - 1)
        output = min(output, longest - prompt)
        held = [blocks_at_end(group, prompt + output - 1) for group in settings.groups]
        for group, blocks in zip(settings.groups, held):
            kinds.setdefault(group.kind, []).append(blocks)
        tokens.append(prompt + output)
        ends.append(sum(held))
        steps.append(output)
        lives.append(sum(_block_steps(group, prompt, output) for group in settings.groups))
    by_kind = tuple(_by_kind(kind, samples, blocks) for kind, blocks in kinds.items())
    tokens_mean, steps_mean, over_life = sum(tokens) / samples, sum(steps) / samples, sum(lives) / sum(steps)
    return Expectation(
        samples=samples, tokens_mean=tokens_mean, tokens_p95=percentile(tokens, 0.95), by_kind=by_kind, blocks_mean=sum(ends) / samples,
        blocks_p95=percentile(ends, 0.95), blocks_over_life=over_life, steps_mean=steps_mean, cut=cut, ends=tuple(ends),
        **_quotients(settings, needed, ends, tokens_mean, over_life, steps_mean))


def _quotients(settings, needed: int, ends, tokens_mean: float, over_life: float, steps_mean: float) -> dict:
    """What the requests come to in one pool: how many at once, and the rates at which a limit is reached."""
    usable, budget = settings.usable_blocks, tokens_mean - 1  # the last token is never computed
    return {
        "usable_blocks": usable, "max_num_seqs": settings.max_num_seqs, "concurrency_worst": (usable + 1) / needed,
        "concurrency_p95": usable / percentile(ends, 0.95), "concurrency_expected": usable / over_life,
        "rate_pool": usable / over_life / steps_mean,
        "rate_tokens": settings.max_num_batched_tokens / budget if budget else float("inf"),
        "rate_seqs": settings.max_num_seqs / steps_mean, "never_fit": sum(end > usable for end in ends)}


def percentile(values: list[int], share: float) -> int:
    """The smallest of the values that at least that share of them does not exceed.

    >>> percentile([5, 1, 4, 2, 3], 0.5), percentile(list(range(1, 101)), 0.95)
    (3, 95)
    """
    ordered = sorted(values)
    return ordered[max(0, cdiv(int(share * 10_000) * len(ordered), 10_000) - 1)]


def _by_kind(kind: str, samples: int, blocks: list[int]) -> GroupBlocks:
    """Sum the groups of a kind, request by request."""
    count = len(blocks) // samples
    each = [sum(blocks[at:at + count]) for at in range(0, len(blocks), count)]
    return GroupBlocks(kind, count, sum(each) / samples, percentile(each, 0.5), percentile(each, 0.95), max(each))


def blocks_at_end(group, computed: int) -> int:
    """Blocks of a group that a request holds once ``computed`` of its tokens have their place, while it decodes."""
    if isinstance(group, StateGroup):
        return 1
    return cdiv(computed, group.block) - group.out_of_view(computed - 1)


def _block_steps(group, prompt: int, output: int) -> int:
    """Blocks held, summed over the steps of a request whose prompt is computed in one."""
    first, last = prompt, prompt + output - 1
    if isinstance(group, StateGroup):
        return output
    total = _sum_up(last, group.block) - _sum_up(first - 1, group.block)
    if isinstance(group, WindowGroup):
        return total - _sum_down(last - group.reach, group.block) + _sum_down(first - 1 - group.reach, group.block)
    if isinstance(group, ChunkGroup):
        return total - sum(group.out_of_view(computed - 1) for computed in range(first, last + 1))
    return total


def _sum_up(number: int, block: int) -> int:
    """The sum of k / block, rounded up, for k from 1 to ``number``.

    >>> _sum_up(5, 2)  # 1 + 1 + 2 + 2 + 3
    9
    """
    whole, rest = divmod(max(0, number), block)
    return block * whole * (whole + 1) // 2 + rest * (whole + 1)


def _sum_down(number: int, block: int) -> int:
    """The sum of k / block, rounded down, for k from 1 to ``number``.

    >>> _sum_down(5, 2)  # 0 + 1 + 1 + 2 + 2
    6
    """
    if number <= 0:
        return 0
    whole, rest = divmod(number + 1, block)
    return block * whole * (whole - 1) // 2 + rest * whole


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
