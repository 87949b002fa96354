"""Notebook 06: a model, a command, a card, a log; one verdict, what would help, and what to take along.

The command is the one truth about flags: a control that stands for a flag rewrites it there, and follows it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from types import SimpleNamespace

from kvlib import catalog
from kvlib.command import engine_from_flags, read_command
from kvlib.controls import Action, Choice, Fraction, Panel, PowerOfTwo, TextBox, Toggle, View, html, strong
from kvlib.engine import KV_CACHE_DTYPES, Engine
from kvlib.errors import ConfigError, SizingError
from kvlib.budget import model_of, written
from kvlib.fit import Fit, fit, launch_of
from kvlib.hub import download_config
from kvlib.improve import card_map, improvements, needs
from kvlib.memory import TERMS, at
from kvlib.panels import own_pictures as pictures
from kvlib.panels import own_tables as tables
from kvlib.panels.budget_pictures import MEMORY_TIERS, bar_rows, bar_spec, tier
from kvlib.resolve import resolve
from kvlib.serve_line import serve_line, with_flags
from kvlib.tables import Html
from kvlib.take_along import MARK, figures, holds, save, saved_fields, ticket, to_csv, weights_words
from kvlib.units import GiB
from kvlib.verdict import NOT_CHECKED

FLAGS = ("max_model_len", "tensor_parallel_size", "gpu_memory_utilization", "kv_cache_dtype")
TYPED = ("free_gib", "weights_gib", "peak_activation_gib", "non_torch_gib", "cuda_graph_gib")
WEIGHTS = {"as the config says": None, "16 bits": "none", "FP8": "fp8", "int8": "int8", "4 bits (AWQ, GPTQ)": "awq",
           "MXFP4": "mxfp4", "NVFP4": "nvfp4"}
_ALIKE = {"int4": "awq", "gptq": "awq"}     # counted alike
VERSIONS = tuple(f"0.{minor}" for minor in range(33, 17, -1))
MAP, LENGTHS, COMPARE = "which card?", "requests by length", "set-ups kept"
TAKEAWAYS = (("command", "Copy the command"), ("ticket", "Copy for the ticket"), ("json", "Save the set-up"),
             ("csv", "Save the figures (CSV)"))
CHIPS = 4


def _gib(text: str) -> float | None:
    """The figure in a box that may be empty. Raises ValueError with what to type."""
    text = text.strip().removesuffix("GiB").strip().replace(",", "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"found {text[:40]!r}; type a number of GiB, such as 3.2, or leave it empty") from None
    if not abs(value) < 1e5:
        raise ValueError(f"found {text[:40]!r}; type a number of GiB, such as 3.2, or leave it empty")
    return value


def _typed(name: str, label: str, help: str) -> TextBox:
    return TextBox(name, "", read=_gib, label=label, unit="GiB", placeholder="GiB, if known", help=help, row=True)


class SizeYourOwn(Panel):
    """The tweaker's panel. See the module."""

    name = "06-size-your-own"
    ahead = True
    title = "Will it fit? A model, a command, a card"
    inputs = [
        TextBox("config", "Qwen3-30B-A3B", top=True, label="1 · Model", suggestions=catalog.models(), instead="give its path",
                help="A name of the catalogue (type to search), a path to a config.json or checkpoint folder, the JSON itself, "
                     "or a set-up saved here. Files can be dropped."),
        TextBox("command", "vllm serve Qwen/Qwen3-30B-A3B --max-model-len 32768", lines=3, top=True, label="2 · Command",
                help="A vllm serve line, Docker or Kubernetes arguments, or a log's non-default args. The controls rewrite it."),
        TextBox("log", "", lines=3, top=True, label="3 · Start-up log, if there is one", placeholder="paste it, or drop the file",
                help="What it measured takes the place of what is assumed."),
        Choice("gpu", list(catalog.gpus()), "RTX 4090", label="GPU", help="With the memory its driver reports."),
        PowerOfTwo("max_model_len", 32_768, min=1_024, max=131_072, label="Longest request", unit="tokens", flag="--max-model-len",
                   help="Prompt and answer together."),
        PowerOfTwo("tensor_parallel_size", 1, min=1, max=16, at_most=1_024, label="GPUs (TP)", flag="--tensor-parallel-size",
                   help="Over how many GPUs each layer is split."),
        Fraction("gpu_memory_utilization", 0.92, min=0.5, max=0.98, step=0.01, at_least=0.01, at_most=1.0, label="Share of the GPU",
                 flag="--gpu-memory-utilization", help="What vLLM may use of each GPU's memory."),
        Choice("kv_cache_dtype", list(KV_CACHE_DTYPES), "auto", label="KV cache dtype", flag="--kv-cache-dtype",
               help="How keys and values are stored."),
        Choice("quantization", WEIGHTS, None, label="Weights stored in", help="What the checkpoint holds, if not what its config says."),
        PowerOfTwo("tokens", 4_096, min=1_024, max=131_072, label="One of your requests", unit="tokens",
                   help="What an everyday request takes, prompt and answer."),
        PowerOfTwo("requests", 8, min=1, max=256, at_most=100_000, label="How many at once", unit="requests",
                   help="For the way back: what so many of them need."),
        Choice("show", [LENGTHS, MAP, COMPARE], LENGTHS, style="buttons", label="Second picture",
               help="Requests at once over their length; all cards and splits; the set-ups kept."),
        _typed("free_gib", "Free at start", "Memory free when vLLM starts, where others use the GPU too (GB10). Empty: not checked."),
        _typed("weights_gib", "Weights on each GPU", "From the line \"Model loading took\"."),
        _typed("peak_activation_gib", "Activations", "The peak of the profile run."),
        _typed("non_torch_gib", "Non-torch memory", "Communication buffers and the CUDA context."),
        _typed("cuda_graph_gib", "CUDA graphs", "The estimate that is subtracted."),
        Choice("vllm_version", VERSIONS, "0.33", label="vLLM", row=True, help="Whose rules are followed; a log's own version wins."),
        Toggle("download", False, label="Fetch configs from the Hub", row=True, help="Off: no request leaves this machine. On: a name such as "
               "owner/model that the catalogue lacks is fetched, with the package huggingface_hub. No code of the model is run."),
    ]

    def chart(self):
        return [bar_spec(32), pictures.lengths_spec()]

    # What follows what

    def follow(self, name, s):
        if name == "config":
            return self._reopened(s) or self._model_named(s)
        if name == "command":
            moved = self._model_of(s)
            return self._flags_of(_with(s, moved), s.command) | moved
        if name == "log":
            return self._from_log(s)
        if name in FLAGS:
            command = with_flags(_command(s, s.command), **{name: getattr(s, name)})
            return {"command": command} | _changed(s, self._flags_of(s, command), {*FLAGS} - {name})
        if name in ("gpu", "vllm_version", "download"):
            return self._flags_of(s, s.command)
        return None

    def _flags_of(self, s, command: str) -> dict:
        """What the controls show of a command: its flags, and vLLM's choice where it names none."""
        engine = _engine(_command(s, command)).replace(gpu=s.gpu, vllm_version=s.vllm_version)
        shown = {"tensor_parallel_size": engine.tensor_parallel_size, "kv_cache_dtype": engine.kv_cache_dtype,
                 **({"max_model_len": engine.max_model_len} if (engine.max_model_len or 0) > 0 else {}),
                 **({"gpu_memory_utilization": engine.gpu_memory_utilization} if engine.gpu_memory_utilization else {})}
        try:
            setup = resolve(_loaded(s), engine)
        except SizingError:
            return shown
        return shown | {"max_model_len": setup.max_model_len, "gpu_memory_utilization": setup.gpu_memory_utilization}

    def _model_named(self, s) -> dict:
        """A model picked from the catalogue goes into the command too."""
        try:
            name = catalog.model_name(s.config)
        except SizingError:
            return self._flags_of(s, s.command)
        engine, other = read_command(s.command) if s.command.strip() else (Engine(), None)
        if other and (other.model or "").rsplit("/", 1)[-1].lower().startswith(name.lower()):   # -Instruct, -it, …: theirs is kept
            return self._flags_of(s, s.command)
        hub = catalog.model_config(name)["_source"]["hf_id"]
        command = serve_line(engine, other._replace(model=hub) if other else None, hub)
        return {"command": command} | self._flags_of(s, command)

    def _model_of(self, s) -> dict:
        """A command that names a model of the catalogue moves the first box."""
        named = read_command(s.command)[1].model if s.command.strip() else None
        try:
            name = catalog.model_name(named) if named else None
        except SizingError:
            return {}
        return {"config": name} if name and name != s.config else {}

    def _from_log(self, s) -> dict:
        """A log's own model, flags and version; what stood there can be had back."""
        if not s.log.strip():
            return {}
        launch = launch_of(s.log)
        if not launch.flags:
            return {}
        engine, other = engine_from_flags(launch.flags, launch.model)
        command = serve_line(engine, other)
        moved = {"command": command}
        try:
            moved["config"] = catalog.model_name(launch.model or "")
        except SizingError:
            pass
        version = ".".join((launch.vllm_version or "").split(".")[:2])
        if version in VERSIONS:
            moved["vllm_version"] = version
        return moved | self._flags_of(_with(s, moved), command)

    def _reopened(self, s) -> dict | None:
        """The inputs that a saved set-up stands for; None where the text is none."""
        if not _is_saved(s.config):
            return None
        asked = _saved_here(s.config)
        config = asked.get("config") or ""
        moved = {"config": config if isinstance(config, str) else json.dumps(config), "command": asked.get("command", ""),
                 "log": asked.get("log", ""), "quantization": _stored(asked.get("quantization")), "vllm_version": asked["vllm_version"],
                 **{name: f"{asked[name]!r}" if name in asked else "" for name in TYPED}}
        moved |= {"gpu": catalog.gpu(asked["gpu"]).name} if "gpu" in asked else {}
        return moved | self._flags_of(_with(s, moved), moved["command"])

    undoable = {"log": "take the log's flags", "config": "take the model"}

    # The answer

    def compute(self, s) -> View:
        found = _fit(s)
        chips = _chips(found)
        bar = pictures.bar_parts(found)
        limit = tier(max(at_most(found), 1), MEMORY_TIERS)
        rows, second = self._second(s, found)
        need = needs(found, s.requests, min(s.tokens, found.high.max_model_len))
        shown = [tables.foretold_table(found), tables.terms_table(found),
                 tables.needs_table(found, need, s.requests, min(s.tokens, found.high.max_model_len)),
                 tables.flags_table(found), tables.compare_table(self._kept_setups())]
        actions = [Action(f"{number}", each.name, html("{}{}; gives up {}", each.gain, _holds_too(each.fit, s), each.gives_up))
                   for number, each in enumerate(chips)]
        kept = len(self._kept_setups())
        if kept < pictures.COMPARED:
            actions.append(Action("keep", f"Keep to compare ({kept} kept)" if kept else "Keep to compare"))
        if kept:
            actions.append(Action("forget", "Forget those kept"))
        return View(
            answer=_answer(found, s.requests, s.tokens), rows={"bar": bar_rows(bar, limit)} | rows, chart=[bar_spec(limit), second],
            table=[each for each in shown if each is not None], note=_notes(found), actions=tuple(actions), takeaways=TAKEAWAYS,
            description=["Memory of one GPU: " + ", ".join(f"{part[0]} {part[3]}" for part in bar if part[0]) + ".",
                         _words_of(s.show, rows)])

    def _second(self, s, found: Fit):
        if s.show == MAP:
            return pictures.map_rows(_map(found), found), pictures.map_spec()
        if s.show == COMPARE:
            rows, limit = pictures.compare_rows(self._kept_setups() or [("this set-up, not kept yet", found)])
            return rows, pictures.compare_spec(limit)
        return pictures.lengths_rows(found, s.tokens), pictures.lengths_spec()

    def act(self, key, s):
        found = _fit(s)
        if key == "keep":
            self._kept_setups().append((_name_of(found), found))
            return {}
        if key == "forget":
            self._kept_setups().clear()
            return {}
        change = _chips(found)[int(key)]
        moved = {name: "" if value is None else f"{value:.4g}" for name, value in change.typed.items() if name in TYPED}
        if change.quantization:
            moved["quantization"] = _stored(change.quantization)
            if change.quantization == "fp8":
                moved["command"] = _quantized(s.command)
        if change.flags:
            moved["command"] = with_flags(moved.get("command", s.command), **change.flags)
        return moved

    def settle(self, moved, back, s):
        """A command that was changed since the action keeps that change, and gets the flags back."""
        flags = {name: getattr(s, name) for name in FLAGS if name in back and "command" in moved and "command" not in back}
        try:
            command = with_flags(s.command, **flags) if flags else s.command
            return {"command": command} | _changed(s, self._flags_of(s, command), {*FLAGS})
        except SizingError:
            return {}

    def take(self, key, s):
        found = _fit(s)
        if key == "command":
            return "", found.serve
        if key == "ticket":
            return "", ticket(found, s.tokens)
        if key == "json":
            return f"{_file(found)}.json", save(found)
        return f"{_file(found)}.csv", to_csv([figures(found, "this set-up"), *(figures(each, name) for name, each in self._kept_setups())])

    def _kept_setups(self) -> list[tuple[str, Fit]]:
        if not hasattr(self._kept, "setups"):
            self._kept.setups = []
        return self._kept.setups


def _engine(command: str) -> Engine:
    return read_command(command)[0] if command.strip() else Engine()


def _config(s):
    """What :func:`kvlib.fit.fit` gets as the config: the box, or what the Hub gives for it where that is asked for."""
    text = s.config.strip()
    if _is_saved(text):     # one that could be re-opened no longer stands in the box
        _saved_here(text)
    if s.download and text.count("/") == 1 and not text.startswith((".", "~", "/", "{")):
        try:
            catalog.model_name(text)
        except SizingError:
            return _downloaded(text)
    return text or None


_FETCHED: dict[str, dict] = {}


def _downloaded(name: str) -> dict:
    if name not in _FETCHED:
        _FETCHED[name] = download_config(name)
    return _FETCHED[name]


def _fit(s) -> Fit:
    typed = tuple((name, getattr(s, name)) for name in TYPED if getattr(s, name) is not None)
    config = _config(s)
    key = config if isinstance(config, (str, type(None))) else json.dumps(config)
    return _fitted(key, written(key), s.command, s.log, s.gpu, s.vllm_version, s.quantization, typed)


@lru_cache(maxsize=64)
def _fitted(config, _written, command, log, gpu, version, quantization, typed) -> Fit:
    return fit(config, command, log=log, gpu=gpu, vllm_version=version, quantization=quantization, **dict(typed))


@lru_cache(maxsize=64)
def _chips(found: Fit) -> tuple:
    return improvements(found, CHIPS)


@lru_cache(maxsize=64)
def _map(found: Fit) -> tuple:
    return card_map(found)


def _loaded(s):
    command = _command(s, s.command)
    return model_of(_config(s) or command and read_command(command)[1].model or "")


def _command(s, command: str) -> str:
    """The command, or where there is none the log's own, as :func:`kvlib.fit.fit` takes it."""
    if command.strip() or not s.log.strip():
        return command
    launch = launch_of(s.log)
    return serve_line(*engine_from_flags(launch.flags, launch.model)) if launch.flags else ""


def _with(s, moved: dict):
    """The state with some inputs moved: what follows a new model follows that one, not the old."""
    return SimpleNamespace(**vars(s) | moved)


def _changed(s, values: dict, names: set) -> dict:
    """Those of some values that are others than the state's."""
    return {name: value for name, value in values.items() if name in names and value != getattr(s, name)}


def _saved_here(text: str) -> dict:
    """A saved set-up as this panel can hold it. Raises ConfigError where it has no box or no choice for a part."""
    asked = saved_fields(text)
    version = ".".join(asked.get("vllm_version", VERSIONS[0]).removeprefix("v").split(".")[:2])
    parts = {"total_gib": "no box", "available_gib": "no box", "quantization": "no such choice", "vllm_version": "no such choice"}
    for name, shown in parts.items():
        known = name == "quantization" and _stored(asked.get(name)) in WEIGHTS and (asked.get(name) in (*WEIGHTS.values(), *_ALIKE)) or \
            name == "vllm_version" and version in VERSIONS
        if name in asked and not known:
            raise ConfigError(f"the saved set-up gives {name} {asked[name]!r:.40}, for which this panel has {shown}; open it with "
                              "kvlib.take_along.reopen", field=name, found=asked[name])
    if "gpu" in asked:
        catalog.gpu(asked["gpu"])
    return asked | {"vllm_version": version}


def _stored(quantization: str | None) -> str:
    """The choice that stands for a way of storing weights."""
    quantization = _ALIKE.get(quantization, quantization)
    return next((shown for shown, name in WEIGHTS.items() if name == quantization), "as the config says")


def _is_saved(text: str) -> bool:
    return text.lstrip().startswith("{") and f'"{MARK}"' in text


def _quantized(command: str) -> str:
    engine, other = read_command(command)
    return serve_line(engine, other._replace(given={**other.given, "quantization": "fp8"}))


# Words


def at_most(found: Fit) -> float:
    """GiB that the bar must be able to show: the GPU, or what would not fit into it."""
    taken = sum(at(getattr(found.memory, name), "high") for name in TERMS)
    return max(at(found.memory.total_bytes, "high"), min(taken, 320 * GiB)) / GiB


def _holds_too(after: Fit, s) -> str:
    """A word where a change holds the load asked for."""
    held = s.tokens <= after.high.max_model_len and after.requests_of(s.tokens)[0] >= s.requests
    return f", and your {s.requests:,} × {s.tokens:,}" if held else ""


def _load(found: Fit, requests: int, tokens: int) -> str:
    """Whether the load asked for is held."""
    if tokens > found.high.max_model_len:
        return f"Requests of {tokens:,} tokens are not let in."
    least, most = found.requests_of(tokens)
    does = "is held" if least >= requests else "may be held" if most >= requests else "is not held"
    return f"Your load, {requests:,} × {tokens:,}, {does}."


def _answer(found: Fit, requests: int, tokens: int) -> Html:
    verdict = found.verdict
    cards = found.engine.tensor_parallel_size * found.engine.pipeline_parallel_size
    card = found.typical.plan.setup.gpu.name
    words = {"passes": "Passes vLLM's memory checks", "close": "Too close to call", "refused": "Refused"}[verdict.word]
    said = html("{}: {}{} on {} {}{}.", strong(words), found.model.name, weights_words(found), "one" if cards == 1 else f"{cards} ×", card,
                f"; {verdict.reason}" if verdict.reason else "")
    if verdict.word != "refused":
        said = html("{} {} {}", said, _bold(holds(found, tokens)), _load(found, requests, tokens))
    for caution in found.cautions:
        said = html("{} {}.", said, strong(caution[:1].upper() + caution[1:]))
    for what in dict.fromkeys(found.other.takes_memory.values()):
        said = html("{} {} take memory that is not counted.", said, what[:1].upper() + what[1:])
    return said


def _bold(text: str) -> Html:
    """The sentence on what the cache holds, with its requests in bold."""
    head, _, tail = text.partition(": ")
    return html("{}: {}", head, strong(tail)) if tail else html("{}", text)


def _notes(found: Fit) -> str:
    said = [f"{note}." for note in dict.fromkeys((*found.notes, *found.typical.notes))]
    return " ".join([*([found.settles] if found.settles else []), *said[:4], NOT_CHECKED])


def _words_of(show: str, rows: dict) -> str:
    if show == MAP:
        by = {word: sum(row["word"] == word for row in rows["map"]) for word in ("passes", "close", "refused")}
        return f"Cards by split: {by['passes']} pass, {by['close']} are too close to call, {by['refused']} are refused."
    if show == COMPARE:
        return "Set-ups compared: " + "; ".join(row["label"] for row in rows["compare"] if row["label"]) + "."
    return "Requests at once by their length. " + rows["own"][0]["label"] + "."


def _name_of(found: Fit) -> str:
    engine, card = found.engine, found.typical.plan.setup.gpu.name
    flags = "".join(f", {text}" for text in (
        f"TP {engine.tensor_parallel_size}" if engine.tensor_parallel_size > 1 else "",
        engine.kv_cache_dtype if engine.kv_cache_dtype != "auto" else "", found.quantization or "") if text)
    return f"{found.model.name}, {card}{flags}, {found.high.max_model_len:,}"


def _file(found: Fit) -> str:
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in f"{found.model.name}-{found.typical.plan.setup.gpu.name}")
