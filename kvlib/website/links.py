"""What is wrong with a built site: dead links, doubled ids, pictures without words, addresses outside."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

OUTSIDE = ("http:", "https:", "//", "ftp:")


class Seen(HTMLParser):
    """The ids and references of one page."""

    def __init__(self):
        super().__init__()
        self.ids, self.references, self.silent, self.headings = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        for name in ("href", "src"):
            if attrs.get(name):
                self.references.append((tag, attrs[name]))
        if tag == "img" and not attrs.get("alt"):
            self.silent.append(attrs.get("src", "?"))
        if tag[0] == "h" and tag[1:].isdigit():
            self.headings.append(int(tag[1]))


def seen(path: Path) -> Seen:
    page = Seen()
    page.feed(path.read_text("utf-8"))
    return page


def problems(folder: Path) -> list[str]:
    """All that is wrong, as sentences; [] where all is well."""
    pages = {path.name: seen(path) for path in sorted(folder.glob("*.html"))}
    found = []
    for name, page in pages.items():
        found += [f"{name}: the id {each!r} stands twice" for each in sorted({i for i in page.ids if page.ids.count(i) > 1})]
        found += [f"{name}: the picture {each} has no words" for each in page.silent]
        if page.headings.count(1) != 1:
            found.append(f"{name}: {page.headings.count(1)} titles, expected one")
        for tag, reference in page.references:
            found += reference_problems(folder, pages, name, tag, reference)
    return found


def reference_problems(folder: Path, pages: dict, name: str, tag: str, reference: str) -> list[str]:
    if reference.startswith("data:"):
        return []
    if reference.startswith(OUTSIDE):
        return [] if tag == "a" else [f"{name}: <{tag}> takes {reference} from outside"]
    path, _, place = reference.partition("#")
    target = path or name
    if not (folder / target).is_file():
        return [f"{name}: there is no {target}"]
    if place and target in pages and unquote(place) not in pages[target].ids:
        return [f"{name}: {target} has no place {unquote(place)!r}"]
    return []
