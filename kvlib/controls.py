'''Panels: a card with an answer, inputs, pictures and a table, and a question to answer first.

Author's guide
==============
A panel is a class: inputs, a picture without data, and ``compute``. The example is complete::

    import altair as alt
    from kvlib import charts
    from kvlib.controls import Panel, PowerOfTwo, Predict, View, html, strong, table

    class Fit(Panel):
        name = "01-fit"                      # stable key: what was typed is kept under it
        title = "How many requests fit"
        inputs = [PowerOfTwo("max_model_len", 40960, min=1024, max=131072, label="Context length",
                             unit="tokens", flag="--max-model-len", help="Longest request, prompt and answer.")]
        predict = Predict("At 4,096 tokens each, how many requests fit?", answer=166.4, unit="requests",
                          within=10, because="Ten times shorter, ten times as many.")

        def chart(self):                     # sent once: fixed size, fixed domain, no data
            bar = alt.Chart(alt.NamedData("bar")).mark_bar(color=charts.COLOURS["kv"])
            bar = bar.encode(x=charts.axis_x("value", "requests at once", (0, 200)))
            return (bar + charts.guess_rule()).properties(width=charts.WIDTH, height=110)

        def compute(self, s):                # s.max_model_len is an int; raise SizingError to refuse
            fit = 681600 / s.max_model_len
            return View(
                answer=html("{} requests of {} tokens fit at once.", strong(f"{fit:.2f}"), f"{s.max_model_len:,}"),
                rows={"bar": [{"value": fit}], "guess": charts.guess_rows(self.guess)},
                table=table([{"tokens": s.max_model_len, "requests": fit}]),
                description=f"A bar of {fit:.2f} requests.")

    Fit()                                    # last line of the cell; may be shown again anywhere

* Inputs: ``PowerOfTwo Number Fraction Choice Toggle TextBox Rows`` (see :mod:`kvlib.inputs`).
* ``chart`` returns an Altair chart, a list of them, or None. ``View(chart=...)`` replaces it: a redraw,
  unless it comes from a function with ``charts.made_once`` and only the end of an axis or a title differs.
* ``answer``, ``note`` and cells: plain strings are escaped; ``html(template, *values)`` builds markup.
* ``mark(text, "measured" | "assumed" | "computed")`` underlines a figure by where it comes from.
* ``compute`` raising ``SizingError`` (or ValueError from ``TextBox(read=...)``) becomes the red sentence;
  the last good picture stays, greyed. Any other exception is named there too, and raised when
  ``KVLIB_STRICT=1`` (tests).
* ``follow(self, name, s)`` may return ``{"other_input": value}``: what moves when ``name`` moves, e.g. the
  memory when the GPU changes. It is asked only when the reader changed ``name``.
* ``View(actions=[Action(key, label, words)])`` offers buttons; ``act(self, key, s)`` returns what the inputs take then,
  and each can be undone. ``View(takeaways=[(key, label)])`` offers what ``take(self, key, s)`` gives as (file name, text),
  to the clipboard where the name is empty.
* ``ahead = True`` where ``compute`` takes more than a step may and remembers its answers (``lru_cache``): once it is quiet, the
  other stops of the slider that moved last are worked out.
* ``self.guess``: the recorded guess, or None. A ``Predict`` also stands alone as the last line of a cell.
* Making the same class again returns the same panel, so what was typed survives re-running the cell;
  a fresh kernel starts from the defaults. ``panel.set(max_model_len=8192)`` does what typing does,
  ``panel.values`` and ``panel.view`` are the last good state and its view.
* Beside panels: ``charts.static(chart, alt="...")`` shows a finished Altair chart as a picture with words, and
  ``table(rows, [Col("model"), Col("bytes", fmt="bytes"), Col("x", "concurrency", ".2f")], caption=...,
  footer=reproduced(7, 7))`` a table; both as the last line of a cell.
* A slider of a thousand stops is dull under the arrow keys: choose ``step`` so that twenty presses cross it.
* Keep texts short: the answer one or two lines, the picture at most ``charts.WIDTH`` wide.
'''

from __future__ import annotations

import os
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import traitlets as T

from kvlib import tables
from kvlib.ahead import Ahead, nearest_first
from kvlib.errors import SizingError
from kvlib.inputs import (
    Choice, Fraction, Input, InputError, Number, PowerOfTwo, Rows, TextBox, Toggle, read_number,
)
from kvlib.live import Heard, changes, clean_rows, packed, spec_of, vega_reference, web
from kvlib.tables import Col, Html, Table, code, esc, gib, html, mark, size, steps_table, strong, table

__all__ = [
    "Action", "Panel", "Predict", "View", "Choice", "Fraction", "Input", "Number", "PowerOfTwo", "Rows", "TextBox", "Toggle",
    "Col", "Html", "Table", "code", "esc", "gib", "html", "mark", "size", "steps_table", "strong", "table", "forget",
]
HOW = ("Run this notebook in JupyterLab to move the controls. VS Code: choose the kernel in .venv and run the cell. "
       "Colab, GitHub, nbviewer: download the repository and start python run.py.")


def _strict() -> bool:
    return os.environ.get("KVLIB_STRICT") == "1"


@dataclass
class View:
    """What a panel shows for one state. Only ``answer`` is needed."""

    answer: str
    rows: dict | None = None       # name in alt.NamedData -> list of dicts, or a DataFrame
    table: object = None           # a Table, Html, or a list of them
    description: str | list = ""   # what the picture shows, with its figures; one per picture if several
    note: str = ""                 # small print under the picture
    chart: object = None           # replaces the panel's chart(s) for this state
    actions: tuple = ()            # Actions offered as buttons under the answer; see Panel.act
    takeaways: tuple = ()          # (key, label) of what can be copied or saved; see Panel.take


class Action(NamedTuple):
    """A button that changes inputs: what it says, and the words beside it (gain, what it gives up)."""

    key: str
    label: str
    words: str = ""


class Card(Heard):
    """The browser's half of a panel. ``raw`` holds what stands in the boxes; the rest is shown."""

    _esm = web("chart.js", "fields.js", "card.js")
    _css = web("card.css")

    vega = T.Unicode().tag(sync=True)
    title = T.Unicode().tag(sync=True)
    fields = T.List().tag(sync=True)
    key = T.Unicode().tag(sync=True)
    # Not echoed: an echo that comes after a patch would put the old values back into the boxes.
    raw = T.Dict().tag(sync=True, echo_update=False)
    patch = T.Dict().tag(sync=True)
    seen = T.Int().tag(sync=True, echo_update=False)   # the newest patch in ``raw`` when the browser sent it
    specs = T.List().tag(sync=True)
    fills = T.List().tag(sync=True)      # for each spec, what its blanks hold
    rows = T.Dict().tag(sync=True, to_json=packed)
    changed_rows = T.Dict().tag(sync=True)
    descriptions = T.List().tag(sync=True)
    answer = T.Unicode().tag(sync=True)
    note = T.Unicode().tag(sync=True)
    table = T.Unicode().tag(sync=True)
    error = T.Unicode().tag(sync=True)
    fault = T.Unicode().tag(sync=True)   # an unexpected exception, for the tests that look for one
    bad = T.List().tag(sync=True)
    stale = T.Bool(False).tag(sync=True)
    predict = T.Dict().tag(sync=True)
    actions = T.List().tag(sync=True)
    takeaways = T.List().tag(sync=True)
    undo = T.Unicode().tag(sync=True)    # the last action that can be undone

    def send_state(self, key=None):
        """Send changed traits. ``raw`` goes only with the whole state: what Python changes in it
        travels as ``patch``, so that an answer in flight never undoes a newer edit. ``rows`` travel as
        ``changed_rows``: what changed of them, and its number."""
        if key is not None:
            key = {key} if isinstance(key, str) else set(key)
            key -= {"raw", "rows"}
            if not key:
                return
        super().send_state(key)


class Predict:
    """A question to answer before the control is moved.

    ``answer`` is the true value (or a function without arguments giving it), a number or one of
    ``options``; it reaches the browser only after a guess or "Show the answer". ``within`` is the
    distance, in per cent, that counts as close. ``because`` is shown with the answer.
    """

    def __init__(self, question, *, answer, unit="", options=None, within=5, because="", name=None, shown=None):
        self.question, self.unit, self.within = question, unit, within
        self.options = None if options is None else [str(o) for o in options]
        self._answer, self._because, self.name, self._shown = answer, because, name, shown
        self._panel = None

    @property
    def answer(self):
        return self._answer() if callable(self._answer) else self._answer

    def show(self, value) -> str:
        """A value as it stands in the sentence."""
        if self._shown:
            return str(self._shown(value))
        text = value if isinstance(value, str) else tables.number(value)
        return f"{text} {self.unit}".strip()

    def read(self, text):
        """The guess behind the typed text; raises InputError."""
        if self.options:
            if text in self.options:
                return text
            raise InputError("Choose one of the answers first.")
        number = read_number(text)
        if number is None:
            raise InputError(f"My guess: found {str(text).strip()[:40] or 'nothing'}, expected a number such as 20.")
        return int(number) if number == int(number) else float(number)

    def verdict(self, guess, revealed) -> Html:
        """What is said after a guess or a reveal; nothing before."""
        if guess is None and not revealed:
            return Html("")
        answer = self.answer
        because = self._because() if callable(self._because) else self._because
        if guess is None:
            return html("It is {}. {}", strong(self.show(answer)), because)
        if self.options:
            right = guess == str(answer)
        else:
            right = abs(guess - answer) <= abs(answer) * self.within / 100
        said = "and it is" if right and guess == answer else "close: it is" if right else "it is"
        return html("You said {}; {} {}. {}", self.show(guess), said, strong(self.show(answer)), because)

    def _alone(self):
        if self._panel is None:
            name = self.name or "predict:" + str(self.question)[:60]
            kind = type("Question", (Panel,), {"name": name, "predict": self, "__module__": __name__})
            self._panel = kind()
        return self._panel

    @property
    def guess(self):
        """The recorded guess, or None."""
        return self._alone().guess

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self._alone()._repr_mimebundle_(include, exclude)


_KEPT: dict[str, SimpleNamespace] = {}    # what was typed and guessed, by panel name, for this kernel
_LIVE: dict[str, Panel] = {}              # the newest panel of each name


def forget(name=None) -> None:
    """Forget what was typed in one panel, or in all; the next one starts from its defaults."""
    for store in (_KEPT, _LIVE):
        store.clear() if name is None else store.pop(name, None)


class Panel(T.HasTraits):
    """State, result, view. See the module's guide; authors write a subclass."""

    name = ""
    title = ""
    inputs: list | tuple = ()
    predict: Predict | None = None
    undoable: dict = {}     # input -> what is said of the values that follow it, where they can be undone
    ahead = False           # its answer takes long and is remembered: worked out along a slider while nobody waits
    error = T.Unicode()     # the red sentence, empty when all is well
    view = T.Any(None, allow_none=True)      # the last good View
    values = T.Any(None, allow_none=True)    # the last good state

    def __new__(cls, **defaults):
        live = _LIVE.get(cls.name)
        if live is not None and type(live) is cls and live._given == defaults:
            return live
        return super().__new__(cls)

    def __init__(self, **defaults):
        if "_given" in self.__dict__:      # the same panel shown again
            return
        super().__init__()
        self._given = dict(defaults)
        self._inputs = {i.name: i for i in self.inputs}
        unknown = set(defaults) - set(self._inputs)
        if unknown:
            raise TypeError(f"{type(self).__name__}: no input named {', '.join(sorted(unknown))}")
        self._defaults = {n: i.text(defaults.get(n, i.default)) for n, i in self._inputs.items()}
        kept = _KEPT.get(self.name) if self.name else None
        kept = kept or SimpleNamespace(raw={}, guess=None, typed="", revealed=False)
        self._kept = kept
        self.raw = {n: kept.raw.get(n, text) for n, text in self._defaults.items()}
        if self.name:
            _KEPT[self.name], _LIVE[self.name] = kept, self
        self._card = None
        self._heard = dict(self.raw)
        self._problem = ""
        self._fault, self._bad, self._specs = "", [], None
        self._patches, self._telling = 0, False
        self._ahead = Ahead(self._work_out)
        self._packed = {}   # the rows as the browser has them
        self._done = []     # (label, {input: (before, after)}) of the actions that can be undone
        self._told = []     # (number, values) of the patches that the browser may not have seen yet
        self._refresh()

    # -- what authors write ----------------------------------------------------------------

    def chart(self):
        """The picture(s) without data, or None."""
        return None

    def compute(self, s) -> View:
        """The view of a state."""
        return View(answer="")

    def follow(self, name, s) -> dict | None:
        """Values that other inputs take because the reader changed ``name``."""
        return None

    def act(self, key, s) -> dict:
        """Values that the inputs take when the action ``key`` is applied; it can be undone."""
        return {}

    def settle(self, moved, back, s) -> dict:
        """Values that other inputs take when, of the inputs that an undone action ``moved``, only those of ``back`` came back."""
        return {}

    def take(self, key, s) -> tuple[str, str]:
        """The takeaway ``key``: a file's name (empty: the clipboard) and its text."""
        return "", ""

    # -- what tests and "your turn" cells use ------------------------------------------------

    @property
    def guess(self):
        """The recorded guess, or None."""
        return self._kept.guess

    def set(self, **values) -> None:
        """Put values into the inputs, as typing them would."""
        unknown = set(values) - set(self._inputs)
        if unknown:
            raise TypeError(f"{type(self).__name__}: no input named {', '.join(sorted(unknown))}")
        texts = {n: v if isinstance(v, str) else self._inputs[n].text(v) for n, v in values.items()}
        self._change(texts, patch=texts)

    def reset(self) -> None:
        """Back to the defaults; the guess is forgotten too."""
        self._kept.guess, self._kept.typed, self._kept.revealed, self._problem = None, "", False, ""
        self._done = []
        self.raw = dict(self._defaults)
        self._remember()
        self._refresh(patch=self.raw)

    def apply(self, key) -> None:
        """Apply an action of the view, as its button does."""
        label = next((action.label for action in self.view.actions if action.key == key), None)
        if label is None:
            return
        texts = {n: v if isinstance(v, str) else self._inputs[n].text(v) for n, v in self.act(key, self.values).items()}
        before = dict(self.raw)
        self._change(texts, patch=texts)
        moved = {n: (before[n], now) for n, now in self.raw.items() if now != before[n]}
        if moved:
            self._done.append((label, moved))
        self._refresh()

    def undo(self) -> None:
        """Take the last action back; what was typed since then stays."""
        if self._done:
            _, moved = self._done.pop()
            back = {n: was for n, (was, now) in moved.items() if self.raw[n] == now}
            self.raw |= back
            if back:
                values = self.settle(moved, back, self._read()[0])
                settled = {n: v if isinstance(v, str) else self._inputs[n].text(v) for n, v in values.items()}
                self.raw |= settled
                back |= settled
            self._remember()
            self._refresh(patch=back)

    def record(self, text) -> None:
        """Record a guess, as the button does."""
        self._kept.typed = str(text)
        try:
            self._kept.guess, self._problem = self.predict.read(str(text)), ""
        except InputError as problem:
            self._problem = str(problem)
        self._refresh()

    def reveal(self) -> None:
        """Show the answer to the question."""
        self._kept.revealed, self._problem = True, ""
        self._refresh()

    @property
    def card(self) -> Card:
        """The widget; made when first shown."""
        if self._card is None or self._card.comm is None:
            shown = self._shown()
            self._card = Card(
                vega=vega_reference() if shown["specs"] else "", title=self.title, key=str(self._key()),
                fields=[i.describe() for i in self._inputs.values()], raw=dict(self.raw), **shown)
            self._heard, self._told, self._packed = dict(self.raw), [], packed(self._card.rows)
            self._card.observe(self._heard_edit, "raw")
            self._look_ahead(next((n for n, i in self._inputs.items() if i.kind == "number" and i.slider), ""))
            self._card.on_msg(self._heard_button)
        return self._card

    @property
    def specs(self) -> list:
        """The specs of the picture(s), made once."""
        if self._specs is None:
            self._specs = self._spec_list(self.chart())
        return self._specs

    # -- inside --------------------------------------------------------------------------------

    @staticmethod
    def _spec_list(chart):
        if chart is None:
            return []
        return [spec_of(c) for c in (chart if isinstance(chart, (list, tuple)) else [chart])]

    def _heard_edit(self, change):
        if self._telling:
            return
        # What Python put into the boxes comes back with the next edit; it is no edit of the reader.
        for number, values in self._told:
            if number <= self._card.seen:
                self._heard |= values
        self._told = [each for each in self._told if each[0] > self._card.seen]
        changed = {n: v for n, v in change["new"].items() if n in self._inputs and v != self._heard.get(n)}
        self._heard = dict(change["new"])
        if changed:
            self._change(changed)

    def _heard_button(self, _widget, content, _buffers):
        do = content.get("do")
        if do == "guess":
            self.record(content.get("text", ""))
        elif do == "reveal":
            self.reveal()
        elif do == "reset":
            self.reset()
        elif do == "act":
            self.apply(content.get("key", ""))
        elif do == "undo":
            self.undo()
        elif do == "rows":
            self._send_rows(self._packed, whole=True)
        elif do == "take":
            self._hand_over(content.get("key", ""))

    def _hand_over(self, key):
        try:
            name, text = self.take(key, self.values)
        except SizingError as problem:
            self._card.send({"take": key, "problem": str(problem)})
        else:
            self._card.send({"take": key, "name": name, "text": text})

    def _change(self, texts, patch=None):
        start = self.raw
        self.raw = self.raw | texts
        patch = dict(patch or {})
        for name in texts:
            moved, before = self._moved_by(name), self.raw
            self.raw = before | moved
            patch |= moved
            undone = {n: ((start if n == name else before)[n], v) for n, v in moved.items() if v != before[n]}
            if name in self.undoable and undone:
                own = {name: (start[name], self.raw[name])} if start[name] != self.raw[name] else {}
                self._done.append((self.undoable[name], own | undone))
        self._remember()
        self._refresh(patch=patch)
        if self._card is not None:
            self._look_ahead(next(reversed(texts), ""))

    def _moved_by(self, name):
        try:
            self._inputs[name].parse(self.raw[name])
        except InputError:
            return {}
        state, _, _ = self._read()
        try:
            moved = self.follow(name, state) or {}
        except SizingError:
            return {}
        return {n: v if isinstance(v, str) else self._inputs[n].text(v) for n, v in moved.items()}

    def _look_ahead(self, name):
        """Once nobody waits, work out what other stops of this input would show."""
        if not self.ahead:
            return
        self._ahead.stop()
        field = self._inputs.get(name)
        if field is not None and field.kind == "number" and field.slider and not self.error:
            values = nearest_first(field.every_stop(), getattr(self.values, name))
            self._ahead.begin((field, field.text(value)) for value in values)

    def _work_out(self, stop):
        """Compute, and drop, what the panel would show at another stop of a field."""
        field, text = stop
        state = SimpleNamespace(**vars(self.values) | {field.name: field.parse(text)})
        try:
            for name, value in (self.follow(field.name, state) or {}).items():
                setattr(state, name, self._inputs[name].parse(value if isinstance(value, str) else self._inputs[name].text(value)))
            self.compute(state)
        except SizingError:
            pass

    def _remember(self):
        self._kept.raw = {n: r for n, r in self.raw.items() if r != self._defaults[n]}

    def _read(self):
        state, problems, bad = SimpleNamespace(), [], []
        for name, field in self._inputs.items():
            try:
                setattr(state, name, field.parse(self.raw[name]))
            except InputError as problem:
                setattr(state, name, getattr(self.values, name, field.default))
                problems.append(str(problem))
                bad.append(name)
        return state, problems, bad

    def _refresh(self, patch=None):
        state, problems, self._bad = self._read()
        error, self._fault, raised = " ".join(problems), "", None
        if not problems:
            try:
                view = self.compute(state)
                self.values, self.view = state, view
            except SizingError as problem:
                error = str(problem)
            except Exception as problem:
                error = f"This panel made a mistake of its own ({type(problem).__name__}: {problem})."
                self._fault, raised = f"{type(problem).__name__}: {problem}", problem
        self.error = error
        if self._card is not None:
            self._tell(patch)
        if raised is not None and _strict():
            raise raised

    def _tell(self, patch):
        self._telling = True
        try:
            with self._card.hold_sync():
                for name, value in self._shown().items():
                    setattr(self._card, name, value)
                before, self._packed = self._packed, packed(self._card.rows)
                if self._packed != before:
                    self._send_rows(changes(before, self._packed))
                self._card.raw = dict(self.raw)
                if patch:
                    self._patches += 1
                    self._told.append((self._patches, dict(patch)))
                    self._card.patch = {"number": self._patches, "values": patch}
        finally:
            self._telling = False

    def _send_rows(self, tables, whole=False):
        number = self._card.changed_rows.get("number", 0) + 1
        self._card.changed_rows = {"number": number, "tables": tables, "whole": whole}

    def _shown(self) -> dict:
        view = self.view or View(answer="")
        specs = self.specs if view.chart is None else self._spec_list(view.chart)
        words = view.description if isinstance(view.description, list) else [view.description]
        return {
            "answer": str(esc(view.answer)), "note": str(esc(view.note)), "table": str(tables.styled_by_sheet(_joined(view.table))),
            "rows": clean_rows(view.rows), "specs": [spec.template or spec for spec in specs],
            "fills": [list(map(list, spec.fills)) for spec in specs], "descriptions": [str(w) for w in words],
            "error": self.error, "fault": self._fault, "bad": list(self._bad), "stale": bool(self.error),
            "predict": self._asked(), "undo": self._done[-1][0] if self._done else "",
            "actions": [{"key": a.key, "label": a.label, "words": str(esc(a.words))} for a in view.actions],
            "takeaways": [{"key": key, "label": label} for key, label in view.takeaways],
        }

    def _asked(self) -> dict:
        ask, kept = self.predict, self._kept
        if ask is None:
            return {}
        verdict = self._problem or ask.verdict(kept.guess, kept.revealed)
        return {
            "question": str(esc(ask.question)), "options": ask.options, "unit": ask.unit, "given": kept.typed,
            "cleared": kept.guess is None and not kept.typed, "verdict": str(esc(verdict)),
            "problem": bool(self._problem),
        }

    def _key(self) -> Html:
        if not self._inputs:
            return Html("")
        rows = [{"control": i.label, "unit": i.unit or "–", "range": i.range_text() or "–",
                 "flag or field": code(i.flag) if i.flag else "–", "meaning": i.help or "–"}
                for i in self._inputs.values()]
        columns = [Col(k, fmt="text") for k in ("control", "unit", "range", "flag or field", "meaning")]
        marks = tables.legend()
        return html(
            "{}<p>Sliders: arrow keys go one stop, Home and End to the ends. Boxes: type any value of the range, "
            "Enter takes it; arrow up and down go one stop. Reset brings back the first values. Underlines: {}.</p>",
            Table(tuple(columns), tuple(rows), left=frozenset(c.key for c in columns)).html, marks)

    def fallback(self) -> Html:
        """The panel without a browser: question, answer, table, and what to do."""
        parts = []
        if self.predict is not None:
            parts.append(html("<p><em>{}</em></p>", self.predict.question))
        view = self.view
        if view is not None and view.answer:
            parts.append(html("<p>{}</p>", view.answer))
        if self.error:
            parts.append(html("<p><strong>{}</strong></p>", self.error))
        if view is not None:
            shown = view.table if isinstance(view.table, (list, tuple)) else [view.table]
            parts += [Html(t._repr_html_()) if isinstance(t, Table) else esc(t) for t in shown if t is not None]
            if view.note:
                parts.append(html("<p><small>{}</small></p>", view.note))
        parts.append(html("<p><small>{}</small></p>", HOW))
        return Html("\n".join(parts))

    def plain(self) -> str:
        """The panel in plain text."""
        import html as _html
        import re

        view = self.view
        parts = [self.predict.question if self.predict is not None else "", view.answer if view else "", self.error]
        if view is not None:
            shown = view.table if isinstance(view.table, (list, tuple)) else [view.table]
            parts += [tables.as_text(t) for t in shown if isinstance(t, Table)]
            words = view.description if isinstance(view.description, list) else [view.description]
            parts += words
        return "\n".join(_html.unescape(re.sub(r"<[^>]+>", "", str(p))) for p in parts if p)

    def _repr_mimebundle_(self, include=None, exclude=None):
        from kvlib import charts

        bundle = self.card._repr_mimebundle_()
        data, meta = bundle if isinstance(bundle, tuple) else (bundle, {})
        data = dict(data)
        if self._card.specs:
            data |= charts.picture(list(map(charts.filled, self._card.specs, self._card.fills)), self._card.rows, "")
        data["text/html"], data["text/plain"] = str(self.fallback()), self.plain()
        if "image/png" in data:
            meta = dict(meta) | {"image/png": charts.about(data, " ".join(self._card.descriptions))}
        return data, meta

    def __repr__(self):
        return self.plain()


def _joined(shown) -> Html:
    if shown is None:
        return Html("")
    if isinstance(shown, Table):
        return shown.html
    if isinstance(shown, (list, tuple)):
        return Html("".join(_joined(s) for s in shown))
    if hasattr(shown, "_repr_html_") and not isinstance(shown, str):
        return Html(shown._repr_html_())
    return esc(shown)


