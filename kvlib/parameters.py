"""How many parameters a config describes, part by part: what the weights of an unseen checkpoint will weigh.

Counted from the fields of ``config.json`` for the text model; a vision or audio tower is not counted, and the
answer says so. Norms and biases are counted where their number follows from the config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import ConfigError
from .fields import CLASS_DEFAULTS, text_part
from .layers import (FullAttention, GatedDeltaNet, KimiDelta, LatentAttention, Layer, Lightning, Mamba1, Mamba2,
                     Parallel, ShortConv)
from .model import Model

TIED_BY_DEFAULT = ("gemma", "gemma2", "gemma3_text", "gemma4_text", "cohere", "cohere2", "lfm2", "lfm2_moe")
TWO_MATRIX_MLP = ("starcoder2", "apertus", "nemotron_h", "nemotron", "phi", "gpt2", "gpt_neox", "opt")
EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
BIASED_QKV = ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "gpt_oss")


@dataclass(frozen=True, slots=True)
class Parameters:
    """Numbers of parameters of a text model, by part. ``draft`` is the MTP module, loaded only when it is used."""

    embedding: int
    lm_head: int
    attention: int
    states: int
    mlp: int
    experts: int
    norms: int
    draft: int
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Without the draft module."""
        return (self.embedding + self.lm_head + self.attention + self.states + self.mlp + self.experts + self.norms)

    @property
    def matrices(self) -> int:
        """What quantization shrinks: everything but embeddings, the head and norms."""
        return self.attention + self.states + self.mlp + self.experts


class _Config:
    def __init__(self, model: Model):
        inner, path = text_part(model.config)
        defaults = CLASS_DEFAULTS.get(model.model_type, {}) if path else {}
        self.text: Mapping = {**defaults, **inner}
        self.top = model.config
        self.kind = model.model_type
        self.hidden = self.first("hidden_size", "n_embd", "d_model")

    def first(self, *keys: str) -> int:
        for key in keys:
            value = self.text.get(key)
            if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
                value = value[0]
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return int(value)
        return 0

    def true(self, key: str) -> bool:
        value = self.text.get(key, self.top.get(key))
        return value is True


def parameters(model: Model) -> Parameters:
    """Count the parameters of a model's config. ConfigError where it does not say a width that the count needs.

    >>> from kvlib import load_model
    >>> parameters(load_model("Qwen3-8B")).total
    8190735360
    """
    try:
        return _count(model, _Config(model))
    except (TypeError, AttributeError):  # a width that the config leaves out
        raise ConfigError(f"{model.name}: its parameters cannot be counted, because the config leaves out a width; type the "
                          'weights, from the "Model loading took" line of a launch or the size of its files',
                          field="weights_bytes", found=model.name) from None


def _count(model: Model, c: _Config) -> Parameters:
    vocabulary = c.first("vocab_size") or c.top.get("vocab_size") or 0
    embedding = vocabulary * c.hidden
    lm_head = 0 if _tied(c) else embedding
    attention = sum(_attention(c, layer) for layer in _parts(model) if isinstance(layer, (FullAttention, LatentAttention)))
    states = sum(_state(c, layer) for layer in _parts(model) if layer.has_state)
    dense, sparse = _mlp_layers(c, model)
    for field, missing in (("vocab_size", not embedding), ("intermediate_size", dense and not _dense_width(c)),
                           ("moe_intermediate_size", sparse and not _expert_width(c))):
        if missing and not model.model_type.startswith(("mamba", "falcon_mamba")):
            raise ConfigError(f"{model.name}: the config has no {field}, so its weights cannot be counted; type them from its "
                              "\"Model loading took\" line", field=field, expected="a whole number")
    mlp = dense * _mlp(c, _dense_width(c)) + sparse * _shared(c) + sum(_mlp(c, width) for width in _nas_widths(c))
    experts = sparse * _experts(c)
    norms = _norms(c, model)
    draft = len(model.draft_layers) * (_attention(c, model.draft_layers[0]) if model.draft_layers else 0)
    if model.draft_layers:
        draft += len(model.draft_layers) * (2 * c.hidden * c.hidden + (_shared(c) + _experts(c) if sparse else
                                                                     _mlp(c, _dense_width(c))))
    notes = ("the vision tower is not counted",) if "vision_config" in c.top else ()
    return Parameters(embedding, lm_head, attention, states, mlp, experts, norms, draft, notes)


def _parts(model: Model):
    for layer in model.layers:
        yield from layer.parts if isinstance(layer, Parallel) else (layer,)


def _tied(c: _Config) -> bool:
    for place in (c.text, c.top):
        for key in ("tie_word_embeddings", "tie_embedding"):
            if isinstance(place.get(key), bool):
                return place[key]
    return c.kind in TIED_BY_DEFAULT


def _attention(c: _Config, layer: Layer) -> int:
    heads, hidden = c.first("num_attention_heads"), c.hidden
    if isinstance(layer, LatentAttention) or c.first("kv_lora_rank"):
        rank, rope, nope = c.first("kv_lora_rank"), c.first("qk_rope_head_dim"), c.first("qk_nope_head_dim")
        value, query = c.first("v_head_dim") or nope, c.first("q_lora_rank")
        total = hidden * (rank + rope) + rank + rank * heads * (nope + value) + heads * value * hidden
        total += hidden * query + query + query * heads * (nope + rope) if query else hidden * heads * (nope + rope)
        width = getattr(layer, "index_head_dim", 0)
        if width:
            total += query * c.first("index_n_heads") * width + hidden * width + 2 * width + hidden * c.first("index_n_heads")
        return total
    heads = c.first("swa_num_attention_heads") or heads if layer.kind == "sliding" else heads
    gate = 2 if c.true("attn_output_gate") or c.kind == "qwen3_next" else 1
    query = heads * layer.head_dim
    keys, values = layer.num_kv_heads * layer.head_dim, layer.num_kv_heads * layer.v_head_dim
    if c.kind == "gemma4_text" and c.true("attention_k_eq_v") and layer.kind == "full":
        values = 0
    total = hidden * (query * gate + keys + values) + heads * layer.v_head_dim * hidden
    if c.kind in BIASED_QKV or c.true("attention_bias") or c.true("qkv_bias") or c.true("use_bias"):
        total += query + keys + values
    if c.kind == "gpt_oss" or c.true("use_bias"):
        total += hidden
    return total


def _state(c: _Config, layer: Layer) -> int:
    hidden = c.hidden
    if isinstance(layer, GatedDeltaNet):
        key = layer.linear_num_key_heads * layer.linear_key_head_dim
        value, heads = layer.linear_num_value_heads * layer.linear_value_head_dim, layer.linear_num_value_heads
        return (hidden * (2 * key + 2 * value + 2 * heads) + (2 * key + value) * layer.linear_conv_kernel_dim
                + 2 * heads + layer.linear_value_head_dim + value * hidden)
    if isinstance(layer, Mamba2):
        inner, mixed = layer.intermediate_size, 2 * layer.n_groups * layer.state_size
        return (hidden * (2 * inner + mixed + layer.num_heads) + (inner + mixed) * (layer.conv_kernel + 1)
                + 3 * layer.num_heads + (inner if c.text.get("mamba_rms_norm", True) else 0) + inner * hidden)
    if isinstance(layer, Mamba1):
        inner, rank, state = layer.intermediate_size, c.first("mamba_dt_rank"), layer.state_size
        return (hidden * 2 * inner + inner * (layer.conv_kernel + 1) + inner * (rank + 2 * state) + rank * inner + inner
                + inner * state + inner + rank + 2 * state + inner * hidden)
    if isinstance(layer, ShortConv):
        return hidden * 3 * layer.conv_dim + layer.conv_dim * layer.conv_L_cache + layer.conv_dim * hidden
    if isinstance(layer, KimiDelta):
        width, one = layer.num_heads * layer.head_dim, layer.head_dim
        return (3 * hidden * width + 3 * width * layer.short_conv_kernel_size + 2 * (hidden * one + one * width) + width
                + layer.num_heads + hidden * layer.num_heads + one + width * hidden)
    if isinstance(layer, Lightning):
        width = layer.num_heads * layer.head_dim
        return hidden * 3 * width + hidden * width + width + width * hidden
    return 0


def _mlp(c: _Config, width: int) -> int:
    matrices = 2 if c.kind in TWO_MATRIX_MLP else 3
    biases = (matrices - 1) * width + c.hidden if c.kind == "starcoder2" else 0
    return matrices * c.hidden * width + biases


def _dense_width(c: _Config) -> int:
    if c.kind == "lfm2" and c.first("block_ff_dim"):
        width = int(2 * c.first("block_ff_dim") / 3) if c.text.get("block_auto_adjust_ff_dim") else c.first("block_ff_dim")
        multiple = c.first("block_multiple_of") or 1
        return -(-width // multiple) * multiple
    if c.kind == "llama4_text":
        return c.first("intermediate_size_mlp")
    return c.first("intermediate_size", "ffn_dim", "n_inner", "shared_intermediate_size")


def _mlp_layers(c: _Config, model: Model) -> tuple[int, int]:
    """How many layers have a dense MLP and how many have experts."""
    count = len(model.layers)
    pattern = c.text.get("hybrid_override_pattern") or c.text.get("layers_block_type")
    if c.kind == "nemotron_h":
        return (sum(mark in ("-", "mlp") for mark in pattern), sum(mark in ("E", "moe") for mark in pattern))
    if c.text.get("block_configs"):
        return 0, 0  # counted layer by layer
    if not c.first(*EXPERTS):
        return count, 0
    sparse = [_is_sparse(c, index) for index in range(count)]
    return count - sum(sparse), sum(sparse)


def _nas_widths(c: _Config) -> list[int]:
    """MLP widths of a Nemotron-NAS config: ffn_mult of each block, rounded up to 256."""
    blocks = [block.get("ffn") or {} for block in c.text.get("block_configs") or ()]
    return [-(-int(2 * ffn["ffn_mult"] * c.hidden / 3) // 256) * 256 for ffn in blocks if ffn.get("ffn_mult")]


def _is_sparse(c: _Config, index: int) -> bool:
    text = c.text
    if isinstance(text.get("mlp_layer_types"), list):
        return text["mlp_layer_types"][index] == "sparse"
    if isinstance(text.get("moe_layer_freq"), list):
        return bool(text["moe_layer_freq"][index])
    if c.kind == "jamba":
        return index % c.first("expert_layer_period") == c.first("expert_layer_offset")
    if c.kind == "llama4_text":
        return (index + 1) % (c.first("interleave_moe_layer_step") or 1) == 0
    if c.kind == "ernie4_5_moe":
        return c.first("moe_layer_start_index") <= index <= (c.first("moe_layer_end_index") or 10**9)
    if index in (text.get("mlp_only_layers") or ()):
        return False
    if index < c.first("first_k_dense_replace", "num_dense_layers"):
        return False
    return (index + 1) % (c.first("decoder_sparse_step") or 1) == 0


def _expert_width(c: _Config) -> int:
    if c.kind == "llama4_text":
        return c.first("intermediate_size")
    return c.first("moe_intermediate_size", "intermediate_size")


def _experts(c: _Config) -> int:
    """Routed experts and their router, of one layer."""
    count, width = c.first(*EXPERTS), _expert_width(c)
    matrices = 2 if c.kind == "nemotron_h" else 3
    hidden = c.first("moe_latent_size", "routed_expert_hidden_size") or c.hidden
    total = count * matrices * hidden * width + count * c.hidden
    if hidden != c.hidden:
        total += 2 * c.hidden * hidden
    if c.kind == "gpt_oss":
        total += count * (2 * width + hidden) + count
    return total


def _shared(c: _Config) -> int:
    """What every token passes beside the experts, of one layer."""
    if c.kind == "gemma4_text":
        return _mlp(c, c.first("intermediate_size"))
    if c.kind == "granitemoehybrid":
        return 3 * c.hidden * c.first("shared_intermediate_size")
    if c.kind == "llama4_text":
        return 3 * c.hidden * c.first("intermediate_size")
    single = c.first("shared_expert_intermediate_size")
    if single:
        return 3 * c.hidden * single + c.hidden
    width = c.first("moe_shared_expert_intermediate_size")
    count = c.first("n_shared_experts", "moe_num_shared_experts", "num_shared_experts", "num_shared_expert")
    matrices = 2 if c.kind == "nemotron_h" else 3
    return matrices * c.hidden * (width * max(count, 1) if width else _expert_width(c) * count)


def _norms(c: _Config, model: Model) -> int:
    kind, hidden = c.kind, c.hidden
    per_layer = 4 if kind in ("gemma2", "gemma3_text", "glm4", "gemma4_text") else 1 if kind in ("cohere", "cohere2") else \
        1 if kind == "nemotron_h" else 2
    total = per_layer * len(model.layers) * hidden + hidden
    if kind in ("qwen3", "qwen3_moe", "gemma3_text", "gemma4_text", "qwen3_next", "qwen3_vl_text", "qwen3_vl_moe_text",
                "qwen3_5_text", "qwen3_5_moe_text", "exaone4", "apertus", "lfm2", "lfm2_moe", "bailing_moe") \
            or c.true("use_qk_norm"):
        total += sum(2 * layer.head_dim for layer in _parts(model) if isinstance(layer, FullAttention))
    if kind in ("olmo2", "olmo3", "olmoe"):
        heads = c.first("num_attention_heads")
        total += sum((heads + layer.num_kv_heads) * layer.head_dim for layer in _parts(model)
                     if isinstance(layer, FullAttention))
    return total
