"""One line of the register: an exercise, and what a teacher wants to know of it."""

from __future__ import annotations

from functools import cache

from kvlib import Engine, bytes_per_token, catalog, load_model
from kvlib.exercise import KINDS, LEVELS, About, Exercise


def entry(number, title, kind, level, minutes, misconception, hints, *, ninety=False, **exercise) -> Exercise:
    """An exercise of the register; the last arguments are those of :class:`kvlib.exercise.Exercise`."""
    if kind not in KINDS or level not in LEVELS or len(hints) != 2:
        raise ValueError(f"exercise {number}: a known kind and level, and two hints are needed")
    return Exercise(about=About(number, title, kind, level, minutes, misconception, tuple(hints), ninety), **exercise)


@cache
def price(name: str, tensor_parallel_size: int = 1) -> int:
    """Bytes one token takes on each GPU, in the model's own type.

    >>> price("Qwen3-8B")
    147456
    """
    return bytes_per_token(load_model(name), Engine(tensor_parallel_size=tensor_parallel_size))


@cache
def shape(name: str) -> dict:
    """The fields of a config that the slips are made of.

    >>> shape("Qwen3-8B")["query_heads"]
    32
    """
    config = catalog.model_config(name)
    return {"layers": config["num_hidden_layers"], "kv_heads": config["num_key_value_heads"],
            "query_heads": config["num_attention_heads"], "hidden": config["hidden_size"], "head_dim": config.get("head_dim")}
