"""Notebook 07: layers that do not keep everything: windows, latent rows, states, and caches of fewer bits."""

from __future__ import annotations

import altair as alt

from kvlib import charts, load_model, size
from kvlib.capacity import bytes_per_token
from kvlib.controls import Choice, Col, Number, Panel, PowerOfTwo, Predict, Toggle, View, html, mark, strong, table
from kvlib.engine import Engine
from kvlib.errors import SizingError
from kvlib.panels.drawing import LAYERS, LINE, canvas, strip
from kvlib.panels.hybrid_setups import kept, last_version, readable
from kvlib.spec import attention_bytes_per_token
from kvlib.tables import gib
from kvlib.units import GiB, KiB, MiB

__all__ = ["CacheTypes", "LatentCopies", "LayerLens", "WindowCharge", "charge", "kept"]

OSS = load_model("gpt-oss-120b")
LENGTHS = [1 << power for power in range(8, 19)]  # 256 to 262,144 tokens
POOL = 32 * GiB
SHOWN_LINES = 3


def _curves(model) -> dict[str, tuple]:
    """One line for each kind of layer: what a sequence keeps there, by its length."""
    found = {}
    for part in kept(model):
        letter, words, meaning = LAYERS[part.kind]
        dash = {"kv": 0, "window": 1, "state": 2}.get(meaning, 0)
        found[words] = ([(length, part.bytes(length) / MiB) for length in LENGTHS], meaning, dash)
    return found


class LayerLens(Panel):
    """The layers of any model of the catalogue, and what a sequence of a length keeps in each kind."""

    name = "07-layer-lens"
    title = "What a sequence keeps, kind by kind (whole model, 16-bit cache)"
    inputs = [
        Choice("model", list(readable()), "gpt-oss-120b", label="Model", flag="config.json",
               help="Every model of the catalogue whose cache is known."),
        PowerOfTwo("tokens", 8_192, min=256, max=262_144, at_most=2**22, label="Length", unit="tokens",
                   help="Tokens of the sequence so far, prompt and answer."),
    ]
    predict = Predict(
        "gpt-oss-120b has 18 layers that look back 128 tokens and 18 that look back all the way. At 131,072 tokens, how "
        "many times more do the second kind hold?", answer=1024, unit="times", within=15,
        because="131,072 / 128: a window stops growing, and everything beside it does not.")

    def chart(self):
        base = alt.Chart(alt.NamedData("curves"))
        x = alt.X("tokens:Q", title="tokens of the sequence (log)",
                  scale=alt.Scale(type="log", base=2, domain=[LENGTHS[0], LENGTHS[-1]], nice=False, clamp=True))
        y = alt.Y("mib:Q", title="MiB of one sequence (log)",
                  scale=alt.Scale(type="log", domain=[0.01, 1_000_000], nice=False, clamp=True))
        colour = alt.Color("colour:N", scale=None, legend=None)
        lines = base.mark_line().encode(x=x, y=y, detail="series:N", color=colour, strokeDash=alt.StrokeDash(
            "dash:N", legend=None, scale=alt.Scale(domain=[0, 1, 2], range=[[1, 0], [6, 4], [2, 3]])))
        words = base.transform_filter("datum.label").mark_text(align="right", dy=-8, fontWeight="bold").encode(
            x=x, y=y, text="label:N")
        at = alt.Chart(alt.NamedData("at")).mark_rule(strokeDash=[2, 3]).encode(x=x)
        picture = (lines + words + at).properties(width=charts.WIDTH, height=230)
        return [canvas("layers", height=SHOWN_LINES * LINE + 2), picture]

    def compute(self, s):
        model = readable()[s.model]
        boxes, words = strip([layer.kind for layer in model.layers], columns=max(44, -(-len(model.layers) // SHOWN_LINES)))
        parts = kept(model)
        rows = [{"kind": LAYERS[part.kind][1], "layers": part.layers, "per_token": part.per_token or None,
                 "reach": f"{part.reach:,}" if part.reach else ("all" if part.per_token else "–"), "fixed": part.fixed or None,
                 "now": part.bytes(s.tokens)} for part in parts]
        total = sum(row["now"] for row in rows)
        growing = sum(part.per_token for part in parts if part.per_token and not part.reach)
        more = html("one more token adds {}", strong(gib(growing))) if growing else "one more token adds nothing, once its windows are full"
        return View(
            answer=html("{} hold {} of {}; {}.", f"{s.tokens:,} tokens", strong(gib(total)), s.model, more),
            rows={"layers": boxes, "layers_words": words,
                  "curves": charts.lines_rows(_curves(model), x="tokens", y="mib"), "at": [{"tokens": s.tokens}]},
            table=table(rows, [Col("kind", "kind of layer", "text"), Col("layers"), Col("per_token", "a token", "bytes"),
                               Col("reach", "looks back", "text"), Col("fixed", "a sequence", "bytes"),
                               Col("now", f"at {s.tokens:,} tokens", "bytes")]),
            description=[f"The {len(model.layers)} layers of {s.model}: " + ", ".join(
                f"{row['layers']} {row['kind']}" for row in rows) + ".",
                "Bytes of one sequence by its length: " + ", ".join(
                f"{row['kind']} {gib(row['now'])} at {s.tokens:,} tokens" for row in rows) + "."])


def charge(max_model_len: int, max_num_batched_tokens: int, async_scheduling: bool = True) -> dict:
    """What one request of gpt-oss-120b is charged for each of its tokens, bytes by kind of layer."""
    sizing = size(OSS, Engine(max_model_len=max_model_len, max_num_batched_tokens=max_num_batched_tokens,
                              async_scheduling=async_scheduling), available_bytes=POOL)
    block = sizing.bytes_per_block
    found = {group.kind: group.blocks_per_request * block / max_model_len for group in sizing.groups}
    return found | {"sizing": sizing}


class WindowCharge(Panel):
    """gpt-oss-120b: what a token adds, and what vLLM charges a request for it."""

    name = "07-window-charge"
    title = "gpt-oss-120b: the price of a token as vLLM charges it"
    inputs = [
        PowerOfTwo("max_model_len", 131_072, min=2_048, max=131_072, label="Longest request", unit="tokens",
                   flag="--max-model-len", help="The request that is charged for."),
        PowerOfTwo("max_num_batched_tokens", 8_192, min=1_024, max=32_768, label="Tokens a step", unit="tokens",
                   flag="--max-num-batched-tokens", help="What one step of the engine may run through the model."),
        Toggle("async_scheduling", True, label="Two steps in flight", flag="--async-scheduling",
               help="The next step is planned while one runs; both keep their tokens."),
    ]
    predict = Predict(
        "Growth is 36 KiB a token. A request of 131,072 tokens is charged 40.5 KiB for each of them. How many KiB for each "
        "token of a request of 8,192?", answer=lambda: sum(v for k, v in charge(8_192, 8_192).items() if k != "sizing") / KiB,
        unit="KiB", within=8, because="So short a request fits into the tokens in flight: the window layers cost as much "
                                      "as the full ones, and a block more.")

    def chart(self):
        base = alt.Chart(alt.NamedData("parts"))
        x = charts.axis_x("start", "KiB for each token of the request", (0, 120))
        bars = base.mark_bar(height=34).encode(x=x, x2="end:Q", y=alt.Y("bar:N", title=None, sort=None, scale=alt.Scale(
            domain=["grows", "charged"])), color=alt.Color("colour:N", scale=None, legend=None))
        words = base.mark_text(align="left", dx=5, fontWeight="bold").encode(
            x=alt.X("word:Q"), y=alt.Y("bar:N"), text="label:N", color=alt.Color("ink:N", scale=None, legend=None))
        return (bars + words + charts.guess_rule()).properties(width=charts.WIDTH - 60, height=130)

    def compute(self, s):
        found = charge(s.max_model_len, s.max_num_batched_tokens, s.async_scheduling)
        sizing, full, window = found["sizing"], found["full"] / KiB, found["sliding"] / KiB
        growth = bytes_per_token(OSS) / KiB
        blue, green = charts.COLOURS["window"], charts.COLOURS["kv"]

        def part(bar, start, end, label, colour):
            inside = (end - start) * 3.3 > 8 * len(label)    # pixels to a KiB, and of a letter
            return {"bar": bar, "start": start, "end": end, "label": label, "colour": colour, "word": start if inside else end,
                    "ink": charts.ink_on(colour) if inside else "currentColor"}

        parts = [part("grows", 0, growth, f"full {growth:.1f}", green), part("charged", 0, full, f"full {full:.1f}", green),
                 part("charged", full, full + window, f"window {window:.1f}", blue)]
        flight = sizing.plan.setup.tokens_in_flight
        rows = [{"kind": LAYERS[group.kind][1], "holds": ("every token" if group.kind == "full" else
                 f"127 + {flight:,} in flight, at most the request, and a block"), "blocks": group.blocks_per_request}
                for group in sorted(sizing.groups, key=lambda group: group.kind)]
        return View(
            answer=html("{} KiB for each token of a {}-token request: {} more than growth alone says.",
                        strong(f"{full + window:.2f}"), f"{s.max_model_len:,}", strong(f"{(full + window) / growth - 1:.0%}")),
            rows={"parts": parts, "guess": charts.guess_rows(self.guess)},
            note=html("From 32 GiB vLLM would print {} tokens.", strong(f"{sizing.kv_cache_tokens:,}")),
            table=table(rows, [Col("kind", "18 layers of", "text"), Col("holds", "reserves", "text"),
                               Col("blocks", "blocks of one request")]),
            description=f"Growth {growth:.0f} KiB a token; charged {full:.1f} KiB for full and {window:.1f} KiB for window layers.")


COMPARED = ["Llama-3.3-70B", "Qwen3-8B", "Qwen3-30B-A3B", "Qwen2.5-72B", "GLM-4.5-Air", "Phi-4-mini", "MiniCPM3-4B"]
SIZES = (1, 2, 4, 8, 16)


def per_gpu(model, tp: int, kv_cache_dtype: str) -> int | None:
    """Bytes of one token on each of ``tp`` GPUs, windows counted as if they grew; None where TP does not divide."""
    try:
        size(model, Engine(tensor_parallel_size=tp, kv_cache_dtype=kv_cache_dtype), available_bytes=POOL)
    except SizingError:
        return None
    dtype = "fp8" if kv_cache_dtype == "fp8" else model.dtype
    return sum(len(indices) * attention_bytes_per_token(layer, dtype, tp) for layer, indices in model.buckets.items())


class LatentCopies(Panel):
    """A token on each GPU: heads are dealt out, a latent row is copied."""

    name = "07-latent-copies"
    title = "One token on each GPU, as tensor parallelism grows"
    inputs = [
        Choice("model", COMPARED, "Llama-3.3-70B", label="Beside DeepSeek-V3", flag="config.json",
               help="A model that keeps keys and values head by head."),
        Choice("tensor_parallel_size", {str(n): n for n in SIZES}, 8, style="buttons", label="GPUs",
               flag="--tensor-parallel-size", help="GPUs that share one copy of the model."),
        Choice("kv_cache_dtype", {"16 bits": "auto", "fp8": "fp8"}, style="buttons", label="Cache", flag="--kv-cache-dtype",
               help="Bytes of each stored number: 2, or 1."),
    ]
    predict = Predict(
        "On one GPU a token of Llama-3.3-70B costs 320 KiB and one of DeepSeek-V3 68.6. On each of eight GPUs, which costs "
        "less?", answer="Llama-3.3-70B", options=["Llama-3.3-70B", "DeepSeek-V3", "both the same"],
        because="Eight KV heads go to eight GPUs, 40 KiB each. The latent row serves all heads, so every GPU needs it whole.")

    def chart(self):
        base = alt.Chart(alt.NamedData("bars"))
        y = alt.Y("tp:N", title="GPUs", sort=None, scale=alt.Scale(domain=[str(n) for n in SIZES]))
        offset = alt.YOffset("place:N", scale=alt.Scale(domain=["0", "1"]))
        x = charts.axis_x("kib", "KiB of one token on each GPU", (0, 600))
        color = alt.Color("colour:N", scale=None, legend=None)
        bars = base.mark_bar().encode(x=x, y=y, yOffset=offset, color=color, opacity=alt.Opacity("opacity:Q", scale=None))
        words = base.mark_text(align="left", dx=4).encode(x=x, y=y, yOffset=offset, text="label:N")
        return (bars + words).properties(width=charts.WIDTH - 40, height=5 * 44)

    def compute(self, s):
        latent, other = load_model_once("DeepSeek-V3"), load_model_once(s.model)
        bars, rows = [], []
        for tp in SIZES:
            row = {"tp": tp}
            for place, (name, model, colour) in enumerate((("DeepSeek-V3", latent, charts.COLOURS["kv"]),
                                                           (s.model, other, charts.COLOURS["weights"]))):
                each = per_gpu(model, tp, s.kv_cache_dtype)
                row[name] = each
                bars.append({"tp": str(tp), "place": str(place), "kib": (each or 0) / KiB, "colour": colour,
                             "opacity": 1 if tp == s.tensor_parallel_size else 0.45,
                             "label": f"{name} {each / KiB:,.4g}" if each else f"{name}: refused, TP must divide its heads"})
            rows.append(row)
        chosen = next(row for row in rows if row["tp"] == s.tensor_parallel_size)
        mine, theirs = chosen["DeepSeek-V3"], chosen[s.model]
        verdict = html("{} cannot be split over {} GPUs", s.model, chosen["tp"]) if theirs is None else \
            html("{} costs {}", s.model, strong(gib(theirs)))
        return View(
            answer=html("On each of {} GPUs a token of DeepSeek-V3 costs {}; {}.", chosen["tp"], strong(gib(mine)), verdict),
            rows={"bars": bars},
            table=table(rows, [Col("tp", "GPUs"), Col("DeepSeek-V3", "DeepSeek-V3 (latent)", "bytes"), Col(s.model, s.model, "bytes")],
                        highlight=SIZES.index(s.tensor_parallel_size)),
            description="KiB of one token on each GPU: " + "; ".join(bar["label"] + f" on {bar['tp']}" for bar in bars) + ".")


def load_model_once(name):
    """A model of the catalogue, read once."""
    return readable()[name]


TYPES = {"auto": "16 bits", "fp8": "fp8", "fp8_per_token_head": "fp8, scales a head", "int4_per_token_head": "int4, scales a head"}
QUANTIZED = ["Qwen3-8B", "gpt-oss-120b", "Qwen3.8-27B", "Gemma-4-26B-A4B", "Granite-4.0-H-Small", "Llama-3.1-8B", "DeepSeek-V3"]


class CacheTypes(Panel):
    """The same pool with keys and values in fewer bits: how much more it holds."""

    name = "07-cache-types"
    title = "The same pool, keys and values in fewer bits"
    inputs = [
        Choice("model", QUANTIZED, "Qwen3-8B", label="Model", flag="config.json", help="Whose cache is shrunk."),
        PowerOfTwo("max_model_len", 32_768, min=1_024, max=131_072, label="Longest request", unit="tokens",
                   flag="--max-model-len", help="Requests of this length are counted."),
        Number("available_gib", 24, min=4, max=80, label="Pool", unit="GiB", help="Memory for the cache on one GPU."),
    ]
    predict = Predict(
        "Qwen3.8-27B keeps its recurrent states in 16 and 32 bits whatever the cache type. Requests of 8,192 tokens: by "
        "what factor does an fp8 cache raise their number?",
        answer=lambda: requests("Qwen3.8-27B", "fp8", 8_192, 24) / requests("Qwen3.8-27B", "auto", 8_192, 24), unit="x",
        within=6, because="Only the attention half shrinks, and blocks grow to 1,568 tokens to fit the unshrunk state.")

    def chart(self):
        return charts.ranks("types", count=len(TYPES), domain=(0, 8), title="times as many as with 16 bits",
                            label_width=150, width=charts.WIDTH - 20)

    def compute(self, s):
        plain = requests(s.model, "auto", s.max_model_len, s.available_gib)
        rows, items = [], []
        for dtype, words in TYPES.items():
            count = requests(s.model, dtype, s.max_model_len, s.available_gib)
            times = count / plain if count is not None and plain else None
            rows.append({"type": words, "flag": dtype, "requests": count, "times": times})
            items.append((words, times or 0, f"{times:.2f}x: {count:,.2f}" if times is not None else "refused by vLLM", "kv"))
        shown = [f"{rows[1][key]:.2f}" if rows[1][key] is not None else "–" for key in ("requests", "times")]
        return View(
            answer=html("fp8 holds {} requests of {} tokens instead of {}: {} times as many.", strong(shown[0]),
                        f"{s.max_model_len:,}", f"{plain:.2f}", strong(shown[1])),
            rows={"types": [{**row, "slot": i} for i, (words, value, figure, meaning) in enumerate(items)
                            for row in charts.ranks_rows([(words, value, figure, meaning)])]},
            note=html("{}: check your quality metric before you rely on any of these.", mark("lossy", "assumed")),
            table=table(rows, [Col("type", "keys and values in", "text"), Col("flag", "--kv-cache-dtype", "text"),
                               Col("requests", "requests at once", ",.2f"), Col("times", "against 16 bits", ",.2f")]),
            description="Requests against a 16-bit cache: " + "; ".join(f"{w} {f}" for w, _, f, _ in items) + ".")


def requests(name: str, kv_cache_dtype: str, max_model_len: int, available_gib: float) -> float | None:
    """Requests of full length at once; None where vLLM refuses the cache type for this model."""
    model = readable()[name]
    try:
        return size(model, Engine(kv_cache_dtype=kv_cache_dtype, max_model_len=max_model_len, vllm_version=last_version(model)),
                    available_bytes=round(available_gib * GiB)).max_concurrency
    except SizingError:
        return None
