"""One scheduler step after another: who runs, who waits, who is thrown out; and the many steps in which nothing changes, skipped.

Read from vLLM's scheduler, 0.28 to 0.33, and checked against runs of it. A request that decodes takes one token a step and, most
of the time, changes nothing else; it is visited only in the steps in which a block is taken, given back or hashed. Everyone else
(prefilling, waiting, cut short by the token budget) is looked at in every step, as vLLM does.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from .traffic_beats import Beats
from .traffic_groups import NEVER, FullGroup, Held, StateGroup, checkpoint_fits
from .traffic_pool import Pool

STALL_STEPS = 50  # steps in which nothing at all could be scheduled: it will not change by waiting
WAITING, ACTIVE, STEADY, LAST = range(4)  # LAST: its last token is under way; it holds its blocks until that is read


class Settings(NamedTuple):
    """The numbers of a launch that the scheduler goes by, in tokens, sequences and blocks."""

    groups: tuple[FullGroup, ...]
    usable_blocks: int  # the null block is not among them
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    caching: bool
    lag: int  # 1: a step is scheduled before the token of the step before it is read
    align: int  # tokens at which hits fall
    long_prefill_token_threshold: int = 0
    threshold_spares_single: bool = True
    scheduler_reserve_full_isl: bool = True
    watermark_blocks: int = 0
    state_block: int = 0  # 0: no state is kept for prefixes
    cut_at_known: bool = False  # before 0.32: a state prompt of whole blocks is cut at its end, not a token before


class Request:
    """One request under way. ``n`` tokens are known (one in flight counts), ``c`` of them computed, ``total`` is where it ends."""

    __slots__ = ("row", "arrival", "prompt", "total", "prefix", "shared", "streams", "own", "held", "n", "c", "order", "state",
                 "base", "visit", "beat", "end", "last", "chunk", "token_at", "junction", "preempted", "first")

    def __init__(self, row: int, arrival: int, prompt: int, total: int, prefix, shared, streams, own):
        self.row, self.arrival, self.prompt, self.total = row, arrival, prompt, total
        self.prefix, self.shared, self.streams, self.own = prefix, shared, streams, own
        self.held: list[Held] = []
        self.n, self.c, self.state, self.beat = prompt, 0, WAITING, None
        self.order = self.base = self.chunk = self.junction = self.preempted = 0
        self.visit = self.end = self.last = self.token_at = self.first = -1


class Scheduler:
    """The running list, the waiting queue and the pool; ``step`` is one turn of vLLM's loop."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.groups = settings.groups
        self.pool = Pool(settings.usable_blocks)
        self.running: dict[Request, None] = {}  # in order of admission
        self.waiting: deque[Request] = deque()
        self.active: list[Request] = []  # running and looked at in every step, in order of admission
        self.steady = 0  # running and decoding, one token each
        self.visits: dict[int, list[Request]] = {}  # by step: decoding requests that change something then
        self.ends: dict[int, list[Request]] = {}  # by step: decoding requests that get their last token then
        self.due: list[Request] = []  # their last token is read at the end of this turn
        self.late: list[Request] = []  # passed over with a token in flight: it is read at the end of this turn
        self.preemptions = self.admissions = 0
        self.blocked = None  # (request, state of the pool) of a head of the queue that did not fit
        self.counted: set[Request] = set()  # requests on the beat that were visited one by one in this step
        self.tokens = self.hit = 0  # of this step
        self.admitted: list[tuple[Request, int]] = []  # in this step, with the tokens found
        self.thrown_out: list[Request] = []  # in this step
        self.plain = all(type(group) is FullGroup for group in self.groups)
        self.states = [group for group in self.groups if isinstance(group, StateGroup) and group.keeps]
        kinds = {id(group.alike[0]): group.alike[0] for group in self.groups}
        self.kinds = sorted(kinds.values(), key=lambda group: type(group) is not FullGroup)
        suited = Beats.suit(self.groups)
        self.beats = Beats(self.groups, self.pool, settings.lag, settings.caching) if suited else None
        self.blank_is_a_miss = type(self.kinds[0]) is FullGroup or all(group.kind != "chunked" for group in self.groups)

    # One step

    def step(self, t: int) -> list[Request]:
        """Schedule step ``t`` and read the outputs that are due; returns the requests that finished, in order."""
        self.schedule(t)
        return self.read(t)

    def schedule(self, t: int) -> None:
        """Running requests first, in order of admission; then, unless someone was thrown out, the head of the queue."""
        settings = self.settings
        self.thrown_out, self.admitted, self.promoted, self.ended = [], [], [], []
        self.hit = 0
        for group in self.states:
            group.fresh.clear()
        visits = self.visits.pop(t, None)
        self.spent = 0
        self.starved = False
        self.counted.clear()
        beats = self.beats
        if beats is not None and beats.moves(t):
            self._run_on_the_beat(t, visits, beats.taking(t), beats.giving(t))
        elif visits or self.active:
            self._run(t, visits)
        if beats is not None and beats.hashed and not settings.lag:
            filling = beats.taking(t + 1)
            filled = len(filling)
            if self.counted:
                filled -= sum(request in filling for request in self.counted)
            self.pool.cached += beats.hashed * filled
        left = 0 if self.starved else settings.max_num_batched_tokens - self.spent - self.steady
        if self.waiting and left > 0 and not self.thrown_out:
            self._admit(t, left)
        self.tokens = self.spent + self.steady

    def read(self, t: int) -> list[Request]:
        """Read the outputs that are due at the end of turn ``t``: requests that reached their end are freed."""
        for request in self.late:
            if request.state is ACTIVE and self.settings.caching:
                self._remember(request, request.c)
        self.late = []
        ended = self.ended
        ends = self.ends.pop(t, None)
        if ends:
            ended = ended + [request for request in ends if request.end == t and request.state is STEADY]
        for request in ended:
            if request.state is STEADY:
                self.steady -= 1
                if request.beat is not None:
                    self.beats.leave(request, request.base + t + 1)
            request.state = LAST
        if len(ended) > 1:
            ended.sort(key=_order)
        for request in self.promoted:
            self._settle(request, t)
        if self.settings.lag:
            ended, self.due = self.due, ended
        for request in ended:
            if request.state is WAITING:  # thrown out with its last token in flight
                self.waiting.remove(request)
                continue
            if self.settings.lag and self.settings.caching:
                self._remember(request, request.total - 1)
            del self.running[request]
            self._free(request)
            for own in request.own:  # nobody will ask for its own text again
                if own:
                    for run in own if own.__class__ is list else [run for same in own.values() for run in same]:
                        run.shelf = None
        return ended

    # The running list

    def _run_on_the_beat(self, t: int, visits: list[Request] | None, taking, giving) -> None:
        """A step in which requests on the beat take or give: by counting where the order cannot matter, else one by one."""
        pool, beats, active = self.pool, self.beats, self.active
        groups = len(self.groups)
        takes, others = groups * len(taking), 2 * groups * len(visits or ())
        if active:
            budget = self.settings.max_num_batched_tokens
            behind = self._steady_behind(active[0])
            most = sum(min(request.n - request.c, budget) // beats.block + 2 for request in active) * groups
        else:
            behind = most = 0
        if behind or takes + others + most > pool.plain + pool.queued:
            self.counted.update(taking, *giving)
            for request in self.counted:
                beats.catch_up(request, request.base + t)
            self._run(t, visits, self.counted)
            return
        by_hand = beats.by_hand and [(request.order, window, request) for window, part in enumerate(giving) for request in part
                                     if request in beats.by_hand]
        if not beats.windows or takes + others <= pool.plain and not (by_hand and visits):
            if takes:
                pool.take(takes)
            gives = sum(map(len, giving)) - len(by_hand)
            if gives:
                pool.plain += gives
                pool.changes += 1
            if by_hand:
                by_hand.sort(key=_event)
                for _, window, request in by_hand:
                    beats.give(request, window, t)
            if self.settings.lag:
                pool.cached += beats.hashed * len(taking)
            if visits or active:
                self._run(t, visits)
            return
        if self.settings.lag:
            pool.cached += beats.hashed * len(taking)
        events = [(request.order, groups, request) for request in taking]
        for window, part in enumerate(giving):
            events += [(request.order, window, request) for request in part]
        if visits:
            events += [(request.order, groups + 1, request) for request in visits if request.visit == t and request.state is STEADY]
        events.sort(key=_event)
        for _, what, request in events:
            if what == groups:
                pool.take(groups)
            elif what > groups:
                self._run(t, [request], alone=True)
            elif request in beats.by_hand:
                beats.give(request, what, t)
            else:
                pool.plain += 1
        pool.changes += 1
        if active:
            self._run(t, None)

    def _run(self, t: int, visits: list[Request] | None, beating=(), alone: bool = False) -> None:
        """Visit requests in order: those due, all active ones unless ``alone``, and those ``beating`` that must be asked."""
        todo = [request for request in visits if request.visit == t and request.state is STEADY] if visits else []
        todo += beating
        if self.active and not alone:
            todo += self.active
        if len(todo) > 1:
            todo.sort(key=_order)
        lag, budget = self.settings.lag, self.settings.max_num_batched_tokens
        for request in todo:
            if request.state is STEADY:
                if request.beat is not None:
                    computed = request.base + t
                    if not self._extend(request, computed, 1, computed - lag, computed + 1 - lag, t):
                        return
                    continue
                if request.visit != t:
                    continue
                computed = request.base + t
                if not self._extend(request, computed, 1, computed - lag, computed + 1 - lag, t):
                    return
                self._next_visit(request, computed + 1)
                if request.beat is not None:
                    self.counted.add(request)
            elif request.state is ACTIVE:
                room = budget - self.spent - self.steady + self._steady_behind(request)
                if room <= 0:
                    if lag and request.token_at == t - 1:
                        self.late.append(request)
                    self._starve(request, t)
                    return
                chunk = self._chunk(request, request.c, request.n - request.c, room)
                if chunk <= 0:
                    continue
                flying = request.chunk if lag and request.last == t - 1 else 0
                known = request.n - (lag and request.token_at == t - 1)
                if not self._extend(request, request.c, chunk, request.c - flying, known, t):
                    return
                self._scheduled(request, chunk, t)
                if chunk == room:
                    self._starve(request, t)
                    return

    def _chunk(self, request: Request, start: int, wanted: int, room: int) -> int:
        """Tokens a prefill gets in this step, from ``start`` on."""
        settings = self.settings
        threshold = settings.long_prefill_token_threshold
        if 0 < threshold < wanted and not (settings.threshold_spares_single and len(self.running) + len(self.waiting) == 1):
            wanted = threshold
        chunk = min(wanted, room)
        return self._clip(request, start, chunk) if settings.state_block else chunk

    def _extend(self, request: Request, start: int, chunk: int, read: int, known: int, t: int) -> bool:
        """Give a running request room for its next ``chunk`` tokens, throwing out the newest while that fails.

        ``read`` tokens are computed and read, ``known`` may get a hash. False if the request itself was thrown out.
        """
        pool, end = self.pool, start + chunk
        prefill_end = max(request.prompt, known - 1)
        while True:
            need = 0
            for group, held in zip(self.groups, request.held):
                group.release(held, read, pool)
                need += group.need(held, end, start, prefill_end)
            if need <= pool.plain + pool.queued:
                break
            newest = next(reversed(self.running))
            self._throw_out(newest, t)
            if newest is request:
                return False
        if need:
            pool.take(need)
            for group, held in zip(self.groups, request.held):
                group.grow(held, end)
        elif self.states:
            for group, held in zip(self.groups, request.held):
                group.grow(held, end)
        if self.settings.caching:
            self._remember(request, end if end < known else known)
        return True

    def _remember(self, request: Request, tokens: int) -> None:
        if len(self.groups) > 1:
            tokens -= tokens % self.settings.align
        for group, held in zip(self.groups, request.held):
            group.remember(held, request, tokens, self.pool)

    def _scheduled(self, request: Request, chunk: int, t: int) -> None:
        """Count the chunk of an active request; it may have brought a token, and that may have been the last."""
        self.spent += chunk
        request.c += chunk
        request.last, request.chunk = t, chunk
        if request.c < request.n:
            return
        request.n += 1
        request.token_at = t
        if request.n == request.total:
            self.active.remove(request)
            self.ended.append(request)
        elif chunk == 1 or not self.settings.lag:  # else what is given back next still hangs on the chunk just scheduled
            self.promoted.append(request)

    def _settle(self, request: Request, t: int) -> None:
        """From the next step on this request decodes, one token a step."""
        if request.state is not ACTIVE:
            return
        self.active.remove(request)
        request.state = STEADY
        self.steady += 1
        request.base = request.c - t - 1
        request.end = request.total - 2 - request.base
        self.ends.setdefault(request.end, []).append(request)
        self._next_visit(request, request.c)

    def _next_visit(self, request: Request, computed: int) -> None:
        """Note the next step in which this decoding request changes anything, or let it fall in with the beat."""
        if self.beats is not None and self.beats.join(request, computed):
            request.visit = -1
            return
        lag, caching = self.settings.lag, self.settings.caching
        change = NEVER
        for group, held in zip(self.groups, request.held):
            found = group.next_change(held, computed, lag, caching)
            if found < change:
                change = found
        request.visit = visit = change - request.base
        if visit <= request.end:
            self.visits.setdefault(visit, []).append(request)

    def _steady_behind(self, request: Request) -> int:
        """Decoding requests that come after this one in the running list."""
        count = 0
        for other in reversed(self.running):
            if other is request:
                break
            count += other.state is STEADY
        return count

    def _starve(self, request: Request, t: int) -> None:
        """The token budget ended at this request: those behind it get nothing in this step."""
        self.starved = True
        behind = []
        for other in reversed(self.running):
            if other is request:
                break
            behind.append(other)
        moved = False
        for other in behind:
            if other.state is STEADY:
                self.steady -= 1
                other.c = other.base + t
                if other.beat is not None:
                    self.beats.leave(other, other.c)
                other.n = other.c + 1
                other.last = other.token_at = t - 1
                other.chunk = 1
                other.state, other.end, other.visit = ACTIVE, -1, -1
                self.active.append(other)
                moved = True
            if self.settings.lag and other.state is ACTIVE and other.token_at == t - 1:
                self.late.append(other)
        if moved:
            self.active.sort(key=_order)

    def _throw_out(self, request: Request, t: int) -> None:
        """Preempt: all blocks go back, the request goes to the front of the queue and will compute everything again."""
        del self.running[request]
        if request.state is STEADY:
            self.steady -= 1
            request.n = request.base + t + 1
            if request.beat is not None:
                self.beats.leave(request, request.base + t)
        elif request.state is ACTIVE:
            self.active.remove(request)
        request.state, request.end, request.visit = WAITING, -1, -1
        request.c = 0
        self._free(request)
        request.preempted += 1
        self.preemptions += 1
        self.thrown_out.append(request)
        self.waiting.appendleft(request)

    def _free(self, request: Request) -> None:
        for group, held in zip(self.groups, request.held):
            group.free(held, self.pool)
        request.held = []

    # The waiting queue

    def _admit(self, t: int, left: int) -> None:
        """Admit from the head of the queue until one does not fit; nothing behind it is tried."""
        settings, pool, waiting, running = self.settings, self.pool, self.waiting, self.running
        caching = settings.caching
        while waiting and left > 0 and len(running) < settings.max_num_seqs:
            request = waiting[0]
            if self.blocked is not None and self.blocked[0] is request and self.blocked[1] == pool.changes:
                return
            self.blocked = None
            hit, request.junction = self._lookup(request, request.n - 1) if caching else (0, 0)
            chunk = self._chunk(request, hit, request.n - hit, left)
            if chunk <= 0:
                return
            pieces = [group.pieces(request, hit) for group in self.groups] if hit else None
            fits = self._fits(request, hit, chunk, pieces)
            if not fits:
                if fits is None:
                    self.blocked = request, pool.changes
                return
            waiting.popleft()
            self._place(request, hit, chunk, pieces)
            self.admissions += 1
            request.order = self.admissions
            running[request] = None
            request.state = ACTIVE
            request.c = hit
            self.active.append(request)
            if request.first < 0:
                request.first = t
            self.hit += hit
            self.admitted.append((request, hit))
            left -= chunk
            self._scheduled(request, chunk, t)

    def _fits(self, request: Request, hit: int, chunk: int, pieces) -> bool | None:
        """May this request come in? False: not now; None: not before the pool changes."""
        settings, pool = self.settings, self.pool
        free = pool.plain + pool.queued
        if self.running:
            free -= settings.watermark_blocks
        if pieces:
            for group in self.states:
                if group.put_off(request, hit):
                    return False
            free -= sum(end - at for part in pieces for run, at, end in part if not run.refs)
        prefill_end = max(request.prompt, request.n - 1)
        if settings.scheduler_reserve_full_isl:
            if sum(group.admission_need(request.n, hit, prefill_end, True) for group in self.groups) > free:
                return None
            if self.plain:
                return True
        if sum(group.admission_need(hit + chunk, hit, prefill_end, False) for group in self.groups) > free:
            return False
        return True

    def _place(self, request: Request, hit: int, chunk: int, pieces) -> None:
        """Hold what was found, take the blocks of the first chunk, and hash what it fills."""
        pool, end = self.pool, hit + chunk
        request.held = [Held() for _ in self.groups]
        if hit:
            for group, held, part in zip(self.groups, request.held, pieces):
                group.hold(held, part, hit, pool)
        prefill_end = max(request.prompt, request.n - 1)
        need = 0
        for group, held in zip(self.groups, request.held):
            need += group.need(held, end, hit, prefill_end)
        if need:
            pool.take(need)
        for group, held in zip(self.groups, request.held):
            group.grow(held, end)
        if self.settings.caching:
            self._remember(request, end)

    def _lookup(self, request: Request, limit: int) -> tuple[int, int]:
        """Tokens found in the prefix cache, and the junction: how far full attention alone would reach, where that is more."""
        if limit < self.settings.align:
            return 0, 0
        if request.prefix is None and self.blank_is_a_miss and not any(request.own):
            return 0, 0
        kinds = self.kinds
        if len(self.groups) == 1:
            return kinds[0].longest(request, limit), 0
        hit, farthest, full = limit, 0, {}
        while True:
            reach = hit
            for kind in kinds:
                if kind.index in full:
                    reach = min(reach, full[kind.index])
                    continue
                reach = kind.longest(request, reach)
                farthest = max(farthest, reach)
                if type(kind) is FullGroup:
                    full[kind.index] = reach
            if reach >= hit:
                break
            hit = reach
            if len(kinds) == 2 and type(kinds[0]) is FullGroup:
                break
        return hit, farthest if farthest > hit else 0

    def _clip(self, request: Request, start: int, chunk: int) -> int:
        """End a prefill chunk where a state can be kept: on a block border, at the replay point, at the junction."""
        settings, block = self.settings, self.settings.state_block
        prefill_end = max(request.prompt, request.n - 1)
        if start >= prefill_end:
            return chunk
        end = start + chunk
        replay = (request.n if settings.cut_at_known else request.n - 1) // block * block
        inside = end >= prefill_end and all(
            group.checkpoint and checkpoint_fits(start, end, (prefill_end - 1) // settings.align * settings.align,
                                                 settings.align, block, group.checkpoint) for group in self.states)
        if end < prefill_end:
            most = settings.max_num_batched_tokens
            if settings.long_prefill_token_threshold:
                most = min(most, settings.long_prefill_token_threshold)
            border = end // block * block
            if border > start or block <= most:
                end = border
        stops = [] if inside else [replay]
        if start % block and not inside:
            stops.append((start // block + 1) * block)
        if start < request.junction < end:
            stops.append(start + (request.junction - start) // block * block)
        return max(0, min((stop for stop in stops if start < stop < end), default=end) - start)

    # Skipping

    def quiet_until(self, t: int) -> int:
        """The next step after ``t`` in which anything but one token a request happens, arrivals apart; ``t + 1`` if at once."""
        if t + 1 in self.visits or t + 1 in self.ends or self.active or self.due or not self.steady:
            return t + 1
        if self.waiting and len(self.running) < self.settings.max_num_seqs:
            if self.blocked is None or self.blocked[0] is not self.waiting[0] or self.blocked[1] != self.pool.changes:
                return t + 1
        quiet = min(min(self.visits, default=NEVER), min(self.ends, default=NEVER))
        return min(quiet, self.beats.next_event(t)) if self.beats else quiet


def _order(request: Request) -> int:
    return request.order


def _event(event: tuple) -> tuple:
    return event[:2]
