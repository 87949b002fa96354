"""The panel of notebook 05 without a browser: what it says against kvlib, what it refuses, what it keeps to itself."""
import json
from pathlib import Path

import pytest

pytest.importorskip("ipywidgets")

from kvlib import catalog, explain, read_log  # noqa: E402
from kvlib.controls import forget  # noqa: E402
from kvlib.log_choices import choices  # noqa: E402
from kvlib.panels.log_tables import VERDICTS, lines_table  # noqa: E402
from kvlib.panels.read_log import FILE, MOST, PASTED, ReadLog, crash_loop, samples  # noqa: E402

REAL = catalog.data_dir() / "logs" / "real"
TINY = catalog.data_dir() / "logs" / "tiny"


@pytest.fixture
def panel(monkeypatch):
    monkeypatch.setenv("KVLIB_STRICT", "1")
    forget("05-read-log")
    yield ReadLog()
    forget("05-read-log")


def tables_of(panel):
    return {table.caption: table for table in panel.view.table if hasattr(table, "rows")}


def lines_of(panel):
    return next(table for caption, table in tables_of(panel).items() if caption.startswith("Each figure")).rows


def test_each_example_has_a_sentence_a_picture_of_its_own_and_verdicts_of_four_words(panel):
    seen = set()
    for name in samples():
        panel.set(log=name)
        assert not panel.error and panel.view.answer and panel.view.description
        assert all(any(word in row["verdict"] for word in VERDICTS) for row in lines_of(panel))
        seen.add(repr(panel.view.rows["bar"]))
    assert len(seen) == len(samples())


@pytest.mark.parametrize("name, verdict", [("GB10 note: Qwen3-8B", "within rounding"), ("hybrid note: Qwen3.8-27B", "exact"),
                                           ("sweep note: Qwen2.5-1.5B", "off"), ("sweep note: refused", "off"),
                                           ("a crash loop", "within rounding")])
def test_the_notes_own_logs(panel, name, verdict):
    panel.set(log=name)
    assert f"<b>{verdict}</b>" in panel.view.answer


@pytest.mark.parametrize("path", sorted(REAL.glob("*.log")), ids=lambda path: path.stem)
def test_a_pasted_log_and_config_are_recomputed(panel, path):
    text = path.read_text()
    panel.set(text=text)
    assert panel.raw["log"] == PASTED
    config = (TINY / f"{Path(read_log(text).model).name}.json").read_text()
    panel.set(config=config)
    assert not panel.error and panel.raw["model"] == "the config pasted below"
    expected = explain(read_log(text), model=json.loads(config))
    assert lines_of(panel) == lines_table(expected).rows and expected.verdict in panel.view.answer
    panel.set(text="", path=str(path))
    assert panel.raw["log"] == FILE and lines_of(panel) == lines_table(expected).rows


def test_a_refusal_gets_its_choices(panel):
    panel.set(log="a crash loop")
    panel.set(launch="1")
    found = choices(explain(read_log(crash_loop()), launch=read_log(crash_loop()).launches[0]))
    shown = tables_of(panel)["What would pass vLLM's memory checks, least harm first"]
    assert [row["change"] for row in shown.rows] == [each.name for each in found.remedies] and len(shown.rows) >= 4
    assert "Launch 1 of 3, refused" in panel.view.answer


def test_launches_are_told_apart(panel):
    panel.set(log="a crash loop")
    assert "Launch 3 of 3" in panel.view.answer and "3 launches in this log" in tables_of(panel)
    changed = tables_of(panel)["What changed from launch 2 to 3"].rows
    assert {"what": "max_model_len", "kind": "flag", "before": "65,536", "after": "32,768"} in changed
    before = panel.view
    panel.set(launch="4")
    assert "found 4, but this log holds 3" in panel.error and panel.view is before
    panel.set(launch="first")
    assert "expected last or a number" in panel.error


@pytest.mark.parametrize("value, says", [
    ({"text": "nothing of interest"}, "No line of vLLM's start-up"), ({"path": "/no/such/file.log"}, "is not a file"),
    ({"config": "{"}, "Paste a config.json"), ({"log": PASTED}, "the box below is empty"),
    ({"text": "x" * (MOST + 1)}, "give the path of the file"), ({"text": "\0" + str(MOST * 3)}, "12,000,000 characters are more"),
    ({"text": "\x00\x01\x02" * 900}, "No line of vLLM's start-up")])
def test_what_cannot_be_read_is_one_sentence(panel, value, says):
    before = panel.view
    panel.set(**value)
    assert says in panel.error and panel.error.count("\n") == 0 and panel.view is before


def test_html_in_a_log_is_shown_as_text(panel):
    panel.set(text="non-default args: {'model': '<script>alert(1)</script>', '<b>x': 1}\nAvailable KV cache memory: 1.0 GiB\n"
                   "non-default args: {'model': '<img src=x onerror=alert(1)>'}\nAvailable KV cache memory: 2.0 GiB")
    shown = panel._shown()
    everything = shown["answer"] + shown["table"] + shown["note"]
    assert "<script" not in everything and "<img" not in everything and "&lt;img" in everything


def test_nothing_pasted_is_kept_in_the_notebook_or_on_disk(panel, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    panel.set(text="non-default args: {'model': 'my/secret'}\nAvailable KV cache memory: 1.23 GiB\nGPU KV cache size: 4,096 tokens")
    data, _ = panel._repr_mimebundle_()
    kept = data["text/html"] + data["text/plain"]
    assert "secret" not in kept and "4,096" not in kept and "image/png" not in data
    assert not list(tmp_path.iterdir())


def test_a_stored_notebook_shows_the_first_example(panel):
    data, meta = panel._repr_mimebundle_()
    assert "681,600" in data["text/html"] and len(data["image/png"]) > 4000 and "93.61" in meta["image/png"]["alt"]


def test_the_answer_to_the_question_does_not_stand_in_the_first_view(panel):
    assert "6.28" not in panel.view.answer and "6.28" not in repr(panel.view.table)


def test_a_step_is_quick(panel):
    import time
    panel.compute(panel.values)
    times = []
    for _ in range(9):
        start = time.process_time()
        panel.compute(panel.values)
        times.append(time.process_time() - start)
    assert min(times) < 0.02  # 5 ms where nothing else runs; a picture made anew would take ten times that
