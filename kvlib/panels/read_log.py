"""Notebook 05: a start-up log, pasted or by its path, with every figure recomputed and the memory drawn."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

from kvlib import SizingError, catalog, charts, explain, load_model, read_log
from kvlib.controls import Choice, Panel, Predict, TextBox, View, html
from kvlib.log_choices import budget_of, choices
from kvlib.panels.log_tables import (
    answer,
    choices_table,
    diff_table,
    launches_table,
    lines_table,
    proves,
)
from kvlib.units import GiB
from kvlib.vllm_log import Launch

MOST = 4_000_000  # characters of a paste; a notebook server ends a connection at messages of about 10 MB
PASTED, FILE = "the log pasted below", "the file named below"
CRASHES = [("131,072", 131_072, 22.08, 5.17), ("65,536", 65_536, 22.08, 5.17), ("32,768", 32_768, 22.08, 5.17)]


def crash_loop() -> str:
    """A pod that was started three times, each time with a shorter length. Written by hand, after real wording."""
    parts = []
    for number, (_, length, requested, available) in enumerate(CRASHES):
        core = f"(EngineCore pid={7 + number * 90}) "
        parts += [f"(APIServer pid={1 + number * 90}) INFO 10-05 09:{number}0:00 [utils.py:253] non-default args: "
                  f"{{'model': 'meta-llama/Llama-3.1-8B-Instruct', 'max_model_len': {length}}}",
                  f"{core}INFO 10-05 09:{number}0:09 [core.py:93] Initializing a V1 LLM engine (v0.30.0) with config: "
                  f"model='meta-llama/Llama-3.1-8B-Instruct', dtype=torch.bfloat16, max_seq_len={length}, "
                  "tensor_parallel_size=1, kv_cache_dtype=auto, device_config=cuda",
                  f"{core}INFO 10-05 09:{number}0:10 Initial free memory: 23.28 GiB; Requested memory: 0.920000 (util), {requested} GiB",
                  f"{core}INFO 10-05 09:{number}1:00 [model_runner.py:408] Model loading took 14.99 GiB memory and 41.2 seconds",
                  f"{core}INFO 10-05 09:{number}1:30 [gpu_worker.py:551] Available KV cache memory: {available} GiB"]
        sized = _llama(length, available)
        parts += [f"{core}{'ERROR' if 'ValueError' in line else 'INFO'} 10-05 09:{number}1:31 [core.py:1] {line}"
                  for line in sized.log_lines()[1:]]
    return "\n".join(parts) + "\n"


@lru_cache(maxsize=8)
def _llama(length: int, available: float):
    from kvlib import Engine, size
    return size(load_model("Llama-3.1-8B"), Engine(vllm_version="0.30", max_model_len=length), available_bytes=round(available * GiB))


@lru_cache(maxsize=1)
def samples() -> dict[str, tuple[str, str | None, dict]]:
    """Logs to begin with: text, model where the log names none, flags that it does not show."""
    return {
        "GB10 note: Qwen3-8B": (catalog.log_text("qwen3-8b-gb10"), "Qwen3-8B", {"vllm_version": "0.28"}),
        "hybrid note: Qwen3.8-27B": (catalog.log_text("qwen3.8-27b-hybrid"), "Qwen3.8-27B",
                                     {"tensor_parallel_size": 2, "kv_cache_dtype": "fp8", "vllm_version": "0.28"}),
        "sweep note: Qwen2.5-1.5B": ("Available KV cache memory: 18.4 GiB\n" + catalog.log_text("llama-tp-sweep-success"),
                                     "Qwen2.5-1.5B", {"vllm_version": "0.30"}),
        "sweep note: refused": (catalog.log_text("llama-tp-sweep-refused"), "Llama-3.1-8B", {"vllm_version": "0.30"}),
        "a crash loop": (crash_loop(), None, {}),
    }


@charts.made_once("limit")
def _bar(limit: float) -> dict:
    """The memory bar's spec."""
    return charts.themed(charts.memory_bar(limit=limit))


def _config(text: str):
    if not text.strip():
        return None
    try:
        return load_model(text)
    except SizingError as problem:
        raise ValueError(str(problem)) from None


def _number(text: str) -> int | None:
    if text.strip().lower() in ("", "last"):
        return None
    if not text.strip().isdecimal() or len(text.strip()) > 6 or int(text) < 1:
        raise ValueError(f"found {text.strip()[:40]}, expected last or a number from 1")
    return int(text)


@lru_cache(maxsize=4)
def _read(text: str):
    return read_log(text)


class ReadLog(Panel):
    """Paste a log: a row for each figure, the picture of the memory, and choices where it was refused."""

    name = "05-read-log"
    title = "Read a start-up log"
    inputs = [
        Choice("log", [*("GB10 note: Qwen3-8B", "hybrid note: Qwen3.8-27B", "sweep note: Qwen2.5-1.5B", "sweep note: refused",
                         "a crash loop"), PASTED, FILE], "GB10 note: Qwen3-8B", label="Log",
               help="An example, or your own: pasting or naming a file selects it."),
        Choice("model", ["as the log names it", "the config pasted below", *catalog.models()], "as the log names it", label="Model",
               help="Whose cache is recomputed."),
        TextBox("launch", "last", read=_number, label="Launch", help="last, or its number: 1 is the first in the log."),
        TextBox("path", "", label="Path of a log file", wide=True, most=4_096, help="On the machine where this notebook runs; of any size."),
        TextBox("text", "", lines=7, wide=True, most=MOST, label="Paste a log, or drop its file here",
                instead="give the path of the file in the field above instead", help="All of it, or a few lines."),
        TextBox("config", "", lines=3, wide=True, read=_config, label="Paste a config.json, or drop it here", help="Of a model that the catalogue lacks."),
    ]
    predict = Predict(
        "The sweep note's refusal prints 6.31 GiB available and a longest length of 51,440 tokens. Llama-3.1-8B takes 2 MiB a "
        "block of 16. To which memory does that length belong?", options=["6.31 GiB", "6.28 GiB", "6.43 GiB"],
        answer="6.28 GiB", because="3,215 blocks of 2 MiB are 6.28 GiB. Choose that log and read the reason.")

    def follow(self, name, s):
        if name == "text" and s.text.strip():
            return {"log": PASTED, "launch": "last"}
        if name == "path" and s.path.strip():
            return {"log": FILE, "launch": "last"}
        if name == "config" and s.config is not None:
            return {"model": "the config pasted below"}
        return {"launch": "last", "model": "as the log names it"} if name == "log" else None

    def chart(self):
        return _bar(128)

    def compute(self, s):
        log, flags, model = self._log(s)
        if not log.launches:
            raise SizingError("No line of vLLM's start-up was found in this log: paste the lines from “Model loading took” to "
                              "“KV cache size”, or the error.")
        number = s.launch or len(log.launches)
        if number > len(log.launches):
            raise SizingError(f"Launch: found {number}, but this log holds {len(log.launches)}.")
        launch = log.launches[number - 1]
        x = explained(log, launch, self._model(s, model), flags)
        parts, limit, words = memory_parts(x)
        shown = [lines_table(x)]
        if launch.refusal:
            shown.append(choices_table(choices(x)))
        if len(log.launches) > 1:
            shown.append(launches_table(log, number))
            if number > 1:
                shown.append(diff_table(log.launches[number - 2], launch, f"What changed from launch {number - 1} to {number}"))
        shown.append(proves(x))
        return View(answer=answer(x, number, len(log.launches)), rows={"bar": charts.memory_bar_rows(parts, limit=limit)},
                    chart=_bar(limit), table=[each for each in shown if each is not None],
                    description=words, note="Nothing you paste leaves this computer, and none of it is stored in the notebook.")

    @staticmethod
    def _log(s):
        if s.log == PASTED:
            if not s.text.strip():
                raise SizingError("Paste a log: the box below is empty.")
            return _read(s.text), {}, None
        if s.log == FILE:
            path = Path(s.path.strip().strip("'\"")).expanduser()
            if not s.path.strip() or not path.is_file():
                raise SizingError(f"Path of a log file: {s.path.strip()[:80] or 'nothing'} is not a file on the machine where this notebook runs.")
            return read_log(path), {}, None
        text, model, flags = samples()[s.log]
        return _read(text), flags, model

    @staticmethod
    def _model(s, model):
        if s.model == "the config pasted below":
            if s.config is None:
                raise SizingError("Paste a config.json: the box below is empty.")
            return s.config
        return model if s.model == "as the log names it" else s.model

    @property
    def _own(self) -> bool:
        """Is something of the reader's own in it?"""
        return any(str(self.raw[name]).strip() for name in ("text", "path", "config"))

    def fallback(self):
        return html("<p>{}</p>", "A pasted log is not kept in the notebook. Run it in JupyterLab to read one.") if self._own else super().fallback()

    def plain(self):
        return "A log of the reader's own is shown." if self._own else super().plain()

    def _repr_mimebundle_(self, include=None, exclude=None):
        data, meta = super()._repr_mimebundle_(include, exclude)
        if self._own:
            data.pop("image/png", None)
            meta = {key: value for key, value in meta.items() if key != "image/png"}
        return data, meta


def explained(log, launch: Launch, model=None, flags=None):
    """:func:`kvlib.explain` with flags that the log does not show added to those it does."""
    engine = None
    if flags:
        from kvlib.explanation import engine_of
        engine = engine_of(launch).replace(**flags)
    return explain(log, model=model, engine=engine, launch=launch)


def memory_parts(x):
    """(parts of the bar, its end in GiB, words) for one GPU, from what the log prints."""
    launch = x.launch
    pool = min((printed.value for printed in launch.available_kv_cache_gib), default=None)
    if pool is None and launch.refusal and launch.refusal.kind == "max_model_len" and launch.refusal.available_gib:
        pool = launch.refusal.available_gib.value
    weights = max((printed.value for printed in launch.weights_gib), default=None)
    budget = None
    if x.model is not None and x.engine is not None:
        try:
            budget = budget_of(launch, x.model, x.engine, [])
        except SizingError:
            budget = None
    total = budget.total_bytes / GiB if budget else None
    needed = launch.refusal.needed_gib.value if launch.refusal and launch.refusal.kind == "max_model_len" and launch.refusal.needed_gib else 0
    parts = []
    if weights is not None:
        parts.append(("weights", weights, "weights"))
    if launch.runtime_gib is not None and total:
        parts.append(("runtime reserve", launch.runtime_gib.value, "reserve"))
    elif budget and pool is not None and weights is not None:
        parts.append(("runtime reserve", max(0.0, budget.peak_activation_bytes / GiB), "reserve"))
    if pool is not None:
        parts.append(("KV cache", max(0.0, pool), "kv"))
    used = sum(part[1] for part in parts)
    if total and total > used:
        parts.append(("not requested", total - used, "unused"))
    if needed and pool is not None and needed > pool:
        parts.append(("missing for one request", needed - max(0.0, pool), "refused"))
    end = sum(part[1] for part in parts)
    if not parts:
        return [("no memory is printed", 1.0, "unused", "–")], 1, "The log prints no memory."
    step = 10 ** math.floor(math.log10(max(end, 0.1)))
    limit = next(m * step for m in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15) if m * step >= end)
    words = "Where the memory of one GPU went: " + ", ".join(f"{name} {amount:.2f} GiB" for name, amount, _ in parts) + "."
    return parts, limit, words
