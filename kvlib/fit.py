"""Will it fit? A config, a command, a card and what a log measured become one budget, one range and one verdict.

>>> found = fit("Qwen3-8B", "vllm serve Qwen/Qwen3-8B --max-model-len 32768", gpu="RTX 4090")
>>> found.verdict.word, found.terms["weights_bytes"].kind
('close', 'measured')
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from . import catalog
from .capacity import Refusal, Sizing, size_plan
from .command import Other, engine_from_flags, read_command
from .config import load_model
from .engine import Engine
from .errors import ConfigError, EngineError, SizingError
from .fields import text_part
from .memory import TERMS, Band, MemoryBudget, at, graph_bytes, requested_bytes
from .model import Model
from .pool import Plan, plan
from .ranges import exact_span, gib_span, span
from .reserve import bands_of
from .resolve import resolve
from .serve_line import serve_line
from .units import GiB, gib, gib_text
from .versions import parse_version
from .vllm_log import Launch, Printed, read_log
from .weights import QUANTIZATIONS, checkpoint_bytes, loaded_band, quantization_of, weights_per_gpu

RESERVE = TERMS[1:]
NAMES = {"weights_bytes": "weights", "peak_activation_bytes": "activations", "non_torch_bytes": "non-torch memory",
         "cuda_graph_bytes": "CUDA graphs", "reserve": "all but weights and cache"}
NOT_CHECKED = "Not checked: kernels, the capture of CUDA graphs, a vision encoder, and what other processes take later."
#: Flags that move what a launch takes besides the cache: a log's measured reserve holds only while they stay.
MOVES_RESERVE = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size",
                 "max_num_batched_tokens", "max_num_seqs", "enforce_eager", "dtype", "num_speculative_tokens", "speculative_method",
                 "attention_backend", "device", "gpu")
#: What makes the printed memory and figures those of the very same pool.
SAME_POOL = ("cache_dtype", "max_model_len", "gpu_memory_utilization", "tokens_in_flight", "backend_name")


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


class Verdict(NamedTuple):
    """``word`` is "passes", "close" or "refused"; ``phrase`` its words; ``reason`` why; ``break_even_bytes`` what the
    assumed terms may take together before vLLM refuses (None where nothing is assumed)."""

    word: str
    phrase: str
    reason: str
    break_even_bytes: int | None = None


@dataclass(frozen=True, eq=False)
class Fit:
    """A launch before it is made, or beside its log: sized at the least, the typical and the most memory."""

    model: Model
    engine: Engine
    other: Other
    terms: Mapping[str, Term]
    memory: MemoryBudget
    low: Sizing
    typical: Sizing
    high: Sizing
    launch: Launch | None = None
    typed: Typed = Typed()
    quantization: str | None = None
    folder: Path | None = None
    notes: tuple[str, ...] = ()
    base: Engine | None = None   # the engine of the question itself, whose log and typed memory these are
    logged: bool = False         # the log is of a launch with these very flags: its figures may stand beside foretold ones
    asked: Mapping = field(default_factory=dict, repr=False)   # the arguments of fit()

    @property
    def exact(self) -> bool:
        """True where nothing is assumed: the answer is a figure, or as wide as the rounding of what was printed."""
        return self.engine.num_gpu_blocks_override is not None or "available" in self.terms or not self.assumed

    @property
    def assumed(self) -> tuple[str, ...]:
        """The terms of the budget that no one has measured or typed."""
        return tuple(name for name, term in self.terms.items()
                     if term.kind == "assumed" or term.kind == "computed" and isinstance(term.value, Band))

    @cached_property
    def verdict(self) -> Verdict:
        """Where vLLM's memory checks stand over the range."""
        return judge(self.low, self.typical, self.high, self.memory.assumed)

    def requests_of(self, tokens: int) -> tuple[float, float]:
        """How many requests of that many tokens the cache holds, least and most.

        Raises SizingError where vLLM would turn such a request away.
        """
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
            raise SizingError(f"tokens is {tokens!r}; it must be a whole number of at least 1")
        if tokens > self.high.max_model_len:
            raise SizingError(f"a request of {tokens:,} tokens is longer than max_model_len, {self.high.max_model_len:,}")
        each = self.typical.plan.blocks_per_request(tokens)
        return self.low.num_gpu_blocks / each, self.high.num_gpu_blocks / each

    def changed(self, *, typed: Mapping | None = None, quantization: str | None = None, **flags) -> Fit:
        """The same question with some flags, some typed memory, or another storage of the weights."""
        return _fit(self.model, self.engine.replace(**flags), self.other, launch=self.launch,
                    typed=replace(self.typed, **(typed or {})), folder=self.folder,
                    quantization=quantization or self.quantization, base=self.base, asked=self.asked)

    def before_the_log(self) -> Fit | None:
        """What was to be expected before the log was read; None without a log, and where nothing was (a CPU's cache)."""
        if self.launch is None:
            return None
        try:
            return _fit(self.model, self.engine, self.other, launch=None, typed=self.typed, quantization=self.quantization,
                        folder=self.folder, base=self.base, asked=self.asked)
        except SizingError:
            return None

    @property
    def serve(self) -> str:
        """The ``vllm serve`` line with exactly these flags, the unrelated ones kept."""
        name = self.other.model or (self.model.config.get("_source") or {}).get("hf_id") or self.model.name
        other = self.other
        if self.quantization == "fp8" and "quantization" not in other.given and self.quantized_on_load:
            other = other._replace(given={**other.given, "quantization": "fp8"})
        return serve_line(self.engine, other, name)

    @property
    def quantized_on_load(self) -> bool:
        """True where 16-bit weights are stored narrower as they load."""
        try:
            return quantization_of(self.model) is None
        except ConfigError:
            return False

    def say(self, low: float, high: float) -> str:
        """Two figures of this answer: to the last digit where nothing is assumed, else two figures and outward."""
        if self.exact:
            if isinstance(low, float):
                return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
            return exact_span(low, high)
        return span(low, high)

    @property
    def settles(self) -> str:
        """The one input that would turn the range into a figure; empty where it is one already."""
        bands = {name: band for name in self.assumed if isinstance(band := self.terms[name].value, Band)}
        if self.exact or not bands or self.verdict.word == "refused":
            return ""
        widest = max(bands, key=lambda name: bands[name].high - bands[name].low)
        return (f"A range because nobody measured this set-up, chiefly its {NAMES[widest]} "
                f"({gib_span(bands[widest].low, bands[widest].high)} GiB). One launch settles it: put its line "
                "\"Available KV cache memory\" into the log box.")


def fit(config: Any = None, command: str = "", *, log: str = "", gpu: Any = None, vllm_version: str | None = None,
        quantization: str | None = None, **typed: float | None) -> Fit:
    """Answer whether a launch passes vLLM's memory checks, and how much it holds.

    Parameters
    ----------
    config : whatever :func:`kvlib.load_model` takes; None takes the model named in the command or the log.
    command : whatever :func:`kvlib.read_command` takes; empty takes the log's own flags.
    log : a start-up log (its text), whose measured terms replace the assumed ones.
    gpu : a card of the catalogue; None stands for 80 GiB, and the answer says so.
    quantization : how the weights are stored, a name of ``kvlib.weights.QUANTIZATIONS``; None is what the config says.
    typed : ``total_gib free_gib weights_gib peak_activation_gib non_torch_gib cuda_graph_gib available_gib``.

    Raises
    ------
    ConfigError, EngineError, SizingError : one sentence on what cannot be read.
    """
    launch = launch_of(log) if log.strip() else None
    engine, other = read_command(command) if command.strip() else _from_log(launch)
    source = config if config not in (None, "") else other.model or (launch.model if launch else None)
    if source is None:
        raise ConfigError("no model is given: name one of the catalogue, give its config.json, or a command that names it",
                          field="config")
    model = load_model(_known(source) if config in (None, "") else source)
    if quantization is None and (asked_for := other.given.get("quantization")) is not None:
        quantization, doubt = _quantized_on_load(model, str(asked_for))
        other = other._replace(notes=(*other.notes, *doubt))
    version = vllm_version or (launch.vllm_version if launch and not _unreadable(launch.vllm_version) else None)
    engine = engine.replace(**({"gpu": gpu} if gpu else {}), **({"vllm_version": version} if version else {}))
    try:
        given = Typed(**typed)
    except TypeError:
        unknown = ", ".join(sorted(set(typed) - set(Typed.__dataclass_fields__)))
        raise EngineError(f"fit has no argument {unknown}; it takes {', '.join(Typed.__dataclass_fields__)}") from None
    asked = {"config": config, "command": command, "log": log, "gpu": gpu, "vllm_version": vllm_version,
             "quantization": quantization, **typed}
    if config not in (None, "") and other.model and not _same_model(model, other.model):
        other = other._replace(notes=(*other.notes, f"the command names {other.model}; the figures are those of {model.name}"))
    return _fit(model, engine, other, launch=launch, typed=given, quantization=quantization, folder=_folder_of(config),
                base=engine, asked=asked)


def _same_model(model: Model, named: str) -> bool:
    """True where a command's model may be this one: its name or Hub id, or a path, which says nothing."""
    if named.startswith((".", "/", "~")) or len(named.split("/")) > 2:
        return True
    ids = (model.name, (model.config.get("_source") or {}).get("hf_id") or "", str(model.config.get("_name_or_path") or ""))
    return named.rsplit("/", 1)[-1].lower() in {each.rsplit("/", 1)[-1].lower() for each in ids}


def _from_log(launch: Launch | None) -> tuple[Engine, Other]:
    return engine_from_flags(launch.flags, launch.model) if launch and launch.flags else (Engine(), Other(None, {}, {}))


@lru_cache(maxsize=4)
def launch_of(log: str) -> Launch:
    """The last launch of a log; a long one is not read again for each step of a slider."""
    return read_log(log).last


def _quantized_on_load(model: Model, flag: str) -> tuple[str | None, list[str]]:
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


def _known(name: str) -> str:
    """A model named by a command: a Hub id, a catalogue name, or a local path, whose last part may be a name."""
    try:
        return catalog.model_name(name)
    except ConfigError:
        last = str(name).rstrip("/").rsplit("/", 1)[-1]
        return last if last.lower() in {known.lower() for known in catalog.models()} else name


def _unreadable(version: str | None) -> bool:
    try:
        return parse_version(version) is None
    except (SizingError, TypeError, AttributeError):
        return True


def _folder_of(config: Any) -> Path | None:
    if not isinstance(config, (str, os.PathLike)) or (isinstance(config, str) and len(config) > 1024):
        return None
    try:
        path = Path(config).expanduser()
        return path if path.is_dir() else path.parent if path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None


# The budget


def _fit(model: Model, engine: Engine, other: Other, *, launch, typed: Typed, quantization, folder, base, asked) -> Fit:
    notes: list[str] = list(other.notes)
    typed = _still_typed(model, typed, engine, base, quantization)
    own = _own_engine(launch, model, engine, other, quantization, typed, base, notes)
    made = plan(model, engine)
    if engine.data_parallel_size > 1:
        notes.append(f"the figures are of one of {engine.data_parallel_size:,} data-parallel engines, and of its GPUs")
    terms = _terms(made, launch if own is not None else None, own, typed, quantization, folder, notes)
    memory = MemoryBudget(*(terms[name].value for name in ("total_bytes", *TERMS)),
                          free_bytes=terms["free_bytes"].value if "free_bytes" in terms else None)
    if "available" in terms:
        known = terms["available"].value
        ends = [at(known, side) for side in ("low", "typical", "high")]
        sizes = [size_plan(made, available_bytes=end) for end in ends]
        if terms["available"].kind == "typed":
            sizes = _with_weights(sizes, memory, notes)
    else:
        sizes = [size_plan(made, memory=memory.pick(side)) for side in ("least", "typical", "most")]
    return Fit(model, engine, other, terms, memory, *sizes, launch=launch, typed=typed, quantization=quantization,
               folder=folder, notes=tuple(notes), base=base, asked=asked, logged=own is not None and _same_pool(made, own))


def _with_weights(sizes: list[Sizing], memory: MemoryBudget, notes: list[str]) -> list[Sizing]:
    """A cache of a fixed size does not make room for weights that are larger than the GPU."""
    found = []
    for sizing, side in zip(sizes, ("least", "typical", "most")):
        picked = memory.pick(side)
        if picked.weights_bytes > picked.total_bytes:
            refusal = Refusal(gib_text(picked.weights_bytes), gib_text(picked.total_bytes),
                              message="the weights alone are larger than the GPU")
            sizing = replace(sizing, outcome="weights_do_not_fit", refusal=refusal, memory=picked)
        found.append(sizing)
    together = at(memory.weights_bytes, "low") + max(stage.available_bytes for stage in sizes[0].stages)
    if found[2].fits and together > at(memory.total_bytes, "high"):
        notes.append(f"weights and this cache, {gib_text(together)} GiB, are more than the GPU's "
                     f"{gib_text(at(memory.total_bytes, 'high'))}: no check of vLLM's sees it, and the launch runs out of memory")
    return found


def _same_pool(made: Plan, own: Engine) -> bool:
    """Was the log's launch one with the same pool, so that what it printed is what was to be foretold?"""
    try:
        setup = resolve(made.model, own)
    except SizingError:
        return False
    flags = ("kv_cache_memory_bytes", "num_gpu_blocks_override", "block_size", "enable_prefix_caching")
    return all(getattr(setup, name) == getattr(made.setup, name) for name in SAME_POOL) and all(
        getattr(own, name) == getattr(made.engine, name) for name in flags)


def _still_typed(model: Model, typed: Typed, engine: Engine, base: Engine, quantization: str | None) -> Typed:
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


def _own_engine(launch: Launch | None, model: Model, engine: Engine, other: Other, quantization: str | None, typed: Typed,
                base: Engine, notes: list[str]) -> Engine | None:
    """The engine the log was made with, where its measured terms hold for ``engine`` too; else None, with a note."""
    if launch is None:
        return None
    moved = []
    version = None if _unreadable(launch.vllm_version) else launch.vllm_version
    if launch.flags:
        own, rest = engine_from_flags(launch.flags, launch.model)
        own = own.replace(gpu=base.gpu, vllm_version=version or base.vllm_version, draft_model=base.draft_model)
        asked = _quantized_on_load(model, str(rest.given["quantization"]))[0] if rest.given.get("quantization") else None
        moved += ["quantization"] if asked != quantization else []
        moved += sorted(name for name in set(rest.takes_memory) ^ set(other.takes_memory))
    else:
        notes.append("the log names no flags: its figures are taken as this command's own")
        own = base.replace(vllm_version=version or base.vllm_version)
        moved += ["quantization"] if quantization not in (None, "none") else []
    flags = (name for name in MOVES_RESERVE if getattr(own, name) != getattr(engine, name))
    moved = [*_another_model(launch, model, notes), *flags, *moved]
    if version and parse_version(version).number[:2] != engine.version.number[:2]:
        moved.append("vllm_version")
    if "gpu" not in moved and _another_card(launch, resolve(model, engine).gpu, typed):
        moved.append("gpu")
    if moved:
        notes.append(f"the log was of another {' and '.join(moved)}: what it measured is not used, its bands are")
        return None
    return own


def _another_model(launch: Launch, model: Model, notes: list[str]) -> list[str]:
    """["model"] where the log names a model of the catalogue that is not built like this one."""
    if not launch.model or _same_model(model, launch.model):
        return []
    try:
        named = load_model(_known(catalog.model_name(launch.model)))
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
    parts = ("available_kv_cache_gib", "weights_gib", "requested_gib")
    most = max((each.low for name in parts for each in getattr(launch, name)), default=0)
    return gib(most) > card.total_bytes


def _terms(made: Plan, launch, own, typed: Typed, quantization, folder, notes) -> dict[str, Term]:
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
    bands = bands_of(model, engine)
    lump = None
    if available is not None and "available" not in terms:
        terms["weights_bytes"] = terms["weights_bytes"]._replace(value=at(terms["weights_bytes"].value, "typical"))
        lump = _lump(model, terms, available, own)
    for name in RESERVE:
        given = typed.bytes(name.removesuffix("_bytes") + "_gib")
        printed = _largest(getattr(launch, name.removesuffix("_bytes") + "_gib", None)) if launch else None
        if given is not None:
            terms[name] = Term(given, "typed", "typed")
        elif lump is not None:
            terms[name] = Term(lump if name == "non_torch_bytes" else 0, "measured",
                               "the log: requested − weights − available, activations and graphs in it")
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
    narrow = engine.dtype != "float32" and engine.speculative_method != "mtp"     # as those who reported had it
    seen = _seen(model, quantization, shards) if narrow and engine.pipeline_parallel_size == 1 else None
    if seen is not None:
        return Term(seen.bytes, "measured", "a launch printed it: " + seen.source)
    computed = weights_per_gpu(model, dtype=engine.dtype if engine.dtype in ("auto", "float32") else "auto",
                               quantization=quantization, tensor_parallel_size=engine.tensor_parallel_size,
                               pipeline_parallel_size=engine.pipeline_parallel_size,
                               draft=engine.speculative_method == "mtp")
    notes.extend(computed.notes)
    band = loaded_band(model, computed, quantization)
    return Term(band, "computed", band.source)


def _loads_as_stored(model: Model, engine: Engine) -> bool:
    """False where a checkpoint of 32 bits is loaded in 16, or the other way about."""
    places = (model.config, text_part(model.config)[0])
    wide = {str(place.get(key)).removeprefix("torch.") for place in places for key in ("torch_dtype", "dtype")}
    return ("float32" in wide) == (engine.dtype == "float32")


@lru_cache(maxsize=1024)
def _seen(model: Model, quantization: str | None, shards: int) -> catalog.Weights | None:
    """Weights that a launch of this very model printed; None where there is no report."""
    try:
        if model.config != catalog.model_config(model.name):
            return None
        found = catalog.weights(model.name, "bfloat16" if quantization == "none" else quantization, shards)
    except ConfigError:
        return None
    return found if found.kind == "measured" else None


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


# The verdict


def judge(low: Sizing, typical: Sizing, high: Sizing, assumed: tuple[str, ...] = ()) -> Verdict:
    """What vLLM's memory checks say over a range; ``assumed`` names the budget's terms that are bands."""
    if low.fits:
        return Verdict("passes", "passes vLLM's memory checks", "")
    if not high.fits:
        return Verdict("refused", "refused", why_refused(low, high))
    fixed = high.memory is None or high.engine.num_gpu_blocks_override is not None
    if low.outcome == "weights_do_not_fit" and fixed:     # beside a cache of a fixed size, weights that are a band
        total = low.memory.total_bytes if low.memory.free_bytes is None else low.memory.free_bytes
        return Verdict("close", "too close to call", f"it passes if the weights take at most {math.floor(total / GiB * 100) / 100} GiB; "
                       f"they may take {gib_text(low.memory.weights_bytes)}", total)
    parts = [name for name in TERMS if name in assumed]
    if typical.memory is None or not parts:
        return Verdict("close", "too close to call", "within the rounding of the printed memory it passes or fails")
    band = [sum(at(getattr(each.memory, name), "typical") for name in parts) for each in (high, low)]
    limit = sum(at(getattr(typical.memory, name), "typical") for name in parts) + spare_bytes(typical)
    most = math.floor(limit / GiB * 100) / 100     # rounded down: at the figure that stands there it passes
    together = f"{_and([NAMES[name] for name in parts])} take at most {most} GiB" + (" together" if len(parts) > 1 else "")
    return Verdict("close", "too close to call",
                   f"it passes if {together}; other launches took {gib_span(*band)} GiB", limit)


def spare_bytes(sizing: Sizing) -> int:
    """What the assumed terms could still grow by (negative: must shrink by) at the edge of passing."""
    made, engine = sizing.plan, sizing.engine
    blocks = made.blocks_per_request(1) if engine.max_model_len == -1 else sizing.blocks_per_request     # auto-fit asks for one token
    spare = min(stage.available_bytes - stage.bytes_per_block * (blocks + made.held_back_blocks) for stage in sizing.stages)
    if made.model.has_state and not engine.enforce_eager and (engine.max_num_seqs is not None or engine.gpu is not None):
        spare = min(spare, *(stage.available_bytes - made.setup.max_num_seqs * stage.bytes_per_block for stage in sizing.stages))
    return spare


def taken_bytes(memory: MemoryBudget, engine: Engine, side: str = "typical") -> int:
    """All that is taken off the requested memory: weights and reserve, the graphs only where they are subtracted."""
    picked = memory.pick({"low": "most", "typical": "typical", "high": "least"}[side])
    return picked.weights_bytes + picked.peak_activation_bytes + picked.non_torch_bytes + graph_bytes(engine, picked)


def why_refused(low: Sizing, high: Sizing) -> str:
    """Where a launch fails first, in a sentence, at the most memory that is thought possible."""
    best = "" if low.available_bytes == high.available_bytes else " at best"
    memory, refusal = high.memory, high.refusal
    if high.outcome == "weights_do_not_fit":
        least, most = (at(each.memory.weights_bytes, "typical") for each in (high, low))
        return f"the weights, {gib_span(least, most, 2)} GiB on each GPU, are larger than the GPU"
    if high.outcome == "free_memory":
        return f"{refusal.needed_gib} GiB are requested, {refusal.available_gib} GiB are free at start"
    if high.outcome == "no_cache_memory":
        if memory is None:
            return "nothing is left for the cache"
        taken = taken_bytes(memory, high.engine)
        asked = requested_bytes(at(memory.total_bytes, "typical"), high.plan.setup.gpu_memory_utilization)
        return (f"nothing is left for the cache: weights and reserve take {gib_text(taken)} GiB{best}, "
                f"{gib_text(asked)} GiB are requested")
    if high.outcome == "max_num_seqs":
        return (f"max_num_seqs, {high.plan.setup.max_num_seqs:,}, is more than the {high.num_gpu_blocks:,} blocks "
                f"for states{best}")
    estimate = low.estimated_max_model_len
    if high.engine.max_model_len == -1:
        return f"not even one token fits into the {gib_text(high.available_bytes)} GiB left{best}"
    return (f"a request of {high.max_model_len:,} tokens needs {gib_text(high.needed_bytes)} GiB of cache, "
            f"{gib_text(high.available_bytes)} GiB are left{best}"
            + (f"; {estimate:,} tokens would pass" if estimate else ""))


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
