"""Notebook 91: its tables and pictures against the frame they are made from, and the benchmark on file."""
import json

import pytest

pytest.importorskip("altair")

from kvlib import catalog  # noqa: E402
from kvlib.panels import how_fast as h  # noqa: E402
from kvlib.sweep import sweep  # noqa: E402
from kvlib.tables import as_text  # noqa: E402

CARDS = ["L40S", "H100 SXM 80GB", "H200 SXM 141GB"]


@pytest.fixture(scope="module")
def frame():
    return sweep(["Qwen3-8B", "Llama-3.1-70B", "Baichuan2-7B"], CARDS, tensor_parallel_size=[1, 2, 4, 8], max_model_len=32_768)


@pytest.fixture(scope="module")
def mine(frame):
    return frame[frame["model"] == "Llama-3.1-70B"]


def test_every_row_is_counted_once(frame):
    assert len(frame) == 3 * len(CARDS) * 4
    passes = sum(int(cell.split(" + ")[0]) + int(cell.split(" + ")[1][:-2])
                 for row in h.answers_table(frame).rows for cell in (str(row[str(split)]) for split in h.SPLITS))
    off = sum(row["count"] for row in h.reasons_table(frame).rows if row["kind"] != "too close to call")
    assert passes + off == len(frame)
    assert {"unknown_architecture", "weights_do_not_fit"} <= {row["kind"] for row in h.reasons_table(frame).rows}


def test_no_point_beats_one_of_the_line(mine):
    front = h._front(mine)
    passing = mine[mine["verdict"] == "passes"]
    assert len(front) and set(front.index) <= set(passing.index)
    for row in passing.itertuples():
        better = front[(front["gpus_bytes"] <= row.gpus_bytes) & (front["max_concurrency_low"] >= row.max_concurrency_low)]
        assert len(better), f"{row.num_gpus} × {row.gpu} is beaten by none of the line"
    assert as_text(h.pareto_table(mine)).count("×") == len(front)


def test_the_pictures_say_what_they_show(mine):
    assert "L40S × 1: refused" in h.heat_picture(mine).alt and "diamonds" in h.pareto_picture(mine).alt.lower()


def test_a_benchmark_on_file_is_drawn_whole():
    for path in sorted((catalog.data_dir() / "benchmarks").glob("*.json")):
        run = h.benchmark(path.stem)
        assert run == json.loads(path.read_text(encoding="utf-8"))
        shown = as_text(h.figures_table(run))
        assert all(figure["name"] in shown for figure in run["figures"])
        assert all(curve["name"] in h.growth_picture(run).alt for curve in run["growth"])
        assert "size(), a new set-up" in h.speed_picture(run).alt and "a row of sweep()" in h.speed_picture(run).alt
