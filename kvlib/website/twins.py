"""Static twins: controls that answer in a page without a kernel.

A twin is a panel with fewer inputs, each at a few stops. Whatever it can show is asked of the panel here, once for
each setting, and kept in a table; the page shows it with the panel's own script. No figure is worked out in the page.
"""

from __future__ import annotations

import base64
import gzip
import importlib
import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace

from altair.utils.schemapi import debug_mode

from kvlib.controls import Panel, esc, html
from kvlib.inputs import Choice, Number, Toggle
from kvlib.live import packed

SHOWN = ("answer", "note", "table", "error")


def nothing(_values: dict) -> dict:
    return {}


@dataclass(frozen=True)
class Twin:
    """Which inputs of a panel a page offers.

    ``offered`` maps an input to its stops, None for all options of a choice. ``hidden`` says what other inputs take,
    given the offered ones; the rest stays at its default. ``buttons`` are inputs that only move others.
    ``more`` ends the sentence "The notebook adds …".
    """

    notebook: str
    module: str
    name: str
    offered: dict
    more: str
    hidden: Callable[[dict], dict] = nothing
    buttons: tuple = ()

    @property
    def key(self) -> str:
        """The panel's own name, which no other panel has."""
        return self.kind.name

    @property
    def kind(self) -> type[Panel]:
        return getattr(importlib.import_module(f"kvlib.panels.{self.module}"), self.name)

    def stops(self) -> dict[str, list]:
        """The values of each offered input, in order."""
        inputs = {each.name: each for each in self.kind.inputs}
        return {name: list(values if values is not None else options(inputs[name])) for name, values in self.offered.items()}

    def settings(self) -> Iterator[dict]:
        """Every setting: a value for each offered input; the last input moves first."""
        stops = self.stops()
        for values in itertools.product(*stops.values()):
            yield dict(zip(stops, values, strict=True))

    def count(self) -> int:
        return math.prod(map(len, self.stops().values()))


def options(field) -> list:
    """The values that an input of few values has."""
    if isinstance(field, Toggle):
        return [False, True]
    if isinstance(field, Choice):
        return list(field.options.values())
    raise TypeError(f"{field.name}: say which stops the page offers")


def panel_at(twin: Twin, values: dict, panel: Panel | None = None) -> Panel:
    """The twin's panel at a setting; as one who sets every input by hand would see it."""
    panel = panel or twin.kind()
    inputs = {field.name: field for field in panel.inputs}
    texts = {name: inputs[name].text(value) for name, value in (values | twin.hidden(values)).items()}
    panel.raw = {name: field.text(field.default) for name, field in inputs.items()} | texts
    panel._refresh()
    return panel


class Pool:
    """Things that recur, each kept once."""

    def __init__(self):
        self.things, self._places = [], {}

    def place(self, thing) -> int:
        text = json.dumps(thing, ensure_ascii=False)
        if text not in self._places:
            self._places[text] = len(self.things)
            self.things.append(thing)
        return self._places[text]


def precompute(twin: Twin) -> dict:
    """All that the twin can show, as the page's script reads it (``assets/twin.js``)."""
    with debug_mode(False):     # the tests have Altair check each picture; here that would be most of the time
        return _precompute(twin)


def _precompute(twin: Twin) -> dict:
    panel, pools, places = twin.kind(), {}, {}

    def keep(name, thing):
        places.setdefault(name, []).append(pools.setdefault(name, Pool()).place(thing))

    for values in twin.settings():
        panel.view = panel.values = None    # a refused setting must not show what stood there before
        shown = panel_at(twin, values, panel)._shown()
        if shown["fault"]:
            raise RuntimeError(f"{twin.name} at {values}: {shown['fault']}")
        for name in SHOWN:
            keep(name, shown[name])
        for name in ("descriptions", "specs", "fills"):
            keep(name, [pools.setdefault(name + "-each", Pool()).place(each) for each in shown[name]])
        keep("tables", [(name, pools.setdefault("rows", Pool()).place(rows)) for name, rows in packed(shown["rows"]).items()])
    return head(twin) | {"places": places, "pools": {name: pool.things for name, pool in pools.items()}}


def head(twin: Twin) -> dict:
    """The controls of a twin, and what they start from."""
    panel = twin.kind()
    panel.reset()
    inputs, stops = {field.name: field for field in panel.inputs}, twin.stops()
    stood = {name: [inputs[name].text(value) for value in values] for name, values in stops.items()}
    shown = [field for field in panel.inputs if field.name in stops or field.name in twin.buttons]
    raw = {field.name: field.text(field.default) for field in shown}
    missing = [name for name, texts in stood.items() if raw[name] not in texts]
    if missing:
        raise ValueError(f"{twin.name} does not offer what its panel starts from: {', '.join(missing)}")
    asked = panel.predict
    keyed = type(twin.name, (Panel,), {"inputs": shown, "__module__": __name__})()
    return {
        "name": twin.key, "title": panel.title, "raw": raw, "key": str(keyed._key()), "moves": moves(twin, panel),
        "fields": [field_of(field, stops.get(field.name) or options(field)) for field in shown],
        "stops": list(stood.items()), "offered": {name: offer(inputs[name], values) for name, values in stops.items()},
        "predict": {} if asked is None else {
            "question": str(esc(asked.question)), "options": asked.options, "unit": asked.unit,
            "answer": str(asked.verdict(None, True)), "drawn": any("guess" in name for name in panel.view.rows or {})},
        "count": twin.count(), "says": str(says(twin, inputs, stops))}


def field_of(field, values) -> dict:
    """What the browser needs to draw the input with these stops alone."""
    told = field.describe() | {"wide": False, "row": False, "top": False}
    if isinstance(field, Number):
        told |= {"hint": offer(field, values), "slider": {
            "min": values[0], "max": values[-1], "step": 1, "decimals": field.decimals, "stops": values}}
    elif isinstance(field, Choice):
        told["options"] = [field.text(value) for value in values]
    return told


def offer(field, values) -> str:
    """The stops of an input in words."""
    texts = [field.text(value) for value in values]
    unit = f" {field.unit}" if field.unit else ""
    if len(texts) <= 12:
        return ", ".join(texts) + unit
    return f"{len(texts)} stops from {texts[0]} to {texts[-1]}{unit}"


def moves(twin: Twin, panel: Panel) -> dict:
    """What an input moves, as the panel moves it: {name: {its text, or "*" for any: {other name: text}}}."""
    inputs, found = {field.name: field for field in panel.inputs}, {}
    shown = {*twin.offered, *twin.buttons}

    def moved(name, **value):
        texts = panel.follow(name, SimpleNamespace(**{**vars(panel.values), **value})) or {}
        return {other: text if isinstance(text, str) else inputs[other].text(text)
                for other, text in texts.items() if other in shown and other != name}

    for name in sorted(shown):
        if name in twin.buttons:
            found[name] = {inputs[name].text(value): moved(name, **{name: value}) for value in options(inputs[name])}
        elif texts := moved(name):
            found[name] = {"*": texts}
    return found


def says(twin: Twin, inputs, stops):
    """What stands under the twin: the settings offered, and what the notebook adds."""
    named = "; ".join(f"{inputs[name].label}: {offer(inputs[name], values)}" for name, values in stops.items())
    return html("The settings of this control were worked out beforehand, by the same code. {}. The notebook adds {}.",
                named, twin.more)


def script(data: dict) -> str:
    """The table as a script that hands it to the page: packed, because a page opened from a folder may not fetch."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    whole = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return f'kvlibTwins.arrived({json.dumps(data["name"])}, "{whole}");\n'
