"""The words of vLLM's start-up lines, 0.6 to 0.33, as patterns; :mod:`kvlib.vllm_log` reads with them.

Every pattern is bounded: none looks further than a few hundred characters, so that no text makes it slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_N = r"(-?\d[\d,]{0,24}(?:\.\d{0,12})?)"
_G = _N + r" ?Gi?[Bb]"

ANSI = re.compile(r"(?:\x1b|\\x1b|\\u001b|\\033|\^\[|\u241b)\[[0-9;?]{0,20}[A-Za-z]|\x1b\][^\x07]{0,200}\x07|"
                  r"\[\d{0,3}(?:;\d{1,3}){0,6}m")
WORKER = re.compile(r"\(((?:EngineCore|Worker|VllmWorker|APIServer|ApiServer|MainProcess|RayWorker|Engine)[\w.:-]{0,80}"
                    r"(?: rank=\d{1,6})?)(?: pid=(\d{1,12}))?[^)]{0,200}\)")
RANK = re.compile(r"\[rank(\d{1,6})\]|\bTP(\d{1,6})\b")
_CONTAINER = (r"\[?\d{4}-\d\d-\d\d[T ][\d:.,+Z-]{5,40}\]?|std(?:out|err) [FP]|[\w.-]{1,80}\s{0,40}\||"
              r"[A-Z][a-z]{2} +\d{1,2} [\d:]{8} \S{1,80} \S{1,80}?:|\[(?:pod|default)?/?[\w./-]{1,120}\](?= )|[>#] ")
_VLLM = (r"(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)\b:?|\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\[[\w./]{1,120}\.py:\d{1,6}\]|"
         r"\w{1,80}\.py:\d{1,6}\]|\((?:EngineCore|Worker|VllmWorker|APIServer|MainProcess|RayWorker)[^)]{0,200}\)|\[rank\d{1,6}\]:?")
#: What containers and loggers put before a line, and what vLLM itself puts there.
PREFIX = re.compile(rf"^(?:\s{{0,40}}(?:{_CONTAINER}|{_VLLM})\s{{0,40}}){{1,12}}")
CONTAINER = re.compile(rf"^(?:\s{{0,40}}(?:{_CONTAINER})\s{{0,40}}){{1,8}}")
#: A new record of the log, as against the rest of a broken line.
RECORD = re.compile(rf"^\s{{0,40}}(?:{_VLLM})")

GIB = (  # a word that the line must hold, the pattern, the names of its groups
    (" took ", re.compile(r"(?:Model loading took|[Ll]oading (?:model )?weights took) " + _G),
     ("weights_gib",)),
    ("Initial free memory", re.compile(r"Initial free memory:? " + _G),
     ("free_gib",)),
    ("Requested memory: ", re.compile(r"Requested memory: ([\d.]{1,20}) \(util\), " + _G),
     ("utilization", "requested_gib")),
    ("Total non KV cache", re.compile(r"Total non KV cache memory: " + _G),
     ("non_kv_cache_gib",)),
    ("torch peak memory", re.compile(r"torch peak memory increase: " + _G),
     ("peak_activation_gib",)),
    ("non-torch forward", re.compile(r"non-torch forward increase memory: " + _G),
     ("non_torch_gib",)),
    ("mem_get_info", re.compile(r"total consumed \(from mem_get_info\): " + _G),
     ("consumed_gib",)),
    ("weights memory: ", re.compile(r"weights memory: " + _G),
     ("weights_gib",)),
    ("Available KV cache memory", re.compile(r"Available KV cache memory: " + _G),
     ("available_kv_cache_gib",)),
    ("memory for KV Cache", re.compile(r"reserved " + _G + r" memory for KV Cache"),
     ("available_kv_cache_gib",)),
    ("Explicitly set", re.compile(r"Explicitly set \(" + _N + r"/" + _N + r"\) GiB for KV cache"),
     ("available_kv_cache_gib", "total_gib")),
    ("total_gpu_memory (", re.compile(r"total_gpu_memory \(" + _G + r"\) x gpu_memory_utilization \(([\d.]{1,20})\) = " + _G),
     ("total_gib", "utilization", "requested_gib")),
    ("model weights take", re.compile(r"model weights take " + _G),
     ("weights_gib",)),
    ("non_torch_memory takes", re.compile(r"non_torch_memory takes " + _G),
     ("non_torch_gib",)),
    ("PyTorch activation", re.compile(r"PyTorch activation peak memory takes " + _G),
     ("peak_activation_gib",)),
    ("reserved for KV Cache is", re.compile(r"reserved for KV Cache is " + _G),
     ("available_kv_cache_gib",)),
    ("total_gpu_memory=", re.compile(r"total_gpu_memory=" + _G),
     ("total_gib",)),
    ("peak_torch_memory=", re.compile(r"peak_torch_memory=" + _G),
     ("peak_torch_gib",)),
    ("non_torch_memory=", re.compile(r"non_torch_memory=" + _G),
     ("non_torch_gib",)),
    ("kv_cache_size=", re.compile(r"kv_cache_size=" + _G + r" gpu_memory_utilization=([\d.]{1,20})"),
     ("available_kv_cache_gib", "utilization")),
    ("Free memory on device", re.compile(r"Free memory on device (?:cuda:\d{1,4} )?\(" + _N + "/" + _N + r" GiB\) on startup\. Desired"),
     ("free_gib", "total_gib")),
    ("Desired GPU memory", re.compile(r"Desired GPU memory utilization is \(([\d.]{1,20}), " + _N + r" GiB\)"),
     ("utilization", "requested_gib")),
    ("Actual usage", re.compile(r"Actual usage is " + _G + r" for weight"),
     ("weights_gib",)),
    ("Actual usage", re.compile(r"Actual usage is " + _G + r" for consumed memory"),
     ("consumed_gib",)),
    ("usage is ", re.compile(r"usage is .{0,120}?" + _G + r" for peak activation"),
     ("peak_activation_gib",)),
    ("usage is ", re.compile(r"usage is .{0,160}?" + _G + r" for non-torch"),
     ("non_torch_gib",)),
    ("usage is ", re.compile(r"usage is .{0,220}?" + _G + r" for CUDAGraph memory"),
     ("cuda_graph_gib",)),
    ("Graph capturing", re.compile(r"Graph capturing finished in .{0,40}?took " + _G),
     ("cuda_graph_gib",)),
    ("CUDA graph pool", re.compile(r"CUDA graph pool memory: " + _G + r" \(actual\), " + _G + r" \(estimated\)"),
     ("cuda_graph_gib", "cuda_graph_estimate_gib")),
    ("Estimated CUDA graph", re.compile(r"Estimated CUDA graph memory: " + _G),
     ("cuda_graph_estimate_gib",)),
)
COUNTS = (  # a word that the line must hold, the pattern, the names of its groups
    ("KV cache size: ", re.compile(r"(GPU|CPU|XPU|TPU|HPU|NPU) KV cache size: ([\d,]{1,40}) tokens"),
     ("device", "kv_cache_tokens")),
    ("Maximum concurrency", re.compile(r"Maximum concurrency for ([\d,]{1,40}) tokens per request: ([\d.,]{1,40})x"),
     ("max_concurrency_len", "max_concurrency")),
    (" blocks: ", re.compile(r"# (?:GPU|CUDA|cuda|gpu|[a-z]{3,6}) blocks: ([\d,]{1,40})"),
     ("num_gpu_blocks",)),
    ("after num_gpu_blocks", re.compile(r"after num_gpu_blocks is: ([\d,]{1,40})"),
     ("num_gpu_blocks",)),
    ("Overriding num_gpu", re.compile(r"Overriding num_gpu_blocks=(?!0 )[\d,]{1,40} with num_gpu_blocks_override=([\d,]{1,40})"),
     ("num_gpu_blocks",)),
    ("Current kv cache", re.compile(r"Current kv cache memory in use is ([\d,]{1,40}) bytes"),
     ("kv_cache_bytes",)),
    ("attention block size", re.compile(r"Setting attention block size to ([\d,]{1,40}) tokens"),
     ("block_size",)),
    ("Setting kv cache block", re.compile(r"Setting kv cache block size to ([\d,]{1,40}) for"),
     ("backend_block_size",)),
    ("Padding mamba", re.compile(r"Padding mamba page size by ([\d.]{1,20})%"),
     ("padding_percent",)),
    ("padding layers", re.compile(r"Add ([\d,]{1,40}) padding layers, may waste at most ([\d.]{1,20})%"),
     ("padding_layers", "padding_waste_percent")),
    ("group sizes", re.compile(r"kv cache group sizes \(([\d, ]{1,4000})\)"),
     ("group_sizes",)),
    ("enabled with max_num", re.compile(r"enabled with max_num_batched_tokens=([\d,]{1,40})"),
     ("max_num_batched_tokens",)),
    ("Using max model len", re.compile(r"Using max model len ([\d,]{1,40})"),
     ("max_model_len",)),
    ("gpu-memory-utilization=", re.compile(r"gpu-memory-utilization=([\d.]{1,20}) is equivalent to --gpu-memory-utilization=([\d.]{1,20})(?<!\.)"),
     ("utilization", "utilization_without_graphs")),
    ("Auto-fit max_model_len", re.compile(r"Auto-fit max_model_len: reduced from ([\d,]{1,40}) to ([\d,]{1,40})"),
     ("auto_fit_from", "auto_fit_to")),
    ("Auto-fit max_model_len", re.compile(r"Auto-fit max_model_len: full model context length ([\d,]{1,40}) fits"),
     ("auto_fit_full",)),
)
#: Lines that come after the capacity of the same launch: they do not begin another.
LATE = re.compile(r"Graph capturing finished|CUDA graph pool memory|on startup\. Desired|Actual usage is|num_gpu_blocks is:|"
                  r"Current kv cache memory|gpu-memory-utilization=")

ARGS = re.compile(r"non-default args: (\{.*)")
NAMESPACE = re.compile(r"\bargs: Namespace\((.*)")
ENGINE = re.compile(r"Initializing an? (?:V\d )?LLM engine \(v?([^)\s]{1,60})\)")
VERSION = re.compile(r"(?:vLLM API server version|vLLM version|[█▄▀].{0,120}?version):? {1,8}v?(\d{1,3}\.\d{1,4}[\w.+]{0,40})")
BANNER_MODEL = re.compile(r"[█▄▀].{0,120}?\bmodel {1,8}(\S{1,200})")
CONFIG_VALUE = re.compile(r"\b(model|dtype|max_seq_len|tensor_parallel_size|pipeline_parallel_size|data_parallel_size|"
                          r"decode_context_parallel_size|quantization|enforce_eager|kv_cache_dtype|device_config|"
                          r"enable_prefix_caching)=('[^']{0,400}'|\"[^\"]{0,400}\"|[^,\s)]{1,200})")
SPECULATIVE = re.compile(r"speculative_config=SpeculativeConfig\(method='([\w-]{1,40})'.{0,300}?num_spec_tokens=(\d{1,4})")
ARCHITECTURE = re.compile(r"Resolved architecture: (\w{1,120})")
BACKEND = re.compile(r"Using (\w+(?: \w+)?) (?:attention )?backend(?:\.| on V\d| out of|$)")
CACHE_DTYPE = re.compile(r"Using (fp8\w{0,12}|int8\w{0,24}|nvfp4) data type to store kv cache")

REFUSED = re.compile(
    r"To serve at least one request with (?:the )?models?'?s?'?s? max seq len \(([\d,]{1,40})\),? {0,4}\(?" + _G +
    r"\)? KV cache is needed, which is larger than the available KV cache memory \(" + _G + r"\)")
REFUSED_START = re.compile(r"To serve at least one request with")
_NO_ESTIMATE = re.compile(r"GiB\)\.? {1,4}Try increasing|GB\)\.? {1,4}Try increasing|Based on the available memory,? {1,4}Try increasing")
ESTIMATE = re.compile(r"estimated maximum model length is ([\d,]{1,40})")
V0_REFUSED = re.compile(r"max seq len \(([\d,]{1,40})\) is larger than the maximum number of tokens that can be stored in "
                        r"KV cache \(([\d,]{1,40})\)")
FREE = re.compile(r"Free memory on device (?:\w{1,20}:\d{1,4} )?\(" + _N + "/" + _N + r" GiB\) on startup is less than desired "
                  r"GPU memory utilization \(([\d.]{1,20}), " + _N + r" GiB\)")
NO_CACHE = re.compile(r"No available memory for the cache blocks|not enough \w{1,10} memory available to serve even a single token")
SEQS = re.compile(r"max_num_seqs \((\d{1,12})\) exceeds available Mamba cache blocks \((\d{1,12})\)")
OOM = re.compile(r"CUDA out of memory|OutOfMemoryError|HIP out of memory")

#: A line without one of these is not looked at.
HINTS = tuple(dict.fromkeys([anchor for anchor, _, _ in (*GIB, *COUNTS)] + [
    "non-default args: ", "args: Namespace(", "LLM engine (", "version", "Resolved architecture", "backend", "data type to store",
    "To serve at least one", "max seq len (", "No available memory", "to serve even a single token", "max_num_seqs (",
    "out of memory", "OutOfMemoryError", "Memory profiling results", "KV cache size:", "Available KV", "Total non KV", "total_gpu_memory", "model weights", "Actual usage",
    "Auto-fit", "Setting attention", "max seq len"]))

#: Where a sentence with figures begins, and for each beginning the pattern of a sentence that is whole.
_SENTENCES = {
    r"To serve at least one request with": None,
    r"(?:GPU|CPU|XPU|TPU|HPU|NPU) KV cache size:": 
        r"KV cache size: [\d,]+ tokens(?:, Maximum concurrency for [\d,]+ tokens per request: [\d.]+x|(?! ?,))",
    r"Maximum concurrency for": r"per request: [\d.,]+x",
    r"Available KV cache memory": r"Available KV cache memory: " + _G,
    r"Free memory on device": r"is less than desired .{0,40}\([\d.]+, [\d.]+ GiB\)|for CUDAGraph memory",
    r"Total non KV cache": r"weights memory: " + _G,
    r"Initial free memory": r"\(util\), " + _G + r"|Initial free memory:? " + _G + r"(?!; Req|, res).*$|for KV Cache",
    r"instance can use total_gpu_memory": r"\) = " + _G,
    r"model weights take": r"reserved for KV Cache is " + _G,
    r"Memory profiling results": r"gpu_memory_utilization=[\d.]{3,}",
    r"Actual usage is": r"for CUDAGraph memory",
    r"max_num_seqs \(": r"cache blocks \(\d+\)",
    r"Auto-fit max_model_len": r"reduced from [\d,]+ to [\d,]+ to fit|fits in available|using derived|not enough",
    r"max seq len \(": r"stored in KV cache \([\d,]+\)|at least one request",
    r"Setting attention block size to": r"block size to [\d,]+ tokens",
}
BEGINS = re.compile("|".join(_SENTENCES))
_ENDS = [(re.compile(begin), end and re.compile(end)) for begin, end in _SENTENCES.items()]


def hinted(line: str) -> bool:
    """May the line hold something to read?"""
    return any(hint in line for hint in HINTS)


def figures(line: str) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(names, texts) of the figures that a line holds."""
    for anchor, pattern, names in (*GIB, *COUNTS):
        if anchor in line:
            for match in pattern.finditer(line):
                yield names, match.groups()


def count(text: str) -> int:
    """How many figures can be read from a text, a refusal's among them."""
    return sum(1 for _ in figures(text)) + sum(bool(pattern.search(text)) for pattern in (REFUSED, ESTIMATE, V0_REFUSED, FREE, SEQS))


def complete(text: str) -> bool:
    """Does every sentence that begins in ``text`` also end in it?"""
    for begin, end in _ENDS:
        if not begin.search(text):
            continue
        if end is None:  # the refusal: an estimate follows where one is announced
            if not (REFUSED.search(text) and (ESTIMATE.search(text) and "Try" in text or _NO_ESTIMATE.search(text))):
                return False
        elif not end.search(text):
            return False
    return True
