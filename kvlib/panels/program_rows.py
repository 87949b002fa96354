"""The sweep note's program as a panel: seven rows to edit, and rows of one's own."""

from __future__ import annotations

from functools import cache, lru_cache

import altair as alt

from kvlib import Engine, MemoryBudget, SizingError, bytes_per_token, catalog, charts, load_model, size
from kvlib.controls import Choice, Col, Fraction, Number, Panel, Predict, Rows, View, html, mark, strong, table
from kvlib.pool import plan
from kvlib.tables import reproduced
from kvlib.units import GiB, KiB, gib

NOTE_VERSION = "0.30"  # the release the sweep note was checked against
KV, REFUSED = charts.COLOURS["kv"], charts.COLOURS["refused"]

model_of = cache(load_model)


@lru_cache(maxsize=512)
def on_a_card(model, gpu_gib, count, gpu_memory_utilization, kv_cache_dtype, weights_gib, other_gib, **flags):
    """Size one row of the sweep note's program: GiB of one card, of all weights together, and of the rest per card.

    >>> on_a_card("Llama-3.1-8B", 24, 1, 0.92, "auto", 15.0, 0.8).num_gpu_blocks
    3215
    """
    engine = Engine(**{"vllm_version": NOTE_VERSION, "tensor_parallel_size": count, "kv_cache_dtype": kv_cache_dtype,
                       "gpu_memory_utilization": gpu_memory_utilization, **flags})
    memory = MemoryBudget(gib(gpu_gib), gib(weights_gib / count), non_torch_bytes=gib(other_gib))
    return size(model_of(model), engine, memory=memory)

ROW_IDS = ("C60", "C61", "C62", "C63", "C64", "C65", "C66")
FIELDS = ("model", "gpu_gib", "count", "gpu_memory_utilization", "kv_cache_dtype", "weights_gib", "other_gib")
PROGRAM = [dict(zip(FIELDS, row, strict=True)) for row in (
    ("Qwen2.5-1.5B", 24.0, 1, 0.92, "auto", 2.9, 0.8), ("Qwen2.5-1.5B", 24.0, 1, 0.50, "auto", 2.9, 0.8),
    ("Qwen2.5-1.5B", 24.0, 1, 0.92, "fp8", 2.9, 0.8), ("Llama-3.1-8B", 24.0, 1, 0.92, "auto", 15.0, 0.8),
    ("Llama-3.1-8B", 80.0, 1, 0.92, "auto", 15.0, 0.8), ("Llama-3.3-70B", 80.0, 2, 0.92, "auto", 131.5, 0.8),
    ("Llama-3.3-70B", 80.0, 4, 0.92, "auto", 131.5, 0.8))]


@cache
def sizable_models() -> list[str]:
    """The catalogue's models that can be sized with the default flags and whose weights are on file, by name."""
    found = []
    for name in catalog.models():
        try:
            plan(model_of(name), Engine(vllm_version=NOTE_VERSION))
            catalog.weights(name)
        except SizingError:
            continue
        found.append(name)
    return found


def as_printed(row: dict, s) -> str:
    """A row of the program's output, from its tokens a KiB on: what ``data/notes`` keeps."""
    return (f"{_kib(row):.1f} KiB, {s.available_bytes / GiB:.1f} GiB, {s.kv_cache_tokens}, {s.max_concurrency:.1f}x")


def _kib(row: dict) -> float:
    flags = {"tensor_parallel_size": row["count"], "kv_cache_dtype": row["kv_cache_dtype"]}
    return bytes_per_token(model_of(row["model"]), Engine(vllm_version=NOTE_VERSION, **flags)) / KiB


def verdict(s) -> str:
    """How a sizing fares in vLLM's memory checks, in a few words."""
    return {"passes": "passes", "max_model_len": "refused", "weights_do_not_fit": "the weights do not fit",
            "free_memory": "too little is free", "no_cache_memory": "no room for a cache",
            "max_num_seqs": "too many sequences"}[s.outcome]


@cache
def picture(count: int) -> dict:
    """The spec for that many rows: a dot each on a scale of tens, and a rule at one request."""
    x = alt.X("x:Q", title="requests of the model's full length that fit at once (each step ten times more)",
              scale=alt.Scale(type="log", domain=[0.01, 1000], nice=False, clamp=True),
              axis=alt.Axis(values=[0.01, 0.1, 1, 10, 100, 1000], format="~g"))
    y = alt.Y("row:O", axis=None, scale=alt.Scale(domain=list(range(1, count + 1))))
    base = alt.Chart(alt.NamedData("dots"))
    one = alt.Chart(alt.NamedData("line")).mark_rule(strokeWidth=1.5).encode(x=x)
    stem = base.mark_rule(strokeOpacity=0.35).encode(x=x, x2="one:Q", y=y)
    dot = base.mark_point(filled=True, size=110, opacity=1).encode(
        x=x, y=y, color=alt.Color("colour:N", scale=None, legend=None), shape=alt.Shape("shape:N", scale=None))
    figures = [base.transform_filter(f"datum.side == '{side}'").mark_text(align=side, dx=dx, fontWeight="bold").encode(
        x=x, y=y, text="figure:N") for side, dx in (("left", 10), ("right", -10))]
    name = base.mark_text(align="right", dx=-8, limit=210).encode(x=alt.value(0), y=y, text="name:N")
    layers = alt.layer(one, stem, dot, *figures, name, charts.guess_rule(field="x"))
    return charts.themed(layers.properties(width=860, height=count * 26 + 64))


class Program(Panel):
    """The sweep note's seven rows, to edit and to add to."""

    name = "03-program"
    title = "The program's seven rows, and your own"
    inputs = [Rows("programs", [
        Choice("model", sizable_models(), "Qwen2.5-1.5B", label="Model"),
        Number("gpu_gib", 24.0, min=1, max=400, step=0.01, at_least=0.01, label="One GPU", unit="GiB"),
        Number("count", 1, min=1, max=64, label="GPUs (TP)"),
        Fraction("gpu_memory_utilization", 0.92, min=0.01, label="Utilization"),
        Choice("kv_cache_dtype", {"16-bit": "auto", "fp8": "fp8"}, label="KV cache"),
        Number("weights_gib", 2.9, min=0.1, max=4000, step=0.01, at_least=0, label="Weights, all", unit="GiB"),
        Number("other_gib", 0.8, min=0, max=100, step=0.01, label="Other, each", unit="GiB"),
    ], PROGRAM, label="Set-ups", help="Add a row, pick a model (its weights are filled in), type your card.")]
    predict = Predict("Give row 4, Llama-3.1-8B on 24 GiB, an fp8 cache. What concurrency will it show?",
                      answer=lambda: on_a_card("Llama-3.1-8B", 24, 1, 0.92, "fp8", 15.0, 0.8).max_concurrency,
                      unit="x", within=5, shown=lambda v: f"{v:.2f}x",
                      because="The cache holds twice the tokens, which is still less than one request of 131,072.")

    def compute(self, s):
        done = [self._sized(number, vars(row)) for number, row in enumerate(s.programs, 1)]
        refused = [number for number, (_, sized) in enumerate(done, 1) if not sized.fits]
        notes = self._checked(done)
        guess = None if self.guess is None else min(1000, max(0.01, self.guess))
        which = "" if not refused else f": row {refused[0]}" if len(refused) == 1 else \
            ": rows " + ", ".join(map(str, refused[:-1])) + f" and {refused[-1]}"
        return View(
            answer=html("{} of {} set-ups hold less than vLLM asks for and would be refused{}.",
                        strong(len(refused)), len(done), which),
            rows={"dots": [self._dot(number, row, sized) for number, (row, sized) in enumerate(done, 1)],
                  "line": [{"x": 1}], "guess": charts.guess_rows(guess, field="x")},
            table=table([self._cells(number, row, sized) for number, (row, sized) in enumerate(done, 1)], [
                Col("row", "row, model", "text"), Col("set-up", fmt="text"),
                Col("memory", "weights + other", unit="GiB"), Col("kib", "a token", ".1f", "KiB"),
                Col("kv", "for the cache", unit="GiB"), Col("tokens"), Col("x", "concurrency"), Col("at", unit="tokens"),
                Col("check", "memory checks", "text")], footer=notes),
            chart=picture(len(done)),
            description="; ".join(f"row {n} {row['model']} {sized.max_concurrency:.2f}x" for n, (row, sized)
                                  in enumerate(done, 1)),
            note=html("{}: 0.8 GiB a card for all but weights and cache is a guess, so all that follows from it is too.",
                      mark("Dotted", "assumed")))

    def follow(self, name, s):
        """A row whose model was changed takes that model's weights, where they are on file."""
        before = [vars(row) for row in self.values.programs] if self.values else []
        rows, moved = [dict(vars(row)) for row in s.programs], False
        for row, old in zip(rows, before, strict=False):
            if row["model"] != old["model"] and row["weights_gib"] == old["weights_gib"]:
                try:
                    row["weights_gib"] = round(catalog.weights(row["model"]).bytes / GiB, 2)
                except SizingError:
                    continue
                moved = True
        if len(rows) != len(before) or not moved:
            return None
        return {"programs": rows}

    @staticmethod
    def _sized(number, row):
        try:
            return row, on_a_card(**row)
        except SizingError as problem:
            raise SizingError(f"Row {number}: {problem}.") from None

    @staticmethod
    def _dot(number, row, sized):
        value = sized.max_concurrency
        return {"row": number, "x": max(value, 0.01), "one": 1, "name": f"{number}  {row['model']}",
                "figure": f"{value:.2f}x" if sized.fits else f"refused: {value:.2f}x",
                "side": "right" if value < 1 else "left",
                "colour": KV if sized.fits else REFUSED, "shape": "circle" if sized.fits else "cross"}

    @staticmethod
    def _cells(number, row, sized):
        kind = "16-bit" if row["kv_cache_dtype"] == "auto" else row["kv_cache_dtype"]
        whole = '<span style="white-space:nowrap">{}</span>'
        card = f"{row['gpu_gib']:g} GiB × {row['count']}, {row['gpu_memory_utilization']:.2f}, {kind}"
        return {"row": html(whole, f"{number}  {row['model']}"), "set-up": html(whole, card),
                "memory": html(whole.format("{} + {}"), f"{row['weights_gib']:g}", mark(f"{row['other_gib']:g}", "assumed")),
                "kib": _kib(row), "kv": mark(f"{sized.available_bytes / GiB:.1f}", "assumed"),
                "tokens": mark(f"{sized.kv_cache_tokens:,}", "assumed"),
                "x": mark(f"{sized.max_concurrency:.1f}x", "assumed"), "at": sized.max_model_len,
                "check": verdict(sized)}

    @staticmethod
    def _checked(done):
        printed = {tuple(row.values()): catalog.note_row(row_id)["printed"].split(" at ")[0]
                   for row, row_id in zip(PROGRAM, ROW_IDS, strict=True)}
        found = [(number, printed.get(tuple(row[f] for f in FIELDS)), as_printed(row, sized))
                 for number, (row, sized) in enumerate(done, 1)]
        asked = [item for item in found if item[1] is not None]
        own = len(found) - len(asked)
        said = reproduced(sum(want == got for _, want, got in asked), len(asked))
        for number, want, got in asked:
            if want != got:
                said += f"; row {number}: the note prints {want}, here {got}"
        return said + (f"; {own} of your own" if own else "")

