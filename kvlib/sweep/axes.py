"""What a sweep runs over: its arguments read, checked value by value, and put in order.

A value that no launch can have (an unknown flag, a type that does not exist, a length of 0) is an error here;
values that merely do not go together become rows later on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from .. import catalog
from ..config import load_model
from ..engine import Engine, check_flag
from ..errors import EngineError, UnknownArchitectureError
from ..memory import MemoryBudget
from ..model import Model
from ..versions import parse_version
from .table import MISSING, Axis

AUTO_FIT = -1
COLUMN = {"block_size": "block_size_asked"}  # vLLM's own choice has the plain name
LARGEST = 1 << 62


class Subject(NamedTuple):
    """A model under the name it has in the frame, or why there is none."""

    name: str
    model: Model | None
    refusal: UnknownArchitectureError | None = None


class SetUp(NamedTuple):
    """One model with one combination of card and flags: its number among these, and where each value stands on its axis."""

    subject: Subject
    combination: int
    places: tuple[int, ...]


class Axes:
    """The grid: models × GPUs × flags are set-ups, and each of these has all lengths × all memories.

    ``asked`` holds the lengths (MISSING for the model's own, -1 for auto-fit), ``plain`` the positions of those that
    are plain numbers, ``special`` those of the others with what to ask for; ``available`` holds bytes, or is None where budgets are to give them.
    """

    def __init__(self, models, gpus, flags: Mapping[str, Any], max_model_len, available_bytes, memory):
        self.subjects = [_subject(model) for model in _values("models", models)]
        self.cards = [None if name is None else catalog.gpu(name) for name in _values("gpus", gpus)]
        self.flags = {name: _flag_values(name, given) for name, given in flags.items()}
        self.asked = _lengths(max_model_len)
        self.plain = np.flatnonzero(self.asked > 0)
        self.special = [(place, None if length == MISSING else AUTO_FIT)
                        for place, length in enumerate(self.asked.tolist()) if length in (MISSING, AUTO_FIT)] \
            if len(self.plain) < len(self.asked) else []
        self.available = None if available_bytes is None else _bytes(available_bytes)
        self.memory = memory
        self._check_memory()
        self.columns = {"model": Axis.of([subject.name for subject in self.subjects]), "gpu": Axis.of(self.cards),
                        **{COLUMN.get(name, name): Axis.of(values) for name, values in self.flags.items()}}
        self.combinations = list(product(range(len(self.cards)), *(range(len(values)) for values in self.flags.values())))
        self.engine = lru_cache(maxsize=1 << 14)(self._engine)

    @property
    def memories(self) -> int:
        """Memories of each set-up."""
        return 1 if self.available is None else len(self.available)

    @property
    def rows(self) -> int:
        return len(self.subjects) * len(self.combinations) * len(self.asked) * self.memories

    @property
    def ranged(self) -> bool:
        """Does memory come from budgets, so that each figure has a low and a high one beside it?"""
        return self.available is None and None in self.flags.get("kv_cache_memory_bytes", [None])

    def set_ups(self) -> Iterator[SetUp]:
        """Each model with each combination, in the order of the frame."""
        for place, subject in enumerate(self.subjects):
            for number, places in enumerate(self.combinations):
                yield SetUp(subject, number, (place, *places))

    def values(self, combination: int) -> dict[str, Any]:
        """The card, as ``gpu``, and the flags of a combination."""
        card, *places = self.combinations[combination]
        return {"gpu": self.cards[card],
                **{name: values[place] for (name, values), place in zip(self.flags.items(), places)}}

    def _engine(self, combination: int, max_model_len: int | None) -> Engine:
        return Engine(**self.values(combination), max_model_len=max_model_len)

    def _check_memory(self) -> None:
        fixed = [name for name in ("kv_cache_memory_bytes", "num_gpu_blocks_override")
                 if all(value is not None for value in self.flags.get(name, [None]))]
        if self.available is not None and self.memory is not None:
            raise EngineError("available_bytes and memory are both given; give one", flag="available_bytes")
        if self.available is not None and any(value for value in self.flags.get("kv_cache_memory_bytes", ())):
            raise EngineError("available_bytes and kv_cache_memory_bytes are both given; give one",
                              flag="kv_cache_memory_bytes")
        if self.memory is not None and not (isinstance(self.memory, MemoryBudget) or callable(self.memory)):
            raise EngineError(f"memory is {self.memory!r:.60}; give a MemoryBudget, or a function of model and engine "
                              "that returns one", flag="memory", found=self.memory)
        if self.available is None and self.memory is None and not fixed and None in self.cards:
            raise EngineError("no memory is given: name the gpus, or pass available_bytes", flag="available_bytes")


def _values(name: str, given: Any) -> list:
    """The values of an axis; one value stands for a list of one."""
    if isinstance(given, np.ndarray) or hasattr(given, "to_numpy"):
        found = np.asarray(given).ravel().tolist()
    elif isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping, Model, catalog.Gpu)):
        found = [value.item() if isinstance(value, np.generic) else value for value in given]
    else:
        found = [given.item() if isinstance(given, np.generic) else given]
    if not found:
        raise EngineError(f"{name} has no values, so there is nothing to size; give one or more", flag=name)
    return found


def _subject(given: Any) -> Subject:
    if isinstance(given, Model):
        return Subject(given.name, given)
    on_file = isinstance(given, str) and given in catalog.models()
    try:
        model = _from_catalogue(given) if on_file else load_model(given)
    except UnknownArchitectureError as refusal:
        return Subject(given if isinstance(given, str) and len(given) < 100 else "a config", None, refusal)
    return Subject(model.name, model)


@lru_cache(maxsize=512)
def _from_catalogue(name: str) -> Model:
    """One object a name, so that plans made for it are found again in the next sweep."""
    return load_model(name)


def _flag_values(name: str, given: Any) -> list:
    if name == "gpu":
        raise EngineError("gpu is not a flag of a sweep; give the cards as gpus", flag="gpu", expected="gpus")
    found = _values(name, given)
    for value in found:
        check_flag(name, value)
        if name == "vllm_version":
            parse_version(value)
    if name == "draft_model":
        return [value if value is None or isinstance(value, Model) else load_model(value) for value in found]
    return found


def _lengths(given: Any) -> np.ndarray:
    whole = _whole(given)
    if whole is None:
        found = _values("max_model_len", given)
        for value in found:
            check_flag("max_model_len", value)
        return np.array([MISSING if value is None else value for value in found], np.int64)
    for wrong in whole[(whole < 1) & (whole != AUTO_FIT) | (whole >= LARGEST)][:1]:
        check_flag("max_model_len", int(wrong))
    return whole


def _bytes(given: Any) -> np.ndarray:
    whole = _whole(given)
    if whole is not None and -LARGEST <= whole.min() and whole.max() <= LARGEST:
        return whole
    for value in _values("available_bytes", given):
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LARGEST:
            raise EngineError(f"available_bytes is {value!r:.40}; it must be a whole number of bytes",
                              flag="available_bytes", found=value, expected="a whole number of bytes")
    return np.array(_values("available_bytes", given), np.int64)


def _whole(given: Any) -> np.ndarray | None:
    """A range or an array of ints as it is, because looking at each of a million values takes a second."""
    whole = np.asarray(given) if isinstance(given, (np.ndarray, range)) and len(given) else None
    return whole.ravel().astype(np.int64) if whole is not None and whole.dtype.kind == "i" else None
