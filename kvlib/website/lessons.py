"""A stored notebook as the body of a page, by nbconvert with a template of ours."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shutil
from pathlib import Path

import nbformat
from nbconvert.exporters import TemplateExporter
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from kvlib.controls import HOW
from kvlib.website.checks import box
from kvlib.website.maths import mathml

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
TEMPLATES = Path(__file__).with_name("templates")
_STYLE = re.compile(r"<style>table\.kv-table\{.*?</style>", re.DOTALL)   # once in the site's style is enough
_HOW = f"<p><small>{HOW}</small></p>"
_LINK = re.compile(r'<a\b[^>]*?\bhref="([^"#:]*?)([\w-]+)\.(?:ipynb|md)(#[^"]*)?"[^>]*>(.*?)</a>', re.DOTALL)
WIDE = 110      # characters of a printed table that a page holds
_LAST = re.compile(r"(?m)^(\w+)\(\)\s*\Z")


def names() -> list[str]:
    """The notebooks, without their ending, in order."""
    return sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def words_of(markup: str) -> str:
    """The words of some HTML."""
    markup = re.sub(r"<math\b.*?</math>|<(style|script)\b.*?</\1>", " ", markup, flags=re.DOTALL)
    words = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup)).split())
    return re.sub(r" (?=[,.;:!?)]+(\s|$))", "", words)


def plain_text(markup: str) -> str:
    """A heading's text without its tags."""
    return html.unescape(re.sub(r"<[^>]+>", "", markup)).strip()


def anchor(markup: str) -> str:
    """The id of a heading, as JupyterLab makes it."""
    return plain_text(markup).replace(" ", "-")


def scrolling(table: str) -> str:
    """A table that scrolls by itself where the page is too narrow for it."""
    return f'<div class="scroll">{table}</div>'


def printed(text: str) -> str:
    """What a cell printed; only columns keep their lines whole, and those of a sentence may be broken."""
    columns = re.search(r"\S {2,}\S", text) and max(map(len, text.splitlines())) <= WIDE
    return f'<pre class="printed{"" if columns else " flows"}">{html.escape(text)}</pre>'


def relinked(markup: str, known) -> str:
    """Links to notebooks and Markdown files as links to pages; to one that is not there, the words alone."""
    def turned(match):
        folder, name, _, words = match.groups()
        if name not in known:
            return words
        return re.sub(rf'href="{re.escape(folder + name)}\.\w+', f'href="{name}.html', match.group(0), count=1)
    return _LINK.sub(turned, markup)


class Words(IPythonRenderer):
    """Markdown as HTML: formulas as MathML, headings with Lab's ids, tables that scroll, pictures copied."""

    def __init__(self, pictures: Pictures, cells, anchor=anchor):
        super().__init__(escape=False, exclude_anchor_links=True)
        self.pictures, self.taken, self.headings, self.anchor = pictures, set(cells), [], anchor

    def heading(self, text, level, **attrs):
        level = min(level, self.headings[-1][0] + 1 if self.headings else 1)     # none is skipped
        place = self.anchor(text)
        number = 1
        while place in self.taken:
            number += 1
            place = f"{self.anchor(text)}-{number}"
        self.taken.add(place)
        self.headings.append((level, place, words_of(text)))
        ref = html.escape(place, quote=True)
        return f'<h{level} id="{ref}">{text}<a class="anchor" href="#{ref}" aria-hidden="true" tabindex="-1">#</a></h{level}>\n'

    def inline_math(self, body):
        return mathml(html.unescape(body))

    def block_math(self, body):
        return mathml(html.unescape(body), block=True)

    def table(self, text):
        return scrolling(super_table(re.sub(r"<th([^>]*)></th>", r"<td\1></td>", text)))   # an empty cell heads nothing

    def image(self, text, url, title=None):
        return self.pictures.tag(self.pictures.copied(NOTEBOOKS / url), words_of(text))


def super_table(text: str) -> str:
    return f'<table class="words">\n{text}</table>\n'


class Pictures:
    """Pictures as files of the site, named by what is in them."""

    def __init__(self, folder: Path):
        self.folder = folder

    def stored(self, png: str) -> str:
        data = base64.b64decode(png)
        name = hashlib.sha256(data).hexdigest()[:12] + ".png"
        self._folder().joinpath(name).write_bytes(data)
        return name

    def copied(self, path: Path) -> str:
        shutil.copyfile(path, self._folder() / path.name)
        return path.name

    def _folder(self) -> Path:
        pictures = self.folder / "pictures"
        pictures.mkdir(parents=True, exist_ok=True)
        return pictures

    def tag(self, name: str, words: str, width=None) -> str:
        data = (self.folder / "pictures" / name).read_bytes()
        wide, high = (int.from_bytes(data[at:at + 4], "big") for at in (16, 20))
        shown = width or wide
        return (f'<img src="pictures/{name}" alt="{html.escape(words, quote=True)}" width="{shown}" '
                f'height="{round(high * shown / wide)}" loading="lazy">')


class Lessons(TemplateExporter):
    """nbconvert with the template in ``templates/page``: the body of a page, without its frame."""

    file_extension = ".html"
    template_name = "page"

    def __init__(self, folder: Path, twins: dict, sources: dict, known, **more):
        self.pictures, self.twins, self.sources, self.known = Pictures(folder), twins, sources, set(known)
        super().__init__(extra_template_basedirs=[str(TEMPLATES)], **more)

    def default_filters(self):
        yield from super().default_filters()
        yield from {"markdown": self._markdown, "code": Highlight2HTML(), "shown": self._shown, "still": self._still,
                    "twin": self._twin, "sources": self._sources, "asked": box}.items()

    def body(self, name: str, where: Path = NOTEBOOKS) -> tuple[str, list, list]:
        """(HTML, headings, what can be searched) of the notebook ``name``."""
        notebook = nbformat.read(where / f"{name}.ipynb", as_version=4)
        self.name, self.words = name, Words(self.pictures, [cell.id for cell in notebook.cells])
        self.markdown, self.found = MarkdownWithMath(renderer=self.words), []
        text, _ = self.from_notebook_node(notebook, resources={"notebook": name})
        return relinked(text, self.known), self.words.headings, self.found

    def _markdown(self, source: str) -> str:
        made = self.markdown.render(source)
        self.found.append((self.words.headings[-1][1] if self.words.headings else "", words_of(made)))
        return made

    def _shown(self, output) -> str:
        data = output.get("data", {})
        if output.output_type == "stream":
            return printed(output.text)
        if "image/png" in data:
            about = output.metadata.get("image/png", {})
            words = about.get("alt") or data.get("text/plain", "")
            return f'<figure>{self.pictures.tag(self.pictures.stored(data["image/png"]), words, about.get("width"))}</figure>'
        if "text/html" in data:
            made = _STYLE.sub("", data["text/html"]).replace(_HOW, "")
            return re.sub(r"<table\b.*?</table>", lambda table: scrolling(table.group(0)), made, flags=re.DOTALL)
        return printed(data.get("text/plain", ""))

    def _still(self, cell) -> str:
        """What stands under a control that a page without a kernel shows as it starts."""
        shown = [output.get("data", {}) for output in cell.outputs]
        if not any(_HOW in data.get("text/html", "") for data in shown):
            return ""
        answers = any("image/png" in data or "<table" in data.get("text/html", "") for data in shown)
        return "A control as it starts; the notebook moves it." if answers else "The notebook takes your answer and says what is right."

    def _twin(self, cell):
        """The twin of the control that this cell shows, or None."""
        last = _LAST.search(cell.source)
        return self.twins.get((self.name, last.group(1))) if last else None

    def _sources(self, cell) -> list:
        """(row, page) of the notes' rows that this cell works out."""
        return self.sources.get((self.name, cell.id), [])
