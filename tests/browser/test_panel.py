"""A panel in a real JupyterLab: by mouse, by keyboard, shown twice, wrong, reloaded, in the dark, on a phone."""
from pathlib import Path

import pytest
from playwright.sync_api import expect

from kvlib.live import web

from .lab import open_notebook

pytestmark = pytest.mark.browser

TESTS = str(Path(__file__).resolve().parent.parent)
CELLS = [f"import sys; sys.path.insert(0, {TESTS!r})\nfrom kvlib import charts\ncharts.setup()\nfrom panels import Budget, Fit, Names",
         "panel = Fit()\npanel", "Budget()", "Names()"]


class Card:
    """What a reader sees of a panel."""

    def __init__(self, place):
        self.root = place.locator(".kv-card").first
        self.answer = self.root.locator(".kv-answer")
        self.error = self.root.get_by_role("alert")
        self.picture = self.root.get_by_role("img").first
        self.result = self.root.locator(".kv-result")

    def box(self, label):
        return self.root.get_by_label(label, exact=True)

    def slider(self, label):
        return self.root.get_by_label(label + ", slider")

    def says(self, figure):
        """Sentence, table and picture's words and bar agree on a figure."""
        expect(self.answer).to_contain_text(figure)
        expect(self.result).to_contain_text(figure)
        expect(self.picture).to_have_attribute("aria-label", f"A bar of {figure} requests.")
        bar = self.picture.locator("[aria-roledescription=bar]")
        for _ in range(100):
            drawn = float(bar.get_attribute("aria-label").rsplit(": ", 1)[1])
            if abs(drawn - float(figure)) < 0.0051:
                return
            bar.page.wait_for_timeout(50)
        raise AssertionError(f"the bar says {drawn}, the sentence {figure}")


@pytest.fixture
def opened(lab, page):
    lab.write_notebook("panel.ipynb", CELLS)
    notebook = open_notebook(page, lab, "panel.ipynb")
    notebook.run_all()
    assert notebook.errors() == []
    return notebook


@pytest.fixture
def fit(opened):
    card = Card(opened.output(1))
    expect(card.picture.locator("svg.marks")).to_be_visible()
    return card


def test_moved_typed_dragged_and_wrong(fit, page):
    fit.says("16.64")
    move_every_way(fit)
    box = fit.box("Context length")
    box.fill("32K")  # a pause is enough
    fit.says("20.80")
    slider = fit.slider("Context length")
    slider.focus()
    for key in ["ArrowLeft"] * 6 + ["ArrowRight"] * 4 + ["End", "Home", "ArrowRight", "ArrowRight"]:
        page.keyboard.press(key)  # faster than the kernel answers
    fit.says("166.41")
    expect(box).to_have_value("4,096")
    be_wrong_and_recover(fit)


def move_every_way(fit):
    slider, box = fit.slider("Context length"), fit.box("Context length")
    slider.click(position={"x": 3, "y": 8})
    fit.says("665.62")
    for key, figure in [("ArrowRight", "332.81"), ("ArrowUp", "166.41"), ("ArrowLeft", "332.81"), ("End", "5.20"),
                        ("ArrowRight", "5.20"), ("ArrowDown", "10.40"), ("ArrowLeft", "16.64"), ("Home", "665.62")]:
        slider.press(key)
        fit.says(figure)
    expect(slider).to_have_attribute("aria-valuetext", "1,024 tokens")
    box.fill("5000")
    box.press("Enter")
    fit.says("136.32")
    box.press("ArrowUp")
    expect(box).to_have_value("8,192")
    fit.says("83.20")
    box.press("ArrowDown")
    fit.says("166.41")


def be_wrong_and_recover(fit):
    fit.slider("Context length").press("End")
    fit.says("5.20")
    place, below = fit.root.bounding_box(), fit.result.bounding_box()["y"]
    box = fit.box("Context length")
    for text in ("abc", "-5", "1e999", ""):
        box.fill(text)
        box.press("Enter")
        expect(fit.error).to_contain_text(f"Context length: found {text or 'nothing'}, expected a whole number")
        expect(fit.picture).to_have_class("kv-picture kv-stale")
        expect(fit.picture).to_have_attribute("aria-label", "A bar of 5.20 requests.")
        expect(box).to_have_value(text)
        expect(box).to_have_attribute("aria-invalid", "true")
        assert fit.result.bounding_box()["y"] == below, "nothing moves"
    box.fill("40,960")
    box.press("Enter")
    fit.says("16.64")
    expect(fit.error).to_have_text("")
    expect(box).to_have_attribute("aria-invalid", "false")
    assert fit.root.bounding_box() == place


def test_shown_twice_set_from_a_cell_guessed_and_run_again(opened, fit):
    fit.slider("Context length").press("Home")
    fit.says("665.62")
    second = Card(opened.output(opened.add_and_run("Fit()")))
    both = (fit, second)
    second.says("665.62")
    second.slider("Context length").press("ArrowRight")
    for card in both:
        card.says("332.81")
        expect(card.box("Context length")).to_have_value("2,048")
    second.box("Context length").fill("oops")
    second.box("Context length").press("Enter")
    for card in both:
        expect(card.error).to_contain_text("found oops")
        expect(card.box("Context length")).to_have_value("oops")
    opened.add_and_run("panel.set(max_model_len=5000)")
    for card in both:
        card.says("136.32")
        expect(card.box("Context length")).to_have_value("5,000")
        expect(card.root).not_to_contain_text("166.4")
    fit.root.get_by_label("My guess").fill("20")
    fit.root.get_by_role("button", name="Record my guess").click()
    for card in both:
        expect(card.root.locator(".kv-verdict")).to_have_text(
            "You said 20 requests; it is 166.4 requests. Ten times shorter, ten times as many.")
        expect(card.picture.get_by_text("your guess")).to_be_visible()
    opened.run_all()
    again = Card(opened.output(1))
    again.says("136.32")
    expect(again.box("Context length")).to_have_value("5,000")
    again.root.get_by_role("button", name="Reset").click()
    again.says("16.64")
    expect(again.box("Context length")).to_have_value("40,960")


def test_every_kind_of_input_in_the_dark_and_on_a_phone(opened, fit, page):
    card = Card(opened.output(2))
    expect(card.answer).to_contain_text("mine: 93.63 GiB")
    card.box("GPU").select_option("L4")
    expect(card.box("GPU memory")).to_have_value("22.00")
    expect(card.answer).to_contain_text("1.97 GiB")
    card.slider("Share requested").press("End")
    expect(card.answer).to_contain_text("3.73 GiB")
    card.root.get_by_label("No CUDA graphs").check()
    expect(card.answer).to_contain_text("4.73 GiB")
    card.box("Name of this plan").fill("<b>tonight</b>")
    expect(card.answer).to_contain_text("<b>tonight</b>: 4.73 GiB")
    card.root.get_by_label("fp8").check()
    expect(card.result).to_contain_text("1.68")
    card.root.get_by_role("button", name="Add a row").click()
    expect(card.box("Model, row 3")).to_be_focused()
    card.box("Length, row 3").fill("1024")
    card.box("Length, row 3").press("Tab")
    expect(card.result.get_by_role("row")).to_have_count(4)
    expect(card.result.get_by_role("row").nth(3)).to_contain_text("1,024")
    card.root.get_by_role("button", name="Remove row 1").click()
    expect(card.result.get_by_role("row")).to_have_count(3)
    card.slider("Share requested").press("Home")
    expect(card.error).to_contain_text("Nothing is left for the KV cache")
    look_in_the_dark(opened, fit, page)


def test_what_is_being_typed_stays_while_another_input_moves(opened, page):
    card = Card(opened.output(2))
    card.box("Name of this plan").press("ControlOrMeta+a")
    page.keyboard.type("tonight")
    card.slider("Share requested").evaluate("node => { node.value = node.max; node.dispatchEvent(new Event('input')); }")
    expect(card.box("Name of this plan")).to_have_value("tonight")
    expect(card.answer).to_contain_text("tonight: 103.36 GiB")


DRAWN = """node => {
  node.kvDrawn = [];
  const group = ({ target }) => (target.closest?.("g[class]") ?? target).getAttribute("class");
  const told = (changes) => node.kvDrawn.push(...changes.map(group));
  new MutationObserver(told).observe(node, { subtree: true, childList: true, attributes: true });
}"""


def test_a_step_draws_anew_only_what_it_changes(fit):
    fit.says("16.64")
    fit.picture.evaluate(DRAWN)
    fit.slider("Context length").press("ArrowLeft")
    fit.says("20.80")
    drawn = fit.picture.evaluate("node => node.kvDrawn.filter((name) => name !== 'kv-picture')")
    bar, title = "mark-rect role-mark layer_0_marks", "mark-text role-axis-title"   # Vega places the title each time
    assert {bar} <= set(drawn) <= {bar, title}, "neither the axis nor its figures"


def test_words_that_grow_get_their_room(opened):
    card = Card(opened.output(3))
    bar, widths = card.picture.locator("[aria-roledescription=bar]"), []   # half as long as the plot
    for letters in (1, 12, 20, 1):
        card.box("Letters").fill(str(letters))
        card.box("Letters").press("Enter")
        word, frame = card.picture.get_by_text("M" * letters, exact=True), card.picture.locator("svg.marks")
        expect(word).to_be_visible()
        expect(card.picture).to_have_attribute("aria-label", f"A bar named by {letters} letters.")
        assert word.bounding_box()["x"] >= frame.bounding_box()["x"], "not cut off"
        widths.append(bar.bounding_box()["width"])
    assert widths[0] > widths[1] > widths[2]
    assert widths[3] == widths[0], "and the plot takes it back"


def test_menus_and_buttons_move_by_arrow_keys(opened, page):
    card = Card(opened.output(2))
    expect(card.answer).to_contain_text("93.63 GiB")
    card.box("GPU").focus()
    page.keyboard.press("ArrowDown")
    expect(card.box("GPU")).to_have_value("H100 80GB")
    expect(card.box("GPU memory")).to_have_value("79.10")
    card.root.get_by_label("auto").focus()
    page.keyboard.press("ArrowRight")
    expect(card.root.get_by_label("fp8")).to_be_checked()
    page.keyboard.press("ArrowUp")
    expect(card.root.get_by_label("auto")).to_be_checked()
    card.root.get_by_label("No CUDA graphs").focus()
    page.keyboard.press("Space")
    expect(card.root.get_by_label("No CUDA graphs")).to_be_checked()


def test_after_a_reload_the_newest_state_is_there(opened, fit):
    fit.box("Context length").fill("5000")
    fit.box("Context length").press("Enter")
    fit.says("136.32")
    opened.save_and_reload("How many requests fit")
    fit.says("136.32")
    fit.slider("Context length").press("End")
    fit.says("5.20")


def test_after_a_kernel_restart_all_works_again(opened, fit, page):
    fit.slider("Context length").press("End")
    fit.says("5.20")
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.restart()")
    opened.wait_idle()
    opened.run_all()
    assert opened.errors() == []
    again = Card(opened.output(1))
    again.says("16.64")
    again.slider("Context length").press("End")
    again.says("5.20")


def look_in_the_dark(opened, fit, page):
    opened.command("application:toggle-left-area")
    page.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    expect(page.locator("body")).to_have_attribute("data-jp-theme-light", "false")
    ink, ground = fit.root.evaluate("e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor]")
    assert contrast(ink, ground) > 7
    words = fit.picture.locator("svg text").first.evaluate("e => getComputedStyle(e).fill")
    assert contrast(words, ground) > 7
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_timeout(500)
    for card in page.locator(".kv-card").all():
        assert card.evaluate("e => e.scrollWidth <= e.clientWidth")
    page.set_viewport_size({"width": 1280, "height": 1000})
    page.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})")
    expect(page.locator("body")).to_have_attribute("data-jp-theme-light", "true")


def contrast(*colours):
    def light(colour):
        parts = [float(p) / 255 for p in colour[colour.index("(") + 1:-1].split(",")[:3]]
        parts = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    dark, bright = sorted(map(light, colours))
    return (bright + 0.05) / (dark + 0.05)


KEEP = """() => {
  const rows = { t: { count: 2, columns: { x: [1, 2], y: 5 } } };
  const traits = { me: "one", rows, changed_rows: {} }, asked = [], heard = [];
  keepRows({ get: name => traits[name], on: (_, go) => heard.push(go), send: what => asked.push(what.do) });
  const tell = (number, table, whole) => {
    traits.changed_rows = { number, whole, tables: { t: table } };
    heard.forEach(go => go());
    return [unpacked(newestRows({ get: name => traits[name] }).t), asked.length];
  };
  return [tell(1, { count: 2, columns: { x: [1, 3] }, kept: true }, false), tell(3, { count: 2, columns: { y: 9 }, kept: true }, false),
          tell(4, { count: 1, columns: { x: 7, y: { values: ["a"], places: [0] } } }, true)];
}"""


REPLACE = """() => {
  let held = [{ x: 1, y: "a" }, { x: 2, y: "a" }], told = [];
  const changes = {
    insert(rows) { told.push(["insert", rows]); return this; },
    remove(rows) { told.push(["remove", rows]); return this; },
    modify(row, key, value) { told.push([held.indexOf(row), key, value]); },
  };
  const view = { data: () => held, changeset: () => changes, change: () => {} };
  const step = (count, columns, was) => { told = []; replaceRows(view, "t", { count, columns }, was); return told; };
  const was = { count: 2, columns: { x: [1, 2], y: "a" } };
  const two = { values: ["a", "b"], places: [0, 1] };
  return [step(2, { x: [1, 2], y: "a" }, was), step(2, { x: [1, 3], y: "a" }, was), step(2, { x: [1, 2], y: two }, was),
          step(3, { x: [1, 2, 4], y: "a" }, was), step(1, { x: [1], y: "a" }, was),
          step(2, { x: [1, 2], z: 5 }, was), step(1, { x: 7 }, undefined)];
}"""


def test_rows_change_value_by_value(page):
    page.goto("about:blank")
    page.add_script_tag(content=web("chart.js"))
    same, x, y, longer, shorter, other, new = page.evaluate(REPLACE)
    assert same == [], "nothing is told where nothing changed"
    none = [["insert", []], ["remove", []]]
    assert x == [*none, [1, "x", 3]]
    assert y == [*none, [1, "y", "b"]]
    assert longer == [["insert", [{"x": 4, "y": "a"}]], ["remove", []]]
    assert shorter == [["insert", []], ["remove", [{"x": 2, "y": "a"}]]]
    old = ["remove", [{"x": 1, "y": "a"}, {"x": 2, "y": "a"}]]
    assert other == [["insert", [{"x": 1, "z": 5}, {"x": 2, "z": 5}]], old], "no value of a column that is gone stays behind"
    assert new == [["insert", [{"x": 7}]], old]


def test_a_page_that_missed_a_change_asks_for_all_rows(page):
    page.goto("about:blank")
    page.add_script_tag(content=web("chart.js"))
    first, lost, whole = page.evaluate(KEEP)
    assert first == [[{"x": 1, "y": 5}, {"x": 3, "y": 5}], 0]
    assert lost == [first[0], 1], "what is not understood changes nothing"
    assert whole == [[{"x": 7, "y": "a"}], 1]
