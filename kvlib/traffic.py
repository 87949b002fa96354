"""From capacity to traffic: which requests run, wait and are thrown out when real ones arrive.

The simulation follows vLLM's scheduler step by step where memory is concerned; time is counted in its steps. It is deterministic.

>>> from kvlib import Engine, load_model, traffic
>>> engine = Engine(max_model_len=4096, max_num_seqs=64, max_num_batched_tokens=2048, async_scheduling=False)
>>> run = traffic.simulate(load_model("Qwen3-8B"), engine, [(0, 500, 100)] * 10, num_gpu_blocks=300)
>>> run.outcome, run.steps, run.preemptions, max(run.series["used"])
('finished', 200, 2, 297)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .engine import Engine
from .errors import ConfigError, EngineError
from .model import Model
from .traffic_files import TrafficError, read_requests
from .traffic_groups import NEVER
from .traffic_launch import settings_for
from .traffic_mix import FromRows, Load, Mix, fixed, lognormal, spread, uniform
from .traffic_plan import Expectation, StepTime, expect
from .traffic_record import COLUMNS, MOST_ROWS, Recorder, Run
from .traffic_requests import Arrivals
from .traffic_scheduler import STALL_STEPS, Scheduler

__all__ = ["COLUMNS", "Expectation", "FromRows", "Load", "Mix", "Run", "StepTime", "TrafficError", "expect", "fixed", "lognormal",
           "read_requests", "seqs_without_preemption", "simulate", "spread", "uniform"]
FLAGS = ("long_prefill_token_threshold", "scheduler_reserve_full_isl", "watermark", "prefix_cache_retention_interval")


def simulate(model: Model | None, engine: Engine, requests: Iterable, *, num_gpu_blocks: int, record: str = "full",
             groups: Iterable[dict] | None = None, max_steps: int | None = None, progress: Callable[[Run], None] | None = None,
             progress_every: int = 100_000, **flags) -> Run:
    """Run a load of requests through vLLM's scheduling of one engine.

    Parameters
    ----------
    requests : rows of (arrival_step, prompt_tokens, output_tokens[, prefix_id, prefix_len]), or mappings with those names. The
        first ``prefix_len`` tokens are those of the shared text ``prefix_id``, counted through prompt and output. Lists may stand
        in any order; an iterator is read as the run goes on and must come in order of arrival.
    num_gpu_blocks : blocks in the pool, the null block included.
    record : "full" keeps a value per step and per request; "summary" keeps sums only, whatever the number of requests.
    groups : cache groups by hand instead of a model's: dicts with ``kind``, ``block_size``, and ``window`` or ``chunk``.
    max_steps : stop there.
    progress : called about every ``progress_every`` steps with a summary so far.
    flags : vLLM's ``long_prefill_token_threshold``, ``scheduler_reserve_full_isl``, ``watermark``,
        ``prefix_cache_retention_interval``.

    An interrupt (Ctrl-C) ends the run and keeps what is done. Raises TrafficError for a row that is no request or that vLLM would
    refuse, EngineError for a flag it cannot follow. Source: vLLM's v1/core/sched and kv-cache managers, 0.28 to 0.33.

    >>> from kvlib import Engine, load_model
    >>> engine = Engine(max_model_len=4096, max_num_batched_tokens=2048, async_scheduling=False)
    >>> run = simulate(load_model("Qwen3-8B"), engine, [(0, 100, 3), (1, 20, 1)], num_gpu_blocks=300)
    >>> run.series["running"], run.series["used"]
    ([1, 2, 1], [7, 9, 7])
    """
    if record not in ("full", "summary"):
        raise EngineError(f"record is {record!r}; it must be full or summary", flag="record", found=record)
    if groups is None and not isinstance(model, Model):
        raise ConfigError(f"the model is {model!r:.60}; read it first: load_model(…)", field="model", found=model)
    if not isinstance(engine, Engine):
        raise EngineError(f"the engine is {engine!r:.60}; give Engine(max_model_len=…)", flag="engine", found=engine)
    unknown = [name for name in flags if name not in FLAGS]
    if unknown:
        raise EngineError(f"simulate has no flag {unknown[0]}; beside those of the engine it takes {', '.join(FLAGS)}", flag=unknown[0])
    if max_steps is not None and (not isinstance(max_steps, int) or isinstance(max_steps, bool) or max_steps < 1):
        raise EngineError(f"max_steps is {max_steps!r:.40}; it must be a whole number of at least 1", flag="max_steps", found=max_steps)
    settings, needed, notes = settings_for(model, engine, num_gpu_blocks, None if groups is None else list(groups), **flags)
    arrivals = Arrivals(requests, settings)
    recorder = Recorder(record == "full", arrivals)
    return _drive(Scheduler(settings), arrivals, recorder, num_gpu_blocks, needed, notes, max_steps, progress, progress_every)


def _drive(scheduler: Scheduler, arrivals: Arrivals, recorder: Recorder, num_gpu_blocks: int, needed: int, notes,
           max_steps: int | None, progress, progress_every: int) -> Run:
    """Turn after turn until everyone has finished; quiet stretches are noted in one go."""
    t, stalled, outcome, reason, told = 0, 0, "finished", "", 0
    waiting, running, full = scheduler.waiting, scheduler.running, recorder.full
    last = NEVER if max_steps is None else max_steps

    def so_far() -> Run:
        return recorder.summary(scheduler, arrivals, t, outcome, reason, num_gpu_blocks, needed, notes)

    try:
        while True:
            while arrivals.next is not None and arrivals.next.arrival <= t:
                waiting.append(arrivals.next)
                arrivals.advance()
            coming = NEVER if arrivals.next is None else arrivals.next.arrival
            if not running and not waiting and coming == NEVER:
                break
            if t >= last:
                outcome, reason = "max_steps", f"stopped at step {t:,}"
                break
            if not running and not waiting:
                t = _skip(scheduler, recorder, t, min(coming, last))
                continue
            scheduler.schedule(t)
            if full:
                recorder.step(t, scheduler)
            recorder.row(scheduler)
            ended = scheduler.read(t)
            if ended:
                recorder.end(t, ended)
            moved = scheduler.tokens or scheduler.due or ended
            stalled = 0 if moved else stalled + 1
            t += 1
            if stalled >= STALL_STEPS:
                outcome, reason = "stalled", _why_stalled(scheduler, num_gpu_blocks)
                break
            if moved:
                quiet = min(scheduler.quiet_until(t - 1), coming, last)
                if quiet > t:
                    t = _skip(scheduler, recorder, t, quiet)
            if progress is not None and t - told >= progress_every:
                told = t
                progress(so_far())
    except KeyboardInterrupt:
        outcome, reason = "interrupted", f"stopped by hand after step {t:,}; what was done until then is kept"
    return so_far()


def _skip(scheduler: Scheduler, recorder: Recorder, t: int, until: int) -> int:
    """Note the steps from ``t`` to ``until``, in which nothing happens but one token for each decoding request."""
    if recorder.full and until > MOST_ROWS:
        raise TrafficError(f"the run comes to {until:,} steps; record=\"full\" keeps at most {MOST_ROWS:,}; use record=\"summary\"")
    scheduler.hit, scheduler.tokens = 0, scheduler.steady
    recorder.row(scheduler, until - t)
    return until


def _why_stalled(scheduler: Scheduler, num_gpu_blocks: int) -> str:
    """The request at the head of the queue, and what it lacks."""
    if not scheduler.waiting:
        return f"{len(scheduler.running)} running requests get no tokens any more"
    head = scheduler.waiting[0]
    end = max(head.prompt, head.n - 1)
    needs = sum(group.admission_need(head.n, 0, end, True) for group in scheduler.groups)
    behind = len(scheduler.waiting) - 1
    return (f"request {head.row} needs {needs:,} blocks for the {head.n:,} tokens it has, and the pool of {num_gpu_blocks:,} has "
            f"{scheduler.pool.usable:,} (one is the null block): it waits for ever"
            + (f", and so do the {behind:,} behind it" if behind else ""))


def seqs_without_preemption(model: Model | None, engine: Engine, requests, *, num_gpu_blocks: int, most: int | None = None,
                            **flags) -> int | None:
    """The largest max_num_seqs, up to ``most``, found with which this load runs to its end without a preemption; None: not even 1.

    ``requests`` is simulated about ten times, so it must be a list or a :class:`kvlib.traffic.Load`. Preemptions need not fall
    with every step of max_num_seqs, so a larger value may also do; the one returned was run.
    """
    if hasattr(requests, "__next__"):
        raise EngineError("the requests can be read only once; give a list or a Load", flag="requests")

    def quiet(seqs: int) -> bool:
        changed = engine.replace(max_num_seqs=seqs)
        run = simulate(model, changed, requests, num_gpu_blocks=num_gpu_blocks, record="summary", **flags)
        return not run.preemptions and run.outcome == "finished"

    settings, _, _ = settings_for(model, engine, num_gpu_blocks, flags.get("groups"))
    high = min(settings.max_num_seqs, settings.usable_blocks) if most is None else most
    if quiet(high):
        return high
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if quiet(middle) else (low, middle)
    return low or None
