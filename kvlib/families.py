"""Which layer of a config keeps what: one reader per family, recognised by the fields that are there.

``read_layers`` tries the readers in order; the first whose fields are present reads the config. Layer types that
vLLM itself ignores are ignored here too, with a note.
"""

from __future__ import annotations

from .errors import ConfigError, UnknownArchitectureError
from .fields import MAX_LAYERS, Fields, short
from .layers import (ChunkedLocal, FullAttention, GatedDeltaNet, KimiDelta, LatentAttention, Layer, Lightning,
                     Mamba1, Mamba2, NoCache, Parallel, ShortConv, SlidingWindow)

MLA_MODEL_TYPES = frozenset((
    "axk1", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_mtp", "glm_moe_dsa", "glm4_moe_lite", "kimi_k2",
    "kimi_linear", "longcat_flash", "pangu_ultra_moe"))

GDN_MODEL_TYPES = frozenset(("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "olmo_hybrid"))

# Here a window needs use_sliding_window: true, and layer_types are not looked at.
WINDOW_BY_SWITCH = frozenset(("qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl",
                              "qwen2_5_vl_text", "qwen2_5_omni_text", "qwen3_vl_text", "qwen3_vl_moe_text", "mimo"))

# What vLLM serves as plain decoders: every layer full attention unless the config says otherwise.
PLAIN_MODEL_TYPES = frozenset((
    "llama", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3_vl_text",
    "qwen3_vl_moe_text", "mistral", "ministral3", "mixtral", "gemma", "gemma2", "gemma3_text", "gemma4_text",
    "phi3", "phi", "phimoe", "gpt_oss", "cohere", "cohere2", "olmo", "olmo2", "olmo3", "olmoe", "granite",
    "granitemoe", "glm", "glm4", "glm4_moe", "internlm2", "internlm3", "starcoder2", "exaone4", "exaone",
    "apertus", "seed_oss", "smollm3", "ernie4_5", "ernie4_5_moe", "hunyuan_v1_dense", "hunyuan_v1_moe",
    "minimax_m2", "bailing_moe", "baichuan", "mimo", "mimo_v2_flash", "llama4_text", "nemotron-nas", "step3p5",
    "stablelm", "gpt_neox", "gpt2", "opt", "falcon", "bloom", "mpt", "gpt_bigcode", "qwen2_vl", "nemotron",
    "arcee", "dots1", "jais", "persimmon", "solar", "orion", "aquila", "gptj", "dbrx", "deepseek", "deepseek_v2", "bailing_moe_v2",
    "qwen2_5_omni_text", "qwen3_omni_moe_text", "chatglm", "RefinedWeb", "RefinedWebModel"))

def read_layers(c: Fields, model_type: str, architecture: str | None) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
    """The layers of a config, and those of its multi-token prediction module."""
    for present, reader in _READERS:
        if present(c, model_type):
            layers = reader(c)
            break
    else:
        raise AssertionError("the last reader takes every config")
    if len(layers) > MAX_LAYERS:
        raise c.wrong("num_hidden_layers", f"makes {len(layers):,} layers; more than {MAX_LAYERS:,} is taken for a mistake",
                      len(layers), f"at most {MAX_LAYERS:,}")
    return tuple(layers), _draft_layers(c, model_type, layers)


# --- what is refused by name -----------------------------------------------------------------------------------

def refuse_uncovered(c: Fields, architecture: str | None, model_type: str) -> None:
    """Raise UnknownArchitectureError for the kinds of cache that are known not to be covered."""
    who = architecture or model_type or "this model"
    if c.anywhere("is_encoder_decoder") or model_type in ("whisper", "t5", "bart", "mbart", "t5gemma"):
        _refuse(c, who, "an encoder-decoder, which also caches cross-attention", "is_encoder_decoder")
    if c.get("compress_ratios") is not None or model_type.startswith("deepseek_v4"):
        _refuse(c, who, "DeepSeek-V4's compressed cache", "compress_ratios")
    if c.get("cross_attention_layers"):
        _refuse(c, who, "cross-attention layers", "cross_attention_layers")
    if c.get("sparse_attention_config") is not None:
        _refuse(c, who, "block-sparse attention with its own index", "sparse_attention_config")
    if _encoder_only(c, model_type, architecture or ""):
        _refuse(c, who, "an encoder, whose tokens all see each other: it keeps no KV cache", "model_type")
    for field, what in _UNCOVERED_FIELDS.items():
        if c.get(field) not in (None, False, 0, 1, "", [], {}):
            _refuse(c, who, what, field)
    if model_type in _UNCOVERED_TYPES:
        _refuse(c, who, _UNCOVERED_TYPES[model_type], "model_type")
    pairs = c.get("num_layers") if model_type == "longcat_flash" else None
    if isinstance(pairs, int) and c.get("num_hidden_layers") != 2 * pairs:
        _refuse(c, who, "two attentions in each layer, which num_hidden_layers does not count", "num_layers")
    if c.flag("use_cla"):
        _refuse(c, who, "layers that share another layer's keys and values", "use_cla")
    shared = c.integer("num_kv_shared_layers", 0, low=0)
    if shared:
        _refuse(c, who, f"{shared} layers that share another layer's keys and values", "num_kv_shared_layers")


_UNCOVERED_FIELDS = {  # fields that speak of a cache the readers below would miss
    "total_ut_steps": "layers that run several times, each time with a cache of its own",
    "loop_num": "layers that run several times, each time with a cache of its own",
    "loop_window_size": "layers that run several times, each time with a cache of its own",
    "mixer_types": "mixers of several kinds", "rswa_window": "a window with a reserve of its own",
    "recurrent_kv_cache_mode": "layers that run several times, each time with a cache of its own",
    "num_key_value_heads_per_layer": "a head count of its own in each layer",
    **dict.fromkeys(("interleaved_sliding_window", "window_sizes", "sliding_windows"), "a window of its own in each layer"),
    "local_layer_ids": "local layers of a kind that is not known", "swa_kv_lora_rank": "latent attention of two widths",
    "ple_layer_ids": "convolutions of a kind that is not known", "indexer_kv_heads": "an index of a kind that is not known",
    "param_sink_number": "sink tokens of its own", "linear_head_dim": "linear attention of a kind that is not known",
}
_UNCOVERED_TYPES = {
    **dict.fromkeys(("rwkv", "rwkv5", "rwkv6", "rwkv7"), "a recurrent state of a kind that is not known"),
    "bailing_moe_linear": "linear attention of a kind that is not known", "zamba": "Zamba's shared attention",
    **dict.fromkeys(("xlnet", "transfo-xl"), "a memory of earlier segments in place of a KV cache"),
}
_ENCODERS = frozenset((
    "bert", "roberta", "xlm-roberta", "xlm_roberta", "modernbert", "distilbert", "albert", "electra", "deberta", "deberta-v2",
    "mpnet", "nomic_bert", "camembert", "esm", "eurobert", "luke", "big_bird", "longformer", "new",
    "clip", "clip_text_model", "siglip", "wav2vec2", "hubert", "vit"))


def _encoder_only(c: Fields, model_type: str, architecture: str) -> bool:
    return (model_type in _ENCODERS or c.flag("is_causal") is False or "Bidirectional" in architecture
            or architecture.endswith("ForMaskedLM")
            or str(c.top.get("model_type")) in _ENCODERS
            or model_type.startswith("gemma3") and c.get("use_bidirectional_attention") is True)


def _refuse(c: Fields, who: str, what: str, field: str, layers=None) -> None:
    raise UnknownArchitectureError(
        f"{c.name} ({who}) has {what}; its size is not known here. Declare its layers with model.from_layers, "
        "or launch once and paste the log", unknown=(what,), field=c.path(field) if c.get(field) is not None else field, found=c.get(field),
        suggestion=_suggestion(c), lower_bound_bytes_per_token=_lower_bound(c, layers))


def _suggestion(c: Fields) -> str:
    """A from_layers call filled in with whatever the config says, to correct by hand."""
    count = c.get("num_hidden_layers") or "…"
    heads = c.get("num_key_value_heads") or c.get("num_attention_heads") or "…"
    head_dim = c.get("head_dim")
    if head_dim is None:
        hidden, query_heads = c.get("hidden_size"), c.get("num_attention_heads")
        whole = isinstance(hidden, int) and isinstance(query_heads, int) and query_heads > 0
        head_dim = hidden // query_heads if whole else "…"
    return (f"kvlib.from_layers([dict(kind=\"full\", count={count}, num_kv_heads={heads}, head_dim={head_dim})], "
            f"name={c.name!r}, max_position_embeddings={c.get('max_position_embeddings')!r}, "
            f"num_attention_heads={c.get('num_attention_heads')!r})")


def _lower_bound(c: Fields, layers) -> int | None:
    """Bytes a token of the full-attention layers that can be read, at two bytes a value; None where none can."""
    types = c.get("layer_types")
    try:
        if layers is None and isinstance(types, list):
            owned = len(types) - (c.get("num_kv_shared_layers") or 0)
            layers = [_attention(c)] * sum(kind == "full_attention" for kind in types[:owned])
        total = sum(2 * layer.num_kv_heads * (layer.head_dim + layer.v_head_dim)
                    for layer in layers or () if isinstance(layer, FullAttention) and layer.grows)
    except (ConfigError, TypeError):
        return None
    return total or None


# --- attention geometry ----------------------------------------------------------------------------------------

def head_dim_source(c: Fields) -> str:
    keys = ("head_dim", "attention_head_dim", "kv_lora_rank")
    return "config" if any(c.given(key) for key in keys) else "derived"


def _head_dim(c: Fields) -> int:
    for key in ("head_dim", "attention_head_dim"):
        if c.given(key) and c.get(key) != 0:  # 0 stands for absent, as in vLLM
            return c.integer(key, high=1 << 20)
    hidden, heads = c.integer("hidden_size"), c.integer("num_attention_heads", high=1 << 20)
    if hidden % heads:
        raise ConfigError(f"{c.name}: {c.path('hidden_size')} is {hidden} and {c.path('num_attention_heads')} {heads}, so head_dim "
                          "cannot be derived; add head_dim", field=c.path("head_dim"), found=None, expected="a whole number")
    c.note(f"{c.prefix}head_dim is absent: derived as {c.spelled('hidden_size')} // {c.spelled('num_attention_heads')} = "
           f"{hidden // heads}")
    return hidden // heads


def _kv_heads(c: Fields) -> int:
    shares_one = c.flag("multi_query")
    if shares_one is None and c.raw_type() in ("falcon", "gpt_bigcode"):
        shares_one = c.note(f"{c.prefix}multi_query is absent: true, the default of model_type {c.raw_type()}") or True
    shares_one = shares_one and c.flag("new_decoder_architecture") is not True
    if shares_one and c.raw_type() in ("falcon", "gpt_bigcode"):
        return 1  # whatever num_kv_heads says
    parts = c.mapping("attn_config")  # MPT and DBRX
    if parts.get("kv_n_heads") is not None or c.raw_type() == "dbrx" or \
            parts.get("attn_type", "multihead_attention") != "multihead_attention":
        return c.whole("attn_config.kv_n_heads", parts.get("kv_n_heads"), high=1 << 20)
    for key in ("num_attention_groups", "num_key_value_heads", "num_kv_heads", "n_head_kv"):
        if c.given(key):
            return c.integer(key, high=1 << 20)
    if shares_one:
        return 1
    if c.given("multi_query_group_num"):
        return c.integer("multi_query_group_num" if c.flag("multi_query_attention") is not False else "num_attention_heads",
                         high=1 << 20)
    c.note(f"{c.prefix}num_key_value_heads is absent: every attention head keeps its own keys and values")
    return c.integer("num_attention_heads", high=1 << 20)


def _attention(c: Fields) -> FullAttention:
    head_dim, kv_heads = _head_dim(c), _kv_heads(c)
    heads = c.integer("num_attention_heads", kv_heads, high=1 << 20)
    if heads % kv_heads:
        raise c.wrong("num_key_value_heads", f"gives {kv_heads} KV heads for {heads} attention heads; it must divide them",
                      kv_heads, f"a divisor of {heads}")
    return FullAttention(kv_heads, head_dim, c.integer("v_head_dim", 0, low=0, high=1 << 20) or head_dim)


def _windowed(full: FullAttention, window: int, inclusive: bool = False) -> SlidingWindow:
    return SlidingWindow(full.num_kv_heads, full.head_dim, full.v_head_dim, window, inclusive)


def _count(c: Fields) -> int:
    return c.integer("num_hidden_layers", high=MAX_LAYERS)


def _window(c: Fields) -> int | None:
    """The window in tokens, or None where the config sets none or switches it off."""
    switch, model_type = c.flag("use_sliding_window"), c.raw_type()
    if model_type in WINDOW_BY_SWITCH and not switch:
        return None
    window = c.integer("sliding_window", None, low=0) or None
    if window and switch is False and model_type != "smollm3":
        raise c.wrong("use_sliding_window", f"is false and sliding_window {window:,}; which of them counts for model_type "
                      f"{model_type!r} is not known here, so set sliding_window to null or take the switch out", False)
    if window and model_type == "gemma3_text" and c.get("use_bidirectional_attention"):
        window = window // 2 + 1
    return window


# --- readers -----------------------------------------------------------------------------------------------------

def _nemotron_h(c: Fields) -> list[Layer]:
    """Nemotron-H: a letter per layer (M Mamba-2, * attention, - MLP, E experts) or a word."""
    words = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    pattern = c.get("hybrid_override_pattern")
    key = "hybrid_override_pattern" if pattern is not None else "layers_block_type"
    pattern = c.get(key)
    if not isinstance(pattern, (str, list)) or not pattern or len(pattern) > MAX_LAYERS:
        raise c.wrong(key, f"is {short(pattern)}; it must give one kind for each layer", pattern, "one kind for each layer")
    mamba = Mamba2(c.integer("mamba_num_heads") * c.integer("mamba_head_dim"), c.integer("n_groups"),
                   c.integer("mamba_num_heads"), c.integer("mamba_head_dim"), c.integer("ssm_state_size"),
                   c.integer("conv_kernel"))
    kinds = {"mamba": mamba, "attention": _attention(c), "mlp": NoCache(), "moe": NoCache()}
    kinds.update({letter: kinds[word] for letter, word in words.items()})
    layers = [_pick(c, key, position, kinds, kind) for position, kind in enumerate(pattern)]
    if c.get("num_hidden_layers") is not None and c.get("num_hidden_layers") != len(layers):
        raise c.wrong(key, f"has {len(layers)} entries for num_hidden_layers {short(c.get('num_hidden_layers'))}; they must agree",
                      len(layers))
    return layers


def _kimi_linear(c: Fields) -> list[Layer]:
    """Kimi-Linear: Kimi Delta Attention and latent attention, the layers counted from one."""
    linear, count = c.mapping("linear_attn_config"), _count(c)
    kda = KimiDelta(*(c.whole(f"linear_attn_config.{key}", linear.get(key))
                      for key in ("num_heads", "head_dim", "short_conv_kernel_size")))
    full = linear.get("full_attn_layers")
    states = linear.get("kda_layers")
    if not isinstance(full, list) or not isinstance(states, list) or \
            sorted(map(str, full + states)) != sorted(map(str, range(1, count + 1))):
        raise c.wrong("linear_attn_config", f"must name each of the {count} layers once, counted from 1, in full_attn_layers and "
                      "kda_layers", None, f"1 to {count}")
    latent = _latent(c)
    return [kda if index + 1 in set(states) else latent for index in range(count)]


def _lightning(c: Fields) -> list[Layer]:
    """MiniMax-Text-01 and M1: 0 is lightning attention, 1 full attention."""
    count = _count(c)
    kinds = {0: Lightning(c.integer("num_attention_heads"), _head_dim(c)), 1: _attention(c)}
    return [_pick(c, "attn_type_list", index, kinds, value)
            for index, value in enumerate(c.list_of("attn_type_list", count))]


def _pick(c: Fields, key: str, index: int, kinds: dict, value) -> Layer:
    try:
        return kinds[value]
    except (KeyError, TypeError):
        _refuse(c, c.raw_type(), f"layer {index} of kind {short(value)} ({key})", key)


def _jamba(c: Fields) -> list[Layer]:
    """Jamba: attention once a period, Mamba-1 elsewhere."""
    count, period = _count(c), c.integer("attn_layer_period")
    offset = c.integer("attn_layer_offset", low=0)
    mamba = Mamba1(c.integer("mamba_expand") * c.integer("hidden_size"), c.integer("mamba_d_state"),
                   c.integer("mamba_d_conv"))
    full = _attention(c)
    return [full if index % period == offset else mamba for index in range(count)]


def _mamba2_of(c: Fields, intermediate_size: int) -> Mamba2:
    return Mamba2(intermediate_size, c.integer("mamba_n_groups"), c.integer("mamba_n_heads"),
                  c.integer("mamba_d_head"), c.integer("mamba_d_state"), c.integer("mamba_d_conv"))


def _falcon_h1(c: Fields) -> list[Layer]:
    """Falcon-H1: every layer runs Mamba-2 and attention side by side."""
    inner = c.integer("mamba_d_ssm", None) or c.integer("mamba_expand") * c.integer("hidden_size")
    return [Parallel((_attention(c), _mamba2_of(c, inner)))] * _count(c)


def _states_alone(c: Fields) -> list[Layer]:
    """Mamba, FalconMamba and Mamba-2 models, which have no attention at all."""
    width = c.integer("intermediate_size", None) or c.integer("expand") * c.integer("hidden_size")
    if c.raw_type() == "mamba2":
        layer = Mamba2(width, c.integer("n_groups"), c.integer("num_heads"), c.integer("head_dim"),
                       c.integer("state_size"), c.integer("conv_kernel"))
    else:
        layer = Mamba1(width, c.integer("state_size"), c.integer("conv_kernel"))
    return [layer] * _count(c)


def _bailing_hybrid(c: Fields) -> list[Layer]:
    """Ling and Ring 2.5: lightning attention, with latent attention once a group."""
    count, every = _count(c), c.integer("layer_group_size")
    lightning, latent = Lightning(c.integer("num_attention_heads"), _head_dim(c)), _latent(c)
    return [lightning if (index + 1) % every else latent for index in range(count)]


def _bamba(c: Fields) -> list[Layer]:
    """Bamba and Granite-4-H: Mamba-2 with attention at listed layers."""
    count = _count(c)
    mamba, full = _mamba2_of(c, c.integer("mamba_expand") * c.integer("hidden_size")), _attention(c)
    types = c.list_of("layer_types", count) or c.list_of("layers_block_type", count)
    if types is not None:
        kinds = {"mamba": mamba, "attention": full, "full_attention": full}
        return [_pick(c, "layer_types", index, kinds, value) for index, value in enumerate(types)]
    chosen = c.list_of("attn_layer_indices")
    if chosen is None:
        raise c.wrong("attn_layer_indices", "is absent, and so is layer_types: one of them must say which layers are attention",
                      None, "a list of layer indices")
    return [full if index in chosen else mamba for index in range(count)]


def _short_conv(c: Fields) -> list[Layer]:
    """LFM2: gated short convolutions and full attention."""
    count, full = _count(c), _attention(c)
    conv = ShortConv(c.integer("conv_dim", None) or c.integer("hidden_size"), c.integer("conv_L_cache"))
    types = c.list_of("layer_types", count)
    if types is None:
        chosen = c.list_of("full_attn_idxs")
        if chosen is None:
            raise c.wrong("layer_types", "is absent, and so is full_attn_idxs: one of them must say which layers are attention",
                          None, "one kind for each layer")
        types = ["full_attention" if index in chosen else "conv" for index in range(count)]
    return [_pick(c, "layer_types", i, {"conv": conv, "full_attention": full}, t) for i, t in enumerate(types)]


def _gated_delta(c: Fields) -> list[Layer]:
    """Qwen3-Next, Qwen3.5, OLMo Hybrid: Gated DeltaNet, with full attention at every ``full_attention_interval``-th layer."""
    if c.raw_type() not in GDN_MODEL_TYPES:  # others use the same words for another state
        _refuse(c, c.raw_type(), f"linear attention whose state is not known for model_type {c.raw_type()!r}",
                "linear_num_value_heads")
    count = _count(c)
    gdn = GatedDeltaNet(*(c.integer(f"linear_{key}", high=1 << 20) for key in (
        "num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")))
    full = _attention(c)
    types = c.list_of("layer_types", count)
    if types is None:
        every = c.integer("full_attention_interval")
        types = ["full_attention" if (index + 1) % every == 0 else "linear_attention" for index in range(count)]
    return [_pick(c, "layer_types", i, {"linear_attention": gdn, "full_attention": full}, t)
            for i, t in enumerate(types)]


def _latent(c: Fields, index_head_dim: int = 0) -> LatentAttention:
    return LatentAttention(c.integer("kv_lora_rank", high=1 << 20), c.integer("qk_rope_head_dim", high=1 << 20),
                           index_head_dim)


def _latent_layers(c: Fields) -> list[Layer]:
    """DeepSeek V2 to V3.2, Kimi-K2, GLM-5: latent attention, in some with a sparse indexer on every or some layers."""
    count = _count(c)
    index_head_dim = c.integer("index_head_dim", 0, low=0)
    if not index_head_dim:
        return [_latent(c)] * count
    types = c.list_of("indexer_types", count)
    if types is None:
        every, skip = c.integer("index_topk_freq", 1), c.integer("index_skip_topk_offset", 2, low=0)
        types = ["full" if max(index - skip + 1, 0) % every == 0 else "shared" for index in range(count)]
    kinds = {"full": _latent(c, index_head_dim), "shared": _latent(c)}
    return [_pick(c, "indexer_types", i, kinds, t) for i, t in enumerate(types)]


def _two_geometries(c: Fields) -> list[Layer]:
    """MiMo-V2: 1 marks a window layer, which has head counts and widths of its own."""
    count, full = _count(c), _attention(c)
    window_head_dim = c.integer("swa_head_dim", full.head_dim)
    window = SlidingWindow(c.integer("swa_num_key_value_heads", full.num_kv_heads), window_head_dim,
                           c.integer("swa_v_head_dim", window_head_dim),
                           c.integer("sliding_window_size", None) or c.integer("sliding_window"))
    return [_pick(c, "hybrid_layer_pattern", i, {0: full, 1: window}, t)
            for i, t in enumerate(c.list_of("hybrid_layer_pattern", count))]


def _gemma4(c: Fields) -> list[Layer]:
    """Gemma 4: full layers have a head size and head count of their own."""
    count, window = _count(c), c.integer("sliding_window")
    sliding = _windowed(_attention(c), window)
    head_dim = c.integer("global_head_dim", sliding.head_dim)
    heads = c.integer("num_global_key_value_heads", None) if c.flag("attention_k_eq_v") else None
    full = FullAttention(heads or sliding.num_kv_heads, head_dim, head_dim)
    kinds = {"sliding_attention": sliding, "full_attention": full}
    types = c.list_of("layer_types", count)
    if types is None:
        raise c.wrong("layer_types", "is absent; it must say where full attention stands", None, "one kind for each layer")
    return [_pick(c, "layer_types", i, kinds, t) for i, t in enumerate(types)]


def _llama4(c: Fields) -> list[Layer]:
    """Llama 4: chunked local attention where RoPE is used, full attention at every fourth layer."""
    count, full = _count(c), _attention(c)
    chunk = c.integer("attention_chunk_size", None)
    if chunk is None:
        return [full] * count
    chunked = ChunkedLocal(full.num_kv_heads, full.head_dim, full.v_head_dim, chunk)
    rope = c.list_of("no_rope_layers")
    if not rope:
        every = c.integer("nope_layer_interval", c.integer("no_rope_layer_interval", 4))
        rope = [int((index + 1) % every != 0) for index in range(count)]
    if len(rope) != count:
        c.list_of("no_rope_layers", count)
    return [_pick(c, "no_rope_layers", i, {0: full, 1: chunked}, v) for i, v in enumerate(rope)]


def _block_configs(c: Fields) -> list[Layer]:
    """Nemotron-NAS (DeciLM): a head count for each layer, or no attention at all."""
    blocks, heads = c.list_of("block_configs", _count(c)), c.integer("num_attention_heads")
    head_dim, layers = _head_dim(c), []
    for index, block in enumerate(blocks):
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise c.wrong("block_configs", f"has no attention entry in [{index}]", block, "an object with attention")
        if attention.get("no_op") or attention.get("replace_with_linear"):
            layers.append(NoCache())
            continue
        per_group = c.whole(f"block_configs[{index}].attention.n_heads_in_group", attention.get("n_heads_in_group"), high=heads)
        layers.append(FullAttention(heads // per_group, head_dim, head_dim))
    return layers


def _gpt_oss(c: Fields) -> list[Layer]:
    """gpt-oss: vLLM goes by parity, whatever layer_types says: even layers slide (all do where all are said to)."""
    full, count = _attention(c), _count(c)
    sliding = _windowed(full, c.integer("sliding_window"))
    if set(map(str, c.list_of("layer_types") or ())) == {"sliding_attention"}:
        return [sliding] * count
    c.note("even layers slide: vLLM goes by parity and ignores layer_types for gpt_oss")
    return [full if index % 2 else sliding for index in range(count)]


def _pattern(c: Fields) -> list[Layer]:
    """Gemma 2 and 3, Cohere 2, Olmo 3, EXAONE 4 without layer_types: every n-th layer is full."""
    model_type, full, count = c.raw_type(), _attention(c), _count(c)
    window = _window(c)
    if window is None:
        return [full] * count
    sliding = _windowed(full, window, inclusive=model_type.startswith("cohere2"))
    if isinstance(c.get("sliding_window_pattern"), str):
        _refuse(c, model_type, "a sliding_window_pattern of letters and no layer_types, which vLLM cannot read either",
                "sliding_window_pattern")
    default = _DEFAULT_PATTERN[model_type]
    every = c.integer("sliding_window_pattern", default) if model_type in _PATTERN_BY_KEY else default
    return [sliding if (index + 1) % every else full for index in range(count)]


_DEFAULT_PATTERN = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4, "cohere2_moe": 4, "olmo3": 4, "exaone4": 4,
                    "exaone_moe": 4}
_PATTERN_BY_KEY = ("gemma3_text", "cohere2", "cohere2_moe", "exaone4", "exaone_moe")


def _switched(c: Fields) -> list[Layer]:
    """Qwen 2 and 3: a window only where use_sliding_window is true, and then on every layer or on none."""
    full, count, window = _attention(c), _count(c), _window(c)
    if window is None:
        return [full] * count
    first = 0 if c.raw_type().endswith("_moe") else c.integer("max_window_layers", 28, low=0)
    if 0 < first < count:
        _refuse(c, c.raw_type(), "a window on some of its layers but not on all, which vLLM refuses",
                "max_window_layers")
    return [full if first else _windowed(full, window)] * count


def _smollm3(c: Fields) -> list[Layer]:
    """SmolLM3: where a window is switched on, the layers without RoPE slide."""
    full, count, window = _attention(c), _count(c), _window(c)
    if window is None or not c.flag("use_sliding_window"):
        return [full] * count
    every = c.integer("no_rope_layer_interval", 4)
    rope = c.list_of("no_rope_layers", count) or [int((index + 1) % every != 0) for index in range(count)]
    return [full if rope[index] else _windowed(full, window) for index in range(count)]


def _padded_heads(c: Fields) -> list[Layer]:
    """MiniCPM3: latent weights, but every head's key and value are cached, the value padded to the key's width."""
    width = c.integer("qk_nope_head_dim") + c.integer("qk_rope_head_dim")
    return [FullAttention(c.integer("num_attention_heads"), width, width)] * _count(c)


def _listed(c: Fields) -> list[Layer]:
    """Any model whose layer_types names full and sliding attention."""
    count, full = _count(c), _attention(c)
    types = c.list_of("layer_types", None if c.raw_type().startswith("step3p") else count)
    if len(types) < count:
        c.list_of("layer_types", count)
    types = types[:count]  # Step-3.5: what follows are the kinds of its MTP layers
    kinds = {"full_attention": full, "attention": full}
    if "sliding_attention" in types:
        window = _window(c)
        if window is None and "sliding_window" not in c.inner:
            c.integer("sliding_window")
        elif window is None:
            c.note("layer_types names sliding layers, but the config sets no window: they are full, as in vLLM")
        inclusive = c.raw_type().startswith("cohere2")
        kinds["sliding_attention"] = _windowed(full, window, inclusive) if window else full
    if "chunked_attention" in types:
        kinds["chunked_attention"] = ChunkedLocal(full.num_kv_heads, full.head_dim, full.v_head_dim,
                                                  c.integer("attention_chunk_size"))
    return [_pick(c, "layer_types", i, kinds, t) for i, t in enumerate(types)]


_FOREIGN_FIELDS = (  # marks of caches that the plain reader cannot see
    "ssm_state_size", "mamba_d_state", "state_size", "mamba_num_heads", "linear_num_value_heads", "conv_L_cache",
    "kv_lora_rank", "linear_attn_config", "attn_type_list", "layers_block_type", "hybrid_layer_pattern",
    "hybrid_override_pattern", "index_head_dim", "attention_types", "rwkv", "lru_width", "block_types",
    "hybrid_layer_ids", "mamba_expand", "d_state", "linear_attention", "full_attention_interval",
    "num_cross_attention_layers", "encoder_layers", "layer_group_size", "window_size", "attention_window_size",
    "local_attention", "global_attn_every_n_layers", "type_vocab_size", "attn_layer_period", "swa_num_key_value_heads",
    "no_rope_layers_window")


def _plain(c: Fields) -> list[Layer]:
    """A dense decoder: every layer full attention, or every layer a window."""
    model_type = c.raw_type()
    foreign = [key for key in _FOREIGN_FIELDS if c.get(key) is not None]
    if foreign:
        _refuse(c, model_type, f"{foreign[0]} in its config, so layers of a kind that is not known for model_type "
                f"{model_type!r}", foreign[0])
    full, count = _attention(c), _count(c)
    if model_type not in PLAIN_MODEL_TYPES:
        unknown = f"model_type {model_type!r} is not one known here" if model_type else "the config has no model_type"
        c.note(f"{unknown}; it was read as plain attention, because every field that needs is there and none speaks of another kind")
    window = _window(c)
    return [_windowed(full, window) if window else full] * count


def _has(*keys):
    return lambda c, model_type: all(c.get(key) is not None for key in keys)


def _no_latent_widths(c: Fields) -> bool:
    """DeepSeek-VL2-Tiny, DeepSeek-OCR: a DeepSeek config with widths of 0 means plain attention."""
    return c.get("qk_nope_head_dim") == 0 == c.get("qk_rope_head_dim")


_READERS = (
    (lambda c, t: t == "nemotron_h", _nemotron_h),
    (lambda c, t: t in ("mamba", "falcon_mamba", "mamba2"), _states_alone),
    (lambda c, t: t == "bailing_hybrid", _bailing_hybrid),
    (lambda c, t: t == "kimi_linear" or _has("linear_attn_config", "kv_lora_rank")(c, t), _kimi_linear),
    (_has("attn_type_list"), _lightning),
    (_has("attn_layer_period", "mamba_d_state"), _jamba),
    (lambda c, t: t == "falcon_h1", _falcon_h1),
    (lambda c, t: t in ("bamba", "granitemoehybrid"), _bamba),
    (lambda c, t: t in ("lfm2", "lfm2_moe"), _short_conv),
    (_has("linear_num_value_heads", "linear_conv_kernel_dim"), _gated_delta),
    (lambda c, t: t in MLA_MODEL_TYPES and (c.get("kv_lora_rank") is not None or not _no_latent_widths(c)), _latent_layers),
    (_has("hybrid_layer_pattern", "swa_num_key_value_heads"), _two_geometries),
    (lambda c, t: t == "gemma4_text", _gemma4),
    (lambda c, t: t == "llama4_text", _llama4),
    (_has("block_configs"), _block_configs),
    (lambda c, t: t == "gpt_oss", _gpt_oss),
    (lambda c, t: t == "minicpm3", _padded_heads),
    (lambda c, t: t in WINDOW_BY_SWITCH, _switched),
    (lambda c, t: t == "smollm3", _smollm3),
    (lambda c, t: t in _DEFAULT_PATTERN and c.get("layer_types") is None, _pattern),
    (_has("layer_types"), _listed),
    (lambda c, t: True, _plain),
)

# Families whose own multi-token prediction vLLM serves: the key that counts its layers, and what an absent key means.
_MTP = {
    **dict.fromkeys(("deepseek_v3", "deepseek_v32", "glm4_moe", "qwen3_next", "exaone_moe"), ("num_nextn_predict_layers", 1)),
    **dict.fromkeys(("glm_moe_dsa", "glm4_moe_lite", "bailing_hybrid", "ernie4_5_moe", "mimo", "step3p5", "step3p7", "pangu_ultra_moe"),
                    ("num_nextn_predict_layers", 0)),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"), ("mtp_num_hidden_layers", 1)),
    **dict.fromkeys(("mimo_v2", "mimo_v2_flash", "longcat_flash"), (None, 1)),
}


def _draft_layers(c: Fields, model_type: str, layers: list[Layer]) -> tuple[Layer, ...]:
    """The layers of the model's own MTP module, shaped like those of the model; () where vLLM serves none."""
    if model_type == "nemotron_h":
        pattern = c.get("mtp_hybrid_override_pattern") or c.get("mtp_layers_block_type") or ()
        pattern = pattern if isinstance(pattern, (str, list)) else ()
        count = sum(letter in ("*", "attention") for letter in pattern)
        count *= c.integer("num_nextn_predict_layers", 0, low=0, high=1)
    elif model_type in _MTP:
        key, absent = _MTP[model_type]
        count = absent if key is None else c.integer(key, absent, low=0, high=64)
    else:
        return ()
    if model_type.startswith("mimo_v2"):
        return tuple(layer for layer in layers if isinstance(layer, SlidingWindow))[:1]
    if model_type.startswith("step3p"):
        kinds = (c.list_of("mtp_layer_types") or (c.list_of("layer_types") or [])[len(layers):])[:count]
        known = {"sliding_attention" if type(layer) is SlidingWindow else "full_attention": layer for layer in layers}
        return tuple(_pick(c, "mtp_layer_types", index, known, kind) for index, kind in enumerate(kinds))
    attention = [part for part in reversed(layers) if isinstance(part, (FullAttention, LatentAttention))]
    like = next((part for part in attention if part.grows), attention[0] if attention else None)
    if isinstance(like, LatentAttention) and c.get("index_head_dim"):
        like = _latent(c, c.integer("index_head_dim"))
    return (like,) * count if like is not None else ()
