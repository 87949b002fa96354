"""The exercises in the site's pages, opened from a folder with the network cut: each check, the hints, and the 90-minute plan."""
import re

import nbformat
import pytest
from playwright.sync_api import expect

from kvlib.website.checks import number_of
from kvlib.website.lessons import NOTEBOOKS, names
from kvlib.workshop import check, ninety, register
from tests.browser.test_site import ready, site, visit  # noqa: F401  (fixtures)
from tests.test_site import BY_NAME
from tests.test_workshop import ANSWERS

pytestmark = pytest.mark.browser
NONSENSE = ("hello", "<b>12</b> parsecs", "???")


def asked_in(name):
    """The exercises of a notebook, in its order."""
    cells = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells
    return [number for cell in cells if (number := number_of(cell.id))]


WITH_EXERCISES = [name for name in names() if asked_in(name)]


def form_of(page, number):
    return page.locator(f'form.check[data-check="{number}"]')


def answer(page, number, text):
    """Type an answer and press Check; the sentence said, without its sign."""
    form = form_of(page, number)
    form.get_by_label("Your answer").fill(text)
    form.get_by_role("button", name="Check", exact=True).click()
    said = form.locator(".check-said")
    expect(said).to_have_text(re.compile(r"^[✓✗…] "))
    return said.text_content()[2:]


def test_every_exercise_stands_on_a_page():
    assert {number for name in WITH_EXERCISES for number in asked_in(name)} == set(register())


@pytest.mark.parametrize("name", WITH_EXERCISES)
def test_each_check_says_what_the_notebook_says(visit, name):  # noqa: F811
    page = visit(f"{name}.html")
    for number in asked_in(name):
        right, wrong = ANSWERS[number]
        rights = right[:2] or [register()[number].right]
        for text in map(str, [*(slip for slip, _ in wrong[:3]), *NONSENSE, *rights]):
            said = answer(page, number, text)
            assert said == check(number, text).text, (number, text)
        form = form_of(page, number)
        expect(form.locator(".check-said")).to_have_attribute("data-state", "right")
        for step, words in enumerate(register()[number].about.hints, 1):
            form.get_by_role("button", name=f"Hint {step}").click()
            expect(form.locator(".check-said")).to_have_text(f"? Hint {step} of 2: {words}")


def test_enter_checks_and_a_blank_is_told_what_to_do(visit):  # noqa: F811
    page = visit("workshop_90.html")
    box = form_of(page, "01.1").get_by_label("Your answer")
    box.press("Enter")
    expect(form_of(page, "01.1").locator(".check-said")).to_have_text("… Type your answer, then press Check.")
    box.fill("94 * 4 * 128 * 2 * 2")
    box.press("Enter")
    expect(form_of(page, "01.1").locator(".check-said")).to_have_text(re.compile("Right: 192,512 B"))
    assert page.url.endswith("workshop_90.html")


def test_no_answer_stands_in_the_page_in_plain(site):  # noqa: F811
    """Nor in what it fetches for its checks; the lesson around an exercise may of course say what it teaches."""
    text = (site / "workshop_90.html").read_text("utf-8") + (site / "assets" / "checks.js").read_text("utf-8")
    for number in (about.number for about in ninety()):
        right = register()[number].right
        shown = [right] if isinstance(right, str) else [f"{right:,}", f"{right}"]
        assert number == "01.2" or not any(each and each in text for each in shown), number   # 01.2 asks for a word of its text


def test_without_scripts_the_page_says_so(visit):  # noqa: F811
    page = visit("workshop_90.html", java_script_enabled=False)
    expect(page.get_by_text("With scripts on, an answer can be checked here.").first).to_be_visible()
    expect(page.locator("form.check").first).to_be_hidden()


def rows_of_the_clock(page):
    """(time, page linked, words) of each row."""
    for row in page.locator("#clock tbody tr").all():
        clock, where, what = row.locator("td").all()
        link = where.locator("a")
        yield clock.text_content(), link.get_attribute("href") if link.count() else None, f"{where.text_content()}: {what.text_content()}"


CONTROLS = {"00_start_here.html": ["FirstLine"], "02_memory_budget.html": ["Calculator"], "03_blocks_and_tokens.html": ["PageAndBlock"]}
SECTIONS = {"01_bytes_per_token.html": ["1", "2", "3", "4"], "02_memory_budget.html": ["1", "2", "4"]}


def test_the_ninety_minutes_from_a_stick(visit):  # noqa: F811
    """Every row of the clock: the lesson opens beside the page, its sections are there, its controls move; each exercise is
    answered wrong, helped, and answered right; the end counts six."""
    page = visit("index.html")
    page.locator(".side a", has_text="Size a cache in ninety minutes").click()
    answered, lesson = [], None
    for clock, href, words in list(rows_of_the_clock(page)):
        if href:
            lesson = visit(href)
            expect(lesson.locator("h1")).to_be_visible()
            heads = lesson.locator("main h2").all_text_contents()
            for section in SECTIONS.get(href, []):
                assert any(head.startswith(section) for head in heads), (href, section, heads)
            for control in CONTROLS.get(href, []):
                card = ready(lesson, BY_NAME[control]).locator(".kv-card")
                before = card.locator(".kv-answer").inner_html() + card.locator(".kv-result").inner_html()
                moved = card.locator("input[type=range]").first
                if moved.count():
                    moved.press("ArrowRight")
                else:
                    card.locator("select").first.select_option(index=1)
                expect(card.locator(".kv-error")).to_be_empty()
                assert card.locator(".kv-answer").inner_html() + card.locator(".kv-result").inner_html() != before, clock
        numbers = re.findall(r"\d\d\.\d", words) or (["capstone"] if "capstone" in words else [])
        for number in numbers:
            right, wrong = ANSWERS[number]
            assert answer(page, number, str(wrong[0][0])).startswith("Not yet: ")
            form_of(page, number).get_by_role("button", name="Hint 1").click()
            assert answer(page, number, str(right[0])).startswith("Right: ")
            answered.append(number)
    assert sorted(answered) == sorted(about.number for about in ninety())
    expect(page.locator("#progress")).to_contain_text("6 of 6 right on this page")
