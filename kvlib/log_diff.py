"""What changed between two launches of a log: flags, memory, capacity, outcome."""

from __future__ import annotations

from typing import Any, NamedTuple

from .vllm_log import FIGURES, Launch

_DECIDED_BY_LARGEST = ("weights_gib", "non_kv_cache_gib", "peak_activation_gib", "non_torch_gib", "consumed_gib")


class Change(NamedTuple):
    """One difference: ``kind`` is "flag", "figure" or "outcome"; a side without it holds None."""

    kind: str
    name: str
    before: Any
    after: Any


def diff(launch_a: Launch, launch_b: Launch) -> tuple[Change, ...]:
    """The differences from one launch to another: what was asked first, then memory and figures, then how it ended.

    Where several workers printed a figure, the one that decides is compared: the least memory and capacity, the most
    that is taken away.

    >>> from kvlib import read_log
    >>> log = read_log("non-default args: {'model': 'a/b', 'max_model_len': 8192}\\nAvailable KV cache memory: 4.5 GiB\\n"
    ...                "non-default args: {'model': 'a/b', 'max_model_len': 4096}\\nAvailable KV cache memory: 4.6 GiB")
    >>> for change in diff(*log.launches):
    ...     print(change.kind, change.name, change.before, change.after)
    flag max_model_len 8192 4096
    figure available_kv_cache_gib 4.5 4.6
    """
    changes = [Change("flag", name, before, after) for name, before, after in
               (("vllm_version", launch_a.vllm_version, launch_b.vllm_version), ("model", launch_a.model, launch_b.model),
                ("backend", launch_a.backend, launch_b.backend)) if before != after]
    flags = [*launch_a.flags, *(name for name in launch_b.flags if name not in launch_a.flags)]
    changes += [Change("flag", name, launch_a.flags.get(name), launch_b.flags.get(name)) for name in flags
                if name != "model" and _differ(launch_a.flags.get(name), launch_b.flags.get(name))]
    for name in FIGURES:
        before, after = _deciding(launch_a, name), _deciding(launch_b, name)
        if before != after:
            changes.append(Change("figure", name, before, after))
    before, after = (_ended(launch) for launch in (launch_a, launch_b))
    if before != after:
        changes.append(Change("outcome", "outcome", before, after))
    return tuple(changes)


def _differ(before: Any, after: Any) -> bool:
    """Addresses of objects change with every start; they are no difference."""
    if isinstance(before, str) and isinstance(after, str) and " at 0x" in before:
        return before.split(" at 0x")[0] != after.split(" at 0x")[0]
    return before != after


def _deciding(launch: Launch, name: str):
    values = [printed.value for printed in launch.figures.get(name, ())]
    if not values:
        return None
    return max(values) if name in _DECIDED_BY_LARGEST else min(values)


def _ended(launch: Launch) -> str:
    return f"refused: {launch.refusal.kind}" if launch.refusal else launch.status
