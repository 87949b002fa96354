"""Flags: vLLM's names, checked one by one and together; defaults by card and version."""
import pytest

import kvlib
from kvlib import Engine
from kvlib.memory import requested_bytes

GiB = 1 << 30
QWEN, HYBRID, OSS, MLA = (kvlib.load_model(name) for name in ("Qwen3-8B", "Qwen3.8-27B", "gpt-oss-120b", "DeepSeek-V3"))


def sized(model, **flags):
    return kvlib.size(model, Engine(**flags), available_bytes=64 * GiB)


@pytest.mark.parametrize("flags, flag, words", [
    (dict(tensor_paralel_size=2), "tensor_paralel_size", "did you mean tensor_parallel_size"),
    (dict(wibble=1), "wibble", "no flag wibble"),
    (dict(tensor_parallel_size=0), "tensor_parallel_size", "at least 1"),
    (dict(tensor_parallel_size=-2), "tensor_parallel_size", "-2"),
    (dict(tensor_parallel_size=None), "tensor_parallel_size", "None"),
    (dict(tensor_parallel_size=2.0), "tensor_parallel_size", "2.0"),
    (dict(max_model_len=0), "max_model_len", "or -1"), (dict(max_model_len="32k"), "max_model_len", "'32k'"),
    (dict(max_model_len=True), "max_model_len", "True"), (dict(max_model_len=1 << 70), "max_model_len", "whole number"),
    (dict(gpu_memory_utilization=1.5), "gpu_memory_utilization", "0.92"),
    (dict(gpu_memory_utilization=0), "gpu_memory_utilization", "above 0"),
    (dict(gpu_memory_utilization=float("nan")), "gpu_memory_utilization", "nan"),
    (dict(kv_cache_dtype="fp9"), "kv_cache_dtype", "fp8"), (dict(kv_cache_dtype=["fp8"]), "kv_cache_dtype", "fp8"),
    (dict(enable_prefix_caching="yes"), "enable_prefix_caching", "True or False"),
    (dict(vllm_version="latest"), "vllm_version", "latest"), (dict(vllm_version=0.33), None, None),
    (dict(num_speculative_tokens=-1), "num_speculative_tokens", "at least 0"),
    (dict(speculative_method="mtp"), "num_speculative_tokens", "number of draft tokens"),
    (dict(speculative_method="eagle3", num_speculative_tokens=3), "draft_model", "draft's own"),
    (dict(max_num_batched_tokens=64, max_num_seqs=128), "max_num_batched_tokens", "max_num_seqs"),
    (dict(tensor_parallel_size=2, decode_context_parallel_size=3), "decode_context_parallel_size", "divide"),
    (dict(device="tpu"), "device", "cuda"), (dict(attention_backend="FLASH"), "attention_backend", "FLASH_ATTN")])
def test_a_bad_flag_is_one_sentence_with_its_name(flags, flag, words):
    if flag is None:
        assert Engine(**flags).version.number == (0, 33, 0)
        return
    with pytest.raises(kvlib.EngineError) as caught:
        Engine(**flags)
    assert caught.value.flag == flag and words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("model, flags, flag, words", [
    (QWEN, dict(tensor_parallel_size=3), "tensor_parallel_size", "32 attention heads"),
    (QWEN, dict(tensor_parallel_size=10**9), "tensor_parallel_size", "32 attention heads"),
    (QWEN, dict(pipeline_parallel_size=37), "pipeline_parallel_size", "36 layers"),
    (QWEN, dict(block_size=24), "block_size", "multiples of 16"),
    (QWEN, dict(attention_backend="FLASHMLA"), "attention_backend", "latent"),
    (QWEN, dict(kv_cache_dtype="fp8_ds_mla"), "kv_cache_dtype", "latent"),
    (MLA, dict(attention_backend="FLASH_ATTN"), "attention_backend", "latent"),
    (QWEN, dict(num_speculative_tokens=3, speculative_method="mtp"), "speculative_method", "no MTP layer"),
    (QWEN, dict(vllm_version="0.17"), "vllm_version", "older than 0.18"),
    (QWEN, dict(gpu="H1000"), "gpu", "H1000"),
    (OSS, dict(tensor_parallel_size=16, decode_context_parallel_size=2), "decode_context_parallel_size", "window"),
    (QWEN, dict(tensor_parallel_size=2, decode_context_parallel_size=2), "decode_context_parallel_size", "8 KV heads"),
    (HYBRID, dict(tensor_parallel_size=12), "tensor_parallel_size", "16 linear key heads"),
    (kvlib.load_model("Phi-4"), dict(tensor_parallel_size=4), "tensor_parallel_size", "10 KV heads")])
def test_what_vllm_would_refuse_with_this_model(model, flags, flag, words):
    with pytest.raises(kvlib.EngineError) as caught:
        sized(model, **flags)
    assert caught.value.flag == flag and words in str(caught.value) and "\n" not in str(caught.value)


def test_versions_by_name():
    numbers = {text: kvlib.versions.parse_version(text).number for text in
               ("0.33", "0.33.0", "v0.20.1", "0.29.1rc1.dev17", "0.20", "0.34.2")}
    assert numbers == {"0.33": (0, 33, 0), "0.33.0": (0, 33, 0), "v0.20.1": (0, 20, 1), "0.29.1rc1.dev17": (0, 29, 1),
                       "0.20": (0, 20, 2), "0.34.2": (0, 34, 2)}
    assert any("newer" in note for note in sized(QWEN, vllm_version="0.41").notes)
    assert any("not run" in note for note in sized(QWEN, vllm_version="0.25").notes)
    assert not sized(QWEN, vllm_version="0.33").plan.setup.notes


@pytest.mark.parametrize("flags, batched, seqs", [
    (dict(), 8192, 1024), (dict(gpu="A100 80GB SXM"), 2048, 256), (dict(gpu="H100 SXM"), 8192, 1024),
    (dict(gpu="B200"), 16384, 1024), (dict(gpu="L4"), 2048, 256), (dict(gpu="GB10"), 2048, 256),
    (dict(gpu="GB10", vllm_version="0.32"), 8192, 1024), (dict(max_num_batched_tokens=512), 512, 512),
    (dict(device="cpu"), 2048, 128), (dict(max_model_len=4, max_num_seqs=8), 32, 8)])
def test_batch_defaults_by_card_and_version(flags, batched, seqs):
    setup = sized(QWEN, **flags).plan.setup
    assert (setup.max_num_batched_tokens, setup.max_num_seqs) == (batched, seqs)


@pytest.mark.parametrize("version, share", [("0.18", 0.90), ("0.19.1", 0.90), ("0.20.0", 0.92), ("0.33", 0.92)])
def test_utilization_default_by_version(version, share):
    assert sized(QWEN, vllm_version=version).plan.setup.gpu_memory_utilization == share


@pytest.mark.parametrize("gpu, version, block, state_blocks", [
    ("H100 SXM", "0.33", 832, 3), ("H100 SXM", "0.32", 784, 2), ("A100 80GB SXM", "0.33", 784, 2),
    (None, "0.33", 784, 2), ("B200", "0.33", 832, 3)])
def test_gdn_blocks_follow_the_card(gpu, version, block, state_blocks):
    sizing = sized(HYBRID, gpu=gpu, vllm_version=version, tensor_parallel_size=2, max_num_seqs=8)
    assert sizing.block_size == block
    assert [group.blocks_per_request for group in sizing.groups if group.kind == "gdn"] == [state_blocks] * 3


def test_every_default_taken_is_in_the_steps():
    sizing = sized(QWEN)
    names = {step.name for step in sizing.steps()}
    assert {default.flag for default in sizing.plan.setup.defaults} <= names
    assert all(step.kind in ("measured", "computed", "assumed") and step.source for step in sizing.steps())


def test_cpu_prints_its_own_word():
    line = sized(QWEN, device="cpu", max_model_len=4096).log_lines()[-1]
    assert line.startswith("CPU KV cache size:") and sized(QWEN, device="cpu").block_size == 128


def test_an_engine_shows_only_what_was_changed():
    engine = Engine(tensor_parallel_size=2, kv_cache_dtype="fp8")
    assert repr(engine) == "Engine(tensor_parallel_size=2, kv_cache_dtype='fp8')"
    assert engine.replace(max_model_len=8).max_model_len == 8 and engine == Engine(tensor_parallel_size=2, kv_cache_dtype="fp8")


@pytest.mark.parametrize("version, batches", [("0.25", 1), ("0.28", 2), ("0.30", 3), ("0.33", 3)])
def test_tokens_in_flight_of_two_stages(version, batches):
    """rules.md, sliding windows: a mixture of experts kept the older runner until 0.30."""
    sizing = sized(OSS, vllm_version=version, pipeline_parallel_size=2, max_num_batched_tokens=4096)
    assert sizing.plan.setup.tokens_in_flight == batches * 4096


@pytest.mark.parametrize("max_num_seqs, outcome", [(500, "passes"), (501, "max_num_seqs")])
def test_as_many_sequences_as_blocks_are_allowed(max_num_seqs, outcome):
    """rules.md: refused where max_num_seqs is above the number of blocks."""
    sizing = sized(HYBRID, max_num_seqs=max_num_seqs, num_gpu_blocks_override=500, max_model_len=8192)
    assert (sizing.num_gpu_blocks, sizing.outcome) == (500, outcome)


def test_a_share_of_the_card_is_rounded_up():
    """rules.md, requested memory: ceil(total * gpu_memory_utilization)."""
    assert requested_bytes(1001, 0.9) == 901 and requested_bytes(1000, 0.5) == 500
