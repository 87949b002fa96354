"""Panels without a browser: what the browser sends is sent, what it would show is read."""
import gc
import json
import weakref
from pathlib import Path

import pytest

pytest.importorskip("ipywidgets")

import altair as alt  # noqa: E402
from kvlib import charts, controls, inputs  # noqa: E402
from kvlib.controls import Choice, Number, Panel, PowerOfTwo, Predict, Toggle, View, html, mark, table  # noqa: E402
from kvlib.errors import SizingError  # noqa: E402
from kvlib.tables import styled_by_sheet  # noqa: E402
from panels import Budget, Fit, types, unpacked  # noqa: E402


@pytest.fixture(autouse=True)
def fresh_kernel():
    controls.forget()
    yield
    controls.forget()


# -- inputs -----------------------------------------------------------------------------------

LENGTH = PowerOfTwo("n", 4096, min=1024, max=131072, label="Length", unit="tokens")


@pytest.mark.parametrize("text, value", [
    ("4096", 4096), (" 40,960 ", 40960), ("40_960", 40960), ("40 960", 40960), ("4e4", 40000), ("32K", 32768),
    ("32k", 32000), ("1", 1), ("5000", 5000), ("4096.0", 4096),
])
def test_whole_numbers_are_read_as_people_write_them(text, value):
    assert LENGTH.parse(text) == value
    assert isinstance(LENGTH.parse(text), int)


@pytest.mark.parametrize("text", [
    "", "  ", "abc", "-1", "0", "1e999", "1e999999999", "nan", "inf", "-inf", "4096.5", "12,34", "0x10", "4096 tokens",
    "²", "1" * 5000, "99999999999", "__import__('os')", "<b>1</b>", "1,024,", None, True and "true",
])
def test_what_is_no_length_gets_one_sentence(text):
    with pytest.raises(inputs.InputError) as caught:
        LENGTH.parse(text)
    message = str(caught.value)
    assert message.startswith("Length: found ") and message.endswith("expected a whole number from 1 to 16,777,216 tokens.")
    assert len(message) < 140


def test_a_share_may_be_typed_as_per_cent():
    share = controls.Fraction("u", 0.92)
    assert share.parse("92%") == share.parse("0.92") == 0.92
    for text in ("92", "0,92", "-0.5", "120%", "%"):
        with pytest.raises(inputs.InputError):
            share.parse(text)


def test_text_of_a_value_is_read_back():
    for field, value in [(LENGTH, 65536), (Number("x", 3.0, min=0, max=12, step=0.1), 2.5),
                         (Number("x", 3.0, min=0, max=500, step=0.1), 121.63), (Toggle("t"), True),
                         (Choice("c", {"one": 1, "two": 2}), 2), (controls.Fraction("u", 0.9), 0.905)]:
        assert field.parse(field.text(value)) == value


def test_a_length_slider_rests_on_powers_of_two_and_on_its_default():
    assert PowerOfTwo("n", 40960, min=8192, max=131072).stops() == [8192, 16384, 32768, 40960, 65536, 131072]


# -- state -> result -> view --------------------------------------------------------------------

def test_a_moved_control_moves_sentence_rows_table_and_description_together():
    panel = Fit()
    assert "<b>16.64</b> requests of 40,960" in panel.card.answer
    types(panel, max_model_len="4,096")
    card = panel.card
    assert "<b>166.41</b> requests of 4,096" in card.answer
    assert card.rows["bar"] == [{"value": 166.40625}]
    assert ">166.41<" in card.table and card.descriptions == ["A bar of 166.41 requests."]
    assert panel.values.max_model_len == 4096


def test_one_step_is_one_message_with_what_changed(monkeypatch):
    panel = Fit()
    sent = []
    monkeypatch.setattr(type(panel.card), "_send", lambda self, msg, buffers=None: sent.append(msg))
    types(panel, max_model_len="8,192")
    updates = [m["state"] for m in sent if m["method"] == "update"]
    assert len(updates) == 1
    assert set(updates[0]) == {"answer", "changed_rows", "table", "descriptions"}, "no spec, and never raw back to a reader who types"
    assert [m for m in sent if m["method"] != "update"] == [], "nor an echo of it, which may come after newer values"


class TwoPictures(Panel):
    """Two tables, one of which stays; the axis ends where the number does."""

    name = "test-two-pictures"
    inputs = [Number("n", 10, min=0, max=100, label="Number", help="A number.")]

    def compute(self, s):
        return View(answer=f"{s.n}", rows={"still": [{"value": 1}], "moved": [{"value": s.n}]}, chart=bar_to(s.n, f"to {s.n}"))


@charts.made_once("limit", "title")
def bar_to(limit, title):
    x = charts.axis_x("value", title, (0, limit))
    return charts.themed(alt.Chart(alt.NamedData("moved")).mark_bar().encode(x=x).properties(width=300, height=80))


def test_a_step_sends_the_changed_rows_and_what_fills_the_spec(monkeypatch):
    panel, sent = TwoPictures(), []
    first, = panel.card.specs
    assert panel.card.get_state(["rows"])["rows"].keys() == {"still", "moved"}, "a page that comes later gets all of them"
    monkeypatch.setattr(type(panel.card), "_send", lambda self, msg, buffers=None: sent.append(msg["state"]))
    types(panel, n="20")
    state, = sent
    assert state.keys() == {"answer", "changed_rows", "fills"} and state["changed_rows"] == {
        "number": 1, "whole": False, "tables": {"moved": {"count": 1, "columns": {"value": 20}, "kept": True}}}
    assert panel.card.specs == [first] and panel.card.get_state(["rows"])["rows"]["moved"]["columns"] == {"value": 20}
    spec = charts.filled(first, state["fills"][0])
    assert json.loads(json.dumps(spec)) == json.loads(json.dumps(bar_to.__wrapped__(20, "to 20")))
    types(panel, n="10")
    assert sent[-1]["changed_rows"]["tables"]["moved"]["columns"] == {"value": 10}, "back again is a change too"


def test_a_page_that_missed_a_change_gets_all_rows(monkeypatch):
    panel, sent = TwoPictures(), []
    types(panel, n="20")
    monkeypatch.setattr(type(panel.card), "_send", lambda self, msg, buffers=None: sent.append(msg["state"]))
    panel.card._handle_custom_msg({"do": "rows"}, [])
    changed = sent[-1]["changed_rows"]
    assert (changed["number"], changed["whole"]) == (2, True)
    assert unpacked(changed["tables"]) == {"still": [{"value": 1}], "moved": [{"value": 20}]}


@pytest.mark.parametrize("text", ["abc", "-5", "", "1e999", "99999999999"])
def test_a_bad_value_keeps_the_last_picture_greyed_and_the_text_in_the_box(text):
    panel = Fit()
    types(panel, max_model_len="8,192")
    good = panel.card.get_state(["answer", "rows", "table", "descriptions"])
    types(panel, max_model_len=text)
    card = panel.card
    assert card.error.startswith("Context length: found ") and card.error.count(".") == 1
    assert card.stale and card.bad == ["max_model_len"]
    assert card.get_state(["answer", "rows", "table", "descriptions"]) == good
    assert card.raw["max_model_len"] == text
    types(panel, max_model_len="4,096")
    assert (card.error, card.stale, card.bad) == ("", False, [])
    assert "166.41" in card.answer


def test_a_refusal_of_compute_is_the_red_sentence():
    panel = Budget()
    types(panel, gpu_memory_utilization="0.1")
    assert panel.card.error.startswith("Nothing is left for the KV cache") and panel.card.stale
    assert panel.card.fault == "" and panel.card.bad == []
    types(panel, gpu_memory_utilization="0.9")
    assert panel.card.error == "" and not panel.card.stale


class Broken(Panel):
    name = "test-broken"
    inputs = [Number("n", 1, min=0, max=9)]

    def compute(self, s):
        return View(f"{10 / s.n:.0f}")


def test_a_mistake_of_a_panel_is_said_and_under_test_raised(monkeypatch):
    monkeypatch.delenv("KVLIB_STRICT", raising=False)
    panel = Broken()
    types(panel, n="0")
    assert "mistake of its own (ZeroDivisionError" in panel.card.error and panel.card.fault and panel.card.stale
    types(panel, n="5")
    assert panel.card.error == panel.card.fault == "" and panel.card.answer == "2"
    monkeypatch.setenv("KVLIB_STRICT", "1")
    with pytest.raises(ZeroDivisionError):
        types(panel, n="0")


def test_what_follows_another_input_travels_as_a_patch():
    panel = Budget()
    types(panel, gpu="L4")
    assert panel.card.raw["total_gib"] == "22.00" and panel.values.total_gib == 22.0
    assert panel.card.patch["values"] == {"total_gib": "22.00"}
    # A message that left before the patch arrived still carries the old memory: it is no edit.
    panel.card.set_state({"raw": dict(panel.card.raw) | {"total_gib": "121.63", "gpu_memory_utilization": "0.95"}})
    assert panel.values.total_gib == 22.0 and panel.values.gpu_memory_utilization == 0.95
    types(panel, total_gib="30")
    assert panel.values.total_gib == 30.0


class Twins(Panel):
    """Two boxes; each move of one is written down."""

    name = "test-twins"
    inputs = (Number("a", 1, min=0, max=9), Number("b", 1, min=0, max=9))

    def follow(self, name, s):
        self.moves = [*getattr(self, "moves", []), name]
        return {"b": s.a} if name == "a" else None

    def compute(self, s):
        return View(answer=f"{s.a} {s.b}")


def test_what_python_put_into_a_box_is_no_edit_when_it_comes_back():
    panel = Twins()
    types(panel, a="2")
    types(panel, a="3")
    assert panel.moves == ["a", "a"] and panel.view.answer == "3 3"
    panel.reset()
    types(panel, a="4")
    assert panel.moves == ["a", "a", "a"] and panel.view.answer == "4 4"


def test_the_value_from_before_a_reset_can_be_chosen_again():
    panel = Twins()
    types(panel, a="2")
    panel.reset()
    types(panel, a="2")
    assert panel.view.answer == "2 2"


def test_a_panel_set_before_it_is_shown_does_not_take_that_for_an_edit():
    panel = Twins()
    panel.set(a=5)
    types(panel, b="6")
    assert panel.moves == ["a", "b"] and panel.view.answer == "5 6"


def test_rows_can_be_changed_added_and_removed():
    panel = Budget()
    rows = panel.card.raw["programs"]
    assert rows == [["Qwen3-8B", "40,960"], ["Another", "8,192"]]
    types(panel, programs=[*rows, ["Mine <b>", "1,024"]])
    assert "Mine &lt;b&gt;" in panel.card.table
    types(panel, programs=[["Qwen3-8B", "x"]])
    assert panel.card.error == "Programs, row 1, Length: found x, expected a whole number from 1 to 16,777,216 tokens."
    types(panel, programs=[["Qwen3-8B", "8192"]])
    assert panel.card.error == "" and len(panel.values.programs) == 1


def test_set_does_what_typing_does_and_checks_names():
    panel = Fit()
    assert panel.card.answer
    panel.set(max_model_len=8192)
    assert panel.card.raw == {"max_model_len": "8,192"} and "83.20" in panel.card.answer
    assert panel.card.patch["values"] == {"max_model_len": "8,192"}
    panel.set(max_model_len="oops")
    assert "found oops" in panel.error
    with pytest.raises(TypeError, match="no input named max_len"):
        panel.set(max_len=1)


def test_reset_brings_back_the_defaults_and_forgets_the_guess():
    panel = Fit()
    types(panel, max_model_len="abc")
    panel.record("20")
    panel.card._handle_custom_msg({"do": "reset"}, [])
    assert panel.error == "" and panel.guess is None and panel.values.max_model_len == 40960
    assert panel.card.patch["values"] == {"max_model_len": "40,960"}


# -- kept over a re-run ---------------------------------------------------------------------------

def test_running_the_cell_again_shows_the_same_panel():
    panel = Fit()
    types(panel, max_model_len="abc")
    again = Fit()
    assert again is panel and again.card is panel.card and again.card.raw == {"max_model_len": "abc"}


def test_a_class_written_anew_takes_over_what_was_typed():
    types(Fit(), max_model_len="8,192")
    Fit().record("20")

    class Anew(Fit):
        pass

    panel = Anew()
    assert panel.values.max_model_len == 8192 and panel.guess == 20
    controls.forget()
    assert Anew().values.max_model_len == 40960, "a fresh kernel starts from the defaults"


def test_other_defaults_keep_what_was_touched():
    types(Budget(), gpu_memory_utilization="0.5")
    panel = Budget(total_gib=79.1)
    assert panel.values.total_gib == 79.1 and panel.values.gpu_memory_utilization == 0.5
    with pytest.raises(TypeError, match="no input named nothing"):
        Budget(nothing=1)


def test_replaced_panels_are_not_kept():
    def once():
        return type("Try", (Panel,), {"name": "test-try", "compute": lambda self, s: View("x")})()

    old = weakref.ref(once())
    once()
    gc.collect()
    assert old() is None


# -- the question -----------------------------------------------------------------------------------

def test_the_answer_stays_with_python_until_a_guess():
    panel = Fit()
    seen = str(panel.card.get_state(["predict", "key", "fields"]))
    assert "166.4" not in seen and "Ten times" not in seen
    panel.card._handle_custom_msg({"do": "guess", "text": "20"}, [])
    assert panel.guess == 20 and panel.card.rows["guess"] == [{"value": 20, "label": "your guess"}]
    assert panel.card.predict["verdict"] == "You said 20 requests; it is <b>166.4 requests</b>. Ten times shorter, ten times as many."


def test_a_guess_that_is_none_is_said_and_shows_nothing():
    panel = Fit()
    panel.record("many <b>")
    assert panel.card.predict["verdict"] == "My guess: found many &lt;b&gt;, expected a number such as 20."
    assert panel.card.predict["problem"] and panel.guess is None
    panel.record("160")
    assert "close: it is" in panel.card.predict["verdict"] and not panel.card.predict["problem"]


def test_reveal_without_a_guess():
    panel = Fit()
    panel.card._handle_custom_msg({"do": "reveal"}, [])
    assert panel.card.predict["verdict"].startswith("It is <b>166.4 requests</b>.") and panel.guess is None


def test_a_question_alone_with_choices_keeps_its_guess():
    def ask():
        return Predict("Which moves more?", options=["TP 2 to 4", "FP8 cache"], answer="FP8 cache", name="test-ask")

    one = ask()
    data, _ = one._repr_mimebundle_()
    assert "Which moves more?" in data["text/html"] and "image/png" not in data
    one._alone().record("TP 2 to 4")
    again = ask()
    again._repr_mimebundle_()
    assert again.guess == "TP 2 to 4"
    assert again._alone().card.predict["verdict"].startswith("You said TP 2 to 4; it is <b>FP8 cache</b>.")


# -- display ------------------------------------------------------------------------------------------

def test_a_panel_shows_itself_in_every_front_end():
    data, meta = Fit()._repr_mimebundle_()
    assert set(data) == {"application/vnd.jupyter.widget-view+json", "text/html", "image/png", "text/plain"}
    assert "<b>16.64</b>" in data["text/html"] and "<table" in data["text/html"] and "Run this notebook" in data["text/html"]
    assert "166.4" not in data["text/html"], "the answer to the question is not given away"
    assert data["text/plain"].startswith("At 4,096 tokens each")
    assert len(data["image/png"]) < 60_000 and meta["image/png"]["alt"] == "A bar of 16.64 requests."


def test_the_same_state_gives_the_same_html():
    first = Fit()._repr_mimebundle_()[0]["text/html"]
    controls.forget()
    assert Fit()._repr_mimebundle_()[0]["text/html"] == first


def test_two_displays_share_one_model():
    panel = Fit()
    views = [panel._repr_mimebundle_()[0]["application/vnd.jupyter.widget-view+json"]["model_id"] for _ in range(2)]
    assert views[0] == views[1]


def test_every_string_is_escaped():
    class Nasty(Panel):
        name = "test-nasty"
        title = "<i>t</i>"
        inputs = [Choice("c", ["<script>alert(1)</script>"], label="<b>l</b>", help="<u>h</u>", unit="<s>")]

        def compute(self, s):
            return View(answer=f"{s.c}", note=s.c, table=table([{"<k>": s.c}], caption=s.c, footer=s.c), description=s.c)

    panel = Nasty()
    card = panel.card
    for text in (card.answer, card.note, card.table, card.key, str(panel.fallback())):
        assert "<script" not in text and "<u>h" not in text and "<k>" not in text and "<b>l" not in text


def test_key_names_unit_range_and_flag():
    key = Fit().card.key
    for part in ("Context length", "tokens", "1 to 16,777,216 tokens", "--max-model-len", "Longest request"):
        assert part in key


def test_html_escapes_its_arguments():
    assert html("<b>{}</b>", "<x>") == "<b>&lt;x&gt;</b>"


def test_sizing_errors_are_shown_as_they_are():
    class Refuses(Panel):
        name = "test-refuses"

        def compute(self, s):
            raise SizingError("hidden_size: found <x>, expected a whole number.")

    panel = Refuses()
    assert panel.card.error == "hidden_size: found <x>, expected a whole number."
    assert "&lt;x&gt;" in panel.fallback()


def test_the_example_of_the_guide_runs():
    import textwrap
    lines = textwrap.dedent(controls.__doc__.split("complete::")[1].split("* Inputs:")[0]).strip().splitlines()
    assert len(lines) <= 34
    space = {}
    exec("\n".join(lines), space)
    assert "16.64" in space["Fit"]().card.answer


def test_a_panel_whose_pictures_come_with_its_state_has_the_chart_library_too():
    class Drawn(Fit):
        name = "test-drawn-by-state"

        def chart(self):
            return None

        def compute(self, s):
            view = super().compute(s)
            view.chart = Fit.chart(self)
            return view

    assert Drawn().card.specs and Drawn().card.vega


def test_an_empty_cell_heads_no_row():
    shown = table([{"what": "weights", "gib": 1}, {"what": "", "gib": 2}]).html
    assert shown.count('<th scope="row"') == 1 and shown.count("<td") == 3


def test_in_a_card_the_sheet_styles_what_a_bare_page_styles_in_place():
    bare = table([{"what": html("{}", mark("1.5", "assumed"))}], {"what": "what"}).html
    assert "border-bottom:2px dotted" in bare
    assert styled_by_sheet(bare) == bare.replace(' style="border-bottom:2px dotted"', "")
    css = (Path(controls.__file__).parent / "web" / "card.css").read_text("utf-8")
    for rule in (".kv-table .kv-l { text-align: left; }", ".kv-measured { border-bottom: 2px solid", ".kv-assumed { border-bottom: 2px dotted"):
        assert rule in css, "what is left out of the markup stands in the sheet"
