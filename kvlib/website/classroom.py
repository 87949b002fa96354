"""Pages for whoever teaches: the guide, the handout, the quiz, the glossary and the mail, from their Markdown."""

from __future__ import annotations

import re
from pathlib import Path

from nbconvert.filters.markdown_mistune import MarkdownWithMath

from kvlib.website.lessons import NOTEBOOKS, Pictures, Words, relinked, words_of

FOLDER = NOTEBOOKS / "instructor"


def paper(name: str, folder: Path, known) -> tuple[str, list, list]:
    """(HTML, headings, what can be searched) of one page."""
    words = Words(Pictures(folder), [])
    text = MarkdownWithMath(renderer=words).render((FOLDER / f"{name}.md").read_text("utf-8"))
    places = {place.lower(): place for _, place, _ in words.headings}     # GitHub writes a place small, Lab as it is
    text = re.sub(r'href="#([^"]+)"', lambda found: f'href="#{places.get(found[1], found[1])}"', text)
    return f'<section class="cell">\n{relinked(text, known)}</section>', words.headings, [("", words_of(text))]
