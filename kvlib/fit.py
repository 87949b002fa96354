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
from typing import Any

from . import catalog
from .budget import (RESERVE, Term, Typed, model_of, own_engine, quantized_on_load, same_model, still_typed, terms_of, unreadable)
from .capacity import Refusal, Sizing, size_plan
from .command import TAKES_MEMORY, Other, engine_from_flags, read_command
from .engine import Engine
from .errors import ConfigError, EngineError, SizingError
from .memory import TERMS, Band, MemoryBudget, at
from .model import Model
from .pool import Plan, plan
from .ranges import exact_span, gib_span, span
from .resolve import resolve
from .serve_line import serve_line
from .units import gib_text
from .verdict import NAMES, Verdict, judge
from .vllm_log import Launch, read_log
from .weights import quantization_of

#: What makes the printed memory and figures those of the very same pool.
SAME_POOL = ("cache_dtype", "max_model_len", "gpu_memory_utilization", "tokens_in_flight", "backend_name")


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
    doubts: tuple[str, ...] = ()   # what speaks against the log
    base: Engine | None = None   # the engine of the question itself, whose log and typed memory these are
    logged: bool = False         # the log is of a launch with these very flags: its figures may stand beside foretold ones
    asked: Mapping = field(default_factory=dict, repr=False)   # the arguments of fit()

    @cached_property
    def exact(self) -> bool:
        """True where nothing is assumed: the answer is a figure, or as wide as the rounding of what was printed."""
        return self.engine.num_gpu_blocks_override is not None or "available" in self.terms or not self.assumed

    @cached_property
    def assumed(self) -> tuple[str, ...]:
        """The terms of the budget that no one has measured or typed."""
        return tuple(name for name, term in self.terms.items()
                     if term.kind == "assumed" or term.kind == "computed" and isinstance(term.value, Band))

    @cached_property
    def cautions(self) -> tuple[str, ...]:
        """What must stand beside the verdict."""
        return tuple(dict.fromkeys((*_cautions(self), *self.doubts)))

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
        engine = self.engine.replace(**flags) if flags else self.engine
        typed = replace(self.typed, **typed) if typed else self.typed
        return _fit(self.model, engine, self.other, launch=self.launch, typed=typed, folder=self.folder,
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
    launch = launch_of(log) if log and log.strip() else None
    engine, other = read_command(command) if command.strip() else _from_log(launch)
    source = config if config is not None else other.model or (launch.model if launch else None)
    if source is None:
        raise ConfigError("no model is given: name one of the catalogue, give its config.json, or a command that names it",
                          field="config")
    model = model_of(_known(source) if config is None else source)
    if quantization is None and (asked_for := other.given.get("quantization")) is not None:
        quantization, doubt = quantized_on_load(model, str(asked_for))
        other = other._replace(notes=(*other.notes, *doubt))
    version = vllm_version or (launch.vllm_version if launch and not unreadable(launch.vllm_version) else None)
    engine = engine.replace(**({"gpu": gpu} if gpu else {}), **({"vllm_version": version} if version else {}))
    try:
        given = Typed(**typed)
    except TypeError:
        unknown = ", ".join(sorted(set(typed) - set(Typed.__dataclass_fields__)))
        raise EngineError(f"fit has no argument {unknown}; it takes {', '.join(Typed.__dataclass_fields__)}") from None
    asked = {"config": config, "command": command, "log": log, "gpu": gpu, "vllm_version": vllm_version,
             "quantization": quantization, **typed}
    if config is not None and other.model and not same_model(model, other.model):
        other = other._replace(notes=(*other.notes, f"the command names {other.model}; the figures are those of {model.name}"))
    return _fit(model, engine, other, launch=launch, typed=given, quantization=quantization, folder=_folder_of(config),
                base=engine, asked=asked)


def _from_log(launch: Launch | None) -> tuple[Engine, Other]:
    return engine_from_flags(launch.flags, launch.model) if launch and launch.flags else (Engine(), Other(None, {}, {}))


@lru_cache(maxsize=4)
def launch_of(log: str) -> Launch:
    """The last launch of a log; a long one is not read again for each step of a slider."""
    return read_log(log).last


def _known(name: str) -> str:
    """A model named by a command: a Hub id, a catalogue name, or a local path, whose last part may be a name."""
    try:
        return catalog.model_name(name)
    except ConfigError:
        last = str(name).rstrip("/").rsplit("/", 1)[-1]
        return last if last.lower() in {known.lower() for known in catalog.models()} else name


def _folder_of(config: Any) -> Path | None:
    if not isinstance(config, (str, os.PathLike)) or (isinstance(config, str) and len(config) > 1024):
        return None
    try:
        path = os.path.expanduser(config)
        return Path(path) if os.path.isdir(path) else Path(path).parent if os.path.isfile(path) else None
    except (OSError, ValueError, RuntimeError):
        return None


def _fit(model: Model, engine: Engine, other: Other, *, launch, typed: Typed, quantization, folder, base, asked) -> Fit:
    notes, doubts = list(other.notes), []
    typed = still_typed(model, typed, engine, base, quantization)
    made = plan(model, engine)
    own = own_engine(launch, made, other, quantization, typed, base, notes, doubts)
    if engine.data_parallel_size > 1:
        notes.append(f"the figures are of one of {engine.data_parallel_size:,} data-parallel engines, and of its GPUs")
    terms = terms_of(made, launch if own is not None else None, own, typed, quantization, folder, notes,
                     doubts)
    reserve = (0, terms["reserve"].value, 0) if "reserve" in terms else (terms[name].value for name in RESERVE)
    memory = MemoryBudget(terms["total_bytes"].value, terms["weights_bytes"].value, *reserve,
                          free_bytes=terms["free_bytes"].value if "free_bytes" in terms else None)
    if "available" in terms and engine.kv_cache_memory_bytes is None:
        known = terms["available"].value
        ends = [at(known, side) for side in ("low", "typical", "high")]
        sizes = [size_plan(made, available_bytes=end) for end in ends]
        if terms["available"].kind == "typed":
            sizes = _with_weights(sizes, memory)
    else:
        sizes = [size_plan(made, memory=memory.pick(side)) for side in ("least", "typical", "most")]
    return Fit(model, engine, other, terms, memory, *sizes, launch=launch, typed=typed,
               quantization=quantization, folder=folder, notes=tuple(notes), doubts=tuple(doubts), base=base,
               asked=asked, logged=own is not None and _same_pool(made, own))


def _cautions(found: Fit) -> Iterator[str]:
    """What a reader must know beside the verdict."""
    if found.another_checkpoint:
        yield (f"the weights are counted in {found.quantization}: that needs a checkpoint stored so, and this config is not of "
               "one")
    fixed = found.terms.get("available")
    if fixed is not None and fixed.kind == "typed":
        taken = sum(at(getattr(found.memory, name), "low") for name in TERMS) + at(fixed.value, "low")
        limit = at(found.memory.free_bytes or found.memory.total_bytes, "typical")
        if taken > limit:
            yield (f"weights, reserve and the fixed cache take at least {gib_text(taken)} GiB of {gib_text(limit)}: vLLM does not "
                   "check this beforehand, and runs out of memory")
    for flag in found.other.no_effect:
        near = get_close_matches(flag, Engine.__dataclass_fields__, 1, 0.88)
        if near and flag not in TAKES_MEMORY:
            yield (f"--{flag.replace('_', '-')} is no flag of vLLM, which will not start; did you mean "
                   f"--{near[0].replace('_', '-')}?")


def _with_weights(sizes: list[Sizing], memory: MemoryBudget) -> list[Sizing]:
    """A cache of a fixed size does not make room for weights that are larger than the GPU."""
    found = []
    for sizing, side in zip(sizes, ("least", "typical", "most")):
        picked = memory.pick(side)
        if picked.weights_bytes > picked.total_bytes:
            refusal = Refusal(gib_text(picked.weights_bytes), gib_text(picked.total_bytes),
                              message="the weights alone are larger than the GPU")
            sizing = replace(sizing, outcome="weights_do_not_fit", refusal=refusal, memory=picked)
        found.append(sizing)
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
