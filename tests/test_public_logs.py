"""Figures of public logs, rebuilt as log text and explained: how many come out, and why each other one does not."""
import json
from pathlib import Path

import pytest

from kvlib import Engine, catalog, explain, from_layers, load_model, read_log
from kvlib.errors import SizingError

FILE = Path(__file__).resolve().parent.parent / "data" / "logs" / "public_logs.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def version_of(row):
    """The first number of what is known of the version; what is older is explained by the rules of 0.18."""
    number = (row["vllm_version"] or "0.28").split()[0].split("-")[0].replace(".x", ".0")
    if not number.startswith("0."):
        number = "0.28"
    return number


def model_of(row):
    try:
        return load_model(catalog.model_name(row["model"]))
    except SizingError:
        pass
    a, kind = row["arch"], row["arch"]["kind"]
    full = dict(kind="full", num_kv_heads=a["kv_heads"], head_dim=a["head_dim"], count=a.get("full_layers", a["layers"]))
    if kind == "dense":
        layers = [full]
    elif kind == "mla":
        layers = [dict(kind="mla", count=a["layers"], kv_lora_rank=a["kv_lora_rank"], qk_rope_head_dim=a["qk_rope_head_dim"])]
    elif kind == "sliding":
        layers = [dict(full, kind="sliding", count=1, sliding_window=a["sliding_window"]), dict(full, count=1)] * a["full_layers"]
    elif kind == "gdn-hybrid":
        state = dict(kind="gdn", linear_num_key_heads=a["gdn_k_heads"], linear_num_value_heads=a["gdn_v_heads"],
                     linear_key_head_dim=a["gdn_k_dim"], linear_value_head_dim=a["gdn_v_dim"],
                     linear_conv_kernel_dim=a["conv_kernel"], count=a["state_layers"])
        layers = [state, full]
    else:  # Granite 4.0 H: Mamba-2
        state = dict(kind="mamba2", count=a["state_layers"], num_heads=a["mamba_heads"], head_dim=a["mamba_head_dim"],
                     state_size=a["mamba_state"], n_groups=a["mamba_groups"], conv_kernel=a["conv_kernel"],
                     intermediate_size=a["mamba_heads"] * a["mamba_head_dim"])
        layers = [state, full]
    draft = [dict(full, count=1)] if row["speculative"] else []
    return from_layers(layers, draft_layers=draft, max_position_embeddings=262144,
                       mamba_ssm_dtype={4: "float32"}.get(a.get("ssm_bytes")))


def engine_of(row):
    drafts = dict(speculative_method="mtp", num_speculative_tokens=int(row["speculative"].split()[1])) if row["speculative"] else {}
    return Engine(vllm_version=version_of(row), tensor_parallel_size=row["tensor_parallel"], max_model_len=row["max_model_len"],
                  kv_cache_dtype=row["kv_cache_dtype"], enable_prefix_caching=row["prefix_caching"] is not False,
                  decode_context_parallel_size=row["dcp"] or 1, **drafts)


def log_of(row):
    """The lines that hold the row's figures, as its release words them."""
    lines = [f"INFO Available KV cache memory: {row['available_kv_gib']} GiB"]
    if row["attention_block_size_logged"]:
        lines.append(f"INFO Setting attention block size to {row['attention_block_size_logged']} tokens to ensure that")
    if row["num_gpu_blocks"]:
        lines.append(f"INFO # GPU blocks: {row['num_gpu_blocks']}, # CPU blocks: 0")
    if row["kv_tokens"] and not row["kv_tokens_from_blocks"]:
        lines.append(f"INFO GPU KV cache size: {row['kv_tokens']:,} tokens")
    if row["max_concurrency"]:
        lines.append(f"INFO Maximum concurrency for {row['max_concurrency_len']:,} tokens per request: {row['max_concurrency']}x")
    if row["needed_gib"]:
        lines.append(f"ValueError: To serve at least one request with the model's max seq len ({row['needed_len']}), "
                     f"({row['needed_gib']} GiB KV cache is needed, which is larger than the available KV cache memory "
                     f"({row['available_kv_gib']} GiB). Based on the available memory, the estimated maximum model length is "
                     f"{row['estimated_max_len']}. Try increasing")
    return "\n".join(lines)


# What does not come out, and why.
MISSED = {
    "fs-62458215816": "the row's config is from memory and says a state in float32; with bfloat16 and prefix caching off, its "
                      "default then, both figures come out",
    "hfmem-60": "its version is not known, only the month; the print of 0.20.0 and before gives the figure",
    "tpu-223": "a TPU, which the rules do not cover: 5,632 tokens are 44 blocks of 128, from 0.69 GiB",
}


def explained(row):
    return explain(read_log(log_of(row)), model=model_of(row), engine=engine_of(row))


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_public_log(row):
    x = explained(row)
    assert x.lines and all(line.verdict != "not checked" for line in x.lines)
    assert x.verdict in (["off"] if row["id"] in MISSED else ["exact", "within rounding"])
    if x.verdict == "off":
        assert all(line.reason for line in x.lines)


def test_how_many_come_out():
    """Those for which a fact of the set-up was fitted to the figures prove less, and are counted apart."""
    plain, fitted = ([row for row in ROWS if bool(row["fitted_facts"]) is with_fitted] for with_fitted in (False, True))
    assert [sum(row["id"] not in MISSED for row in rows) for rows in (plain, fitted)] == [9, 4]
    assert (len(plain), len(fitted)) == (11, 5)


def test_a_wrong_row_is_told_what_would_be_right():
    x = explained(next(row for row in ROWS if row["id"] == "fs-62458215816"))
    assert all("prefix caching off together with a recurrent state in bfloat16" in line.reason for line in x.lines)
