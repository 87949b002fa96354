"""The API page, from the docstrings: what kvlib offers at its top, and the modules that plan with it."""

from __future__ import annotations

import dataclasses
import html
import importlib
import inspect
import re
from typing import Any, NamedTuple

import nbformat
from nbconvert.filters import Highlight2HTML

import kvlib
from kvlib.website.lessons import NOTEBOOKS
from kvlib.website.maths import mathml

# The modules that plan with it, and which of their names; () for all that they offer.
MODULES = {"fit": (), "verdict": ("Verdict", "judge"), "budget": ("Term", "Typed"), "improve": (), "take_along": (), "sweep": (),
           "traffic": (), "catalog": (), "workshop": ()}
TOP = (
    ("Read", ("load_model", "from_layers", "read_command", "read_log")),
    ("Size", ("bytes_per_token", "size", "size_range", "explain")),
    ("What goes in", ("Model", "Engine", "MemoryBudget", "Band")),
    ("What comes out", ("Sizing", "Stage", "Refusal")),
    ("Errors", ("SizingError", "ConfigError", "EngineError", "UnknownArchitectureError")),
)
# Formulas are taken from the lessons, where they are explained: (notebook, cell, which of the cell's).
FORMULAS = {
    "bytes_per_token": (("01_bytes_per_token", "formula", 0),),
    "size": (("03_blocks_and_tokens", "divisions-words", 0), ("03_blocks_and_tokens", "divisions-words", 1)),
    "MemoryBudget": (("02_memory_budget", "requested-words", 0), ("02_memory_budget", "left-words", 0)),
}
OPENS = """<div class="prose">
<h1>What kvlib offers</h1>
<p>From the docstrings. Every example is run by the tests. Bytes, blocks and tokens are whole numbers; GiB, MiB and KiB are binary.</p>"""
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_highlight = Highlight2HTML(pygments_lexer="pycon")


class Item(NamedTuple):
    """One name of the API."""

    name: str      # as one writes it: size, fit.fit
    what: Any


def planning_modules() -> list:
    """The modules beyond kvlib's own names."""
    return [importlib.import_module(f"kvlib.{name}") for name in MODULES]


def offered_by(module) -> list[Item]:
    """The documented functions and classes of a module: those chosen or listed, or those written in it."""
    short = module.__name__.removeprefix("kvlib.")
    listed = MODULES[short] or getattr(module, "__all__", None)
    return [Item(f"{short}.{name}", what) for name, what in vars(module).items()
            if (name in listed if listed else getattr(what, "__module__", "") == module.__name__ and not name.startswith("_"))
            and callable(what) and own_words(what)]


def own_words(what) -> str:
    """The docstring somebody wrote; not the one Python makes for a record."""
    text = inspect.getdoc(what) or ""
    made = inspect.isclass(what) and (text.startswith(what.__name__ + "(") or "Alias for field number" in text)
    return "" if made else text


def groups() -> list[tuple[str, str, list[Item]]]:
    """(heading, words, items) of the page, in order."""
    listed = [(heading, "", [Item(name, getattr(kvlib, name)) for name in names]) for heading, names in TOP]
    return listed + [(module.__name__, inspect.getdoc(module) or "", offered_by(module)) for module in planning_modules()]


def body() -> tuple[str, list, list]:
    """(HTML, headings, what can be searched)."""
    parts, headings, found = [OPENS], [], []
    for heading, words, items in groups():
        place = heading.replace(" ", "-")
        headings.append((2, place, heading))
        parts.append(f'<h2 id="{place}">{html.escape(heading)}{link_to(place)}</h2>\n{rendered(words)}')
        for item in items:
            headings.append((3, item.name, item.name))
            parts.append(entry(item))
            found.append((item.name, f"{item.name} {own_words(item.what)}"))
    return "\n".join(parts) + "\n</div>", headings, found


def link_to(place: str) -> str:
    """What a heading shows under the pointer, to copy its address."""
    return f'<a class="anchor" href="#{place}" aria-hidden="true" tabindex="-1">#</a>'


def entry(item: Item) -> str:
    """One name with its signature, words, formulas and, for a class, what can be read off it."""
    said = f'<h3 id="{item.name}"><code>{html.escape(item.name)}</code>{link_to(item.name)}</h3>\n'
    if signature := signature_of(item.what):
        said += f'<pre class="signature"><code>{html.escape(item.name + signature)}</code></pre>\n'
    said += rendered(own_words(item.what))
    said += "".join(mathml(formula(*where), block=True) for where in FORMULAS.get(item.name, ()))
    if inspect.isclass(item.what) and not issubclass(item.what, Exception):
        said += members(item.what)
    return said


def signature_of(what) -> str:
    if inspect.isclass(what) and issubclass(what, Exception):
        return ""
    try:
        found = inspect.signature(what)
    except (TypeError, ValueError):
        return ""
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    return str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def members(kind: type) -> str:
    """The documented properties and methods of a class."""
    rows = []
    for name, member in vars(kind).items():
        if name.startswith("_") or not isinstance(member, (property, classmethod, staticmethod)) and not inspect.isfunction(member):
            continue
        words = (inspect.getdoc(member.fget if isinstance(member, property) else member) or "").split("\n\n")[0]
        if words:
            rows.append(f"<dt><code>{name}{'' if isinstance(member, property) else '()'}</code></dt><dd>{inline(words)}</dd>")
    fields = ""
    if dataclasses.is_dataclass(kind):
        names = ", ".join(f"<code>{field.name}</code>" for field in dataclasses.fields(kind) if not field.name.startswith("_"))
        fields = f"<p>Fields: {names}.</p>\n" if names else ""
    return fields + (f"<dl>{''.join(rows)}</dl>\n" if rows else "")


def formula(notebook: str, cell: str, which: int) -> str:
    """A displayed formula of a lesson."""
    book = nbformat.read(NOTEBOOKS / f"{notebook}.ipynb", as_version=4)
    source = next(each.source for each in book.cells if each.id == cell)
    return re.findall(r"\$\$(.*?)\$\$", source, re.DOTALL)[which]


def rendered(text: str) -> str:
    """A docstring as HTML: paragraphs, sections, examples."""
    pieces = _SECTION.split(text)
    said = paragraphs(pieces[0])
    for head, content in zip(pieces[1::2], pieces[2::2], strict=True):
        said += f'<p class="part">{html.escape(head)}</p>\n'
        said += paragraphs(content) if head == "Examples" else terms(content)
    return said


def paragraphs(text: str) -> str:
    said = []
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.lstrip().startswith(">>>"):
            said.append(_highlight(inspect.cleandoc(block)))
        elif block.strip():
            said.append(f"<p>{inline(block)}</p>")
    return "\n".join(said) + "\n"


def terms(text: str) -> str:
    """``name : words`` lines as a list; a line that is indented goes on."""
    lines = re.sub(r"\n[ ]{2,}(?=\S)", " ", text.strip()).splitlines()
    said = []
    for line in filter(str.strip, lines):
        name, _, words = line.partition(" : ")
        said.append(f"<dt><code>{html.escape(name.strip())}</code></dt><dd>{inline(words)}</dd>")
    return f"<dl>{''.join(said)}</dl>\n"


def inline(text: str) -> str:
    """Names as code, and formulas between dollars."""
    said = html.escape(" ".join(text.split()), quote=False)
    said = re.sub(r"\$([^$]+)\$", lambda found: mathml(html.unescape(found.group(1))), said)
    said = re.sub(r":\w+:`~?(?:kvlib\.)?([^`]+)`", r"<code>\1</code>", said)
    return re.sub(r"``([^`]+)``|`([^`]+)`", lambda found: f"<code>{found.group(1) or found.group(2)}</code>", said)
