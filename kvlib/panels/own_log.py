"""The figures of a reader's own start-up log, solved for the one that no one can know before: the runtime reserve."""

from __future__ import annotations

import kvlib
from kvlib import Engine, SizingError
from kvlib.memory import requested_bytes
from kvlib.panels.budget_facts import HALF, VERSION, ends, interval
from kvlib.tables import Col, Table, html, table
from kvlib.units import GiB, gib


def own_log(*, model: str, total_gib: float, gpu_memory_utilization: float, weights_gib: float,
            non_kv_cache_gib: float | None = None, available_gib: float | None = None,
            max_model_len: int | None = None, **flags):
    """The reserve (GiB) and the cache of a launch, as a table, from what its log prints.

    Give what stands after "Total non KV cache memory" or, where the log has no such line, after "Available KV
    cache memory". ``flags`` are those of :class:`kvlib.Engine`. A figure that cannot be is answered by one
    sentence, never by a traceback.

    >>> mine = own_log(model="Qwen3-8B", total_gib=121.63, gpu_memory_utilization=0.92, weights_gib=15.27,
    ...                non_kv_cache_gib=18.29, max_model_len=40960)
    >>> mine.rows[0]["figure"], mine.rows[3]["figure"]
    ('3.02', '681,568 to 681,712')
    """
    try:
        return _solved(model, total_gib, gpu_memory_utilization, weights_gib, non_kv_cache_gib, available_gib,
                       max_model_len, flags)
    except SizingError as problem:
        return html('<p style="border-left:4px solid #D55E00;padding:2px 10px">{}</p>', problem)


def _solved(name, total, share, weights, non_kv, available, length, flags) -> Table:
    optional = {"non_kv_cache_gib": non_kv, "available_gib": available}
    for field, value in {"total_gib": total, "weights_gib": weights, **optional}.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e5
        if not number and not (value is None and field in optional):
            raise SizingError(f"{field} is {value!r}; type the number that the log prints before GiB, such as 18.29")
    if total <= 0:
        raise SizingError(f"total_gib is {total:g}; a GPU has more than none")
    if (non_kv is None) == (available is None):
        raise SizingError("give one of non_kv_cache_gib and available_gib, and leave the other at None")
    engine = Engine(**{"vllm_version": VERSION, "max_model_len": length, "gpu_memory_utilization": share, **flags})
    loaded = kvlib.load_model(name)
    share = kvlib.size(loaded, engine, available_bytes=0).plan.setup.gpu_memory_utilization
    asked = [requested_bytes(gib(value), share) / GiB for value in ends(total)]
    if non_kv is None:
        left, reserve, how = ends(available), sum(asked) / 2 - available - weights, "requested − available − weights"
    else:
        left = (asked[0] - non_kv - HALF, asked[1] - non_kv + HALF)
        reserve, how = non_kv - weights, "not cache − weights"
    sizes = [kvlib.size(loaded, engine, available_bytes=gib(value)) for value in left]
    tokens = [found.kv_cache_tokens for found in sizes]
    requests = [found.max_concurrency for found in sizes]
    rows = [("runtime reserve (GiB)", interval(reserve, reserve, 2), how),
            ("requested (GiB)", interval(*asked, 2), f"total × {share:g}, with its rounding"),
            ("left for the cache (GiB)", interval(*left, 2),
             "as printed" if non_kv is None else "requested − not cache"),
            ("tokens", interval(*tokens, 0), f"{loaded.name}, whole blocks"),
            (f"requests of {sizes[0].max_model_len:,} tokens", interval(*requests, 2), "printed with an x")]
    verdict = "passes vLLM's memory checks" if sizes[0].fits else \
        "too close to call within the rounding" if sizes[1].fits else "refused: one request of that length does not fit"
    return table([{"what": what, "figure": figure, "how": how} for what, figure, how in rows],
                 [Col("what"), Col("figure"), Col("how", "worked out as")], caption=f"Your launch: {verdict}")
