"""The arguments and the engine config that a start-up log prints, as flags by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from .log_words import CONFIG_VALUE, SPECULATIVE

MAX_ARGS = 40_000  # characters of arguments that are looked at
_CONFIG_NAMES = {"max_seq_len": "max_model_len", "device_config": "device"}
_CLOSING = {"{": "}", "[": "]", "(": ")", "<": ">"}


def literal_args(text: str) -> dict:
    """A printed Python dict of arguments; objects that are no literals stay as text, a cut end is left out.

    >>> literal_args("{'model': 'a/b', 'hook': <function f at 0x7f>, 'size': Config(n=[1, 2]), 'tp': 2, 'cut': {'x")
    {'model': 'a/b', 'hook': '<function f at 0x7f>', 'size': 'Config(n=[1, 2])', 'tp': 2}
    """
    text = text[:MAX_ARGS]
    end = text.rfind("}")
    whole = _literal(text[:end + 1]) if end > 0 else None
    if isinstance(whole, dict):
        return {str(key): value for key, value in whole.items()}
    return {key: _value(value) for key, value in _pairs(text[1:], ":") if key}


def namespace_args(text: str) -> dict:
    """``Namespace(...)`` of a V0 log: values that are not None.

    >>> namespace_args("model_tag='a/b', seed=None, max_model_len=4096, f=<function g at 0x1>)")
    {'model_tag': 'a/b', 'max_model_len': 4096, 'f': '<function g at 0x1>'}
    """
    found = {key: _value(value) for key, value in _pairs(text[:MAX_ARGS], "=") if key}
    return {key: value for key, value in found.items() if value is not None}


def _pairs(text: str, sign: str) -> Iterator[tuple[str, str]]:
    """(name, text of the value) of each pair at the top level, up to the closing bracket."""
    depth, quote, start, parts = [], "", 0, []
    skip = False
    for at, char in enumerate(text):
        if skip:
            skip = False
        elif quote:
            if char == "\\":
                skip = True
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _CLOSING:
            depth.append(_CLOSING[char])
        elif depth and char == depth[-1]:
            depth.pop()
        elif not depth and (char == "," or char in "})"):
            parts.append(text[start:at])
            start = at + 1
            if char != ",":
                break
    for part in parts:
        name, found, value = part.partition(sign)
        if found:
            name = name.strip().strip("'\"")
            yield (name if re.fullmatch(r"\w{1,80}", name) else ""), value.strip()


def _value(text: str) -> Any:
    if text == "None":
        return None
    found = _literal(text)
    return text[:400] if found is None else found


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def model_of(flags: dict) -> str | None:
    """The model that arguments name."""
    named = flags.get("model") or flags.get("model_tag")
    return named if isinstance(named, str) else None


def engine_config(line: str) -> dict:
    """``Initializing a V1 LLM engine (v…) with config: …`` as flags, the model among them."""
    found: dict[str, Any] = {}
    for key, raw in CONFIG_VALUE.findall(line):
        value: Any = raw.strip("'\"").removeprefix("torch.")
        value = {"True": True, "False": False, "None": None}.get(value, value)
        if isinstance(value, str) and value.isdigit() and len(value) < 12:
            value = int(value)
        if value is not None:
            found.setdefault(_CONFIG_NAMES.get(key, key), value)
    if drafts := SPECULATIVE.search(line):
        found["speculative_config"] = {"method": drafts[1], "num_speculative_tokens": int(drafts[2])}
    return found
