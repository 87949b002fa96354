"""From an engine back to the ``vllm serve`` line: its flags, and every unrelated one that was given."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from .command import MANY, Other, Several, flag_value, read_command
from .command_words import Word
from .engine import Engine
from .errors import EngineError

_NOT_FLAGS = ("vllm_version", "gpu", "draft_model", "speculative_method", "num_speculative_tokens")
_SPECULATIVE = ("speculative_method", "num_speculative_tokens")


def serve_line(engine: Engine, other: Other | None = None, model: str | None = None) -> str:
    """The command that starts this engine. Flags keep the order and the spelling in which they were given.

    ``model`` is named where ``other`` names none. The card and the version are no flags and are left out.

    >>> engine, other = read_command("vllm serve Qwen/Qwen3-8B --max-model-len 32k --port 8000")
    >>> serve_line(engine.replace(tensor_parallel_size=2), other)
    'vllm serve Qwen/Qwen3-8B --max-model-len 32k --port 8000 --tensor-parallel-size 2'
    """
    given = dict(other.given) if other is not None else {}
    wanted = {name: value for name, value in engine.changed().items() if name not in _NOT_FLAGS}
    words = [*(other.environment if other is not None else ()), "vllm", "serve"]
    named = (other.model if other is not None else None) or model
    words += [_quoted(named)] if named else []
    spelled = other.spelled if other is not None else {}
    for name, value in given.items():
        if name not in Engine.__dataclass_fields__ or name in _NOT_FLAGS:
            if name == "speculative_config" and not _same_speculation(engine, value):
                value = _speculation(engine)
            words += _written(name, value, spelled.get(name))
        elif flag_value(name, value) == getattr(engine, name):
            words += _written(name, value)
        elif name in wanted:
            words += _written(name, wanted[name])
    for name, value in wanted.items():
        if name not in given:
            words += _written(name, value)
    if engine.speculative_method and "speculative_config" not in given:
        words += _written("speculative_config", _speculation(engine))
    return " ".join(words)


def with_flags(text: str, model: str | None = None, **flags: Any) -> str:
    """A command with some engine flags set to other values; None takes a flag out.

    >>> with_flags("vllm serve a/b -tp 2 --port 1", tensor_parallel_size=4, max_model_len=None)
    'vllm serve a/b --tensor-parallel-size 4 --port 1'
    """
    engine, other = read_command(text) if text.strip() else (Engine(), None)
    defaults = Engine()
    values = {name: getattr(defaults, name) if value is None else value for name, value in flags.items()}
    return serve_line(engine.replace(**values), other, model)


def _written(name: str, value: Any, spelled: str | None = None) -> list[str]:
    flag = spelled or "--" + name.replace("_", "-")
    if value is None:
        return []
    if value is True:
        return [flag]
    if value is False:
        return ["--no-" + flag[2:]]
    if isinstance(value, Several) or name in MANY and isinstance(value, (list, tuple)):
        return [flag, *map(_quoted, value)]
    if isinstance(value, (Mapping, list, tuple)):
        value = json.dumps(value)
    if str(value)[:1] == "-" and not re.fullmatch(r"-\d[\d.]*", str(value)):
        return [f"{flag}={_quoted(value)}"]
    return [flag, _quoted(value)]


def _quoted(value: Any) -> str:
    """A value as a shell takes it: as it was given there, so that variables stay variables, else in quotation marks."""
    return (getattr(value, "raw", "") if isinstance(value, Word) else "") or shlex.quote(str(value))


def _speculation(engine: Engine) -> dict | None:
    """``--speculative-config`` for the engine; None without speculation."""
    if not engine.speculative_method:
        return None
    return {"method": engine.speculative_method, "num_speculative_tokens": engine.num_speculative_tokens}


def _same_speculation(engine: Engine, given: Any) -> bool:
    """True where what was given says what the engine does, or is one that the engine does not hold."""
    from .command import engine_from_flags

    try:
        meant = engine_from_flags({"speculative_config": given})[0]
    except EngineError:
        return True
    return all(getattr(meant, name) == getattr(engine, name) for name in _SPECULATIVE) or not meant.speculative_method
