"""What a start-up log may look like: every release's wording, every wrapping, several processes, several launches."""
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvlib import explain, read_log
from kvlib.log_diff import diff
from kvlib.log_flags import literal_args

LOGS = Path(__file__).resolve().parent.parent / "data" / "logs"

V06 = """INFO 11-20 10:00:00 api_server.py:529] vLLM API server version 0.6.4.post1
INFO 11-20 10:00:00 api_server.py:530] args: Namespace(model_tag='org/Llama-3.1-8B', host=None, max_model_len=20000, \
gpu_memory_utilization=0.9, dtype='auto', f=<function serve at 0x7f>)
INFO 11-20 10:00:05 llm_engine.py:249] Initializing an LLM engine (v0.6.4.post1) with config: model='org/Llama-3.1-8B', \
dtype=torch.bfloat16, max_seq_len=20000, tensor_parallel_size=1, kv_cache_dtype=auto, device_config=cuda
INFO 11-20 10:00:06 selector.py:135] Using Flash Attention backend.
INFO 11-20 10:00:20 model_runner.py:1077] Loading model weights took 14.9888 GB
INFO 11-20 10:00:21 worker.py:232] Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.50GiB \
peak_torch_memory=17.20GiB memory_usage_post_profile=15.60Gib non_torch_memory=0.21GiB kv_cache_size=3.81GiB gpu_memory_utilization=0.90
INFO 11-20 10:00:21 gpu_executor.py:113] # GPU blocks: 1952, # CPU blocks: 2048
INFO 11-20 10:00:21 gpu_executor.py:117] Maximum concurrency for 20000 tokens per request: 1.56x
"""
V08 = """INFO 06-26 16:55:19 [worker.py:291] the current vLLM instance can use total_gpu_memory (23.58GiB) x \
gpu_memory_utilization (0.90) = 21.22GiB
INFO 06-26 16:55:19 [worker.py:291] model weights take 14.99GiB; non_torch_memory takes -0.08GiB; PyTorch activation peak \
memory takes 2.50GiB; the rest of the memory reserved for KV Cache is 3.81GiB.
INFO 06-26 16:55:19 [executor_base.py:112] # cuda blocks: 1,952, # CPU blocks: 21845
"""
TWO_LINES = """(EngineCore_0 pid=9) INFO 11-01 10:00:00 [kv_cache_utils.py:833] GPU KV cache size: 31,232 tokens
(EngineCore_0 pid=9) INFO 11-01 10:00:00 [kv_cache_utils.py:837] Maximum concurrency for 20,000 tokens per request: 1.56x
"""
ONE_LINE = "GPU KV cache size: 681,600 tokens, Maximum concurrency for 40,960 tokens per request: 16.64x"
REFUSED = ("ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, "
           "which is larger than the available KV cache memory (6.31 GiB). Based on the available memory, the estimated "
           "maximum model length is 51440. Try increasing `gpu_memory_utilization`")


def values(log, name):
    return [printed.value for printed in getattr(log, name)]


# -- releases ---------------------------------------------------------------------------------

def test_v0_of_late_2024():
    log = read_log(V06)
    assert len(log.launches) == 1 and log.vllm_version == "0.6.4.post1" and log.model == "org/Llama-3.1-8B"
    assert log.flags["max_model_len"] == 20000 and log.flags["gpu_memory_utilization"] == 0.9 and log.backend == "FLASH_ATTN"
    assert values(log, "weights_gib") == [14.9888] and log.weights_gib[0].high == pytest.approx(14.98885)
    assert values(log, "total_gib") == [23.58] and values(log, "available_kv_cache_gib") == [3.81]
    assert values(log, "num_gpu_blocks") == [1952] and values(log, "max_concurrency_len") == [20000]
    x = explain(log, model="Llama-3.1-8B")
    assert x.verdict == "within rounding" and {line.name for line in x.lines} >= {"num_gpu_blocks", "max_concurrency"}


def test_v0_of_2025_with_a_negative_term():
    log = read_log(V08)
    assert values(log, "num_gpu_blocks") == [1952] and values(log, "non_torch_gib") == [-0.08]
    assert values(log, "utilization") == [0.9] and values(log, "requested_gib") == [21.22]
    lines = {line.name: line for line in explain(log).lines}
    assert lines["requested"].verdict == lines["available"].verdict == "within rounding"


def test_two_lines_and_one_line():
    assert values(read_log(TWO_LINES), "kv_cache_tokens") == [31232] and values(read_log(TWO_LINES), "max_concurrency") == [1.56]
    log = read_log(ONE_LINE.replace("GPU", "CPU"))
    assert values(log, "max_concurrency_len") == [40960] and log.device == "CPU"


def test_the_line_after_the_graphs_belongs_to_its_launch():
    """Its exact bytes beat the rounded GiB, and a capture after the capacity is no new launch."""
    log = read_log("""(Worker_TP1 pid=14) INFO 10-23 15:14:20 [gpu_worker.py:298] Available KV cache memory: 44.59 GiB
(EngineCore_DP0 pid=9) INFO 10-23 15:14:21 [kv_cache_utils.py:1087] GPU KV cache size: 730,560 tokens
(Worker_TP1 pid=14) INFO 10-23 15:14:56 [gpu_model_runner.py:3118] Graph capturing finished in 25 secs, took 2.37 GiB
(Worker_TP1 pid=14) INFO 10-23 15:14:56 [gpu_worker.py:391] Free memory on device (139.21/139.81 GiB) on startup. Desired \
GPU memory utilization is (0.9, 125.83 GiB). Actual usage is 74.28 GiB for weight, 5.58 GiB for peak activation, 1.38 GiB \
for non-torch memory, and 2.37 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with \
`--kv-cache-memory=45175492096` to fit into requested memory. Current kv cache memory in use is 47878721024 bytes.""")
    assert len(log.launches) == 1 and values(log, "kv_cache_bytes") == [47878721024]
    assert values(log, "cuda_graph_gib") == [2.37] and values(log, "peak_activation_gib") == [5.58]
    assert explain(log).verdict == "within rounding"
    dense = {"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 16,
             "head_dim": 64, "hidden_size": 2048, "max_position_embeddings": 131072}
    line = {line.name: line for line in explain(log, model=dense).lines}["kv_cache_tokens"]
    assert "-" not in line.recomputed and "to" not in line.recomputed, "exact bytes allow one figure"


def test_the_consumed_form():
    log = read_log("Free memory on device (23.3/23.47 GiB) on startup. Desired GPU memory utilization is (0.9, 21.12 GiB). "
                   "Actual usage is 3.25 GiB for consumed memory (weights + non-torch), 0.5 GiB for peak activation, and "
                   "0.0 GiB for CUDAGraph memory.\nAvailable KV cache memory: 17.36 GiB")
    assert values(log, "consumed_gib") == [3.25] and values(log, "peak_activation_gib") == [0.5]
    assert {line.name: line.verdict for line in explain(log).lines}["available"] == "within rounding"


def test_kv_cache_memory_bytes_and_the_lines_of_a_hybrid():
    log = read_log("""INFO Initial free memory 114.28 GiB, reserved 6.0 GiB memory for KV Cache as specified by \
kv_cache_memory_bytes config and skipped memory profiling.
INFO Setting attention block size to 1,568 tokens to ensure that attention page size is >= mamba page size.
INFO Padding mamba page size by 0.13% to ensure that mamba page size and attention page size are exactly equal.
WARNING Add 3 padding layers, may waste at most 10.00% KV cache memory
INFO Overriding num_gpu_blocks=0 with num_gpu_blocks_override=512
INFO Using FLASHINFER attention backend out of potential backends: ['FLASHINFER'].
INFO Using fp8_e4m3 data type to store kv cache. It reduces the GPU memory footprint
INFO Estimated CUDA graph memory: 0.36 GiB total
INFO CUDA graph pool memory: 0.71 GiB (actual), 0.79 GiB (estimated), difference: 0.07 GiB (10.1%).
INFO The current --gpu-memory-utilization=0.9100 is equivalent to --gpu-memory-utilization=0.8950 without CUDA graph memory profiling. To""")
    assert len(log.launches) == 1
    assert values(log, "available_kv_cache_gib") == [6.0] and values(log, "free_gib") == [114.28]
    assert values(log, "block_size") == [1568] and values(log, "padding_percent") == [0.13] and values(log, "padding_layers") == [3]
    assert not log.num_gpu_blocks, "an override from 0 is the trial capture's own"
    assert log.backend == "FLASHINFER" and log.flags["kv_cache_dtype"] == "fp8_e4m3"
    assert values(log, "cuda_graph_estimate_gib") == [0.36, 0.79] and values(log, "utilization_without_graphs") == [0.895]


@pytest.mark.parametrize("text, kind, figures", [
    (REFUSED, "max_model_len", (16.0, 6.31, 51440)),
    (REFUSED.replace("model's", "models's").replace(" GiB", " GB"), "max_model_len", (16.0, 6.31, 51440)),
    (REFUSED.replace("the estimated maximum model length is 51440. ", " "), "max_model_len", (16.0, 6.31, None)),
    (REFUSED.replace("(6.31", "(-6.31"), "max_model_len", (16.0, -6.31, 51440)),
    ("The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (31232). Try",
     "max_model_len", (None, None, 31232)),
    ("ValueError: Free memory on device cuda:0 (27.28/31.86 GiB) on startup is less than desired GPU memory utilization "
     "(0.97, 30.9 GiB). Decrease", "free_memory", (30.9, 27.28, None)),
    ("ValueError: Free memory on device (27.28/31.86 GiB) on startup is less than desired GPU memory utilization (0.97, 30.9 "
     "GiB). Decrease", "free_memory", (30.9, 27.28, None)),
    ("ValueError: No available memory for the cache blocks. Try increasing", "no_cache_memory", (None, None, None)),
    ("ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. Try",
     "no_cache_memory", (None, None, None)),
    ("ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (184). Each", "max_num_seqs", (None, None, None)),
    ("Model loading took 20.1 GiB memory and 3 seconds\ntorch.OutOfMemoryError: CUDA out of memory. Tried to",
     "weights_do_not_fit", (None, None, None))])
def test_refusals(text, kind, figures):
    log = read_log("INFO x\n" + text + "\nmore")
    refusal = log.refusal
    assert refusal.kind == kind and log.last.status == "refused"
    assert (refusal.needed_gib and refusal.needed_gib.value, refusal.available_gib and refusal.available_gib.value,
            refusal.estimated_max_model_len) == figures
    if kind == "max_num_seqs":
        assert (refusal.max_num_seqs, refusal.num_gpu_blocks) == (256, 184)
    if kind == "free_memory":
        assert values(log, "free_gib") == [27.28] and values(log, "total_gib") == [31.86]


def test_auto_fit():
    log = read_log("INFO Auto-fit max_model_len: reduced from 131072 to 51440 to fit in available KV cache memory (6.31 GiB GPU)")
    assert values(log, "auto_fit_from") == [131072] and values(log, "auto_fit_to") == [51440]
    log = read_log("Auto-fit max_model_len: full model context length 40960 fits in available GPU memory")
    assert values(log, "auto_fit_full") == [40960]


# -- wrappings --------------------------------------------------------------------------------

WRAPPINGS = {
    "colours": lambda line: f"\x1b[1;36m(EngineCore_DP0 pid=7)\x1b[0;0m INFO 11-29 23:33:04 [a.py:7] {line}",
    "colours without the escape": lambda line: f"[1;36m(EngineCore pid=7)[0;0m INFO 11-29 23:33:04 [a.py:7] {line}",
    "carets": lambda line: f"^[[1;36m(EngineCore pid=7)^[[0;0m INFO [a.py:7] {line}",
    "old worker": lambda line: f"(VllmWorker rank=1 pid=99) INFO 11-29 23:33:04 [a.py:7] {line}",
    "docker compose": lambda line: f"vllm-1  | INFO {line}",
    "docker": lambda line: f"2026-11-29T23:33:04.123456789Z INFO {line}\r",
    "kubernetes": lambda line: f"2026-11-29T23:33:04.123456789Z stdout F (EngineCore_DP0 pid=12) INFO {line}\r",
    "kubectl prefix": lambda line: f"[pod/vllm-0/vllm] INFO 11-29 23:33:04 [a.py:7] {line}",
    "journald": lambda line: f"Nov 29 23:33:04 node7 vllm[4242]: INFO {line}",
    "json log": lambda line: json.dumps({"log": line + "\n", "stream": "stdout"}),
    "json nested": lambda line: json.dumps({"severity": "INFO", "jsonPayload": {"message": "INFO " + line}}),
    "journal bytes": lambda line: json.dumps({"PRIORITY": "6", "MESSAGE": list(f"\x1b[1m{line}".encode())}),
    "json escapes": lambda line: '{"message": "\\u001b[1;36mINFO ' + line + '"}',
    "quoted": lambda line: f"> # INFO {line}",
    "carriage returns": lambda line: f"INFO a\r\nINFO {line}\r\nINFO b\r\n",
    "a literal newline": lambda line: f"b'INFO a\\nINFO 11-29 {line}\\nINFO c'",
}


@pytest.mark.parametrize("wrap", WRAPPINGS.values(), ids=WRAPPINGS)
def test_wrappings(wrap):
    log = read_log(wrap(ONE_LINE))
    assert (values(log, "kv_cache_tokens"), values(log, "max_concurrency_len"), values(log, "max_concurrency")) == (
        [681600], [40960], [16.64])
    refused = read_log(wrap(REFUSED)).refusal
    assert (refused.needed_gib.value, refused.available_gib.value, refused.estimated_max_model_len) == (16.0, 6.31, 51440)


@pytest.mark.parametrize("line", [ONE_LINE, REFUSED, V08.splitlines()[0], V08.splitlines()[1]], ids=["capacity", "refusal", "v0", "v0 rest"])
@pytest.mark.parametrize("width", [79, 97, 120, 133])
def test_a_terminal_breaks_lines_anywhere(line, width):
    """Broken at every place within the first line's reach: mid-sentence, mid-word, mid-number."""
    whole = read_log(line).last
    text = "(EngineCore pid=1) ERROR 10-10 10:10:10 [core.py:1] " + line
    for start in range(width - 20, width):
        parts = [text[:start], *(text[i:i + width] for i in range(start, len(text), width))]
        log = read_log("INFO x\n" + "\n".join(parts) + "\nINFO 10-10 [a.py:1] y\n")
        assert {name: values(log, name) for name in log.figures} == {name: values(whole, name) for name in whole.figures}
        if whole.refusal:
            assert log.refusal and log.refusal[1].value == 16.0 and log.refusal[4] == 51440


def test_the_sweep_notes_four_lines():
    log = read_log(LOGS / "llama-tp-sweep-refused.log")
    assert log.refusal.needed_gib.value == 16.0 and log.refusal.estimated_max_model_len == 51440


def test_a_message_repeats_its_prefix_on_every_line():
    text = REFUSED.replace(" (16.0", "\n(16.0").replace(" (6.31", "\n(6.31")
    log = read_log("\n".join("(EngineCore pid=3) ERROR 10-10 10:10:10 [core.py:1] " + line for line in text.splitlines()))
    assert log.refusal.available_gib.value == 6.31


def test_windows_writes_utf_16(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(ONE_LINE.encode("utf-16"))
    assert values(read_log(path), "kv_cache_tokens") == [681600] == values(read_log(path.read_bytes()), "kv_cache_tokens")


# -- several processes, several launches --------------------------------------------------------

def test_workers_are_kept_and_the_least_decides():
    log = read_log("""(VllmWorker rank=0 pid=163) INFO 11-19 [w.py:1] Available KV cache memory: 20.10 GiB
(VllmWorker rank=1 pid=165) INFO 11-19 [w.py:1] Available KV cache memory: 19.95 GiB
INFO 11-19 [k.py:1] GPU KV cache size: 146,352 tokens
INFO 11-19 [k.py:2] Maximum concurrency for 8,192 tokens per request: 17.87x
INFO 11-19 [k.py:1] GPU KV cache size: 145,248 tokens
INFO 11-19 [k.py:2] Maximum concurrency for 8,192 tokens per request: 17.73x""")
    assert len(log.launches) == 1 and values(log, "kv_cache_tokens") == [146352, 145248]
    assert [p.worker for p in log.available_kv_cache_gib] == ["VllmWorker rank=0 pid=163", "VllmWorker rank=1 pid=165"]
    x = explain(log, model="Qwen3-8B")
    tokens = [line for line in x.lines if line.name == "kv_cache_tokens"]
    assert [line.verdict for line in tokens] == ["within rounding"] * 2, "each against the pool of some worker"
    assert x.verdict == "within rounding"
    assert "20.1" in tokens[0].reason and x.implied["smallest_available_gib"] == 19.95


def test_engines_of_one_launch():
    log = read_log("""(APIServer pid=1) INFO 10-01 [u.py:2] non-default args: {'model': 'Qwen/Qwen3-8B', 'data_parallel_size': 2}
(EngineCore_DP0 pid=10) INFO 10-01 [c.py:7] Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-8B', max_seq_len=8192
(EngineCore_DP1 pid=11) INFO 10-01 [c.py:7] Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-8B', max_seq_len=8192
(EngineCore_DP0 pid=10) INFO 10-01 [w.py:1] Available KV cache memory: 20.1 GiB
(EngineCore_DP0 pid=10) INFO 10-01 [k.py:1] GPU KV cache size: 146,352 tokens
(EngineCore_DP1 pid=11) INFO 10-01 [w.py:1] Available KV cache memory: 19.95 GiB
(EngineCore_DP1 pid=11) INFO 10-01 [k.py:1] GPU KV cache size: 145,248 tokens""")
    assert len(log.launches) == 1 and values(log, "kv_cache_tokens") == [146352, 145248]
    lines = [line for line in explain(log).lines if line.name == "kv_cache_tokens"]
    assert [line.verdict for line in lines] == ["within rounding"] * 2
    assert "EngineCore_DP1" in lines[1].reason


def test_arguments_that_are_no_literals():
    args = ("{'model': 'Qwen/Qwen3-8B', 'hook': <function f at 0x7f>, 'compilation_config': {'level': 3, 'sizes': [1, {2}], 'x': "
            "<Mode.NONE: 0>}, 'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 2}, 'hf_overrides': {'model': "
            "'inner', 'f': <object object at 0x1>}, 'max_model_len': 8192, 'note': \"a 'quoted, {word}\", 'cut': 'o")
    flags = literal_args(args)
    assert flags["model"] == "Qwen/Qwen3-8B" and flags["max_model_len"] == 8192 and flags["note"] == "a 'quoted, {word}"
    assert flags["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 2} and "cut" not in flags
    assert set(flags) == {"model", "hook", "compilation_config", "speculative_config", "hf_overrides", "max_model_len", "note"}


def crash_loop(with_args=True):
    text = ""
    for number, length in enumerate((131072, 65536, 32768)):
        pid = 100 + number
        if with_args:
            text += f"(APIServer pid={pid}) INFO 10-10 [u.py:1] non-default args: {{'model': 'org/Llama-3.1-8B', 'max_model_len': {length}}}\n"
            text += f"(EngineCore pid={pid}0) INFO 10-10 [c.py:1] Initializing a V1 LLM engine (v0.30.0) with config: model='org/Llama-3.1-8B', max_seq_len={length}\n"
        text += f"(Worker_TP0 pid={pid}1) INFO 10-10 [w.py:1] Model loading took 14.99 GiB memory and 3.1 seconds\n"
        text += f"(Worker_TP0 pid={pid}1) INFO 10-10 [w.py:1] Available KV cache memory: 6.31 GiB\n"
        if length > 51000:
            text += f"(EngineCore pid={pid}0) ERROR 10-10 [c.py:9] " + REFUSED.replace("131072", str(length)) + "\n"
            text += f"(APIServer pid={pid}) RuntimeError: Engine core initialization failed. See root cause above.\n"
        else:
            text += f"(EngineCore pid={pid}0) INFO 10-10 [k.py:1] GPU KV cache size: 51,680 tokens, Maximum concurrency for {length:,} tokens per request: 1.58x\n"
            text += f"(Worker_TP0 pid={pid}1) INFO 10-10 [g.py:1] Graph capturing finished in 22 secs, took 0.36 GiB\n"
    return text


@pytest.mark.parametrize("with_args", [True, False])
def test_a_crash_loop_with_other_flags_each_time(with_args):
    log = read_log(crash_loop(with_args))
    assert [launch.status for launch in log.launches] == ["refused", "refused", "sized"]
    assert log.last.status == "sized" and values(log, "cuda_graph_gib") == [0.36]
    if with_args:
        assert [launch.flags["max_model_len"] for launch in log.launches] == [131072, 65536, 32768]
        changes = {change.name: (change.before, change.after) for change in diff(log.launches[0], log.launches[2])}
        assert changes["max_model_len"] == (131072, 32768) and changes["outcome"] == ("refused: max_model_len", "sized")
        assert changes["kv_cache_tokens"] == (None, 51680) and "weights_gib" not in changes
        assert not diff(log.launches[1], log.launches[1])


# -- hostile text -----------------------------------------------------------------------------

REAL = (LOGS / "real" / "qwen3_4k.log").read_text().splitlines()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(
    ["cut", "swap", "digits", "break", "repeat", "brackets", "html", "\x1b[", "glue"])), max_size=8))
def test_no_mutation_of_a_real_log_is_too_much(steps):
    lines = list(REAL)
    for where, how, what in steps:
        at = where % len(lines)
        line = lines[at]
        cut = how % (len(line) + 1)
        lines[at:at + 1] = {"cut": [line[:cut]], "swap": [lines[how % len(lines)]], "digits": [line[:cut] + "9" * 400 + line[cut:]],
                            "break": [line[:cut], line[cut:]], "repeat": [line] * 3, "brackets": [line[:cut] + "({[<'\"" + line[cut:]],
                            "html": [line[:cut] + "<script>alert(1)</script>" + line[cut:]], "\x1b[": [line[:cut] + "\x1b[" + line[cut:]],
                            "glue": [line + lines[how % len(lines)]]}[what]
    x = explain(read_log("\n".join(lines)), model=LOGS / "tiny" / "qwen3.json")
    assert x.verdict in ("exact", "within rounding", "off", "not checked")


@pytest.mark.parametrize("text", [
    "█" * 30_000 + "version", "usage is " * 4_000, "GPU KV cache size: " * 2_000, "args: Namespace(" + "(" * 30_000,
    "non-default args: {" + "'a': {" * 6_000, "non-default args: " + "[" * 30_000 + "}", "Available KV cache memory: " + "1,1" * 10_000 + " GiB",
    "GPU KV cache size:\n" * 20_000, "To serve at least one request with\nx\n" * 5_000, " | " * 10_000 + "version", "{" * 10_000 + "}" * 10_000,
    "(" * 20_000 + "EngineCore GiB", "Available KV cache memory: 1.2.3 GiB", "Available KV cache memory: " + "9" * 100_000,
    "# GPU blocks: ٣٤", "max_num_seqs (" + "9" * 12 + ") exceeds available Mamba cache blocks (0)"], ids=range(16))
def test_hostile_text_takes_bounded_time(text):
    import time

    start = time.process_time()
    explain(read_log(text), model="Qwen3-8B")
    assert time.process_time() - start < 6


def test_a_share_of_the_fuzz_run():
    import fuzz_log

    tried, longest, _ = fuzz_log.run(150, seed=5)
    assert tried == 150 and longest < 6
