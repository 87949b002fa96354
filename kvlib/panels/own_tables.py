"""Tables of notebook 06: memory by terms, what so many requests need, flags, set-ups compared, foretold and printed."""

from __future__ import annotations

from kvlib.command import NOT_FOLLOWED
from kvlib.fit import Fit
from kvlib.improve import Needs
from kvlib.memory import Band, at
from kvlib.ranges import gib_span
from kvlib.tables import Col, Html, Table, code, html, mark, table
from kvlib.take_along import figures, foretold
from kvlib.units import GiB, human
from kvlib.verdict import NAMES

_KIND = {"typed": "measured", "measured": "measured", "computed": "computed", "assumed": "assumed"}


def terms_table(found: Fit) -> Table:
    """Each part of a GPU's memory: how much, how it is known, the reports behind it."""
    share = found.typical.plan.setup.gpu_memory_utilization
    rows = []
    for name, term in found.terms.items():
        figure = gib_span(at(term.value, "low"), at(term.value, "high"), 2)
        kind = "assumed" if isinstance(term.value, Band) and term.kind == "computed" else _KIND[term.kind]
        rows.append({"part": NAMES[name], "gib": mark(_whole(figure), kind), "kind": term.kind, "source": _short(term.source)})
        if name == "total_bytes":
            asked = at(term.value, "typical") * share
            rows.append({"part": "requested", "gib": f"{asked / GiB:.2f}", "kind": "computed", "source": f"memory × {share:g}, rounded up"})
    if "available" not in found.terms:
        ends = found.low.available_bytes, found.high.available_bytes
        rows.append({"part": "for the cache", "gib": mark(_whole(gib_span(*ends, 2)), "computed" if found.exact else "assumed"),
                     "kind": "computed", "source": "what is left of the requested"})
    return table(rows, [Col("part", "on each GPU", "text"), Col("gib", "GiB"), Col("kind", "how known", "text"),
                        Col("source", "from", "text")], caption="Memory, part by part. A figure typed above replaces one.")


def _whole(figure: str) -> Html:
    """A range that is not broken over lines."""
    return html('<span style="white-space:nowrap">{}</span>', figure)


def _short(source: str) -> str:
    """The head of an account; the whole is in ``fit.terms``."""
    head = source.split("; ")[0]
    return head if len(head) <= 96 else head[:95] + "…"


def needs_table(found: Fit, need: Needs, requests: int, tokens: int) -> Table:
    """The way back: what that many requests of that length take."""
    def both(pair):
        surely, perhaps = pair
        if surely is None and perhaps is None:
            return "none on the list"
        if surely == perhaps:
            return str(surely)
        return f"{surely}; {perhaps} if the reserve is small" if surely is not None else f"{perhaps} if the reserve is small"

    least = requests * found.typical.plan.blocks_per_request(tokens) < found.typical.plan.blocks_per_request(found.high.max_model_len)
    rows = [
        {"what": "cache on each GPU", "figure": human(need.available_bytes), "how": f"{need.blocks:,} blocks of "
         f"{human(found.typical.bytes_per_block)}" + ("; at least one request of max_model_len" if least else "")},
        {"what": "smallest GPU memory, at this split", "figure": mark(gib_span(need.total_bytes[0], need.total_bytes[2]) + " GiB", "computed"
         if found.exact else "assumed"), "how": "weights and reserve added, divided by the share"},
        {"what": "smallest card, at this split", "figure": both(need.gpu), "how": "with that card's own defaults; cards of shared memory aside"},
        {"what": "smallest tensor_parallel_size, on this card", "figure": both(need.tensor_parallel_size), "how": "of 1, 2, 4, 8, 16"}]
    return table(rows, [Col("what", f"{requests:,} requests of {tokens:,} tokens at once take", "text"), Col("figure", fmt="text"),
                        Col("how", "worked out as", "text")])


def flags_table(found: Fit) -> Table | None:
    """The command's flags: used, without effect on the cache, or taking memory that is not counted."""
    other = found.other
    if not other.given:
        return None
    rows = []
    for name, value in other.given.items():
        flag = "--" + name.replace("_", "-")
        if name in other.takes_memory:
            what = f"takes memory that is not counted: {other.takes_memory[name]}"
        elif name == "quantization" and found.quantization:
            what = "used: the weights are counted so"
        elif name.partition(".")[0] in NOT_FOLLOWED:
            what = f"may change {NOT_FOLLOWED[name.partition('.')[0]]}; not followed"
        elif name in other.no_effect:
            what = "no effect on the cache"
        else:
            what = "used"
        rows.append({"flag": code(flag), "value": "" if value is True else str(value)[:60], "what": what})
    order = {"takes": 0, "used": 1, "used:": 1, "may": 1, "no": 2}
    rows.sort(key=lambda row: order.get(row["what"].split()[0], 3))
    return table(rows, [Col("flag", fmt="text"), Col("value", fmt="text"), Col("what", "what it does here", "text")],
                 caption="The command, flag by flag")


def compare_table(kept: list[tuple[str, Fit]]) -> Table | None:
    """The set-ups kept, side by side."""
    if not kept:
        return None
    rows = []
    for name, each in kept:
        flat = figures(each, name)
        rows.append({"name": name, "verdict": flat["verdict"],
                     "room": gib_span(each.low.available_bytes, each.high.available_bytes, 1),
                     "tokens": each.say(max(0, each.low.kv_cache_tokens), max(0, each.high.kv_cache_tokens)),
                     "requests": each.say(each.low.max_concurrency, each.high.max_concurrency)})
    return table(rows, [Col("name", "set-up", "text"), Col("verdict", fmt="text"), Col("room", "cache on each GPU", unit="GiB"),
                        Col("tokens"), Col("requests", "requests of max_model_len")], caption="Kept to compare")


def foretold_table(found: Fit) -> Table | None:
    """Each figure of the log beside what was to be expected before it."""
    rows = [{"figure": row.figure, "range": f"{row.low:,.2f} to {row.high:,.2f}" if isinstance(row.low, float) else
             f"{row.low:,} to {row.high:,}", "printed": mark(f"{row.printed:,}", "measured"), "verdict": row.verdict}
            for row in foretold(found)]
    if not rows:
        return None
    return table(rows, [Col("figure", "figure of the log", "text"), Col("range", "to be expected without it"), Col("printed"),
                        Col("verdict", "stands", "text")], caption="Foretold and printed", footer=html(
        "Below the range, something takes memory that was not assumed; above it, the assumption was too careful."))
