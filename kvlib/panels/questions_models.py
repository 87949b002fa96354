"""Notebook 11, questions 6, 11, 13 and 14: windows, hybrids, an FP8 cache, and many GPUs.

Figures that a log printed are constants here and underlined where they are shown; all else is computed.
"""

from __future__ import annotations

from kvlib.capacity import bytes_per_token, size
from kvlib.engine import Engine
from kvlib.errors import SizingError
from kvlib.panels.question_base import HYBRID_GIB, log, model, outcome, right, sized
from kvlib.tables import Col, Table, table
from kvlib.units import GiB


def window_table(available_gib=20, lengths=(8_192, 131_072), batches=(2_048, 8_192, 16_384)) -> Table:
    """gpt-oss-120b: printed tokens by max_num_batched_tokens and length."""
    rows = []
    for batched in batches:
        row = {"batched": batched}
        for length in lengths:
            s = sized("gpt-oss-120b", available_gib, max_model_len=length, max_num_batched_tokens=batched)
            full, window = (next(g.blocks_per_request for g in s.groups if g.kind == kind) for kind in ("full", "sliding"))
            row |= {str(length): s.kv_cache_tokens, f"blocks {length}": f"{full:,} + {window:,}"}
        rows.append(row)
    columns = [Col("batched", "max_num_batched_tokens")]
    for length in lengths:
        columns += [Col(f"blocks {length}", f"{length:,} tokens: blocks, full + window"), Col(str(length), "printed tokens")]
    return table(rows, columns, caption=f"gpt-oss-120b, {available_gib} GiB, vLLM 0.33")


REPORT_11 = ((184, 256), (969, 1_024), (161, 256))  # blocks in the pool, max_num_seqs: three refusals


def hybrid_blocks() -> Table:
    """The lines a hybrid prints, from its state and its token."""
    rows = []
    for flags in (
        {"kv_cache_dtype": "fp8", "tensor_parallel_size": 2},
        {"tensor_parallel_size": 2},
        {"tensor_parallel_size": 1},
        {"kv_cache_dtype": "fp8", "tensor_parallel_size": 2, "num_speculative_tokens": 3, "speculative_method": "mtp"},
    ):
        s = sized("Qwen3.8-27B", 1, gpu="A100 80GB SXM", max_model_len=8_192, **flags)
        state = next(spec.unpadded_bytes for group in s.groups if not group.is_attention for spec, _ in group.specs)
        page = s.groups[0].page_size_bytes
        token = page // s.block_size
        said = [
            "FP8 cache" if "kv_cache_dtype" in flags else "16 bits",
            f"TP {flags['tensor_parallel_size']}",
            "MTP, 3 drafts" * ("num_speculative_tokens" in flags),
        ]
        rows.append(
            {
                "set": ", ".join(filter(None, said)),
                "state": state,
                "token": token,
                "ratio": f"{state / token:,.1f}",
                "block": s.block_size,
                "padding": f"{100 * (page - state) / state:.2f} %",
                "states": sum(g.blocks_per_request for g in s.groups if not g.is_attention),
            }
        )
    return table(
        rows,
        [
            Col("set", "Qwen3.8-27B", "text"),
            Col("state", "a state", unit="B"),
            Col("token", "a token, one layer", unit="B"),
            Col("ratio", "state ÷ token"),
            Col("block", "attention block size"),
            Col("padding", "state padded by"),
            Col("states", "blocks of state a request"),
        ],
    )


def too_many(blocks=184, max_num_seqs=(256, 184), name="Qwen3.8-27B") -> Table:
    """A pool of that many blocks, and how many sequences vLLM lets it be asked for."""
    each = sized(name, 1, max_model_len=8_192).bytes_per_block
    rows = []
    for seqs, eager in (*((number, False) for number in max_num_seqs), (max_num_seqs[0], True)):
        s = size(
            model(name),
            Engine(max_model_len=8_192, max_num_seqs=seqs, enforce_eager=eager, gpu="L40S"),
            available_bytes=blocks * each,
        )
        rows.append(
            {
                "do": f"--max-num-seqs {seqs}" + " --enforce-eager" * eager,
                "outcome": outcome(s),
                "fit": (s.num_gpu_blocks - 1) // s.plan.blocks_per_request(100),
            }
        )
    return table(
        rows,
        [Col("do", "launch", "text"), Col("outcome", fmt="text"), Col("fit", "chats of 100 tokens that fit")],
        caption=f"{name}, one GPU, 16 bits: {blocks} blocks, {blocks * each / GiB:.2f} GiB",
    )


def fp8_gain(
    cases=(
        ("Qwen3-8B", 40_960, 93.605, {}),
        ("Qwen3.8-27B", 132_096, HYBRID_GIB, {"tensor_parallel_size": 2, "gpu": "A100 80GB SXM"}),
        ("Qwen3.8-27B", 8_192, HYBRID_GIB, {"tensor_parallel_size": 2, "gpu": "A100 80GB SXM"}),
    ),
) -> Table:
    """Printed tokens with 16 and with 8 bits, from the same memory."""
    rows = []
    for name, length, gib, flags in cases:
        was, now = (sized(name, gib, max_model_len=length, kv_cache_dtype=dtype, **flags) for dtype in ("auto", "fp8"))
        state = sum(group.blocks_per_request for group in now.groups if not group.is_attention)
        rows.append(
            {
                "model": name,
                "length": length,
                "was": was.kv_cache_tokens,
                "now": now.kv_cache_tokens,
                "times": f"{now.kv_cache_tokens / was.kv_cache_tokens:.2f}x",
                "why": f"{was.blocks_per_request} → {now.blocks_per_request} blocks a request, {state} of them states"
                if state
                else "all of the cache is halved",
            }
        )
    return table(
        rows,
        [
            Col("model", fmt="text"),
            Col("length", "max_model_len"),
            Col("was", "16 bits"),
            Col("now", "FP8"),
            Col("times", "gain"),
            Col("why", fmt="text"),
        ],
        caption="Printed tokens, same memory",
    )


REPORT_14 = {"available": 46.80, "tp": 715_072, "dcp": 5_721_088}  # Kimi-K2 on eight GPUs


def split(names=("Llama-3.1-70B", "Qwen3-30B-A3B", "DeepSeek-V3"), sizes=(1, 2, 4, 8, 16)) -> Table:
    """Bytes of one token on each GPU, over tensor parallelism."""
    rows = []
    for name in names:
        row = {"model": f"{name}, {model(name).num_key_value_heads or 'one latent row for all'} KV heads"}
        for tp in sizes:
            try:
                row[str(tp)] = bytes_per_token(model(name), Engine(tensor_parallel_size=tp))
            except SizingError:
                row[str(tp)] = None
        rows.append(row)
    return table(
        rows,
        [Col("model", fmt="text"), *(Col(str(tp), f"TP {tp}") for tp in sizes)],
        caption="Bytes of one token on each GPU, 16 bits",
    )


def eight_gpus(name="Kimi-K2", available_gib=REPORT_14["available"]) -> Table:
    """Eight GPUs with the same memory left: one split model, the context split too, eight copies."""
    rows = []
    for said, flags, printed in (
        ("-tp 8", {"tensor_parallel_size": 8}, REPORT_14["tp"]),
        (
            "-tp 8 --decode-context-parallel-size 8",
            {"tensor_parallel_size": 8, "decode_context_parallel_size": 8},
            REPORT_14["dcp"],
        ),
        ("--data-parallel-size 8", {"data_parallel_size": 8}, None),
    ):
        low, high = (
            sized(
                name,
                available_gib + step,
                max_model_len=131_072,
                block_size=16,
                vllm_version="0.28",
                attention_backend="FLASH_ATTN_MLA",
                **flags,
            )
            for step in (-0.005, 0.0049)
        )
        rows.append(
            {
                "flags": said,
                "engine": f"{low.kv_cache_tokens:,} to {high.kv_cache_tokens:,}",
                "log": log(f"{printed:,}") if printed else "–",
                "all": f"{low.fleet_kv_cache_tokens / 1e6:.2f} million",
            }
        )
    return right(
        table(
            rows,
            [
                Col("flags", fmt="text"),
                Col("engine", "tokens an engine prints"),
                Col("log", "a log printed"),
                Col("all", "all eight GPUs"),
            ],
            caption=f"{name}, {available_gib:.2f} GiB left on each of eight GPUs",
        )
    )
