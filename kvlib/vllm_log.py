"""Read a vLLM start-up log: its figures as intervals, sorted into launches.

A log may be whole or a few lines, from 0.6 to 0.33, with colours, timestamps, container prefixes, JSON wrapping,
broken lines, several workers, several engines, several launches. What is printed twice is kept twice.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from . import log_words as words
from .errors import SizingError
from .log_flags import engine_config, literal_args, model_of, namespace_args

__all__ = ["FIGURES", "Launch", "Log", "LogRefusal", "Printed", "literal_args", "read_log"]

MAX_LINE = 40_000  # characters of one line that are looked at
MAX_KEPT = 4_096  # figures of one kind kept for one launch
MAX_LAUNCHES = 1_000  # launches kept of one log
WRAPPED_LINES = 6  # a message broken over lines is joined over at most this many

GIB_FIGURES = ("total_gib", "free_gib", "requested_gib", "weights_gib", "peak_activation_gib", "non_torch_gib",
               "peak_torch_gib", "consumed_gib", "cuda_graph_gib", "cuda_graph_estimate_gib", "non_kv_cache_gib",
               "available_kv_cache_gib")
FIGURES = (*GIB_FIGURES, "kv_cache_tokens", "max_concurrency", "max_concurrency_len", "num_gpu_blocks", "kv_cache_bytes",
           "block_size", "backend_block_size", "padding_percent", "padding_layers", "padding_waste_percent", "group_sizes",
           "utilization", "utilization_without_graphs", "max_num_batched_tokens", "max_model_len", "auto_fit_from",
           "auto_fit_to", "auto_fit_full")


class Printed(NamedTuple):
    """A printed figure: the true value lies in [low, high]; exact ones have low == high.

    ``worker`` is the process that printed it ("" when the line does not say), ``line`` its number in the log,
    ``text`` the figure as it stands there.
    """

    value: Any
    low: Any
    high: Any
    worker: str = ""
    line: int = 0
    text: str = ""


class LogRefusal(NamedTuple):
    """Why a launch was refused, with the figures as printed (None where that message has none).

    ``kind`` is the outcome of the same name in :class:`kvlib.Sizing`.
    """

    kind: str
    needed_gib: Printed | None = None
    available_gib: Printed | None = None
    max_model_len: int | None = None
    estimated_max_model_len: int | None = None
    max_num_seqs: int | None = None
    num_gpu_blocks: int | None = None
    text: str = ""
    line: int = 0


@dataclass
class Launch:
    """One start of one server. Every figure is a list, one :class:`Printed` per process that printed it."""

    first_line: int = 0
    vllm_version: str | None = None
    model: str | None = None
    architecture: str | None = None
    backend: str | None = None
    device: str | None = None
    flags: dict = field(default_factory=dict)
    refusal: LogRefusal | None = None
    figures: dict[str, list[Printed]] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)  # the lines that gave something, by number
    stage: int = 0  # how far it came: 0 arguments, 1 engine, 2 memory, 3 capacity or refusal
    starters: set = field(default_factory=set)  # who printed arguments or an engine config
    ended_by: str | None = None
    has_args: bool = False

    def __getattr__(self, name: str) -> list[Printed]:
        if name in FIGURES:
            return self.figures.get(name, [])
        raise AttributeError(name)

    @property
    def status(self) -> str:
        """"refused", "sized" (a capacity was printed) or "unfinished"."""
        return "refused" if self.refusal else "sized" if self.kv_cache_tokens or self.num_gpu_blocks else "unfinished"

    @property
    def runtime_gib(self) -> Printed | None:
        """The reserve: non-KV memory less weights, where one process printed both."""
        both = _same_worker(self.non_kv_cache_gib, self.weights_gib)
        if not both:
            return None
        total, weights = both
        return Printed(round(total.value - weights.value, 4), total.low - weights.high, total.high - weights.low,
                       total.worker, total.line)

    def __repr__(self) -> str:
        return f"Launch(line {self.first_line}, {self.model or 'model not named'}, {self.status})"


def _same_worker(one: list[Printed], other: list[Printed]) -> tuple[Printed, Printed] | None:
    for left in one:
        for right in other:
            if left.worker == right.worker or not left.worker or not right.worker:
                return left, right
    return None


class Log:
    """The launches of a log, in order. Other attributes are those of the last launch."""

    def __init__(self, launches: list[Launch], lines_read: int):
        self.launches, self.lines_read = launches, lines_read

    @property
    def last(self) -> Launch:
        return self.launches[-1] if self.launches else Launch()

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.last, name)

    def __repr__(self) -> str:
        return f"Log({len(self.launches)} launches, {self.lines_read:,} lines)"


def read_log(source: str | bytes | os.PathLike | Iterable[str]) -> Log:
    """Read a start-up log from text, a path, bytes, or an iterable of lines.

    A string without a line break that names an existing file is taken as a path. A file is read line by line, so
    its size does not matter. Never raises on what a log says; SizingError only where a path cannot be read.

    >>> log = read_log("INFO Available KV cache memory: 93.61 GiB\\nGPU KV cache size: 681,600 tokens")
    >>> log.available_kv_cache_gib[0][:3], log.kv_cache_tokens[0].value
    ((93.61, 93.605, 93.615), 681600)
    """
    reader = _Reader()
    for number, line in enumerate(_lines(source), 1):
        reader.feed(number, line)
    reader.finish()
    return Log(reader.launches, reader.lines)


def _lines(source) -> Iterator[str]:
    if isinstance(source, bytes):
        source = source.decode(_encoding(source[:4]), "replace")
    if isinstance(source, str) and not ("\n" in source or "\r" in source) and len(source) < 1024:
        try:
            is_file = bool(source.strip()) and Path(source).expanduser().is_file()
        except (OSError, ValueError, RuntimeError):
            is_file = False
        if is_file:
            source = Path(source).expanduser()
    if isinstance(source, os.PathLike):
        try:
            with open(source, "rb") as file:
                encoding = _encoding(file.read(4))
            with open(source, encoding=encoding, errors="replace", newline=None) as file:
                while line := file.readline(1 << 20):
                    yield line
        except OSError as error:
            raise SizingError(f"the log {Path(source).name} cannot be read: {error.strerror}") from None
        return
    if isinstance(source, str):
        source = io.StringIO(source, newline=None)
    yield from source


def _encoding(start: bytes) -> str:
    """UTF-8, unless the text begins as PowerShell's UTF-16 does."""
    return "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig" if start[:3] == b"\xef\xbb\xbf" else "utf-8"


class _Reader:
    """Feeds lines into launches."""

    def __init__(self):
        self.launches: list[Launch] = []
        self.lines = 0
        self.open: list[tuple[int, str]] = []  # a message that may go on in the next lines
        self.last = ""  # the line before, where its end may be the beginning of a message
        self.tries = 20_000  # ways of joining broken lines that may still be tried

    def feed(self, number: int, raw: str) -> None:
        self.lines = number
        if len(raw) < 4 and not self.open:
            return
        line = raw[:MAX_LINE].rstrip("\r\n")
        if self.open:
            if self._goes_on(line):
                self.open.append((number, line))
                if len(self.open) > WRAPPED_LINES or self._whole_message():
                    self._close()
                return
            self._close()
        if line[:1] == "{" and '"MESSAGE"' in line and not words.hinted(line):
            line = _unwrapped(line)  # journald writes a coloured line as a list of bytes
        if not words.hinted(line):
            if self.last and line and self._straddles(number, line):
                return
            self.last = line if len(line) > 30 else ""
            return
        if self.last and self._straddles(number, line):
            return
        self.last = line
        for part in _records(line):
            part = _unwrapped(part)
            if self.tries > 0 and words.BEGINS.search(part) and not words.complete(part):
                self._close()
                self.open = [(number, part)]
            else:
                self._close()
                self._take(number, part)

    def finish(self) -> None:
        self._close()

    def _goes_on(self, line: str) -> bool:
        """Is this line the rest of the open message, not a record of its own?"""
        if len(line) > 2_000:
            return False
        rest = words.CONTAINER.sub("", _unwrapped(line))
        begins = words.BEGINS.search(words.PREFIX.sub("", rest))
        if begins and not begins.start() and (
                begins[0] != "max seq len (" or not words.REFUSED_START.search(self.open[0][1])):
            return False
        if not words.RECORD.match(rest):
            return True
        # vLLM repeats its prefix on each line of a message; a record of its own starts a message of its own
        return "ERROR" in rest[:80] and "Traceback" not in rest

    def _straddles(self, number: int, line: str) -> bool:
        """Did a terminal break the line before in the middle of a message's first words?"""
        last = self.last
        if len(last) < 30 or words.RECORD.match(line):
            return False
        for glue in ("", " "):
            tail = last[-40:] + glue
            if any(match.start() < len(tail) < match.end() for match in words.BEGINS.finditer(tail + line[:40])):
                self._close()
                self.open, self.last = [(number - 1, _unwrapped(last + glue + line))], ""
                if words.complete(self.open[0][1]):
                    self._close()
                return True
        return False

    def _close(self) -> None:
        if self.open:
            text, waiting, self.open = self._whole_message() or self._whole_message(cut=True), self.open, []
            if text:
                self._take(waiting[0][0], text)
            else:
                for number, line in waiting:
                    self._take(number, _unwrapped(line))

    def _whole_message(self, cut: bool = False) -> str:
        """The open message as one line, if its parts make a whole one; "" otherwise.

        A break stands for a space, or for nothing where it fell into a word or a number: all ways are tried, and
        the one that reads most figures is taken. ``cut`` also takes a refusal whose end is missing.
        """
        first, *rest = (_unwrapped(line) for _, line in self.open)
        parts = [first.rstrip(), *(words.PREFIX.sub("", line).strip() for line in rest)]
        likely = sum(1 << place for place, (left, right) in enumerate(zip(parts, rest))
                     if left[-1:] and left[-1] in "0123456789,." and right[:1].isdigit())
        best, most = "", -1
        for way in range(1 << len(rest)) if self.tries > 0 else (0,):
            self.tries -= 1
            text = parts[0]
            for place, line in enumerate(parts[1:]):
                text += line if (way ^ likely) >> place & 1 else " " + line
            if words.complete(text) or cut and words.REFUSED.search(text):
                read = words.count(text)
                if read > most:
                    best, most = text, read
        return best

    def _take(self, number: int, line: str) -> None:
        worker = _worker(line)
        if engine := words.ENGINE.search(line):
            launch = self._launch(number, 1, worker)
            launch.vllm_version = launch.vllm_version or engine[1]
            self._flags(launch, number, line, engine_config(line))
            return
        if args := words.ARGS.search(line):
            launch = self._launch(number, 0, worker)
            launch.has_args = True
            self._flags(launch, number, line, literal_args(args[1]), override=True)
            return
        if args := words.NAMESPACE.search(line):
            launch = self._launch(number, 0, worker)
            launch.has_args = True
            self._flags(launch, number, line, namespace_args(args[1]))
            return
        if version := words.VERSION.search(line):
            launch = self._launch(number, 0, worker)
            launch.vllm_version = version[1]
            if model := words.BANNER_MODEL.search(line):
                launch.model = launch.model or model[1]
            return
        if self._refusal(number, line, worker):
            return
        self._figures(number, line, worker)

    @staticmethod
    def _flags(launch: Launch, number: int, line: str, found: dict, override: bool = False) -> None:
        launch.texts[number] = line
        if model := model_of(found):
            launch.model = model if override or not launch.model else launch.model
        for name, value in found.items():
            if override or name not in launch.flags and name not in ("model", "model_tag"):
                launch.flags[name] = value

    def _launch(self, number: int, stage: int, worker: str, names: Iterable[str] = ()) -> Launch:
        """The launch a line belongs to: a new one where the line starts again what was already further on."""
        current = self.launches[-1] if self.launches else None
        if current is None or len(self.launches) < MAX_LAUNCHES and self._begins_again(current, stage, worker, names):
            current = Launch(first_line=number)
            self.launches.append(current)
        current.stage = max(current.stage, stage)
        if stage == 1:
            current.starters.add(worker)
        return current

    @staticmethod
    def _begins_again(current: Launch, stage: int, worker: str, names: Iterable[str]) -> bool:
        if stage == 0:
            return current.stage >= 1 or current.has_args
        if stage == 1:
            return current.stage >= 1 and not _other_engine(current, worker)
        if stage != 2 or current.stage != 3:
            return False
        if process(worker) == process(current.ended_by or "") or not worker:
            return True
        return any(process(old.worker) == process(worker) for name in names for old in current.figures.get(name, ()))

    def _figures(self, number: int, line: str, worker: str) -> None:
        found: list[tuple[str, str]] = []
        for names, groups in words.figures(line):
            found.extend(zip(names, groups))
        launch = None
        if found:
            names = [name for name, _ in found]
            memory = any(name in GIB_FIGURES for name in names) and not words.LATE.search(line)
            launch = self._launch(number, 2, worker, names) if memory or not self.launches else self.launches[-1]
            launch.texts[number] = line
            for name, text in found:
                if name == "device":
                    launch.device = text
                    continue
                _keep(launch, name, _printed(name, text, worker, number))
            if any(name in ("kv_cache_tokens", "num_gpu_blocks", "max_concurrency") for name in names):
                launch.stage, launch.ended_by = 3, worker
        self._words(number, line, worker, launch)

    def _words(self, number: int, line: str, worker: str, launch: Launch | None) -> None:
        """What a line names without a figure: architecture, backend, the cache's type."""
        architecture, backend = words.ARCHITECTURE.search(line), words.BACKEND.search(line)
        dtype = words.CACHE_DTYPE.search(line)
        if not (architecture or backend or dtype):
            return
        current = launch or (self.launches[-1] if self.launches else self._launch(number, 0, worker))
        if architecture:
            current.architecture = current.architecture or architecture[1]
        if backend:
            name = backend[1].upper().removesuffix(" ATTENTION").replace(" ", "_")
            name = "FLASH_ATTN" if name == "FLASH" else name
            current.backend = current.backend or name
        if dtype and current.flags.get("kv_cache_dtype") in (None, "auto"):
            current.flags["kv_cache_dtype"] = dtype[1]

    def _refusal(self, number: int, line: str, worker: str) -> bool:
        refusal = _refusal(number, line, worker)
        if refusal is None and words.OOM.search(line) and self.launches and not (
                self.launches[-1].kv_cache_tokens or self.launches[-1].num_gpu_blocks):
            refusal = LogRefusal("weights_do_not_fit", text=line, line=number)
        if refusal is None:
            return False
        free = words.FREE.search(line)
        launch = self._launch(number, 2, worker, ["requested_gib"] if free else ())
        if free:
            for name, text in zip(("free_gib", "total_gib", "utilization", "requested_gib"), free.groups()):
                _keep(launch, name, _printed(name, text, worker, number))
        if launch.refusal is None:
            launch.refusal = refusal
        launch.stage, launch.ended_by = 3, worker
        launch.texts[number] = line
        return True


def _refusal(number: int, line: str, worker: str) -> LogRefusal | None:
    """The refusal that a line prints, or None."""
    estimate = words.ESTIMATE.search(line)
    if match := words.REFUSED.search(line):
        return LogRefusal("max_model_len", _printed("needed_gib", match[2], worker, number),
                          _printed("available_gib", match[3], worker, number), _whole(match[1]),
                          _whole(estimate[1]) if estimate else None, text=line, line=number)
    if match := words.V0_REFUSED.search(line):
        return LogRefusal("max_model_len", max_model_len=_whole(match[1]), estimated_max_model_len=_whole(match[2]),
                          text=line, line=number)
    if match := words.FREE.search(line):
        return LogRefusal("free_memory", _printed("needed_gib", match[4], worker, number),
                          _printed("available_gib", match[1], worker, number), text=line, line=number)
    if match := words.SEQS.search(line):
        return LogRefusal("max_num_seqs", max_num_seqs=int(match[1]), num_gpu_blocks=int(match[2]), text=line, line=number)
    if words.NO_CACHE.search(line):
        return LogRefusal("no_cache_memory", text=line, line=number)
    return None


def _keep(launch: Launch, name: str, printed: Printed | None) -> None:
    """A figure into its list, once for each process that printed it, and once more where it differs."""
    kept = launch.figures.setdefault(name, [])
    if printed is not None and len(kept) < MAX_KEPT and not any(
            old.text == printed.text and old.worker == printed.worker for old in kept):
        kept.append(printed)


def process(worker: str) -> str:
    """The name of a process without its id, which changes with every start."""
    return worker.split(" pid")[0]


def _other_engine(launch: Launch, worker: str) -> bool:
    """Is this another data-parallel engine of the same launch, not the same one again?"""
    return "DP" in worker and process(worker) not in {process(name) for name in launch.starters}


def _records(line: str) -> list[str]:
    """The records of a line that holds several, written with a literal ``\\n`` between them."""
    if "\\n" not in line or line.lstrip().startswith("{"):
        return [line]
    return re.split(r"\\n(?=\x1b|\\x1b|\(|\[|INFO|ERROR|WARNING|\d{4}-|ValueError|$)", line)


_WRAPPED = ("log", "message", "msg", "MESSAGE", "textPayload", "@message", "line", "text", "body", "jsonPayload")


def _unwrapped(line: str) -> str:
    """A line without colours, and out of its JSON wrapping."""
    text = line.strip()
    if text.startswith("{") and text.endswith("}") and '"' in text:
        try:
            text = _message(json.loads(text)) or text
        except (ValueError, RecursionError):
            pass
    return words.ANSI.sub("", text).rstrip()


def _message(record, depth: int = 2) -> str | None:
    """The text of a JSON record: a string under one of the usual names, or journald's list of bytes."""
    if not isinstance(record, dict) or not depth:
        return None
    for key in _WRAPPED:
        value = record.get(key)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, dict) and (inner := _message(value, depth - 1)):
            return inner
        if isinstance(value, list) and value and all(isinstance(n, int) and 0 <= n < 256 for n in value):
            return bytes(value).decode("utf-8", "replace")
    return None


def _worker(line: str) -> str:
    found = [match[1] + (f" pid={match[2]}" if match[2] else "") for match in words.WORKER.finditer(line[:400])]
    if found:
        return found[-1]
    rank = words.RANK.search(line[:400])
    return f"rank {rank[1] or rank[2]}" if rank else ""


def _whole(text: str) -> int | None:
    digits = text.replace(",", "")
    return int(digits) if digits.isdigit() and digits.isascii() and len(digits) <= 18 else None


def _printed(name: str, text: str, worker: str = "", line: int = 0) -> Printed | None:
    """A figure as an interval: GiB are rounded to two decimals with trailing zeros dropped, or to as many as stand
    there; concurrency and shares to their decimals; tokens, blocks and lengths are exact."""
    plain = text.replace(",", "")
    if len(plain) > 30:
        return None
    if name == "group_sizes":
        sizes = tuple(int(part) for part in re.findall(r"\d+", text)[:4096] if len(part) < 12)
        return Printed(sizes, sizes, sizes, worker, line, text)
    try:
        if name.endswith("_gib") or name in ("max_concurrency", "padding_percent", "padding_waste_percent"):
            decimals = len(plain.partition(".")[2])
            half = 0.005 if decimals <= 2 else 0.5 * 10 ** -decimals
            value = float(plain)
            return Printed(value, round(value - half, 9), round(value + half, 9), worker, line, text)
        if name.startswith("utilization"):
            value = float(plain)
            return Printed(value, value, value, worker, line, text)
    except ValueError:  # 1.2.3 is no number
        return None
    whole = _whole(plain)
    return None if whole is None else Printed(whole, whole, whole, worker, line, text)
