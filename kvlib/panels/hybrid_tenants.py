"""One pool, two kinds of tenant (Figure 2 of the hybrid note): sequences of any length, and their states."""

from __future__ import annotations

from functools import lru_cache

import altair as alt

from kvlib import charts
from kvlib.controls import Col, Number, Panel, PowerOfTwo, Predict, View, gib, html, size as in_units, strong, table
from kvlib.panels.drawing import INK, PADDING, box, canvas, word
from kvlib.panels.hybrid_inputs import PREFIX_CACHING
from kvlib.panels.hybrid_setups import blocks, launch

POOL, _COLUMNS, _SIDE = 240, 24, 21  # blocks; blocks in a line; pixels of one
_SHORT = 100  # tokens of a chat in the question


def _sequence(name, tokens):
    return Number(name, tokens, min=0, max=160_000, step=4_000, at_most=1_000_000, label=f"Sequence {name.upper()}",
                  unit="tokens", help="Tokens so far; 0 leaves it out.")


class TwoTenants(Panel):
    """Sequences of any length in one pool, each with blocks of tokens and of state."""

    name = "08-two-tenants"
    title = f"A pool of {POOL} blocks (Qwen3.8-27B, TP = 2, FP8: {gib(POOL * launch().bytes_per_block)} a GPU)"
    inputs = [
        _sequence("a", 60_000), _sequence("b", 20_000),
        Number("chats", 4, min=0, max=40, label="Chats", help="How many short sequences run as well."),
        PowerOfTwo("each", 2048, min=64, max=16_384, label="Tokens of a chat", unit="tokens",
                   help="All chats are this long."),
        PREFIX_CACHING,
    ]
    predict = Predict(
        f"Leave A and B out (0 tokens). How many chats of {_SHORT} tokens fit into the {POOL} blocks, prefix caching on?",
        answer=lambda: (POOL - 1) // sum(held(_SHORT, True)), unit="chats", within=5,
        because="Each takes one block for its 100 tokens and six for its states.")

    def chart(self):
        high = POOL // _COLUMNS * _SIDE
        guess = alt.Chart(alt.NamedData("guess")).mark_rect(
            fillOpacity=0, stroke=INK, strokeWidth=3, strokeDash=[4, 3]).encode(x="x:Q", x2="x2:Q", y="y:Q", y2="y2:Q")
        return alt.layer(*canvas("pool", height=high).layer, guess).properties(width=charts.WIDTH, height=high + PADDING)

    def compute(self, s):
        asked = [(name, tokens) for name, tokens in (("A", s.a), ("B", s.b)) if tokens]
        asked += [(str(n), s.each) for n in range(1, s.chats + 1)]
        running = admitted(asked, s.enable_prefix_caching)
        tokens, states = (sum(held[kind] for held in running) for kind in (0, 1))
        boxes, words = _drawn(_owners(asked, running))
        guess = _guess_cell(self.guess)
        note = html("One cell is one block, {} in memory on each GPU. Green holds tokens of the sequence named in it, pink "
                    "its states (s). The block marked 0 is vLLM's null block, never given out.{}",
                    gib(launch().bytes_per_block),
                    f" In the dashed cell your {self.guess:,} chats of {_SHORT} tokens would end." if guess else "")
        return View(
            answer=_answer(len(running), len(asked) - len(running), tokens, states), note=note,
            rows={"pool": boxes, "pool_words": words, "guess": guess},
            table=_table(asked, len(running), s.enable_prefix_caching),
            description=f"{POOL} blocks: {tokens} hold tokens, {states} hold states, {POOL - 1 - tokens - states} are free.")


@lru_cache(maxsize=1024)
def held(tokens: int, caching: bool) -> tuple[int, int]:
    """Blocks of a sequence of that many tokens: for its tokens, for its states.

    >>> held(100, True), held(100, False)
    ((1, 6), (1, 3))
    """
    return blocks(launch(max_model_len=tokens, enable_prefix_caching=caching))


def admitted(asked, caching):
    """What the sequences that fit hold. First come, first served: who does not fit holds up all behind."""
    running, free = [], POOL - 1
    for _, tokens in asked:
        wanted = held(tokens, caching)
        if sum(wanted) > free:
            break
        running.append(wanted)
        free -= sum(wanted)
    return running


def _owners(asked, running):
    """Who owns each block: states are taken at the start, then the sequences grow side by side."""
    owners = [("0", "null")]
    for (name, _), wanted in zip(asked, running):
        owners += [(name, "state")] * wanted[1]
    left = [wanted[0] for wanted in running]
    while any(left):
        for index, count in enumerate(left):
            if count:
                owners.append((asked[index][0], "kv"))
                left[index] -= 1
    return owners + [("", "free")] * (POOL - len(owners))


def _place(index):
    line, column = divmod(index, _COLUMNS)
    return column * _SIDE + 8, line * _SIDE


def _drawn(owners):
    boxes, words = [], []
    says = {"null": "the null block", "free": "free"}
    for index, (name, kind) in enumerate(owners):
        x, y = _place(index)
        meaning = kind if kind in ("kv", "state") else "unused"
        boxes.append(box(x + 0.5, y + 0.5, _SIDE - 1, _SIDE - 1, meaning, opacity=0.2 if kind == "free" else None,
                         tip=says.get(kind, f"{name}, {'tokens' if kind == 'kv' else 'state'}")))
        if name:
            text = name + "s" if kind == "state" else name
            words.append(word(x + _SIDE / 2, y + _SIDE / 2, text, align="center", size=10 if len(text) < 3 else 9,
                              on=meaning))
    return boxes, words


def _guess_cell(guess):
    """The cell of the block in which the guessed number of chats would end."""
    end = None if guess is None else int(guess * sum(held(_SHORT, True)))
    if end is None or not 0 < end < POOL:
        return []
    x, y = _place(end)
    return [{"x": x + 2, "x2": x + _SIDE - 2, "y": y + 2, "y2": y + _SIDE - 2}]


def _answer(running, waiting, tokens, states):
    if not running and not waiting:
        return html("The pool is empty: {} blocks can go to tokens or to states.", POOL - 1)
    used = tokens + states
    first = html("{} run and hold {} of {} usable blocks: {} with tokens, {} with states ({} %)",
                 strong(f"{running} sequence" + "s" * (running != 1)), used, POOL - 1, tokens, strong(states),
                 f"{100 * states / max(1, used):.0f}")
    if waiting:
        return html("{}; {} must wait.", first, strong(f"{waiting} more"))
    return html("{}; {} are free.", first, POOL - 1 - used)


def _table(asked, running, caching):
    lines = {}
    for place, (name, tokens) in enumerate(asked):
        who = name if name in ("A", "B") else "a chat"
        line = lines.setdefault((who, tokens), {"who": who, "tokens": tokens, "run": 0, "wait": 0})
        line["run" if place < running else "wait"] += 1
    for line in lines.values():
        line["grown"], line["fixed"] = held(line["tokens"], caching)
        line["all"] = line["grown"] + line["fixed"]
        line["memory"] = in_units(line["all"] * launch().bytes_per_block)
    return table(list(lines.values()) or [{"who": "none"}], [
        Col("who", "Sequence", fmt="text"), Col("tokens", "Tokens"), Col("grown", "Blocks of tokens"),
        Col("fixed", "Blocks of state"), Col("all", "Together"), Col("memory", "Memory a GPU"), Col("run", "Running"),
        Col("wait", "Waiting")])
