"""Notebook 10's panel and tables, without a browser."""
import html
import re
import time

import pytest

pytest.importorskip("ipywidgets")

from kvlib import charts  # noqa: E402
from kvlib.controls import forget  # noqa: E402
from kvlib.panels import calculator_tables as tables  # noqa: E402
from kvlib.panels.calculators import FiveFormulas, check  # noqa: E402
from kvlib.tables import as_text  # noqa: E402


@pytest.fixture
def panel(monkeypatch):
    monkeypatch.setenv("KVLIB_STRICT", "1")
    forget(FiveFormulas.name)
    yield FiveFormulas()
    forget(FiveFormulas.name)


def plain(cell):
    return html.unescape(re.sub(r"<[^>]+>", "", str(cell)))


def bars(panel):
    return {row["name"]: row["value"] * 2**30 for row in panel.view.rows["ranks"]}


def test_the_bars_by_hand(panel):
    panel.set(tokens=8_192)
    found = bars(panel)
    assert found["layer by layer (ours)"] == 8_192 * 36_864 + 4_718_592           # and 4.5 MiB of full windows
    assert found["every layer in full"] == 8_192 * 73_728
    assert found["what vLLM sets aside"] == (512 + 513) * 18 * 16 * 2 * 8 * 64 * 2   # blocks × 18 layers × 16 tokens × 2,048 B
    panel.set(model="DeepSeek-V3", tokens=32_768)
    assert bars(panel)["MLA as heads"] == 32_768 * 1_748_992 and bars(panel)["what vLLM sets aside"] == 32_768 * 70_272
    panel.set(kv_cache_dtype="FP8")
    assert bars(panel)["layer by layer (ours)"] == 32_768 * 35_136


def test_the_prediction_is_what_the_picture_shows(panel):
    panel.set(tokens=8_192)
    found = bars(panel)
    reserved = found.pop("what vLLM sets aside")
    assert min(found, key=lambda name: abs(found[name] - reserved)) == panel.predict.answer
    assert panel.predict.answer not in panel.raw.values()
    panel.record("MLA as heads")
    assert any("your guess" in row["figure"] for row in panel.view.rows["ranks"])


def test_the_hybrid_is_charged_what_the_rules_say(panel):
    """Qwen3.5-27B, 8,192 tokens, 16 bits, caching on: 11 blocks of tokens and 6 of state, each 16 layers × 784 × 4,096 B."""
    panel.set(model="Qwen3.5-27B", tokens=8_192)
    assert bars(panel)["what vLLM sets aside"] == 17 * 16 * 784 * 4_096
    assert bars(panel)["layer by layer (ours)"] == 8_192 * 65_536 + 153_944_064


def test_no_dull_control(panel):
    for name, field in panel._inputs.items():
        values = list(field.options) if hasattr(field, "options") else [field.text(v) for v in field.stops()]
        found, refused = set(), 0
        for value in values:
            panel.set(**{name: value})
            refused += bool(panel.error)
            if not panel.error:
                found.add(repr(panel.view.rows))
        panel.reset()
        assert len(found) >= min(5, len(values)), name
        assert refused * 2 <= len(values), name


@pytest.mark.parametrize("bad", ["", "-5", "many", "1e999", "9" * 60])
def test_a_bad_value_is_one_sentence(panel, bad):
    before = panel.view
    panel.set(tokens=bad)
    assert panel.error and "\n" not in panel.error and panel.view is before


def test_a_length_beyond_the_models_own_is_said(panel):
    panel.set(model="Qwen3-8B")
    assert "own maximum, 40,960 tokens" in panel.view.note
    panel.set(tokens=32_768)
    assert "maximum" not in panel.view.note


def test_a_step_is_quick(panel):
    times = []
    for tokens in (4_096, 8_192, 16_384, 32_768):
        panel.values.tokens = tokens
        panel.compute(panel.values)
        start = time.process_time()
        panel.compute(panel.values)
        times.append(time.process_time() - start)
    assert min(times) < 0.02  # 5 ms where nothing else runs


def test_the_formulas_table_marks_what_is_off():
    rows = {row["model"]: row for row in tables.formulas_table().rows}
    assert plain(rows["Qwen3-8B"]["attention_heads"]) == "589,824 (4.0x)" and plain(rows["Qwen3-8B"]["every_layer"]) == "147,456"
    assert plain(rows["DeepSeek-V3"]["mla_as_heads"]) == "1,748,992 (24.9x)"
    assert plain(rows["Gemma-4-31B"]["fixed"]) == "800.0 MiB" and plain(rows["gpt-oss-120b"]["fixed"]) == "4.5 MiB"


def test_the_tools_are_told_as_they_were_found():
    rows = {row["tool"]: row for row in tables.tools_table().rows}
    assert len({tool.split(",")[0] for tool in rows}) == 12
    assert all(plain(rows["kvfit 0.3.0"][model]) == "1.0" for model in tables.MODELS)
    assert plain(rows["hf-mem 0.5.6"]["DeepSeek-V3"]) == "24.9" and "<b>" in rows["hf-mem 0.5.6"]["DeepSeek-V3"]
    assert plain(rows["llm-d-planner 0.3.3"]["gpt-oss-120b"]) == "0.53"
    assert plain(rows["vramcalc 0.1.2"]["Qwen3-8B"]) == "refuses"


def test_a_tool_of_ones_own_gets_a_row_and_a_diagnosis():
    answers = {"Qwen3-30B-A3B": "48 KiB", "DeepSeek-V3": 70_272}
    shown = tables.tools_table(answers, "mine")
    assert shown.rows[-1]["tool"] == "mine" and plain(shown.rows[-1]["Qwen3-30B-A3B"]) == "0.50"
    assert plain(shown.rows[-1]["DeepSeek-V3"]) == "1.0" and shown.highlight == len(shown.rows) - 1
    text = as_text(tables.verdicts(answers))
    assert "hidden_size / num_attention_heads" in text and "Agrees" in text


def test_every_answer_that_differs_has_its_reason():
    text = as_text(tables.reasons_table())
    for figure in ("1,748,992", "19,584", "1,998,848", "49,152", "125,018", "131,072", "35,136", "154,927,104", "1,474,560", "269.85"):
        assert figure in text


def test_the_minute_table():
    rows = {row["model"]: row for row in tables.minute_table().rows}
    assert rows["Qwen3-30B-A3B"]["right"] == "98,304" and plain(rows["Qwen3-30B-A3B"]["hidden_over_heads"]) == "49,152"
    assert plain(rows["Qwen3-30B-A3B"]["mla_as_heads"]) == "same"
    for slip in ("attention_heads", "hidden_over_heads", "mla_as_heads", "every_layer"):
        assert any(plain(row[slip]) != "same" for row in rows.values()), "each slip shows on one of the four"


def test_the_hybrid_gap():
    """vLLM's requests are the note's; the arithmetic divides by tokens and one state."""
    rows = tables.gap_rows()
    assert [f"{row['vllm']:.2f}" for row in rows] == ["184.17", "81.85", "24.29", "12.70"]
    assert f"{rows[0]['arithmetic']:.2f}" == f"{52.89 * 2**30 / (8_192 * 16_384 + 76_972_032):.2f}"
    for row in rows:
        assert row["tokens"] + row["states"] + row["second"] + row["rest"] == row["reserved"]
        assert row["rest"] >= 0
    charts.setup()
    data, about = tables.gap_picture()._bundle()
    assert "44 % tokens" in about["image/png"]["alt"] and "image/png" in data       # 134,217,728 of 308,281,344


def test_the_exercises():
    assert check("the slip", "hidden").state == "right" and check("the slip", "heads").state == "wrong"
    assert 2 * 40 * 8 * (5_120 // 32) * 2 == 204_800
    assert check("requests", 4 * 2**30 // (8_192 * 262_144)).state == "right"
    assert check("requests", 8).state == "wrong" and "states" in check("requests", 8).text
    assert int(4 * 2**30 / (8_192 * 65_536 + 153_944_064)) == 6
