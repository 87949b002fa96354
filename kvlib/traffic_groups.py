"""How many blocks a request holds in each kind of group as its tokens are scheduled, and what of them can be found again.

One class per kind: everything seen (full and latent attention), a window, a chunk, a recurrent state. Each answers the same
questions: what falls out of view, what a step must take, what gets a hash, how long a prefix it can serve, and when a decoding
request will next change anything. Read from vLLM's kv-cache managers, 0.28 to 0.33.
"""

from __future__ import annotations

from .traffic_pool import Pool, Run
from .units import cdiv

NEVER = 1 << 60


class Held:
    """The blocks of one request in one group: indices ``lo`` to ``hi``, some of them in hashed ``runs``.

    ``seen`` counts the blocks already considered for a hash. A state group keeps its few blocks in ``states``, as
    ``[index, run or None]``.
    """

    __slots__ = ("lo", "hi", "seen", "runs", "states", "last", "checkpoint")

    def __init__(self):
        self.lo = self.hi = self.seen = self.checkpoint = 0
        self.runs: list[Run] = []
        self.states: list[list] = []
        self.last = -1


class FullGroup:
    """Attention over everything: a block for every ``block`` tokens, kept until the request ends.

    ``align`` is the token step at which hits and hashes fall (the least common multiple of all groups' blocks); ``index`` is
    the group's place in vLLM's order; ``alike`` are the groups of equal layout, which only serve a hit together.
    """

    kind = "full"
    sparse = False  # does only a part of the blocks get a hash?

    def __init__(self, index: int, block: int):
        self.index, self.block = index, block
        self.align = block
        self.alike: list = [self]
        self.cap = NEVER  # blocks that the admission check asks for at most

    def out_of_view(self, computed: int) -> int:
        """Blocks that lie wholly behind what the next token sees."""
        return 0

    def release(self, held: Held, computed: int, pool: Pool) -> None:
        """Give back what fell out of view with ``computed`` tokens done."""
        until = min(self.out_of_view(computed), held.hi)
        gone = until - held.lo
        if gone <= 0:
            return
        pieces = []
        while held.runs and held.runs[0].lo < until:
            run = held.runs[0]
            if run.hi > until:  # only text of its own lies in runs longer than a block
                piece = Run(run.lo, until, run.shelf)
                run.shelf.insert(run.shelf.index(run), piece)
                run.lo = until
                pieces.append(piece)
                break
            pieces.append(held.runs.pop(0))
        held.lo = until
        pool.plain += gone - sum(run.hi - run.lo for run in pieces)
        for run in reversed(pieces):
            pool.give_back(run)
        pool.changes += 1

    def need(self, held: Held, end: int, start: int = 0, prefill_end: int = 0) -> int:
        """Blocks to take so that ``end`` tokens have a place."""
        return max(0, cdiv(end, self.block) - held.hi)

    def grow(self, held: Held, end: int) -> None:
        blocks = cdiv(end, self.block)
        if blocks > held.hi:
            held.hi = blocks

    def free(self, held: Held, pool: Pool) -> None:
        """Everything goes back, the end of the text first."""
        hashed = 0
        for run in reversed(held.runs):
            hashed += run.hi - run.lo
            if run.refs > 1:  # as most of a shared prefix
                run.refs -= 1
            else:
                pool.give_back(run)
        pool.plain += held.hi - held.lo - hashed
        pool.changes += 1

    # What can be found again

    def remember(self, held: Held, request, tokens: int, pool: Pool) -> None:
        """Give a hash to the full blocks among the first ``tokens``."""
        first, until = max(held.seen, held.lo), tokens // self.block
        if until <= held.seen:
            return
        held.seen = until
        self._hash(held, request, first, until, pool)

    def _hash(self, held: Held, request, first: int, until: int, pool: Pool) -> None:
        """Hash the blocks ``first`` to ``until``: shared text block by block, text of its own as one run."""
        index = self.index
        pool.changes += 1
        shared = request.shared[index]
        if first < shared:
            shelf = request.streams[index]
            for at in range(first, min(shared, until)):
                run = Run(at, at + 1, shelf)
                shelf.setdefault(at, []).append(run)
                held.runs.append(run)
            pool.cached += min(shared, until) - first
            first = shared
        if first >= until:
            return
        pool.cached += until - first
        own = request.own[index]
        if own is None:
            own = request.own[index] = []
        if own and held.runs and own[-1] is held.runs[-1] and own[-1].hi == first:
            own[-1].hi = until
        else:
            run = Run(first, until, own)
            own.append(run)
            held.runs.append(run)

    def longest(self, request, limit: int) -> int:
        """Tokens, up to ``limit``, that all the groups alike can serve from the start."""
        blocks = limit // self.block
        at = self._unbroken(request, 0, blocks)
        return at * self.block // self.align * self.align

    def _unbroken(self, request, at: int, until: int) -> int:
        """How far from block ``at`` every block is there, in all the groups alike."""
        shared = min(request.shared[self.index], until)
        if at < shared:
            shelves = [request.streams[group.index] for group in self.alike]
            if len(shelves) == 1:
                shelf = shelves[0]
                while at < shared and at in shelf:
                    at += 1
            else:
                while at < shared and all(at in shelf for shelf in shelves):
                    at += 1
            if at < shared:
                return at
        if at < until:
            return min(_covered(request.own[group.index], at, until) for group in self.alike)
        return at

    def pieces(self, request, hit: int) -> list[tuple[Run, int, int]]:
        """The runs, with the part of each, that a hit of ``hit`` tokens holds in this group."""
        at, until = self.out_of_view(hit), hit // self.block
        shared = min(request.shared[self.index], until)
        found = []
        if at < shared:
            shelf = request.streams[self.index]
            found = [(shelf[i][0], i, i + 1) for i in range(at, shared)]
            at = shared
        own = request.own[self.index]
        while at < until:
            end = until
            for run in own:  # the first one that has the block; an earlier one that begins further on cuts it short
                if run.lo <= at < run.hi:
                    end = min(end, run.hi)
                    break
                if run.lo > at:
                    end = min(end, run.lo)
            found.append((run, at, end))
            at = end
        return found

    def hold(self, held: Held, pieces, hit: int, pool: Pool) -> None:
        """Take over what a lookup found."""
        held.lo = self.out_of_view(hit)
        held.hi = held.seen = max(hit // self.block, held.lo)
        for run, at, end in pieces:
            if run.refs:
                run.refs += 1
            else:
                run = pool.touch(run, at, end)
            held.runs.append(run)

    def admission_need(self, tokens: int, hit: int, prefill_end: int, capped: bool) -> int:
        """New blocks for the first ``tokens`` of a request that found ``hit`` of them."""
        required = cdiv(tokens, self.block)
        if capped:
            required = min(required, self.cap)
        return max(0, required - max(self.out_of_view(hit), hit // self.block))

    def next_change(self, held: Held, computed: int, lag: int, caching: bool) -> int:
        """The number of computed tokens, at least ``computed``, at which a decoding step next does something here.

        ``lag`` is 1 where a step is scheduled before the last one's token is known.
        """
        grows = held.hi * self.block
        if not caching or lag and self.align == self.block:
            return grows
        fills = (computed + 1 - lag + self.align - 1) // self.align * self.align - 1 + lag
        return grows if grows < fills else fills


def _covered(own, at: int, until: int) -> int:
    """How far from block ``at`` the runs in ``own`` reach without a gap."""
    while at < until and own:
        for run in own:
            if run.lo <= at < run.hi:
                at = run.hi
                break
        else:
            return at
    return min(at, until)


class ChunkGroup(FullGroup):
    """Attention inside chunks of ``reach`` tokens: what lies before the current chunk is given back."""

    kind = "chunked"

    def __init__(self, index: int, block: int, reach: int, cap: int):
        super().__init__(index, block)
        self.reach, self.cap = reach, cap

    def out_of_view(self, computed: int) -> int:
        return computed // self.reach * self.reach // self.block

    def longest(self, request, limit: int) -> int:
        return self._unbroken(request, self.out_of_view(limit), limit // self.block) * self.block

    def next_change(self, held: Held, computed: int, lag: int, caching: bool) -> int:
        leaves = cdiv((held.lo + 1) * self.block, self.reach) * self.reach + lag
        return min(super().next_change(held, computed, lag, caching), max(leaves, computed))


class WindowGroup(FullGroup):
    """Attention over the last ``reach`` tokens.

    Unless ``keep_every`` is None, only the blocks get a hash that end at a place where another request can go on: the last
    border before the prompt's end, and the junction with a longer prefix that full attention still has (and, where
    ``keep_every`` is not 0, one border in so many tokens).
    """

    kind = "sliding"

    def __init__(self, index: int, block: int, reach: int, cap: int, keep_every: int | None = 0):
        super().__init__(index, block)
        self.reach, self.cap, self.keep_every = reach, cap, keep_every
        self.run = cdiv(reach - 1, block)  # blocks that a hit needs
        self.sparse = True

    def out_of_view(self, computed: int) -> int:
        behind = computed - self.reach + 1
        return behind // self.block if behind > 0 else 0

    def remember(self, held: Held, request, tokens: int, pool: Pool) -> None:
        seen, until = held.seen, tokens // self.block
        if until <= seen:
            return
        held.seen = until
        first = max(seen, held.lo)
        step = self.align if self.keep_every is None else self.keep_every
        if step and self.run >= step // self.block:
            kept = range(first, until)
        else:
            kept = set()
            if step:
                each = step // self.block
                kept.update(at for at in range(first, until) if at % each >= each - self.run)
            if self.keep_every is not None:
                for place in (request.prompt - 1, request.junction):
                    end = place // self.align * self.align // self.block
                    kept.update(range(max(first, end - self.run), min(until, end)))
            kept = sorted(kept)
        for at in kept:
            _put(held.runs, request, self.index, at, pool)

    def longest(self, request, limit: int) -> int:
        blocks, near = limit // self.block, 0
        for at in range(blocks - 1, -1, -1):
            if _all_have(self.alike, request, at):
                if not near and (at + 1) * self.block % self.align:
                    continue
                near += 1
                if near >= self.run:
                    return (at + near) * self.block
            else:
                near = 0
        return near * self.block // self.align * self.align

    def pieces(self, request, hit: int) -> list[tuple[Run, int, int]]:
        return [(_shelf(request, self.index, at)[at][0], at, at + 1)
                for at in range(self.out_of_view(hit), hit // self.block)]

    def next_change(self, held: Held, computed: int, lag: int, caching: bool) -> int:
        change = held.hi * self.block
        leaves = (held.lo + 1) * self.block + self.reach - 1 + lag
        if leaves < change:
            change = leaves if leaves > computed else computed
        if caching and self.keep_every != 0:
            change = min(change, FullGroup.next_change(self, held, computed, lag, caching))
        return change


class StateGroup(FullGroup):
    """A recurrent state: one block, and a second one in the step that carries it over a block border.

    ``keeps`` says whether prefixes are cached. ``checkpoint`` > 0 where the kernel can write the state at the replay point on
    its way, at multiples of so many tokens. ``sticky`` and ``gaps`` are the ways of single releases (0.32; before 0.30).
    """

    kind = "state"

    def __init__(self, index: int, block: int, keeps: bool, keep_every: int | None = 0, checkpoint: int = 0,
                 sticky: bool = False, gaps: bool = False):
        super().__init__(index, block)
        self.keeps, self.keep_every, self.checkpoint = keeps, keep_every, checkpoint
        self.sticky, self.gaps = sticky, gaps
        self.sparse = True
        self.fresh: set = set()  # states that this very step caches: nobody may start from them yet

    def release(self, held: Held, computed: int, pool: Pool) -> None:
        states = held.states
        if not self.keeps or computed < 1 or not states:
            return
        behind = min((computed - 1) // self.block, held.hi)
        if states[0][0] >= behind:
            return
        if self.gaps:
            gone = self._contiguous(states, behind)
            if 0 <= held.last < behind:
                gone += [state for state in states if state[0] == held.last and state not in gone]
        else:
            gone = [state for state in reversed(states) if state[0] < behind]
        for state in gone:
            states.remove(state)
            if state[1] is None:
                pool.plain += 1
            else:
                pool.give_back(state[1])
        pool.changes += 1

    @staticmethod
    def _contiguous(states: list, behind: int) -> list:
        """The unbroken row of blocks that ends just below ``behind``: all that was given back before 0.30."""
        gone, at = [], behind - 1
        for state in reversed(states):
            if state[0] > at:
                continue
            if state[0] != at:
                break
            gone.append(state)
            at -= 1
        return gone

    def need(self, held: Held, end: int, start: int = 0, prefill_end: int = 0) -> int:
        if not self.keeps:
            return super().need(held, end)
        held.checkpoint = self._checkpoint(held, start, end, prefill_end)
        more = cdiv(end, self.block) - held.hi
        return min(more, 1 + (held.checkpoint > 0)) if more > 0 else 0

    def _checkpoint(self, held: Held | None, start: int, end: int, prefill_end: int) -> int:
        """The position of a state that the kernel writes inside this chunk, or 0."""
        if not self.checkpoint or end < (prefill_end if self.keep_every == 0 else 0):
            return 0
        place, column = (end - 1) // self.align * self.align, cdiv(end, self.block) - 2
        if column < 0 or not checkpoint_fits(start, end, place, self.align, self.block, self.checkpoint):
            return 0
        taken = held is not None and column < held.hi and any(at == column for at, _ in held.states)
        return 0 if taken else place

    def grow(self, held: Held, end: int) -> None:
        if not self.keeps:
            super().grow(held, end)
            return
        blocks = cdiv(end, self.block)
        if blocks <= held.hi:
            return
        held.last = held.hi - 1
        if held.checkpoint and blocks - 2 >= held.hi:
            held.states.append([blocks - 2, None])
        held.states.append([blocks - 1, None])
        held.hi = blocks

    def free(self, held: Held, pool: Pool) -> None:
        if not self.keeps:
            super().free(held, pool)
            return
        for _, run in reversed(held.states):
            if run is None:
                pool.plain += 1
            else:
                pool.give_back(run)
        pool.changes += 1

    def remember(self, held: Held, request, tokens: int, pool: Pool) -> None:
        replay = (request.prompt - 1) // self.align * self.align
        seen, until = held.seen, tokens // self.block
        if until > seen:
            held.seen = until
            places = (replay, request.junction // self.align * self.align)
            for state in held.states:
                at, run = state
                if run is not None or not seen <= at < until:
                    continue
                border = (at + 1) * self.block
                if self.keep_every is None or border in places or self.keep_every and border % self.keep_every == 0:
                    state[1] = _put(None, request, self.index, at, pool)
                    self.fresh.add(self._name(request, at))
        if self.sticky and tokens == replay and not held.checkpoint:
            at = tokens // self.block - 1
            if any(index == at and run is not None for index, run in held.states):
                self.fresh.add(self._name(request, at))

    def _name(self, request, at: int):
        return (at, request.prefix) if at < request.shared[self.index] else (at, None, request.row)

    def put_off(self, request, hit: int) -> bool:
        """Does the hit start from a state that another request caches in this very step?"""
        return bool(self.fresh) and self._name(request, hit // self.block - 1) in self.fresh

    def longest(self, request, limit: int) -> int:
        for at in range(limit // self.block - 1, -1, -1):
            if not (at + 1) * self.block % self.align and _all_have(self.alike, request, at):
                return (at + 1) * self.block
        return 0

    def pieces(self, request, hit: int) -> list[tuple[Run, int, int]]:
        at = hit // self.block - 1
        return [(_shelf(request, self.index, at)[at][0], at, at + 1)] if at >= 0 else []

    def hold(self, held: Held, pieces, hit: int, pool: Pool) -> None:
        held.hi = held.seen = hit // self.block
        held.states = [[at, pool.touch(run, at, end)] for run, at, end in pieces]

    def admission_need(self, tokens: int, hit: int, prefill_end: int, capped: bool) -> int:
        if not self.keeps:
            return super().admission_need(tokens, hit, prefill_end, capped)
        more = cdiv(tokens, self.block) - hit // self.block
        return min(more, 1 + (self._checkpoint(None, hit, tokens, prefill_end) > 0)) if more > 0 else 0

    def next_change(self, held: Held, computed: int, lag: int, caching: bool) -> int:
        if not self.keeps:
            return NEVER
        if len(held.states) > 1:
            return computed
        change = held.hi * self.block
        return min(change, FullGroup.next_change(self, held, computed, lag, caching)) if self.keep_every != 0 else change


def checkpoint_fits(start: int, end: int, place: int, unit: int, block: int, every: int) -> bool:
    """Can the kernel write the state at ``place`` while it computes the tokens ``start`` to ``end``?"""
    return (start % unit == 0 and cdiv(end, block) - 2 > (start - 1) // block and start + unit <= place < end
            and (place - start) % every == 0)


def _shelf(request, index: int, at: int):
    """Where block ``at`` of this request's text would be found."""
    return request.streams[index] if at < request.shared[index] else request.own[index]


def _all_have(groups, request, at: int) -> bool:
    for group in groups:
        shelf = _shelf(request, group.index, at)
        if not shelf or at not in shelf:
            return False
    return True


def _put(runs: list | None, request, index: int, at: int, pool: Pool) -> Run:
    """Hash one block and put it where it will be found."""
    shelf = _shelf(request, index, at)
    if shelf is None:
        shelf = request.own[index] = {}
    run = Run(at, at + 1, shelf)
    shelf.setdefault(at, []).append(run)
    if runs is not None:
        runs.append(run)
    pool.cached += 1
    pool.changes += 1
    return run
