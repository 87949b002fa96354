"""Will it fit? A config, a command, a card and what a log measured become one budget, one range and one verdict.

>>> found = fit("Qwen3-8B", "vllm serve Qwen/Qwen3-8B --max-model-len 32768", gpu="RTX 4090")
>>> found.verdict.word, found.terms["weights_bytes"].kind
('close', 'measured')
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from . import catalog
from .capacity import Sizing, size_plan
from .command import TAKES_MEMORY, Other, engine_from_flags, read_command
from .config import load_model
from .engine import Engine
from .errors import ConfigError, EngineError, SizingError
from .memory import TERMS, Band, MemoryBudget, at, requested_bytes
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
         "cuda_graph_bytes": "CUDA graphs", "reserve": "all but weights and cache", "total_bytes": "GPU memory",
         "available": "for the cache", "free_bytes": "free at start"}
NOT_CHECKED = "Not checked: kernels, the capture of CUDA graphs, a vision encoder, and what other processes take later."
#: Flags that move what a launch takes besides the cache: a log's measured reserve holds only while they stay.
MOVES_RESERVE = ("tensor_parallel_size", "pipeline_parallel_size", "enforce_eager", "num_speculative_tokens", "device", "gpu")


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
    cautions: tuple[str, ...] = ()   # what must stand beside the verdict
    base: Engine | None = None   # the engine of the question itself, whose log and typed memory these are
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
        """Where vLLM's checks stand over the range: first that of the length, then those of the memory."""
        if self.too_long:
            return Verdict("refused", "refused", self.too_long)
        ends = (self.typical, self.typical) if self.exact and not self.high.fits else (self.low, self.high)   # as the log prints it
        return judge(ends[0], self.typical, ends[1], self.memory.assumed)

    @property
    def too_long(self) -> str:
        """Why vLLM turns the length itself away; empty where it does not, or is told to let it pass."""
        longest, asked = self.model.max_position_embeddings, self.engine.max_model_len or 0
        said = next((note for note in self.typical.notes if note.startswith("max_model_len")), "")
        allowed = "hf_overrides" in self.other.given or "rope_scaling" in self.other.given or \
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN" in str(self.asked.get("command"))
        if not said or allowed or longest is None or asked <= longest:
            return ""
        return (f"max_model_len {asked:,} is above the model's own maximum of {longest:,}; vLLM stops before it looks at memory, "
                "unless --hf-overrides stretches the model (YaRN) or VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 lets it pass")

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
        """What was to be expected before the log was read; None without a log."""
        if self.launch is None:
            return None
        engine = self.engine
        if self.launch.flags:   # as it was launched, not as it is asked now
            own = engine_from_flags(self.launch.flags, self.launch.model)[0]
            engine = own.replace(gpu=engine.gpu, vllm_version=engine.vllm_version)
        return _fit(self.model, engine, self.other, launch=None, typed=self.typed, quantization=self.quantization,
                    folder=self.folder, base=engine, asked=self.asked)

    @property
    def serve(self) -> str:
        """The ``vllm serve`` line with exactly these flags, the unrelated ones kept."""
        name = self.other.model or (self.model.config.get("_source") or {}).get("hf_id") or self.model.name
        other = self.other
        if self.another_checkpoint:
            name = f"A-{self.quantization.upper().replace(' ', '-')}-CHECKPOINT-OF/{name.rsplit('/', 1)[-1]}"
            other = other._replace(model=name)
        if self.quantization == "fp8" and "quantization" not in other.given and self.quantized_on_load:
            other = other._replace(given={**other.given, "quantization": "fp8"})
        return serve_line(self.engine, other, name)

    @property
    def another_checkpoint(self) -> bool:
        """True where the weights are counted in a form that this checkpoint does not have and vLLM does not make."""
        return self.quantization not in (None, "none", "fp8", "bitsandbytes") and self.quantized_on_load

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
    config = None if isinstance(config, str) and not config.strip() else config
    launch = read_log(log).last if log and log.strip() else None
    engine, other = read_command(command) if command.strip() else _from_log(launch)
    source = config if config is not None else other.model or (launch.model if launch else None)
    if source is None:
        raise ConfigError("no model is given: name one of the catalogue, give its config.json, or a command that names it",
                          field="config")
    model = model_of(_known(source) if config is None else source)
    quantization = quantization or _quantized_on_load(other.given.get("quantization"))
    version = vllm_version or (launch.vllm_version if launch and not _unreadable(launch.vllm_version) else None)
    engine = engine.replace(**({"gpu": gpu} if gpu else {}), **({"vllm_version": version} if version else {}))
    try:
        given = Typed(**typed)
    except TypeError:
        unknown = ", ".join(sorted(set(typed) - set(Typed.__dataclass_fields__)))
        raise EngineError(f"fit has no argument {unknown}; it takes {', '.join(Typed.__dataclass_fields__)}") from None
    asked = {"config": config, "command": command, "log": log, "gpu": gpu, "vllm_version": vllm_version,
             "quantization": quantization, **typed}
    if config is not None and other.model and not _same_model(model, other.model):
        other = other._replace(notes=(*other.notes, f"the command names {other.model}; the figures are those of {model.name}"))
    return _fit(model, engine, other, launch=launch, typed=given, quantization=quantization, folder=_folder_of(config),
                base=engine, asked=asked)


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
        path = Path(source).expanduser()
        beside = (path, path / "config.json", path / "hf_quant_config.json", path.parent / "hf_quant_config.json")
        return tuple((each.name, each.stat().st_mtime_ns) for each in beside if each.exists())
    except (OSError, ValueError, RuntimeError):
        return ()


def _same_model(model: Model, named: str) -> bool:
    """True where a command's model may be this one: its name or Hub id, or a path, which says nothing."""
    if named.startswith((".", "/", "~")) or len(named.split("/")) > 2:
        return True
    ids = (model.name, (model.config.get("_source") or {}).get("hf_id") or "", str(model.config.get("_name_or_path") or ""))
    return named.rsplit("/", 1)[-1].lower() in {each.rsplit("/", 1)[-1].lower() for each in ids}


def _from_log(launch: Launch | None) -> tuple[Engine, Other]:
    return engine_from_flags(launch.flags, launch.model) if launch and launch.flags else (Engine(), Other(None, {}, {}))


def _quantized_on_load(flag: Any) -> str | None:
    """The storage that ``--quantization`` asks for, where that says more than the config does."""
    name = str(flag or "").lower().removesuffix("_marlin")
    return name if name in QUANTIZATIONS else None


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
    notes, cautions = list(other.notes), []
    typed = _still_typed(model, typed, engine, base, quantization)
    made = plan(model, engine)
    own = _own_engine(launch, made, base, notes, cautions)
    terms = _terms(made, launch if own is not None else None, own, typed, quantization, folder, notes, cautions)
    whole = Term(0, "measured", "in the reserve")
    reserve = {**dict.fromkeys(RESERVE, whole), "non_torch_bytes": terms["reserve"]} if "reserve" in terms else terms
    memory = MemoryBudget(terms["total_bytes"].value, terms["weights_bytes"].value, *(reserve[name].value for name in RESERVE),
                          free_bytes=terms["free_bytes"].value if "free_bytes" in terms else None)
    if "available" in terms and engine.kv_cache_memory_bytes is None:
        known = terms["available"].value
        ends = [at(known, side) for side in ("low", "typical", "high")]
        sizes = [size_plan(made, available_bytes=end) for end in ends]
    else:
        sizes = [size_plan(made, memory=memory.pick(side)) for side in ("least", "typical", "most")]
    found = Fit(model, engine, other, terms, memory, *sizes, launch=launch, typed=typed, quantization=quantization,
                folder=folder, notes=tuple(notes), base=base, asked=asked)
    return replace(found, cautions=tuple(dict.fromkeys((*_cautions(found), *cautions))))


def _cautions(found: Fit) -> Iterator[str]:
    """What a reader must know beside the verdict."""
    if found.another_checkpoint:
        yield (f"the weights are counted in {found.quantization}: that needs a checkpoint stored so, and this config is not of "
               "one")
    fixed = found.engine.kv_cache_memory_bytes
    if fixed is not None:
        taken = sum(at(getattr(found.memory, name), "low") for name in TERMS) + fixed
        limit = at(found.memory.free_bytes or found.memory.total_bytes, "typical")
        if taken > limit:
            yield (f"weights, reserve and the fixed cache take at least {gib_text(taken)} GiB of {gib_text(limit)}: vLLM does not "
                   "check this beforehand, and runs out of memory")
    for flag in found.other.no_effect:
        near = get_close_matches(flag, Engine.__dataclass_fields__, 1, 0.88)
        if near and flag not in TAKES_MEMORY:
            yield (f"--{flag.replace('_', '-')} is no flag of vLLM, which will not start; did you mean "
                   f"--{near[0].replace('_', '-')}?")


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


def _own_engine(launch: Launch | None, made: Plan, base: Engine, notes: list[str], cautions: list[str]) -> Engine | None:
    """The engine the log was made with, where its measured terms hold for ``made`` too; else None, with a note."""
    if launch is None:
        return None
    model, engine = made.model, made.engine
    if launch.model and not _same_layers(model, launch.model):
        cautions.append(f"the log is of {launch.model}, not of {model.name}: nothing of it is used")
        return None
    if launch.flags:
        own = engine_from_flags(launch.flags, launch.model)[0].replace(gpu=base.gpu, vllm_version=engine.vllm_version)
    else:
        notes.append("the log names no flags: its figures are taken as this command's own")
        own = base
    try:
        then = resolve(model, own)
    except SizingError:
        return None
    moved = [name for name in MOVES_RESERVE if getattr(own, name) != getattr(engine, name)]
    moved += [name for name in ("model_dtype", "max_num_batched_tokens", "max_num_seqs")
              if getattr(then, name) != getattr(made.setup, name)]
    if launch.vllm_version and launch.vllm_version.split(".")[:2] != engine.vllm_version.split(".")[:2]:
        moved.append("vllm_version")
    if moved:
        notes.append(f"the log was of another {_and(moved)}: what it measured is not used, and its terms are assumed again")
        return None
    return own


def _same_layers(model: Model, named: str) -> bool:
    """False only where the log's model is in the catalogue, and is another one."""
    try:
        known = model_of(catalog.model_name(named))
    except SizingError:
        return True
    return known.layers == model.layers


def _terms(made: Plan, launch, own, typed: Typed, quantization, folder, notes, cautions) -> dict[str, Term]:
    model, engine, setup = made.model, made.engine, made.setup
    terms = {"total_bytes": _total(setup.gpu, launch, typed, cautions)}
    terms["weights_bytes"] = _weights(model, engine, launch, typed, quantization, folder, notes)
    available = _printed_available(launch, engine, notes)
    lump = _lump(model, terms, available, own) if available is not None else None
    if lump is not None and lump.high < -GiB // 2 and not (setup.gpu is not None and setup.gpu.unified):
        cautions.append("the log's cache is larger than this card, these weights and this share leave: it is of another launch, "
                        "and not used")
        available = lump = None
    typed_available = typed.bytes("available_gib")
    if engine.kv_cache_memory_bytes is not None:
        terms["available"] = Term(engine.kv_cache_memory_bytes, "typed", "the flag --kv-cache-memory-bytes")
    elif typed_available is not None:
        terms["available"] = Term(typed_available, "typed", "typed")
    elif available is not None and _share(model, own) == setup.gpu_memory_utilization:
        terms["available"] = Term(available, "measured", "the log's line \"Available KV cache memory\", with its rounding")
    bands = bands_of(model, engine)
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
    free, printed = typed.bytes("free_gib"), min(launch.free_gib, key=lambda each: each.value, default=None) if launch else None
    if free is not None:
        terms["free_bytes"] = Term(free, "typed", "typed")
    elif printed is not None:
        terms["free_bytes"] = Term(gib(printed.value), "measured", "printed in the log")
    return terms


def _total(card, launch, typed: Typed, cautions: list[str]) -> Term:
    given, printed = typed.bytes("total_gib"), _largest(launch.total_gib) if launch else None
    if given is not None:
        if given <= 0:
            raise SizingError("total_gib is 0; a GPU has more than none")
        return Term(given, "typed", "typed")
    if printed is not None:
        if card is not None and not card.reported_low_gib * 0.99 <= printed.value <= card.reported_high_gib * 1.01:
            cautions.append(f"the log's GPU has {printed.value:g} GiB, which is not a {card.name}")
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
    if folder is not None and quantization is None and (files := checkpoint_bytes(folder)) is not None:
        return Term(-(-files.bytes // shards), "measured", files.source + (f" ÷ {shards} GPUs" if shards > 1 else ""))
    seen = _seen(model, quantization, shards)
    if seen is not None:
        return Term(seen[0], "measured", "launches printed it: " + seen[1])
    computed = weights_per_gpu(model, dtype=engine.dtype if engine.dtype in ("auto", "float32") else "auto",
                               quantization=quantization, tensor_parallel_size=engine.tensor_parallel_size,
                               pipeline_parallel_size=engine.pipeline_parallel_size,
                               draft=engine.speculative_method == "mtp")
    notes.extend(computed.notes)
    band = loaded_band(model, computed, quantization)
    return Term(band, "computed", band.source)


@lru_cache(maxsize=1024)
def _seen(model: Model, quantization: str | None, shards: int) -> tuple[int | Band, str] | None:
    """Weights that launches of this very model printed, from the least to the most; None where there is no report."""
    dtype = "bfloat16" if quantization == "none" else quantization
    try:
        if model.config != catalog.model_config(model.name):
            return None
        found, seen = catalog.weights(model.name, dtype, shards), catalog.loaded_gib(model.name, dtype, shards)
    except ConfigError:
        return None
    if found.kind != "measured":
        return None
    ends = [gib(value) for value in (min(seen), max(seen))]
    return _point(Band(ends[0], min(max(found.bytes, ends[0]), ends[1]), ends[1], found.source)), found.source


def _share(model: Model, engine: Engine) -> float:
    return resolve(model, engine.replace(gpu=None)).gpu_memory_utilization if engine else 0.0


def _printed_available(launch: Launch | None, engine: Engine, notes: list[str]) -> int | Band | None:
    """The available memory a launch printed, of the worker with the least; None where it printed none."""
    if launch is None:
        return None
    printed = min(launch.available_kv_cache_gib, key=lambda each: each.value, default=None)
    if printed is None and launch.refusal is not None and launch.refusal.kind in ("max_model_len", "no_cache_memory"):
        printed = launch.refusal.available_gib
    if printed is None:
        return None
    if engine.pipeline_parallel_size > 1 and len({each.value for each in launch.available_kv_cache_gib}) > 1:
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
    parts = [name for name in TERMS if name in assumed]
    if typical.memory is None or not parts:
        return Verdict("close", "too close to call", "within the rounding of the printed memory it passes or fails")
    band = [sum(at(getattr(each.memory, name), "typical") for name in parts) for each in (high, low)]
    limit = sum(at(getattr(typical.memory, name), "typical") for name in parts) + spare_bytes(typical)
    together = f"{_and([NAMES[name] for name in parts])} take at most {gib_text(limit)} GiB" + (" together" if len(parts) > 1 else "")
    return Verdict("close", "too close to call", f"it passes if {together} (assumed: {gib_span(*band)} GiB)", limit)


def spare_bytes(sizing: Sizing) -> int:
    """What the assumed terms could still grow by (negative: must shrink by) at the edge of passing."""
    spare = sizing.headroom_bytes
    if sizing.model.has_state and not sizing.engine.enforce_eager:
        spare = min(spare, sizing.available_bytes - sizing.plan.setup.max_num_seqs * sizing.bytes_per_block)
    return spare


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
        taken = sum(at(getattr(memory, term), "typical") for term in TERMS)
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
