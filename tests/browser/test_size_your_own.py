"""The panel of notebook 06 in a real JupyterLab: boxes, chips, a dropped file, what is taken along, a reload."""
import json

import pytest
from playwright.sync_api import expect

from kvlib import catalog
from kvlib.fit import fit

from .lab import open_notebook

pytestmark = pytest.mark.browser

NAME = "06_size_your_own.ipynb"
EIGHT = {key: value for key, value in catalog.model_config("Qwen3-8B").items() if key != "_source"}
DROP = """([box, name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  box.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


@pytest.fixture
def opened(lab, page):
    notebook = open_notebook(page, lab, NAME)
    notebook.run_all()
    assert notebook.errors() == []
    return notebook


@pytest.fixture
def card(opened, page):
    found = page.locator(".kv-card", has_text="Will it fit?").first
    expect(found.locator("svg.marks").first).to_be_visible()
    return found


def button(card, name):
    return card.get_by_role("button", name=name, exact=True)


def drop(card, label, name, text):
    box = card.get_by_label(label)
    box.evaluate(f"(box, [name, text]) => ({DROP})([box, name, text])", [name, text])


def test_verdict_and_first_remedy_stand_without_scrolling(card, page):
    page.set_viewport_size({"width": 1280, "height": 800})
    card.evaluate("card => card.scrollIntoView({ block: 'start' })")
    for part in (card.locator(".kv-answer"), card.locator(".kv-chips button").first):
        expect(part).to_be_in_viewport(ratio=1)


def test_chip_control_and_command_go_together_and_undo_takes_back(card):
    command = card.get_by_label("2 · Command")
    before = command.input_value()
    button(card, "tensor_parallel_size 4").click()
    expect(command).to_have_value(before + " --tensor-parallel-size 4")
    expect(card.get_by_label("GPUs (TP)", exact=True)).to_have_value("4")
    found = fit("Qwen3-30B-A3B", command.input_value(), gpu="RTX 4090")
    expect(card.locator(".kv-answer")).to_contain_text(
        f"{found.say(found.low.max_concurrency, found.high.max_concurrency)} requests of 32,768 at once")
    slider = card.get_by_label("Longest request, slider")
    slider.focus()
    slider.press("ArrowLeft")
    expect(command).to_have_value("vllm serve Qwen/Qwen3-30B-A3B --max-model-len 16384 --tensor-parallel-size 4")
    button(card, "Undo: tensor_parallel_size 4").click()
    expect(card.get_by_label("GPUs (TP)", exact=True)).to_have_value("1")


def test_files_are_dropped_and_a_wrong_one_is_named(card):
    drop(card, "1 · Model", "config.json", json.dumps(EIGHT, indent=2))
    expect(card.locator(".kv-answer")).to_contain_text("Too close to call")
    drop(card, "1 · Model", "tokenizer_config.json", '{"tokenizer_class": "Qwen2Tokenizer"}')
    expect(card.get_by_role("alert")).to_contain_text("tokenizer")
    expect(card.get_by_label("2 · Command")).to_have_value("vllm serve Qwen/Qwen3-30B-A3B --max-model-len 32768")
    drop(card, "1 · Model", "config.json", json.dumps(EIGHT))
    expect(card.get_by_role("alert")).to_have_text("")
    drop(card, "3 · Start-up log", "server.log", "INFO Available KV cache memory: 4.87 GiB\n")
    expect(card.locator(".kv-answer")).to_contain_text("35,424 to 35,488 tokens")


def test_what_is_taken_along(card, page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button(card, "Copy the command").click()
    expect(card.locator(".kv-told")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == "vllm serve Qwen/Qwen3-30B-A3B --max-model-len 32768"
    with page.expect_download() as download:
        button(card, "Save the set-up").click()
    saved = download.value.path().read_text("utf-8")
    card.get_by_label("GPU", exact=True).select_option("L4")
    drop(card, "1 · Model", "saved.json", saved)
    expect(card.get_by_label("GPU", exact=True)).to_have_value("RTX 4090")
    expect(card.get_by_label("1 · Model")).to_have_value("Qwen3-30B-A3B")


def test_without_a_clipboard_the_text_is_shown(card, page):
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")   # as on plain http
    button(card, "Copy the command").click()
    expect(card.get_by_label("The text, to be copied by hand")).to_have_value("vllm serve Qwen/Qwen3-30B-A3B --max-model-len 32768")


def test_a_reload_keeps_what_was_typed(opened, card, page):
    box = card.get_by_label("2 · Command")
    box.fill("vllm serve Qwen/Qwen3-30B-A3B --max-model-len 8192 --port 7")
    box.press("Tab")
    expect(card.get_by_label("Longest request", exact=True)).to_have_value("8,192")
    opened.save_and_reload("Will it fit?")
    again = page.locator(".kv-card", has_text="Will it fit?").first
    expect(again.get_by_label("2 · Command")).to_have_value("vllm serve Qwen/Qwen3-30B-A3B --max-model-len 8192 --port 7", timeout=60_000)
