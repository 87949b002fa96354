"""The site in a browser, opened from a folder with the network cut: twins against kvlib's own figures, search, themes.

``KV_SITE`` names a site that is built already; else one is built, which takes a minute or two.
"""
import os
import random
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import expect

import run
from kvlib.controls import forget
from kvlib.live import clean_rows, packed
from kvlib.website import teaching
from kvlib.website.lessons import names
from kvlib.website.offered import TWINS
from tests.test_site import BY_NAME, shown_by_the_panel

pytestmark = pytest.mark.browser
SETTINGS = 200
PAGES = [*names(), *teaching.papers(), *teaching.solutions(), "index", "note-gb10", "note-hybrid", "note-sweep", "api"]
AXE = str(files("axe_playwright_python") / "axe.min.js")
VIOLATIONS = """async () => (await axe.run({ preload: false })).violations
  .filter(({ impact }) => ["serious", "critical"].includes(impact))
  .map(({ id, nodes }) => [id, nodes.slice(0, 3).map((node) => node.target.join(" ") + ": " + node.failureSummary)])"""

# Sets the inputs of a card as a reader would, by their own elements, and says what it then shows.
DRIVE = """async ({ name, settings }) => {
  const card = document.querySelector(`[data-twin="${name}"] .kv-card`);
  const model = kvlibTwins.made[name];
  const plain = document.createElement("div");
  const norm = (html) => { plain.innerHTML = html; return plain.innerHTML; };
  const named = (label) => [...card.querySelectorAll(".kv-field")].find((field) =>
    (field.querySelector("legend, label")?.textContent ?? "").trim() === label);
  const put = (label, text) => {
    const field = named(label), radios = [...field.querySelectorAll("input[type=radio]")];
    const box = field.querySelector("input[type=text], select"), tick = field.querySelector("input[type=checkbox]");
    if (radios.length) radios.find((radio) => radio.value === text).click();
    else if (tick) { if (tick.checked !== (text === "on")) tick.click(); }
    else { box.value = text; box.dispatchEvent(new Event("change", { bubbles: true })); }
  };
  const wrong = [];
  for (const { inputs, shown, rows } of settings) {
    for (const [label, text] of inputs) put(label, text);
    await null;   // pictures and their words follow the traits
    const error = card.querySelector(".kv-error").textContent;
    if (shown.error || error) {
      if (error !== shown.error) wrong.push([inputs, "error", error, shown.error]);
      continue;
    }
    const seen = { answer: card.querySelector(".kv-answer").innerHTML, note: card.querySelector(".kv-note").innerHTML,
      table: card.querySelector(".kv-result").innerHTML };
    for (const [part, html] of Object.entries(seen)) if (html !== norm(shown[part])) wrong.push([inputs, part, html, shown[part]]);
    const words = [...card.querySelectorAll(".kv-picture")].map((node) => node.getAttribute("aria-label"));
    if (JSON.stringify(words) !== JSON.stringify(shown.descriptions)) wrong.push([inputs, "description", words, shown.descriptions]);
    const sorted = (table) => Object.entries(table).sort(([a], [b]) => a.localeCompare(b));
    if (JSON.stringify(sorted(model.get("rows"))) !== JSON.stringify(sorted(rows))) wrong.push([inputs, "rows"]);
  }
  return wrong;
}"""

UNNAMED = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary")].filter((node) => {
  if (node.closest("[hidden]")) return false;
  const words = (node.getAttribute("aria-label") ?? "") + node.textContent + (node.title ?? "")
    + [...(node.labels ?? [])].map((label) => label.textContent).join("");
  return !words.trim();
}).map((node) => node.outerHTML.slice(0, 120))"""
SKIPPED = """() => { const found = []; let last = 0;
  for (const node of document.querySelectorAll("main :is(h1, h2, h3, h4)")) {
    const level = Number(node.tagName[1]);
    if (level > last + 1) found.push(node.textContent);
    last = level;
  } return found; }"""
# The least contrast of text on its ground, over the words of a page (WCAG's own formula).
CONTRAST = """() => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => { paint.clearRect(0, 0, 1, 1); paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1); return [...paint.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] / 255 + under[i] * (1 - top[3] / 255));
  const ground = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.unshift(rgba(getComputedStyle(at).backgroundColor));
    return layers.reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const found = {};
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || node.closest("svg, .anchor, [disabled], .unseen, .kv-unseen, .skip, option, script, style")) continue;
    const style = getComputedStyle(node), under = ground(node);
    const [a, b] = [light(over(rgba(style.color), under)), light(under)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found[node.className || node.tagName] = `${ratio.toFixed(2)}: ${walk.currentNode.textContent.trim().slice(0, 40)}`;
  }
  return found;
}"""


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    if os.environ.get("KV_SITE"):
        return Path(os.environ["KV_SITE"]).resolve()
    folder = tmp_path_factory.mktemp("site") / "_site"
    subprocess.run([sys.executable, "-m", "kvlib.website", str(folder)], cwd=run.ROOT, check=True)
    return folder


def opened(browser, site, name, **options):
    """A page of the folder, in a context without network; what it asks for beyond the folder is kept."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "locale": "en-US", "offline": True} | options)
    page = context.new_page()
    page.outside, page.trouble = [], []
    home = site.as_uri() + "/"
    page.on("request", lambda request: None if request.url.startswith((home, "data:", "blob:")) else page.outside.append(request.url))
    page.on("pageerror", lambda error: page.trouble.append(str(error)))
    page.on("console", lambda message: page.trouble.append(message.text) if message.type in ("error", "warning") else None)
    page.goto(home + name)
    return page


@pytest.fixture
def visit(browser, site):
    pages = []

    def go(name, **options):
        pages.append(opened(browser, site, name, **options))
        return pages[-1]

    yield go
    for page in pages:
        assert page.outside == [], "the page asked for something outside its folder"
        assert page.trouble == [], "a script on the page failed"
        page.context.close()


def ending(text):
    return re.compile(re.escape(text) + "$")


def ready(page, twin):
    """Scroll to the twin and wait until it moves."""
    box = page.locator(f'[data-twin="{twin.key}"]')
    box.scroll_into_view_if_needed()
    expect(page.locator(f'[data-twin="{twin.key}"][data-ready]')).to_have_count(1, timeout=30_000)
    return box


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_a_twin_shows_what_kvlib_says(visit, twin):
    page = visit(f"{twin.notebook}.html")
    ready(page, twin)
    everything = list(twin.settings())
    panel, settings = twin.kind(), []
    labels = {field.name: field.label for field in panel.inputs}
    texts = {field.name: field.text for field in panel.inputs}
    for values in random.Random(8).sample(everything, min(SETTINGS, len(everything))):
        shown = shown_by_the_panel(twin, values)
        rows = {} if "error" in shown else packed(clean_rows(twin.kind().view.rows))
        settings.append({"inputs": [[labels[name], texts[name](value)] for name, value in values.items()], "shown": shown, "rows": rows})
    forget(twin.key)
    wrong = page.evaluate(DRIVE, {"name": twin.key, "settings": settings})
    assert wrong == [], f"{len(wrong)} of {len(settings)} settings differ"
    expect(page.locator(f'[data-twin="{twin.key}"] .kv-picture svg').first).to_be_visible()


def test_a_reader_with_a_keyboard(visit):
    twin = BY_NAME["FirstLine"]
    page = visit("00_start_here.html")
    box = ready(page, twin)
    card = box.locator(".kv-card")
    length = card.get_by_label("Longest request", exact=True)
    expect(card.locator(".kv-answer")).to_contain_text("16.64 requests of 40,960 tokens")
    length.fill("8192")
    length.press("Enter")
    expect(card).to_contain_text("Maximum concurrency for 8,192 tokens per request: 83.20x")   # the note's second launch
    expect(card.locator(".kv-picture svg")).to_contain_text("Worst case: 83.20 requests")
    card.get_by_label("Longest request, slider").press("ArrowRight")
    expect(length).to_have_value("8,704")
    length.fill("8200")
    length.press("Enter")
    expect(card.locator(".kv-error")).to_contain_text("this page has 256 stops from 1,024 to 131,072 tokens; the notebook takes any value"
                                                      .replace("256", str(twin.count())))
    expect(length).to_have_attribute("aria-invalid", "true")
    card.get_by_label("My guess").fill("20")
    card.get_by_role("button", name="Record my guess").click()
    expect(card.locator(".kv-verdict")).to_contain_text("You said 20 requests. It is 83.2 requests.")
    expect(card.locator(".kv-verdict")).to_contain_text("Only the notebook draws your guess")
    card.get_by_role("button", name="Reset").click()
    expect(length).to_have_value("40,960")
    expect(card.locator(".kv-verdict")).to_be_empty()
    box.locator(".twin-says summary").click()
    expect(box).to_contain_text("The notebook adds every length in between")


def test_the_three_suggestions_of_the_calculator(visit):
    page = visit("02_memory_budget.html")
    card = ready(page, BY_NAME["Calculator"]).locator(".kv-card")
    card.get_by_label("2 · FP8 cache").check()
    expect(card.get_by_label("FP8", exact=True)).to_be_checked()
    card.get_by_label("3 · gpt-oss-120b").check()
    expect(card.get_by_label("Model")).to_have_value("gpt-oss-120b")
    expect(card.get_by_label("assumed band")).to_be_checked()
    card.get_by_label("Model").select_option("Llama-3.1-8B")
    expect(card.get_by_label("my own")).to_be_checked()


@pytest.mark.parametrize("name", PAGES)
def test_each_page_is_in_order(visit, name):
    """Offline, no script fails, every control has a name, no heading level is skipped, words can be read in both themes,
    axe finds nothing serious, and on a telephone nothing but tables scrolls sideways."""
    page = visit(f"{name}.html", viewport={"width": 390, "height": 844})
    for box in page.locator("[data-twin]").all():
        box.scroll_into_view_if_needed()
        box.locator(".kv-card").wait_for(timeout=30_000)
    assert page.evaluate(UNNAMED) == []
    assert page.evaluate(SKIPPED) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.evaluate("document.querySelectorAll('main details').forEach((node) => { node.open = true; })")
    page.wait_for_timeout(400)     # what opened is measured
    page.add_script_tag(path=AXE)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(300)     # colours fade
        assert page.evaluate(CONTRAST) == {}, scheme
        assert page.evaluate(VIOLATIONS) == [], scheme


def test_paper_is_white_from_a_dark_screen(visit):
    page = visit("00_start_here.html", color_scheme="dark", viewport={"width": 720, "height": 1000})
    card = ready(page, BY_NAME["FirstLine"]).locator(".kv-card")
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_timeout(300)
    assert page.evaluate(CONTRAST) == {}
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert card.evaluate("node => getComputedStyle(node).backgroundColor") in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    for gone in (".bar", ".side", ".code", ".steps"):
        expect(page.locator(gone).first).to_be_hidden()


@pytest.mark.parametrize("name", ["index", "00_start_here"])
def test_a_slow_processor_has_it_ready_within_a_second(browser, site, name):
    """The page's own thread may work a quarter of a second until a click is answered, which is a second on a processor
    four times slower; counted as processor time, so that other programs do not matter."""
    spent = []
    for _ in range(3):
        with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
            page = context.new_page()
            counter = context.new_cdp_session(page)
            counter.send("Performance.enable", {"timeDomain": "threadTicks"})
            page.add_init_script("""(() => { const look = () => {
                const button = document.getElementById("theme"), said = button?.textContent;
                if (button && !button.hidden) { button.click(); if (button.textContent !== said) { globalThis.answered = true; return; } }
                setTimeout(look, 5); }; look(); })()""")
            page.goto((site / f"{name}.html").as_uri(), wait_until="commit")
            page.wait_for_function("globalThis.answered")
            spent.append(next(each["value"] for each in counter.send("Performance.getMetrics")["metrics"] if each["name"] == "TaskDuration"))
    print(name, [round(1000 * each) for each in spent], "ms")
    assert min(spent) < 0.25


def test_search_leads_to_the_place(visit):
    page = visit("index.html")
    page.keyboard.press("/")
    page.keyboard.type("not a limit")
    first = page.locator("#found a").first
    expect(first).to_contain_text("Why 16.64x is not a limit")
    expect(page.locator("#found-count")).to_contain_text("place")
    first.click()
    expect(page).to_have_url(ending("00_start_here.html#Why-16.64x-is-not-a-limit"))
    page.get_by_role("searchbox").fill("zzzz")
    expect(page.locator("#found")).to_contain_text("Nothing found")


def test_a_chosen_theme_stays(visit):
    page = visit("index.html", color_scheme="light")
    page.get_by_role("button", name="Change between light and dark").click()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground != "rgb(255, 255, 255)"
    page.get_by_role("link", name="Keep the score").first.click()
    expect(page).to_have_url(ending("90_scoreboard.html"))
    expect(page.locator("body")).to_have_css("background-color", ground)


def test_from_page_to_page(visit):
    page = visit("index.html")
    for name in names():
        page.locator(".steps a[rel=next]").click()
        expect(page).to_have_url(ending(f"{name}.html"))
    page.locator(".steps a[rel=prev]").click()
    expect(page).to_have_url(ending(f"{names()[-2]}.html"))


def test_a_row_of_a_note_leads_to_its_cell(visit):
    page = visit("note-gb10.html")
    page.locator("#A10 a").click()
    expect(page).to_have_url(ending("02_memory_budget.html#a10-calculator"))
    expect(page.locator("#a10-calculator")).to_be_in_viewport()


def test_without_scripts_the_page_still_tells(visit):
    page = visit("00_start_here.html", java_script_enabled=False)
    expect(page.get_by_text("16.64").first).to_be_visible()
    expect(page.locator("#first-line img")).to_be_visible()
    expect(page.locator("math").first).to_be_visible()


def test_no_page_carries_more_than_a_megabyte_of_tables(site):
    for name in names():
        sizes = [(site / "twins" / f"{twin.key}.js").stat().st_size for twin in TWINS if twin.notebook == name]
        assert sum(sizes) < 1e6
