"""From capacity to traffic: which requests run, wait and are thrown out when real ones arrive.

The simulation follows vLLM's scheduler step by step where memory is concerned; time is counted in its steps. It is deterministic.

>>> from kvlib import Engine, load_model, traffic
>>> engine = Engine(max_model_len=4096, max_num_seqs=64, max_num_batched_tokens=2048, async_scheduling=False)
>>> run = traffic.simulate(load_model("Qwen3-8B"), engine, [(0, 500, 100)] * 10, num_gpu_blocks=300)
>>> run.outcome, run.steps, run.preemptions, max(run.series["used"])
('finished', 200, 2, 297)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from .engine import Engine
from .errors import ConfigError, EngineError
from .model import Model
from .traffic_files import TrafficError, read_requests
from .traffic_launch import settings_for
from .traffic_mix import FromRows, Load, Mix, fixed, lognormal, uniform
from .traffic_plan import Expectation, StepTime, expect, seqs_without_preemption
from .traffic_scheduler import STALL_STEPS, Request, Scheduler, Settings

COLUMNS = ("running", "waiting", "preempted", "tokens", "used", "cached", "hit")
LONGEST = 1 << 40  # tokens or steps; more is taken for a mistake
MOST_ROWS = 20_000_000  # steps kept with record="full"


@dataclass
class Run:
    """What happened.

    ``outcome`` is "finished", "stalled" (nothing could be scheduled any more: see ``reason``), "interrupted" or "max_steps".
    ``series`` has one value per scheduler step, taken after the step was scheduled: requests running and waiting (thrown out ones
    wait too), preemptions so far, tokens scheduled, blocks used, blocks with a hash, prompt tokens found in the prefix cache; empty
    with ``record="summary"``. ``requests`` has one value per request: step first admitted, step finished, times preempted, steps
    admitted, tokens found at each. The rest are counts over the whole run; ``peak_*`` and ``mean_*`` are over steps with requests.
    """

    outcome: str
    reason: str
    steps: int
    finished: int
    preemptions: int
    num_gpu_blocks: int
    blocks_per_request: int
    max_model_len: int
    series: dict[str, list[int]] = field(repr=False)
    requests: dict[str, list] = field(repr=False)
    preemption_events: list[tuple[int, int]] = field(repr=False)
    preempted_requests: int = 0
    cut: int = 0
    scheduled_tokens: int = 0
    hit_tokens: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    peak_used: int = 0
    peak_running: int = 0
    busy_steps: int = 0
    mean_used: float = 0.0
    mean_running: float = 0.0
    mean_waiting: float = 0.0
    mean_steps_in_system: float = 0.0
    mean_steps_waiting: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def usable_blocks(self) -> int:
        """Blocks without the null block."""
        return self.num_gpu_blocks - 1

    @property
    def startup_ok(self) -> bool:
        """Would vLLM start with this pool: does one request of ``max_model_len`` fit?"""
        return self.usable_blocks >= self.blocks_per_request


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
    unknown = [name for name in flags if name not in ("long_prefill_token_threshold", "scheduler_reserve_full_isl", "watermark",
                                                      "prefix_cache_retention_interval")]
    if unknown:
        raise EngineError(f"simulate has no flag {unknown[0]}", flag=unknown[0])
    settings, needed, notes = settings_for(model, engine, num_gpu_blocks, None if groups is None else list(groups), **flags)
    arrivals = Arrivals(requests, settings)
    recorder = _Recorder(record == "full", arrivals)
    return _drive(Scheduler(settings), arrivals, recorder, num_gpu_blocks, needed, notes, max_steps, progress, progress_every)


class Arrivals:
    """The requests in order of arrival, each checked as it is read."""

    def __init__(self, requests: Iterable, settings: Settings):
        self.settings = settings
        self.count = 0  # read so far
        self.rows = 0  # in all, where that is known
        self.cut = 0  # outputs that max_model_len cuts short
        self.streams: dict = {}  # by prefix_id: what is cached of that text, by group
        if hasattr(requests, "__len__"):
            rows = [self._row(row, request) for row, request in enumerate(requests)]
            self.rows = len(rows)
            order = sorted(range(len(rows)), key=lambda row: rows[row][0])  # a stable sort: rows of one step keep their order
            self._source: Iterator = iter([(row, *rows[row]) for row in order])
        else:
            self._source = self._read(requests)
        self.next: Request | None = None
        self.advance()

    def advance(self) -> None:
        """Make the next request out of the next row, or None at the end."""
        found = next(self._source, None)
        self.next = None if found is None else self._request(*found)

    def _read(self, requests: Iterable):
        before = 0
        for row, request in enumerate(requests):
            values = self._row(row, request)
            if values[0] < before:
                raise TrafficError(f"request {row} arrives at step {values[0]:,}, before the one above it ({before:,}); an iterator "
                                   "must come in order of arrival (a list may not)", row=row, field="arrival_step", found=values[0])
            before = values[0]
            yield row, *values

    def _row(self, row: int, request) -> tuple:
        """(arrival, prompt, output, prefix_id, prefix_len) of a row, checked."""
        names = ("arrival_step", "prompt_tokens", "output_tokens", "prefix_id", "prefix_len")
        if isinstance(request, dict):
            missing = [name for name in names[:3] if name not in request]
            if missing:
                raise TrafficError(f"request {row} has no {missing[0]}", row=row, field=missing[0])
            request = [request.get(name) for name in names]
        try:
            arrival, prompt, output, *more = request
        except (TypeError, ValueError):
            raise TrafficError(f"request {row} is {request!r:.60}; it must be (arrival_step, prompt_tokens, output_tokens), then "
                               "prefix_id and prefix_len where a prefix is shared", row=row, found=request) from None
        if len(more) > 2 or len(more) == 1 and more[0] is not None:
            raise TrafficError(f"request {row} has {3 + len(more)} values; it must have 3, or 5 with prefix_id and prefix_len",
                               row=row, found=request)
        prefix, length = more if len(more) == 2 else (None, 0)
        length = 0 if prefix is None else length
        for name, value, least in zip((*names[:3], names[4]), (arrival, prompt, output, length), (0, 1, 1, 0)):
            if type(value) is not int or not least <= value <= LONGEST:
                value = self._whole(row, name, value, least)
        arrival, prompt, output, length = int(arrival), int(prompt), int(output), int(length)
        if prompt >= self.settings.max_model_len:
            raise TrafficError(f"request {row} has a prompt of {prompt:,} tokens, and max_model_len is "
                               f"{self.settings.max_model_len:,}: vLLM refuses a prompt that leaves no room for an output; shorten "
                               "it or raise max_model_len", row=row, field="prompt_tokens", found=prompt)
        return arrival, prompt, output, prefix, length

    @staticmethod
    def _whole(row: int, name: str, value, least: int) -> int:
        """A whole number of another type (NumPy's, say), or an error."""
        try:
            whole = value.__index__()
        except (AttributeError, TypeError):
            whole = None
        if whole is None or isinstance(value, bool) or not least <= whole <= LONGEST:
            raise TrafficError(f"request {row}: {name} is {value!r:.40}; it must be a whole number of at least {least}"
                               + (f" and at most {LONGEST:,}" if whole is not None and whole > LONGEST else ""),
                               row=row, field=name, found=value)
        return whole

    def _request(self, row: int, arrival: int, prompt: int, output: int, prefix, length: int) -> Request:
        settings = self.settings
        total = prompt + output
        if total > settings.max_model_len:
            total = settings.max_model_len
            self.cut += 1
        groups = len(settings.groups)
        self.count += 1
        if prefix is None or not settings.caching:
            return Request(row, arrival, prompt, total, None, (0,) * groups, None, [None] * groups)
        streams = self.streams.get(prefix)
        if streams is None:
            streams = self.streams[prefix] = tuple({} for _ in settings.groups)
        return Request(row, arrival, prompt, total, prefix, tuple(length // group.block for group in settings.groups), streams,
                       [None] * groups)


class _Recorder:
    """Values per step and per request, or only their sums."""

    def __init__(self, full: bool, arrivals: Arrivals):
        self.full, self.arrivals = full, arrivals
        self.columns: dict[str, list[int]] = {name: [] for name in COLUMNS} if full else {}
        self.requests: dict[int, list] = {}
        self.events: list[tuple[int, int]] = []
        self.finished = self.preempted = self.tokens = self.hits = self.prompts = self.outputs = 0
        self.peak_used = self.peak_running = self.busy = self.sum_used = self.sum_running = self.sum_waiting = 0
        self.in_system = self.in_queue = 0

    def row(self, scheduler: Scheduler, steps: int = 1) -> None:
        """Note one step, and ``steps - 1`` more like it."""
        pool = scheduler.pool
        running, waiting, tokens, used = len(scheduler.running), len(scheduler.waiting), scheduler.tokens, pool.used
        if self.full:
            columns = self.columns
            values = (running, waiting, scheduler.preemptions, tokens, used, pool.cached, scheduler.hit)
            if steps == 1:
                for column, value in zip(columns.values(), values):
                    column.append(value)
            else:
                for column, value in zip(columns.values(), values):
                    column.extend([value] * steps)
        if running or waiting:
            self.busy += steps
            self.tokens += tokens * steps
            self.hits += scheduler.hit
            self.sum_used += used * steps
            self.sum_running += running * steps
            self.sum_waiting += waiting * steps
            if used > self.peak_used:
                self.peak_used = used
            if running > self.peak_running:
                self.peak_running = running

    def step(self, t: int, scheduler: Scheduler) -> None:
        """Note who came in and who was thrown out in step ``t``."""
        for request in scheduler.thrown_out:
            self.events.append((t, request.row))
            self._of(request.row)[2] += 1
        for request, hit in scheduler.admitted:
            mine = self._of(request.row)
            if mine[0] is None:
                mine[0] = t
            mine[3].append(t)
            mine[4].append(hit)

    def _of(self, row: int) -> list:
        mine = self.requests.get(row)
        if mine is None:
            mine = self.requests[row] = [None, None, 0, [], []]
        return mine

    def end(self, t: int, ended: list[Request]) -> None:
        for request in ended:
            self.finished += 1
            self.in_system += t + 1 - request.arrival
            self.in_queue += request.first - request.arrival
            self.prompts += request.prompt
            self.outputs += request.total - request.prompt
            self.preempted += request.preempted > 0
            if self.full:
                self.requests[request.row][1] = t

    def per_request(self) -> dict[str, list]:
        names = ("first", "finish", "preempted", "admitted", "hits")
        if not self.full:
            return {name: [] for name in names}
        count = max(self.requests, default=-1) + 1
        count = max(count, self.arrivals.count, self.arrivals.rows)
        rows = [self.requests.get(row) or [None, None, 0, [], []] for row in range(count)]
        return {name: [row[index] for row in rows] for index, name in enumerate(names)}


def _drive(scheduler: Scheduler, arrivals: Arrivals, recorder: _Recorder, num_gpu_blocks: int, needed: int, notes,
           max_steps: int | None, progress, progress_every: int) -> Run:
    """Turn after turn until everyone has finished; quiet stretches are noted in one go."""
    t, stalled, outcome, reason, told = 0, 0, "finished", "", 0
    waiting, running, full = scheduler.waiting, scheduler.running, recorder.full

    def so_far() -> Run:
        return _summary(scheduler, recorder, arrivals, t, outcome, reason, num_gpu_blocks, needed, notes)

    try:
        while True:
            coming = arrivals.next
            while coming is not None and coming.arrival <= t:
                waiting.append(coming)
                arrivals.advance()
                coming = arrivals.next
            if not running and not waiting:
                if coming is None:
                    break
                until = coming.arrival if max_steps is None else min(coming.arrival, max_steps)
                scheduler.tokens = scheduler.hit = 0
                _room(recorder, until)
                recorder.row(scheduler, until - t)
                t = until
                if max_steps is not None and t >= max_steps:
                    outcome, reason = "max_steps", f"stopped at step {t:,}"
                    break
                continue
            if max_steps is not None and t >= max_steps:
                outcome, reason = "max_steps", f"stopped at step {t:,}"
                break
            scheduler.schedule(t)
            if full:
                recorder.step(t, scheduler)
            recorder.row(scheduler)
            ended = scheduler.read(t)
            if ended:
                recorder.end(t, ended)
            if scheduler.tokens or scheduler.due or ended:
                stalled = 0
                quiet = scheduler.quiet_until(t)
                if quiet > t + 1:
                    if arrivals.next is not None:
                        quiet = min(quiet, arrivals.next.arrival)
                    if max_steps is not None:
                        quiet = min(quiet, max_steps)
                    if quiet > t + 1:
                        scheduler.hit = 0
                        scheduler.tokens = scheduler.steady
                        _room(recorder, quiet)
                        recorder.row(scheduler, quiet - t - 1)
                        t = quiet - 1
            else:
                stalled += 1
            t += 1
            if stalled >= STALL_STEPS:
                outcome, reason = "stalled", _why_stalled(scheduler, num_gpu_blocks)
                break
            if progress is not None and t - told >= progress_every:
                told = t
                progress(so_far())
    except KeyboardInterrupt:
        outcome, reason = "interrupted", f"stopped by hand after step {t:,}; what was done until then is kept"
    return so_far()


def _room(recorder: _Recorder, steps: int) -> None:
    if recorder.full and steps > MOST_ROWS:
        raise TrafficError(f"the run comes to {steps:,} steps; record=\"full\" keeps at most {MOST_ROWS:,}; use record=\"summary\"")


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


def _summary(scheduler: Scheduler, recorder: _Recorder, arrivals: Arrivals, steps: int, outcome: str, reason: str,
             num_gpu_blocks: int, needed: int, notes) -> Run:
    busy, done = max(1, recorder.busy), max(1, recorder.finished)
    if arrivals.cut:
        notes = (*notes, f"{arrivals.cut:,} of {arrivals.count:,} outputs are cut short where prompt and output reach max_model_len")
    return Run(
        outcome=outcome, reason=reason, steps=steps, finished=recorder.finished, preemptions=scheduler.preemptions,
        num_gpu_blocks=num_gpu_blocks, blocks_per_request=needed, max_model_len=scheduler.settings.max_model_len,
        series=recorder.columns if recorder.full else {}, requests=recorder.per_request(), preemption_events=recorder.events,
        preempted_requests=recorder.preempted, cut=arrivals.cut, scheduled_tokens=recorder.tokens, hit_tokens=recorder.hits,
        prompt_tokens=recorder.prompts, output_tokens=recorder.outputs, peak_used=recorder.peak_used,
        peak_running=recorder.peak_running, busy_steps=recorder.busy, mean_used=recorder.sum_used / busy,
        mean_running=recorder.sum_running / busy, mean_waiting=recorder.sum_waiting / busy,
        mean_steps_in_system=recorder.in_system / done, mean_steps_waiting=recorder.in_queue / done, notes=tuple(notes))
