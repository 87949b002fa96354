"""A log as tables: its lines with a verdict each, its launches, what changed between two, what a refused one may do."""

from __future__ import annotations

from kvlib.log_choices import Choices
from kvlib.log_diff import diff
from kvlib.tables import Col, Html, Table, html, strong, table
from kvlib.vllm_log import Launch, Log

VERDICTS = ("exact", "within rounding", "off", "not checked")
_MARKS = {"exact": ("✓", "#00734f"), "within rounding": ("≈", "#0063a0"), "off": ("✗", "#ad4a00"), "not checked": ("–", "#666666")}
NAMES = {"requested": "memory asked for (GiB)", "available": "left for the cache (GiB)", "kv_cache_tokens": "tokens in the cache",
         "num_gpu_blocks": "blocks", "max_concurrency": "requests of full length", "block_size": "attention block (tokens)",
         "padding": "padding of a state's page (%)", "kv cache group sizes": "blocks of the groups (tokens)",
         "needed": "one request needs (GiB)", "available in the refusal": "left, in the refusal (GiB)",
         "estimated_max_model_len": "longest length that passes", "auto-fit": "length that auto-fit takes",
         "refusal": "one request needs (GiB)"}
FIGURES = {"total_gib": "card", "free_gib": "free at start", "requested_gib": "asked for", "weights_gib": "weights",
           "non_kv_cache_gib": "all but the cache", "available_kv_cache_gib": "left for the cache", "kv_cache_tokens": "tokens",
           "max_concurrency": "requests of full length", "num_gpu_blocks": "blocks", "max_concurrency_len": "length of a request"}


def plain(value) -> str:
    """A figure of a log as it reads best."""
    if isinstance(value, bool) or value is None:
        return "–" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4f}".rstrip("0").rstrip(".")
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "…"


def verdict_mark(verdict: str) -> Html:
    """The verdict, its sign white on a colour dark enough to be read in both themes."""
    sign, colour = _MARKS[verdict]
    return html('<span style="font-weight:600;white-space:nowrap"><span style="background:{};color:#fff;border-radius:3px;padding:0 4px">{}'
                '</span> {}</span>', colour, sign, verdict)


def lines_table(x, caption: str = "") -> Table:
    """line · printed · recomputed · verdict · reason, for :func:`kvlib.explain`'s answer."""
    rows = [{"line": NAMES.get(line.name, line.name), "printed": plain(line.printed), "recomputed": line.recomputed or "–",
             "verdict": verdict_mark(line.verdict), "reason": line.reason} for line in x.lines]
    agree = sum(line.verdict in VERDICTS[:2] for line in x.lines)
    checked = sum(line.verdict != "not checked" for line in x.lines)
    footer = f"{agree} of {checked} checked figures agree" if checked else "no figure of the cache can be checked"
    return table(rows, [Col("line", fmt="text"), Col("printed"), Col("recomputed"), Col("verdict", fmt="text"), Col("reason", fmt="text")],
                 caption=caption or "Each figure of the log, recomputed", footer=footer)


def proves(x) -> Table | None:
    """What the log proves by itself, and what had to be taken for granted."""
    words = {"print_formula": "the tokens follow", "runtime_gib": "runtime reserve (GiB)", "utilization": "gpu_memory_utilization",
             "smallest_available_gib": "the least pool of any worker (GiB)", "bytes_per_block": "bytes in a block",
             "num_gpu_blocks": "blocks that the printed GiB allow", "prefix_caching": "prefix caching was"}
    rows = [{"what": words[name], "it was": _span(value)} for name, value in x.implied.items() if name in words]
    rows += [{"what": "taken for granted", "it was": note} for note in x.notes]
    return table(rows, [Col("what", fmt="text"), Col("it was", fmt="text")], caption="What the log says by itself") if rows else None


def _span(value) -> str:
    if isinstance(value, tuple):
        low, high = (plain(edge) for edge in value)
        return low if low == high else f"{low} to {high}"
    return plain(value)


def launches_table(log: Log, chosen: int | None = None) -> Table:
    """One row a launch, at most the last twelve; the chosen one stands out."""
    first = max(0, len(log.launches) - 12)
    rows = [{"launch": first + place + 1, "line": launch.first_line, "model": plain(launch.model), "vLLM": plain(launch.vllm_version),
             "outcome": outcome(launch)} for place, launch in enumerate(log.launches[first:])]
    return table(rows, [Col("launch", fmt="int"), Col("line", "begins in line", "int"), Col("model", fmt="text"), Col("vLLM", fmt="text"),
                        Col("outcome", fmt="text")],
                 caption=f"{len(log.launches)} launches in this log", highlight=None if chosen is None else chosen - 1 - first)


_REFUSALS = {"max_model_len": "one request does not fit", "free_memory": "too little memory is free",
             "no_cache_memory": "nothing is left for the cache", "weights_do_not_fit": "out of memory",
             "max_num_seqs": "more sequences than blocks for their state"}


def outcome(launch: Launch) -> str:
    """How a launch ended, in words."""
    if launch.refusal:
        return f"refused: {_REFUSALS[launch.refusal.kind]}"
    return {"sized": "sized its cache", "unfinished": "prints no size"}[launch.status]


def diff_table(before: Launch, after: Launch, caption: str = "") -> Table:
    """Flags, memory and outcome that differ between two launches."""
    rows = [{"what": FIGURES.get(change.name, change.name), "kind": change.kind, "before": plain(change.before),
             "after": plain(change.after)} for change in diff(before, after)][:40]
    return table(rows, [Col("what", fmt="text"), Col("kind", fmt="text"), Col("before"), Col("after")],
                 caption=caption or "What changed since the launch before", footer="" if rows else "nothing that is printed")


def choices_table(found: Choices) -> Html | Table:
    """change · gain · gives up, least harm first."""
    if not found.remedies:
        return html("<p>{}</p>", "No choice can be computed: " + ("; ".join(found.notes) or "the log does not say enough") + ".")
    rows = [{"change": each.name, "gain": each.gain, "gives up": each.gives_up} for each in found.remedies]
    return table(rows, [Col(key, fmt="text") for key in ("change", "gain", "gives up")],
                 caption="What would pass vLLM's memory checks, least harm first", footer="; ".join(found.notes))


def answer(x, number: int, of: int) -> Html:
    """The sentence on top."""
    launch = x.launch
    which = f"Launch {number} of {of}, {outcome(launch)}. " if of > 1 else f"{outcome(launch).capitalize()}. " if launch.refusal else ""
    if not x.lines:
        return html("{}{}", which, "No figure of the cache was found: paste the lines from “Model loading took” to “KV cache size”.")
    off = [line for line in x.lines if line.verdict == "off"]
    if off:
        first = NAMES.get(off[0].name, off[0].name)
        return html("{}{}, {}: {}.", which, strong("off"), first, off[0].reason)
    said = {"exact": "every checked figure is recomputed to its last digit", "not checked": "no figure can be checked: " + (
        x.notes[0] if x.notes else "the log does not say enough"),
            "within rounding": "all checked figures agree; those with an interval agree within the rounding of the printed GiB"}
    return html("{}{}: {}.", which, strong(x.verdict), said[x.verdict])
