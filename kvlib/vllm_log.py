"""Read a vLLM start-up log: its figures as intervals, sorted into launches.

A log may be whole or a few lines, from 0.6 to 0.33, with colours, timestamps, container prefixes, JSON wrapping,
broken lines, several workers, several engines, several launches. What is printed twice is kept twice.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .errors import SizingError

MAX_LINE = 20_000  # characters of one line that are looked at
MAX_KEPT = 4_096  # figures of one kind kept for one launch
WRAPPED_LINES = 4  # a message broken over lines is joined over at most this many

GIB_FIGURES = ("total_gib", "free_gib", "requested_gib", "weights_gib", "peak_activation_gib", "non_torch_gib",
               "consumed_gib", "cuda_graph_gib", "cuda_graph_estimate_gib", "non_kv_cache_gib",
               "available_kv_cache_gib")
FIGURES = (*GIB_FIGURES, "kv_cache_tokens", "max_concurrency", "max_concurrency_len", "num_gpu_blocks", "block_size",
           "padding_percent", "group_sizes", "utilization", "utilization_without_graphs", "max_num_batched_tokens", "auto_fit_from", "auto_fit_to")


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
    engines: set = field(default_factory=set)
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
        source = source.decode("utf-8", "replace")
    if isinstance(source, str) and not ("\n" in source or "\r" in source) and len(source) < 1024:
        try:
            is_file = bool(source.strip()) and Path(source).expanduser().is_file()
        except (OSError, ValueError, RuntimeError):
            is_file = False
        if is_file:
            source = Path(source).expanduser()
    if isinstance(source, os.PathLike):
        try:
            with open(source, encoding="utf-8", errors="replace", newline=None) as file:
                while line := file.readline(1 << 20):
                    yield line
        except OSError as error:
            raise SizingError(f"the log {Path(source).name} cannot be read: {error.strerror}") from None
        return
    if isinstance(source, str):
        start = 0
        for match in re.finditer(r"\r\n|\n|\r", source):
            yield source[start:match.start()]
            start = match.end()
        yield source[start:]
        return
    yield from source


# --- the words of the lines ---------------------------------------------------------------------------------

_N = r"(-?[\d,]+(?:\.\d+)?)"
_G = _N + r" ?Gi?B"
_HINT = re.compile(r"KV cache|kv.?cache|KV Cache|GiB|GB mem|weights took|Model loading|non-default args|LLM engine|"
                   r"version|blocks|oncurrency|utilization|model length|max_num_seqs|attention b|page size|"
                   r"batched_tokens|max_model_len|architecture|backend|out of memory|Mamba|max seq len|max model len")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\\x1b\[[0-9;]*m|\\u001b\[[0-9;]*m")
_WORKER = re.compile(r"\(((?:EngineCore|Worker|VllmWorker|APIServer|ApiServer|MainProcess|RayWorker|Engine)[\w.:-]*"
                     r"(?: rank=\d+)?)(?: pid=(\d+))?[^)]*\)")
_RANK = re.compile(r"\[rank(\d+)\]|\bTP(\d+)\b")
_PREFIX = re.compile(  # what containers and loggers put before a line
    r"^(?:\s*(?:\x1b\[[0-9;]*m)*(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,+Z-]+\]?|(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)\b:?|"
    r"\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?|std(?:out|err) [FP]|[\w.-]+\s*\||[A-Z][a-z]{2} +\d+ [\d:]{8} \S+ \S+?:|"
    r"\[[\w./]+\.py:\d+\]|\((?:EngineCore|Worker|VllmWorker|APIServer|MainProcess|RayWorker)[^)]*\)|\[rank\d+\]:?)\s*)+")

_GIB = {  # figures in GiB: one pattern, the names of its groups
    re.compile(r"(?:Model loading took|[Ll]oading model weights took) " + _G): ("weights_gib",),
    re.compile(r"Initial free memory:? " + _G): ("free_gib",),
    re.compile(r"Requested memory: ([\d.]+) \(util\), " + _G): ("utilization", "requested_gib"),
    re.compile(r"Total non KV cache memory: " + _G): ("non_kv_cache_gib",),
    re.compile(r"torch peak memory increase: " + _G): ("peak_activation_gib",),
    re.compile(r"non-torch forward increase memory: " + _G): ("non_torch_gib",),
    re.compile(r"total consumed \(from mem_get_info\): " + _G): ("consumed_gib",),
    re.compile(r"weights memory: " + _G): ("weights_gib",),
    re.compile(r"Available KV cache memory: " + _G): ("available_kv_cache_gib",),
    re.compile(r"reserved " + _G + r" memory for KV Cache"): ("available_kv_cache_gib",),
    re.compile(r"Explicitly set \(" + _N + r"/" + _N + r"\) GiB for KV cache"): ("available_kv_cache_gib", "total_gib"),
    re.compile(r"total_gpu_memory \(" + _G + r"\) x gpu_memory_utilization \(([\d.]+)\) = " + _G):
        ("total_gib", "utilization", "requested_gib"),
    re.compile(r"model weights take " + _G): ("weights_gib",),
    re.compile(r"non_torch_memory takes " + _G): ("non_torch_gib",),
    re.compile(r"PyTorch activation peak memory takes " + _G): ("peak_activation_gib",),
    re.compile(r"reserved for KV Cache is " + _G): ("available_kv_cache_gib",),
    re.compile(r"Free memory on device \(" + _N + "/" + _N + r" GiB\) on startup\. Desired"): ("free_gib", "total_gib"),
    re.compile(r"Desired GPU memory utilization is \(([\d.]+), " + _N + r" GiB\)"): ("utilization", "requested_gib"),
    re.compile(r"Actual usage is " + _G + r" for weight"): ("weights_gib",),
    re.compile(r"Actual usage is " + _G + r" for consumed memory"): ("consumed_gib",),
    re.compile(r"usage is .{0,120}?" + _G + r" for peak activation"): ("peak_activation_gib",),
    re.compile(r"usage is .{0,160}?" + _G + r" for non-torch"): ("non_torch_gib",),
    re.compile(r"usage is .{0,220}?" + _G + r" for CUDAGraph memory"): ("cuda_graph_gib",),
    re.compile(r"Graph capturing finished in .{0,40}?took " + _G): ("cuda_graph_gib",),
    re.compile(r"CUDA graph pool memory: " + _G + r" \(actual\), " + _G + r" \(estimated\)"):
        ("cuda_graph_gib", "cuda_graph_estimate_gib"),
    re.compile(r"Estimated CUDA graph memory: " + _G): ("cuda_graph_estimate_gib",),
}
_COUNTS = {
    re.compile(r"(GPU|CPU|XPU|TPU|HPU|NPU) KV cache size: ([\d,]+) tokens"): ("device", "kv_cache_tokens"),
    re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.,]+)x"):
        ("max_concurrency_len", "max_concurrency"),
    re.compile(r"# (?:GPU|CUDA|cuda|gpu) blocks: ([\d,]+)"): ("num_gpu_blocks",),
    re.compile(r"num_gpu_blocks_override=([\d,]+)"): ("num_gpu_blocks",),
    re.compile(r"Setting attention block size to ([\d,]+) tokens"): ("block_size",),
    re.compile(r"Padding mamba page size by ([\d.]+)%"): ("padding_percent",),
    re.compile(r"kv cache group sizes \(([\d, ]+)\)"): ("group_sizes",),
    re.compile(r"enabled with max_num_batched_tokens=([\d,]+)"): ("max_num_batched_tokens",),
    re.compile(r"gpu-memory-utilization=([\d.]+) is equivalent to --gpu-memory-utilization=([\d.]+)"):
        ("utilization", "utilization_without_graphs"),
    re.compile(r"Auto-fit max_model_len: reduced from ([\d,]+) to ([\d,]+)"): ("auto_fit_from", "auto_fit_to"),
}
_ARGS = re.compile(r"non-default args: (\{.*)")
_ENGINE = re.compile(r"Initializing an? (?:V\d )?LLM engine \(v?([^)\s]+)\)")
_VERSION = re.compile(r"(?:vLLM API server version|vLLM version|^[^\w]*[█▄▀ ]+.*version|[█▄▀].*version):? +v?(\d+\.\d+[\w.+]*)")
_BANNER_MODEL = re.compile(r"[█▄▀].*\bmodel +(\S+)")
_CONFIG_VALUE = re.compile(r"\b(model|dtype|max_seq_len|tensor_parallel_size|pipeline_parallel_size|data_parallel_size|"
                           r"decode_context_parallel_size|quantization|enforce_eager|kv_cache_dtype|device_config|"
                           r"enable_prefix_caching)=('[^']*'|\"[^\"]*\"|[^,\s)]+)")
_ARCHITECTURE = re.compile(r"Resolved architecture: (\w+)")
_BACKEND = re.compile(r"Using (\w+) (?:attention backend|backend on V\d engine)|Using (\w+ ?\w*) attention backend")
_REFUSED = re.compile(
    r"To serve at least one request with (?:the )?model'?s?'? max seq len \(([\d,]+)\),? *\(?" + _G +
    r"\)? KV cache is needed, which is larger than the available KV cache memory \(" + _G + r"\)")
_REFUSED_START = re.compile(r"To serve at least one request with")
_ESTIMATE = re.compile(r"estimated maximum model length is ([\d,]+)")
_V0_REFUSED = re.compile(r"max seq len \(([\d,]+)\) is larger than the maximum number of tokens that can be stored in "
                         r"KV cache \(([\d,]+)\)")
_FREE = re.compile(r"Free memory on device (?:cuda:\d+ )?\(" + _N + "/" + _N + r" GiB\) on startup is less than desired "
                   r"GPU memory utilization \(([\d.]+), " + _N + r" GiB\)")
_NO_CACHE = re.compile(r"No available memory for the cache blocks")
_SEQS = re.compile(r"max_num_seqs \((\d+)\) exceeds available Mamba cache blocks \((\d+)\)")
_OOM = re.compile(r"CUDA out of memory|OutOfMemoryError|HIP out of memory")
_BEGINS = re.compile(r"To serve at least one request with|(?:GPU|CPU|XPU) KV cache size:|Maximum concurrency for|"
                     r"Available KV cache memory|Free memory on device|Total non KV cache|Initial free memory|"
                     r"total_gpu_memory|Actual usage is|max_num_seqs \(")


class _Reader:
    """Feeds lines into launches."""

    def __init__(self):
        self.launches: list[Launch] = []
        self.lines = 0
        self.open: list[tuple[int, str]] = []  # a message that may go on in the next lines
        self.worker = ""

    def feed(self, number: int, raw: str) -> None:
        self.lines = number
        line = raw[:MAX_LINE]
        hinted = _HINT.search(line)
        if self.open:
            if hinted and (_ENGINE.search(line) or _ARGS.search(line) or _VERSION.search(line)):
                self._close()
            else:
                self.open.append((number, line))
                if len(self.open) > WRAPPED_LINES or _complete(_joined(self.open)):
                    self._close()
                return
        if not hinted:
            return
        line = _unwrapped(line)
        if _BEGINS.search(line) and not _complete(line):
            self.open = [(number, line)]
            return
        self._take(number, line)

    def finish(self) -> None:
        self._close()

    def _close(self) -> None:
        if self.open:
            waiting, self.open = self.open, []
            text = _joined(waiting)
            if _complete(text):
                self._take(waiting[0][0], text)
            else:
                for number, line in waiting:
                    self._take(number, _unwrapped(line))

    def _take(self, number: int, line: str) -> None:
        worker = _worker(line)
        if engine := _ENGINE.search(line):
            launch = self._launch(number, 1, worker)
            launch.vllm_version = launch.vllm_version or engine[1]
            _from_engine_config(launch, line)
            launch.texts[number] = line
            return
        if args := _ARGS.search(line):
            launch = self._launch(number, 0, worker)
            _from_args(launch, args[1])
            launch.has_args = True
            launch.texts[number] = line
            return
        if version := _VERSION.search(line):
            launch = self._launch(number, 0, worker)
            launch.vllm_version = version[1]
            return
        if self._refusal(number, line, worker):
            return
        self._figures(number, line, worker)

    def _launch(self, number: int, stage: int, worker: str) -> Launch:
        """The launch a line belongs to: a new one where the line starts again what was already further on."""
        current = self.launches[-1] if self.launches else None
        again = current is not None and (
            stage == 0 and (current.stage >= 1 or current.has_args)
            or stage == 1 and current.stage >= 1 and not _other_engine(current, worker)
            or stage == 2 and current.stage == 3 and current.ended_by in (worker, ""))
        if current is None or again:
            current = Launch(first_line=number)
            self.launches.append(current)
        current.stage = max(current.stage, stage)
        if stage == 1:
            current.engines.add(worker)
        return current

    def _figures(self, number: int, line: str, worker: str) -> None:
        found: list[tuple[str, str]] = []
        for patterns in (_GIB, _COUNTS):
            for pattern, names in patterns.items():
                for match in pattern.finditer(line):
                    found.extend(zip(names, match.groups()))
        launch = None
        if found:
            memory = any(name in GIB_FIGURES for name, _ in found)
            launch = self._launch(number, 2, worker) if memory or not self.launches else self.launches[-1]
            launch.texts[number] = line
            for name, text in found:
                if name == "device":
                    launch.device = text
                    continue
                printed = _printed(name, text, worker, number)
                kept = launch.figures.setdefault(name, [])
                if printed is not None and len(kept) < MAX_KEPT and not any(
                        old.text == printed.text and old.worker == worker for old in kept):
                    kept.append(printed)
            if any(name in ("kv_cache_tokens", "num_gpu_blocks", "max_concurrency") for name, _ in found):
                launch.stage, launch.ended_by = 3, worker
        current = launch or (self.launches[-1] if self.launches else None)
        if architecture := _ARCHITECTURE.search(line):
            current = current or self._launch(number, 0, worker)
            current.architecture = current.architecture or architecture[1]
        if backend := _BACKEND.search(line):
            current = current or self._launch(number, 0, worker)
            current.backend = current.backend or (backend[1] or backend[2]).upper().replace(" ", "_")
        if (model := _BANNER_MODEL.search(line)) and current is not None:
            current.model = current.model or model[1]

    def _refusal(self, number: int, line: str, worker: str) -> bool:
        estimate = _ESTIMATE.search(line)
        if match := _REFUSED.search(line):
            refusal = LogRefusal("max_model_len", _printed("needed_gib", match[2], worker, number),
                                 _printed("available_gib", match[3], worker, number), _whole(match[1]),
                                 _whole(estimate[1]) if estimate else None, text=line, line=number)
        elif match := _V0_REFUSED.search(line):
            refusal = LogRefusal("max_model_len", max_model_len=_whole(match[1]),
                                 estimated_max_model_len=_whole(match[2]), text=line, line=number)
        elif match := _FREE.search(line):
            refusal = LogRefusal("free_memory", _printed("needed_gib", match[4], worker, number),
                                 _printed("available_gib", match[1], worker, number), text=line, line=number)
            launch = self._launch(number, 2, worker)
            for name, text in (("free_gib", match[1]), ("total_gib", match[2]), ("utilization", match[3]),
                               ("requested_gib", match[4])):
                launch.figures.setdefault(name, []).append(_printed(name, text, worker, number))
        elif match := _SEQS.search(line):
            refusal = LogRefusal("max_num_seqs", max_num_seqs=int(match[1]), num_gpu_blocks=int(match[2]), text=line,
                                 line=number)
        elif _NO_CACHE.search(line):
            refusal = LogRefusal("no_cache_memory", text=line, line=number)
        elif _OOM.search(line) and self.launches and not self.launches[-1].kv_cache_tokens:
            refusal = LogRefusal("weights_do_not_fit", text=line, line=number)
        else:
            return False
        launch = self.launches[-1] if self.launches else self._launch(number, 2, worker)
        if launch.refusal is None:
            launch.refusal = refusal
        launch.stage, launch.ended_by = 3, worker
        launch.texts[number] = line
        return True


def _other_engine(launch: Launch, worker: str) -> bool:
    """Is this another data-parallel engine of the same launch, not the same one again?"""
    names = {name.split(" pid")[0] for name in launch.engines}
    return bool(names) and "DP" in worker and worker.split(" pid")[0] not in names


def _complete(text: str) -> bool:
    """Does the message that begins in ``text`` also end in it?"""
    if _REFUSED_START.search(text):
        return bool(_REFUSED.search(text)) and ("Based on the available" not in text or bool(_ESTIMATE.search(text)))
    return any(pattern.search(text) for patterns in (_COUNTS, _GIB) for pattern in patterns) or bool(
        _FREE.search(text) or _SEQS.search(text))


def _joined(parts: list[tuple[int, str]]) -> str:
    """The parts of a broken message as one line, their prefixes taken off."""
    first, *rest = (_unwrapped(line) for _, line in parts)
    return " ".join([first.rstrip(), *(_PREFIX.sub("", line).strip() for line in rest)])


def _unwrapped(line: str) -> str:
    """A line without colours, and out of its JSON wrapping."""
    text = line.strip()
    if text.startswith("{") and text.endswith("}") and '"' in text:
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            for key in ("log", "message", "msg", "MESSAGE", "textPayload", "line", "text"):
                if isinstance(record.get(key), str):
                    text = record[key]
                    break
    return _ANSI.sub("", text).rstrip()


def _worker(line: str) -> str:
    match = _WORKER.search(line)
    if match:
        return match[1] + (f" pid={match[2]}" if match[2] else "")
    rank = _RANK.search(line)
    return f"rank {rank[1] or rank[2]}" if rank else ""


def _whole(text: str) -> int | None:
    digits = text.replace(",", "")
    return int(digits) if digits.isdigit() and len(digits) <= 18 else None


def _printed(name: str, text: str, worker: str = "", line: int = 0) -> Printed | None:
    """A figure as an interval: GiB are rounded to two decimals with trailing zeros dropped, or to as many as stand
    there; concurrency and shares to their decimals; tokens, blocks and lengths are exact."""
    plain = text.replace(",", "")
    if len(plain) > 30:
        return None
    if name == "group_sizes":
        sizes = tuple(int(part) for part in re.findall(r"\d+", text)[:4096] if len(part) < 12)
        return Printed(sizes, sizes, sizes, worker, line, text)
    if name.endswith("_gib") or name in ("max_concurrency", "padding_percent"):
        decimals = len(plain.partition(".")[2])
        half = 0.005 if decimals <= 2 else 0.5 * 10 ** -decimals
        value = float(plain)
        return Printed(value, round(value - half, 9), round(value + half, 9), worker, line, text)
    if name.startswith("utilization"):
        value = float(plain)
        return Printed(value, value, value, worker, line, text)
    whole = _whole(plain)
    return None if whole is None else Printed(whole, whole, whole, worker, line, text)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def literal_args(text: str) -> dict:
    """A printed Python dict of arguments, or what of it can be read; ``{}`` where nothing can."""
    text = text[:MAX_LINE]
    end = text.rfind("}")
    parsed = _literal(text[:end + 1]) if end > 0 else None
    if not isinstance(parsed, dict):
        parsed = {}
        for key, value in re.findall(r"'(\w+)': ('[^']*'|\{[^{}]*\}|[\w.+-]+)", text):
            found = _literal(value)
            parsed[key] = value.strip("'") if found is None and value != "None" else found
    return {str(key): value for key, value in parsed.items()}


def _from_args(launch: Launch, text: str) -> None:
    """``non-default args: {...}`` into flags and the model's name."""
    parsed = literal_args(text)
    launch.flags.update(parsed)
    model = parsed.get("model") or parsed.get("model_tag")
    if isinstance(model, str):
        launch.model = model


_CONFIG_NAMES = {"max_seq_len": "max_model_len", "device_config": "device"}


def _from_engine_config(launch: Launch, line: str) -> None:
    """``Initializing a V1 LLM engine (v…) with config: …``: values that no argument gave."""
    for key, raw in _CONFIG_VALUE.findall(line):
        value = raw.strip("'\"").removeprefix("torch.")
        value = {"True": True, "False": False, "None": None}.get(value, value)
        if isinstance(value, str) and value.isdigit() and len(value) < 12:
            value = int(value)
        if key == "model":
            launch.model = launch.model or value
        elif value is not None:
            launch.flags.setdefault(_CONFIG_NAMES.get(key, key), value)
