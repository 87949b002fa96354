"""Published configs outside the catalogue, and slips of the hand: the right figure, or a refusal that names why.

The expected figures follow from the fields as vLLM's own config readers take them.
"""
import pytest

import kvlib
from kvlib import ConfigError, EngineError, UnknownArchitectureError

HEADS = dict(hidden_size=2048, num_attention_heads=16, num_key_value_heads=16, head_dim=128, num_hidden_layers=24,
             max_position_embeddings=65536, torch_dtype="bfloat16")
QWEN = kvlib.load_model("Qwen3-8B")


@pytest.mark.parametrize("config, bytes_per_token", [
    (dict(model_type="chatglm", hidden_size=4096, kv_channels=128, multi_query_attention=True, multi_query_group_num=2,
          num_attention_heads=32, num_hidden_layers=40, seq_length=131072), 40 * 2 * 256 * 2),
    (dict(model_type="falcon", hidden_size=4544, num_attention_heads=71, num_hidden_layers=32, num_kv_heads=71,
          multi_query=True, new_decoder_architecture=False), 32 * 1 * 128 * 2),
    (dict(model_type="falcon", hidden_size=8192, num_attention_heads=128, num_hidden_layers=60, num_kv_heads=8,
          multi_query=True, new_decoder_architecture=True), 60 * 8 * 128 * 2),
])
def test_heads_by_older_names(config, bytes_per_token):
    assert kvlib.bytes_per_token(kvlib.load_model(dict(config, torch_dtype="bfloat16"))) == bytes_per_token


@pytest.mark.parametrize("config, word", [
    (dict(HEADS, model_type="ouro", total_ut_steps=4, layer_types=["full_attention"] * 24), "several times"),
    (dict(HEADS, model_type="iquestloopcoder", loop_num=2, loop_window_size=64), "several times"),
    (dict(HEADS, model_type="bert", architectures=["BertForMaskedLM"]), "no KV cache"),
    (dict(HEADS, model_type="qwen2", is_causal=False), "no KV cache"),
    (dict(HEADS, model_type="llama", architectures=["LlamaBidirectionalModel"]), "no KV cache"),
    (dict(HEADS, model_type="gemma3_text", use_bidirectional_attention=True, sliding_window=512), "no KV cache"),
    (dict(HEADS, model_type="rwkv6", head_size=64), "recurrent state"),
    (dict(HEADS, model_type="plamo3", window_size=2048, sliding_window_pattern=8), "window_size"),
    (dict(HEADS, model_type="bailing_moe_linear", layer_group_size=5), "linear attention"),
    (dict(HEADS, model_type="minicpm_sala", mixer_types=["lightning-attn"] * 24), "mixers"),
    (dict(HEADS, model_type="zamba", attn_layer_period=6, attn_layer_offset=4, mamba_d_state=16, mamba_expand=2,
          mamba_d_conv=4), "Zamba"),
    (dict(HEADS, model_type="longcat_flash", num_layers=24, kv_lora_rank=512, qk_rope_head_dim=64), "two attentions"),
    (dict(model_type="t5", num_layers=12, is_encoder_decoder=True, tokenizer_class="T5Tokenizer"), "encoder-decoder"),
])
def test_what_the_plain_reader_would_get_wrong_is_refused_by_name(config, word):
    with pytest.raises(UnknownArchitectureError, match=word):
        kvlib.load_model(config)


def test_longrope_by_its_older_name():
    config = dict(HEADS, model_type="phi3", max_position_embeddings=131072, original_max_position_embeddings=4096,
                  rope_scaling=dict(type="su"))
    assert kvlib.load_model(config).default_max_model_len == 4096


@pytest.mark.parametrize("change", [
    dict(model_type="deepseek_v3"), dict(model_type="kimi_linear", kv_lora_rank=512),
    dict(kv_lora_rank=512, linear_attn_config=[1]),
    dict(model_type="gpt_oss", sliding_window=0, layer_types=[[]] * 36)])
def test_a_decisive_field_that_is_missing_or_broken_is_named(change):
    with pytest.raises(ConfigError):
        kvlib.load_model({**QWEN.config, **change})


@pytest.mark.parametrize("base", [10**400, 0, -5])
def test_a_yarn_base_out_of_range_changes_nothing(base):
    rope = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=base)
    model = kvlib.load_model({**QWEN.config, "rope_scaling": rope})
    sizing = kvlib.size(model, kvlib.Engine(vllm_version="0.28"), available_bytes=20 << 30)
    assert sizing.max_model_len == QWEN.max_position_embeddings


def test_a_scheme_of_lists_is_no_cache_type():
    scheme = dict(num_bits=[8], type="float", dynamic=False)
    config = {**QWEN.config, "quantization_config": dict(quant_method="modelopt", kv_cache_scheme=scheme)}
    assert kvlib.load_model(config).kv_cache_dtype is None


@pytest.mark.parametrize("model, engine, available_bytes, error", [
    ("Qwen3-8B", None, 1 << 33, ConfigError), (None, None, 1 << 33, ConfigError), (QWEN, {}, 1 << 33, EngineError),
    (QWEN, None, 10**400, EngineError)])
def test_wrong_arguments_get_a_sentence(model, engine, available_bytes, error):
    with pytest.raises(error):
        kvlib.size(model, engine, available_bytes=available_bytes)


@pytest.mark.parametrize("gpu", [5, [], {}, b"x"])
def test_a_card_is_a_name(gpu):
    with pytest.raises(EngineError, match="RTX 4090"):
        kvlib.Engine(gpu=gpu)


def test_a_device_is_not_a_config():
    with pytest.raises(ConfigError, match="not a file"):
        kvlib.load_model("/dev/zero")
