"""Notebook 02: what else wants the GPU's memory, each as a small panel."""

from __future__ import annotations

import kvlib
from kvlib import Engine, MemoryBudget, charts
from kvlib.controls import Col, Fraction, Number, Panel, Predict, View, html, strong, table
from kvlib.memory import requested_bytes
from kvlib.panels.budget_facts import (
    FREE, NOT_CACHE, NOT_CHECKED, TOKENS, TOTAL, VERSION, WEIGHTS, gb10_asked, gb10_at, gb10_launch, interval, judge,
    model, reserve_of, step,
)
from kvlib.panels.budget_pictures import MEMORY_TIERS, TOKEN_TIERS, span_rows, span_spec, strips_spec, tier
from kvlib.tables import Html
from kvlib.units import GiB, gib

UTILIZATION = "--gpu-memory-utilization"
SYSTEM = TOTAL - FREE   # GiB of the GB10 in use before vLLM starts


# Other processes

_OTHERS = 24  # GiB, the end of the axis


class OtherProcesses(Panel):
    """The start-up check on free memory, on the GB10."""

    name = "02-others"
    title = "Before anything is loaded: is enough memory free?"
    inputs = (
        Number("held_gib", 3.0, min=0, max=4, step=0.1, at_most=16, label="Held by another process", unit="GiB",
               help="A notebook, a second engine, a browser; held before vLLM starts."),
        Fraction("gpu_memory_utilization", 0.92, min=0.81, max=0.98, at_least=0.81, at_most=1.0,
                 label="Share requested", flag=UTILIZATION, help="Of the whole card, whoever holds the rest."),
    )
    predict = Predict("Here another process holds 3 GiB, and the launch is refused. With the default share of 0.92, "
                      "how much could it hold and still let vLLM start?",
                      answer=round(FREE - gb10_asked(0.92), 2), unit="GiB", within=5,
                      because="113.91 GiB are free before either starts, and vLLM asks for 111.9 GiB.")

    def chart(self):
        return strips_spec(2, _OTHERS, "GiB of the GB10's 121.63")

    def compute(self, s):
        found, asked = gb10_launch(s.gpu_memory_utilization, s.held_gib), gb10_asked(s.gpu_memory_utilization)
        left, free = TOTAL - asked, FREE - s.held_gib
        spare = free - asked
        refused = found.outcome == "free_memory"
        over = max(0.0, -spare)
        held = [("in use before", min(SYSTEM, left), "unused"),
                ("other", max(0.0, s.held_gib - over), "state"), ("too much", over, "refused")]
        upper = f"vLLM leaves {left:.2f} GiB to all others"
        lower = f"Others hold {SYSTEM:.2f} + {s.held_gib:.2f} = {SYSTEM + s.held_gib:.2f} GiB"
        guess = None if self.guess is None else SYSTEM + self.guess
        rows = [{"what": "free at start", "how": f"{FREE:.2f} − {s.held_gib:.2f}", "value": free},
                {"what": "requested", "how": f"{TOTAL:.2f} × {s.gpu_memory_utilization:g}", "value": asked}]
        return View(
            answer=_refused(free, asked) if refused else html(
                "The launch goes on: {} GiB are free, {} GiB are requested. Others may take {} more.", f"{free:.2f}",
                f"{asked:.2f}", strong(f"{spare:.2f} GiB")),
            rows=charts.strips_rows([(upper, 0, [("left to others", left, "unused")]), (lower, 0, held)], limit=_OTHERS)
            | {"guess": charts.strips_guess(guess, strip=1, limit=_OTHERS)},
            table=table(rows, [Col("what"), Col("how", "worked out as"), Col("value", fmt=".2f", unit="GiB")],
                        footer=found.log_lines()[-1] if refused else "Nothing is printed when this check passes."),
            description=f"{upper}. {lower}.")


def _refused(free, asked):
    share = int(free / TOTAL * 100) / 100
    return html("{}: {} GiB are free, {} GiB are requested, {} GiB are missing. Free them, or ask for a share of {}.",
                strong("Refused at start"), f"{free:.2f}", f"{asked:.2f}", strong(f"{asked - free:.2f}"),
                strong(f"{share:.2f}"))


# Unified memory


class UnifiedMemory(Panel):
    """What headroom costs on a machine whose CPU and GPU share their memory."""

    name = "02-unified"
    title = "The GB10: headroom against tokens"
    inputs = (
        Fraction("gpu_memory_utilization", 0.92, min=0.70, max=0.94, at_least=0.5, at_most=0.98,
                 label="Share requested", flag=UTILIZATION, help="Of the memory that GPU and processor share."),
        Number("later_gib", 0.0, min=0, max=4, step=0.1, at_most=30, label="Started later", unit="GiB",
               help="What other services take while the server runs; 7.72 GiB were in use before it started."),
    )
    predict = Predict("With a share of 0.85 in place of 0.92 the launch asks for 8.5 GiB less. How many of its 681,600 "
                      "tokens does that cost?", answer=lambda: TOKENS - gb10_at(0.85)[0].kv_cache_tokens,
                      unit="tokens", within=10, shown=lambda count: f"about {count:,.0f} tokens",
                      because="8.51 GiB at 144 KiB a token; all of it comes out of the cache.")

    def chart(self):
        return strips_spec(2, 128, "GiB of the GB10")

    def compute(self, s):
        share, asked = s.gpu_memory_utilization, gb10_asked(s.gpu_memory_utilization)
        tokens = _tokens(share)
        spare = FREE - asked - s.later_gib
        later = f", {s.later_gib:.2f} GiB taken later" if s.later_gib else ""
        if asked > FREE:
            answer = html("{}: {} GiB are free, {} GiB are requested.", strong("Refused at start"), f"{FREE:.2f}",
                          f"{asked:.2f}")
            heading = f"{share:g}: refused, {asked - FREE:.2f} GiB are missing"
        elif spare < 0:
            answer = html("Once the other services are up, the machine is {}: its guard against running out of memory "
                          "may end the server.", strong(f"{-spare:.2f} GiB short"))
            heading = f"{share:g}: {tokens} tokens, {-spare:.2f} GiB short{later}"
        else:
            answer = html("{}, and {} stay free for the rest of the machine.", strong(f"{tokens} tokens"),
                          strong(f"{spare:.2f} GiB"))
            heading = f"{share:g}: {tokens} tokens, {spare:.2f} GiB to spare{later}"
        guess = None if self.guess is None else \
            gb10_asked(0.92) - self.guess * kvlib.bytes_per_token(model()) / GiB
        now = _on_gb10(share, s.later_gib)
        strips = [("0.92, as launched: 681,600 tokens, 2.01 GiB to spare", 0, _on_gb10(0.92, 0)), (heading, 0, now)]
        rows = [{"launch": launch, "share": each, "asked": gb10_asked(each), "tokens": _tokens(each),
                 "margin": interval(FREE - gb10_asked(each), FREE - gb10_asked(each), 2)}
                for launch, each in (("as launched", 0.92), ("now", share))]
        return View(
            answer=answer,
            rows=charts.strips_rows(strips, limit=128)
            | {"guess": charts.strips_guess(guess, strip=1, limit=128, label="0.85 by your guess")},
            table=table(rows, [Col("launch"), Col("share", fmt=".2f"), Col("asked", "requested", ".2f", "GiB"),
                               Col("margin", "free at start − requested", unit="GiB"), Col("tokens")]),
            description=f"The GB10 at {heading}: " + ", ".join(f"{part} {amount:.2f} GiB" for part, amount, _ in now
                                                               if part and amount > 0) + ".",
            note="All else as in the measured launch. Printed figures are rounded, so another share gives a range.")


def _tokens(share: float) -> Html:
    if gb10_asked(share) > FREE:
        return Html("refused")
    return interval(*(found.kv_cache_tokens for found in gb10_at(share)), 0)


def _on_gb10(share: float, later_gib: float) -> list[tuple]:
    """The parts of the GB10's memory: the launch, what is spare, what others take, what is wanted beyond it."""
    asked = gb10_asked(share)
    spare = FREE - asked - later_gib
    short = max(0.0, -spare)
    return [("weights", WEIGHTS, "weights"), ("", NOT_CACHE - WEIGHTS, "reserve"),
            ("KV cache", asked - NOT_CACHE, "kv"), ("spare", max(spare, 0.0), "unused"),
            ("later", max(0.0, later_gib - short), "state"),
            ("in use", SYSTEM - max(0.0, short - later_gib), "unused"), ("short", short, "refused")]


# The share is not the cache


class UtilizationStep(Panel):
    """What a step of the utilization adds: all of it goes to the cache."""

    name = "02-utilization"
    title = "Qwen3-8B: a step of the share, in tokens"
    inputs = (
        Number("total_gib", 80.0, min=24, max=200, step=1, at_least=23, at_most=300, integer=False, label="GPU memory",
               unit="GiB", help="The whole card, as its driver reports it."),
        Fraction("before", 0.92, min=0.80, max=0.98, at_least=0.79, at_most=1.0, label="Share before",
                 flag=UTILIZATION, help="The share that the server runs with now."),
        Fraction("after", 0.93, min=0.80, max=0.98, at_least=0.79, at_most=1.0, label="Share after",
                 flag=UTILIZATION, help="The share to compare it with."),
    )
    predict = Predict("On a card of 80 GiB the share goes from 0.92 to 0.95. How many more tokens of Qwen3-8B, "
                      "147,456 B each, does that give?", answer=lambda: step(80, 0.92, 0.95)[1], unit="tokens", within=5,
                      because="0.03 × 80 GiB = 2.4 GiB, and the weights and the reserve are paid already.")

    def compute(self, s):
        extra, tokens, whole = step(s.total_gib, s.before, s.after)
        more, size = extra >= 0, abs(extra) / GiB
        word = "adds" if more else "takes away"
        asked = [requested_bytes(gib(s.total_gib), share) / GiB for share in (s.before, s.after)]
        headings = [f"{s.before:g}: {asked[0]:.2f} GiB requested",
                    f"{s.after:g}: {asked[1]:.2f} GiB requested, {size:.2f} GiB {'more' if more else 'less'} cache"]
        strips = [(heading, 0, _on_a_card(each, min(asked), s.total_gib))
                  for heading, each in zip(headings, asked, strict=True)]
        limit, top = tier(s.total_gib, MEMORY_TIERS), tier(1.1 * max(abs(tokens), self.guess or 0), TOKEN_TIERS)
        rows = [{"share": share, "asked": each, "left": s.total_gib - each}
                for share, each in zip((s.before, s.after), asked, strict=True)]
        return View(
            answer=html("Going from {} to {} {} {}: {} of Qwen3-8B, {} in whole blocks.", f"{s.before:g}", f"{s.after:g}",
                        word, strong(f"{size:.2f} GiB"), strong(f"{abs(tokens):,} tokens"), f"{abs(whole):,}"),
            rows=charts.strips_rows(strips, limit=limit) | {"no guess": []}
            | span_rows(abs(tokens), abs(tokens), f"{abs(tokens):,} tokens", self.guess, top),
            chart=[strips_spec(2, limit, "GiB of one GPU", "no guess"),
                   span_spec(top, f"tokens that the step {word}", "kv" if more else "refused")],
            table=table(rows, [Col("share", fmt=".2f"), Col("asked", "requested: weights, reserve, cache", ".2f", "GiB"),
                               Col("left", "not requested", ".2f", "GiB")]),
            note="Pale: the reserve, assumed. Whatever it is, it is paid once, so the difference is exact.",
            description=["; ".join(headings) + ".", f"The step {word} {abs(tokens):,} tokens."])


def _on_a_card(asked: float, base: float, total: float) -> list[tuple]:
    """Parts of a card: what both shares have in common, what this one has besides, and the rest."""
    low, high = _reserve(VERSION)
    low, high = min(low, base - WEIGHTS), min(high, base - WEIGHTS)
    return [("weights", WEIGHTS, "weights"), ("", low, "reserve"), ("", high - low, "reserve", "pale"),
            ("cache", base - WEIGHTS - high, "kv"), ("+", asked - base, "kv"), ("", total - asked, "unused")]


def _reserve(version: str) -> tuple[float, float]:
    """GiB of Qwen3-8B's reserve on an 80 GiB card, least and most."""
    bands = reserve_of("Qwen3-8B", Engine(vllm_version=version)).values()
    return sum(band.low for band in bands) / GiB, sum(band.high for band in bands) / GiB


# Two servers

_CARD, _CARD_AXIS, _LENGTH = 80, 100, 8_192


def server(share: float, free_gib: float = _CARD):
    """Least, typical and most of a Qwen3-8B server on a card of 80 GiB of which ``free_gib`` are free at its start.

    >>> [found.outcome for found in server(0.45, 44)]
    ['passes', 'passes', 'passes']
    """
    engine = Engine(vllm_version=VERSION, max_model_len=_LENGTH, gpu_memory_utilization=share)
    memory = MemoryBudget(_CARD * GiB, gib(WEIGHTS), free_bytes=gib(free_gib),
                          **reserve_of("Qwen3-8B", Engine(vllm_version=VERSION)))
    return kvlib.size_range(model(), engine, memory=memory)


def cache_gib(sizes) -> tuple[float, float]:
    """The least and most GiB of cache of a server; 0 where it is refused."""
    return tuple(sizes[end].available_bytes / GiB if sizes[end].fits else 0.0 for end in (0, 2))


class TwoServers(Panel):
    """Two servers of one model that share one card, the second started after the first."""

    name = "02-two-servers"
    title = f"Two servers of Qwen3-8B on one card of {_CARD} GiB"
    inputs = (
        Fraction("first", 0.55, min=0.30, max=0.95, at_least=0.1, label="Share of the first", flag=UTILIZATION,
                 help="Started on the empty card."),
        Fraction("second", 0.30, min=0.25, max=0.65, at_least=0.1, at_most=0.95, label="Share of the second", flag=UTILIZATION,
                 help="Started when the first already holds its share."),
    )
    predict = Predict("One server with a share of 0.90 would have about 54 GiB of cache. Two with 0.45 each: how much "
                      "have they together?",
                      answer=lambda: round(2 * server(0.45)[1].available_bytes / GiB, 1), unit="GiB", within=8,
                      shown=lambda value: f"about {value:.0f} GiB",
                      because="The weights and the runtime reserve are paid twice.")

    def chart(self):
        return strips_spec(3, _CARD_AXIS, f"GiB of the card's {_CARD}")

    def compute(self, s):
        first = server(s.first)
        held = requested_bytes(_CARD * GiB, s.first) / GiB if first[1].fits else 0.0
        second = server(s.second, _CARD - held)
        strips, rows = [], []
        for word, share, sizes, start in (("First", s.first, first, 0.0), ("Second", s.second, second, held)):
            asked, free = requested_bytes(_CARD * GiB, share) / GiB, _CARD - start
            parts, said, verdict = _server_parts(sizes, asked, free)
            strips.append((f"{word}: {asked:.1f} GiB requested, {said}", start,
                           [*parts, ("left", max(0.0, free - asked), "unused")]))
            rows.append({"server": word.lower(), "share": share, "asked": asked, "free": free, "verdict": verdict,
                         "cache": interval(*cache_gib(sizes), 1) if sizes[2].fits else "–"})
        least, most = (sum(cache_gib(sizes)[end] for sizes in (first, second)) for end in (0, 1))
        strips.append((f"Cache together: {least:.0f} to {most:.0f} GiB", 0,
                       [("cache", least, "kv"), ("perhaps", most - least, "kv", "pale")]))
        return View(
            answer=_both(first, second, f"{least:.0f} to {most:.0f} GiB", _CARD - held, s.second),
            rows=charts.strips_rows(strips, limit=_CARD_AXIS)
            | {"guess": charts.strips_guess(self.guess, strip=2, limit=_CARD_AXIS, label="your guess for 0.45 twice")},
            table=table(rows, [
                Col("server"), Col("share", fmt=".2f"), Col("asked", "requested", ".2f", "GiB"),
                Col("free", "free at its start", ".2f", "GiB"), Col("cache", unit="GiB"), Col("verdict")]),
            note="The reserve is assumed, so each cache is a range. The first server is taken to hold its share exactly. "
                 + NOT_CHECKED.replace("what other processes hold, ", ""),
            description=" ".join(f"{heading}." for heading, *_ in strips))


def _server_parts(sizes, asked: float, free: float) -> tuple[list, str, str]:
    """The parts of one server's share, what to say of them, and the verdict."""
    if sizes[1].outcome == "free_memory":
        return ([("free", free, "unused"), ("missing", asked - free, "refused")], f"{free:.1f} GiB free",
                "refused at start: too little is free")
    verdict, (least, most) = judge(*sizes), cache_gib(sizes)
    if verdict.word == "refused":
        return [("refused", asked, "refused")], "no room for one request", "refused: no room for one request"
    low, high = (asked - WEIGHTS - end for end in (most, least))
    high = min(high, asked - WEIGHTS)
    parts = [("weights", WEIGHTS, "weights"), ("", low, "reserve"), ("", high - low, "reserve", "pale"),
             ("cache", least, "kv")]
    said = {"passes": "passes vLLM's memory checks", "close": "too close to call"}[verdict.word]
    return parts, f"cache {interval(least, most, 1)} GiB", said


def _both(first, second, together: str, free: float, share: float):
    if not first[2].fits or not second[2].fits and second[1].outcome != "free_memory":
        which = "first" if not first[2].fits else "second"
        return html("The {} server is {} with so small a share: its weights come first.", which, strong("refused"))
    if second[1].outcome == "free_memory":
        return html("The second is {}: it asks for {} GiB, {} GiB are free. Give it at most {}.",
                    strong("refused at start"), f"{share * _CARD:.1f}", f"{free:.1f}",
                    strong(f"{int(free / _CARD * 100 + 1e-6) / 100:.2f}"))
    if not first[0].fits or not second[0].fits:
        return html("{} for the {}: {} of cache together.", strong("Too close to call"),
                    "first" if not first[0].fits else "second", strong(together))
    return html("Both pass vLLM's memory checks, with {} of cache together.", strong(together))
