"""Decoding requests that only repeat themselves, kept by the beat on which they do.

In a model of full attention and windows with one block size, a request that decodes text of its own takes one block a group every
``block`` steps and gives one window block back as often. Which of the ``block`` beats it falls on is all there is to know, so a
step costs a count, however many decode; a request's own figures are worked out again only when it ends, waits or must make room,
and window blocks are given back one by one as long as some of them have a hash.
"""

from __future__ import annotations

from .traffic_groups import FullGroup, WindowGroup
from .traffic_pool import Pool
from .units import cdiv


class Beats:
    """The requests on each beat: those of beat ``p`` take their blocks in the steps ``t`` with ``t % block == p``."""

    def __init__(self, groups, pool: Pool, lag: int, caching: bool):
        self.groups, self.pool, self.lag, self.caching = groups, pool, lag, caching
        self.block = groups[0].block
        self.on: list[dict] = [{} for _ in range(self.block)]
        self.windows = [group for group in groups if type(group) is WindowGroup]
        self.leaves = [(group.reach - 1 + lag) % self.block for group in self.windows]  # beats after taking, block by block
        self.by_hand: set = set()  # with window blocks that have a hash, or a window that is not full yet
        self.hashed = len(groups) - len(self.windows) if caching else 0  # blocks that one filled block gives a hash to

    @staticmethod
    def suit(groups) -> bool:
        """Can the requests of these groups be kept by the beat?"""
        return len({group.block for group in groups}) == 1 and all(
            type(group) is FullGroup or type(group) is WindowGroup and group.keep_every == 0 for group in groups)

    def join(self, request, computed: int) -> bool:
        """Take the request in, unless it has shared text to hash, more to give back at once, or more hashed than its beat says."""
        at = computed // self.block
        for group, held in zip(self.groups, request.held):
            if type(group) is FullGroup:
                if request.shared[group.index] > at or self.caching and held.seen > (computed - self.lag) // self.block:
                    return False
            elif held.lo < group.out_of_view(computed - 1 - self.lag):
                return False
        request.beat = self.on[-request.base % self.block]
        request.beat[request] = None
        if self.windows:
            self.by_hand.add(request)
        return True

    def give(self, request, window: int, t: int) -> None:
        """Let one request give back what leaves its window in step ``t``, hashed or not, as long as that may be hashed."""
        group, computed = self.windows[window], request.base + t
        held = request.held[group.index]
        held.hi = cdiv(computed, self.block)
        group.release(held, computed - self.lag, self.pool)
        if not any(held.runs or not held.lo for held in (request.held[group.index] for group in self.windows)):
            self.by_hand.discard(request)

    def leave(self, request, computed: int) -> None:
        """Let it go again, with its figures as they are once ``computed`` tokens are scheduled."""
        self.catch_up(request, computed)
        del request.beat[request]
        request.beat = None
        self.by_hand.discard(request)

    def catch_up(self, request, computed: int) -> None:
        """What it holds and what of it has a hash, once ``computed`` tokens are scheduled."""
        block, pool = self.block, self.pool
        full = (computed - self.lag) // block
        for group, held in zip(self.groups, request.held):
            held.hi = cdiv(computed, block)
            if type(group) is WindowGroup:
                held.lo = max(held.lo, group.out_of_view(computed - 1 - self.lag))  # it may have given back before it failed
            elif self.caching and full > held.seen:
                pool.cached -= full - held.seen  # these were counted when they filled up
                group._hash(held, request, held.seen, full, pool)
            held.seen = full

    def moves(self, t: int) -> bool:
        """Does anybody here take or give a block in step ``t``?"""
        on, block = self.on, self.block
        return bool(on[t % block]) or any(on[(t - after) % block] for after in self.leaves)

    def taking(self, t: int) -> dict:
        """Who takes a block in every group in step ``t``."""
        return self.on[t % self.block]

    def giving(self, t: int) -> list[dict]:
        """Who gives a window block back in step ``t``, by window group."""
        return [self.on[(t - after) % self.block] for after in self.leaves]

    def next_event(self, t: int) -> int:
        """The next step after ``t`` in which anybody here does something."""
        on, block = self.on, self.block
        ahead = (0,) + (() if self.lag or not self.hashed else (1,))
        beats = {-after % block for after in ahead} | {after % block for after in self.leaves}
        for step in range(t + 1, t + block + 1):
            if any(on[(step - after) % block] for after in beats):
                return step
        return 1 << 60
