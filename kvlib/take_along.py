"""What leaves the workbook: a ticket in Markdown, the lines to expect, a table as CSV, a set-up as JSON and back."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .errors import ConfigError
from .fit import NAMES, NOT_CHECKED, Fit, Typed, fit
from .improve import improvements
from .memory import at
from .ranges import gib_span
from .units import GiB, gib_text

MARK = "kvlib_fit"   # the key by which a saved set-up is known
_PLAIN = ("command", "gpu", "vllm_version", "quantization", *Typed.__dataclass_fields__)


def headline(found: Fit) -> str:
    """One sentence: model, cards, length, verdict and why.

    >>> headline(fit("Qwen3-8B", "--max-model-len 32768", gpu="L4"))
    'Qwen3-8B on one L4, requests of up to 32,768 tokens: too close to call; it passes if activations, non-torch \
memory and CUDA graphs take at most 0.49 GiB together; other launches took 0.4 to 3.7 GiB.'
    """
    verdict, cards = found.verdict, found.engine.tensor_parallel_size * found.engine.pipeline_parallel_size
    card = found.typical.plan.setup.gpu.name if found.typical.plan.setup.gpu else "card of 80 GiB"
    shortest, longest = found.low.max_model_len, found.high.max_model_len  # they differ where vLLM chooses the length
    length = f"{longest:,}" if shortest == longest else found.say(shortest, longest)
    return (f"{found.model.name} on {'one' if cards == 1 else f'{cards} ×'} {card}, requests of up to {length} tokens: "
            f"{verdict.phrase}{f'; {verdict.reason}' if verdict.reason else ''}.")


def holds(found: Fit, tokens: int | None = None) -> str:
    """How much the cache holds, in a sentence; with ``tokens``, of requests of that length too. Empty when refused."""
    if found.verdict.word == "refused":
        return ""
    low, high = found.low, found.high
    text = (f"The cache holds {found.say(low.kv_cache_tokens, high.kv_cache_tokens)} tokens: "
            f"{found.say(low.max_concurrency, high.max_concurrency)} requests of {high.max_model_len:,} at once")
    if tokens is not None and tokens <= high.max_model_len:
        text += f", {found.say(*found.requests_of(tokens))} of {tokens:,}"
    return text + "."


def lines_to_expect(found: Fit) -> list[str]:
    """What the log should say, and when to stop. Bytes are per GPU.

    >>> print(lines_to_expect(fit("Qwen3-8B", "--max-model-len 8192", gpu="L4"))[0])
    Available KV cache memory: between 1.35 and 4.6 GiB
    """
    low, high = found.low, found.high
    if found.verdict.word == "refused":
        return [("" if found.exact else "at best: ") + high.log_lines()[-1]]
    ends = [each.available_bytes for each in (low, high)]
    said = gib_text(ends[0]) if ends[0] == ends[1] else f"between {gib_text(ends[0])} and {gib_text(ends[1])}"
    lines = [f"Available KV cache memory: {said} GiB"]
    least = low.bytes_per_block * (high.blocks_per_request + high.plan.held_back_blocks)
    first = next((each.name for each in improvements(found) if each.fit.verdict.word == "passes"), None)
    advice = f": {first}" if first else ""
    if found.verdict.word != "passes":
        lines.append(f"below {gib_text(least)} GiB vLLM stops{advice}")
    elif ends[0] != ends[1]:
        lines.append(f"below {gib_text(ends[0])} GiB something else takes memory: look at the terms before raising anything")
    tokens = found.say(low.kv_cache_tokens, high.kv_cache_tokens)
    requests = found.say(low.max_concurrency, high.max_concurrency)
    if high.fits:
        lines.append(f"GPU KV cache size: {tokens} tokens, Maximum concurrency for {high.max_model_len:,} tokens per request: "
                     f"{requests}")
    return lines


class Row(NamedTuple):
    """One figure foretold and printed: ``verdict`` is "inside", "below" or "above" the range that was foretold."""

    figure: str
    low: Any
    high: Any
    printed: Any
    verdict: str


def foretold(found: Fit) -> tuple[Row, ...]:
    """Each figure of the log beside the range that was to be expected before it; empty without a log of this very set-up."""
    before = found.before_the_log() if found.logged else None
    if before is None:
        return ()
    rows = []
    for name, figures, ends in (
            ("Available KV cache memory (GiB)", found.launch.available_kv_cache_gib,
             [each.available_bytes / GiB for each in (before.low, before.high)]),
            ("GPU KV cache size (tokens)", found.launch.kv_cache_tokens,
             [each.kv_cache_tokens for each in (before.low, before.high)]),
            ("Maximum concurrency", found.launch.max_concurrency,
             [each.max_concurrency for each in (before.low, before.high)]),
            ("Model loading took (GiB)", found.launch.weights_gib,
             [at(before.memory.weights_bytes, side) / GiB for side in ("low", "high")])):
        for printed in figures[:1]:
            low, high = ends
            word = "below" if printed.high < low - 1e-9 else "above" if printed.low > high + 1e-9 else "inside"
            rows.append(Row(name, low, high, printed.value, word))
    return tuple(rows)


def ticket(found: Fit, tokens: int | None = None) -> str:
    """The answer for a ticket, in Markdown: verdict, command, version, memory by terms, lines to expect."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", found.serve)), default=0))
    lines = [f"**{_plain(headline(found))}**", "", holds(found, tokens), "", f"{fence}sh", found.serve, fence, "",
             f"vLLM {found.engine.version}, rules of kvlib. Memory on each GPU:", "",
             "| part | GiB | known |", "|---|---:|---|"]
    for name, term in found.terms.items():
        ends = [at(term.value, side) for side in ("low", "high")]
        label = {"total_bytes": "GPU memory", "available": "available for the cache", "free_bytes": "free at start"}.get(name)
        lines.append(f"| {label or NAMES[name]} | {gib_span(*ends, 2)} | {term.kind} |")
    lines += ["", "Expect in the log:", "", *(f"- {_plain(line)}" for line in lines_to_expect(found)), ""]
    first = next(iter(improvements(found)), None)
    if first is not None and found.verdict.word != "passes":
        lines += [f"First remedy: {first.name} ({first.gain}); it gives up {first.gives_up}.", ""]
    for flag, what in found.other.takes_memory.items():
        lines.append(f"- `--{_one_line(flag.replace('_', '-').replace('`', ''))}` takes memory that is not counted: {what}.")
    lines += [f"- {_plain(note[:1].upper() + note[1:])}." for note in (*found.notes, *found.typical.notes)]
    return "\n".join([*(line for line in lines), *([f"- {found.settles}"] if found.settles else []), f"- {NOT_CHECKED}", ""])


def _plain(text: str) -> str:
    """Words of others in Markdown, on one line and without a meaning of their own there."""
    return re.sub(r"([\\`*\[\]<>|~])", r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def to_csv(rows: Iterable[Mapping]) -> str:
    """Rows as CSV, the keys of the first as the header.

    >>> to_csv([{"a": 1, "b": "x,y"}])
    'a,b\\r\\n1,"x,y"\\r\\n'
    """
    rows = [dict(row) for row in rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], extrasaction="ignore")
    writer.writeheader()
    writer.writerows({key: _no_formula(value) for key, value in row.items()} for row in rows)
    return out.getvalue()


def _no_formula(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula, as text."""
    return "'" + value if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value


def figures(found: Fit, name: str = "") -> dict:
    """One set-up as a flat row: flags, verdict, and the range of each figure."""
    low, typical, high = found.low, found.typical, found.high
    engine, setup = found.engine, typical.plan.setup
    return {
        "name": name or found.model.name, "model": found.model.name, "gpu": setup.gpu.name if setup.gpu else "",
        "tensor_parallel_size": engine.tensor_parallel_size, "max_model_len": high.max_model_len,
        "kv_cache_dtype": engine.kv_cache_dtype, "gpu_memory_utilization": setup.gpu_memory_utilization,
        "verdict": found.verdict.phrase, "outcome_least": low.outcome, "outcome_most": high.outcome,
        "available_gib_least": round(low.available_bytes / GiB, 2), "available_gib_most": round(high.available_bytes / GiB, 2),
        "kv_cache_tokens_least": max(0, low.kv_cache_tokens), "kv_cache_tokens_most": max(0, high.kv_cache_tokens),
        "max_concurrency_least": round(low.max_concurrency, 2), "max_concurrency_most": round(high.max_concurrency, 2)}


def save(found: Fit) -> str:
    """The set-up as JSON that :func:`reopen` turns into the same figures, on another machine too."""
    asked = {name: found.asked.get(name) for name in _PLAIN if found.asked.get(name) not in (None, "")}
    asked["config"] = found.model.name if found.asked.get("config") in (None, "", found.model.name) and \
        _in_catalogue(found) else dict(found.model.config)
    if found.folder is not None and "weights_gib" not in asked and isinstance(found.terms["weights_bytes"].value, int):
        asked["weights_gib"] = found.terms["weights_bytes"].value / GiB
    if found.launch is not None:
        asked["log"] = "\n".join(text for _, text in sorted(found.launch.texts.items()))
    return json.dumps({MARK: 1, **asked}, indent=1, ensure_ascii=False)


def saved_fields(text: str) -> dict:
    """The arguments of :func:`kvlib.fit.fit` in a saved set-up. Raises ConfigError where it is none."""
    try:
        asked = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError("this is no saved set-up: it is not JSON", field=MARK) from None
    if not isinstance(asked, dict) or asked.pop(MARK, None) != 1:
        raise ConfigError(f"this is no saved set-up: the key {MARK} with the value 1 is missing", field=MARK)
    unknown = sorted(set(asked) - {*_PLAIN, "config", "log"})
    if unknown:
        raise ConfigError(f"the saved set-up holds {_one_line(', '.join(unknown))[:80]}, which this version does not know",
                          field=unknown[0])
    for name in ("command", "log", "gpu", "vllm_version", "quantization"):
        if not isinstance(asked.get(name), (str, type(None))):
            raise ConfigError(f"the saved set-up holds {name} {_one_line(repr(asked[name]))[:40]}; it must be text", field=name,
                              found=asked[name], expected="text")
    return {name: value for name, value in asked.items() if value is not None}


def reopen(text: str) -> Fit:
    """The set-up that :func:`save` wrote.

    >>> found = fit("Qwen3-8B", "--max-model-len 8192", gpu="L4")
    >>> reopen(save(found)).low.kv_cache_tokens == found.low.kv_cache_tokens
    True
    """
    asked = saved_fields(text)
    return fit(asked.pop("config", None), asked.pop("command", ""), log=asked.pop("log", ""), **asked)


def _in_catalogue(found: Fit) -> bool:
    from . import catalog

    return found.model.name in catalog.models() and found.model.config == catalog.model_config(found.model.name)


