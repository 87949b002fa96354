"""Build the site: lessons, notes, the API, twins, search. Everything it needs lies in its folder."""

from __future__ import annotations

import html
import json
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader

from kvlib.live import vega_bundle, web
from kvlib.website import api, checks, links, notes, teaching
from kvlib.website.lessons import Lessons, names, words_of
from kvlib.website.offered import TWINS
from kvlib.website.twins import precompute, script

HERE = Path(__file__).resolve().parent
ASSETS = HERE / "assets"
TEACHERS = "For teachers"    # folded, since it holds the answers
FOOTER = "Made from the stored notebooks; run them in JupyterLab to change any cell."


class Entry(NamedTuple):
    """A page as navigation names it."""

    href: str
    title: str


class Page(NamedTuple):
    entry: Entry
    body: str
    headings: list            # (level, id, words)
    found: list               # (id of the heading, text) for the search
    twins: bool = False
    short: str = ""           # what navigation calls it, where that is not its title
    notebook: str = ""        # the file it was made from


def lesson_pages(folder: Path, only=()) -> list[Page]:
    """The notebooks as pages."""
    twins = {(twin.notebook, twin.name): twin for twin in TWINS}
    known = [name for name in names() if not only or name.startswith(tuple(only))]
    exporter, out = Lessons(folder, twins, notes.sources(), [*known, *teaching.papers(), *teaching.solutions()]), []
    for name in known:
        body, headings, found = exporter.body(name)
        out.append(Page(Entry(f"{name}.html", title_of(headings)), body, headings, found, "data-twin=" in body, notebook=f"notebooks/{name}.ipynb"))
    return out


def teaching_pages(folder: Path, lessons: list[Page]) -> tuple[list[Page], list[Page]]:
    """(pages for every reader, pages for a teacher)."""
    known = [page.entry.href.removesuffix(".html") for page in lessons] + teaching.papers() + teaching.solutions()
    exporter, made = Lessons(folder, {}, {}, known), {}
    for name in teaching.papers():
        made[name] = teaching.paper(folder, name, known)
    for name in teaching.solutions():
        made[name] = exporter.body(name, teaching.SOLUTIONS)
    answers = {*teaching.solutions(), "quiz_answers"}      # a learner's search does not turn them up
    pages = {name: Page(Entry(f"{name}.html", title_of(headings)), body, headings, [] if name in answers else found)
             for name, (body, headings, found) in made.items()}
    shared = [pages.pop(name) for name in teaching.FOR_ALL if name in pages]
    return shared, list(pages.values())


def title_of(headings: list) -> str:
    return next(words for level, _, words in headings if level == 1)


def note_pages(lessons: list[Page]) -> list[Page]:
    titles = {page.entry.href.removesuffix(".html"): page.entry.title for page in lessons}
    out = []
    for note in notes.NOTES:
        found = [(row["id"], f"{row['id']} {row['what']} {row['printed']} {row['unit']}") for row in notes.rows(note)]
        out.append(Page(Entry(f"{note.page}.html", note.title), notes.body(note, titles), [], found))
    return out


def home(lessons: list[Page]) -> Page:
    """The first page: what this is, and the lessons with what each enables one to do."""
    items = []
    for page in lessons:
        able = next((text for _, text in page.found if "You will be able to" in text), "")
        able = able.partition("You will be able to")[2].partition("You need")[0].strip()
        said = f"<span>{html.escape(able[:1].upper() + able[1:])}</span>" if able else ""
        items.append(f'<li><a href="{page.entry.href}">{html.escape(page.entry.title)}</a>{said}</li>')
    body = (HERE / "templates" / "home.html").read_text("utf-8").replace("LESSONS", "\n".join(items))
    return Page(Entry("index.html", "How big is a vLLM server’s KV cache?"), body, [], [("", words_of(body))], short="Overview")


def write_frame(folder: Path, page: Page, groups: list, order: list[Page]) -> None:
    """A page in its frame, between the one before and the one after."""
    frame = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=False, trim_blocks=True, keep_trailing_newline=True)
    place = order.index(page)
    nav = [(heading, [Entry(p.entry.href, html.escape(p.short or p.entry.title)) for p in pages],
            page not in pages if heading == TEACHERS else None) for heading, pages in groups]

    def beside(step):
        return order[place + step].entry if 0 <= place + step < len(order) else None

    text = frame.get_template("frame.html.j2").render(
        title=html.escape(page.entry.title), body=page.body, href=page.entry.href, nav=nav, footer=FOOTER, twins=page.twins, notebook=page.notebook,
        headings=[(html.escape(at, quote=True), html.escape(words)) for level, at, words in page.headings if level == 2],
        before=beside(-1), after=beside(1), theme_script=(ASSETS / "theme.js").read_text("utf-8"))
    (folder / page.entry.href).write_text(text, "utf-8")


def write_assets(folder: Path, pages: list[Page]) -> None:
    """Style and scripts; Vega and the card of the controls as plain scripts, since a folder's modules do not load."""
    assets = folder / "assets"
    assets.mkdir(exist_ok=True)
    style = "".join((ASSETS / name).read_text("utf-8") for name in ("site.css", "check.css"))
    (assets / "site.css").write_text(style + web("card.css"), "utf-8")
    for name in ("site.js", "check.js"):
        shutil.copyfile(ASSETS / name, assets / name)
    (assets / "checks.js").write_text(checks.script(), "utf-8")
    card = web("chart.js", "fields.js", "card.js").replace("export default", "return")
    (assets / "twin.js").write_text(f"globalThis.kvlibCard = (() => {{\n{card}}})();\n" + (ASSETS / "twin.js").read_text("utf-8"), "utf-8")
    (assets / "vega.js").write_text(f"(() => {{\n{vega_bundle()}}})();\n", "utf-8")
    (assets / "search.js").write_text(f"kvlibSearch = {json.dumps(search_index(pages), ensure_ascii=False, separators=(',', ':'))};\n", "utf-8")


def search_index(pages: list[Page]) -> list[dict]:
    """What can be searched: the text under each heading, with its page."""
    out = []
    for page in pages:
        heads, texts = {at: words for _, at, words in page.headings}, {}
        for at, text in page.found:
            texts.setdefault(at, []).append(text)
        for at, parts in texts.items():
            heading = heads.get(at, "")
            text = " ".join(parts)
            out.append({"page": page.entry.href, "title": page.entry.title, "place": at, "heading": heading,
                        "text": text.removeprefix(heading + " #").strip()})
    return out


def write_twin(folder: Path, number: int) -> str:
    """One twin's table; by number, so that it can be made in a process of its own."""
    twin = TWINS[number]
    text = script(precompute(twin))
    (folder / "twins" / f"{twin.key}.js").write_text(text, "utf-8")
    return f"{twin.name}: {twin.count():,} settings, {len(text) / 1000:.0f} kB"


def write_twins(folder: Path, numbers) -> list[str]:
    (folder / "twins").mkdir(exist_ok=True)
    numbers = sorted(numbers, key=lambda number: -TWINS[number].count())
    with ProcessPoolExecutor(2) as workers:
        return list(workers.map(write_twin, [folder] * len(numbers), numbers))


def build(folder: Path, only=(), twins: bool = True) -> list[Page]:
    """The site in ``folder``, made anew; ``only`` keeps the lessons that begin with one of the texts."""
    if folder.exists():
        if any(folder.iterdir()) and not (folder / "assets" / "site.css").exists():
            raise SystemExit(f"{folder} holds something else than a site; name another folder or empty it.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    lessons = lesson_pages(folder, only)
    others, first = note_pages(lessons), home(lessons)
    reference = Page(Entry("api.html", "What kvlib offers"), *api.body())
    shared, taught = teaching_pages(folder, lessons)
    groups = [("", [first]), ("Lessons", lessons), ("The three notes", others), ("Reference", [*shared, reference]), (TEACHERS, taught)]
    order = [page for _, pages in groups for page in pages]
    for page in order:
        write_frame(folder, page, groups, order)
    write_assets(folder, order)
    shown = {page.entry.href.removesuffix(".html") for page in lessons}
    numbers = [number for number, twin in enumerate(TWINS) if twin.notebook in shown]
    if twins:
        for line in write_twins(folder, numbers):
            print(line)
    return order


def main(arguments) -> int:
    started = time.monotonic()
    folder = Path(arguments[0] if arguments else "_site").resolve()
    pages = build(folder)
    problems = links.problems(folder)
    for problem in problems:
        print(problem, file=sys.stderr)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{len(pages)} pages, {size / 1e6:.1f} MB, {time.monotonic() - started:.0f} s: open {folder / 'index.html'}")
    return 1 if problems else 0
