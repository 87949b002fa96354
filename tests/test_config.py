"""Configs that people really drop: read right, or refused in one sentence that names the field."""
import json
from pathlib import Path

import pytest

import kvlib
from kvlib.layers import FullAttention, LatentAttention, SlidingWindow

DATA = Path(__file__).resolve().parent.parent / "data" / "models"
LLAMA = dict(model_type="llama", architectures=["LlamaForCausalLM"], num_hidden_layers=4, num_attention_heads=32,
             num_key_value_heads=8, hidden_size=4096, max_position_embeddings=8192, torch_dtype="bfloat16")


def without(key, **more):
    return {name: value for name, value in {**LLAMA, **more}.items() if name != key}


def test_every_form_of_a_source_gives_the_same_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    forms = [LLAMA, json.dumps(LLAMA), tmp_path, str(tmp_path / "config.json"), "\n  " + json.dumps(LLAMA, indent=2)]
    assert len({kvlib.load_model(form).layers for form in forms}) == 1


def test_head_dim_is_read_and_only_derived_when_absent():
    read = kvlib.load_model("Qwen3-30B-A3B")
    assert read.layers[0].head_dim == 128 and read.head_dim_source == "config"
    derived = kvlib.load_model(LLAMA)
    assert derived.layers[0].head_dim == 128 and derived.head_dim_source == "derived"
    assert any("head_dim is absent" in note for note in derived.notes)


def test_gpt_oss_slides_by_parity_whatever_its_layer_types_say():
    config = json.loads((DATA / "gpt-oss-20b.json").read_text())
    config["layer_types"] = config["layer_types"][::-1]
    assert [type(layer) for layer in kvlib.load_model(config).layers[:2]] == [SlidingWindow, FullAttention]


@pytest.mark.parametrize("name, kinds", [
    ("Qwen3-8B", {"full": 36}), ("gpt-oss-120b", {"sliding": 18, "full": 18}), ("DeepSeek-V3", {"mla": 61}),
    ("Qwen3.8-27B", {"gdn": 48, "full": 16}), ("Qwen3-Next-80B-A3B", {"gdn": 36, "full": 12}),
    ("Llama-3.3-70B", {"full": 80}), ("Gemma-2-9b", {"sliding": 21, "full": 21}),
    ("Gemma-3-1b", {"sliding": 22, "full": 4}), ("Gemma-3-27b", {"sliding": 52, "full": 10}),
    ("Llama-4-Scout", {"chunked": 36, "full": 12}), ("MiMo-V2-Flash", {"full": 9, "sliding": 39}),
    ("Kimi-Linear-48B-A3B", {"kda": 20, "mla": 7}), ("Nemotron-H-8B", {"mamba2": 24, "full": 4}),
    ("Jamba-1.5-mini", {"mamba1": 28, "full": 4}), ("LFM2-1.2B", {"short_conv": 10, "full": 6}),
    ("Falcon-H1-7B", {"full": 44, "mamba2": 44}), ("Qwen2.5-7B", {"full": 28}),
    ("Llama-3.3-Nemotron-Super-49B", {"full": 49}), ("EXAONE-4.0-32B", {"sliding": 48, "full": 16}),
    ("Mistral-7B-v0.3", {"full": 32}), ("Phi-4", {"full": 40})])
def test_layer_kinds(name, kinds):
    assert kvlib.load_model(name).kinds == kinds


def test_gemma_4_keeps_two_geometries():
    full = next(layer for layer in kvlib.load_model("Gemma-4-31B").layers if layer.kind == "full")
    assert (full.num_kv_heads, full.head_dim) == (4, 512)


def test_glm_5_2_has_an_indexer_on_some_layers_only():
    latent = [layer for layer in kvlib.load_model("GLM-5.2").layers if isinstance(layer, LatentAttention)]
    assert sum(bool(layer.index_head_dim) for layer in latent) == 21 and len(latent) == 78


@pytest.mark.parametrize("source, field, words", [
    (without("num_hidden_layers"), "num_hidden_layers", "has no num_hidden_layers"),
    (without("num_attention_heads"), "num_attention_heads", "has no num_attention_heads"),
    ({**LLAMA, "num_hidden_layers": "36"}, "num_hidden_layers", "'36'"),
    ({**LLAMA, "num_hidden_layers": 36.0}, "num_hidden_layers", "36.0"),
    ({**LLAMA, "num_hidden_layers": True}, "num_hidden_layers", "True"),
    ({**LLAMA, "num_hidden_layers": 0}, "num_hidden_layers", "0"),
    ({**LLAMA, "num_hidden_layers": -3}, "num_hidden_layers", "-3"),
    ({**LLAMA, "num_hidden_layers": 1_000_000}, "num_hidden_layers", "1000000"),
    ({**LLAMA, "num_key_value_heads": [8]}, "num_key_value_heads", "[8]"),
    ({**LLAMA, "head_dim": "128"}, "head_dim", "'128'"),
    ({**LLAMA, "hidden_size": 16}, "head_dim", "cannot be derived"),
    ({**LLAMA, "layer_types": ["full_attention"]}, "layer_types", "1 entries for 4 layers"),
    ({**LLAMA, "layer_types": "full"}, "layer_types", "must be a list"),
    ({**LLAMA, "torch_dtype": "int7"}, "torch_dtype", "int7"),
    ({"text_config": 7}, "text_config", "must be an object"),
    ({"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-8B"}, "peft_type", "Qwen/Qwen3-8B"),
    ({"tokenizer_class": "GPT2Tokenizer"}, "tokenizer_class", "tokenizer"),
    ({"weight_map": {}}, "weight_map", "checkpoint's index"),
    ({"model_type": "siglip_vision_model", "image_size": 224, "hidden_size": 8, "num_hidden_layers": 2}, "model_type",
     "vision encoder"),
    ({}, None, "empty"), ("", None, "JSON"), ("[1, 2]", "the pasted config", "object"),
    ("{", "the pasted config", "ends too early"), (json.dumps(LLAMA)[:120], "the pasted config", "is it whole?"),
    ('{"num_hidden_layers": NaN}', "the pasted config", "NaN"),
    ('{"num_hidden_layers": 1e999, "num_attention_heads": 4, "hidden_size": 64}', "num_hidden_layers", "inf"),
    ('{"a": ' + "9" * 5000 + "}", "the pasted config", "too long"),
    ('{"a":' * 100_000, "the pasted config", "nested too deeply"),
    (b"GGUF\x03\x00\x00\x00", "the pasted config", "GGUF"), (7, None, "not as int"), (None, None, "not as NoneType"),
    ("/no/such/config.json", "/no/such/config.json", "no file or folder"), ("Qwen3-8C", "model", "Qwen3-8B"),
    ("line one\nline two", None, "paste the whole config.json")])
def test_bad_config_is_one_clear_sentence(source, field, words):
    with pytest.raises(kvlib.ConfigError) as caught:
        kvlib.load_model(source)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.field == field


def test_a_folder_without_config_and_a_binary_file(tmp_path):
    with pytest.raises(kvlib.ConfigError, match="no config.json"):
        kvlib.load_model(tmp_path)
    (tmp_path / "model.bin").write_bytes(b"\x00\x01" * 50)
    with pytest.raises(kvlib.ConfigError, match="binary"):
        kvlib.load_model(tmp_path / "model.bin")
    (tmp_path / "config.json").write_bytes(b"{" + b" " * (9 << 20) + b"}")
    with pytest.raises(kvlib.ConfigError, match="MiB"):
        kvlib.load_model(tmp_path)


@pytest.mark.parametrize("name, words", [
    ("DeepSeek-V4-Flash", "compressed cache"), ("Gemma-3n-E4B", "share"), ("Gemma-4-E2B", "share"),
    ("Whisper-large-v3", "encoder-decoder"), ("Llama-3.2-11B-Vision", "cross-attention"), ("Zamba2-2.7B", "zamba2")])
def test_refused_by_name_with_a_way_on(name, words):
    config = REFUSED[name]
    with pytest.raises(kvlib.UnknownArchitectureError) as caught:
        kvlib.load_model(config)
    assert words in str(caught.value) and "from_layers" in str(caught.value) and "paste the log" in str(caught.value)
    assert caught.value.unknown and caught.value.suggestion.startswith("kvlib.from_layers(")


REFUSED = {
    "DeepSeek-V4-Flash": dict(LLAMA, model_type="deepseek_v4", compress_ratios=[0, 4, 128, 4]),
    "Gemma-3n-E4B": dict(LLAMA, model_type="gemma3n_text", num_kv_shared_layers=2,
                         layer_types=["full_attention"] * 4),
    "Gemma-4-E2B": dict(text_config=dict(LLAMA, model_type="gemma4_text", num_kv_shared_layers=2)),
    "Whisper-large-v3": dict(model_type="whisper", is_encoder_decoder=True, decoder_layers=4),
    "Llama-3.2-11B-Vision": dict(text_config=dict(LLAMA, cross_attention_layers=[1])),
    "Zamba2-2.7B": dict(LLAMA, model_type="zamba2", mamba_d_state=64)}


def test_a_lower_bound_is_given_where_some_layers_are_known():
    with pytest.raises(kvlib.UnknownArchitectureError) as caught:
        kvlib.load_model(REFUSED["Gemma-3n-E4B"])
    assert caught.value.lower_bound_bytes_per_token == 2 * 8 * 256 * 2  # two layers own their cache


def test_an_unknown_dense_decoder_is_read_as_plain_attention_and_says_so():
    model = kvlib.load_model({**LLAMA, "model_type": "brand_new"})
    assert model.kinds == {"full": 4} and any("brand_new" in note and "plain attention" in note for note in model.notes)


def test_an_architecture_that_left_vllm_is_refused_by_name_for_newer_versions():
    bamba = kvlib.load_model(dict(
        model_type="bamba", architectures=["BambaForCausalLM"], num_hidden_layers=4, attn_layer_indices=[2],
        num_attention_heads=8, num_key_value_heads=8, hidden_size=512, mamba_expand=2, mamba_n_groups=1,
        mamba_n_heads=16, mamba_d_head=64, mamba_d_state=64, mamba_d_conv=4, max_position_embeddings=4096))
    with pytest.raises(kvlib.UnknownArchitectureError, match="BambaForCausalLM left vLLM after 0.23.0"):
        kvlib.size(bamba, kvlib.Engine(), available_bytes=1 << 34)
    assert kvlib.size(bamba, kvlib.Engine(vllm_version="0.22"), available_bytes=1 << 34).fits


def test_layers_by_hand():
    by_hand = kvlib.from_layers([dict(kind="full", count=36, num_kv_heads=8, head_dim=128)], max_position_embeddings=40960)
    read = kvlib.load_model("Qwen3-8B")
    assert kvlib.bytes_per_token(by_hand) == kvlib.bytes_per_token(read)
    assert read.from_layers(read.layers).layers == read.layers
    for bad in ([dict(kind="fulll")], ["full"], [dict(kind="full", heads=8)], [dict(kind="full", num_kv_heads="8")]):
        with pytest.raises(kvlib.ConfigError, match="layer 0"):
            kvlib.from_layers(bad)


def test_nemotron_nas_says_how_many_query_heads_share_a_kv_head():
    """A block's n_heads_in_group is a width of sharing, not a count of KV heads."""
    blocks = [{"attention": {"no_op": False, "n_heads_in_group": 4}}, {"attention": {"no_op": True}}]
    config = dict(model_type="nemotron-nas", architectures=["DeciLMForCausalLM"], num_hidden_layers=2, hidden_size=4096,
                  num_attention_heads=64, block_configs=blocks, max_position_embeddings=8192, torch_dtype="bfloat16",
                  vocab_size=1000, intermediate_size=1)
    model = kvlib.load_model(config)
    assert [getattr(layer, "num_kv_heads", None) for layer in model.layers] == [16, None]


@pytest.mark.parametrize("version, blocks", [("0.28", 385), ("0.30", 386)])
def test_cohere2_counts_the_token_beside_its_window_since_030(version, blocks):
    """Run with both releases. ceil((4096 - 1 + 2049) / 16) + 1, and one token more."""
    config = dict(model_type="cohere2", architectures=["Cohere2ForCausalLM"], num_hidden_layers=4, hidden_size=8192,
                  num_attention_heads=64, num_key_value_heads=8, sliding_window=4096, sliding_window_pattern=4,
                  max_position_embeddings=131072, torch_dtype="bfloat16", vocab_size=256000, intermediate_size=1)
    engine = kvlib.Engine(vllm_version=version, max_num_batched_tokens=2049, async_scheduling=False)
    sizing = kvlib.size(kvlib.load_model(config), engine, available_bytes=64 << 30)
    assert {group.blocks_per_request for group in sizing.groups if group.kind == "sliding"} == {blocks}
