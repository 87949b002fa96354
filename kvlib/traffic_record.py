"""What a simulated run leaves behind: a value for each step and request, or their sums alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from .traffic_requests import Arrivals
from .traffic_scheduler import Request, Scheduler

COLUMNS = ("running", "waiting", "preempted", "tokens", "used", "cached", "hit")
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


class Recorder:
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

    def summary(self, scheduler: Scheduler, arrivals: Arrivals, steps: int, outcome: str, reason: str, num_gpu_blocks: int,
                needed: int, notes) -> Run:
        """The run so far."""
        busy, done = max(1, self.busy), max(1, self.finished)
        if arrivals.cut:
            notes = (*notes, f"{arrivals.cut:,} of {arrivals.count:,} outputs are cut short where prompt and output reach max_model_len")
        return Run(
            outcome=outcome, reason=reason, steps=steps, finished=self.finished, preemptions=scheduler.preemptions,
            num_gpu_blocks=num_gpu_blocks, blocks_per_request=needed, max_model_len=scheduler.settings.max_model_len,
            series=self.columns if self.full else {}, requests=self.per_request(), preemption_events=self.events,
            preempted_requests=self.preempted, cut=arrivals.cut, scheduled_tokens=self.tokens, hit_tokens=self.hits,
            prompt_tokens=self.prompts, output_tokens=self.outputs, peak_used=self.peak_used,
            peak_running=self.peak_running, busy_steps=self.busy, mean_used=self.sum_used / busy,
            mean_running=self.sum_running / busy, mean_waiting=self.sum_waiting / busy,
            mean_steps_in_system=self.in_system / done, mean_steps_waiting=self.in_queue / done, notes=tuple(notes))
