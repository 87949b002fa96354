"""Logs read and explained: real launches, the notes' own lines, and what does not belong together."""
from pathlib import Path

import pytest

from kvlib import Engine, explain, read_log

LOGS = Path(__file__).resolve().parent.parent / "data" / "logs"
REAL = sorted((LOGS / "real").glob("*.log"))


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_a_real_launch_is_one_launch_and_comes_out(path):
    log = read_log(path)
    assert len(log.launches) == 1 and log.vllm_version == "0.32.0"
    x = explain(log, model=LOGS / "tiny" / f"{Path(log.model).name}.json")
    assert x.lines and {line.verdict for line in x.lines} <= {"exact", "within rounding"}
    assert x.verdict == ("within rounding" if path.stem == "serve_qwen3" else "exact")


def by_name(x):
    return {line.name: line for line in x.lines}


def test_the_gb10_log_pins_its_pool():
    x = explain(read_log(LOGS / "qwen3-8b-gb10.log"), model="Qwen3-8B")
    lines = by_name(x)
    assert x.verdict == lines["kv_cache_tokens"].verdict == lines["available"].verdict == "within rounding"
    assert "93.6050 to 93.6057" in lines["kv_cache_tokens"].reason and x.implied["runtime_gib"] == (3.01, 3.03)


def test_the_hybrid_log_is_exact_and_says_that_caching_was_on():
    x = explain(read_log(LOGS / "qwen3.8-27b-hybrid.log"), model="Qwen3.8-27B",
                engine=Engine(tensor_parallel_size=2, kv_cache_dtype="fp8"))
    assert x.verdict == "exact" and x.implied["prefix_caching"] == "on"
    off = explain(read_log(LOGS / "qwen3.8-27b-hybrid.log"), model="Qwen3.8-27B",
                  engine=Engine(tensor_parallel_size=2, kv_cache_dtype="fp8", enable_prefix_caching=False))
    assert off.verdict == "off" and "prefix caching on" in by_name(off)["kv_cache_tokens"].reason


def test_the_sweep_notes_two_pairs_do_not_belong_together():
    refused = by_name(explain(read_log(LOGS / "llama-tp-sweep-refused.log"), model="Llama-3.1-8B"))
    assert refused["estimated_max_model_len"].verdict == "off" and "6.281" in refused["estimated_max_model_len"].reason
    assert refused["needed"].verdict == "exact"
    pair = ("Available KV cache memory: 18.4 GiB\nGPU KV cache size: 688,304 tokens, "
            "Maximum concurrency for 32,768 tokens per request: 21.01x")
    line = by_name(explain(read_log(pair), model="Qwen2.5-1.5B"))["kv_cache_tokens"]
    assert line.verdict == "off" and "18.38 GiB, not 18.4" in line.reason
    beside = by_name(explain(read_log(pair), model="Qwen2.5-1.5B"))["max_concurrency"]
    assert beside.verdict == "exact" and "43,019 / 2,048" in beside.recomputed, "the pair itself belongs together"


@pytest.mark.parametrize("name, known", [
    ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"), ("/models/Qwen3-8B", "Qwen3-8B"), ("Qwen/Qwen3-8B-FP8/", "Qwen3-8B-FP8"),
    ("/data/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/b968826d9c46", "Qwen3-8B"),
    ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "Llama-3.1-8B"), ("Qwen/Qwen3-8B-AWQ", "Qwen3-8B"), ("nobody/Qwen", None)])
def test_the_model_of_a_log_is_found_by_its_own_name(name, known):
    x = explain(read_log(f"non-default args: {{'model': '{name}'}}\nAvailable KV cache memory: 93.61 GiB"))
    assert (x.model and x.model.name) == known
    assert any("catalogue" in note for note in x.notes)


def test_without_a_model_the_log_still_proves_something():
    x = explain(read_log(LOGS / "qwen3-8b-gb10.log"))
    assert by_name(x)["kv_cache_tokens"].verdict == "not checked" and x.implied["print_formula"] == "concurrency × length"
    assert any("does not name its model" in note for note in x.notes)


@pytest.mark.parametrize("text, kind", [
    ("GPU KV cache size: 290,864 tokens\nMaximum concurrency for 32,768 tokens per request: 33.04x", "blocks"),
    ("GPU KV cache size: 1,082,800 tokens, Maximum concurrency for 32,768 tokens per request: 33.04x",
     "concurrency × length")])
def test_which_print_two_figures_obey(text, kind):
    assert explain(read_log(text)).implied["print_formula"] == kind


def test_a_crash_loop_is_kept_apart():
    one = (LOGS / "real" / "qwen3_toosmall.log").read_text()
    other = (LOGS / "real" / "qwen3_4k.log").read_text()
    log = read_log(one + "\n" + one + "\n" + other)
    assert [launch.status for launch in log.launches] == ["refused", "refused", "sized"]
    assert log.launches[0].flags["max_model_len"] == 32768 and log.flags["max_model_len"] == 4096
    assert log.kv_cache_tokens[0].value == 87296


@pytest.mark.parametrize("text", ["", "\n\n", "no figures here", "\x00\x01\x02" * 1000, "9" * 1_000_000,
                                  "<script>alert(1)</script> Available KV cache memory: 1.0 GiB", "{" * 5000,
                                  "GPU KV cache size: " + "9" * 5000 + " tokens"])
def test_hostile_text_is_read_without_a_word(text):
    assert explain(read_log(text), model="Qwen3-8B").verdict in ("not checked", "off", "within rounding", "exact")


@pytest.mark.parametrize("wrap", [
    lambda line: f"\x1b[1;36m(EngineCore pid=7)\x1b[0m INFO 11-29 23:33:04 [kv_cache_utils.py:2327] {line}",
    lambda line: f"2026-11-29T23:33:04.123456789Z stdout F (EngineCore_DP0 pid=12) INFO {line}\r",
    lambda line: f"vllm-1  | {line}", lambda line: f"Nov 29 23:33:04 node7 vllm[4242]: {line}",
    lambda line: '{"log": "' + line + '\\n", "stream": "stdout"}',
    lambda line: line.replace(" tokens,", "\n tokens,"), lambda line: line.replace(", Max", "\nMax")])
def test_prefixes_colours_json_and_broken_lines(wrap):
    line = "GPU KV cache size: 681,600 tokens, Maximum concurrency for 40,960 tokens per request: 16.64x"
    log = read_log(wrap(line))
    assert (log.kv_cache_tokens[0].value, log.max_concurrency_len[0].value) == (681600, 40960)
    assert log.max_concurrency[0][:3] == (16.64, 16.635, 16.645)


def test_a_fifty_megabyte_log_takes_seconds(tmp_path):
    import time

    filler = "(EngineCore pid=7) INFO 11-29 23:33:04 [loggers.py:127] Engine 000: Avg prompt throughput: 12.3 tokens/s\n"
    path = tmp_path / "big.log"
    path.write_text((LOGS / "real" / "qwen3_4k.log").read_text() + filler * (50_000_000 // len(filler)))
    start = time.perf_counter()
    assert read_log(path).kv_cache_tokens[0].value == 87296
    assert time.perf_counter() - start < 15  # 5 s on an idle machine; the suite shares its two cores
