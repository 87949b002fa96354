"""What real requests look like: prompt and output lengths, shared prefixes, arrivals. All by seed, so that a run can be repeated.

>>> chat = Mix(prompt=lognormal(median=500, p95=2000), output=fixed(150))
>>> [row for row in Load(chat, count=2, rate=0.5, seed=1)]
[(0, 1138, 150), (0, 155, 150)]
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist

from .traffic_files import LONGEST, TrafficError

P95 = NormalDist().inv_cdf(0.95)  # standard deviations from the median to the 95th of a hundred


@dataclass(frozen=True)
class Lengths:
    """A distribution of token counts. ``kind`` is "fixed", "uniform" or "log-normal"; ``low`` and ``high`` its two numbers:
    the value twice, the ends, or median and 95th percentile."""

    kind: str
    low: int
    high: int

    def __post_init__(self):
        names = {"fixed": ("tokens", "tokens"), "uniform": ("low", "high"), "log-normal": ("median", "p95")}[self.kind]
        for name, value in zip(names, (self.low, self.high)):
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LONGEST:
                raise TrafficError(f"{name} of a {self.kind} length is {value!r:.40}; it must be a whole number of at least 1",
                                   field=name, found=value)
        if self.high < self.low:
            raise TrafficError(f"{names[1]} of a {self.kind} length is {self.high:,}, less than {names[0]}, {self.low:,}",
                               field=names[1], found=self.high)

    def draw(self, rng: random.Random) -> int:
        """One length, in tokens, at least 1."""
        if self.kind == "fixed":
            return self.low
        if self.kind == "uniform":
            return rng.randint(self.low, self.high)
        return max(1, round(self.low * math.exp(rng.gauss(0, self.sigma))))

    @cached_property
    def sigma(self) -> float:
        """Spread of the logarithm of a log-normal length."""
        return math.log(self.high / self.low) / P95

    @property
    def mean(self) -> float:
        """Expected length in tokens, before anything is cut or rounded.

        >>> uniform(100, 300).mean, round(lognormal(500, 2000).mean)
        (200.0, 713)
        """
        if self.kind == "log-normal":
            return self.low * math.exp(self.sigma ** 2 / 2)
        return (self.low + self.high) / 2


def fixed(tokens: int) -> Lengths:
    """Always that many tokens."""
    return Lengths("fixed", tokens, tokens)


def uniform(low: int, high: int) -> Lengths:
    """Any whole number from ``low`` to ``high``, each as likely."""
    return Lengths("uniform", low, high)


def lognormal(median: int, p95: int) -> Lengths:
    """Half are shorter than ``median`` and one in twenty is longer than ``p95``: the usual shape of prompts and answers."""
    return Lengths("log-normal", median, p95)


@dataclass(frozen=True)
class Mix:
    """A kind of traffic: ``prompt`` and ``output`` lengths of each request.

    A ``prefix_share`` of the requests starts with one of ``prefixes`` shared texts of ``prefix_tokens`` tokens (a system prompt, a
    document asked about), which come before the drawn prompt.
    """

    prompt: Lengths
    output: Lengths
    prefix_share: float = 0.0
    prefixes: int = 1
    prefix_tokens: int = 0

    def __post_init__(self):
        for name in ("prompt", "output"):
            if not isinstance(getattr(self, name), Lengths):
                raise TrafficError(f"{name} is {getattr(self, name)!r:.40}; it must be fixed(…), uniform(…) or lognormal(…)", field=name)
        if not isinstance(self.prefix_share, (int, float)) or not 0 <= self.prefix_share <= 1:
            raise TrafficError(f"prefix_share is {self.prefix_share!r:.40}; it must be a share from 0 to 1", field="prefix_share")
        for name, least in (("prefixes", 1), ("prefix_tokens", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LONGEST:
                raise TrafficError(f"{name} is {value!r:.40}; it must be a whole number of at least {least}", field=name, found=value)

    def draw(self, rng: random.Random) -> tuple:
        """(prompt, output), and (prefix_id, prefix_len) behind them where a prefix is shared."""
        prompt, output = self.prompt.draw(rng), self.output.draw(rng)
        if self.prefix_tokens and self.prefix_share and rng.random() < self.prefix_share:
            return self.prefix_tokens + prompt, output, rng.randrange(self.prefixes), self.prefix_tokens
        return prompt, output

    def lengths(self, count: int, seed: int) -> tuple[Sequence[int], Sequence[int]]:
        """Prompts and outputs, in tokens, of the ``count`` requests that ``draw`` takes by that seed.

        >>> Mix(lognormal(500, 2000), lognormal(100, 300)).lengths(2, seed=1)
        ((1481, 529), (263, 60))
        """
        shares = self.prefix_tokens and self.prefix_share
        if self.prompt.kind == self.output.kind == "log-normal" and not shares:
            return _every_other(self.prompt, count, seed, 0), _every_other(self.output, count, seed, 1)
        return one_by_one(self, count, seed)


def one_by_one(mix, count: int, seed: int) -> tuple[Sequence[int], Sequence[int]]:
    """Prompts and outputs, in tokens, of ``count`` requests of any mix that can ``draw``."""
    rng = random.Random(seed)
    rows = [mix.draw(rng) for _ in range(count)]
    return tuple(row[0] for row in rows), tuple(row[1] for row in rows)


@lru_cache(maxsize=4)
def _normals(count: int, seed: int) -> tuple[float, ...]:
    """Normal draws: another median or spread only scales them."""
    rng = random.Random(seed)
    return tuple(rng.gauss(0, 1) for _ in range(count))


@lru_cache(maxsize=16)
def _every_other(lengths: Lengths, count: int, seed: int, first: int) -> tuple[int, ...]:
    """Log-normal lengths, where prompts (``first`` 0) and outputs (1) take turns at the draws."""
    low, sigma, exp = lengths.low, lengths.sigma, math.exp
    return tuple([round(low * exp(draw * sigma)) or 1 for draw in _normals(2 * count, seed)[first::2]])


class FromRows:
    """A kind of traffic given by examples: each request is one of ``rows`` (as from ``read_requests``), drawn by chance."""

    def __init__(self, rows: Iterable[dict]):
        self.rows = [(row["prompt_tokens"], row["output_tokens"], *((row["prefix_id"], row.get("prefix_len", 0)) if "prefix_id" in row
                                                                    else ())) for row in rows]
        if not self.rows:
            raise TrafficError("no request is given to draw from")

    def draw(self, rng: random.Random) -> tuple:
        return self.rows[rng.randrange(len(self.rows))]


class Load:
    """``count`` requests of a mix that arrive by chance, ``rate`` of them a scheduler step on average; the same ones each time.

    ``max_model_len`` cuts prompts that would be too long for the launch to one token less (vLLM would refuse them); ``cut`` says how
    many that were, once the load has been read. Rate ``math.inf`` lets all arrive at once. Memory does not grow with ``count``.
    """

    def __init__(self, mix, count: int, rate: float, seed: int = 0, max_model_len: int | None = None):
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise TrafficError(f"count is {count!r:.40}; it must be a whole number of at least 1", field="count", found=count)
        if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not rate > 0:
            raise TrafficError(f"rate is {rate!r:.40}; it must be more than 0 requests a step", field="rate", found=rate)
        self.mix, self.count, self.rate, self.seed, self.max_model_len = mix, count, rate, seed, max_model_len
        self.cut = 0

    def __iter__(self) -> Iterator[tuple]:
        rng, at, self.cut = random.Random(self.seed), 0.0, 0
        most = LONGEST if self.max_model_len is None else self.max_model_len - 1
        for _ in range(self.count):
            if self.rate != math.inf:
                at += rng.expovariate(self.rate)
            prompt, *rest = self.mix.draw(rng)
            if prompt > most:
                prompt = most
                self.cut += 1
            yield int(at), prompt, *rest


def spread(rows: Iterable[dict], rate: float, seed: int = 0) -> list[tuple]:
    """Each of ``rows`` (as from ``read_requests``) once and in order, arriving by chance, ``rate`` of them a step on average.

    >>> spread([dict(prompt_tokens=10, output_tokens=2), dict(prompt_tokens=20, output_tokens=3)], rate=math.inf)
    [(0, 10, 2), (0, 20, 3)]
    """
    each = FromRows(rows).rows
    times = Load(_Next(each), len(each), rate, seed)
    return list(times)


class _Next:
    """A mix that gives its rows one after the other."""

    def __init__(self, rows: list[tuple]):
        self.rows = iter(rows)

    def draw(self, rng: random.Random) -> tuple:
        return next(self.rows)
