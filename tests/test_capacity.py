"""From memory to figures: the notes' numbers, refusals and their order, old prints, ranges."""
import pytest

import kvlib
from kvlib import Band, Engine, MemoryBudget, size

GiB = 1 << 30
QWEN, HYBRID, LLAMA8, LLAMA70, SMALL = (kvlib.load_model(name) for name in (
    "Qwen3-8B", "Qwen3.8-27B", "Llama-3.1-8B", "Llama-3.3-70B", "Qwen2.5-1.5B"))
NOTE = int(52.89 * GiB)
HYBRID_NOTE = dict(tensor_parallel_size=2, kv_cache_dtype="fp8", vllm_version="0.32")


@pytest.mark.parametrize("length, blocks, concurrency, tokens", [
    (8192, 12, "184.17", 1508693), (32768, 27, "81.85", 2682121), (132096, 91, "24.29", 3208045),
    (262144, 174, "12.70", 3329530)])
def test_table_2_of_the_hybrid_note(length, blocks, concurrency, tokens):
    sizing = size(HYBRID, Engine(**HYBRID_NOTE, max_model_len=length), available_bytes=NOTE)
    assert (sizing.num_gpu_blocks, sizing.blocks_per_request, f"{sizing.max_concurrency:.2f}",
            sizing.kv_cache_tokens) == (2210, blocks, concurrency, tokens)


@pytest.mark.parametrize("flags, block", [
    (dict(), 1568), (dict(kv_cache_dtype="auto"), 784), (dict(tensor_parallel_size=4), 1568),
    (dict(tensor_parallel_size=8), 784), (dict(num_speculative_tokens=3, speculative_method="mtp"), 1600),
    (dict(num_speculative_tokens=3, speculative_method="mtp", kv_cache_dtype="auto"), 800)])
def test_block_sizes_of_the_hybrid_note(flags, block):
    assert size(HYBRID, Engine(**{**HYBRID_NOTE, **flags}), available_bytes=NOTE).block_size == block


def test_mtp_adds_a_layer_rows_and_state_blocks():
    sizing = size(HYBRID, Engine(**HYBRID_NOTE, max_model_len=132096, num_speculative_tokens=3,
                                 speculative_method="mtp"), available_bytes=NOTE)
    assert (sizing.bytes_per_block, sizing.num_gpu_blocks, sizing.blocks_per_request, sizing.kv_cache_tokens) == \
        (27_852_800, 2038, 98, 2747057)


@pytest.mark.parametrize("model, total, share, dtype, tp, weights, blocks", [  # the sweep note's program
    (SMALL, 24, 0.92, "auto", 1, 2.9, 43019), (SMALL, 24, 0.50, "auto", 1, 2.9, 19426),
    (SMALL, 24, 0.92, "fp8", 1, 2.9, 86039), (LLAMA8, 24, 0.92, "auto", 1, 15.0, 3215),
    (LLAMA8, 80, 0.92, "auto", 1, 15.0, 29593), (LLAMA70, 80, 0.92, "auto", 2, 131.5, 2887),
    (LLAMA70, 80, 0.92, "auto", 4, 131.5, 32706)])
def test_the_programs_seven_rows(model, total, share, dtype, tp, weights, blocks):
    memory = MemoryBudget(total * GiB, round(weights * GiB / tp), non_torch_bytes=round(0.8 * GiB))
    engine = Engine(vllm_version="0.30", gpu_memory_utilization=share, kv_cache_dtype=dtype, tensor_parallel_size=tp)
    assert size(model, engine, memory=memory).num_gpu_blocks == blocks


@pytest.mark.parametrize("version, estimate", [("0.28", 51_680), ("0.29", 51_664), ("0.33", 51_664)])
def test_the_null_block_by_version(version, estimate):
    sizing = size(LLAMA8, Engine(vllm_version=version, max_model_len=131072), available_bytes=int(6.31 * GiB))
    assert sizing.outcome == "max_model_len" and sizing.estimated_max_model_len == estimate
    assert sizing.refusal.needed_gib == "16.0" and not sizing.fits
    assert str(estimate) in sizing.log_lines()[-1] and "KV cache size" not in "".join(sizing.log_lines())
    fitted = size(LLAMA8, Engine(vllm_version=version, max_model_len=-1), available_bytes=int(6.31 * GiB))
    assert fitted.max_model_len == estimate and fitted.fits


def test_a_pool_of_exactly_one_request():
    one = 32 * 16 * 147456
    for version, blocks, fits in (("0.28", 32, True), ("0.30", 32, False), ("0.30", 33, True)):
        sizing = size(QWEN, Engine(vllm_version=version, max_model_len=512), available_bytes=one // 32 * blocks)
        assert sizing.fits is fits


def test_the_older_print():
    old, new = (size(HYBRID, Engine(vllm_version=v, enable_prefix_caching=False, max_model_len=32768),
                     available_bytes=1487 * 16 * 784 * 4096) for v in ("0.19", "0.20.1"))
    assert (old.num_gpu_blocks, old.kv_cache_tokens, new.kv_cache_tokens) == (1487, 290864, 1082800)
    assert old.log_lines()[-2:] == ("GPU KV cache size: 290,864 tokens",
                                    "Maximum concurrency for 32,768 tokens per request: 33.04x")


def test_outcomes_in_the_order_in_which_vllm_fails():
    budget = dict(total_bytes=80 * GiB, weights_bytes=15 * GiB)
    assert size(LLAMA8, memory=MemoryBudget(**budget)).outcome == "passes"
    assert size(LLAMA8, memory=MemoryBudget(**budget, free_bytes=60 * GiB)).outcome == "free_memory"
    assert size(LLAMA70, memory=MemoryBudget(80 * GiB, 132 * GiB)).outcome == "weights_do_not_fit"
    assert size(LLAMA70, memory=MemoryBudget(80 * GiB, 78 * GiB)).outcome == "no_cache_memory"
    assert size(LLAMA8, memory=MemoryBudget(20 * GiB, 15 * GiB)).outcome == "max_model_len"
    few = size(HYBRID, Engine(**HYBRID_NOTE, max_num_seqs=1024), available_bytes=900 * 25_690_112)
    assert few.outcome == "max_num_seqs" and "1024" in few.log_lines()[-1] and "(900)" in few.log_lines()[-1]
    assert size(HYBRID, Engine(**HYBRID_NOTE, max_num_seqs=1024, enforce_eager=True),
                available_bytes=900 * 25_690_112).fits
    assert size(HYBRID, Engine(**HYBRID_NOTE), available_bytes=900 * 25_690_112).fits


@pytest.mark.parametrize("available", [0, -1, -50 * GiB])
def test_nothing_left_is_an_outcome_and_not_an_error(available):
    sizing = size(QWEN, available_bytes=available)
    assert (sizing.outcome, sizing.num_gpu_blocks, sizing.kv_cache_tokens, sizing.estimated_max_model_len) == \
        ("no_cache_memory", 0, 0, 0)
    assert sizing.headroom_bytes < 0 and sizing.steps()


def test_refused_launches_still_say_what_the_division_gives():
    sizing = size(LLAMA8, Engine(max_model_len=131072), available_bytes=int(6.28 * GiB))
    assert (sizing.num_gpu_blocks, sizing.kv_cache_tokens, f"{sizing.max_concurrency:.2f}") == (3215, 51440, "0.39")


def test_exactly_one_source_of_memory():
    memory = MemoryBudget(80 * GiB, 15 * GiB)
    for given in (dict(), dict(available_bytes=GiB, memory=memory), dict(available_bytes=[GiB, GiB]),
                  dict(available_bytes=1.5), dict(available_bytes=True)):
        with pytest.raises(kvlib.EngineError) as caught:
            size(QWEN, Engine(), **given)
        assert caught.value.flag == "available_bytes"
    fixed = size(QWEN, Engine(kv_cache_memory_bytes=10 * GiB), memory=memory)
    assert fixed.available_bytes == 10 * GiB
    assert size(QWEN, Engine(num_gpu_blocks_override=5000), available_bytes=GiB).num_gpu_blocks == 5000


def test_uneven_stages_take_the_smallest():
    sizing = size(QWEN, Engine(pipeline_parallel_size=2, max_model_len=32768), available_bytes=[20 * GiB, 18 * GiB])
    assert sizing.num_gpu_blocks == min(stage.num_blocks for stage in sizing.stages) == sizing.stages[1].num_blocks
    assert [stage.layers for stage in sizing.stages] == [18, 18]
    assert [s.layers for s in size(HYBRID, Engine(pipeline_parallel_size=3), available_bytes=9 * GiB).stages] == [21, 22, 21]


@pytest.mark.parametrize("name, flags, expected", [
    ("gpt-oss-120b", {}, 36_864), ("DeepSeek-V3", {}, 70_272), ("DeepSeek-V3", dict(tensor_parallel_size=8), 70_272),
    ("Qwen3.8-27B", dict(tensor_parallel_size=2, kv_cache_dtype="fp8"), 16_384),
    ("Qwen3.8-27B", dict(tensor_parallel_size=2, kv_cache_dtype="fp8", num_speculative_tokens=3,
                         speculative_method="mtp"), 17_408),
    ("Qwen2.5-1.5B", dict(tensor_parallel_size=4), 14_336), ("Qwen2.5-1.5B", dict(tensor_parallel_size=2), 14_336),
    ("Llama-3.3-70B", dict(tensor_parallel_size=16), 40_960), ("DeepSeek-V3.2", {}, 61 * (1152 + 132)),
    ("DeepSeek-V3.2", dict(kv_cache_dtype="fp8"), 61 * (656 + 132)), ("Qwen3-8B", dict(pipeline_parallel_size=2), 73_728)])
def test_bytes_per_token(name, flags, expected):
    assert kvlib.bytes_per_token(kvlib.load_model(name), Engine(**flags)) == expected


def test_ranges_run_from_the_least_cache_to_the_most():
    memory = MemoryBudget(80 * GiB, 15 * GiB, Band(GiB, 2 * GiB, 4 * GiB, "rows"), Band(0, GiB, 2 * GiB, "rows"))
    low, typical, high = kvlib.size_range(LLAMA8, memory=memory)
    spread = [high.available_bytes - typical.available_bytes, typical.available_bytes - low.available_bytes]
    assert spread == [2 * GiB, 3 * GiB] and memory.assumed == ("peak_activation_bytes", "non_torch_bytes")
    assert size(LLAMA8, memory=memory).available_bytes == typical.available_bytes
    assert {step.kind for step in size(LLAMA8, memory=memory).steps() if step.name == "kv_cache_tokens"} == {"assumed"}


def test_bad_budgets():
    for wrong in (dict(total_bytes=0, weights_bytes=1), dict(total_bytes=1.5, weights_bytes=1),
                  dict(total_bytes=GiB, weights_bytes=None), dict(total_bytes=GiB, weights_bytes=True)):
        with pytest.raises(kvlib.SizingError, match="_bytes is"):
            MemoryBudget(**wrong)
    with pytest.raises(kvlib.SizingError, match="rise from low to high"):
        Band(2, 1, 3)


def test_graphs_are_subtracted_only_where_vllm_does():
    memory = MemoryBudget(80 * GiB, 15 * GiB, cuda_graph_bytes=GiB)
    sizes = {version: size(LLAMA8, Engine(vllm_version=version, gpu_memory_utilization=0.9), memory=memory).available_bytes
             for version in ("0.19", "0.20")}
    assert sizes["0.19"] - sizes["0.20"] == GiB
    eager = size(LLAMA8, Engine(vllm_version="0.33", enforce_eager=True, gpu_memory_utilization=0.9), memory=memory)
    assert eager.available_bytes == sizes["0.19"]


def test_per_engine_and_fleet():
    sizing = size(QWEN, Engine(data_parallel_size=4), available_bytes=10 * GiB)
    assert sizing.fleet_kv_cache_tokens == 4 * sizing.kv_cache_tokens


def test_a_length_beyond_the_model_is_said():
    sizing = size(QWEN, Engine(max_model_len=100_000), available_bytes=60 * GiB)
    assert any("VLLM_ALLOW_LONG_MAX_MODEL_LEN" in note for note in sizing.notes)


@pytest.mark.parametrize("sliding, members, bytes_per_block", [
    (15, [8, 7, 10], 10),   # exactly 1.5 times as many: not merged
    (14, [14, 10], 14),     # less than 1.5 times: one group, four of its pages empty
])
def test_kinds_are_grouped_together_below_one_and_a_half(sliding, members, bytes_per_block):
    """rules.md, from specs to groups, step e."""
    heads = dict(num_kv_heads=8, head_dim=128)
    mixed = kvlib.from_layers([dict(kind="sliding", count=sliding, sliding_window=1024, **heads),
                               dict(kind="full", count=10, **heads)], max_position_embeddings=32768)
    sizing = kvlib.size(mixed, available_bytes=8 << 30)
    assert sorted(group.layers for group in sizing.groups) == sorted(members)
    assert sizing.bytes_per_block == bytes_per_block * 16 * 8 * 256 * 2


@pytest.mark.parametrize("available_bytes", [0, -1])
def test_no_memory_at_all_is_an_outcome_of_its_own(available_bytes):
    """design.md, API rules, Memory: zero or less."""
    sizing = kvlib.size(kvlib.load_model("Qwen3-8B"), available_bytes=available_bytes)
    assert (sizing.outcome, sizing.num_gpu_blocks) == ("no_cache_memory", 0)
