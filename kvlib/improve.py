"""What would help: each change sized again over the whole range; and the way back, from requests to memory, GPUs, a card."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations
from types import MappingProxyType
from typing import NamedTuple

from . import catalog
from .budget import RESERVE
from .capacity import size_plan
from .errors import SizingError
from .fit import Fit
from .memory import at, requested_bytes
from .remedies import changes
from .units import GiB
from .verdict import taken_bytes
from .weights import quantization_of

WORDS = ("refused", "close", "passes")
SPLITS = (1, 2, 4, 8, 16)
UNFIXED = {"kv_cache_memory_bytes": None, "num_gpu_blocks_override": None}   # a fixed cache says nothing of another card
#: Cards for the question "which GPU?", from small to large; any name of the catalogue may stand in their place.
CARDS = ("L4", "RTX 4090", "RTX 5090", "A100 40GB SXM", "L40S", "A100 80GB SXM", "H100 SXM 80GB",
         "RTX PRO 6000 Blackwell 96GB", "GB10 (DGX Spark)", "H200 SXM 141GB", "B200", "MI300X")


@dataclass(frozen=True)
class Improvement:
    """One change: flags to set, memory to type or another storage of the weights; what it gains, what it gives up."""

    name: str
    flags: Mapping
    typed: Mapping
    quantization: str | None
    gain: str
    gives_up: str
    fit: Fit


def improvements(found: Fit, most: int | None = None) -> tuple[Improvement, ...]:
    """Changes that bring a launch nearer to passing, or let it hold more: what passes first, then least harm first.

    ``most`` is how many are wanted; those after them are not worked out.

    >>> from kvlib.fit import fit
    >>> tight = fit("Qwen3-8B", "--max-model-len 32768", gpu="RTX 4090")
    >>> [(each.name, each.fit.verdict.word) for each in improvements(tight)][0]
    ('lower max_model_len to 19,840', 'passes')
    """
    better, possible, split_passes = [], list(_changes(found)), False
    tried = possible
    if _too_large(found):
        tried = [change for change in possible if change.quantization or change.typed or "tensor_parallel_size" in change.flags]
    for change in tried:
        passing = [each for each in better if each.fit.verdict.word == "passes"]
        if most is not None and len(passing) >= most and (found.verdict.word == "passes" or _on_these_gpus(passing)):
            break
        if "tensor_parallel_size" in change.flags and split_passes:
            continue  # fewer GPUs do
        one = _applied(found, change)
        if one is not None:
            better.append(one)
            split_passes |= "tensor_parallel_size" in change.flags and one.fit.verdict.word == "passes"
    if found.verdict.word != "passes":
        if not _on_these_gpus(one for one in better if one.fit.verdict.word == "passes"):
            better = _together(found, possible) + better
        better.sort(key=lambda each: -WORDS.index(each.fit.verdict.word))
    return tuple(better[:most])


def _too_large(found: Fit) -> bool:
    """Are the weights alone larger than the GPU? Then only narrower or split weights help."""
    return (found.high.outcome == "weights_do_not_fit"
            and at(found.memory.weights_bytes, "low") > at(found.memory.total_bytes, "high"))


def _on_these_gpus(some: Iterable[Improvement]) -> bool:
    """Does one of them do without more GPUs?"""
    return any("tensor_parallel_size" not in each.flags for each in some)


class _Change(NamedTuple):
    name: str
    flags: Mapping
    typed: Mapping
    quantization: str | None
    gives_up: str


def _applied(found: Fit, change: _Change) -> Improvement | None:
    """A change and what it gains; None where it gains nothing or cannot be."""
    try:
        after = _changed(found, change.flags, change.typed, change.quantization)
    except SizingError:
        return None
    gain = _gain(found, after)
    return Improvement(*change[:4], gain, change.gives_up, after) if gain else None


def _changed(found: Fit, flags: Mapping = MappingProxyType({}), typed: Mapping = MappingProxyType({}),
             quantization: str | None = None) -> Fit:
    """:meth:`Fit.changed`, sized once however it is asked for: what stands there already is left out."""
    flags, typed = (tuple(sorted(item for item in values.items() if item[1] != getattr(now, item[0])))
                    for values, now in ((flags, found.engine), (typed, found.typed)))
    return _sized(found, flags, typed, quantization) if flags or typed or quantization else found


@lru_cache(maxsize=256)
def _sized(found: Fit, flags: tuple, typed: tuple, quantization: str | None) -> Fit:
    return found.changed(typed=dict(typed), quantization=quantization, **dict(flags))


def _together(found: Fit, tried: list[_Change]) -> list[Improvement]:
    """The first two changes, else three, that pass together on the GPUs there are."""
    single = [change for change in tried if "tensor_parallel_size" not in change.flags and not change.typed]
    too_large = {stored for stored in {None, *(change.quantization for change in single)} if _stay_too_large(found, stored)}
    for count in (2, 3):
        for some in combinations(single, count):
            flags = [name for change in some for name in change.flags]
            stored = [change.quantization for change in some if change.quantization]
            if len(set(flags)) < len(flags) or len(stored) > 1 or (stored[0] if stored else None) in too_large:
                continue
            one = _applied(found, _Change(" + ".join(change.name for change in some), {k: v for c in some for k, v in c.flags.items()},
                                          {}, stored[0] if stored else None, "; ".join(change.gives_up for change in some)))
            if one is not None and one.fit.verdict.word == "passes":
                return [one]
    return []


def _stay_too_large(found: Fit, quantization: str | None) -> bool:
    try:
        return _too_large(_changed(found, quantization=quantization))
    except SizingError:
        return False


def _changes(found: Fit) -> Iterator[_Change]:
    def budget(_model, engine):
        return found.changed(**{name: getattr(engine, name) for name in engine.changed() if name not in ("gpu", "vllm_version")}
                             ).memory.pick("least")

    if found.too_long:
        longest = found.model.max_position_embeddings
        yield _Change(f"lower max_model_len to {longest:,}", {"max_model_len": longest}, {}, None, "longer requests")
        return
    asked_weights, low = False, found.low
    budgeted = "reserve" in found.terms or "available" not in found.terms   # a measured reserve moves with the share
    if budgeted and low.memory is None:
        low = size_plan(low.plan, memory=found.memory.pick("least"))
    for name, flags, gives_up, memory in changes(low, budget if budgeted else None):
        if "tensor_parallel_size" in flags and not asked_weights:
            asked_weights = True
            yield from _other_weights(found)
        typed = {}
        if not flags and memory is not None:
            typed = {"free_gib": at(memory.free_bytes, "typical") / GiB}
        yield _Change(name, flags, typed, None, gives_up)
    if not budgeted:
        yield from _without_the_budget(found)


def _other_weights(found: Fit) -> Iterator[_Change]:
    """Narrower weights: FP8 as vLLM loads them, or a 4-bit checkpoint."""
    if found.typed.weights_gib is not None:
        return
    try:
        now = quantization_of(found.model) if found.quantization is None else None
    except SizingError:
        return
    bits = now.bits if now is not None else {None: 16, "none": 16, "fp8": 8, "fp8 blocks": 8, "int8": 8}.get(found.quantization, 4)
    if bits > 8:
        yield _Change("weights in FP8 (--quantization fp8)", {}, {}, "fp8", "some exactness of the model")
    if bits > 4:
        yield _Change("weights in 4 bits (another checkpoint)", {}, {}, "awq", "more exactness; a checkpoint that must exist")


def _without_the_budget(found: Fit) -> Iterator[_Change]:
    """With a fixed cache only what changes the price of a token, or the number of GPUs, can be foreseen."""
    for more in (2, 4):
        size = more * found.engine.tensor_parallel_size
        if size <= 16:
            yield _Change(f"tensor_parallel_size {size}", {"tensor_parallel_size": size}, {"available_gib": None}, None,
                          f"the price of {size - found.engine.tensor_parallel_size} more GPUs; memory is assumed again")


def _gain(before: Fit, after: Fit) -> str | None:
    """What a change brings, in words; None where it brings nothing."""
    was, now = (WORDS.index(each.verdict.word) for each in (before, after))
    if now < was:
        return None
    if after.verdict.word == "refused":
        return f"still refused, but nearer: {after.verdict.reason}" if _rank(after) > _rank(before) else None
    holds = (f"{after.say(after.low.max_concurrency, after.high.max_concurrency)} requests of "
             f"{after.high.max_model_len:,} tokens")
    if now > was:
        return f"passes: {holds}" if after.verdict.word == "passes" else f"too close to call: {holds}"
    more = after.typical.max_concurrency - before.typical.max_concurrency
    return holds if more > 0.02 * before.typical.max_concurrency else None


def _rank(found: Fit) -> int:
    order = ("free_memory", "weights_do_not_fit", "no_cache_memory", "max_model_len", "max_num_seqs", "passes")
    return order.index(found.high.outcome)


# The way back


class Needs(NamedTuple):
    """What ``requests`` requests of ``tokens`` tokens ask for, per GPU unless said otherwise.

    ``available_bytes`` is the memory for the cache, ``total_bytes`` (least, typical, most) the card that leaves it.
    ``tensor_parallel_size`` and ``gpu`` are (surely, perhaps): where they fit at the least, at the most memory thought
    possible; None where no size or card of the list does.
    """

    blocks: int
    available_bytes: int
    total_bytes: tuple[int, int, int]
    tensor_parallel_size: tuple[int | None, int | None]
    gpu: tuple[str | None, str | None]


def needs(found: Fit, requests: int, tokens: int, cards: Iterable[str] = CARDS) -> Needs:
    """The least memory, split and card that hold so many requests at once.

    Raises SizingError where no request of that length is let in.

    >>> from kvlib.fit import fit
    >>> needs(fit("Qwen3-8B", "--max-model-len 40960", gpu="L4"), 8, 32_768).blocks      # 8 × 2,048, and the null block
    16385
    """
    for name, value in (("requests", requests), ("tokens", tokens)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SizingError(f"{name} is {value!r}; it must be a whole number of at least 1")
    length = found.high.max_model_len
    if tokens > length:
        raise SizingError(f"a request of {tokens:,} tokens is longer than max_model_len, {length:,}")
    made = found.typical.plan
    blocks = max(requests * made.blocks_per_request(tokens), made.blocks_per_request(length)) + made.held_back_blocks
    if made.model.has_state and not made.engine.enforce_eager and (made.engine.max_num_seqs is not None or made.engine.gpu is not None):
        blocks = max(blocks, made.setup.max_num_seqs)
    available = blocks * max(made.stage_bytes_per_block)
    share = made.setup.gpu_memory_utilization
    totals = tuple(max(_card_for(available + taken_bytes(found.memory, found.engine, side), share), at(found.memory.weights_bytes, side))
                   for side in ("low", "typical", "high"))

    def holds(after: Fit) -> tuple[bool, bool]:
        return tuple(each.fits and each.num_gpu_blocks - each.plan.held_back_blocks >= requests * each.plan.blocks_per_request(tokens)
                     for each in (after.low, after.high))

    own = found.typical.plan.setup.gpu
    sized = sorted((each for each in map(catalog.gpu, {found.engine.gpu, *cards} - {None}) if not each.unified or each is own),
                   key=lambda each: each.total_bytes)
    weights = at(found.memory.weights_bytes, "low") if found.launch is None else 0     # a log's weights are those of its own card
    large = [each.name for each in sized if each.total_bytes >= weights]
    return Needs(blocks, available, totals, _first(SPLITS, partial(_on_split, found), holds),
                 _first(large, partial(_on_card, found), holds))


def _on_split(found: Fit, size: int) -> Fit:
    if size == found.engine.tensor_parallel_size:
        return found
    return _changed(found, {"tensor_parallel_size": size} | UNFIXED, {"available_gib": None})


def _on_card(found: Fit, name: str) -> Fit:
    free = {"total_gib": None, "free_gib": None, "available_gib": None}
    return _changed(found, {"gpu": name} | UNFIXED, free)


def _first(names, change, holds):
    """The first that surely holds, and the first that perhaps does; what vLLM refuses there is passed over."""
    surely = perhaps = None
    for name in names:
        try:
            least, most = holds(change(name))
        except SizingError:
            continue
        perhaps = name if perhaps is None and most else perhaps
        if least:
            surely = name
            break
    return surely, perhaps


def _card_for(taken: int, share: float) -> int:
    """The smallest memory, in bytes, of which that share is enough."""
    total = max(math.floor(taken / share) - 2, 1)
    while requested_bytes(total, share) < taken:
        total += 1
    return total


# Which card?


class Cell(NamedTuple):
    """One card and split of the map: ``word`` as in a verdict, or "unknown" with the reason a set-up cannot be sized."""

    gpu: str
    tensor_parallel_size: int
    word: str
    low: float
    typical: float
    high: float
    reason: str


def card_map(found: Fit, cards: Iterable[str] = CARDS, splits: Iterable[int] = SPLITS[:4]) -> tuple[Cell, ...]:
    """Concurrency at ``max_model_len`` for each card and split; the reserve is assumed everywhere.

    >>> from kvlib.fit import fit
    >>> [cell.word for cell in card_map(fit("Qwen3-8B", "--max-model-len 32768"), ["L4", "H100 SXM 80GB"], [1])]
    ['close', 'passes']
    """
    free = {name: None for name in ("total_gib", "free_gib", "available_gib", *(n.removesuffix("_bytes") + "_gib" for n in RESERVE))}
    cells = []
    for name in cards:
        for size in splits:
            typed = free if size == found.engine.tensor_parallel_size else {**free, "weights_gib": None}
            try:
                after = found.changed(gpu=name, tensor_parallel_size=size, typed=typed)
            except SizingError as problem:
                cells.append(Cell(name, size, "unknown", 0.0, 0.0, 0.0, str(problem)))
                continue
            low, typical, high = (each.max_concurrency if each.available_bytes > 0 else 0.0
                                  for each in (after.low, after.typical, after.high))
            cells.append(Cell(name, size, after.verdict.word, low, typical, high, after.verdict.reason))
    return tuple(cells)
