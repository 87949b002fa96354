"""From a ``vllm serve`` line, container arguments, or a log's arguments to an :class:`kvlib.Engine`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from .command_words import Word, assignments, words
from .engine import Engine
from .errors import EngineError
from .log_flags import literal_args, model_of

MAX_TEXT = 200_000

# Flags that take GPU memory which is not modelled here, with what they take it for.
TAKES_MEMORY = {
    "enable_lora": "LoRA adapters", "max_loras": "LoRA adapters", "max_lora_rank": "LoRA adapters",
    "lora_modules": "LoRA adapters", "enable_expert_parallel": "expert parallelism's buffers",
    "enable_eplb": "expert load balancing", "cpu_offload_gb": "weights kept on the CPU",
    "swap_space": "swapping to the CPU", "limit_mm_per_prompt": "the vision encoder",
    "mm_processor_kwargs": "the vision encoder", "kv_transfer_config": "KV transfer",
    "kv_offloading_size": "KV offloading", "compilation_config": "CUDA graphs of other sizes",
    "cudagraph_capture_sizes": "CUDA graphs of other sizes", "cuda_graph_sizes": "CUDA graphs of other sizes",
    "prefill_context_parallel_size": "prefill context parallelism", "enable_sleep_mode": "sleep mode",
}
# Flags that may change what is sized here, and are not followed, with what they change.
NOT_FOLLOWED = {
    "hf_overrides": "the model's config", "config": "flags, in a file of their own", "rope_scaling": "the longest length",
    "rope_theta": "the longest length", "disable_sliding_window": "what window layers keep", "attention_config": "the block size",
    "mamba_block_size": "the block size", "mamba_cache_dtype": "the size of states", "mamba_cache_mode": "the blocks for states",
    "kv_cache_dtype_skip_layers": "the type of some layers' cache", "no_enable_chunked_prefill": "the tokens of a batch",
    "performance_mode": "the tokens and requests of a batch", "language_model_only": "the weights"}
MANY = {"served_model_name", "lora_modules", "prompt_adapters", "cudagraph_capture_sizes", "cuda_graph_sizes", "middleware",
        "api_key", "logits_processors", "kv_cache_dtype_skip_layers"}   # flags of several words
_FIELDS = Engine.__dataclass_fields__
_ALIASES = {
    "tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size",
    "dcp": "decode_context_parallel_size", "kv_cache_memory": "kv_cache_memory_bytes", "max_seq_len": "max_model_len",
    "model_tag": "model", "spec_method": "speculative_method", "speculative_tokens": "num_speculative_tokens"}
_SWITCHES = {name for name, spec in _FIELDS.items() if spec.type == "bool"}
_SHORT = {"-tp": "tensor_parallel_size", "-pp": "pipeline_parallel_size", "-dp": "data_parallel_size",
          "-dcp": "decode_context_parallel_size", "-q": "quantization", "-sc": "speculative_config", "-cc": "compilation_config"}
_REAL = {"mamba_cache_dtype", "data_parallel_size_local", "speculative_model"}   # flags of vLLM that resemble an engine's


class Other(NamedTuple):
    """Flags that are not part of the engine: no effect on the cache, or memory that is not modelled.

    ``model`` is the model named, if any; ``takes_memory`` maps a flag to what it takes memory for; ``given`` holds
    every flag as it was given, so that :func:`kvlib.serve_line.serve_line` can write the command again; ``spelled`` how
    those that are not the engine's were written, ``environment`` the ``NAME=value`` words before the program.
    """

    model: str | None
    no_effect: dict
    takes_memory: dict
    notes: tuple[str, ...] = ()
    given: Mapping = MappingProxyType({})
    spelled: Mapping = MappingProxyType({})
    environment: tuple[str, ...] = ()


class Several(tuple):
    """The words of a flag that has several."""

    def __str__(self):
        return " ".join(map(str, self))


def read_command(text: str) -> tuple[Engine, Other]:
    """Read a ``vllm serve`` command, Docker or Kubernetes arguments (JSON or YAML list), or ``non-default args``.

    Returns the engine and what was given besides. Raises EngineError for a flag given twice with two values, a
    value that is not one, or text without a flag.

    >>> engine, other = read_command("vllm serve Qwen/Qwen3-8B -tp 2 --max-model-len 32k --port 8000")
    >>> engine, other.model, other.no_effect
    (Engine(tensor_parallel_size=2, max_model_len=32000), 'Qwen/Qwen3-8B', {'port': '8000'})
    """
    if not isinstance(text, str) or not text.strip():
        raise EngineError("the command is empty; paste a line such as vllm serve Qwen/Qwen3-8B --max-model-len 32768")
    if len(text) > MAX_TEXT:
        raise EngineError(f"the command is {len(text):,} characters long; paste the command alone")
    engine, other = _read(text)
    own = {name: dict(getattr(other, name)) for name in ("no_effect", "takes_memory", "given")}
    return engine, other._replace(**own)


@lru_cache(maxsize=64)
def _read(text: str) -> tuple[Engine, Other]:
    if (printed := _printed_args(text)) is not None:
        return engine_from_flags({name: value for name, value in printed.items() if value is not None}, model_of(printed))
    environment = tuple(assignments(text))
    model, flags, spelled = _parse(words(text))
    if model is None and not flags:
        raise EngineError(f"no flag found in {_short(text)}; a flag starts with two dashes, as --max-model-len 32768")
    engine, other = engine_from_flags(flags, model)
    notes = other.notes + tuple(f"{word.partition('=')[0]} is set in the environment and not followed here"
                                for word in environment if word.startswith("VLLM_"))
    return engine, other._replace(notes=notes, spelled=MappingProxyType(spelled), environment=environment)


def engine_from_flags(flags: Mapping[str, Any], model: str | None = None) -> tuple[Engine, Other]:
    """An engine from flags by name (underscores), as a log holds them. See :func:`read_command`."""
    used, no_effect, takes, notes, given = {}, {}, {}, [], {}
    for name, value in flags.items():
        name = _ALIASES.get(name, name)
        if name == "model":
            model = model or value
            continue
        given[name] = value
        if name == "speculative_config":
            _speculative(value, used, no_effect, notes)
        elif name == "quantization" or name not in _FIELDS:
            (takes if name.partition(".")[0] in TAKES_MEMORY else no_effect)[name] = value
            notes += _doubt(name, value)
        else:
            used[name] = flag_value(name, value)
    for name in takes:
        takes[name] = TAKES_MEMORY[name.partition(".")[0]]
    if used.get("speculative_method") in ("eagle", "eagle3") and "draft_model" not in used:
        notes.append("the draft model's config is not part of the command: its layer is not counted until it is given")
        used.pop("speculative_method"), used.pop("num_speculative_tokens", None)
    return Engine(**used), Other(model, no_effect, takes, tuple(notes), given)


def _doubt(name: str, value: Any) -> list[str]:
    """What a reader should know of a flag that is not followed; nothing for one without effect."""
    flag, head = "--" + name.replace("_", "-"), name.partition(".")[0]
    if head in NOT_FOLLOWED:
        return [f"{flag} may change {NOT_FOLLOWED[head]}, and is not followed here"]
    if name == "enable_chunked_prefill" and str(value).lower() == "false":
        return [f"{flag} false may change {NOT_FOLLOWED['no_enable_chunked_prefill']}, and is not followed here"]
    near = get_close_matches(name.lower(), _FIELDS, 1, 0.87)
    if near and name not in _REAL:
        return [f"{flag} is not a flag of vLLM's; is --{near[0].replace('_', '-')} meant?"]
    return []


def _printed_args(text: str) -> dict | None:
    """The Python dict of a log's ``non-default args``; None where the text is none."""
    stripped = re.sub(r"^.*?non-default args:\s*", "", text.strip(), flags=re.S)
    if not stripped.startswith("{"):
        return None
    found = literal_args(stripped)
    for name in MANY & set(found):
        if isinstance(found[name], (list, tuple)):
            found[name] = Several(str(item) for item in found[name])
    return found


def _parse(found: list[str]) -> tuple[str | None, dict, dict]:
    """The model, the flags by name, and how each was written, from the words of a command."""
    model, flags, spelled, index = None, {}, {}, 0
    served = found[:1] == ["serve"]
    found = [word for word in found[served:] if word != "--"]
    while index < len(found):
        word = found[index]
        index += 1
        if not _is_flag(word):
            model = word if served and model is None else model
            continue
        spelling, given, value = word.partition("=")
        if given:
            value = word.after("=") if isinstance(word, Word) else value
        name, value, given = _named(spelling, value, bool(given))
        following = []
        while index + len(following) < len(found) and not _is_flag(found[index + len(following)]):
            following.append(found[index + len(following)])
        if not given:
            value, used = _value_of(name, following, model is not None or not served)
            index += used
        if "." in name and name.startswith("speculative_config."):
            name, value = "speculative_config", {**flags.pop("speculative_config", {}), name.partition(".")[2]: _json(value)}
        if name in flags and flags[name] != value:
            raise EngineError(f"--{name.replace('_', '-')} is given twice, as {flags[name]} and {value}; keep one",
                              flag=name, found=(flags[name], value))
        flags[name] = value
        if name not in _FIELDS and name != "speculative_config":
            spelled[name] = spelling
    return model, flags, spelled


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not re.match(r"-\d[\d.]*$|-+\s", word) and getattr(word, "raw", "-")[:1] == "-"


def _named(spelling: str, value: Any, given: bool) -> tuple[str, Any, bool]:
    """A flag's name with underscores, its value, and whether it has one already."""
    head, dot, rest = spelling.partition(".")
    name = _SHORT.get(head) or head.lstrip("-").replace("-", "_")
    name = _ALIASES.get(name, name) + dot + rest
    if name.startswith("no_") and name[3:] in _SWITCHES:
        return name[3:], False, True
    return name, value, given


def _value_of(name: str, following: list[str], free: bool) -> tuple[Any, int]:
    """The value of a flag among the words behind it, and how many it takes; ``free``: none of them can be the model."""
    if name in _SWITCHES or re.match(r"(enable|disable|no|skip|return|trust)_|headless$|O\d$", name):
        return (following[0], 1) if following and following[0].lower() in ("true", "false") else (True, 0)
    if not following:
        return True, 0
    if len(following) > 1 and name not in _FIELDS and (free or name in MANY):
        return Several(following), len(following)
    return following[0], 1


def _json(value: Any) -> Any:
    try:
        return json.loads(value)
    except (ValueError, TypeError, RecursionError):
        return str(value)


def flag_value(name: str, value: Any) -> Any:
    """The value of an engine flag, from text where it is text. Raises EngineError."""
    kind = _FIELDS[name].type
    if value is None or not isinstance(value, str):
        return value
    if kind == "bool":
        if value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise EngineError(f"{name} is {value!r}; it must be true or false", flag=name, found=value)
    if "int" in kind:
        if name == "max_model_len" and value.lower() == "auto":
            return -1
        match = re.fullmatch(r"(-?\d[\d_,]*(?:\.\d+)?)([kKmMgG]?)", value.strip())
        if not match or ("." in match[1] and not match[2]) or len(value) > 24:
            raise EngineError(f"{name} is {value!r}; it must be a whole number (32k is 32,000 and 32K is 32,768)",
                              flag=name, found=value, expected="a whole number")
        suffix = match[2]
        base = 1000 if suffix.islower() else 1024
        number = match[1].replace(",", "").replace("_", "")
        scale = base ** " kmg".index((suffix or " ").lower())
        return int(float(number) * scale) if "." in number else int(number) * scale
    if "float" in kind:
        try:
            return float(value)
        except ValueError:
            raise EngineError(f"{name} is {value!r}; it must be a number such as 0.92", flag=name, found=value) from None
    return value.removeprefix("torch.") if name == "dtype" else value


_METHODS = {"deepseek_mtp": "mtp", "qwen3_next_mtp": "mtp", "qwen3_5_mtp": "mtp", "glm4_moe_mtp": "mtp",
            "mimo_mtp": "mtp", "ernie_mtp": "mtp", "minimax_m2_mtp": "mtp", "[ngram]": "ngram"}


def _speculative(value: Any, used: dict, no_effect: dict, notes: list) -> None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise EngineError(f"speculative_config is {_short(value)}; it must be a JSON object",
                              flag="speculative_config", found=value, expected="a JSON object") from None
    if not isinstance(value, Mapping):
        no_effect["speculative_config"] = value
        return
    method = str(value.get("method") or "")
    method = _METHODS.get(method, "mtp" if method.endswith("_mtp") else method)
    tokens = value.get("num_speculative_tokens")
    if method in ("mtp", "ngram", "eagle", "eagle3") and isinstance(tokens, int):
        used["speculative_method"], used["num_speculative_tokens"] = method, tokens
    else:
        notes.append(f"speculative decoding with method {method or 'not named'} is not modelled")
        no_effect["speculative_config"] = value


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")
