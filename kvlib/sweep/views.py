"""Two ways to look at a sweep: the set-ups that nothing beats, and a table of GPUs × tensor-parallel sizes."""

from __future__ import annotations

import pandas as pd

from ..errors import SizingError

CELL = ("gpu", "tensor_parallel_size")


def pareto(frame: pd.DataFrame, memory: str | None = None, requests: str = "max_concurrency") -> pd.DataFrame:
    """The rows that no other beats: none serves as many requests with less memory, nor more with as much.

    ``memory`` is ``gpus_bytes`` (all of a replica's GPUs) where cards are named, else ``available_bytes``. Only rows
    that pass are asked. By rising memory; of equal rows the first stays. Raises SizingError where a column is missing.

    >>> from kvlib.sweep import sweep
    >>> frame = sweep(["Qwen3-8B", "Llama-3.1-8B"], max_model_len=8192, available_bytes=[4 << 30, 2 << 30, 8 << 30])
    >>> line = pareto(frame)
    >>> print(line[["model", "available_bytes", "max_concurrency"]].to_string(index=False))
           model  available_bytes  max_concurrency
    Llama-3.1-8B       2147483648              2.0
    Llama-3.1-8B       4294967296              4.0
    Llama-3.1-8B       8589934592              8.0
    """
    if memory is None:
        memory = "gpus_bytes" if "gpus_bytes" in frame and frame["gpus_bytes"].notna().any() else "available_bytes"
    _has(frame, memory, requests, "outcome")
    passing = frame[(frame["outcome"] == "passes") & frame[memory].notna() & frame[requests].notna()]
    ordered = passing.sort_values([memory, requests], ascending=[True, False], kind="stable")
    best_so_far = ordered[requests].cummax().shift(fill_value=float("-inf"))
    return ordered[ordered[requests] > best_so_far]


def heat_map(frame: pd.DataFrame, value: str = "max_concurrency") -> pd.DataFrame:
    """A row for each GPU × tensor-parallel size: the value, whether it is ``refused``, its ``label``, and the reason.

    A refused cell keeps its value (what the division gives) where there is one; its label is "✕". Where memory is
    assumed, ``verdict`` is there too. Raises SizingError where a cell has several rows.

    >>> from kvlib.sweep import sweep
    >>> cells = heat_map(sweep("Qwen3-8B", ["L40S", "RTX 4090"], tensor_parallel_size=[1, 3]))
    >>> cells["refused"].tolist(), cells["label"].tolist()[1]
    ([False, True, True, True], '✕')
    """
    _has(frame, *CELL, value, "outcome", "reason")
    if frame.duplicated(list(CELL)).any():
        followers = {*CELL, "available_bytes"} if "verdict" in frame else set(CELL)  # an assumed memory follows the cell
        more = [name for name in frame.columns[:frame.columns.get_loc("num_gpus")]
                if name not in followers and frame[name].nunique(dropna=False) > 1] or ["the same set-up"]
        raise SizingError(f"a cell of GPU × tensor_parallel_size has several rows, because {' and '.join(more)} "
                          f"{'differs' if len(more) == 1 else 'differ'}; choose one of each first")
    kept = [*CELL, value, *(name for name in (f"{value}_low", f"{value}_high", "verdict") if name in frame), "outcome", "reason"]
    cells = frame[kept].reset_index(drop=True)
    cells["refused"] = (cells["outcome"] != "passes").astype(bool)
    shown = cells[value].map(lambda number: f"{number:.1f}x" if value.startswith("max_concurrency") else f"{number:,}",
                             na_action="ignore")
    cells["label"] = shown.astype(object).where(~cells["refused"], "✕")
    return cells


def _has(frame: pd.DataFrame, *names: str) -> None:
    for name in names:
        if name not in frame:
            raise SizingError(f"the frame has no column {name}; give one that sweep() returned")
