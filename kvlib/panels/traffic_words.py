"""Sentences on a simulated run."""

from __future__ import annotations

from kvlib.tables import html, mark
from kvlib.traffic import StepTime


def times(count: int, one: str, many: str, none: str) -> str:
    """A count in words.

    >>> times(1, "throw-out", "throw-outs", "none"), times(0, "throw-out", "throw-outs", "none")
    ('1 throw-out', 'none')
    """
    return none if not count else f"{count:,} {one if count == 1 else many}"


def per_minute(run, time: StepTime) -> str:
    """Preemptions a minute, to two figures."""
    value = time.preemptions_per_minute(run)
    return f"{value:.2g} a minute" if value < 10 else f"{value:,.0f} a minute"


def headline(run, seconds: float) -> str:
    """What comes after "it": whether and how often it preempts.

    >>> from kvlib.panels.traffic_facts import DOCUMENTS, QUARTER, run_of
    >>> headline(run_of(DOCUMENTS, 0.25, QUARTER, 48, 2048), 0.2)
    'does not preempt'
    """
    if not run.preemptions:
        return "does not preempt"
    return html("preempts about {}", mark(per_minute(run, StepTime(seconds)), "assumed"))


def held_back(run, found, s, running: float, waiting: float, knee: float) -> str:
    """What limits it, and what a reader may do."""
    full = f"{run.peak_used / run.usable_blocks:.0%}"
    if waiting < 1 and not run.preemptions:
        return f"Hardly anybody waits: {running:,.0f} run on average, and the pool is at most {full} full."
    queue = f"{waiting:,.0f} wait on average" if waiting >= 1 else "hardly anybody waits"
    if running >= 0.95 * s.max_num_seqs:
        return f"But max_num_seqs {s.max_num_seqs:,} holds requests back: {queue}, and the pool is at most {full} full."
    if s.a_minute > knee and found.limit == "pool":
        return (f"From about {knee:,.0f} a minute on the pool is used up and a queue grows, whatever max_num_seqs is ({queue}): a larger "
                "pool (an FP8 cache makes one), or another server.")
    if s.a_minute > knee and found.limit == "tokens":
        return (f"From about {knee:,.0f} a minute on the token budget of a step is used up ({queue}): raise max_num_batched_tokens, and "
                "measure the step again.")
    return f"Bursts are too much for a moment ({queue}, pool at most {full} full); below {knee:,.0f} a minute a smaller max_num_seqs lasts."
