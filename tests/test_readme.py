"""README.md and the first notebook's tables: what they promise exists, runs, and takes the minutes they say."""
import contextlib
import io
import json
import re
from pathlib import Path

import pytest

import run

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def text(path):
    return "\n\n".join("".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "markdown")


def minutes(path):
    """(reading, exercises) of a notebook's card."""
    found = [int(n) for n in re.findall(r"\d+", re.search(r"\*\*Time\*\*(.*)", "".join(cells(path)[0]["source"]))[1])]
    return (*found, 0)[:2]


START = text(ROOT / "notebooks" / "00_start_here.ipynb")


def test_the_python_of_the_readme_prints_what_stands_there():
    """Each block of Python, run; the block of text after it is its output."""
    blocks = re.findall(r"```python\n(.*?)```\s*```text\n(.*?)```", README, re.S)
    assert blocks
    for code, wanted in blocks:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, "README.md", "exec"), {})  # noqa: S102
        assert said.getvalue() == wanted


def test_every_command_is_named_and_exists():
    named = set(re.findall(r"python run\.py ([a-z-]+)", README))
    assert named - set(run.CLASSROOM) == set(run.COMMANDS)


@pytest.mark.parametrize("name, page, folder", [("README", README, ROOT), ("00", START, ROOT / "notebooks")], ids=["README", "00"])
def test_every_link_leads_somewhere(name, page, folder):
    for target in re.findall(r"\]\(([^)\s]+)\)", page):
        path, _, part = target.partition("#")
        assert not path.startswith("http"), "nothing here needs the network"
        assert (folder / path).exists(), target
        if part:
            where = text(folder / path) if path else page
            headings = {re.sub(r"\s", "-", h.strip()) for h in re.findall(r"^#+ (.*)", where, re.M)}
            assert part in headings | {h.lower() for h in headings}, target


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem[:2])
def test_every_notebook_is_listed_with_its_minutes(path):
    reading, exercises = minutes(path)
    told = f"{reading} + {exercises}" if exercises else f"{reading}"
    assert re.search(rf"^\| \[[^]]*\]\(notebooks/{path.name}\) \|.*\| {re.escape(told)} \|$", README, re.M), told
    assert re.search(rf"^\| \[[^]]*\]\({path.name}\) \|.*\| {reading + exercises} \|$", START, re.M), reading + exercises
    title = re.search(r"^# (.*)", "".join(cells(path)[0]["source"]), re.M)[1].strip()
    for page in (README, START):
        (link,) = set(re.findall(rf"^\| \[([^]]*)\]\((?:notebooks/)?{path.name}\)", page, re.M))
        assert title.startswith(link)


def test_the_routes_add_up():
    rows = re.findall(r"^\| \[[^]]*\]\(\d\d_[^)]*\) \| (\d*) \| (\d*) \| (\d+) \|$", START, re.M)
    assert len(rows) == len(NOTEBOOKS)
    together = re.search(r"^\| Together \| (\d+) \| (\d+) \| (\d+) \|$", START, re.M).groups()
    assert [sum(int(n or 0) for n in column) for column in zip(*rows)] == [int(n) for n in together]
    assert together[:2] == ("45", "90")


def test_what_is_still_to_come_is_not_there_yet():
    for page in (README, START):
        coming = re.search(r"Still to come: (.*)", page)
        for number in re.findall(r"\b(\d\d) ", coming[1]) if coming else ():
            assert not list((ROOT / "notebooks").glob(f"{number}_*.ipynb")), number


def test_the_minutes_of_the_doors():
    first = next(path for path in NOTEBOOKS if path.name.startswith("01"))
    for page in (README, START):
        assert f"| {sum(minutes(first))} for the first |" in page


def test_the_cases_are_counted():
    import gzip
    with gzip.open(ROOT / "data" / "oracle" / "cases.jsonl.gz", "rt") as file:
        count = sum(1 for line in file if line.strip())
    assert f"**{count} of {count}**" in README


def test_the_picture_is_small():
    (name,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    assert (ROOT / name).stat().st_size < 120 * 1024
