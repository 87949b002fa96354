"""Many lengths × many memories of one set-up at once: the steps of :func:`kvlib.capacity.size_plan` on integer arrays.

The formulas are kvlib's own (:meth:`Plan.blocks_per_request`, :meth:`Plan.blocks_that_fit`, ``printed_tokens``),
called with arrays in the place of numbers. Lengths run down, memories across.

Exactness: Python divides ints of any size and rounds once. NumPy turns both into floats first, which is the same
only below 2**53, and its ints end at 2**63. Where a figure could pass either, the arrays hold Python's own ints.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ..capacity import OUTCOMES, printed_tokens, state_blocks_wanted
from ..pool import Plan

PASSES, NO_CACHE_MEMORY, MAX_MODEL_LEN, MAX_NUM_SEQS = (
    np.int8(OUTCOMES.index(name)) for name in ("passes", "no_cache_memory", "max_model_len", "max_num_seqs"))
EXACT_FLOAT, LARGEST = 1 << 53, 1 << 62


@dataclass(frozen=True, slots=True)
class Figures:
    """Arrays of shape (lengths, memories), or one of these 1 where it makes no difference; ``outcome`` by index."""

    num_gpu_blocks: Any
    blocks_per_request: Any
    max_model_len: Any
    max_concurrency: Any
    kv_cache_tokens: Any
    needed_bytes: Any
    outcome: Any


def figures(made: Plan, lengths: np.ndarray, memory: Sequence[np.ndarray], auto_fit: bool = False) -> Figures:
    """Size one plan at ``lengths`` and ``memory``: for each stage, an array of its available bytes.

    The plan must be right for each of the lengths (:func:`lengths_alike`). With ``auto_fit`` the one length is where
    the search starts.

    >>> from kvlib import Engine, load_model
    >>> from kvlib.pool import plan
    >>> found = figures(plan(load_model("Qwen3-8B"), Engine()), np.array([8192, 40960]), [np.array([42_600 * 2_359_296])])
    >>> found.kv_cache_tokens.tolist(), found.max_concurrency.round(2).tolist()
    ([[681600], [681600]], [[83.2], [16.64]])
    """
    if not _fits_in_64_bits(made, lengths, memory):
        lengths, memory = lengths.astype(object), [have.astype(object) for have in memory]
    fit = made.blocks_that_fit(memory, np.minimum)
    room, num_blocks = fit - made.held_back_blocks, np.maximum(fit, 0)
    length = lengths[:, None]
    needed = made.blocks_per_request(lengths, np.minimum)
    if not isinstance(needed, np.ndarray):  # states alone: the same at every length
        needed = np.full(lengths.shape, needed, lengths.dtype)
    needed = needed[:, None]
    if auto_fit:
        length, needed = _fitted(made, length, needed, room)
    concurrency = num_blocks / needed
    return Figures(num_blocks, needed, length, concurrency,
                   printed_tokens(made, num_blocks, concurrency, length, _whole),
                   needed * max(made.stage_bytes_per_block), _outcome(made, memory, num_blocks, room, needed))


def _fits_in_64_bits(made: Plan, lengths, memory) -> bool:
    """Is every figure on the way below 2**62, and every one that becomes a float exact in it? In Python's ints."""
    longest, widest = int(lengths.max()), max(made.stage_bytes_per_block)
    most = max(0, made.blocks_that_fit([int(have.max()) for have in memory]))
    block = max(group.block_size for group in made.groups)
    dcp, flight = made.engine.decode_context_parallel_size, made.setup.tokens_in_flight
    return (max(longest, most) < EXACT_FLOAT and not any(have.dtype == object for have in memory)
            and max(most * max(longest, block * dcp), widest * made.blocks_per_request(longest), widest * 2,
                    flight + max(spec.reach for group in made.groups for spec, _ in group.specs)) < LARGEST)


def _whole(values: np.ndarray) -> np.ndarray:
    """Truncated to whole numbers, as int() does."""
    return values.astype(np.int64) if values.dtype == float else np.frompyfunc(int, 1, 1)(values)


def _outcome(made: Plan, memory, num_blocks, room, needed) -> np.ndarray:
    """The first check that fails; the later ones are written first, and the earlier ones over them."""
    held, wanted = made.held_back_blocks, state_blocks_wanted(made)
    none_left = reduce(np.logical_or, (have <= held * each for have, each in zip(memory, made.stage_bytes_per_block) if each))
    last = np.where(num_blocks < wanted, MAX_NUM_SEQS, PASSES) if wanted else PASSES
    return np.where(none_left, NO_CACHE_MEMORY, np.where(needed > room, MAX_MODEL_LEN, last))


def _fitted(made: Plan, asked, needed, room):
    """Length and blocks after auto-fit; they stay as asked where that fits, and where not even one token does."""
    rooms, where = np.unique(room, return_inverse=True)
    low, high = np.zeros_like(rooms), np.full_like(rooms, asked[0, 0])
    while (low < high).any():
        middle = (low + high + 1) // 2
        fits = made.blocks_per_request(middle, np.minimum) <= rooms
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    longest = np.where(low > 0, low, asked[0, 0])
    blocks = np.where(low > 0, made.blocks_per_request(longest, np.minimum), needed[0, 0])
    return longest[where][None, :], blocks[where][None, :]


def lengths_alike(lengths: np.ndarray, plan_at) -> Iterator[tuple[Plan, np.ndarray]]:
    """The plans that these lengths need, each with the positions that share it.

    A length reaches a plan in three ways only: it bounds the default batch and sequences (a handful of tokens), and
    where states are not kept at block borders it is their block, which the old print counted in. Each way ends at
    some length, and from there on all plans are alike; the shorter lengths get one each.
    """
    if len(lengths) == 1:
        yield plan_at(int(lengths[0])), np.arange(1)
        return
    shortest, longest = int(lengths.min()), int(lengths.max())
    last = plan_at(longest)

    def alike(length):
        return _reached(plan_at(length)) == _reached(last)

    if alike(shortest):
        yield last, np.arange(len(lengths))
        return
    alike_from = shortest + bisect_left(range(shortest, longest), True, key=alike)
    yield last, np.flatnonzero(lengths >= alike_from)
    for length in sorted(set(lengths[lengths < alike_from].tolist())):
        yield plan_at(length), np.flatnonzero(lengths == length)


def _reached(made: Plan) -> tuple:
    """What of a plan a length can change."""
    old_print = not made.engine.version.has("tokens_from_concurrency")
    return (made.setup.tokens_in_flight, made.setup.max_num_seqs, made.printed_block if old_print else None)
