"""From one set-up to its rows: a plan for its lengths, memory for its stages, figures, and words for what fails."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..capacity import OUTCOMES, fails_before_profiling, stage_memory
from ..errors import EngineError, SizingError, UnknownArchitectureError
from ..memory import MemoryBudget
from ..pool import Plan, plan
from ..reserve import assumed_budget
from .axes import AUTO_FIT, LARGEST, Axes, SetUp
from .grid import MAX_MODEL_LEN, PASSES, figures, lengths_alike
from .table import MISSING, OUTCOME, REAL, VERDICT, WHOLE, WORDS, Column, Table, words

REASONS = {  # by outcome, in the order of OUTCOMES
    "passes": "passes vLLM's memory checks",
    "weights_do_not_fit": "the weights alone are larger than the GPU",
    "free_memory": "free memory at start is less than the share requested",
    "no_cache_memory": "no memory is left for the cache blocks",
    "max_model_len": "one request of max_model_len tokens needs more than is available",
    "max_num_seqs": "max_num_seqs is more than the blocks for states",
}
NO_LENGTH = "auto-fit finds no length: not even one token fits"
SENTENCES = (*REASONS.values(), NO_LENGTH)
SOURCES = ("measured", "computed", "assumed")
SIDES = {"": "typical", "_low": "least", "_high": "most"}
WITH_SIDES = {"max_model_len": WHOLE, "available_bytes": WHOLE, "num_gpu_blocks": WHOLE, "max_concurrency": REAL,
              "kv_cache_tokens": WHOLE, "outcome": OUTCOME}
ONCE = {"available_source": words(SOURCES), "block_size": WHOLE, "bytes_per_block": WHOLE, "blocks_per_request": WHOLE,
        "needed_bytes": WHOLE, "verdict": VERDICT}
FIGURES = {*ONCE, *(name + side for name in WITH_SIDES for side in SIDES)}
EVERY = slice(None)


class Part(NamedTuple):
    """Lengths of a set-up that share a plan, by position, and the budget where there is one; or why they have none."""

    positions: np.ndarray
    lengths: np.ndarray
    made: Plan | None = None
    budget: MemoryBudget | None = None
    auto_fit: bool = False
    refusal: SizingError | None = None


def columns_of(axes: Axes) -> dict[str, Column]:
    """The columns of the frame, in order: the axes, the memory, the figures, the outcome."""
    columns = {name: axis.column for name, axis in axes.columns.items()}
    if AUTO_FIT in axes.asked or len(axes.asked) > 1 and MISSING in axes.asked:
        columns["max_model_len_asked"] = WHOLE
    columns |= {"max_model_len": WHOLE, "available_bytes": WHOLE, "num_gpus": WHOLE, "gpus_bytes": WHOLE}
    ordered = ("available_source", "num_gpu_blocks", "block_size", "bytes_per_block",
               "blocks_per_request", "max_concurrency", "kv_cache_tokens", "needed_bytes")
    columns |= {name: {**WITH_SIDES, **ONCE}[name] for name in ordered}
    if axes.ranged:
        columns |= {name + side: column for side in list(SIDES)[1:] for name, column in WITH_SIDES.items()}
        columns["verdict"] = VERDICT
    return columns | {"outcome": OUTCOME, "reason": words(())}


class Piece(NamedTuple):
    """A part of a set-up's rows that is computed at once: some of its lengths × some of its memories."""

    set_up: SetUp
    parts: list[Part]
    lengths: slice
    memories: slice

    @property
    def shape(self) -> tuple[int, int]:
        return self.lengths.stop - self.lengths.start, self.memories.stop - self.memories.start

    @property
    def rows(self) -> int:
        return self.shape[0] * self.shape[1]


def pieces(axes: Axes, most_rows: int) -> Iterator[Piece]:
    """All rows of the grid, in order, in pieces of at most ``most_rows``."""
    lengths, memories = len(axes.asked), axes.memories
    tall, wide = max(1, most_rows // memories), min(memories, most_rows)
    for set_up in axes.set_ups():
        parts = list(_parts(axes, set_up))
        for top in range(0, lengths, tall):
            rows = slice(top, min(top + tall, lengths))
            inside = parts if tall >= lengths else [_within(part, rows) for part in parts]
            for left in range(0, memories, wide):
                yield Piece(set_up, inside, rows, slice(left, min(left + wide, memories)))


def write(table: Table, axes: Axes, piece: Piece) -> None:
    """Compute a piece and put its rows behind those of the table."""
    shape = piece.shape
    table.put(shape, EVERY, _cells(table, axes, piece))
    given = None if axes.available is None else axes.available[piece.memories]
    for part in piece.parts:
        positions = EVERY if len(part.lengths) == shape[0] else part.positions
        if len(part.lengths):
            table.put(shape, positions, _refused(table, part, given) if part.refusal else _sized(table, part, given))
    table.close(piece.rows)


def _parts(axes: Axes, set_up: SetUp) -> Iterator[Part]:
    """The lengths of a set-up, put together by plan: plain numbers first, then the model's own and auto-fit."""
    plain = axes.asked[axes.plain]

    def plan_at(length):
        if set_up.subject.refusal:
            raise set_up.subject.refusal
        return plan(set_up.subject.model, axes.engine(set_up.combination, length))

    if len(plain):
        try:
            for made, where in lengths_alike(plain, plan_at):
                yield Part(axes.plain[where], plain[where], made, _budget(axes, made))
        except SizingError as refusal:
            yield Part(axes.plain, plain, refusal=refusal)
    for place, length in axes.special:
        where = np.array([place])
        try:
            made = plan_at(length)
            yield Part(where, np.array([made.setup.max_model_len]), made, _budget(axes, made), length == AUTO_FIT)
        except SizingError as refusal:
            yield Part(where, np.array([MISSING]), refusal=refusal)


def _within(part: Part, rows: slice) -> Part:
    start, stop = np.searchsorted(part.positions, (rows.start, rows.stop))
    return part._replace(positions=part.positions[start:stop] - rows.start, lengths=part.lengths[start:stop])


def _budget(axes: Axes, made: Plan) -> MemoryBudget | None:
    """Where the memory comes from when its bytes are not given; None where a flag sets it."""
    engine = made.engine
    if axes.available is not None or engine.kv_cache_memory_bytes is not None:
        return None
    if callable(axes.memory):
        return axes.memory(made.model, engine)
    if axes.memory is not None:
        return axes.memory
    return assumed_budget(made.model, engine) if engine.gpu is not None else None


def _cells(table: Table, axes: Axes, piece: Piece) -> dict[str, Any]:
    """What does not need sizing: the values on the axes, and the GPUs."""
    values = axes.values(piece.set_up.combination)
    gpus = values.get("tensor_parallel_size", 1) * values.get("pipeline_parallel_size", 1)
    cells = {name: axis.cells[place] for (name, axis), place in zip(axes.columns.items(), piece.set_up.places)}
    cells |= {"num_gpus": gpus, "gpus_bytes": MISSING if values["gpu"] is None else values["gpu"].total_bytes * gpus}
    if "max_model_len_asked" in table.columns:
        cells["max_model_len_asked"] = axes.asked[piece.lengths, None]
    if axes.available is not None:
        cells["available_bytes"] = axes.available[piece.memories]
    return cells


def _refused(table: Table, part: Part, given: np.ndarray | None) -> dict[str, Any]:
    """A set-up that vLLM would not start, or that is not known here: no figures, and why."""
    kind = "unknown_architecture" if isinstance(part.refusal, UnknownArchitectureError) else \
        "flags_refused" if isinstance(part.refusal, EngineError) else "weights_unknown"
    nothing = {name: column.missing for name, column in table.columns.items() if name in FIGURES}
    if given is not None:
        del nothing["available_bytes"]  # an axis: it stands there whatever comes of it
    outcomes = {name: WORDS.index(kind) for name in nothing if name.startswith("outcome")}
    lengths = part.lengths[:, None]
    return {**nothing, **outcomes, **{name: lengths for name in nothing if name.startswith("max_model_len")},
            "reason": table.reason(str(part.refusal))}


def _sized(table: Table, part: Part, given: np.ndarray | None) -> dict[str, Any]:
    made = part.made
    ranged = "verdict" in table.columns
    memory, early, source = _given_memory(made, given) if given is not None else _assumed_memory(part, ranged)
    found = figures(made, part.lengths, memory, part.auto_fit)
    outcome = np.where(early, early, found.outcome)
    values = {"available_source": SOURCES.index(source), "bytes_per_block": max(made.stage_bytes_per_block),
              "block_size": min((group.block_size for group in made.groups if group.is_attention), default=MISSING)}
    for number, side in enumerate(SIDES if ranged else ("",)):
        of_side = {"max_model_len": found.max_model_len, "num_gpu_blocks": found.num_gpu_blocks,
                   "max_concurrency": found.max_concurrency, "kv_cache_tokens": found.kv_cache_tokens, "outcome": outcome,
                   "blocks_per_request": found.blocks_per_request, "needed_bytes": found.needed_bytes}
        if given is None:
            of_side["available_bytes"] = memory[0]
        for name, array in of_side.items():
            if name + side in table.columns:
                values[name + side] = array[..., number:number + 1] if ranged and array.shape[-1] > 1 else array
    typical = values["outcome"]
    values["reason"] = np.where(typical == MAX_MODEL_LEN, SENTENCES.index(NO_LENGTH), typical) if part.auto_fit else typical
    if ranged:
        values["verdict"] = np.where(values["outcome_low"] == PASSES, 0, np.where(values["outcome_high"] == PASSES, 1, 2))
    return values


def _given_memory(made: Plan, given: np.ndarray):
    """Available bytes of each stage, the outcome of the checks before profiling (0: none fails), and how they are known."""
    if made.engine.num_gpu_blocks_override is None:
        return [given] * len(made.stage_bytes_per_block), 0, "measured"
    stages, source = stage_memory(made, 0)
    return [_ints([have] * len(given)) for have in stages], 0, source


def _assumed_memory(part: Part, ranged: bool):
    """The same from a budget: one array place a side of its bands."""
    made, budget = part.made, part.budget
    picked = _sides(budget) if budget is not None else [None] * (len(SIDES) if ranged else 1)
    stages = zip(*(stage_memory(made, memory=memory)[0] for memory in picked))
    early = [fails_before_profiling(made, memory) for memory in picked]
    return ([_ints(sides) for sides in stages], np.array([OUTCOMES.index(found[0]) if found else 0 for found in early]),
            stage_memory(made, memory=budget)[1])


@lru_cache(maxsize=8192)
def _sides(budget: MemoryBudget) -> tuple[MemoryBudget, ...]:
    return tuple(budget.pick(pick) for pick in SIDES.values())


def _ints(values) -> np.ndarray:
    return np.array(values, np.int64 if max(map(abs, values)) <= LARGEST else object)
