"""Which controls have a static twin, and which settings each offers."""

from __future__ import annotations

from kvlib.panels.budget_facts import cards
from kvlib.panels.memory_budget import OPENS
from kvlib.website.twins import Twin

LENGTHS = [1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072]


def card_and_reserve(values: dict) -> dict:
    """The memory that the chosen GPU's driver reports, and the reserve of the calculator's start where it is a typed one."""
    typed = {"reserve_gib": OPENS["reserve_gib"]} if values["reserve_from"] == OPENS["reserve_from"] else {}
    return {"total_gib": cards()[values["gpu"]].reported_gib} | typed


def with_defaults(values, *more) -> list:
    return sorted({*values, *more})


TWINS = (
    Twin("00_start_here", "start_here", "FirstLine",
         {"max_model_len": with_defaults(range(1024, 131_073, 512))},
         "every length in between, your guess in the picture, and the same for a GPU and a model of your own"),
    Twin("02_memory_budget", "memory_budget", "Calculator", {
        "model": ["Qwen3-8B", "gpt-oss-120b", "Llama-3.1-8B", "Llama-3.3-70B", "Qwen3-30B-A3B", "Gemma-3-27b"],
        "gpu": ["GB10 (DGX Spark)", "H100 SXM 80GB", "A100 80GB SXM", "H200 SXM 141GB", "L4", "RTX 4090"],
        "max_model_len": [2048, 4096, 8192, 16384, 32768, 40960, 131072], "kv_cache_dtype": None,
        "gpu_memory_utilization": [0.5, 0.85, 0.92, 0.95], "reserve_from": None},
        "every model and GPU on file, a typed reserve other than 3 GiB, other weights, several GPUs, any length and share",
        card_and_reserve, ("start",)),
    Twin("03_blocks_and_tokens", "blocks_and_tokens", "PageAndBlock",
         {"model": None, "block_size": None, "kv_cache_dtype": None}, "your guess in the picture"),
    Twin("03_blocks_and_tokens", "blocks_and_tokens", "WorstCase",
         {"average_tokens": with_defaults([*range(500, 5001, 250), *range(6000, 16001, 1000)], 512, 2000),
          "max_model_len": [2048, 4096, 8192, 16384, 32768]}, "every length in between, and your guess in the picture"),
    Twin("03_blocks_and_tokens", "blocks_and_tokens", "Planning", {
        "p95_tokens": with_defaults([512, 1024, 2048, 4096, 8192, 16384, 32768, 65536], 8000),
        "max_num_seqs": [8, 16, 32, 64, 128, 256, 512, 1024],
        "kv_cache_tokens": with_defaults([32768, 131072, 262144, 524288, 1048576, 4194304], 681_600)},
        "every value in between, and your guess in the picture"),
    Twin("04_tensor_parallelism", "tensor_parallelism", "SplitModel", {
        "model": ["Llama-3.3-70B", "Llama-3.1-8B", "Qwen3-8B", "Qwen3-235B-A22B", "gpt-oss-120b", "DeepSeek-V3"],
        "gpu": ["H100 SXM 80GB", "A100 80GB SXM", "H200 SXM 141GB", "RTX 4090"],
        "tensor_parallel_size": None, "max_model_len": LENGTHS, "kv_cache_dtype": None},
        "more models, every GPU on file, any length, and your guess in the picture"),
    Twin("04_tensor_parallelism", "tensor_parallelism", "DealtHeads", {"model": None, "tensor_parallel_size": None},
         "your guess in the picture"),
    Twin("08_hybrid_block_pool", "hybrid_block_pool", "OnePage", {
        "tensor_parallel_size": None, "kv_cache_dtype": None, "num_speculative_tokens": list(range(8)),
        "enable_prefix_caching": None, "gpu": None}, "your guess in the picture"),
    Twin("08_hybrid_block_pool", "hybrid_block_pool", "SizeAgainstLength", {
        "max_model_len": with_defaults([*LENGTHS, 262_144], 132_096), "available_gib": [5, 10, 20, 30, 40, 52.89, 60],
        "kv_cache_dtype": None, "enable_prefix_caching": None, "num_speculative_tokens": [0, 1, 2]},
        "every length and size of memory in between, more draft tokens, and your guess in the picture"),
)
