"""Two panels that the tests of controls, store and browser use."""
from kvlib import charts
from kvlib.controls import (
    Choice, Col, Fraction, Number, Panel, PowerOfTwo, Predict, Rows, TextBox, Toggle, View, html, mark, strong, table,
)
from kvlib.errors import SizingError

import altair as alt


class Fit(Panel):
    """681,600 tokens shared by requests of one length."""

    name = "test-fit"
    title = "How many requests fit"
    inputs = [PowerOfTwo("max_model_len", 40960, min=1024, max=131072, label="Context length", unit="tokens",
                         flag="--max-model-len", help="Longest request, prompt and answer.")]
    predict = Predict("At 4,096 tokens each, how many fit?", answer=166.4, unit="requests", within=10,
                      because="Ten times shorter, ten times as many.")

    def chart(self):
        bar = alt.Chart(alt.NamedData("bar")).mark_bar(color=charts.COLOURS["kv"], height=24)
        bar = bar.encode(x=charts.axis_x("value", "requests at once", (0, 200)), y=alt.value(30))
        return (bar + charts.guess_rule()).properties(width=charts.WIDTH, height=110)

    def compute(self, s):
        fit = 681600 / s.max_model_len
        return View(
            answer=html("{} requests of {} tokens fit at once.", strong(f"{fit:.2f}"), f"{s.max_model_len:,}"),
            rows={"bar": [{"value": fit}], "guess": charts.guess_rows(self.guess)},
            table=table([{"tokens": s.max_model_len, "requests": fit}], [Col("tokens"), Col("requests", fmt=".2f")]),
            description=f"A bar of {fit:.2f} requests.")


class Names(Panel):
    """Words beside the plot that grow while its bar stays."""

    name = "test-names"
    inputs = [Number("letters", 1, min=1, max=20, step=1, label="Letters")]

    def chart(self):
        bar = alt.Chart(alt.NamedData("bar")).mark_bar().encode(x=charts.axis_x("value", "requests at once", (0, 200)), y="name:N")
        return bar.properties(width=charts.WIDTH, height=110)

    def compute(self, s):
        return View(answer=f"{s.letters} letters", rows={"bar": [{"name": "M" * s.letters, "value": 100}]},
                    description=f"A bar named by {s.letters} letters.")


class Budget(Panel):
    """Every kind of input, two pictures, an input that follows another, and a refusal."""

    name = "test-budget"
    title = "Where the memory goes"
    inputs = [
        Choice("gpu", {"GB10": 121.63, "H100 80GB": 79.1, "L4": 22.0}, label="GPU", help="By name."),
        Number("total_gib", 121.63, min=8, max=200, step=0.01, unit="GiB", label="GPU memory"),
        Fraction("gpu_memory_utilization", 0.92, label="Share requested", flag="--gpu-memory-utilization"),
        Choice("kv_cache_dtype", ["auto", "fp8"], style="buttons", label="KV cache dtype", flag="--kv-cache-dtype"),
        Toggle("enforce_eager", False, label="No CUDA graphs", flag="--enforce-eager"),
        TextBox("label", "mine", label="Name of this plan"),
        Rows("programs", [TextBox("model", "x", label="Model"),
                          PowerOfTwo("length", 4096, min=1024, max=131072, label="Length", unit="tokens")],
             [{"model": "Qwen3-8B", "length": 40960}, {"model": "Another", "length": 8192}], label="Programs"),
    ]

    def chart(self):
        return [charts.memory_bar(limit=200), charts.blocks(count=40)]

    def follow(self, name, s):
        return {"total_gib": s.gpu} if name == "gpu" else None

    def compute(self, s):
        weights, reserve = 15.27, 2.0 if s.enforce_eager else 3.0
        left = s.total_gib * s.gpu_memory_utilization - weights - reserve
        if left <= 0:
            raise SizingError(f"Nothing is left for the KV cache: {-left:.2f} GiB are missing; raise the share.")
        token_bytes = 73728 if s.kv_cache_dtype == "fp8" else 147456
        used = min(40, int(left / 4))
        parts = [("weights", weights, "weights"), ("reserve", reserve, "reserve"), ("KV cache", left, "kv"),
                 ("not requested", s.total_gib * (1 - s.gpu_memory_utilization), "unused")]
        fits = [{"model": r.model, "length": r.length, "fit": left * 2**30 / token_bytes / r.length} for r in s.programs]
        return View(
            answer=html("{}: {} of KV cache after {} of weights and {} of reserve.", s.label, strong(f"{left:.2f} GiB"),
                        mark(f"{weights} GiB", "measured"), mark(f"{reserve:.1f} GiB", "assumed")),
            rows={"bar": charts.memory_bar_rows(parts, limit=200),
                  "blocks": charts.blocks_rows(["A"] * used + [None] * (40 - used))},
            table=table(fits, [Col("model"), Col("length", unit="tokens"), Col("fit", "requests at once", ".2f")]),
            description=[f"A bar: KV cache {left:.2f} GiB.", f"{used} of 40 blocks in use."],
            note="The reserve is assumed.")


def unpacked(tables):
    """Rows that ``kvlib.live.packed`` packed, as the page unpacks them."""
    def values(column, count):
        if isinstance(column, dict):
            return [column["values"][place] for place in column["places"]]
        return column if isinstance(column, list) else [column] * count

    return {name: [dict(zip(each["columns"], row, strict=True))
                   for row in zip(*(values(column, each["count"]) for column in each["columns"].values()), strict=True)]
            for name, each in tables.items()}


def types(panel, **texts):
    """The message a browser sends when these boxes change; it has seen what Python put into the others."""
    panel.card.set_state({"raw": dict(panel.card.raw) | texts, "seen": panel.card.patch.get("number", 0)})
