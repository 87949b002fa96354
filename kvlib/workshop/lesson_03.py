"""Exercises of notebook 03: blocks, tokens, requests."""

from kvlib import Engine, MemoryBudget, load_model, size
from kvlib.units import cdiv, gib
from kvlib.workshop.entry import entry, price

POOL = 42_600   # blocks of Qwen3-8B on the GB10
ODD = 1_000     # tokens of the longest request in 03.3


def _row_four(**flags):
    """Row 4 of the sweep note's program: Llama-3.1-8B, 24 GiB, 15 GiB of weights, 0.8 typed for the rest."""
    memory = MemoryBudget(gib(24), gib(15), non_torch_bytes=gib(0.8))
    return size(load_model("Llama-3.1-8B"), Engine(vllm_version="0.30", **flags), memory=memory)


def _eight():
    return _row_four().num_gpu_blocks // 8 * 16


def _eight_slips():
    tokens, over = _row_four().kv_cache_tokens, "it takes one block more, and eight times that is one block more than there are"
    return [(tokens // 8, f"{tokens:,} / 8, but that begins another block, and eight times as many are one too many"),
            (tokens // 8 + 1, over), (tokens // 8 + 2, over), (_eight() - 16, "one block more for each still fits"),
            (131_072 // 8, "that is an eighth of the model's longest request; divide the pool"),
            (_eight() // 16, "those are blocks; tokens are asked for")]


def _printed(length=ODD):
    pool = POOL * 16 * price("Qwen3-8B")
    return size(load_model("Qwen3-8B"), Engine(vllm_version="0.28", max_model_len=length), available_bytes=pool).kv_cache_tokens


def _printed_slips():
    each = cdiv(ODD, 16)
    return [(POOL * 16, "those are the slots of the pool; what is printed is requests × length, and each request takes whole blocks"),
            (POOL // each * ODD, "vLLM multiplies the fraction of a request back as well"),
            (int(POOL / (each - 1) * ODD), "a request's blocks are rounded down there; a block begun is a block taken"),
            (POOL // each, "those are requests; tokens are asked for"), (POOL / each, "those are requests; tokens are asked for"),
            (POOL * 16 // 4, "the 32 query heads are counted; only the 8 KV heads are kept")]


EXERCISES = (
    entry("03.1", "Eight at once", "fill the cell", "hard", 6,
          "tokens are divided where blocks should be",
          ("Eight requests share the pool, and each takes whole blocks.",
           "How many whole blocks may each have? Those, times 16 tokens."),
          ninety=True, expected=_eight, unit="tokens", because="401 blocks each, 3,208 of the 3,215.", slips=_eight_slips),
    entry("03.2", "Which heads are kept", "fill the cell", "easy", 2,
          "attention heads are counted for KV heads",
          ("Two fields of the file count heads. Only one of the two counts what is stored.",
           "Its name speaks of keys and values."),
          expected="num_key_value_heads", because="For Llama-3.1-8B it is 8, with 32 attention heads.",
          slips={"num_attention_heads": "those are the query heads, which leave nothing behind; keys and values are shared by several",
                 "head_dim": "that is the width of one head", "num_hidden_layers": "that counts layers, not heads",
                 "num_kv_heads": "nearly: that is how engines call it; which word stands in the file?"}),
    entry("03.3", "What will be printed", "predict", "medium", 5,
          "the printed tokens are taken for the slots of the pool",
          ("How many blocks does one request of 1,000 tokens take?",
           "blocks ÷ blocks of a request, times 1,000, the fraction cut off at the end."),
          ninety=True, expected=_printed, unit="tokens",
          because="63 blocks hold 1,008 slots; 8 of them stay empty in each request.", slips=_printed_slips),
)
