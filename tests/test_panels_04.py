"""The panels of notebook 04 without a browser: sentence, picture and table agree with kvlib and with each other."""
import json
import time

import pytest

pytest.importorskip("ipywidgets")

import notebook_store as store  # noqa: E402

import kvlib  # noqa: E402
from kvlib import catalog, controls  # noqa: E402
from kvlib.panels import parallel_facts as facts  # noqa: E402
from kvlib.panels import parallel_knobs as knobs  # noqa: E402
from kvlib.panels import tensor_parallelism as lesson  # noqa: E402
from kvlib.panels.budget_facts import about  # noqa: E402
from kvlib.units import GiB, KiB  # noqa: E402

PANELS = [lesson.SplitModel, lesson.DealtHeads, lesson.TwoOrFour, lesson.Knobs]
NOTEBOOK = store.NOTEBOOKS / "04_tensor_parallelism.ipynb"
SEVENTY = facts.SEVENTY


@pytest.fixture(autouse=True)
def fresh_kernel(monkeypatch):
    monkeypatch.setenv("KVLIB_STRICT", "1")
    controls.forget()
    yield
    controls.forget()


# -- one model over several GPUs -------------------------------------------------------------------

@pytest.mark.parametrize("tp, outcome", [(1, "refused"), (2, "refused"), (4, "passes"), (8, "passes")])
def test_the_70b_from_one_gpu_to_eight(tp, outcome):
    model = kvlib.load_model(SEVENTY)
    engine = kvlib.Engine(gpu=facts.CARD, tensor_parallel_size=tp, max_model_len=131072)
    from kvlib.reserve import assumed_budget
    low, _, high = kvlib.size_range(model, engine, memory=assumed_budget(model, engine))
    panel = lesson.SplitModel()
    panel.set(tensor_parallel_size=tp)
    assert not panel.error and low.fits == high.fits == (outcome == "passes")
    if tp > 1:
        assert f"{about(low.kv_cache_tokens)} to {about(high.kv_cache_tokens)}" in panel.plain()
        bar = [row for row in panel.view.rows["spans"] if row["row"] == f"{tp} GPUs"]
        top = high.max_concurrency
        assert [bar[0]["end"], bar[-1]["end"]] == pytest.approx([low.max_concurrency, top])
    assert ("passes vLLM's memory checks" in panel.plain()) == (outcome == "passes")
    assert len(panel.view.table.rows) == lesson.SPLITS.index(tp) + 1, "larger splits stay hidden until chosen"


def test_a_split_that_vllm_refuses_is_one_sentence():
    panel = lesson.SplitModel()
    panel.set(model="Qwen2.5-1.5B", tensor_parallel_size=8)
    assert panel.error == "tensor_parallel_size is 8; it must divide the 12 attention heads of Qwen2.5-1.5B"
    panel.set(tensor_parallel_size=4)
    assert not panel.error


def test_the_memory_bar_adds_up_to_the_card():
    panel = lesson.SplitModel()
    for tp in (4, 8, 16):
        panel.set(tensor_parallel_size=tp)
        assert max(row["end"] for row in panel.view.rows["bar"]) == pytest.approx(catalog.gpu(facts.CARD).total_bytes / GiB)


# -- heads ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", [SEVENTY, "Qwen3-30B-A3B", "Qwen2.5-1.5B", "Llama-2-7b", "DeepSeek-V3"])
@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_tiles_and_price_are_kvlibs(name, tp):
    panel = lesson.DealtHeads()
    panel.set(model=panel._inputs["model"].text(name), tensor_parallel_size=tp)
    model = kvlib.load_model(name)
    try:
        kept = kvlib.bytes_per_token(model, kvlib.Engine(tensor_parallel_size=tp))
    except kvlib.SizingError as problem:
        assert panel.error == str(problem)
        return
    one, heads = kvlib.bytes_per_token(model), facts.kv_heads(name)
    assert panel.view.rows["prices"][1]["kib"] == kept / KiB
    hands = facts.dealt(heads, tp)
    assert len(hands) == tp and len({len(hand) for hand in hands}) == 1
    assert kept == one * len(hands[0]) // (heads or 1), "what a GPU keeps is its heads' share"
    assert {head for hand in hands for head in hand} == set(range(heads or 1)), "every head stands somewhere"
    tiles = [row for row in panel.view.rows["gpus"] if row["opacity"] != 0.12]
    assert len(tiles) == sum(map(len, hands))
    assert sum(row["opacity"] == 1.0 for row in tiles) == (heads or 1), "each head is solid once"
    assert all(row["x2"] <= 521 and row["y2"] <= 158 for row in panel.view.rows["gpus"]), "nothing leaves the picture"


def test_c40_the_notes_rule_holds_up_to_the_kv_heads_only():
    assert catalog.note_row("C40")["cell"] == "c40-per-gpu"
    panel = lesson.DealtHeads()
    panel.set(model=panel._inputs["model"].text("Qwen2.5-1.5B"), tensor_parallel_size=4)
    assert [row["kib"] for row in panel.view.rows["prices"]] == [7, 14]
    assert panel.predict.answer == 14
    panel.set(model=panel._inputs["model"].text(SEVENTY), tensor_parallel_size=3)
    assert "must divide the 64 attention heads" in panel.error


# -- two cards and four --------------------------------------------------------------------------------

def test_c41_the_notes_rows_are_exact():
    panel = lesson.TwoOrFour()
    assert "2 GPUs: 46,192 tokens" in panel.plain() and "4 GPUs: 523,296 tokens" in panel.plain()
    panel.set(other_gib=3.0)
    assert f"{panel.predict.answer:,} tokens" in panel.plain()


def test_a_band_gives_a_range_and_moving_the_figure_types_it():
    panel = lesson.TwoOrFour()
    panel.set(other_from=lesson.ASSUMED)
    low, _, high = lesson.with_band(80.0, 2, 131.5, 131072)
    assert f"{about(low.kv_cache_tokens)} to {about(high.kv_cache_tokens)} tokens" in panel.plain()
    assert "Least certain" in panel.view.note and "523,296" not in panel.plain()
    panel.set(other_gib=1.0)
    assert panel.raw["other_from"] == lesson.TYPED


# -- knobs ------------------------------------------------------------------------------------------------

def test_every_knob_is_sized_by_kvlib():
    here = facts.SetUp()
    assert [each.knob for each in facts.effects(here)] == list(facts.KNOBS)
    base = facts.outcome(here)
    for each in facts.effects(here):
        for side in each.sizes:
            again = kvlib.size(side.model, side.engine, memory=side.memory)
            assert (again.kv_cache_tokens, again.outcome) == (side.kv_cache_tokens, side.outcome)
    by = {each.knob: each.sizes for each in facts.effects(here)}
    assert by["max_model_len"][1].kv_cache_tokens == base[1].kv_cache_tokens
    assert by["kv_cache_dtype"][1].kv_cache_tokens == pytest.approx(2 * base[1].kv_cache_tokens, rel=1e-4)
    fixed = by["kv_cache_memory_bytes"]
    assert fixed[0].kv_cache_tokens == fixed[2].kv_cache_tokens, "typed, so no range is left"
    assert by["num_gpu_blocks_override"][1].num_gpu_blocks == base[1].num_gpu_blocks // 2


@pytest.mark.parametrize("name, seqs, batched, says", [
    (SEVENTY, 1024, 8192, "the larger decides: max_num_seqs."), (SEVENTY, 64, 8192, "the larger decides: max_num_batched_tokens."),
    ("Qwen3-30B-A3B", 256, 8192, "with experts the two add up, so both move it.")])
def test_which_flag_moves_the_peak(name, seqs, batched, says):
    here = facts.SetUp(model=name, max_num_seqs=seqs, max_num_batched_tokens=batched)
    assert knobs.what_it_moves(here).endswith(says)
    found = {each.knob: each.sizes[1].kv_cache_tokens for each in facts.effects(here) if each.sizes}
    now = facts.outcome(here)[1].kv_cache_tokens
    if "decides: max_num_seqs" in says:
        assert found["max_num_seqs"] > now == found["max_num_batched_tokens"]
    else:
        assert found["max_num_batched_tokens"] > now


def test_steps_are_applied_and_undone():
    panel = lesson.Knobs()
    first = dict(panel.raw)
    for knob in ("kv_cache_dtype", "tensor_parallel_size", "tensor_parallel_size", "quantized weights"):
        expected = next(e for e in facts.effects(knobs._setup(panel.values)) if e.knob == knob).sizes[1].kv_cache_tokens
        panel.set(apply=knob)
        assert not panel.error and panel.raw["apply"] == knobs.CHOOSE
        assert f"{about(expected)} tokens now" in panel.plain()
    assert panel.raw["tensor_parallel_size"] == "16" and "Applied: kv_cache_dtype, then tensor" in panel.view.note
    panel.set(undo=knobs.UNDO)
    assert panel.raw["weights"] == "as published" and panel.raw["tensor_parallel_size"] == "16"
    panel.set(undo=knobs.UNDO_ALL)
    assert panel.raw == first and "Nothing applied" in panel.view.note
    panel.set(undo=knobs.UNDO)
    assert panel.raw == first


def test_reset_forgets_what_was_applied():
    panel = lesson.Knobs()
    panel.set(apply="kv_cache_dtype")
    panel.reset()
    panel.set(undo=knobs.UNDO)
    assert panel.raw["kv_cache_dtype"] == "auto" and "Nothing applied" in panel.view.note


def test_the_least_harm_of_a_refused_launch_passes():
    panel = lesson.Knobs()
    panel.set(tensor_parallel_size=2)
    here = knobs._setup(panel.values)
    best = knobs.least_harm(facts.effects(here), facts.outcome(here))
    assert not facts.outcome(here)[1].fits and best.sizes[1].fits and best.knob in panel.plain()
    panel.set(tensor_parallel_size=1)
    assert "apply two" in panel.plain()


def test_the_questions_have_their_answers():
    for gpus, best in ((4, "an FP8 cache"), (2, "8-bit weights")):
        found = {each.knob: facts.tokens(each.sizes[1]) for each in facts.effects(facts.SetUp(tensor_parallel_size=gpus))}
        assert max(knobs.OPTIONS, key=lambda option: found[knobs.OPTIONS[option]]) == best
    panel = lesson.Knobs()
    panel.record("an FP8 cache")
    panel.set(tensor_parallel_size=2)
    assert any(row["name"] == "kv_cache_dtype" and "your guess" in row["figure"] for row in panel.view.rows["ranks"])
    split = lesson.SplitModel()
    split.record("7")
    split.set(tensor_parallel_size=8)
    assert split.view.rows["guess"] and 10 < split.predict.answer < 11


def test_bars_are_ranked_and_inside():
    panel = lesson.Knobs()
    for name in facts.knob_models():
        panel.set(model=name, tensor_parallel_size=8)
        bars = panel.view.rows["ranks"]
        assert [row["value"] for row in bars] == sorted((row["value"] for row in bars), reverse=True)
        domain = next(e["scale"]["domain"] for e in _encodings(panel) if e["field"] == "value")
        assert bars[0]["value"] <= domain[1]


def _encodings(panel):
    return [layer["encoding"]["x"] for layer in panel.view.chart["layer"] if layer["encoding"]["x"].get("field")]


# -- all -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("make", PANELS)
def test_no_control_is_dull(make):
    panel = make()
    for field in panel._inputs.values():
        if field.name in ("apply", "undo"):
            continue
        choice = isinstance(field, controls.Choice)
        options = list(field.options) if choice else ["off", "on"] if isinstance(field, controls.Toggle) else \
            [field.text(v) for v in field.stops()] if field.stops() else \
            [field.text(field.min + (field.max - field.min) * i / 8) for i in range(9)]
        seen, refused = set(), 0
        for option in options:
            panel.reset()
            panel.set(**{field.name: option})
            refused += bool(panel.error)
            if not panel.error:
                seen.add(json.dumps([panel.view.rows, str(panel.view.chart)]))
        assert len(seen) >= (2 if choice or isinstance(field, controls.Toggle) else 5), field.name
        assert refused <= len(options) / 2, field.name
    panel.reset()


@pytest.mark.parametrize("make, name, bad", [
    (lesson.SplitModel, "max_model_len", "many"), (lesson.TwoOrFour, "other_gib", "-3"),
    (lesson.Knobs, "gpu_memory_utilization", "2"), (lesson.Knobs, "max_num_seqs", "")])
def test_a_bad_value_is_one_sentence_and_the_picture_stays(make, name, bad):
    panel = make()
    before = panel.view
    panel.set(**{name: bad})
    assert panel.error.count("expected") == 1 and panel.view is before


def test_more_sequences_than_batched_tokens_is_refused_in_words():
    panel = lesson.Knobs()
    panel.set(max_num_seqs="4000", max_num_batched_tokens="2048")
    assert panel.error


@pytest.mark.parametrize("make", PANELS)
def test_computing_is_quick(make):
    panel = make()
    best = 1.0
    for _ in range(7):
        start = time.perf_counter()
        panel.compute(panel.values)
        best = min(best, time.perf_counter() - start)
    assert best < 0.005


def test_inventory_rows_have_their_cells():
    cells = {cell["id"] for cell in store.read(NOTEBOOK).cells}
    rows = [row for row in catalog.note_rows() if row["notebook"] == NOTEBOOK.name]
    assert rows and {row["cell"] for row in rows} <= cells


def test_a_figure_that_a_line_would_run_through_stands_before_it_on_the_bar():
    """137,424 tokens on a bar that the line of one request, 131,072, crosses just before its end."""
    panel = lesson.TwoOrFour()
    panel.set(gpu_gib="48")
    figure = panel.view.rows["figures"][1]
    assert (figure["label"], figure["value"], figure["right"], figure["ink"]) == ("137,424 tokens", 131_072, True, "#000000")
    panel.reset()
    assert panel.view.rows["figures"][1]["ink"] == "currentColor"
