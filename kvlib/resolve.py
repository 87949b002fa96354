"""What vLLM makes of the flags: every default taken, with the value and the reason."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from .engine import BACKENDS, DTYPES, FP8_DTYPES, PER_TOKEN_HEAD_DTYPES, Backend, Engine
from .errors import EngineError, UnknownArchitectureError
from .layers import ChunkedLocal, FullAttention, GatedDeltaNet, LatentAttention, Mamba1, Mamba2, SlidingWindow
from .model import Model
from .units import GiB
from .versions import LEFT_VLLM_AFTER

GDN_CHECKPOINT_TOKENS = 64


class Default(NamedTuple):
    """A value that no flag gave: its flag, the value, and why it is that."""

    flag: str
    value: Any
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """The launch after vLLM has filled in its defaults; lengths and counts in tokens, sequences, batches."""

    cache_dtype: str  # the type of keys and values
    model_dtype: str
    backend_name: str | None
    backend: Backend | None
    max_model_len: int  # before auto-fit
    max_num_batched_tokens: int
    max_num_seqs: int
    tokens_in_flight: int
    gpu_memory_utilization: float
    gdn_prefill_backend: str
    defaults: tuple[Default, ...]
    notes: tuple[str, ...]
    gpu: Any = None


@lru_cache(maxsize=8192)
def resolve(model: Model, engine: Engine) -> Setup:
    """Fill in vLLM's defaults for this model. Raises EngineError on what vLLM would refuse before sizing."""
    defaults: list[Default] = []
    notes = [note for note in (engine.version.note,) if note]

    def take(flag, value, why):
        defaults.append(Default(flag, value, why))
        return value

    _check_served(model, engine)
    gpu = _gpu(engine)
    max_model_len = _max_model_len(model, engine, take, notes)
    batched = engine.max_num_batched_tokens
    seqs = engine.max_num_seqs
    large, why = _large_tier(engine, gpu)
    world = engine.tensor_parallel_size * engine.pipeline_parallel_size
    default_seqs = 128 * world if engine.device == "cpu" else 1024 if large else 256
    if batched is None:
        batched = 2048 * world if engine.device == "cpu" else 2048 if not large else \
            16384 if gpu is not None and gpu.total_bytes >= 160 * GiB else 8192
        batched = take("max_num_batched_tokens", min(batched, (seqs or default_seqs) * max_model_len), why)
    if seqs is None:
        seqs = take("max_num_seqs", min(default_seqs, batched), why)
    utilization = engine.gpu_memory_utilization
    if utilization is None:
        utilization = take("gpu_memory_utilization", 0.92 if engine.version.has("utilization_092") else 0.90,
                           f"vLLM {engine.version}'s default")
    model_dtype = model.dtype if engine.dtype == "auto" else DTYPES[engine.dtype]
    gdn = _gdn_backend(model, engine, gpu, take)
    name, backend, cache_dtype = _attention(model, engine, gpu, model_dtype, take)
    return Setup(cache_dtype=cache_dtype, model_dtype=model_dtype, backend_name=name, backend=backend,
                 max_model_len=max_model_len, max_num_batched_tokens=batched, max_num_seqs=seqs,
                 tokens_in_flight=batched * _batches_in_flight(model, engine), gpu_memory_utilization=utilization,
                 gdn_prefill_backend=gdn, defaults=tuple(defaults), notes=tuple(notes), gpu=gpu)


def _check_served(model: Model, engine: Engine) -> None:
    version, tp = engine.version, engine.tensor_parallel_size
    if not version.covered:
        raise EngineError(f"vLLM {version} is older than 0.18, the oldest whose sizing is known here; "
                          "its logs can still be read and explained", flag="vllm_version", found=version.text)
    left = LEFT_VLLM_AFTER.get(model.architecture or "")
    if left and version.number > left:
        raise UnknownArchitectureError(
            f"{model.architecture} left vLLM after {'.'.join(map(str, left))}, so {version} does not serve "
            f"{model.name}; give that vllm_version or an older one", unknown=(model.architecture,),
            field="architectures", found=model.architecture)
    if not model.buckets:
        raise UnknownArchitectureError(f"{model.name}: no layer keeps a cache, so there is nothing to size",
                                       unknown=("a model without a KV cache",))
    _check_divides(model.num_attention_heads, tp, f"{model.num_attention_heads} attention heads of {model.name}")
    for part in (*model.buckets, *model.draft_layers):
        if isinstance(part, FullAttention):
            large, small = max(part.num_kv_heads, tp), min(part.num_kv_heads, tp)
            if large % small:
                raise EngineError(f"tensor_parallel_size is {tp}; it must divide the {part.num_kv_heads} KV heads of "
                                  f"{model.name} or be a multiple of them", flag="tensor_parallel_size", found=tp)
        elif isinstance(part, GatedDeltaNet):
            _check_divides(part.linear_num_key_heads, tp, f"{part.linear_num_key_heads} linear key heads")
            _check_divides(part.linear_num_value_heads, tp, f"{part.linear_num_value_heads} linear value heads")
        elif isinstance(part, Mamba2):
            _check_divides(part.num_heads, tp, f"{part.num_heads} Mamba heads")
            if part.n_groups % tp and part.n_groups != 1:
                raise EngineError(f"tensor_parallel_size is {tp}; it must divide the {part.n_groups} Mamba groups of "
                                  f"{model.name}", flag="tensor_parallel_size", found=tp)
        elif isinstance(part, Mamba1):
            _check_divides(part.intermediate_size, tp, f"Mamba width of {part.intermediate_size}")
        elif hasattr(part, "num_heads"):
            _check_divides(part.num_heads, tp, f"{part.num_heads} linear-attention heads")
    if engine.pipeline_parallel_size > len(model.layers):
        raise EngineError(f"pipeline_parallel_size is {engine.pipeline_parallel_size}; {model.name} has only "
                          f"{len(model.layers)} layers", flag="pipeline_parallel_size")
    if engine.disable_hybrid_kv_cache_manager and model.has_state and len(model.kinds) > 1:
        raise EngineError(f"disable_hybrid_kv_cache_manager is set, but {model.name} keeps states beside attention, "
                          "which vLLM cannot turn into one kind", flag="disable_hybrid_kv_cache_manager")
    state_dtype = engine.mamba_ssm_cache_dtype
    if "kda" in model.kinds and version.has("kda_state_dtype") and (
            state_dtype == "float16" or state_dtype == "bfloat16" and model.architecture == "KimiLinearForCausalLM"):
        raise EngineError(f"mamba_ssm_cache_dtype is {state_dtype}; {model.name} starts only with auto or float32"
                          + (" or bfloat16" if state_dtype == "float16" else ""), flag="mamba_ssm_cache_dtype",
                          found=state_dtype, expected="auto or float32")
    dcp = engine.decode_context_parallel_size
    if dcp > 1:
        if any(isinstance(part, (SlidingWindow, ChunkedLocal)) for part in model.buckets):
            raise EngineError("decode_context_parallel_size above 1 is not supported with window layers",
                              flag="decode_context_parallel_size", found=dcp)
        heads = model.num_key_value_heads
        if heads is not None and (tp <= heads or dcp > tp // heads):
            raise EngineError(f"decode_context_parallel_size is {dcp}; with {heads} KV heads it can be at most "
                              f"tensor_parallel_size // KV heads = {tp // heads}",
                              flag="decode_context_parallel_size", found=dcp)
        if heads is not None and model.num_attention_heads // heads % dcp:
            raise EngineError(f"decode_context_parallel_size is {dcp}; it must divide the "
                              f"{model.num_attention_heads // heads} query heads that share a KV head",
                              flag="decode_context_parallel_size", found=dcp)
    if engine.speculative_method == "mtp" and not model.draft_layers:
        raise EngineError(f"speculative_method is mtp, but the config of {model.name} names no MTP layer",
                          flag="speculative_method")
    modules, drafts = len(model.draft_layers), engine.num_speculative_tokens
    if engine.speculative_method == "mtp" and drafts > modules and drafts % modules:
        raise EngineError(f"num_speculative_tokens is {drafts}; above the {modules} MTP layers of {model.name} it must "
                          f"be a multiple of {modules}", flag="num_speculative_tokens", found=drafts)
    if engine.num_speculative_tokens and engine.speculative_method is None and not model.draft_layers:
        raise EngineError("num_speculative_tokens is set without speculative_method; say mtp, eagle3 or ngram",
                          flag="speculative_method")


def _check_divides(count: int, tp: int, what: str) -> None:
    if count % tp:
        raise EngineError(f"tensor_parallel_size is {tp}; it must divide the {what}", flag="tensor_parallel_size",
                          found=tp, expected=f"a divisor of {count}")


def _gpu(engine: Engine):
    if engine.gpu is None or hasattr(engine.gpu, "total_bytes"):
        return engine.gpu
    from . import catalog

    return catalog.gpu(engine.gpu)


def _large_tier(engine: Engine, gpu) -> tuple[bool, str]:
    """Is this a card with vLLM's larger batch defaults? With the reason as a phrase."""
    if engine.device == "cpu":
        return False, "vLLM's default on a CPU"
    if gpu is None:
        return True, "vLLM's default on an 80 GiB data-centre card (no gpu given)"
    if "a100" in gpu.name.lower():
        return False, "vLLM's default on an A100"
    if gpu.total_bytes >= 160 * GiB:
        return True, "vLLM's default on a card of at least 160 GiB"
    if gpu.compute_capability == (12, 1) and engine.version.has("gb10_small_tier"):
        return False, "vLLM's default on a GB10"
    large = gpu.total_bytes >= 70 * GiB
    return large, f"vLLM's default on a card of {'at least' if large else 'less than'} 70 GiB"


def _max_model_len(model: Model, engine: Engine, take, notes) -> int:
    longest, default = model.max_position_embeddings, model.default_max_model_len
    if model.yarn_max_model_len is not None and not engine.version.has("yarn_as_written"):
        longest = model.yarn_max_model_len
    if engine.max_model_len not in (None, -1):
        if longest is not None and engine.max_model_len > longest:
            notes.append(f"max_model_len {engine.max_model_len:,} is more than the {longest:,} of {model.name}'s "
                         "config: vLLM refuses it unless VLLM_ALLOW_LONG_MAX_MODEL_LEN=1")
        return engine.max_model_len
    if longest is None:
        raise EngineError(f"{model.name} does not say its longest length; give max_model_len", flag="max_model_len")
    if default is not None and default < longest:
        return take("max_model_len", default, f"LongRoPE: the original length, unless one is given (up to {longest:,})")
    why = "auto-fit starts at the model's own maximum" if engine.max_model_len == -1 else "the model's own maximum"
    return take("max_model_len", longest, why)


def _batches_in_flight(model: Model, engine: Engine) -> int:
    """Batches whose tokens a window layer must hold at once (vLLM's max_concurrent_batches)."""
    pp, version = engine.pipeline_parallel_size, engine.version
    if engine.device == "cpu" or not version.has("tokens_in_flight"):
        return 1
    if not engine.async_scheduling or (engine.speculative_method == "ngram" and not version.has("ngram_async")):
        return pp
    newer_runner = version.has("runner_v2") or not (model.is_moe or model.has_state)
    return pp + 1 if newer_runner or pp == 1 else pp


def _gdn_backend(model: Model, engine: Engine, gpu, take) -> str:
    asked = engine.gdn_prefill_backend
    if model.model_type == "olmo_hybrid":
        return take("gdn_prefill_backend", "triton", "OLMo Hybrid has no other")
    if asked not in (None, "auto"):
        return asked
    gdn = next((part for part in model.buckets if isinstance(part, GatedDeltaNet)), None)
    if gdn is None:
        return "triton"
    capability = (gpu and gpu.compute_capability) or (0, 0)
    hopper = capability[0] == 9
    blackwell = capability[0] in (10, 12) and gdn.linear_key_head_dim == 128
    if engine.device == "cuda" and engine.version.has("gdn_checkpoints") and (hopper or blackwell):
        return take("gdn_prefill_backend", "flashinfer",
                    "Hopper" if hopper else "Blackwell with CUDA 13 or later (assumed)")
    return take("gdn_prefill_backend", "triton", "no gpu given" if gpu is None else f"vLLM's choice on a {gpu.name}")


def _attention(model: Model, engine: Engine, gpu, model_dtype: str, take) -> tuple[str | None, Backend | None, str]:
    """The attention backend and the type of the cache, which depend on each other for latent attention."""
    asked = engine.kv_cache_dtype
    cache_dtype = asked
    if asked == "auto":
        cache_dtype = model.kv_cache_dtype or model_dtype
        take("kv_cache_dtype", cache_dtype,
             "the checkpoint declares it" if model.kv_cache_dtype else "auto: the model's own type")
    if cache_dtype == "nvfp4":
        raise UnknownArchitectureError(
            f"the checkpoint of {model.name} asks for an nvfp4 KV cache, whose size is not known here; give "
            "kv_cache_dtype, or launch once and paste the log", unknown=("an nvfp4 KV cache",),
            field="kv_cache_quant_algo", found="nvfp4")
    if cache_dtype in ("bfloat16", "float16") and cache_dtype != model_dtype:
        raise EngineError(f"kv_cache_dtype is {cache_dtype}, but {model.name} runs in {model_dtype}; vLLM wants the same "
                          "type or an 8-bit one", flag="kv_cache_dtype", found=cache_dtype)
    first = model.attention
    if first is None:
        return None, None, cache_dtype
    latent = isinstance(first, LatentAttention)
    if asked == "auto" and _glm_on_blackwell(model, engine, gpu):
        cache_dtype = take("kv_cache_dtype", "fp8_e4m3", "GLM-5's default on this card")
    sparse = latent and any(getattr(part, "index_head_dim", 0) for part in model.buckets)
    fp8 = cache_dtype in FP8_DTYPES or cache_dtype == "fp8_ds_mla"
    name = engine.attention_backend
    if name is not None and BACKENDS[name].mla != latent:
        raise EngineError(f"attention_backend is {name}, which is {'not ' if latent else ''}for latent attention; "
                          f"{model.name} {'uses' if latent else 'does not use'} it", flag="attention_backend")
    if name is None:
        name = take("attention_backend", _default_backend(engine, gpu, latent, sparse, fp8, first), _card(engine, gpu))
    if cache_dtype == "fp8_ds_mla" and not latent:
        raise EngineError(f"kv_cache_dtype fp8_ds_mla is for latent attention; {model.name} does not use it",
                          flag="kv_cache_dtype")
    if fp8 and name == "FLASHMLA_SPARSE":
        cache_dtype = "fp8_ds_mla"
    if name == "FLASH_ATTN" and _large_heads_on_blackwell(first, engine, gpu):
        name = take("attention_backend", "FLASH_ATTN_4", f"FLASH_ATTN's kernel for head_dim 256 on a {gpu.name}")
    _check_cache_dtype(engine, model, name, cache_dtype, fp8, sparse)
    backend = BACKENDS[name]
    if name == "FLASH_ATTN" and _wide_heads_in_fp8_on_hopper(model, engine, gpu, cache_dtype):
        backend = backend._replace(default_block=64)
        if engine.block_size is None:
            take("block_size", 64, "FLASH_ATTN's kernel for an 8-bit cache and head_dim 512 on a Hopper card")
    if engine.block_size is not None and engine.block_size % backend.kernel_block and not model.has_state:
        raise EngineError(f"block_size is {engine.block_size}; {name} takes multiples of {backend.kernel_block}",
                          flag="block_size", found=engine.block_size,
                          expected=f"a multiple of {backend.kernel_block}")
    if fp8 and not latent and first.head_dim != first.v_head_dim and not engine.version.has("unequal_widths_fp8"):
        cache_dtype = take("kv_cache_dtype", model_dtype, "layers with keys and values of two widths took no other before 0.32")
    return name, backend, cache_dtype


def _check_cache_dtype(engine: Engine, model: Model, backend: str, cache_dtype: str, fp8: bool, sparse: bool) -> None:
    """Cache types that an attention backend cannot keep, which vLLM refuses."""
    def refuse(why):
        raise EngineError(f"kv_cache_dtype is {cache_dtype}; {why}", flag="kv_cache_dtype", found=cache_dtype)

    if fp8 and backend in ("FLASH_ATTN_MLA", "FLEX_ATTENTION"):
        refuse(f"{backend} keeps no 8-bit cache")
    if cache_dtype in PER_TOKEN_HEAD_DTYPES:
        if backend != "TRITON_ATTN":
            refuse(f"only TRITON_ATTN keeps scales for each token and head, not {backend}")
        if any(isinstance(part, FullAttention) and part.head_dim != part.v_head_dim for part in model.buckets):
            refuse(f"it needs keys and values of one width, and those of {model.name} differ")
    if (sparse and engine.decode_context_parallel_size > 1 and cache_dtype != "fp8_ds_mla"
            and engine.version.has("sparse_dcp_wants_fp8")):
        refuse("with decode_context_parallel_size above 1 a sparse indexer needs fp8_ds_mla")


def _glm_on_blackwell(model: Model, engine: Engine, gpu) -> bool:
    return (model.model_type == "glm_moe_dsa" and model.kv_cache_dtype is None and engine.version.has("glm_dsa_fp8")
            and gpu is not None and (gpu.compute_capability or (0, 0))[0] == 10)


def _large_heads_on_blackwell(first, engine: Engine, gpu) -> bool:
    return (isinstance(first, FullAttention) and first.head_dim == 256 and engine.version.has("fa4_large_heads")
            and gpu is not None and (gpu.compute_capability or (0, 0))[0] in (10, 11))


def _wide_heads_in_fp8_on_hopper(model: Model, engine: Engine, gpu, cache_dtype: str) -> bool:
    return (cache_dtype in ("fp8", "fp8_e4m3") and engine.version.has("fa4_wide_heads_fp8")
            and any(getattr(part, "head_dim", 0) == 512 for part in model.buckets)
            and (gpu is None or (gpu.compute_capability or (0, 0))[0] == 9))


def _card(engine: Engine, gpu) -> str:
    return "vLLM's choice on a CPU" if engine.device == "cpu" else \
        f"vLLM's choice on a {gpu.name}" if gpu is not None else "vLLM's choice on a Hopper card (no gpu given)"


def _default_backend(engine, gpu, latent: bool, sparse: bool, fp8: bool, first) -> str:
    if engine.device == "cpu":
        return "AMX_MLA" if latent else "CPU_ATTN"
    capability = (gpu.compute_capability or (0, 0)) if gpu is not None else (9, 0)
    if engine.kv_cache_dtype in PER_TOKEN_HEAD_DTYPES and not latent:
        return "TRITON_ATTN"
    if sparse:
        return "FLASHINFER_MLA_SPARSE" if capability[0] == 10 else "FLASHMLA_SPARSE"
    if latent:
        if capability[0] == 9:
            return "FLASHMLA" if fp8 else "FLASH_ATTN_MLA"
        return "FLASHINFER_MLA" if capability[0] == 10 else "TRITON_MLA"
    return "FLASHINFER" if capability[0] == 10 else "FLASH_ATTN"
