"""The pool of blocks as a scheduler sees it: what is free, what a prefix lookup can still find, what goes first.

Blocks are counted, not named. A block without a hash is like any other; a block with one is remembered by what it holds, and
neighbours that are taken, freed and forgotten together are one :class:`Run`. That is what makes a long simulation cheap.
"""

from __future__ import annotations


class Run:
    """Hashed blocks ``lo`` to ``hi`` (exclusive) of one text in one group, held by ``refs`` requests.

    ``shelf`` is where a lookup finds it: a dict of lists by block index (then the run is one block long) or, for text that
    only one request has, that request's own list; None once nobody can ask for it again.
    """

    __slots__ = ("lo", "hi", "refs", "shelf", "before", "after")

    def __init__(self, lo: int, hi: int, shelf=None, refs: int = 1):
        self.lo, self.hi, self.refs, self.shelf = lo, hi, refs, shelf
        self.before = self.after = None


class Pool:
    """``usable`` blocks (the null block is not among them): plain free ones, hashed free ones in a queue, and those taken.

    Plain free blocks are used first; then the hashed ones, longest free first, each run from its end. Being used again is the
    only way in which a free block is forgotten.
    """

    __slots__ = ("usable", "plain", "queued", "cached", "changes", "queue")

    def __init__(self, usable: int):
        self.usable = usable
        self.plain = usable  # free, without a hash
        self.queued = 0  # free, with one
        self.cached = 0  # with a hash, free or taken
        self.changes = 0  # rises whenever a lookup or an allocation could come out differently
        self.queue = Run(0, 0)  # both ends of the ring of free runs
        self.queue.before = self.queue.after = self.queue

    @property
    def free(self) -> int:
        return self.plain + self.queued

    @property
    def used(self) -> int:
        return self.usable - self.plain - self.queued

    def take(self, blocks: int) -> None:
        """Take that many free blocks, which must be there."""
        self.changes += 1
        if blocks <= self.plain:
            self.plain -= blocks
            return
        blocks -= self.plain
        self.plain = 0
        self.queued -= blocks
        self.cached -= blocks
        ring = self.queue
        while blocks:
            run = ring.after
            size = run.hi - run.lo
            if size > blocks:
                run.hi -= blocks
                return
            blocks -= size
            self._unlink(run)
            self._forget(run)

    def give_back(self, run: Run) -> None:
        """One holder lets go of a hashed run; the last one puts it at the end of the queue."""
        run.refs -= 1
        if not run.refs:
            ring = self.queue
            last = ring.before
            run.before, run.after = last, ring
            last.after = ring.before = run
            self.queued += run.hi - run.lo
        self.changes += 1

    def touch(self, run: Run, lo: int, hi: int) -> Run:
        """Hold blocks ``lo`` to ``hi`` of a run that a lookup found; returns the run of just those."""
        self.changes += 1
        if run.refs:
            run.refs += 1
            return run
        self.queued -= hi - lo
        if lo == run.lo and hi == run.hi:
            self._unlink(run)
            run.refs = 1
            return run
        held = Run(lo, hi, run.shelf)
        run.shelf.insert(run.shelf.index(run), held)
        if lo == run.lo:
            run.lo = hi
        elif hi == run.hi:
            run.hi = lo
        else:  # both ends stay behind, the later blocks first in the queue
            left = Run(run.lo, lo, run.shelf, 0)
            run.shelf.insert(run.shelf.index(run), left)
            run.lo = hi
            left.before, left.after = run, run.after
            run.after.before = left
            run.after = left
        return held

    @staticmethod
    def _unlink(run: Run) -> None:
        run.before.after, run.after.before = run.after, run.before
        run.before = run.after = None

    @staticmethod
    def _forget(run: Run) -> None:
        shelf = run.shelf
        if shelf.__class__ is dict:
            same = shelf[run.lo]
            if len(same) == 1:
                del shelf[run.lo]
            else:
                same.remove(run)
        elif shelf is not None:
            shelf.remove(run)
