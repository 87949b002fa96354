"""What the *your turn* cells of the first notebook say: before a launch a range, after one a comparison with the log."""

from __future__ import annotations

from kvlib.capacity import Sizing
from kvlib.errors import SizingError
from kvlib.memory import Band, MemoryBudget
from kvlib.ranges import gib_span, span
from kvlib.tables import Col, Html, Table, code, html, mark, number, strong, table
from kvlib.units import GiB

TERMS = {
    "peak_activation_bytes": "the peak of a forward pass",
    "non_torch_bytes": "memory outside PyTorch",
    "cuda_graph_bytes": "CUDA graphs",
}
FIGURES = {
    "available": "GiB for the cache", "kv_cache_tokens": "tokens in the cache", "max_concurrency": "requests at once",
    "needed": "GiB one request needs", "estimated_max_model_len": "longest length that passes",
}

UNCHECKED = Html("Not checked: kernels, graph capture, and what other programs hold.")


class Words(Html):
    """Sentences that a notebook shows as HTML."""

    def _repr_html_(self):
        return str(self)

    def __repr__(self):
        import html as _html
        import re
        return _html.unescape(re.sub(r"<[^>]+>", "", self.replace("</p><p>", "\n")))


def before_launch(low: Sizing, typical: Sizing, high: Sizing, memory: MemoryBudget, tokens_each: int) -> Words:
    """A verdict, a range, and the one figure that would settle it.

    ``low``, ``typical`` and ``high`` are what :func:`kvlib.size_range` gives for ``memory``; ``tokens_each`` is the
    length of a reader's own requests, in tokens. Raises SizingError when that is no length.
    """
    everyday = _everyday(low, high, tokens_each)
    refused = "".join(html("<p>{}.</p>", note) for note in typical.notes if note.startswith("max_model_len"))
    if not high.fits:
        return Words(refused + html("<p>{}: {}</p>", _where(low, typical, high), _failure(low, high)))
    held = html("The cache holds {}: {} of these at once in the worst case, {}.",
                strong(f"about {span(low.kv_cache_tokens, high.kv_cache_tokens)} tokens"),
                span(low.max_concurrency, high.max_concurrency), everyday)
    return Words(refused + html("<p>{}: {} {}</p><p>{} {}</p>", _where(low, typical, high), _verdict(low, typical, memory), held,
                                _settles(memory), UNCHECKED))


def _where(low: Sizing, typical: Sizing, high: Sizing) -> Html:
    card = typical.plan.setup.gpu.name if typical.plan.setup.gpu else "card of 80 GiB"
    cards = typical.engine.tensor_parallel_size * typical.engine.pipeline_parallel_size
    shortest, longest = low.max_model_len, high.max_model_len  # they differ where vLLM chooses the length
    length = f"{longest:,}" if shortest == longest else f"about {span(shortest, longest)}"
    return html("{} on {} {}, requests of up to {} tokens", typical.model.name, "one" if cards == 1 else f"{cards} ×", card, length)


def _failure(low: Sizing, high: Sizing) -> Html:
    said = html("{}: {}.", strong("fails vLLM's memory checks"), high.refusal.message)
    if high.outcome != "max_model_len" or not high.estimated_max_model_len:
        return said
    longest = span(low.estimated_max_model_len, high.estimated_max_model_len)
    return html("{} In that memory {} would pass.", said, strong(f"about {longest} tokens a request"))


def _verdict(low: Sizing, typical: Sizing, memory: MemoryBudget) -> Html:
    if low.fits:
        return html("{}.", strong("passes vLLM's memory checks"))
    bands = _bands(memory)
    assumed = gib_span(sum(band.low for band in bands.values()), sum(band.high for band in bands.values()))
    return html("{}: it passes if {} take at most {} GiB together; assumed are {}.", strong("too close to call"),
                _and([TERMS[name] for name in bands]), f"{_break_even(typical, memory):.1f}", mark(f"{assumed} GiB", "assumed"))


def log_table(explained) -> Table | Words:
    """What :func:`kvlib.explain` found in a log, as a table: each figure as printed and as recomputed."""
    if not explained.lines:
        return Words(html("<p>No figure of the cache was found in this text. Two lines are enough: {} and {}.</p>",
                          code("Available KV cache memory: …"), code("GPU KV cache size: …, Maximum concurrency …")))
    rows = [{"figure": FIGURES.get(line.name, line.name.replace("_", " ")), "printed": mark(number(line.printed), "measured"),
             "recomputed": line.recomputed, "verdict": strong(line.verdict), "why": line.reason} for line in explained.lines]
    columns = [Col(key, fmt="text") for key in ("figure", "printed", "recomputed", "verdict", "why")]
    notes = (f"{note[:1].upper()}{note[1:]}." for note in explained.notes)
    return table(rows, columns, caption=" ".join((f"All in all: {explained.verdict}.", *notes)))


def _everyday(low: Sizing, high: Sizing, tokens: int) -> Html:
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise SizingError(f"tokens_each is {tokens!r}; it must be a whole number of at least 1")
    if tokens > high.max_model_len:
        return html("none of {} tokens, which is more than the longest allowed", f"{tokens:,}")
    fit = [sizing.num_gpu_blocks / sizing.plan.blocks_per_request(tokens) for sizing in (low, high)]
    return html("{} if each takes {} tokens", strong(span(*fit)), f"{tokens:,}")


def _bands(memory: MemoryBudget) -> dict[str, Band]:
    return {name: getattr(memory, name) for name in TERMS if isinstance(getattr(memory, name), Band)}


def _break_even(typical: Sizing, memory: MemoryBudget) -> float:
    """GiB that the assumed terms may take together before one request of the longest length no longer fits."""
    return (sum(band.typical for band in _bands(memory).values()) + typical.headroom_bytes) / GiB


def _settles(memory: MemoryBudget) -> Html:
    bands = _bands(memory)
    if not bands:
        return Html("")
    widest = max(bands, key=lambda name: bands[name].high - bands[name].low)
    return html("It is a range because nobody has measured this set-up: chiefly {}, {}. One launch settles it: read {} in its "
                "log.", TERMS[widest], mark(f"{gib_span(bands[widest].low, bands[widest].high)} GiB", "assumed"), code("Available KV cache memory"))


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
