"""The knobs ranked: each turned by one step from a set-up of the reader's, applied and undone."""

from __future__ import annotations

from kvlib import catalog, charts
from kvlib.controls import (
    Choice, Col, Fraction, Panel, PowerOfTwo, Predict, Toggle, View, html, mark, strong, table,
)
from kvlib.panels.budget_facts import about, judge
from kvlib.panels.budget_pictures import tier
from kvlib.panels.parallel_facts import (
    APPLICABLE, CARD, KNOBS, SEVENTY, WEIGHTS, SetUp, default_batch, effects, facts_of, knob_models, outcome,
    peak_parts, tokens,
)
from kvlib.units import GiB

CHOOSE, KEEP, UNDO, UNDO_ALL = "choose a knob …", "keep", "undo the last", "undo all"
CARDS = ("H100 SXM 80GB", "A100 80GB SXM", "H200 SXM 141GB", "B200", "RTX PRO 6000 Blackwell 96GB", "L40S", "RTX 4090")
TIERS = tuple(step * 10**power for power in range(1, 6) for step in (1, 1.5, 2, 3, 5, 7))  # thousand tokens
OPTIONS = {"share 0.92 → 0.95": "gpu_memory_utilization", "an FP8 cache": "kv_cache_dtype",
           "8-bit weights": "quantized weights", "requests half as long": "max_model_len"}


class Knobs(Panel):
    """Eleven knobs from the set-up that stands in the controls, by the tokens that each brings."""

    name = "04-knobs"
    title = "What each knob brings, from where you stand"
    inputs = [
        Choice("apply", [CHOOSE, *APPLICABLE], CHOOSE, label="Apply a step",
               help="Turns that knob by the step in the table; the controls below follow."),
        Choice("undo", [KEEP, UNDO, UNDO_ALL], KEEP, style="buttons", label="Undo", help="Takes steps back."),
        Choice("model", knob_models(), SEVENTY, label="Model", help="Weights are computed from its config."),
        Choice("gpu", [name for name in CARDS if name in catalog.gpus()], CARD, label="Each GPU",
               help="By name; batch sizes follow vLLM's defaults for it."),
        Choice("tensor_parallel_size", [1, 2, 4, 8, 16], 4, style="buttons", label="GPUs (TP)",
               flag="--tensor-parallel-size", help="GPUs that share every layer."),
        PowerOfTwo("max_model_len", 32768, min=1024, max=131072, label="Longest request", unit="tokens",
                   flag="--max-model-len", help="Prompt and answer together."),
        Choice("kv_cache_dtype", {"auto": "auto", "FP8": "fp8"}, style="buttons", label="KV cache dtype",
               flag="--kv-cache-dtype", help="auto: 16 bits here."),
        Fraction("gpu_memory_utilization", 0.92, min=0.5, max=0.98, label="Share requested",
                 flag="--gpu-memory-utilization", help="Weights, working memory and cache together."),
        PowerOfTwo("max_num_batched_tokens", 8192, min=2048, max=65536, label="Batched tokens",
                   flag="--max-num-batched-tokens", help="Tokens that one step may compute; not below the next one."),
        PowerOfTwo("max_num_seqs", 1024, min=32, max=2048, label="Sequences", flag="--max-num-seqs",
                   help="Requests decoded at once."),
        Choice("weights", list(WEIGHTS), style="buttons", label="Weights", help="Computed from the config and the width."),
        Toggle("enforce_eager", False, label="No CUDA graphs", flag="--enforce-eager", help="Saves their memory."),
    ]
    predict = Predict(
        "Llama-3.3-70B on four H100s: an FP8 cache brings more tokens than 8-bit weights. And on two H100s, all else "
        "left as it is: which of these brings the most?", options=list(OPTIONS), answer="8-bit weights",
        because="They free almost 32 GiB on each GPU, where some 3 were left for the cache: 209,000 tokens. FP8 "
                "doubles the next to nothing that was there.")

    def __init__(self, **defaults):
        if "_history" not in self.__dict__:
            self._history = []
        super().__init__(**defaults)

    def reset(self):
        self._history = []
        super().reset()

    def follow(self, name, s):
        if name == "apply":
            return self._applied(s)
        if name == "undo":
            return self._undone(s)
        if name in ("model", "gpu"):
            batched, seqs = default_batch(s.model, s.gpu)
            return {"max_num_batched_tokens": batched, "max_num_seqs": seqs}
        return None

    def _applied(self, s):
        moved = {"apply": CHOOSE}   # it springs back, so that the same step can be asked for again
        here = _setup(s)
        step = next((each for each in effects(here) if each.knob == s.apply and each.after and each.sizes), None)
        if step is None:
            return moved
        self._history.append((s.apply, here))
        return moved | self._values(here, step.after)

    def _undone(self, s):
        moved = {"undo": KEEP}
        if s.undo == KEEP or not self._history:
            return moved
        if s.undo == UNDO_ALL:
            before, self._history = self._history[0][1], []
        else:
            before = self._history.pop()[1]
        return moved | self._values(_setup(s), before)

    def _values(self, before, after) -> dict:
        return {name: self._inputs[name].text(value) for name, value in vars(after).items()
                if value != getattr(before, name)}

    def chart(self):
        return ranks_spec(TIERS[-1])

    def compute(self, s):
        here = _setup(s)
        base = outcome(here)
        found = effects(here)
        now = tokens(base[1])
        gains = {each.knob: tokens(each.sizes[1]) - now for each in found if each.sizes}
        top = tier(1.35 * max([*gains.values(), 1]) / 1000, TIERS)
        least = least_harm(found, base)
        ordered = sorted(found, key=lambda each: -gains.get(each.knob, float("-inf")))
        items = [(each.knob, gains.get(each.knob, 0), _figure(each, base, least), _colour(each, gains)) for each in ordered]
        if here.tensor_parallel_size == 2 and self.guess:
            items = [(name, value, figure + " · your guess" * (name == OPTIONS[self.guess]), colour)
                     for name, value, figure, colour in items]
        verdict = judge(*base)
        applied = ", then ".join(step for step, _ in self._history)
        return View(
            answer=html("{} tokens now ({}), {} requests of {}. {} {}", strong(about(now)), _band(base),
                        _requests(base[1]), f"{here.max_model_len:,}", verdict.sentence, _advice(least, base)),
            rows={"ranks": [row | {"value": max(0, row["value"]) / 1000} for row in charts.ranks_rows(items)]},
            chart=ranks_spec(top),
            table=table([_cells(each, base) for each in ordered], [
                Col("knob", fmt="text"), Col("step", fmt="text"), Col("after", "tokens after"), Col("gain", "gain, in tokens"),
                Col("range", "gain over the band"), Col("requests", "requests after"), Col("gives", "gives up", "text")],
                caption=f"From {about(now)} tokens, by effect; reconstructed, computed from this set-up"),
            note=html("{} Activation peak by our fit to 44 launches of vLLM 0.19: {} {}",
                      f"Applied: {applied}." if applied else "Nothing applied yet.", what_it_moves(here),
                      "A range over the band is the gain where the reserve takes most, and where it takes least."),
            description="; ".join(f"{name}: {figure}" for name, _, figure, _ in items) + ".")


@charts.made_once("top")
def ranks_spec(top):
    """The ranked bars; the axis rests on fixed ends."""
    return charts.themed(charts.ranks(count=len(KNOBS), domain=(0, top), label_width=170, title="thousand tokens more"))


def _setup(s) -> SetUp:
    return SetUp(s.model, s.gpu, s.tensor_parallel_size, s.max_model_len, s.kv_cache_dtype, s.gpu_memory_utilization,
                 s.max_num_batched_tokens, s.max_num_seqs, s.weights, s.enforce_eager)


def least_harm(found, base):
    """The first step in order of harm that turns a refusal, or else brings a twentieth more tokens; None if none does."""
    for each in found:
        if each.after is None or not each.sizes:
            continue
        if not base[1].fits:
            if each.sizes[1].fits:
                return each
        elif tokens(each.sizes[1]) - tokens(base[1]) >= tokens(base[1]) / 20:
            return each
    return None


def _advice(least, base) -> str:
    if least is None:
        return "No single step passes: apply two." if not base[1].fits else "No step within reach brings a twentieth more."
    what = "that passes, at the usual reserve" if not base[1].fits else "that brings a twentieth more"
    return html("Least harm {}: {} ({}), which gives up {}.", what, strong(least.knob), least.step, least.gives_up)


def _colour(each, gains):
    if each.sizes is None or gains[each.knob] < 0:
        return "refused"
    return "kv"


def _figure(each, base, least) -> str:
    if each.sizes is None:
        return "vLLM refuses it"
    gain = tokens(each.sizes[1]) - tokens(base[1])
    if each.knob == "max_model_len":
        text = f"0; {_requests(base[1])} → {_requests(each.sizes[1])} requests"
    elif each.knob == "kv_cache_memory_bytes":
        text = "no range left"
    else:
        text = _signed(gain)
    return text + (" · least harm" if each is least else "")


def _cells(each, base) -> dict:
    cells = {"knob": each.knob, "step": each.step, "gives": each.gives_up}
    if each.sizes is None:
        return cells | {"gives": each.problem}
    gains = [tokens(new) - tokens(old) for new, old in zip(each.sizes, base, strict=True)]
    low, high = min(gains), max(gains)
    fixed = each.sizes[0].available_bytes == each.sizes[2].available_bytes
    spread = "no band left" if fixed else " to ".join(dict.fromkeys((_signed(low), _signed(high))))
    return cells | {"after": mark(about(tokens(each.sizes[1])), "computed" if fixed else "assumed"),
                    "gain": mark(_signed(gains[1]), "assumed"), "range": spread,
                    "requests": _requests(each.sizes[1])
                    + ("" if each.sizes[1].fits else ", refused")}


def _requests(sizing) -> str:
    return about(max(0.0, sizing.max_concurrency))


def _signed(value: int) -> str:
    """A change in tokens, to three figures."""
    if not value:
        return "0"
    return ("+" if value > 0 else "−") + about(abs(value))


def _band(sizes) -> str:
    low, high = about(tokens(sizes[0])), about(tokens(sizes[2]))
    return f"assumed: {low} to {high}"


def what_it_moves(setup: SetUp) -> str:
    """Which of the two batch flags decides the activation peak, in a sentence.

    >>> what_it_moves(SetUp())
    'sampler 1.90 GiB (max_num_seqs), forward pass 0.75 GiB (max_num_batched_tokens); the larger decides: max_num_seqs.'
    """
    sampler, forward = peak_parts(setup.model, setup.tensor_parallel_size, setup.max_num_seqs,
                                  setup.max_num_batched_tokens)
    parts = (f"sampler {sampler / GiB:.2f} GiB (max_num_seqs), forward pass {forward / GiB:.2f} GiB "
             "(max_num_batched_tokens)")
    if facts_of(setup.model)["moe"]:
        return f"{parts}; with experts the two add up, so both move it."
    flag = "max_num_seqs" if sampler > forward else "max_num_batched_tokens"
    return f"{parts}; the larger decides: {flag}."

