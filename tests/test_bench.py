"""The benchmark: its arithmetic, what it says of programs that are not there, and one quick run."""
import json
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent / "bench"
sys.path.insert(0, str(BENCH))
import bench  # noqa: E402
import measure  # noqa: E402
import others  # noqa: E402


def test_exponents():
    assert measure.exponent([(10, 3.0), (100, 30.0), (1000, 300.0)]) == pytest.approx(1)
    assert measure.exponent([(10, 5.0), (1000, 5.0)]) == pytest.approx(0)
    assert measure.exponent([(2, 4.0), (4, 16.0), (8, 64.0)]) == pytest.approx(2)


def test_summaries_and_ratios():
    found = measure.summary([4.0, 1.0, 3.0, 2.0, 5.0])
    assert (found["median"], found["least"], found["samples"]) == (3.0, 1.0, 5) and found["low"] < 3 < found["high"]
    assert measure.summary([2.0])["median"] == 2.0
    assert measure.ratio({"slow": [10.0, 40.0], "fast": [1.0, 4.0]}, "slow", "fast")["median"] == 10


def test_samples_are_taken_in_turn():
    order = []
    found = measure.in_turn({name: (lambda name=name: order.append(name) or len(order)) for name in "ab"}, rounds=3)
    assert "".join(order) == "ababab" and found == {"a": [1, 3, 5], "b": [2, 4, 6]}


def test_what_is_not_there_is_skipped_with_a_word(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("KV_BENCH_VLLM", raising=False)
    with pytest.raises(others.Absent, match="KV_BENCH_VLLM names no Python"):
        others.vllm_child({})
    monkeypatch.setenv("KV_BENCH_VLLM", str(tmp_path / "none"))
    with pytest.raises(others.Absent, match="it does not start"):
        others.vllm_child({})
    monkeypatch.setenv("KV_BENCH_VLLM", sys.executable)
    monkeypatch.setenv("KV_BENCH_VLLM_PATH", str(tmp_path))
    (tmp_path / "vllm.py").write_text("raise ImportError")
    (tmp_path / "torch.py").write_text("")
    with pytest.raises(others.Absent, match="it stopped with code 1"):
        others.vllm_child({})
    run = bench.Run(quick=True)
    bench.one_beside(run, "Qwen3-8B", "vLLM", others.vllm_child, {}, None)
    assert run.skipped == [{"name": "vLLM, Qwen3-8B", "why": "it stopped with code 1"}] and "skipped" in capsys.readouterr().out


def test_a_child_answers():
    code = others.PEER_CHILD.format(code="def call(): return case['x']\ndef answer(): return call()")
    child = others.Child([sys.executable, "-c", code], {"x": 7})
    assert child.found == {"answer": 7} and 0 <= child.sample() < 1
    child.close()
    assert child.process.returncode == 0


def test_a_quick_run_writes_its_figures(tmp_path, capsys):
    out = tmp_path / "bench.json"
    assert bench.main(["--quick", "--alone", "--out", str(out)]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert set(found) == {"date", "machine", "versions", "quick", "figures", "growth", "skipped"} and found["quick"]
    names = [figure["name"] for figure in found["figures"]]
    assert len(names) == len(set(names)) and "size(), a new set-up, Qwen3-8B" in names
    assert all(figure["least"] > 0 and figure["low"] <= figure["median"] <= figure["high"] for figure in found["figures"])
    assert [curve["name"] for curve in found["growth"]] == ["layers of a new set-up", "groups of a new set-up", "rows of a sweep",
                                                            "length of a log"]
    assert all(-1 < curve["exponent"] < 3 for curve in found["growth"])
    assert str(Path.home()) not in out.read_text(encoding="utf-8") and "sweep(), lengths alone" in capsys.readouterr().out
