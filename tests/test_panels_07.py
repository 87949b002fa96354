"""Notebook 07's panels, without a browser: answers against kvlib, pictures against tables, no dull control."""
import pytest

import kvlib
from kvlib.controls import forget
from kvlib.panels.beyond_full_attention import (CacheTypes, LatentCopies, LayerLens, SIZES, WindowCharge, charge, per_gpu,
                                                readable, requests)
from kvlib.units import KiB

PANELS = [LayerLens, WindowCharge, LatentCopies, CacheTypes]


@pytest.fixture(params=PANELS, ids=lambda panel: panel.name)
def panel(request):
    forget(request.param.name)
    return request.param()


def pictures(panel, name):
    """The different pictures an input gives over its range, and how often it is refused."""
    found, refused = set(), 0
    source = panel._inputs[name]
    if hasattr(source, "options"):
        values = list(source.options)[:12]
    elif source.kind == "toggle":
        values = ["on", "off"]
    else:
        values = [source.text(v) for v in (source.stops() or range(source.min, source.max + 1, max(1, (source.max - source.min) // 12)))]
    for value in values:
        panel.set(**{name: value})
        if panel.error:
            refused += 1
        else:
            found.add(repr((panel.view.rows, panel.view.answer)))
    panel.reset()
    return found, refused, values


def test_no_dull_control(panel):
    for name in panel._inputs:
        found, refused, values = pictures(panel, name)
        assert len(found) >= min(5, len(values)), f"{name}: {len(found)} pictures"
        assert refused * 2 <= len(values)


def test_every_bad_value_is_one_sentence_and_the_picture_stays(panel):
    for name, source in panel._inputs.items():
        if source.kind != "number":
            continue
        for bad in ("", "-5", "many", "1e999", "9" * 60):
            before = panel.view
            panel.set(**{name: bad})
            assert panel.error and "\n" not in panel.error and panel.view is before
            panel.reset()


def test_a_step_is_quick(panel):
    import time
    panel.compute(panel.values)
    times = []
    for _ in range(5):
        start = time.process_time()
        panel.compute(panel.values)
        times.append(time.process_time() - start)
    assert min(times) < 0.02  # 5 ms where nothing else runs


@pytest.mark.parametrize("length, batched, kib", [(8_192, 8_192, 72.07), (131_072, 8_192, 40.54), (131_072, 2_048, 37.16),
                                                  (131_072, 16_384, 45.04)])
def test_the_charge_of_a_window_model(length, batched, kib):
    found = charge(length, batched)
    assert abs((found["full"] + found["sliding"]) / KiB - kib) < 0.01


def test_latent_rows_are_copied_and_heads_are_dealt():
    latent, heads = readable()["DeepSeek-V3"], readable()["Llama-3.3-70B"]
    assert {per_gpu(latent, tp, "auto") for tp in SIZES} == {70_272}
    assert [per_gpu(heads, tp, "auto") // KiB for tp in SIZES] == [320, 160, 80, 40, 40]
    assert per_gpu(readable()["Phi-4-mini"], 16, "auto") is None


def test_fp8_gives_less_than_twice_to_a_hybrid():
    hybrid = requests("Qwen3.8-27B", "fp8", 8_192, 24) / requests("Qwen3.8-27B", "auto", 8_192, 24)
    dense = requests("Qwen3-8B", "fp8", 8_192, 24) / requests("Qwen3-8B", "auto", 8_192, 24)
    assert 1 < hybrid < 1.7 and abs(dense - 2) < 0.001


def test_the_lens_says_what_kvlib_says():
    forget(LayerLens.name)
    panel = LayerLens()
    for name in ("Qwen3-8B", "gpt-oss-120b", "Qwen3.8-27B", "Kimi-Linear-48B-A3B", "Falcon-H1-7B", "Llama-4-Scout"):
        panel.set(model=name)
        growing = sum(row["per_token"] or 0 for row in panel.view.table.rows if row["reach"] == "all")
        assert growing == kvlib.bytes_per_token(kvlib.load_model(name))
        assert sum(row["layers"] for row in panel.view.table.rows) >= len(kvlib.load_model(name).layers) - 200
