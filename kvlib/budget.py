"""The memory of one GPU, term by term: what was typed, what a log or files measured, what is computed, what is assumed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from . import catalog
from .command import Other, engine_from_flags
from .config import load_model
from .engine import Engine
from .errors import ConfigError, EngineError, SizingError
from .fields import text_part
from .memory import TERMS, Band, at, requested_bytes
from .model import Model
from .pool import Plan, plan
from .reserve import bands_of
from .resolve import resolve
from .units import GiB, gib
from .verdict import and_
from .versions import parse_version
from .vllm_log import Launch, Printed
from .weights import QUANTIZATIONS, checkpoint_bytes, expected_weights, quantization_of, weights_per_gpu

RESERVE = TERMS[1:]
#: Flags that move what a launch takes besides the cache: a log's measured reserve holds only while they stay.
MOVES_RESERVE = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size",
                 "enforce_eager", "num_speculative_tokens", "speculative_method", "attention_backend", "device", "gpu")
#: And what vLLM makes of flags: a default by its own name is the same.
MOVES_RESERVE_AS_RESOLVED = {"model_dtype": "dtype", "max_num_batched_tokens": "max_num_batched_tokens", "max_num_seqs": "max_num_seqs"}


class Term(NamedTuple):
    """One part of a GPU's memory: bytes or a Band, how it is known, and from where.

    ``kind`` is "measured" (a log, a driver, files), "computed" (the config), "typed" or "assumed" (other launches).
    """

    value: int | Band
    kind: str
    source: str


@dataclass(frozen=True)
class Typed:
    """What was typed in place of an assumption, in GiB per GPU; None where nothing was."""

    total_gib: float | None = None
    free_gib: float | None = None
    weights_gib: float | None = None
    peak_activation_gib: float | None = None
    non_torch_gib: float | None = None
    cuda_graph_gib: float | None = None
    available_gib: float | None = None

    def __post_init__(self):
        for name, value in vars(self).items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (number and abs(value) < 1e6):
                raise SizingError(f"{name} is {value!r}; type a number of GiB, such as 18.3")
            if value is not None and value < 0 and name in ("total_gib", "free_gib", "weights_gib"):
                raise SizingError(f"{name} is {value:g}; it cannot be less than 0 GiB")

    def bytes(self, name: str) -> int | None:
        value = getattr(self, name)
        return None if value is None else gib(value)


# The model and the flags of a log or a command


def model_of(source: Any) -> Model:
    """:func:`kvlib.load_model`, which reads the same text or the same unchanged file once."""
    return _read_once(source, written(source)) if isinstance(source, str) else load_model(source)


@lru_cache(maxsize=64)
def _read_once(source: str, _written: tuple) -> Model:
    return load_model(source)


def written(source: str | None) -> tuple:
    """When the file behind a path was last written, and what lies in its folder; () for what is no path."""
    if not source or len(source) > 1024 or source.lstrip().startswith("{"):
        return ()
    try:
        if not os.path.exists(os.path.expanduser(source)):
            return ()
        path = Path(source).expanduser()
        beside = (path, path / "config.json", path / "hf_quant_config.json", path.parent / "hf_quant_config.json")
        return tuple((each.name, each.stat().st_mtime_ns) for each in beside if each.exists())
    except (OSError, ValueError, RuntimeError):
        return ()


def same_model(model: Model, named: str) -> bool:
    """True where a command's model may be this one: its name or Hub id, or a path, which says nothing."""
    if named.startswith((".", "/", "~")) or len(named.split("/")) > 2:
        return True
    ids = (model.name, (model.config.get("_source") or {}).get("hf_id") or "", str(model.config.get("_name_or_path") or ""))
    return named.rsplit("/", 1)[-1].lower() in {each.rsplit("/", 1)[-1].lower() for each in ids}


def quantized_on_load(model: Model, flag: str) -> tuple[str | None, list[str]]:
    """The storage that ``--quantization`` asks for, where the config names none of its own; and a note where it is not known."""
    try:
        if quantization_of(model) is not None:
            return None, []
    except ConfigError:     # the config names one that is not known, and says so where the weights are counted
        return None, []
    name = flag.lower().removesuffix("_marlin")
    if name in QUANTIZATIONS:
        return name, []
    return None, [f"--quantization {flag:.40} is not known here: the weights are counted as the config says"]


def unreadable(version: str | None) -> bool:
    try:
        return parse_version(version) is None
    except (SizingError, TypeError, AttributeError):
        return True


def still_typed(model: Model, typed: Typed, engine: Engine, base: Engine, quantization: str | None) -> Typed:
    """What was typed per GPU, for another number of GPUs: the weights in proportion, the rest assumed again."""
    split, was = ((each.tensor_parallel_size, each.pipeline_parallel_size) for each in (engine, base))
    if split == was:
        return typed
    weights = typed.weights_gib
    if weights is not None:
        now, before = (weights_per_gpu(model, quantization=quantization, tensor_parallel_size=tp, pipeline_parallel_size=pp).bytes
                       for tp, pp in (split, was))
        weights *= now / before
    return Typed(total_gib=typed.total_gib, free_gib=typed.free_gib, weights_gib=weights)


def own_engine(launch: Launch | None, made: Plan, other: Other, quantization: str | None, typed: Typed, base: Engine,
               notes: list[str], cautions: list[str]) -> Engine | None:
    """The engine the log was made with, where its measured terms hold for ``engine`` too; else None, with a note."""
    if launch is None:
        return None
    model, engine, moved = made.model, made.engine, []
    version = None if unreadable(launch.vllm_version) else launch.vllm_version
    if launch.flags:
        own, rest = engine_from_flags(launch.flags, launch.model)
        own = own.replace(gpu=base.gpu, vllm_version=version or base.vllm_version, draft_model=base.draft_model)
        asked = quantized_on_load(model, str(rest.given["quantization"]))[0] if rest.given.get("quantization") else None
        moved += ["quantization"] if asked != quantization else []
        moved += sorted(f"{name}" for name in set(rest.takes_memory) ^ set(other.takes_memory))
    else:
        notes.append("the log names no flags: its figures are taken as this command's own")
        own = base.replace(vllm_version=version or base.vllm_version)
        moved += ["quantization"] if quantization not in (None, "none") else []
    try:
        then = resolve(model, own)
    except SizingError:
        then = made.setup
    moved = [*_another_model(launch, model, notes), *(name for name in MOVES_RESERVE if getattr(own, name) != getattr(engine, name)),
             *(flag for name, flag in MOVES_RESERVE_AS_RESOLVED.items() if getattr(then, name) != getattr(made.setup, name)), *moved]
    if version and parse_version(version).number[:2] != engine.version.number[:2]:
        moved.append("vllm_version")
    if "gpu" not in moved and _another_card(launch, made.setup.gpu, typed):
        moved.append("gpu")
    if moved:
        (cautions if {"model", "gpu"} & set(moved) else notes).append(
            f"the log{f' of {launch.model}' if launch.model and 'model' in moved else ''} is of another {and_(list(dict.fromkeys(moved)))}: "
            "what it measured is not used, and its terms are assumed again")
        return None
    return own


def _another_model(launch: Launch, model: Model, notes: list[str]) -> list[str]:
    """["model"] where the log names a model of the catalogue that is not built like this one."""
    if not launch.model or same_model(model, launch.model):
        return []
    try:
        named = model_of(catalog.model_name(launch.model))
    except SizingError:
        notes.append(f"the log is of {launch.model}: its figures are taken as those of {model.name}")
        return []
    alike = (named.layers, named.hidden_size, named.vocab_size) == (model.layers, model.hidden_size, model.vocab_size)
    return [] if alike else ["model"]


def _another_card(launch: Launch, card, typed: Typed) -> bool:
    """Does the log print more memory than this card has, or a total that is not its own?"""
    if card is None or typed.total_gib is not None:
        return False
    total = _largest(launch.total_gib)
    if total is not None and abs(gib(total.value) / card.total_bytes - 1) > 0.03:
        return True
    most = max((each.low for name in ("available_kv_cache_gib", "weights_gib", "requested_gib") for each in getattr(launch, name)), default=0)
    return gib(most) > card.total_bytes


def terms_of(made: Plan, launch, own, typed: Typed, quantization, folder, notes, cautions) -> dict[str, Term]:
    """Each part of the memory; "reserve" stands for all of them where a log gives only what is left."""
    model, engine, setup = made.model, made.engine, made.setup
    terms = {"total_bytes": _total(setup.gpu, launch, typed)}
    terms["weights_bytes"] = _weights(model, engine, launch, typed, quantization, folder, notes)
    available = _printed_available(launch, made, own, notes)
    typed_available = typed.bytes("available_gib")
    if engine.kv_cache_memory_bytes is not None:
        terms["available"] = Term(engine.kv_cache_memory_bytes, "typed", "the flag --kv-cache-memory-bytes")
    elif typed_available is not None:
        terms["available"] = Term(typed_available, "typed", "typed")
    elif available is not None and _share(model, own) == setup.gpu_memory_utilization:
        terms["available"] = Term(available, "measured", "the log's line \"Available KV cache memory\", with its rounding")
    if engine.device == "cpu" and "available" not in terms and engine.num_gpu_blocks_override is None:
        raise EngineError("on a CPU the cache has what VLLM_CPU_KVCACHE_SPACE says, not a share of a card; give --kv-cache-memory-bytes, "
                          "such as 4G", flag="kv_cache_memory_bytes")
    bands, lump = bands_of(model, engine), None
    if available is not None:
        if "available" not in terms:     # the weights cancel: what is left is known whatever they are
            terms["weights_bytes"] = terms["weights_bytes"]._replace(value=at(terms["weights_bytes"].value, "typical"))
        lump = _lump(model, terms, available, own)
        if at(lump, "high") < -GiB // 2 and not (setup.gpu is not None and setup.gpu.unified):
            cautions.append("the log's cache is larger than this card, these weights and this share leave: it is of another launch, "
                            "and not used")
            lump = None
            if terms.get("available") and terms["available"].kind == "measured":
                del terms["available"]
    if lump is not None:
        terms["reserve"] = Term(lump, "measured", "the log: requested − weights − available")
    for name in RESERVE if lump is None else ():
        given = typed.bytes(name.removesuffix("_bytes") + "_gib")
        printed = _largest(getattr(launch, name.removesuffix("_bytes") + "_gib", None)) if launch else None
        if given is not None:
            terms[name] = Term(given, "typed", "typed")
        elif printed is not None:
            terms[name] = Term(_band(printed, "the log"), "measured", "printed in the log")
        else:
            terms[name] = Term(_point(bands[name]), "assumed", bands[name].source)
    free = typed.bytes("free_gib")
    if free is not None:
        terms["free_bytes"] = Term(free, "typed", "typed")
    elif launch is not None and launch.refusal is not None and launch.refusal.kind == "free_memory" and launch.free_gib:
        terms["free_bytes"] = Term(_band(min(launch.free_gib), "the log"), "measured", "printed in the log")
    return terms


def _total(card, launch, typed: Typed) -> Term:
    given, printed = typed.bytes("total_gib"), _largest(launch.total_gib) if launch else None
    if given is not None:
        if given <= 0:
            raise SizingError("total_gib is 0; a GPU has more than none")
        return Term(given, "typed", "typed")
    if printed is not None:
        return Term(gib(printed.value), "measured", "printed in the log")
    if card is not None:
        return Term(card.total_bytes, "measured", f"what drivers report: {card.name}")
    return Term(80 * GiB, "assumed", "no card is named: 80 GiB")


def _weights(model, engine, launch, typed: Typed, quantization, folder, notes) -> Term:
    shards = engine.tensor_parallel_size * engine.pipeline_parallel_size
    given, printed = typed.bytes("weights_gib"), _largest(launch.weights_gib) if launch else None
    if given is not None:
        return Term(given, "typed", "typed, on each GPU")
    if printed is not None and quantization is None:
        return Term(_band(printed, "the log"), "measured", "the log's line \"Model loading took\"")
    if folder is not None and quantization is None and _loads_as_stored(model, engine) and (files := checkpoint_bytes(folder)) is not None:
        return Term(-(-files.bytes // shards), "measured", files.source + (f" ÷ {shards} GPUs" if shards > 1 else ""))
    found = expected_weights(model, engine, quantization)
    notes.extend(found.notes)
    return Term(found.value, found.kind, found.source)


def _loads_as_stored(model: Model, engine: Engine) -> bool:
    """False where a checkpoint of 32 bits is loaded in 16, or the other way about."""
    wide = {str(part.get(key)).removeprefix("torch.") for part in (model.config, text_part(model.config)[0]) for key in ("torch_dtype", "dtype")}
    return ("float32" in wide) == (engine.dtype == "float32")


def _share(model: Model, engine: Engine) -> float:
    return resolve(model, engine.replace(gpu=None)).gpu_memory_utilization if engine else 0.0


def _printed_available(launch: Launch | None, made: Plan, own: Engine | None, notes: list[str]) -> int | Band | None:
    """The available memory a launch printed, of the worker with the least; None where it printed none.

    A refusal for the length prints it too; since 0.29 the null block is off that figure, and is put back.
    """
    if launch is None or own is None or own.kv_cache_memory_bytes is not None and made.engine.kv_cache_memory_bytes is None:
        return None
    printed = min(launch.available_kv_cache_gib, key=lambda each: each.value, default=None)
    if printed is None:
        refusal = launch.refusal
        if refusal is None or refusal.kind != "max_model_len" or refusal.available_gib is None:
            return None
        of_log = plan(made.model, own)
        held = of_log.held_back_blocks * max(of_log.stage_bytes_per_block)
        ends = (gib(getattr(refusal.available_gib, end)) + held for end in ("low", "value", "high"))
        return _point(Band(*ends, "the log"))
    if made.engine.pipeline_parallel_size > 1 and len({each.value for each in launch.available_kv_cache_gib}) > 1:
        notes.append("the log's workers had different memory: the least is taken for every stage")
    return _band(printed, "the log")


def _lump(model: Model, terms: Mapping[str, Term], available: int | Band, own: Engine) -> Band:
    """All that the logged launch took besides weights and cache: what it requested, less both."""
    asked = requested_bytes(at(terms["total_bytes"].value, "typical"), _share(model, own))
    weights = terms["weights_bytes"].value
    low, typical, high = (asked - at(weights, far) - at(available, far)
                          for far in ("high", "typical", "low"))
    return Band(min(low, typical), typical, max(high, typical), "the log")


def _largest(printed: list[Printed] | None) -> Printed | None:
    return max(printed, key=lambda each: each.value) if printed else None


def _band(printed: Printed, source: str) -> int | Band:
    return _point(Band(gib(printed.low), gib(printed.value), gib(printed.high), source))


def _point(band: Band) -> int | Band:
    return band.typical if band.low == band.high else band
