"""What would start a refused launch: each choice passes when it is sized again, and none appears from nowhere."""
from pathlib import Path

import pytest

from kvlib import Engine, explain, load_model, read_log, size
from kvlib.log_choices import choices

LOGS = Path(__file__).resolve().parent.parent / "data" / "logs"
FULL = """(EngineCore pid=1) INFO x Initializing a V1 LLM engine (v0.30.0) with config: model='meta-llama/Llama-3.1-8B', max_seq_len=131072
Model loading took 14.99 GiB memory and 2 seconds
INFO Initial free memory: 23.3 GiB; Requested memory: 0.920000 (util), 22.08 GiB
INFO Available KV cache memory: 6.28 GiB
""" + size(load_model("Llama-3.1-8B"), Engine(vllm_version="0.30", max_model_len=131072), available_bytes=round(6.28 * 2**30)).log_lines()[-1]
FREE = """non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 32768}
ValueError: Free memory on device cuda:0 (20.28/31.36 GiB) on startup is less than desired GPU memory utilization (0.92, 28.85 GiB)."""
SEQS = """non-default args: {'model': 'Qwen/Qwen3.8-27B', 'max_model_len': 8192, 'max_num_seqs': 1024, 'tensor_parallel_size': 2}
INFO Available KV cache memory: 5.28 GiB
ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (220). Each decode sequence"""
NOTHING = """non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 32768}
Model loading took 15.27 GiB memory and 2 seconds
Initial free memory: 15.3 GiB; Requested memory: 0.920000 (util), 14.5 GiB
INFO Available KV cache memory: -2.28 GiB
ValueError: No available memory for the cache blocks. Try"""


@pytest.mark.parametrize("text, outcome, first, some", [
    (FULL, "max_model_len", "raise gpu_memory_utilization to 0.95, and max_model_len", "lower max_model_len to 51,424"),
    (FREE, "free_memory", "lower gpu_memory_utilization to 0.64", "free 8.57 GiB held by other processes"),
    (SEQS, "max_num_seqs", "lower max_num_seqs to 220", "lower max_num_seqs to 220"),
    (NOTHING, "no_cache_memory", "8-bit weights", "another card"),
    ((LOGS / "llama-tp-sweep-refused.log").read_text(), "max_model_len", "lower max_model_len to 51,680", "FP8 KV cache, and max_model_len")])
def test_a_refused_launch_gets_choices_that_pass(text, outcome, first, some):
    x = explain(read_log(text), model="Llama-3.1-8B" if "sweep" not in text and "args" not in text else None)
    found = choices(x)
    assert found.sizing.outcome == outcome == x.launch.refusal.kind
    names = [each.name for each in found.remedies]
    assert names[0].startswith(first) and any(name.startswith(some) for name in names)
    for each in found.remedies:
        assert each.sizing.fits and each.gain.startswith("passes") and each.gives_up
    assert len(set(names)) == len(names)


def test_the_sizing_again_is_the_logs_own():
    found = choices(explain(read_log(LOGS / "real" / "qwen3_toosmall.log"), model=LOGS / "tiny" / "qwen3.json"))
    assert found.sizing.refusal.estimated_max_model_len == 21632
    assert [each.name for each in found.remedies][:2] == ["lower max_model_len to 21,632", "FP8 KV cache"]


def test_no_choices_where_nothing_was_refused_or_nothing_is_known():
    assert not choices(explain(read_log(LOGS / "qwen3-8b-gb10.log"), model="Qwen3-8B")).remedies
    assert not choices(explain(read_log("ValueError: No available memory for the cache blocks. Try"), model="Qwen3-8B")).remedies
    assert size(load_model("Qwen3-8B"), available_bytes=1 << 34).fits
