"""The panels of notebook 03 without a browser: what they say against kvlib, what each control moves, bad input."""
import random
import re

import pytest

pytest.importorskip("ipywidgets")

import nbformat  # noqa: E402
import notebook_store as keep  # noqa: E402

import kvlib  # noqa: E402
from kvlib import catalog, charts, controls  # noqa: E402
from kvlib.inputs import Choice, Number, Rows, Toggle  # noqa: E402
from kvlib.panels import blocks_and_tokens as panels  # noqa: E402
from kvlib.panels.length_checks import search  # noqa: E402
from kvlib.panels.pool_drawing import SLOTS, pool_rows, share_out  # noqa: E402
from kvlib.panels.program_rows import PROGRAM, sizable_models  # noqa: E402
from kvlib.units import GiB, cdiv, gib  # noqa: E402

ALL = (panels.PageAndBlock, panels.Pool, panels.Program, panels.Refusal, panels.AutoFit, panels.WorstCase,
       panels.Planning, panels.EightAtOnce)
WITH_SLIDERS = [cls for cls in ALL if cls is not panels.Program]


@pytest.fixture(autouse=True)
def fresh_kernel(monkeypatch):
    monkeypatch.setenv("KVLIB_STRICT", "1")
    controls.forget()
    yield
    controls.forget()


def drawn(panel):
    """What the pictures show: the rows, without the guess."""
    return repr({name: rows for name, rows in panel.view.rows.items() if name != "guess"}) + str(panel.view.description)


# -- every panel ------------------------------------------------------------------------------

@pytest.mark.parametrize("cls", ALL, ids=lambda c: c.__name__)
def test_a_panel_starts_without_an_error_and_has_picture_sentence_and_table(cls):
    panel = cls()
    assert panel.error == "" and panel.view.rows and panel.view.table and panel.view.description
    data, _ = panel._repr_mimebundle_()
    assert len(data["image/png"]) > 4000 and "<table" in data["text/html"]


@pytest.mark.parametrize("cls", ALL, ids=lambda c: c.__name__)
def test_the_answer_to_the_question_does_not_stand_in_the_first_view(cls):
    panel = cls()
    answer = panel.predict.show(panel.predict.answer).split()[0]
    if not panel.predict.options:
        assert not re.search(rf"(?<![\d,.]){re.escape(answer)}(?![\d,])", panel.plain())
    panel.reveal()
    assert panel.predict.show(panel.predict.answer) in panel._asked()["verdict"]


def settings(field):
    if isinstance(field, Choice):
        return list(field.options)
    if isinstance(field, Toggle):
        return ["on", "off"]
    stops = field.stops()
    if stops:
        return [field.text(v) for v in stops]
    steps = round((field.max - field.min) / field.step)
    return [field.text(field.min + field.step * round(i * steps / 24)) for i in range(25)]


@pytest.mark.parametrize("cls", WITH_SLIDERS, ids=lambda c: c.__name__)
def test_no_control_is_dull(cls):
    panel = cls()
    for field in cls.inputs:
        panel.reset()
        if field.name == "vllm_version":  # one block of 3,215 is not seen in the picture, but in the search's tries
            panel.set(**({"tries": 17} if cls is panels.AutoFit else {}))
        seen, refused, values = set(), 0, settings(field)
        for text in values:
            panel.set(**{field.name: text})
            if panel.error:
                refused += 1
            else:
                seen.add(str(panel.view.answer) if field.name == "vllm_version" else drawn(panel))
        wanted = 5 if isinstance(field, Number) else len(values)
        assert len(seen) >= wanted, f"{field.name}: {len(seen)} pictures"
        assert refused <= len(values) / 2, f"{field.name}: refused {refused} of {len(values)}"


@pytest.mark.parametrize("cls", WITH_SLIDERS, ids=lambda c: c.__name__)
def test_a_bad_value_gets_one_sentence_and_leaves_the_picture(cls):
    panel = cls()
    before = panel.view
    for field in (f for f in cls.inputs if isinstance(f, Number)):
        for text in ("", "abc", "-1", "1e30", "<b>"):
            panel.set(**{field.name: text})
            assert panel.error.startswith(f"{field.label}: found "), field.name
            assert panel.view is before and panel.card.stale
            assert "&lt;b&gt;" not in panel.card.answer
        panel.reset()
        assert panel.error == ""
        before = panel.view


@pytest.mark.parametrize("cls", [c for c in ALL if c.predict and not c.predict.options], ids=lambda c: c.__name__)
@pytest.mark.parametrize("guess", ["17", "0", "-4", "1e9", "2.5"])
def test_any_guess_is_drawn_inside_the_picture(cls, guess):
    panel = cls()
    panel.record(guess)
    assert panel.error == "" and panel.guess == float(guess)
    for row in panel.view.rows["guess"]:
        assert all(value is None or isinstance(value, str) or abs(value) <= 1e6 for value in row.values())
    if guess == "17":
        charts.png(panel.card.specs, panel.card.rows)


# -- a page and a block -------------------------------------------------------------------------

@pytest.mark.parametrize("model", ["Qwen2.5-1.5B", "Qwen3-8B", "Llama-3.1-8B", "Llama-3.3-70B"])
@pytest.mark.parametrize("block_size", [16, 32, 64])
@pytest.mark.parametrize("dtype", ["auto", "fp8"])
def test_page_block_and_token_are_kvlibs(model, block_size, dtype):
    panel = panels.PageAndBlock()
    panel.set(model=model, block_size=block_size, kv_cache_dtype="16-bit" if dtype == "auto" else dtype)
    engine = kvlib.Engine(block_size=block_size, kv_cache_dtype=dtype)
    sized = kvlib.size(kvlib.load_model(model), engine, available_bytes=GiB)
    assert [row["bytes"] for row in panel.view.table.rows] == [
        sized.groups[0].page_size_bytes, sized.bytes_per_block, kvlib.bytes_per_token(sized.model, engine)]
    pages = panel.view.rows["pages"]
    area = sum((page["x2"] - page["x"]) * (page["y2"] - page["y"]) for page in pages)
    assert len(pages) == len(sized.model.layers)
    assert area == pytest.approx(0.86 * sized.bytes_per_block / 4096), "drawn to scale"


# -- the pool -----------------------------------------------------------------------------------

def test_blocks_are_neither_lost_nor_handed_out_twice():
    chance = random.Random(3)
    for _ in range(600):
        lengths = {name: chance.randint(0, 48) for name in "ABCD"}
        block, shared = chance.choice([1, 2, 4, 8, 16]), chance.choice([0, 0, 10])
        d = share_out(lengths, block, finished=chance.choice(["nobody", *"ABC"]), shared=shared)
        holding = [set(held) for held in d.blocks.values() if held]
        common = set.intersection(*holding) if len(holding) > 1 else set()
        for name, held in d.blocks.items():
            assert len(held) == len(set(held)) == (cdiv(lengths[name], block) if d.state[name] == "runs" else 0)
            assert all(0 <= number < d.count for number in held)
            whole = min(shared, lengths[name]) // block
            others = {n for other, h in d.blocks.items() if other != name for n in h}
            assert others & set(held) <= set(held[:whole])
        assert len(common) <= d.shared_blocks <= d.used <= d.count == SLOTS // block
        assert 0 <= d.empty <= 15 * 4 and d.stored + d.empty == d.used * block <= SLOTS
        waits = [name for name in "ABCD" if d.state[name] == "waits"]
        if waits:  # the first that waits does not fit, and nobody has overtaken it
            first = waits[0]
            whole = min(shared, lengths[first]) // block
            assert d.wanted[first] - min(whole, d.shared_blocks) > d.count - d.used
            assert all(d.state[name] in ("waits", "–") for name in "ABCD" if name > first)
        slots = pool_rows(d)["slots"]
        assert len(slots) == d.count * block
        assert sum(s["letter"] not in ("", "·") for s in slots) == d.stored
        assert sum(s["letter"] == "·" for s in slots) == d.empty


def test_a_waiting_request_comes_in_when_another_ends_and_takes_its_blocks():
    panel = panels.Pool()
    assert "D needs 11 and waits: 8 blocks are free." in panel.view.answer
    for name, held in (("A", 5), ("B", 3), ("C", 8)):
        panel.set(finished=name)
        assert panel.view.answer.endswith(f"Of {name}'s {held} blocks, 3 are in use again.")
        assert [row["state"] for row in panel.view.table.rows if row["request"] in (name, "D")] == ["finished", "runs"]


def test_a_shared_beginning_is_stored_once_in_whole_blocks():
    panel = panels.Pool()
    for block, once, saved in ((1, 10, 20), (2, 5, 10), (4, 2, 4), (8, 1, 2)):
        panel.set(block_size=block, shared=True, D=0)
        assert f"takes {once} whole block{'s' * (once > 1)} once, which saves {saved} blocks" in panel.view.answer
        used = int(panel.view.answer.split("<b>")[1].split("<")[0])
        panel.set(shared=False)
        assert int(panel.view.answer.split("<b>")[1].split("<")[0]) == used + saved
    panel.set(block_size=16, shared=True)
    assert "nothing is shared" in panel.view.answer


# -- the program ----------------------------------------------------------------------------------

def test_seven_rows_come_out_as_the_note_prints_them():
    panel = panels.Program()
    assert panel.view.table.footer == "7 of 7 rows reproduced"
    for number, row in enumerate(panel.view.table.rows):
        tokens, concurrency = catalog.note_row(f"C6{number}")["exact"].split()
        assert f">{int(tokens):,}<" in row["tokens"] and f">{float(concurrency):.1f}x<" in row["x"]
    assert "<b>2</b> of 7" in panel.view.answer and panel.view.answer.endswith("rows 4 and 6.")


def rows_of(panel):
    return [list(cells) for cells in panel.raw["programs"]]


def test_a_row_of_ones_own_is_sized_and_told_apart():
    panel, rows = panels.Program(), rows_of(panels.Program())
    rows.append(["Qwen3-8B", "24", "2", "90%", "fp8", "15.27", "1.5"])
    panel.card.set_state({"raw": dict(panel.card.raw) | {"programs": rows}})
    assert panel.view.table.footer == "7 of 7 rows reproduced; 1 of your own"
    memory = kvlib.MemoryBudget(24 * GiB, gib(15.27 / 2), non_torch_bytes=gib(1.5))
    engine = kvlib.Engine(vllm_version="0.30", gpu_memory_utilization=0.9, tensor_parallel_size=2, kv_cache_dtype="fp8")
    own = kvlib.size(kvlib.load_model("Qwen3-8B"), engine, memory=memory)
    assert f">{own.kv_cache_tokens:,}<" in panel.view.table.rows[7]["tokens"]
    assert len(panel.view.rows["dots"]) == 8 and "of 8 set-ups" in panel.view.answer


def test_another_model_brings_its_weights():
    panel, rows = panels.Program(), rows_of(panels.Program())
    rows[0][0] = "Qwen3-8B"
    panel.card.set_state({"raw": dict(panel.card.raw) | {"programs": rows}})
    assert panel.raw["programs"][0][5] == f"{catalog.weights('Qwen3-8B').bytes / GiB:.2f}"
    assert panel.view.table.footer == "6 of 6 rows reproduced; 1 of your own"


@pytest.mark.parametrize("column, text, said", [
    (1, "abc", "Set-ups, row 4, One GPU: found abc"), (2, "0", "Set-ups, row 4, GPUs (TP): found 0"),
    (2, "3", "Row 4: tensor_parallel_size is 3; it must divide"), (3, "1.5", "Set-ups, row 4, Utilization: found 1.5"),
    (5, "-1", "Set-ups, row 4, Weights, all: found -1"), (0, "nobody's", "Set-ups, row 4, Model: found nobody's"),
])
def test_a_bad_cell_is_named(column, text, said):
    panel, rows = panels.Program(), rows_of(panels.Program())
    rows[3][column] = text
    panel.card.set_state({"raw": dict(panel.card.raw) | {"programs": rows}})
    assert panel.error.startswith(said), panel.error
    assert panel.view.table.footer == "7 of 7 rows reproduced" and panel.raw["programs"][3][column] == text


def test_a_card_too_small_for_the_weights_is_an_outcome():
    panel, rows = panels.Program(), rows_of(panels.Program())
    rows[6][1] = "16"
    panel.card.set_state({"raw": dict(panel.card.raw) | {"programs": rows}})
    assert panel.error == "" and panel.view.table.rows[6]["check"] in ("the weights do not fit", "no room for a cache")
    assert "rows 4, 6 and 7" in panel.view.answer
    charts.png(panel.card.specs, panel.card.rows)


def test_every_model_of_the_menu_can_be_sized():
    for name in sizable_models():
        assert panels.on_a_card(name, 80.0, 1, 0.92, "auto", 1.0, 0.8).kv_cache_tokens > 0
    assert {row["model"] for row in PROGRAM} <= set(sizable_models()) and len(sizable_models()) > 100


# -- refusal, auto-fit, eight -------------------------------------------------------------------

SHOWN = {"0.28": "up to 0.28", "0.30": "since 0.29"}


@pytest.mark.parametrize("version", ["0.28", "0.30"])
@pytest.mark.parametrize("dtype", ["auto", "fp8"])
@pytest.mark.parametrize("available, length", [
    (6.28, 131_072), (6.31, 51_664), (6.31, 51_665), (16.5, 131_072), (0.01, 1024)])
def test_the_refusal_is_kvlibs(version, dtype, available, length):
    panel = panels.Refusal()
    panel.set(available_gib=available, max_model_len=length, kv_cache_dtype="16-bit" if dtype == "auto" else dtype,
              vllm_version=SHOWN[version])
    engine = kvlib.Engine(vllm_version=version, kv_cache_dtype=dtype, max_model_len=length)
    sized = kvlib.size(kvlib.load_model("Llama-3.1-8B"), engine, available_bytes=gib(available))
    assert ("Passes" in panel.view.answer) == sized.fits
    if not sized.fits and sized.estimated_max_model_len:
        assert f"<b>{sized.estimated_max_model_len:,}</b>" in panel.view.answer
    assert sized.log_lines()[-1] in panel.plain() or sized.log_lines()[-1].replace("'", "&#x27;") in str(panel.view.table[0])


def test_the_two_pairs_of_figures_stand_side_by_side():
    rows = panels.Refusal().view.table[1].rows
    assert [(row["gib"], row["old"], row["new"]) for row in rows] == [("6.28", 51_440, 51_424), ("6.31", 51_680, 51_664)]


@pytest.mark.parametrize("version", ["0.28", "0.30"])
@pytest.mark.parametrize("available", [0.25, 1.0, 6.28, 6.31, 10.0, 15.75])
def test_the_search_ends_where_auto_fit_does(version, available):
    tries, length = search(available, version)
    engine = kvlib.Engine(vllm_version=version, max_model_len=-1)
    sized = kvlib.size(kvlib.load_model("Llama-3.1-8B"), engine, available_bytes=gib(available))
    assert length == sized.max_model_len and len(tries) == 17
    panel = panels.AutoFit()
    panel.set(available_gib=available, vllm_version=SHOWN[version], tries=17)
    assert f"Found: <b>{length:,}</b> tokens" in panel.view.answer
    for number, (low, high, middle, _, fits) in enumerate(tries[:-1]):
        assert tries[number + 1][:2] == ((middle, high) if fits else (low, middle - 1))


def test_a_pool_without_a_block_is_refused_in_words():
    panel = panels.AutoFit()
    panel.set(available_gib=0.01)
    assert panel.error == "" and "Found" not in panel.view.answer
    panel.set(available_gib="0.001")
    assert panel.error.startswith("Available: found 0.001")


def test_eight_at_once_is_the_longest_length_by_whole_blocks():
    longest = max(n for n in range(6_300, 6_500) if panels.on_a_card(**PROGRAM[3], max_model_len=n).max_concurrency >= 8)
    assert panels.longest_for(8) == longest == 6_416
    panel = panels.EightAtOnce()
    for length, said in ((6_416, "7 blocks left over"), (6_417, "1 block missing"),
                         (6_430, "<b>7.9975</b>x, printed as 8.00x")):
        panel.set(max_model_len=length)
        assert said in panel.view.answer


# -- real lengths and the rule ------------------------------------------------------------------

@pytest.mark.parametrize("average, fits", [(2_000, 344), (4_000, 172), (500, 1_344), (2_001, 341)])
def test_real_lengths_are_counted_in_whole_blocks(average, fits):
    panel = panels.WorstCase()
    panel.set(average_tokens=str(average)) if average < 512 else panel.set(average_tokens=average)
    sized = panels.on_a_card(**PROGRAM[0], max_model_len=average)
    assert int(sized.max_concurrency) == fits == sized.num_gpu_blocks // sized.blocks_per_request
    assert f"fit <b>{fits:,}</b> at a time" in panel.view.answer and "<b>21.01</b>x" in panel.view.answer


def test_an_average_above_the_limit_is_refused():
    panel = panels.WorstCase()
    panel.set(max_model_len=2048, average_tokens=4000)
    assert panel.error.startswith("Your average request has 4,000 tokens, but --max-model-len allows 2,048")


@pytest.mark.parametrize("p95, seqs, cache, said", [
    (8_000, 256, 681_600, "Short"), (8_000, 85, 681_600, "Too close to call"), (8_000, 68, 681_600, "Comfortable"),
    (8_000, 69, 681_600, "Too close to call"), (2_662, 256, 681_600, "Too close to call"), (2_663, 256, 681_600, "Short")])
def test_the_rule_and_its_edges(p95, seqs, cache, said):
    panel = panels.Planning()
    panel.set(p95_tokens=p95, max_num_seqs=seqs, kv_cache_tokens=cache)
    value = panels.margin(cache, p95, seqs)
    assert f"<b>{said}</b>" in panel.view.answer and f"<b>{value:.2f}</b>" in panel.view.answer
    by_length, by_count = panel.view.table.rows
    assert panels.margin(cache, by_length["edge"], seqs) >= 1 > panels.margin(cache, by_length["edge"] + 1, seqs)
    assert panels.margin(cache, p95, by_count["safe"]) >= 1.25 > panels.margin(cache, p95, by_count["safe"] + 1)


# -- the notebook holds its part of the inventory -------------------------------------------------

FIGURES = {
    "A46": "8.192", "C20": "65,536", "C21": "2,097,152", "C22": "131,072", "C30": "16.00 GiB", "C31": "51,440",
    "C32": "51,440", "C33": "21.01", "C34": "344", "C35": "Short", "C60": "688,304", "C61": "310,816", "C62": "1,376,624",
    "C63": "51,440", "C64": "473,488", "C65": "46,192", "C66": "523,296", "C67": "rows 4 and 6", "C70": "6,430", "C71": "KV",
}


def test_every_row_of_the_inventory_stands_in_its_cell():
    notebook = nbformat.read(keep.NOTEBOOKS / "03_blocks_and_tokens.ipynb", as_version=4)
    cells = {cell.id: cell for cell in notebook.cells}
    mine = {row["id"]: row["cell"] for row in catalog.note_rows() if row["notebook"] == "03_blocks_and_tokens.ipynb"}
    assert set(mine) == set(FIGURES)
    for row_id, cell in mine.items():
        shown = "".join(out.get("text", "") + out.get("data", {}).get("text/plain", "") for out in cells[cell].outputs)
        assert FIGURES[row_id] in shown, row_id
    assert not [f for cls in ALL for f in cls.inputs if isinstance(f, Rows) and cls is not panels.Program]


def test_the_figure_of_a_long_bar_stands_at_its_end_in_an_ink_that_fits_green():
    panel = panels.Refusal()
    for available, figure, inside in (("6.28", "6.28 GiB", False), ("18.20", "18.20 GiB", True), ("999", "999.00 GiB", True)):
        panel.set(available_gib=available)
        bar = panel.view.rows["bars"][1]
        assert (bar["figure"], bar["at"] < bar["end"], bar["ink"]) == (figure, inside, "#000000" if inside else "currentColor")
        assert bar["end"] <= 20 and 20 - bar["at"] > 0.24 * len(figure), "and within the picture"
