"""From available bytes to the figures vLLM prints: blocks, concurrency, tokens, and the refusals."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .engine import Engine
from .errors import ConfigError, EngineError
from .log_lines import log_lines as _log_lines
from .memory import MemoryBudget, available_bytes as budget_available, requested_bytes
from .model import Model
from .pool import Group, Plan, plan
from .steps import Step, steps as _steps
from .units import gib_text

OUTCOMES = ("passes", "weights_do_not_fit", "free_memory", "no_cache_memory", "max_model_len", "max_num_seqs")


class Stage(NamedTuple):
    """One pipeline stage, per GPU: its layers, the bytes of a block there, what is available, blocks it could hold."""

    layers: int
    bytes_per_block: int
    available_bytes: int
    num_blocks: int


class Refusal(NamedTuple):
    """The figures of vLLM's refusal as it prints them; None where that message has no such figure."""

    needed_gib: str | None = None
    available_gib: str | None = None
    estimated_max_model_len: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Sizing:
    """The answer for one engine (one data-parallel replica); bytes are per GPU.

    ``kv_cache_tokens`` and ``max_concurrency`` are what the division gives even where vLLM refuses to start.
    ``max_model_len`` is after auto-fit. ``outcome`` "passes" speaks of vLLM's memory checks alone.

    >>> from kvlib import Engine, load_model, size
    >>> found = size(load_model("Qwen3-8B"), Engine(max_model_len=40_960), available_bytes=42_600 * 2_359_296)
    >>> found.num_gpu_blocks, found.kv_cache_tokens, found.outcome
    (42600, 681600, 'passes')
    """

    plan: Plan
    stages: tuple[Stage, ...]
    num_gpu_blocks: int
    blocks_per_request: int
    max_model_len: int
    max_concurrency: float
    kv_cache_tokens: int
    estimated_max_model_len: int
    outcome: str
    refusal: Refusal | None
    memory: MemoryBudget | None = None
    available_source: str = "measured"  # or "computed" (from a budget), or "assumed" (some of it a band)

    @property
    def model(self) -> Model:
        return self.plan.model

    @property
    def engine(self) -> Engine:
        return self.plan.engine

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.plan.groups

    @property
    def block_size(self) -> int | None:
        """Tokens in the smallest block among the attention groups; None when there is none."""
        return min((group.block_size for group in self.groups if group.is_attention), default=None)

    @property
    def bytes_per_block(self) -> int:
        """Of the stage where it is largest."""
        return max(self.plan.stage_bytes_per_block)

    @property
    def needed_bytes(self) -> int:
        """Memory for one request of ``max_model_len`` on the stage that needs most."""
        return self.bytes_per_block * self.blocks_per_request

    @property
    def available_bytes(self) -> int:
        """Of the stage that decides."""
        return min(self.stages, key=lambda stage: stage.num_blocks).available_bytes

    @property
    def headroom_bytes(self) -> int:
        """What could be lost on the tightest stage before one request of ``max_model_len`` no longer passes."""
        held = self.plan.held_back_blocks
        return min(stage.available_bytes - stage.bytes_per_block * (self.blocks_per_request + held)
                   for stage in self.stages)

    @property
    def fits(self) -> bool:
        """Passes vLLM's memory checks. It does not say that the launch will run."""
        return self.outcome == "passes"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the model, the version and the defaults that a reader of the figures should know."""
        return self.model.notes + self.plan.setup.notes

    @property
    def fleet_kv_cache_tokens(self) -> int:
        """Printed tokens of all data-parallel replicas together; vLLM prints them per engine."""
        return self.kv_cache_tokens * self.engine.data_parallel_size

    def log_lines(self) -> tuple[str, ...]:
        """The lines that this version would print about the cache, refusal included."""
        return _log_lines(self)

    def steps(self) -> tuple[Step, ...]:
        """Every step from the config to the printed figure, in order."""
        return _steps(self)


def size(model: Model, engine: Engine | None = None, *, available_bytes: int | Sequence[int] | None = None,
         memory: MemoryBudget | None = None) -> Sizing:
    """Size the KV cache of one engine as vLLM would.

    Parameters
    ----------
    available_bytes : memory for the cache on each GPU, an int for every pipeline stage or a list with one each.
    memory : a budget to work it out from; bands are taken at typical.

    Raises
    ------
    EngineError : a flag vLLM would refuse, or not exactly one source of memory.
    UnknownArchitectureError : a cache whose size is not known.

    Examples
    --------
    >>> from kvlib import load_model
    >>> s = size(load_model("Qwen3-8B"), Engine(vllm_version="0.28"), available_bytes=42_600 * 2_359_296)
    >>> s.kv_cache_tokens, f"{s.max_concurrency:.2f}"
    (681600, '16.64')
    """
    if not isinstance(model, Model):
        raise ConfigError(f"the model is {model!r:.60}; read it first: load_model(…)", field="model", found=model,
                          expected="a model from load_model or from_layers")
    if engine is not None and not isinstance(engine, Engine):
        raise EngineError(f"the engine is {engine!r:.60}; give Engine(max_model_len=…)", flag="engine", found=engine)
    return size_plan(plan(model, engine if engine is not None else Engine()), available_bytes=available_bytes,
                     memory=memory)


def size_plan(made: Plan, *, available_bytes=None, memory: MemoryBudget | None = None) -> Sizing:
    """:func:`size` for a plan already made: the same groups under another memory."""
    engine, bytes_per_block = made.engine, made.stage_bytes_per_block
    available, source = stage_memory(made, available_bytes, memory)
    stages = tuple(Stage(layers, each, have, max(0, have) // each if each else 0)
                   for layers, each, have in zip(made.stage_layers, bytes_per_block, available))
    fit = made.blocks_that_fit(available)
    held = made.held_back_blocks
    num_blocks, room = max(0, fit), fit - held
    checked = [(stage.bytes_per_block, stage.available_bytes - held * stage.bytes_per_block)
               for stage in stages if stage.bytes_per_block]
    asked = made.setup.max_model_len
    needed = made.blocks_per_request(asked)
    estimate = asked if needed <= room else _longest_request(made, room, asked)
    length = asked
    if engine.max_model_len == -1 and 0 < estimate < asked:
        length, needed = estimate, made.blocks_per_request(estimate)
    outcome, refusal = _judge(made, memory, checked, num_blocks, needed, length, estimate)
    concurrency = num_blocks / needed
    return Sizing(plan=made, stages=stages, num_gpu_blocks=num_blocks, blocks_per_request=needed,
                  max_model_len=length, max_concurrency=concurrency,
                  kv_cache_tokens=printed_tokens(made, num_blocks, concurrency, length),
                  estimated_max_model_len=estimate, outcome=outcome, refusal=refusal, memory=memory,
                  available_source=source)


def stage_memory(made: Plan, given=None, memory: MemoryBudget | None = None) -> tuple[list[int], str]:
    """Available bytes of each stage, and how they are known; a block count that was set stands for its bytes."""
    available, source = _available(made, given, memory)
    override = made.engine.num_gpu_blocks_override
    return (available if override is None else [override * each for each in made.stage_bytes_per_block]), source


def _available(made: Plan, given, memory) -> tuple[list[int], str]:
    engine, stages = made.engine, len(made.stage_bytes_per_block)
    fixed = engine.kv_cache_memory_bytes
    if given is not None and memory is not None:
        raise EngineError("available_bytes and memory are both given; give one", flag="available_bytes")
    if given is None and fixed is None and memory is None and engine.num_gpu_blocks_override is None:
        raise EngineError("no memory is given: pass available_bytes, memory, or the flag kv_cache_memory_bytes",
                          flag="available_bytes")
    if given is not None and fixed is not None and given != fixed:
        raise EngineError(f"available_bytes is {given} and kv_cache_memory_bytes {fixed}; give one",
                          flag="kv_cache_memory_bytes")
    if fixed is not None:
        return [fixed] * stages, "measured"
    if memory is not None:
        each = budget_available(memory, engine, made.setup.gpu_memory_utilization)
        return [each] * stages, "assumed" if memory.assumed else "computed"
    if given is None:
        return [0] * stages, "measured"
    values = list(given) if isinstance(given, (list, tuple)) else [given] * stages
    if len(values) != stages:
        raise EngineError(f"available_bytes has {len(values)} entries for {stages} pipeline stages; give one for each",
                          flag="available_bytes", found=len(values))
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 1 << 62:
            raise EngineError(f"available_bytes is {value!r:.40}; it must be a whole number of bytes",
                              flag="available_bytes", found=value, expected="a whole number of bytes")
    return values, "measured"


def _longest_request(made: Plan, room: int, longest: int) -> int:
    """:func:`_longest` for a plan, without a search where every layer keeps every token."""
    (specs, count), *others = made.alike
    if specs[0].grows and not others:
        tokens_in_block = specs[0].block_size * made.engine.decode_context_parallel_size
        return min(longest, max(0, room // count) * tokens_in_block)
    return _longest(made.blocks_per_request, room, longest)


def _longest(blocks_for: Callable[[int], int], room: int, longest: int) -> int:
    """The longest request, in tokens, that takes at most ``room`` blocks; 0 where even one token takes more."""
    if blocks_for(1) > room:
        return 0
    return bisect_right(range(1, longest + 1), room, key=blocks_for)


def printed_tokens(made: Plan, num_blocks: int, concurrency: float, max_model_len: int, whole=int) -> int:
    """The token figure of the log line: division first and truncated, as vLLM does; before 0.20.1 another formula."""
    if made.engine.version.has("tokens_from_concurrency"):
        return whole(concurrency * max_model_len)
    return num_blocks // len(made.groups) * made.printed_block * made.engine.decode_context_parallel_size


def _judge(made: Plan, memory, checked, num_blocks: int, needed: int, length: int, estimate: int):
    """Where a launch fails first, in the order in which vLLM checks."""
    early = fails_before_profiling(made, memory)
    if early:
        return early
    if any(have <= 0 for _, have in checked):
        return "no_cache_memory", Refusal(available_gib=gib_text(min(have for _, have in checked)),
                                          message="no memory is left for the cache blocks")
    if made.engine.max_model_len == -1 and not estimate:
        return "max_model_len", Refusal(message="auto-fit finds no length: not even one token fits")
    for each, have in checked:
        if each * needed > have:
            quoted = _longest_request(made, have // each, length)  # vLLM stops at the first stage
            return "max_model_len", Refusal(gib_text(each * needed), gib_text(have), quoted,
                                            f"one request of {length:,} tokens does not fit")
    if state_blocks_wanted(made) > num_blocks:
        return "max_num_seqs", Refusal(message=f"max_num_seqs {made.setup.max_num_seqs:,} is more than the "
                                               f"{num_blocks:,} blocks for states")
    return "passes", None


def fails_before_profiling(made: Plan, memory: MemoryBudget | None) -> tuple[str, Refusal] | None:
    """The two checks that need no cache, and are made whatever it is fixed at: free memory at start, and room for the weights."""
    if memory is None:
        return None
    picked = memory.pick("typical")
    free = picked.free_bytes
    wanted = requested_bytes(picked.total_bytes, made.setup.gpu_memory_utilization)
    if free is not None and free < wanted:
        return "free_memory", Refusal(
            needed_gib=gib_text(wanted), available_gib=gib_text(free),
            message=f"free memory at start is {gib_text(free)} GiB, less than the {gib_text(wanted)} GiB requested")
    if picked.weights_bytes > (free if free is not None else picked.total_bytes):
        return "weights_do_not_fit", Refusal(
            needed_gib=gib_text(picked.weights_bytes), available_gib=gib_text(picked.total_bytes),
            message="the weights alone are larger than the GPU")
    return None


def state_blocks_wanted(made: Plan) -> int:
    """Blocks that the states of ``max_num_seqs`` sequences take; 0 where vLLM does not check, or nobody said."""
    engine = made.engine
    asked = engine.max_num_seqs is not None or engine.gpu is not None
    return made.setup.max_num_seqs if made.model.has_state and asked and not engine.enforce_eager else 0


def size_range(model: Model, engine: Engine | None = None, *, memory: MemoryBudget) -> tuple[Sizing, Sizing, Sizing]:
    """The least, the typical and the most that the bands of ``memory`` allow.

    >>> from kvlib import Band, load_model
    >>> GiB = 1 << 30
    >>> budget = MemoryBudget(24 * GiB, 3 * GiB, peak_activation_bytes=Band(GiB // 2, GiB, 2 * GiB))
    >>> [s.num_gpu_blocks for s in size_range(load_model("Qwen2.5-1.5B"), memory=budget)]
    [39976, 42317, 43487]
    """
    made = plan(model, engine if engine is not None else Engine())
    low, typical, high = (size_plan(made, memory=memory.pick(side)) for side in ("least", "typical", "most"))
    return low, typical, high


def bytes_per_token(model: Model, engine: Engine | None = None) -> int:
    """What one more token costs on one GPU, in bytes: the layers whose cache grows without end, unpadded.

    Windows, chunks and states are not in it; draft layers are. With pipeline stages, of the heaviest; with decode
    context parallelism, the GPU's share.

    >>> from kvlib import load_model
    >>> bytes_per_token(load_model("Qwen3-8B")), bytes_per_token(load_model("DeepSeek-V3"))
    (147456, 70272)
    """
    return plan(model, engine if engine is not None else Engine()).bytes_per_token
