"""A small pool of blocks that requests share, and its picture: a cell a token, a frame a block.

Blocks go out in the order of vLLM's free list: those never used first, then those given back, oldest first.
Requests that run side by side grow together, so their blocks lie mixed. The first request that does not fit
waits, and all behind it wait too. The null block is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import altair as alt

from kvlib import charts
from kvlib.units import cdiv

SLOTS, PER_LINE = 96, 16  # tokens in the pool, tokens in a line of the picture
PREFIX = 10               # tokens of the common beginning
_WIDE, _TALL, _GAP = charts.WIDTH / PER_LINE, 30, 9
HEIGHT = SLOTS // PER_LINE * (_TALL + _GAP)
COLOURS = dict(zip("ABCD", charts.OWNERS, strict=False)) | {"shared": "#0072B2"}
INKS = {colour: charts.ink_on(colour) for colour in (*COLOURS.values(), charts.COLOURS["padding"])}


@dataclass
class Drawing:
    """Who holds which block. ``blocks`` are physical numbers in the order of a request's tokens."""

    block_size: int
    count: int
    lengths: dict[str, int]
    wanted: dict[str, int]
    blocks: dict[str, list[int]] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=dict)
    shared_blocks: int = 0
    saved: int = 0        # blocks that sharing spares
    reused: int = 0       # blocks that had belonged to the request that finished
    returned: tuple[int, ...] = ()

    @property
    def used(self) -> int:
        """Blocks that somebody holds; a shared one counts once."""
        return len({number for held in self.blocks.values() for number in held})

    @property
    def empty(self) -> int:
        """Slots that are taken and hold no token."""
        return sum(len(held) * self.block_size - self.lengths[name] for name, held in self.blocks.items() if held)

    @property
    def stored(self) -> int:
        """Slots that hold a token."""
        return self.used * self.block_size - self.empty


def share_out(lengths: dict[str, int], block_size: int, *, finished: str = "nobody", shared: int = 0) -> Drawing:
    """Hand the blocks of a pool of 96 slots to requests of those lengths, in tokens, in their order.

    ``finished`` names one that ends; ``shared`` tokens at the beginning are the same for all.

    >>> share_out({"A": 18, "B": 9, "C": 31, "D": 44}, 4).blocks["A"]
    [0, 3, 6, 9, 11]
    >>> share_out({"A": 18, "B": 9, "C": 31, "D": 44}, 4, finished="A").state["D"]
    'runs'
    """
    count = SLOTS // block_size
    d = Drawing(block_size, count, dict(lengths), {name: cdiv(tokens, block_size) for name, tokens in lengths.items()})
    free, common = list(range(count)), []
    d.blocks, d.state = {name: [] for name in lengths}, {name: "waits" if n else "–" for name, n in lengths.items()}
    _admit(d, free, common, shared)
    if d.state.get(finished) == "runs":
        others = {number for name, held in d.blocks.items() if name != finished for number in held}
        d.returned = tuple(number for number in d.blocks[finished] if number not in others)
        d.blocks[finished], d.state[finished] = [], "finished"
        if not any(number in others for number in common):
            common.clear()
        free.extend(d.returned)
        _admit(d, free, common, shared)
        held = {number for each in d.blocks.values() for number in each}
        d.reused = len(held & set(d.returned))
    holders = [name for name in lengths if d.state[name] == "runs"]
    d.shared_blocks = len(common)
    d.saved = sum(_whole(d, name, shared) for name in holders) - len(common)
    return d


def _whole(d: Drawing, name: str, shared: int) -> int:
    """Whole blocks of the common beginning that a request uses."""
    return min(shared, d.lengths[name]) // d.block_size


def _admit(d: Drawing, free: list[int], common: list[int], shared: int) -> None:
    entering = []
    promised = len(common)
    taken = 0
    for name, state in d.state.items():
        if state != "waits":
            continue
        whole = _whole(d, name, shared)
        need = d.wanted[name] - whole + max(0, whole - promised)
        if taken + need > len(free):
            break
        taken += need
        promised = max(promised, whole)
        entering.append(name)
    while len(common) < promised:
        common.append(free.pop(0))
    for name in entering:
        d.state[name] = "runs"
        d.blocks[name] = common[:_whole(d, name, shared)]
    while any(len(d.blocks[name]) < d.wanted[name] for name in entering):
        for name in entering:
            if len(d.blocks[name]) < d.wanted[name]:
                d.blocks[name].append(free.pop(0))


def _across(name):
    return alt.X(f"{name}:Q", scale=alt.Scale(domain=[0, charts.WIDTH], nice=False), axis=None)


def _down(name):
    return alt.Y(f"{name}:Q", scale=alt.Scale(domain=[0, HEIGHT], range=[0, HEIGHT], nice=False), axis=None)


def pool_chart():
    """The picture of the pool without data; see :func:`pool_rows`."""
    slots = alt.Chart(alt.NamedData("slots"))
    own = alt.Color("colour:N", scale=None, legend=None)
    cells = slots.mark_rect().encode(x=_across("x"), x2="x2:Q", y=_down("y"), y2="y2:Q", color=own,
                                     opacity=alt.Opacity("opacity:Q", scale=None), description=alt.Description("says:N"))
    letters = slots.mark_text(fontSize=12, fontWeight="bold").encode(
        x=_across("cx"), y=_down("cy"), text="letter:N", color=alt.Color("ink:N", scale=None, legend=None))
    frames = alt.Chart(alt.NamedData("frames"))
    frame = frames.mark_rect(fillOpacity=0, stroke="currentColor", strokeOpacity=0.75, strokeWidth=1.3,
                             cornerRadius=3).encode(x=_across("x"), x2="x2:Q", y=_down("y"), y2="y2:Q")
    number = frames.mark_text(fontSize=9, align="left", baseline="top").encode(
        x=_across("nx"), y=_down("ny"), text="number:N", color=alt.Color("ink:N", scale=None, legend=None))
    return alt.layer(cells, letters, frame, number).properties(width=charts.WIDTH, height=HEIGHT)


def pool_rows(d: Drawing) -> dict:
    """The rows of :func:`pool_chart`: ``slots`` and ``frames``."""
    owners: dict[int, list[tuple[str, int]]] = {}
    for name, held in d.blocks.items():
        for place, block in enumerate(held):
            owners.setdefault(block, []).append((name, place))
    slots, frames = [], []
    for block in range(d.count):
        holders = owners.get(block, [])
        for slot in range(d.block_size):
            slots.append(_slot(d, block, slot, holders))
        first, last = _place(block * d.block_size), _place(block * d.block_size + d.block_size - 1)
        frames.append({"x": first[0] + 1, "x2": last[0] + _WIDE - 1, "y": first[1] + 1, "y2": first[1] + _TALL - 1,
                       "nx": first[0] + 3, "ny": first[1] + 2.5, "number": str(block),
                       "ink": slots[block * d.block_size]["ink"]})
    return {"slots": slots, "frames": frames}


def _place(slot: int) -> tuple[float, float]:
    return slot % PER_LINE * _WIDE, slot // PER_LINE * (_TALL + _GAP)


def _slot(d: Drawing, block: int, slot: int, holders) -> dict:
    x, y = _place(block * d.block_size + slot)
    colour, letter, opacity, says, ink = charts.COLOURS["unused"], "", 0.18, "free", "currentColor"
    if holders:
        owner, place = holders[0]
        name = owner if len(holders) == 1 else "shared"
        filled = place * d.block_size + slot < d.lengths[owner]
        colour, opacity = COLOURS[name] if filled else charts.COLOURS["padding"], 1.0
        letter = ("=" if name == "shared" else name) if filled else "·"
        says, ink = f"{name}, {'a token' if filled else 'empty'}", INKS[colour]
    elif block in d.returned:
        opacity, says = 0.45, "given back"
    return {"x": x + 1, "x2": x + _WIDE - 1, "y": y + 1, "y2": y + _TALL - 1, "cx": x + _WIDE / 2, "cy": y + _TALL / 2 + 3,
            "colour": colour, "opacity": opacity, "letter": letter, "ink": ink, "says": f"block {block}: {says}"}
