"""The panels of notebook 01 without a browser: sentence, picture and table agree with kvlib and with each other."""
import json

import pytest

pytest.importorskip("ipywidgets")

import notebook_store as store  # noqa: E402

import kvlib  # noqa: E402
from kvlib import catalog, controls, tables  # noqa: E402
from kvlib.panels import bytes_per_token as lesson  # noqa: E402
from kvlib.panels import token_facts as facts  # noqa: E402
from kvlib.units import GiB, KiB  # noqa: E402

PANELS = [lesson.DecodeWork, lesson.TokenSlab, lesson.SharedHeads, lesson.Outweigh, lesson.TokenPrice]
NOTEBOOK = store.NOTEBOOKS / "01_bytes_per_token.ipynb"


@pytest.fixture(autouse=True)
def fresh_kernel(monkeypatch):
    monkeypatch.setenv("KVLIB_STRICT", "1")
    controls.forget()
    yield
    controls.forget()


def words(panel):
    """Everything a reader can read: sentence, table, description."""
    return panel.plain()


# -- each panel against kvlib ---------------------------------------------------------------------

@pytest.mark.parametrize("prompt, new", [(4, 8), (1, 1), (8, 8), (3, 5)])
def test_work_is_counted_as_decoding_does_it(prompt, new):
    panel = lesson.DecodeWork()
    panel.set(prompt_tokens=prompt, new_tokens=new)
    without = with_cache = seen = 0
    for _ in range(new):          # one step at a time: all tokens so far, or those not yet in the cache
        length = prompt + _
        without, with_cache, seen = without + length, with_cache + length - seen, length
    assert [row["value"] for row in panel.view.rows["bars"]] == [without, with_cache]
    dark = [cell for cell in panel.view.rows["cells"] if cell["colour"] == "currentColor"]
    assert len(dark) == without + with_cache, "one large square for each token run"
    green = len(panel.view.rows["cells"]) - len(dark)
    assert green == sum(prompt + k for k in range(new - 1)), "one green square for each token read"
    assert f"{without} tokens run through the model without a cache, {with_cache} with one" in words(panel)
    assert tables.gib(seen * 147456) in panel.view.note


@pytest.mark.parametrize("layers, heads, width, dtype", [
    (36, 8, 128, "16 bits"), (64, 8, 128, "16 bits"), (96, 16, 256, "16 bits"), (1, 1, 32, "fp8"), (36, 8, 128, "fp8")])
def test_the_slab_is_kvlibs_price(layers, heads, width, dtype):
    panel = lesson.TokenSlab()
    panel.set(num_hidden_layers=layers, num_key_value_heads=heads, head_dim=width, kv_cache_dtype=dtype)
    model = kvlib.from_layers([{"kind": "full", "count": layers, "num_kv_heads": heads, "head_dim": width}],
                              max_position_embeddings=1024)
    each = kvlib.bytes_per_token(model, kvlib.Engine(kv_cache_dtype="fp8" if dtype == "fp8" else "auto"))
    assert panel.view.rows["bar"] == [{"value": each / KiB, "figure": tables.gib(each)}]
    assert f"= {each:,} B: <b>{tables.gib(each)}</b>" in panel.view.answer
    assert panel.view.table.rows[-1]["n"] == each
    boxes = panel.view.rows["boxes"]
    assert len(boxes) == 2 * heads + 2, "a key and a value for each head, and the two enlarged"


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16, 32])
def test_shared_heads(heads):
    panel = lesson.SharedHeads()
    panel.set(num_key_value_heads=heads)
    assert panel.view.rows["bar"][0]["value"] == 144 * heads / 8
    assert len(panel.view.rows["boxes"]) == 2 * heads and len(panel.view.rows["lines"]) == 32
    assert len({row["x2"] for row in panel.view.rows["lines"]}) == heads
    assert panel.view.table.rows[1]["bytes"] == 32 // heads * panel.view.table.rows[0]["bytes"] == 589824


def test_four_requests_outweigh_the_weights_and_three_do_not():
    panel = lesson.Outweigh()
    for requests, side in ((3, "less than"), (4, "more than")):
        panel.set(requests=requests)
        assert side in panel.view.answer and len(panel.view.rows["parts"]) == 1 + requests
        assert panel.view.rows["parts"][-1]["end"] == pytest.approx(4.5 * requests)
        assert panel.view.table.rows[0]["all"] == requests * 32768 * 147456
    panel.set(kv_cache_dtype="fp8")
    assert "less than" in panel.view.answer
    assert panel.limit >= 12 * 40960 * 147456 / GiB, "the longest bar stays in the picture"
    assert 'class="kv-measured"' in panel.view.answer


@pytest.mark.parametrize("name, dtype, gpus, tokens, each", [
    ("Qwen3-8B", "16 bits", 1, 32768, 147456), ("Qwen3-8B", "fp8", 1, 32768, 73728), ("Qwen3-8B", "16 bits", 8, 1024, 18432),
    ("Qwen3-8B", "16 bits", 16, 1024, 18432), ("Llama-3.3-70B", "fp8", 4, 131072, 40960), ("Qwen3-30B-A3B", "16 bits", 1, 5000, 98304)])
def test_the_price_of_any_model(name, dtype, gpus, tokens, each):
    panel = lesson.TokenPrice()
    panel.set(model=name, kv_cache_dtype=dtype, tensor_parallel_size=gpus, request_tokens=tokens)
    assert panel.error == ""
    assert f"{each:,} B" in panel.view.answer and tables.gib(each * tokens) in panel.view.answer
    assert panel.view.rows["way"][0]["bytes"] == each
    assert panel.view.rows["request"][0]["value"] == each * tokens / GiB
    assert panel.view.table[1].rows[0]["all"] == each * tokens * gpus
    assert f"{each:,}" in tables.as_text(panel.view.table[0])


def test_every_model_of_the_menu_fits_the_picture():
    low, high = lesson.RULER
    for name in facts.full_attention_models():
        assert low <= facts.price(name, "fp8", 1) <= facts.price(name) <= high, name


def test_a_request_longer_than_the_config_allows_is_said():
    panel = lesson.TokenPrice()
    panel.set(model="Llama-2-7b", request_tokens=8192)
    assert "allows requests of 4,096 tokens at most" in panel.view.note
    panel.set(request_tokens=4096)
    assert "at most" not in panel.view.note


# -- questions ---------------------------------------------------------------------------------------

SET = {lesson.DecodeWork: {"prompt_tokens": 4, "new_tokens": 8}, lesson.TokenSlab: {"num_hidden_layers": 64},
       lesson.SharedHeads: {"num_key_value_heads": 2},
       lesson.TokenPrice: {"model": "Llama-3.3-70B", "kv_cache_dtype": "fp8", "tensor_parallel_size": 4}}


@pytest.mark.parametrize("kind", SET, ids=lambda kind: kind.name)
def test_the_answer_is_what_the_panel_then_shows_and_not_before(kind):
    panel = kind()
    answer = f"{panel.predict.answer} {panel.predict.unit}"
    shown = "60 tokens" if kind is lesson.DecodeWork else answer
    assert shown not in panel.view.answer and str(panel.predict.answer) + " " not in panel.view.description[1]
    panel.set(**SET[kind])
    assert shown.replace("60 tokens", "<b>60</b>") in str(panel.view.answer)


@pytest.mark.parametrize("kind", PANELS, ids=lambda kind: kind.name)
def test_a_guess_is_drawn(kind):
    panel = kind()
    assert panel.view.rows["guess"] == []
    panel.record("12")
    assert len(panel.view.rows["guess"]) == 1 and panel.view.rows["guess"][0]["label"] == "your guess"


# -- every control -------------------------------------------------------------------------------------

def stops(field):
    if isinstance(field, controls.Choice):
        return list(field.options)
    if field.stops():
        return field.stops()
    steps = int((field.max - field.min) / field.step)
    return [field.min + field.step * (steps * i // 10) for i in range(11)]


@pytest.mark.parametrize("kind, name", [(kind, field.name) for kind in PANELS for field in kind.inputs],
                         ids=lambda value: getattr(value, "name", value))
def test_no_dull_control(kind, name):
    panel = kind()
    field = next(field for field in kind.inputs if field.name == name)
    pictures, answers, refused = set(), set(), 0
    tried = list(dict.fromkeys(stops(field)))
    for value in tried:
        panel.set(**{name: value})
        refused += bool(panel.error)
        pictures.add(json.dumps(panel.view.rows, sort_keys=True))
        answers.add(panel.view.answer)
    assert refused <= len(tried) / 2
    assert len(pictures) >= (min(5, len(tried)) if not isinstance(field, controls.Choice) else len(tried) * 0.6)
    assert len(answers) > 1


@pytest.mark.parametrize("kind, name, text, said", [
    (lesson.DecodeWork, "prompt_tokens", "0", "Prompt: found 0, expected a whole number from 1 to 8 tokens."),
    (lesson.TokenSlab, "head_dim", "wide", "Head width: found wide, expected a whole number from 32 to 256 numbers."),
    (lesson.TokenSlab, "num_hidden_layers", "-1", "Layers: found -1, expected a whole number from 1 to 96."),
    (lesson.SharedHeads, "num_key_value_heads", "5", "KV heads: found 5, expected one of 1, 2, 4, 8, 16, 32."),
    (lesson.Outweigh, "request_tokens", "50,000", "Tokens in each: found 50,000, expected a whole number from 1 to 40,960 tokens."),
    (lesson.TokenPrice, "model", "Qwen9", "Model: found Qwen9, expected one of "),
])
def test_a_bad_value_is_said_and_the_last_picture_stays(kind, name, text, said):
    panel = kind()
    before = panel.view
    panel.set(**{name: text})
    assert panel.error.startswith(said) and panel.view is before
    panel.reset()
    assert panel.error == ""


def test_gpus_that_do_not_divide_the_heads_are_refused_in_one_sentence():
    panel = lesson.TokenPrice()
    panel.set(model="Qwen2.5-1.5B", tensor_parallel_size=8)
    assert "8" in panel.error and "12" in panel.error and "\n" not in panel.error
    panel.set(tensor_parallel_size=4)
    assert panel.error == ""


# -- facts ---------------------------------------------------------------------------------

def test_the_division_is_wrong_both_ways():
    rows = {row["model"]: row for row in facts.shortcut_rows()}
    assert (rows["Qwen3-30B-A3B"]["shortcut"], rows["Qwen3-30B-A3B"]["head_dim"]) == (64, 128)
    assert rows["Qwen3-30B-A3B"]["error"] == -50 and rows["Mistral-Nemo-12B"]["error"] == 25
    assert not {"Qwen3-8B", "Llama-3.1-8B", "Llama-3.3-70B", "Qwen2.5-1.5B"} & set(rows)
    for row in rows.values():
        config = catalog.model_config(row["model"])
        assert (config.get("text_config") or config)["head_dim"] == row["head_dim"] != row["shortcut"]
        assert row["wrong"] * row["head_dim"] == row["true"] * row["shortcut"]


def test_factors_of_other_kinds_of_layer():
    text = tables.as_text(facts.factors(kvlib.load_model("gpt-oss-120b")))
    assert "36,864" in text and "the last 128 tokens only" in text
    assert "a fixed state" in tables.as_text(facts.factors(kvlib.load_model("Qwen3.8-27B")))
    assert "70,272" in tables.as_text(facts.factors(kvlib.load_model("DeepSeek-V3")))


@pytest.mark.parametrize("tokens", [0, -1, 1.5, "abc", True, None])
def test_a_request_of_no_tokens_is_refused_in_one_sentence(tokens):
    with pytest.raises(kvlib.SizingError, match="whole number of tokens, at least 1"):
        facts.request_bytes(kvlib.load_model("Qwen3-8B"), kvlib.Engine(), tokens)


# -- the notebook ----------------------------------------------------------------------------------------

def outputs(cell):
    return " ".join(str(output.get("text", "")) + " ".join(
        store._text(value) for kind, value in output.get("data", {}).items() if kind == "text/plain")
        for output in cell.get("outputs", ()))


@pytest.mark.parametrize("row, figures", [
    ("A01", ["36", "8", "128", "2"]), ("A02", ["147,456"]), ("A03", ["144 KiB"]), ("A04", ["4.5 GiB"]),
    ("A05", ["15.27 GiB", "15 GiB"]), ("A06", ["outweigh", "4"]), ("A07", ["589,824", "4 times"]),
    ("A08", ["64", "128"]), ("C23", ["num_key_value_heads", "28,672", "131,072", "327,680", "32,768"]),
])
def test_the_notes_figures_stand_in_their_cells(row, figures):
    found = catalog.note_row(row)
    cell = next(cell for cell in store.read(NOTEBOOK).cells if cell.id == found["cell"])
    assert found["notebook"] == NOTEBOOK.name
    for figure in figures:
        assert figure in outputs(cell), figure
    if found["lost"] == "yes":
        assert "reconstructed" in outputs(cell)
