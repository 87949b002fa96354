"""From a ``vllm serve`` line, container arguments, or a log's arguments to an :class:`kvlib.Engine`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from .engine import Engine
from .errors import EngineError

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
_FIELDS = Engine.__dataclass_fields__
_ALIASES = {
    "tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size",
    "dcp": "decode_context_parallel_size", "kv_cache_memory": "kv_cache_memory_bytes", "max_seq_len": "max_model_len",
    "model_tag": "model", "spec_method": "speculative_method", "speculative_tokens": "num_speculative_tokens"}
_SWITCHES = {name for name, spec in _FIELDS.items() if spec.type == "bool"}
_SHORT = {"-tp": "tensor_parallel_size", "-pp": "pipeline_parallel_size", "-dp": "data_parallel_size",
          "-dcp": "decode_context_parallel_size", "-q": "quantization", "-sc": "speculative_config"}


class Other(NamedTuple):
    """Flags that are not part of the engine: no effect on the cache, or memory that is not modelled.

    ``model`` is the model named, if any; ``takes_memory`` maps a flag to what it takes memory for; ``given`` holds
    every flag as it was given, so that :func:`kvlib.serve_line.serve_line` can write the command again.
    """

    model: str | None
    no_effect: dict
    takes_memory: dict
    notes: tuple[str, ...] = ()
    given: Mapping = MappingProxyType({})


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
    model, flags = _parse(_words(text))
    if model is None and not flags:
        raise EngineError(f"no flag found in {_short(text)}; a flag starts with two dashes, as --max-model-len 32768")
    return engine_from_flags(flags, model)


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
            (takes if name in TAKES_MEMORY else no_effect)[name] = value
        else:
            used[name] = flag_value(name, value)
    for name in takes:
        takes[name] = TAKES_MEMORY[name]
    if used.get("speculative_method") in ("eagle", "eagle3") and "draft_model" not in used:
        notes.append("the draft model's config is not part of the command: its layer is not counted until it is given")
        used.pop("speculative_method"), used.pop("num_speculative_tokens", None)
    return Engine(**used), Other(model, no_effect, takes, tuple(notes), given)


def _words(text: str) -> list[str]:
    """The words of a shell line, of a JSON list, of a YAML list, or of a Python dict of arguments."""
    stripped = text.strip()
    if stripped.startswith("[") and stripped.endswith("]"):
        try:
            items = json.loads(stripped)
        except (ValueError, RecursionError):
            items = None
        if isinstance(items, list):
            return [str(item) for item in items]
    if re.search(r"^\s*-\s+", stripped, re.M) and not stripped.startswith("--"):
        items = [re.sub(r"^\s*-\s+", "", line).strip().strip("'\"") for line in stripped.splitlines()
                 if re.match(r"^\s*-\s+", line)]
        return [word for item in items for word in _split(item)]
    stripped = re.sub(r"^non-default args:\s*", "", re.sub(r"^.*?(?=non-default args:)", "", stripped, flags=re.S))
    if stripped.startswith("{"):
        from .vllm_log import literal_args

        words = []
        for key, value in literal_args(stripped).items():
            words += [f"--{key}", json.dumps(value) if isinstance(value, (dict, list)) else str(value)]
        return words
    return _split(re.sub(r"\\\s*\n|`\s*\n|\^\s*\n", " ", stripped))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=False)
    except ValueError:
        raise EngineError(f"a quotation mark is not closed in {_short(text)}") from None


def _parse(words: list[str]) -> tuple[str | None, dict]:
    model, flags, index = None, {}, 0
    if "serve" in words:
        after = words[words.index("serve") + 1:]
        model = after[0] if after and not after[0].startswith("-") else None
        words = after[1:] if model else after
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-") or re.fullmatch(r"-\d[\d.]*", word):
            continue
        name, _, value = word.partition("=")
        name = _SHORT.get(name) or name.lstrip("-").replace("-", "_").replace(".", "_")
        name = _ALIASES.get(name, name)
        given = bool(_)
        negative = name.startswith("no_") and name[3:] in _SWITCHES
        if negative:
            name, value, given = name[3:], False, True
        if not given:
            following = words[index] if index < len(words) else None
            takes = following is not None and (not following.startswith("-") or re.fullmatch(r"-\d[\d.]*", following))
            if takes and not (name in _SWITCHES and following.lower() not in ("true", "false")):
                value, index = following, index + 1
            else:
                value = True
        if name in flags and flags[name] != value:
            raise EngineError(f"--{name.replace('_', '-')} is given twice, as {flags[name]} and {value}; keep one",
                              flag=name, found=(flags[name], value))
        flags[name] = value
    return model, flags


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
