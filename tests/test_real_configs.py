"""Published configs outside the catalogue, and slips of the hand: the right figure, or a refusal that names why.

The expected figures follow from the fields as vLLM's own config readers take them.
"""
import json
import os

import pytest

import kvlib
from kvlib import ConfigError, EngineError, UnknownArchitectureError
from kvlib.parameters import parameters

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
    (dict(model_type="chatglm", hidden_size=4096, multi_query_attention=True, multi_query_group_num=2, num_attention_heads=32,
          num_layers=28, seq_length=8192), 28 * 2 * 256 * 2),
    (dict(model_type="gpt2", n_ctx=1024, n_embd=768, n_head=12, n_layer=12, n_positions=1024), 12 * 12 * 128 * 2),
    (dict(model_type="bloom", n_embed=4096, n_layer=30, num_attention_heads=32), 30 * 32 * 256 * 2),
    (dict(model_type="bloom", hidden_size=1024, n_layer=24, n_head=16), 24 * 16 * 128 * 2),
    (dict(model_type="mpt", d_model=4096, n_heads=32, n_layers=32, max_seq_len=2048,
          attn_config=dict(alibi=True, attn_type="multihead_attention")), 32 * 32 * 256 * 2),
    (dict(model_type="mpt", d_model=4096, n_heads=32, n_layers=32, max_seq_len=2048, attn_config=dict(kv_n_heads=8)), 32 * 8 * 256 * 2),
    (dict(model_type="dbrx", d_model=6144, n_heads=48, n_layers=40, max_seq_len=32768, attn_config=dict(kv_n_heads=8)),
     40 * 8 * 256 * 2),
    (dict(model_type="gpt_bigcode", multi_query=True, n_embd=6144, n_head=48, n_layer=40, n_positions=8192), 40 * 1 * 256 * 2),
    (dict(model_type="gpt_bigcode", multi_query=True, n_embd=6144, n_head=48, n_layer=40, num_key_value_heads=48), 40 * 1 * 256 * 2),
    (dict(model_type="gpt_bigcode", multi_query=False, n_embd=6144, n_head=48, n_layer=40, n_positions=8192), 40 * 48 * 256 * 2),
    (dict(model_type="gpt_neox", hidden_size=6144, num_attention_heads=64, num_hidden_layers=44), 44 * 64 * 192 * 2),
    (dict(model_type="gptj", n_embd=4096, n_head=16, n_layer=28, n_positions=2048, rotary_dim=64), 28 * 16 * 512 * 2),
    (dict(model_type="opt", hidden_size=768, num_attention_heads=12, num_hidden_layers=12, ffn_dim=3072), 12 * 12 * 128 * 2),
    (dict(model_type="phi", hidden_size=2560, num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=None),
     32 * 32 * 160 * 2),
])
def test_heads_by_older_names(config, bytes_per_token):
    assert kvlib.bytes_per_token(kvlib.load_model(dict(config, torch_dtype="bfloat16"))) == bytes_per_token


def test_lengths_and_widths_by_older_names():
    gpt2 = kvlib.load_model(dict(model_type="gpt2", n_embd=768, n_head=12, n_layer=12, n_positions=1024))
    assert (gpt2.max_position_embeddings, gpt2.num_attention_heads, gpt2.hidden_size) == (1024, 12, 768)
    assert any("n_embd // n_head = 64" in note for note in gpt2.notes)
    bloom = kvlib.load_model(dict(model_type="bloom", n_embed=1024, n_layer=24, n_head=16))
    assert bloom.max_position_embeddings == 2048 and any("no length key" in note for note in bloom.notes)
    assumed = kvlib.load_model(dict(model_type="gpt_bigcode", n_embd=6144, n_head=48, n_layer=40))
    assert assumed.num_key_value_heads == 1 and any("multi_query is absent" in note for note in assumed.notes)


TEXT = dict(hidden_size=2048, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
            max_position_embeddings=65536, use_sliding_window=False, sliding_window=None, torch_dtype="bfloat16")
TINY = dict(model_type="deepseek_v2", hidden_size=1280, kv_lora_rank=None, max_position_embeddings=4096, num_attention_heads=10,
            num_hidden_layers=12, num_key_value_heads=10, q_lora_rank=None, qk_nope_head_dim=0, qk_rope_head_dim=0, v_head_dim=0,
            use_mla=False, torch_dtype="bfloat16")
SMALL = dict(TINY, hidden_size=2048, kv_lora_rank=512, num_attention_heads=16, num_hidden_layers=27, qk_nope_head_dim=128,
             qk_rope_head_dim=64, v_head_dim=128, use_mla=True)


@pytest.mark.parametrize("config, bytes_per_token", [
    (dict(model_type="qwen3_omni_moe", thinker_config=dict(text_config=dict(TEXT, model_type="qwen3_omni_moe_text"), audio_config={}),
          talker_config=dict(text_config=dict(num_hidden_layers=20))), 48 * 4 * 256 * 2),
    (dict(model_type="qwen2_5_omni", thinker_config=dict(torch_dtype="float16", text_config=dict(
        TEXT, model_type="qwen2_5_omni_text", hidden_size=3584, num_hidden_layers=28, num_attention_heads=28, head_dim=None,
        sliding_window=32768, torch_dtype=None))), 28 * 4 * 256 * 2),
    (dict(model_type="internvl_chat", llm_config=dict(TEXT, model_type="qwen3_moe"), vision_config={}), 48 * 4 * 256 * 2),
    (dict(model_type="deepseek_vl_v2", language_config=TINY, vision_config={}), 12 * 10 * 256 * 2),
    (dict(TINY, model_type="deepseek_vl_v2", language_config=TINY), 12 * 10 * 256 * 2),
    (dict(model_type="deepseek_vl_v2", language_config=SMALL), 27 * 576 * 2),
])
def test_a_language_model_inside_another_config(config, bytes_per_token):
    model = kvlib.load_model(config)
    assert kvlib.bytes_per_token(model) == bytes_per_token
    assert not any("not one known" in note for note in model.notes)


def test_the_data_type_may_stand_at_any_level():
    text = dict(TEXT, model_type="qwen2_5_omni_text", torch_dtype=None)
    model = kvlib.load_model(dict(thinker_config=dict(torch_dtype="float16", text_config=text)))
    assert model.dtype == "float16"


@pytest.mark.parametrize("config, field", [
    (dict(thinker_config=dict(text_config=dict(TEXT, num_hidden_layers=None))), "thinker_config.text_config.num_hidden_layers"),
    (dict(language_config=dict(SMALL, num_hidden_layers="27")), "language_config.num_hidden_layers"),
    (dict(language_config=dict(SMALL, kv_lora_rank=None)), "language_config.kv_lora_rank"),
    (dict(llm_config=dict(TEXT, layer_types=["full_attention"])), "llm_config.layer_types"),
    (dict(llm_config=dict(TEXT, num_key_value_heads=5)), "llm_config.num_key_value_heads"),
    (dict(llm_config=dict(TEXT, use_sliding_window="false")), "llm_config.use_sliding_window"),
    (dict(llm_config=dict(TEXT, layer_types=["odd"] * 48)), "llm_config.layer_types"),
    (dict(model_type="qwen2_audio", text_config=dict(model_type="qwen2", intermediate_size=11008)), "text_config.hidden_size"),
    (dict(thinker_config=[1]), "thinker_config"), (dict(thinker_config=dict(text_config=3)), "thinker_config.text_config"),
    (dict(llm_config=dict(model_type="bloom", n_layer="x", n_embed=8, n_head=2)), "llm_config.n_layer"),
])
def test_an_error_names_the_whole_path(config, field):
    with pytest.raises(ConfigError) as caught:
        kvlib.load_model(config)
    assert caught.value.field == field and (field in str(caught.value) or "layer_types" in field)


@pytest.mark.parametrize("change, field, words", [
    (dict(use_sliding_window="false"), "use_sliding_window", "without quotes"),
    (dict(use_sliding_window=0), "use_sliding_window", "true or false"),
    (dict(model_type="falcon", multi_query="true"), "multi_query", "without quotes"),
    (dict(is_causal="no"), "is_causal", "true or false"),
    (dict(num_key_value_heads=5), "num_key_value_heads", "must divide"),
    (dict(num_key_value_heads=64), "num_key_value_heads", "must divide"),
    (dict(hidden_size="4096"), "hidden_size", "'4096'"), (dict(hidden_size=4096.5), "hidden_size", "4096.5"),
    (dict(hidden_size=2050, head_dim=None), "head_dim", "cannot be derived"),
    (dict(n_embd=1024), "hidden_size", "they mean the same"),
    (dict(vocab_size="32000"), "vocab_size", "'32000'"), (dict(model_type=["llama"]), "model_type", "text in quotes"),
    (dict(architectures=[5]), "architectures", "list of names"), (dict(quantization_config="fp8"), "quantization_config", "an object"),
    (dict(rope_scaling="yarn"), "rope_scaling", "an object"),
    (dict(rope_scaling=dict(type="linear", factor="4.0")), "rope_scaling", "'4.0'"),
    (dict(model_type="unheard_of", layer_types=["sliding_attention"] * 24), "sliding_window", "has no sliding_window"),
    (dict(model_type="unheard_of", use_sliding_window=False, sliding_window=4096), "use_sliding_window", "which of them counts"),
    (dict(model_type="mpt", num_key_value_heads=None, attn_config=dict(attn_type="multiquery_attention")),
     "attn_config.kv_n_heads", "is absent"),
    (dict(model_type="dbrx", attn_config=None), "attn_config.kv_n_heads", "is absent"),
    (dict(model_type="dbrx", attn_config="x"), "attn_config", "an object"),
    (dict(model_type="nemotron_h", hybrid_override_pattern=[[]], mamba_num_heads=1, mamba_head_dim=1, n_groups=1, ssm_state_size=1,
          conv_kernel=1), "hybrid_override_pattern", "layer 0 of kind []"),
    (dict(model_type="step3p5", num_nextn_predict_layers=1, layer_types=["full_attention"] * 24 + ["odd"]), "mtp_layer_types", "'odd'"),
    (dict(num_kv_shared_layers="a"), "num_kv_shared_layers", "'a'"),
    (dict(use_cla=True), "use_cla", "share another layer"),
])
def test_a_value_of_the_wrong_kind_is_named_and_never_guessed(change, field, words):
    with pytest.raises(ConfigError) as caught:
        kvlib.load_model({**HEADS, "model_type": "llama", **change})
    assert caught.value.field == field and words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("model_type", ["olmo3", "exaone4"])
def test_a_window_left_out_is_its_class_default_and_null_is_none(model_type):
    """Run with 0.33: EXAONE 4 without the key slides over 4096 tokens, with null it does not slide."""
    config = dict(HEADS, model_type=model_type, layer_types=["sliding_attention", "full_attention"] * 12)
    absent, null = kvlib.load_model(config), kvlib.load_model(dict(config, sliding_window=None))
    assert absent.layers[0].sliding_window == 4096 and any("4,096" in note for note in absent.notes)
    assert null.kinds == {"full": 24} and any("sets no window" in note for note in null.notes)


def test_experts_may_be_counted_for_each_modality():
    ernie = dict(HEADS, model_type="ernie4_5_moe_vl", vision_config={})
    assert kvlib.load_model(dict(ernie, moe_num_experts=[64, 64])).is_moe and not kvlib.load_model(dict(ernie, moe_num_experts=[])).is_moe
    assert kvlib.load_model(dict(llm_config=dict(TEXT, num_experts=128))).is_moe


@pytest.mark.parametrize("name", [dict(model_type="\ud800x"), dict(_name_or_path="a\nb\ud800"), dict(architectures=["\ud800"])])
def test_names_that_no_page_can_show_are_made_plain(name):
    model = kvlib.load_model({**HEADS, "model_type": "unheard_of", **name})
    for text in (model.name, model.model_type, model.architecture or "none", *model.notes):
        assert text.encode() and "\n" not in text


def test_a_key_given_twice_is_noted():
    text = json.dumps(dict(HEADS, model_type="llama"))[:-1] + ', "num_hidden_layers": 12}'
    model = kvlib.load_model(text)
    assert len(model.layers) == 12 and "num_hidden_layers stands twice in the file; the last, 12, counts, as for vLLM" in model.notes


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_text_as_windows_writes_it(tmp_path, encoding):
    (tmp_path / "config.json").write_bytes(json.dumps(dict(HEADS, model_type="llama")).encode(encoding))
    model = kvlib.load_model(tmp_path)
    assert len(model.layers) == 24 and any("UTF-16" in note for note in model.notes) == encoding.startswith("utf-16")


@pytest.mark.parametrize("config, words", [
    (dict(bos_token_id=1, eos_token_id=2, do_sample=True, temperature=0.6), "generation_config.json"),
    (dict(image_processor_type="Qwen2VLImageProcessor", patch_size=14), "preprocessor_config.json"),
    (dict(version="1.0", added_tokens=[], model={}), "tokenizer.json"),
    (dict(tokenizer_class="Qwen2Tokenizer", model_max_length=131072), "tokenizer_config.json"),
    (dict(producer=dict(name="modelopt"), quantization=dict(quant_algo="FP8")), "hf_quant_config.json"),
    (dict(dim=4096, n_layers=32, n_heads=32, n_kv_heads=8, head_dim=128), "params.json"),
    (dict(peft_type="LORA", base_model_name_or_path="meta-llama/Llama-3.1-8B"), "config.json of meta-llama/Llama-3.1-8B"),
    (dict(metadata={}, weight_map={}), "checkpoint's index"), (dict(bos_token="<s>"), "neither model_type nor num_hidden_layers"),
    (dict(model_type="siglip_vision_model", image_size=384, num_hidden_layers=27, hidden_size=1152), "vision encoder"),
    (dict(model_type="clip", text_config=dict(model_type="clip_text_model", hidden_size=512)), "keeps no KV cache"),
])
def test_another_file_is_named_for_what_it_is(config, words):
    with pytest.raises(ConfigError) as caught:
        kvlib.load_model(config)
    assert words in str(caught.value) and "config.json" in str(caught.value) or "from_layers" in str(caught.value)


def test_a_large_or_closed_file(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(9 << 20))
    with pytest.raises(ConfigError, match="is a GGUF file"):
        kvlib.load_model(tmp_path / "model.gguf")
    (tmp_path / "deep.json").write_text('{"a":' * (2 << 20), encoding="utf-8")
    with pytest.raises(ConfigError, match="larger than 8 MiB"):
        kvlib.load_model(tmp_path / "deep.json")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "config.json").chmod(0)
    if not os.access(tmp_path / "config.json", os.R_OK):
        with pytest.raises(ConfigError, match="cannot be read"):
            kvlib.load_model(tmp_path)


def test_mpt_is_sized_by_the_versions_that_served_it():
    mpt = kvlib.load_model(dict(model_type="mpt", architectures=["MPTForCausalLM"], d_model=4096, n_heads=32, n_layers=32,
                                max_seq_len=2048, attn_config=dict(alibi=True), torch_dtype="bfloat16"))
    with pytest.raises(UnknownArchitectureError, match="left vLLM after 0.28.0"):
        kvlib.size(mpt, kvlib.Engine(), available_bytes=80 << 30)
    assert kvlib.size(mpt, kvlib.Engine(vllm_version="0.28"), available_bytes=80 << 30).kv_cache_tokens == (80 << 30) // (32 * 32 * 256 * 2)


def test_weights_are_not_counted_without_a_width():
    with pytest.raises(ConfigError, match="no intermediate_size"):
        parameters(kvlib.load_model(dict(model_type="gpt2", n_embd=768, n_head=12, n_layer=12, n_positions=1024, vocab_size=50257)))


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
    (dict(HEADS, model_type="alice_ai", linear_num_key_heads=16, linear_num_value_heads=16, linear_key_head_dim=128,
          linear_value_head_dim=128, linear_conv_kernel_dim=4, layer_types=["linear_attention", "full_attention"] * 12),
     "linear attention"),
    (dict(HEADS, model_type="dory", recurrent_kv_cache_mode="per_loop", layer_types=["full_attention"] * 24), "several times"),
    (dict(HEADS, model_type="domyn_edge", window_sizes=[512, -1] * 12), "a window of its own"),
    (dict(HEADS, model_type="exaone_moe", sliding_windows=[128, 0] * 12, layer_types=["sliding_attention"] * 24), "a window of its own"),
    (dict(HEADS, model_type="inkling_model", local_layer_ids=[0, 1]), "local layers"),
    (dict(HEADS, model_type="pangu_pro_moe_v2", param_sink_number=128), "sink tokens"),
    (dict(HEADS, model_type="protein", architectures=["EsmForMaskedLM"]), "no KV cache"),
    (dict(HEADS, model_type="zamba", attn_layer_period=6, attn_layer_offset=4, mamba_d_state=16, mamba_expand=2,
          mamba_d_conv=4), "Zamba"),
    (dict(HEADS, model_type="longcat_flash", num_layers=24, kv_lora_rank=512, qk_rope_head_dim=64), "two attentions"),
    (dict(model_type="t5", num_layers=12, is_encoder_decoder=True, tokenizer_class="T5Tokenizer"), "encoder-decoder"),
])
def test_what_the_plain_reader_would_get_wrong_is_refused_by_name(config, word):
    with pytest.raises(UnknownArchitectureError, match=word):
        kvlib.load_model(config)


@pytest.mark.parametrize("gpu", [None, "H100 SXM 80GB"])
def test_olmo_hybrid_has_one_prefill_kernel_on_every_card(gpu):
    """Read in 0.33: its layers never run FlashInfer, so a request keeps 2 state blocks on a Hopper card too."""
    config = dict(HEADS, model_type="olmo_hybrid", linear_num_key_heads=30, linear_num_value_heads=30, linear_key_head_dim=96,
                  linear_value_head_dim=192, linear_conv_kernel_dim=4, layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 6)
    sizing = kvlib.size(kvlib.load_model(config), kvlib.Engine(gpu=gpu), available_bytes=40 << 30)
    assert {group.blocks_per_request for group in sizing.groups if group.kind == "gdn"} == {2}


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
