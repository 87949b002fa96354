"""Every figure of the notes that has an exact value, worked out again from configs, flags and memory.

A row is never compared with itself: what stands here is the set-up, and kvlib works out the figure.
"""

import json
from pathlib import Path

import pytest

import kvlib
from kvlib import catalog
from kvlib.scoreboard import (COMPUTED, GB10_POOL, HYBRID_POOL, LLAMA_8B, PROGRAM, attention_page, engine, gb10, hybrid,
                              model, per_token, score)
from kvlib.units import GiB, KiB, cdiv, gib


def test_every_row_with_an_exact_value_is_worked_out():
    assert {row["id"] for row in catalog.note_rows() if row["exact"]} == set(COMPUTED)


@pytest.mark.parametrize("row_id", COMPUTED)
def test_a_row_comes_out_exactly(row_id):
    """Equal as integers; a decimal to the last digit of the row."""
    found = score(catalog.note_row(row_id))
    assert found.verdict == "equal", f"{row_id}: {found.ours} instead of {found.row['exact']}"


NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


@pytest.mark.parametrize("name", sorted({row["notebook"] for row in catalog.note_rows()}))
def test_every_row_has_its_cells_in_the_notebook_it_names(name):
    cells = {cell["id"] for cell in json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))["cells"]}
    named = {cell for row in catalog.note_rows() if row["notebook"] == name for cell in row["cell"].split()}
    assert named and named <= cells, named - cells


def test_a_wrong_figure_would_be_seen():
    """The comparison itself can fail."""
    row = dict(catalog.note_row("A39"), exact="681616")
    assert score(row).verdict == "differs" and score(row).difference == -16


# What the remarks add


@pytest.mark.parametrize("available", HYBRID_POOL)
def test_b40_holds_over_the_rounding_of_the_printed_memory(available):
    assert (hybrid(available).num_gpu_blocks, hybrid(available).kv_cache_tokens) == (2_210, 3_208_045)


def test_a39_the_printed_memory_allows_a_little_more_than_was_printed():
    low, high = gb10(gib(93.605)), gb10(gib(93.615) - 1)
    assert (low.kv_cache_tokens, high.kv_cache_tokens, low.num_gpu_blocks) == (681_600, 681_680, 42_600)
    assert gb10(GB10_POOL[1]).kv_cache_tokens == 681_600


def test_a42_and_a43_as_the_log_would_print_them():
    shorter = gb10(max_model_len=8_192)
    assert (shorter.kv_cache_tokens, f"{shorter.max_concurrency:.2f}") == (681_600, "83.20")
    both = [gb10(end, kv_cache_dtype="fp8") for end in GB10_POOL]
    assert {(sizing.kv_cache_tokens, f"{sizing.max_concurrency:.2f}") for sizing in both} == {(1_363_216, "33.28")}
    assert gb10(gib(93.61), kv_cache_dtype="fp8").kv_cache_tokens == 1_363_280


def test_a44_a_request_is_charged_more_than_the_growth():
    charged = {length: kvlib.size(model("gpt-oss-120b"), engine(max_model_len=length, max_num_batched_tokens=8_192),
                                  available_bytes=32 * GiB).needed_bytes / length / KiB for length in (8_192, 131_072)}
    assert {length: round(kib, 1) for length, kib in charged.items()} == {8_192: 72.1, 131_072: 40.5}


def test_b26_mtp_widens_the_block():
    drafts = hybrid(speculative_method="mtp", num_speculative_tokens=3)
    assert drafts.bytes_per_block == 17 * attention_page(drafts).page_size_bytes
    assert (drafts.num_gpu_blocks, drafts.blocks_per_request, drafts.kv_cache_tokens) == (2_038, 98, 2_747_057)


def test_b27_holds_up_to_the_number_of_kv_heads():
    assert hybrid(tensor_parallel_size=8).block_size == 784


def test_b31_newer_releases_keep_more_on_hopper():
    newer = hybrid(vllm_version="0.33", gpu="H100 SXM", max_model_len=8_192)
    assert (newer.block_size, newer.blocks_per_request) == (1_600, cdiv(8_192, 1_600) + 9)


def test_b42_without_prefix_caching():
    without = hybrid(enable_prefix_caching=False)
    assert (f"{without.max_concurrency:.2f}", without.kv_cache_tokens) == ("25.11", 3_317_410)


def test_c31_the_two_printed_figures_do_not_belong_together():
    for version, estimates in {"0.28": (51_680, 51_440), "0.30": (51_664, 51_424)}.items():
        found = tuple(kvlib.size(model("Llama-3.1-8B"), engine(vllm_version=version),
                                 available_bytes=available).estimated_max_model_len
                      for available in (gib(6.31), LLAMA_8B.size().available_bytes))
        assert found == estimates
    ends = [kvlib.size(model("Llama-3.1-8B"), engine(), available_bytes=gib(value)).estimated_max_model_len
            for value in (6.305, 6.315)]
    assert ends[0] == 51_648 and ends[1] in (51_712, 51_728)


def test_c40_past_the_kv_heads_nothing_is_split():
    assert [per_token("Qwen2.5-1.5B", tensor_parallel_size=tp) for tp in (1, 2, 4)] == [28_672, 14_336, 14_336]
    assert per_token("DeepSeek-V3", tensor_parallel_size=8) == per_token("DeepSeek-V3")
    with pytest.raises(kvlib.EngineError, match="must divide"):
        per_token("Qwen2.5-1.5B", tensor_parallel_size=5)


def test_c60_to_c66_as_the_program_prints_them():
    lines = []
    for card, flags in PROGRAM:
        sizing = card.size(**flags)
        kib = per_token(card.name, tensor_parallel_size=card.tensor_parallel_size,
                        kv_cache_dtype=flags.get("kv_cache_dtype", "auto")) / KiB
        lines.append(f"{kib:.1f} KiB, {sizing.available_bytes / GiB:.1f} GiB, {sizing.kv_cache_tokens}, "
                     f"{sizing.max_concurrency:.1f}x")
    for number, line in enumerate(lines):
        assert catalog.note_row(f"C6{number}")["printed"].split(" at ")[0] == line


def test_c70_by_whole_blocks():
    by_length = {length: LLAMA_8B.size(max_model_len=length) for length in (6_416, 6_417, 6_430)}
    assert by_length[6_416].max_concurrency >= 8 > by_length[6_417].max_concurrency
    assert f"{by_length[6_430].max_concurrency:.4f}" == "7.9975"


# What was measured, against the log


@pytest.mark.parametrize("row_id", ["A31", "A32", "A33", "A34", "A35", "A36", "A37", "A39", "A40"])
def test_a_measured_figure_stands_in_the_log(row_id):
    assert catalog.note_row(row_id)["printed"] in catalog.log_text("qwen3-8b-gb10")


@pytest.mark.parametrize("row_id", ["B01", "B02", "B03"])
def test_a_figure_of_the_hybrid_stands_in_its_log(row_id):
    assert catalog.note_row(row_id)["printed"] in catalog.log_text("qwen3.8-27b-hybrid")


def test_the_prints_that_are_not_the_exact_figure_are_named():
    """Read off the notes: 6.31 GiB beside 51,440 is their one print that no rounding explains."""
    by_print = {}
    for row in catalog.note_rows():
        by_print.setdefault(score(row).against_print, set()).add(row["id"])
    assert by_print["off"] == {"C31"} and by_print["not printed"] == {"A42", "A43", "A50", "C70"}
    assert {"C34", "A46", "A48", "B10", "A14"} <= by_print["rounded"] and {"A39", "B02", "C32"} <= by_print["equal"]
