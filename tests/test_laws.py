"""Laws that hold whatever the numbers: what more memory, longer requests and more GPUs can and cannot do."""
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

import kvlib
from kvlib.units import cdiv

GiB = 1 << 30
NAMES = ("Qwen3-8B", "Qwen3-30B-A3B", "gpt-oss-120b", "gpt-oss-20b", "DeepSeek-V3", "Llama-3.1-8B", "Llama-3.3-70B",
         "Qwen2.5-1.5B", "Qwen3.8-27B", "Qwen3-Next-80B-A3B")
MODELS = {name: kvlib.load_model(name) for name in NAMES}
models = st.sampled_from(NAMES).map(MODELS.get)
memories = st.integers(1, 600 * GiB)
lengths = st.integers(1, 300_000)
versions = st.sampled_from(["0.18", "0.20.0", "0.20.1", "0.25", "0.28", "0.29", "0.30", "0.32", "0.33"])


def engines(**fixed):
    free = dict(vllm_version=versions, max_model_len=lengths, kv_cache_dtype=st.sampled_from(["auto", "fp8"]),
                enable_prefix_caching=st.booleans(), max_num_batched_tokens=st.integers(1024, 65_536))
    return st.builds(lambda **flags: kvlib.Engine(**flags), **{**free, **fixed})


@given(models, engines(), memories, memories)
def test_more_memory_never_means_fewer_blocks(model, engine, one, other):
    less, more = sorted((one, other))
    small, large = (kvlib.size(model, engine, available_bytes=each) for each in (less, more))
    assert small.num_gpu_blocks <= large.num_gpu_blocks
    assert small.kv_cache_tokens <= large.kv_cache_tokens
    assert small.estimated_max_model_len <= large.estimated_max_model_len
    assert large.fits or not small.fits


@given(models, engines(), memories)
def test_the_pool_is_never_larger_than_the_memory(model, engine, available):
    sizing = kvlib.size(model, engine, available_bytes=available)
    used = sizing.num_gpu_blocks * sizing.bytes_per_block
    assert used <= available < used + sizing.bytes_per_block


@given(models, engines(), memories)
def test_what_fits_has_headroom_and_what_does_not_has_none(model, engine, available):
    sizing = kvlib.size(model, engine, available_bytes=available)
    assert sizing.fits == (sizing.headroom_bytes >= 0)
    assert (sizing.refusal is None) == sizing.fits


@given(models, engines(), memories)
def test_the_estimate_is_the_longest_that_passes(model, engine, available):
    sizing = kvlib.size(model, engine, available_bytes=available)
    longest = sizing.estimated_max_model_len
    assert 0 <= longest <= sizing.max_model_len
    if longest:
        assert kvlib.size(model, engine.replace(max_model_len=longest), available_bytes=available).fits
    if longest < sizing.max_model_len:
        assert not kvlib.size(model, engine.replace(max_model_len=longest + 1), available_bytes=available).fits


@given(models, st.sampled_from([1, 2, 4, 8]), engines())
def test_more_gpus_within_the_kv_heads_never_cost_a_gpu_more(model, tp, engine):
    heads = model.num_key_value_heads
    divides = model.num_attention_heads % (2 * tp) == 0 and (heads is None or 2 * tp <= heads)
    if divides:
        one, two = (kvlib.bytes_per_token(model, engine.replace(tensor_parallel_size=n)) for n in (tp, 2 * tp))
        assert two <= one
        assert two * 2 == one or heads is None  # latent attention keeps a whole copy on every GPU


@given(st.sampled_from(["Qwen3-8B", "Llama-3.1-8B", "DeepSeek-V3"]).map(MODELS.get), st.integers(1, 2_000),
       st.integers(1, 2_000), memories)
def test_one_full_group_prints_the_same_size_at_every_multiple_of_the_block(model, one, other, available):
    def printed(blocks):
        sizing = kvlib.size(model, kvlib.Engine(max_model_len=16 * blocks), available_bytes=available)
        return sizing.kv_cache_tokens, sizing.num_gpu_blocks * 16

    for blocks in (one, other):
        tokens, slots = printed(blocks)
        assert slots - tokens in (0, 1)  # the division comes first, and the float may fall just short


@given(st.sampled_from(["Qwen3.8-27B", "Qwen3-Next-80B-A3B"]).map(MODELS.get), st.sampled_from([1, 2, 4]), engines())
def test_padding_of_a_state_stays_under_one_granule(model, tp, engine):
    engine = engine.replace(tensor_parallel_size=tp)
    sizing = kvlib.size(model, engine, available_bytes=64 * GiB)
    state = next(spec for group in sizing.groups for spec, _ in group.specs if spec.state_blocks)
    attention = next(spec for group in sizing.groups for spec, _ in group.specs if spec.grows)
    granule = 64 if sizing.plan.setup.gdn_prefill_backend == "flashinfer" else 16
    assert 0 <= state.page_size_bytes - state.unpadded_bytes < granule * attention.bytes_per_token


@given(models, engines(max_model_len=st.just(-1)), memories)
def test_auto_fit_starts_whenever_one_token_fits(model, engine, available):
    sizing = kvlib.size(model, engine, available_bytes=available)
    if sizing.estimated_max_model_len:
        assert sizing.fits and sizing.max_model_len == sizing.estimated_max_model_len


@given(models, engines(), memories)
def test_a_longer_request_never_takes_fewer_blocks(model, engine, available):
    sizing = kvlib.size(model, engine, available_bytes=available)
    blocks = sizing.plan.blocks_per_request
    assert blocks(1) <= blocks(sizing.max_model_len) <= blocks(sizing.max_model_len + 1)
    assert sum(group.blocks_per_request for group in sizing.groups) == blocks(engine.max_model_len)


@given(st.integers(0, 10**15), st.integers(1, 10**9))
def test_rounding_up(a, b):
    assert (cdiv(a, b) - 1) * b < a <= cdiv(a, b) * b or a == 0


@given(models, engines(), st.integers(24, 200), st.floats(0.1, 1.0), st.integers(0, 4), st.integers(0, 4))
@settings(max_examples=60)
def test_a_range_holds_its_typical_answer(model, engine, total, share, low, spread):
    engine = engine.replace(gpu_memory_utilization=share)
    band = kvlib.Band(low * GiB, (low + spread) * GiB, (low + 2 * spread) * GiB, "law")
    budget = kvlib.MemoryBudget(total * GiB, 4 * GiB, peak_activation_bytes=band, non_torch_bytes=band)
    least, typical, most = kvlib.size_range(model, engine, memory=budget)
    assert least.num_gpu_blocks <= typical.num_gpu_blocks <= most.num_gpu_blocks
    assert kvlib.size(model, engine, memory=budget).num_gpu_blocks == typical.num_gpu_blocks
    wider = replace(band, high=band.high + GiB)
    assert kvlib.size_range(model, engine, memory=replace(budget, non_torch_bytes=wider))[0].num_gpu_blocks \
        <= least.num_gpu_blocks
