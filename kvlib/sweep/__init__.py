"""All models × all GPUs × all flags × all lengths × all memories: one row per set-up, sized as :func:`kvlib.size` does.

What does not depend on lengths and memory is worked out once for each set-up by :func:`kvlib.pool.plan`, and kept;
the rest is arithmetic over integer arrays (:mod:`kvlib.sweep.grid`).

>>> frame = sweep("Qwen3-8B", max_model_len=[8192, 40960], available_bytes=42_600 * 2_359_296)
>>> print(frame[["max_model_len", "num_gpu_blocks", "kv_cache_tokens", "outcome"]].to_string(index=False))
 max_model_len  num_gpu_blocks  kv_cache_tokens outcome
          8192           42600           681600  passes
         40960           42600           681600  passes
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator

import pandas as pd

from ..errors import SizingError
from .axes import Axes
from .rows import SENTENCES, columns_of, pieces, write
from .table import Table
from .views import heat_map, pareto

__all__ = ["heat_map", "pareto", "sweep", "sweep_chunks"]

PIECE_ROWS = 1 << 16  # computed at once: small enough for a processor's cache
MOST_ROWS = 100_000_000  # in one frame, of some 150 bytes a row
QUIET_SECONDS, BETWEEN_SECONDS = 1.0, 0.2


def sweep(models, gpus=None, *, tensor_parallel_size=(1,), kv_cache_dtype=("auto",), max_model_len=(None,),
          available_bytes=None, memory=None, progress: Callable[[int, int], object] | None = None, **flags) -> pd.DataFrame:
    """Size every combination of the values given; each argument is a value or a sequence of values.

    Parameters
    ----------
    models : names in the catalogue, models, or whatever :func:`kvlib.load_model` takes.
    gpus : names in the catalogue, or None for no card in particular.
    max_model_len : tokens; None is the model's own length, -1 is auto-fit.
    available_bytes : memory for the cache on each GPU. Without it, each card's budget is assumed
        (:func:`kvlib.reserve.assumed_budget`), and each figure has a ``_low`` and a ``_high`` one beside it.
    memory : a MemoryBudget for all set-ups, or a function of model and engine that returns one.
    progress : called with (rows done, rows in all) a few times a second, from the first second on.
    flags : any other flag of :class:`kvlib.Engine`, by name.

    Returns
    -------
    One row a set-up, the last axis changing fastest: model, gpu and flags; ``max_model_len`` (after auto-fit; what was
    asked stands in ``max_model_len_asked`` where -1 or None is one of several, and ``block_size_asked`` beside
    ``block_size``); ``available_bytes`` per GPU and ``available_source``; ``num_gpus`` of a replica and ``gpus_bytes``,
    their whole memory; then the figures of
    :class:`kvlib.Sizing`, ``outcome`` and ``reason``. A set-up that vLLM would refuse before sizing, or whose cache
    or weights are not known, is a row with the outcome ``flags_refused``, ``unknown_architecture`` or
    ``weights_unknown`` and no figures. With a range, ``verdict`` is "passes", "too close to call" or "fails".

    An interruption (Ctrl-C, the stop button) returns the rows done, with a warning.

    Raises
    ------
    SizingError : a flag or value that no launch takes, an axis without values, no memory, or too many rows for one frame.
    """
    axes = Axes(models, gpus, {"tensor_parallel_size": tensor_parallel_size, "kv_cache_dtype": kv_cache_dtype, **flags},
                max_model_len, available_bytes, memory)
    if axes.rows > MOST_ROWS:
        raise SizingError(f"this sweep has {axes.rows:,} rows, more than the {MOST_ROWS:,} of one frame; take them in "
                          "turn with sweep_chunks, or leave values out")
    table = Table(columns_of(axes), axes.rows, SENTENCES)
    try:
        tell = _Teller(progress, axes.rows)
        for piece in pieces(axes, PIECE_ROWS):
            write(table, axes, piece)
            tell(table.filled)
    except KeyboardInterrupt:
        warnings.warn(f"stopped after {table.filled:,} of {axes.rows:,} rows; these are returned", stacklevel=2)
    return table.frame()


def sweep_chunks(models, gpus=None, *, chunk_rows: int = 1_000_000, tensor_parallel_size=(1,), kv_cache_dtype=("auto",),
                 max_model_len=(None,), available_bytes=None, memory=None, **flags) -> Iterator[pd.DataFrame]:
    """:func:`sweep` in frames of at most ``chunk_rows`` rows, in the same order; memory for one at a time is needed.

    An interruption hands over the rows done, then goes on to the caller.

    >>> chunks = sweep_chunks("Qwen3-8B", max_model_len=range(1, 10_001), available_bytes=1 << 33, chunk_rows=4_000)
    >>> [len(chunk) for chunk in chunks]
    [4000, 4000, 2000]
    """
    axes = Axes(models, gpus, {"tensor_parallel_size": tensor_parallel_size, "kv_cache_dtype": kv_cache_dtype, **flags},
                max_model_len, available_bytes, memory)
    if not isinstance(chunk_rows, int) or chunk_rows < 1:
        raise SizingError(f"chunk_rows is {chunk_rows!r:.40}; it must be a whole number of at least 1")
    return _chunks(axes, chunk_rows)


def _chunks(axes: Axes, chunk_rows: int) -> Iterator[pd.DataFrame]:
    columns, left = columns_of(axes), axes.rows
    table = Table(columns, min(chunk_rows, left), SENTENCES)
    try:
        for piece in pieces(axes, min(chunk_rows, PIECE_ROWS)):
            if table.filled + piece.rows > table.size:
                left -= table.filled
                yield table.frame()
                table = Table(columns, min(chunk_rows, left), SENTENCES)
            write(table, axes, piece)
    except KeyboardInterrupt:
        if table.filled:
            yield table.frame()
        raise
    yield table.frame()


class _Teller:
    """Tells how far a run is, but not in its first second, and not too often."""

    def __init__(self, progress, rows: int):
        self.progress, self.rows = progress, rows
        self.next = time.monotonic() + QUIET_SECONDS

    def __call__(self, done: int) -> None:
        if self.progress is not None and time.monotonic() >= self.next:
            self.progress(done, self.rows)
            self.next = time.monotonic() + BETWEEN_SECONDS
