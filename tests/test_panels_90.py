"""Notebook 90's panel and tables, without a browser."""
import pytest

from kvlib import catalog
from kvlib.controls import forget
from kvlib.panels.scoreboard import CARDS, VERSIONS, StateBlocks, scores, table_of


@pytest.fixture
def panel():
    forget("90-state-blocks")
    return StateBlocks()


def test_the_answer_the_picture_and_the_table_agree(panel):
    for card in CARDS:
        for drafts in range(6):
            for caching in ("on", "off"):
                panel.set(gpu=card, num_speculative_tokens=str(drafts), enable_prefix_caching=caching)
                assert not panel.error
                last = panel.view.table.rows[-1]
                assert f"<b>{last['states']}</b>" in panel.view.answer
                bars = [bar for bar in panel.view.rows["blocks"] if bar["version"] == "0.33"]
                assert bars[0]["end"] == last["states"] and bars[1]["end"] == last["states"] + last["attention"]


@pytest.mark.parametrize("card, drafts, caching, blocks", [
    ("A100", 0, "on", 6), ("A100", 0, "off", 3), ("H100", 0, "on", 9), ("H100", 0, "off", 3), ("A100", 3, "on", 15),
    ("H100", 3, "on", 18)])
def test_blocks_of_the_newest_release(panel, card, drafts, caching, blocks):
    panel.set(gpu=card, num_speculative_tokens=str(drafts), enable_prefix_caching=caching)
    assert panel.view.table.rows[-1]["states"] == blocks
    assert [row["version"] for row in panel.view.table.rows] == VERSIONS


def test_a_bad_value_keeps_the_last_picture(panel):
    before = panel.view
    panel.set(num_speculative_tokens="six")
    assert "six" in panel.error and panel.view is before


@pytest.mark.parametrize("note", ["qwen3-8b-gb10", "qwen3.8-27b-hybrid", "llama-tp-sweep"])
def test_every_row_of_a_note_stands_in_its_table(note):
    shown = table_of(scores(note), note)
    assert [row["id"] for row in shown.rows] == [row["id"] for row in catalog.note_rows(note)]
    assert all(row["gap"] in ("0", "–") for row in shown.rows)
