"""What the lesson on tensor parallelism asks of kvlib: budgets of one GPU, ranges, and each knob's effect.

Bytes are per GPU throughout. Reserves are bands of :mod:`kvlib.reserve`; nothing here draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache

from kvlib import Engine, MemoryBudget, Sizing, SizingError, catalog, load_model
from kvlib.capacity import size_plan
from kvlib.layers import LatentAttention
from kvlib.pool import plan
from kvlib.reserve import assumed_budget, model_facts, reserve_bands
from kvlib.resolve import resolve
from kvlib.units import GiB
from kvlib.weights import quantization_of, weights_per_gpu

CARD, SEVENTY = "H100 SXM 80GB", "Llama-3.3-70B"
SIDES = ("least", "typical", "most")
model_of = cache(load_model)


def ranged(model, engine: Engine, memory: MemoryBudget) -> tuple[Sizing, Sizing, Sizing]:
    """The sizings at least, typical and most, from a plan already made."""
    made = plan(model, engine)
    least, typical, most = (size_plan(made, memory=memory.pick(side)) for side in SIDES)
    return least, typical, most


@lru_cache(maxsize=1024)
def on_gpus(name: str, tensor_parallel_size: int, max_model_len: int | None = None, kv_cache_dtype: str = "auto",
            gpu: str | None = CARD, **flags) -> tuple[Sizing, Sizing, Sizing]:
    """One engine of a catalogue model over that many GPUs, its reserve assumed: least, typical, most.

    Raises SizingError on a split vLLM refuses, or weights that cannot be counted.

    >>> [round(each.available_bytes / GiB, 1) for each in on_gpus("Llama-3.3-70B", 4)]
    [31.9, 36.2, 39.3]
    """
    engine = Engine(gpu=gpu, tensor_parallel_size=tensor_parallel_size, max_model_len=max_model_len,
                    kv_cache_dtype=kv_cache_dtype, **flags)
    return ranged(model_of(name), engine, assumed_budget(model_of(name), engine))


def kv_heads(name: str) -> int | None:
    """KV heads of a model's attention; None where it keeps a latent row in their place."""
    model = model_of(name)
    return None if any(isinstance(layer, LatentAttention) for layer in model.layers) else model.num_key_value_heads


def dealt(heads: int | None, tensor_parallel_size: int) -> list[list[int]]:
    """The KV heads on each GPU, in vLLM's order; one latent row, number 0, where there are none.

    >>> dealt(8, 2)[1], dealt(2, 4), dealt(None, 2)
    ([4, 5, 6, 7], [[0], [0], [1], [1]], [[0], [0]])
    """
    if heads is None:
        return [[0]] * tensor_parallel_size
    share = max(1, heads // tensor_parallel_size)
    copies = max(1, tensor_parallel_size // heads)
    return [list(range(gpu // copies * share, gpu // copies * share + share)) for gpu in range(tensor_parallel_size)]


# The knobs

WEIGHTS = {"as published": None, "8-bit": "fp8", "4-bit": "int4"}
FIT_VERSION = "0.25"   # the newest release whose activation peak the fit describes


@dataclass(frozen=True)
class SetUp:
    """A launch the knobs start from: a catalogue model, a card, and the flags that the knobs turn."""

    model: str = SEVENTY
    gpu: str = CARD
    tensor_parallel_size: int = 4
    max_model_len: int = 32768
    kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float = 0.92
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    weights: str = "as published"
    enforce_eager: bool = False


@lru_cache(maxsize=4096)
def _engine(setup: SetUp, extra: tuple = ()) -> Engine:
    return Engine(gpu=setup.gpu, tensor_parallel_size=setup.tensor_parallel_size, max_model_len=setup.max_model_len,
                  kv_cache_dtype=setup.kv_cache_dtype, gpu_memory_utilization=setup.gpu_memory_utilization,
                  max_num_batched_tokens=setup.max_num_batched_tokens, max_num_seqs=setup.max_num_seqs,
                  enforce_eager=setup.enforce_eager, **dict(extra))


@cache
def facts_of(name: str) -> dict:
    """What the reserve's bands take from a model's config."""
    return model_facts(catalog.model_config(name))


@cache
def _weights(name: str, choice: str, tensor_parallel_size: int) -> int:
    return weights_per_gpu(model_of(name), quantization=WEIGHTS[choice],
                           tensor_parallel_size=tensor_parallel_size).bytes


@lru_cache(maxsize=4096)
def _memory(name: str, gpu: str, tp: int, seqs: int, batched: int, eager: bool, weights: str) -> MemoryBudget:
    """One GPU's memory; its activation peak by the fit, which few later reports cannot replace yet."""
    given = dict(max_num_seqs=seqs, max_num_batched_tokens=batched, tensor_parallel_size=tp, enforce_eager=eager,
                 **facts_of(name))
    bands = reserve_bands(gpu, **given)
    by_the_fit = reserve_bands(gpu, vllm_version=FIT_VERSION, **given)["peak_activation_bytes"]
    bands = bands | {"peak_activation_bytes": by_the_fit}
    return MemoryBudget(_card_bytes(gpu), _weights(name, weights, tp), **bands)


@cache
def _card_bytes(gpu: str) -> int:
    return catalog.gpu(gpu).total_bytes


@lru_cache(maxsize=4096)
def outcome(setup: SetUp, extra: tuple = ()) -> tuple[Sizing, Sizing, Sizing]:
    """Least, typical, most of a set-up; ``extra`` are further engine flags as (name, value) pairs.

    >>> [each.outcome for each in outcome(SetUp(tensor_parallel_size=1))]
    ['weights_do_not_fit', 'weights_do_not_fit', 'weights_do_not_fit']
    """
    engine = _engine(setup, extra)
    memory = _memory(setup.model, setup.gpu, setup.tensor_parallel_size, setup.max_num_seqs,
                     setup.max_num_batched_tokens, setup.enforce_eager, setup.weights)
    return ranged(model_of(setup.model), engine, memory)


@lru_cache(maxsize=1024)
def peak_parts(name: str, tp: int, seqs: int, batched: int) -> tuple[int, int]:
    """The fit's two candidates for the activation peak in bytes: the sampler's and the forward pass's.

    With experts the two add up; else the larger one is the peak.

    >>> [round(part / GiB, 2) for part in peak_parts("Llama-3.3-70B", 4, 1024, 8192)]
    [1.9, 0.75]
    """
    given = dict(tensor_parallel_size=tp, vllm_version="0.19", **facts_of(name))
    return tuple(reserve_bands(None, max_num_seqs=rows, max_num_batched_tokens=tokens, **given)
                 ["peak_activation_bytes"].typical for rows, tokens in ((seqs, 1), (1, batched)))


@dataclass(frozen=True)
class Effect:
    """One knob turned by one step: the set-up after it (None where it is only looked at), and what it brings."""

    knob: str
    step: str
    gives_up: str
    after: SetUp | None
    sizes: tuple[Sizing, Sizing, Sizing] | None   # None where vLLM refuses the flags
    problem: str = ""


KNOBS = ("gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype", "enforce_eager",
         "max_model_len", "quantized weights", "tensor_parallel_size", "kv_cache_memory_bytes",
         "num_gpu_blocks_override", "block_size")   # from least to most harm; the last three bring no memory
APPLICABLE = KNOBS[:8]


def effects(setup: SetUp) -> list[Effect]:
    """Every knob turned by one step from a set-up, from least to most harm; knobs already at their end are left out."""
    found = []
    for knob, step, gives_up, after, extra in _steps(setup):
        try:
            sizes, problem = outcome(after, extra), ""
        except SizingError as error:
            sizes, problem = None, str(error)
        found.append(Effect(knob, step, gives_up, None if extra else after, sizes, problem))
    return found


def tokens(sizing: Sizing) -> int:
    return max(0, sizing.kv_cache_tokens)


def _steps(s: SetUp):
    def to(**values):
        return replace(s, **values)

    if s.gpu_memory_utilization < 0.95:
        yield ("gpu_memory_utilization", f"{s.gpu_memory_utilization:g} → 0.95", "room for memory vLLM does not measure",
               to(gpu_memory_utilization=0.95), ())
    if s.max_num_seqs > 256:
        yield ("max_num_seqs", f"{s.max_num_seqs:,} → 256", "more than 256 requests decoded at once",
               to(max_num_seqs=256), ())
    lower = max(2048, s.max_num_seqs)
    if s.max_num_batched_tokens > lower:
        yield ("max_num_batched_tokens", f"{s.max_num_batched_tokens:,} → {lower:,}", "speed of long prompts",
               to(max_num_batched_tokens=lower), ())
    if s.kv_cache_dtype == "auto":
        yield ("kv_cache_dtype", "auto → fp8", "exactness of keys and values", to(kv_cache_dtype="fp8"), ())
    if not s.enforce_eager:
        yield "enforce_eager", "off → on", "CUDA graphs: speed of small batches", to(enforce_eager=True), ()
    if s.max_model_len >= 2048:
        yield ("max_model_len", f"{s.max_model_len:,} → {s.max_model_len // 2:,}", "requests longer than that",
               to(max_model_len=s.max_model_len // 2), ())
    narrower = _narrower(s)
    if narrower:
        yield ("quantized weights", f"{s.weights} → {narrower}", "exactness of the model; another checkpoint",
               to(weights=narrower), ())
    if s.tensor_parallel_size < 16:
        tp = s.tensor_parallel_size
        yield ("tensor_parallel_size", f"{tp} → {2 * tp}", f"{tp} more GPU{'s' * (tp > 1)}, and talk between them",
               to(tensor_parallel_size=2 * tp), ())
    _, typical, _ = outcome(s)
    fixed = typical.available_bytes // (GiB // 10) * (GiB // 10)
    if fixed > 0:
        yield ("kv_cache_memory_bytes", f"fixed at {fixed / GiB:.1f} GiB", "the share is no longer respected, nor the rest measured",
               s, (("kv_cache_memory_bytes", fixed),))
        if typical.num_gpu_blocks > 1:
            yield ("num_gpu_blocks_override", f"{typical.num_gpu_blocks:,} → {typical.num_gpu_blocks // 2:,}",
                   "half the cache; made for testing preemption", s,
                   (("num_gpu_blocks_override", typical.num_gpu_blocks // 2),))
    block = typical.block_size
    if block:
        yield ("block_size", f"{block:,} → {2 * block:,}", "finer sharing of prefixes", s, (("block_size", 2 * block),))


@cache
def _published_bits(name: str) -> int:
    declared = quantization_of(model_of(name))
    return declared.bits if declared else 16


def _narrower(s: SetUp) -> str | None:
    bits = _published_bits(s.model) if s.weights == "as published" else int(s.weights[0])
    return "8-bit" if bits > 8 else "4-bit" if bits > 4 else None


@cache
def default_batch(model: str, gpu: str) -> tuple[int, int]:
    """vLLM's own max_num_batched_tokens and max_num_seqs on a card."""
    setup = resolve(model_of(model), Engine(gpu=gpu))
    return setup.max_num_batched_tokens, setup.max_num_seqs


@cache
def knob_models() -> list[str]:
    """Models the knobs panel offers: weights and cache computed from their config, without windows or states."""
    wanted = ("Llama-3.3-70B", "Llama-3.1-8B", "Llama-3.1-405B", "Qwen2.5-72B", "Qwen3-8B", "Qwen3-32B",
              "Qwen3-30B-A3B", "Qwen3-235B-A22B", "DeepSeek-V2-Lite", "DeepSeek-V3")
    return [name for name in wanted if name in catalog.models()]
