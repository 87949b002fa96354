"""Every notebook runs, and every control of it, moved by mouse and by keyboard, shows what kvlib answers."""
import pytest
from playwright.sync_api import expect

from .contrast import DARK, unreadable
from .walk import NOTEBOOKS, PLACES, Seen, move_by_keyboard, move_by_mouse, panels_of

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def exceptions_are_raised(monkeypatch):
    """A mistake in a panel's own code fails the test; on the page it would be a red sentence."""
    monkeypatch.setenv("KVLIB_STRICT", "1")


def own_card(book, place):
    return book.output(place.cell).locator(".kv-card").first


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_runs_without_an_error_and_shows_its_panels(book, name):
    assert book.errors() == []
    moved = book.page.evaluate("""() => [...document.querySelectorAll(".jp-Notebook .jp-Cell")].flatMap((cell, number) =>
        cell.querySelector(".kv-card .kv-field") ? [number] : [])""")
    assert moved == [place.cell for place in panels_of(name)], "a panel came onto the page that panels_of() does not find"


@pytest.mark.parametrize("name, place", [(place.notebook, place) for place in PLACES], ids=map(str, PLACES))
def test_each_input_by_mouse_and_by_keyboard(book, place):
    seen = Seen(own_card(book, place), place.twin())
    seen.settle()
    for field in seen.twin.inputs:
        for move in (move_by_mouse, move_by_keyboard):
            try:
                move(seen, field)
            except AssertionError as problem:
                raise AssertionError(f"{field.name}, {move.__name__}: {problem}") from problem
        seen.settle()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_each_question_takes_a_guess(book):
    for ask in book.page.locator(".jp-Notebook .kv-predict:visible").all():
        verdict = ask.locator(".kv-verdict")
        ask.get_by_role("button", name="Record my guess").focus()
        options = ask.get_by_role("radio")
        if options.count():
            options.last.check()
        else:
            ask.get_by_label("My guess").fill("17")
        ask.get_by_role("button", name="Record my guess").click()
        expect(verdict).to_contain_text("You said ")
    for ink_and_ground in (None, DARK):
        assert unreadable(book.page.locator(".jp-Notebook"), ink_and_ground)[1] == [], "with the guesses in the pictures"


def test_every_panel_stands_in_a_notebook():
    import importlib
    import pkgutil
    import kvlib.panels
    from kvlib.controls import Panel
    kinds = set()
    for info in pkgutil.iter_modules(kvlib.panels.__path__):
        module = importlib.import_module("kvlib.panels." + info.name)
        kinds |= {name for name, kind in vars(module).items()
                  if isinstance(kind, type) and issubclass(kind, Panel) and kind.__module__ == module.__name__}
    assert kinds == {place.kind for place in PLACES}
