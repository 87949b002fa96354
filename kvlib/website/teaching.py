"""The pages for whoever teaches: the Markdown in ``notebooks/instructor`` and the solved exercises."""

from __future__ import annotations

import re
from pathlib import Path

from nbconvert.filters.markdown_mistune import MarkdownWithMath

from kvlib.website.lessons import NOTEBOOKS, Pictures, Words, plain_text, relinked, words_of

INSTRUCTOR = NOTEBOOKS / "instructor"
SOLUTIONS = NOTEBOOKS / "solutions"
FIRST = ("guide", "handout", "quiz", "quiz_answers", "mail")   # in this order; whatever else is there follows
FOR_ALL = ("glossary",)                                        # of use to every reader


def papers() -> list[str]:
    """The Markdown files, without their ending, as a teacher takes them up."""
    there = sorted(path.stem for path in INSTRUCTOR.glob("*.md"))
    return sorted(there, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))


def solutions() -> list[str]:
    return sorted(path.stem for path in SOLUTIONS.glob("*.ipynb"))


def github_anchor(markup: str) -> str:
    """The id of a heading in a Markdown file, as GitHub makes it.

    >>> github_anchor("Sizing a hub, <em>roughly</em>")
    'sizing-a-hub-roughly'
    """
    return re.sub(r"[^\w\- ]", "", plain_text(markup).lower()).replace(" ", "-")


def paper(folder: Path, name: str, known) -> tuple[str, list, list]:
    """(HTML, headings, what can be searched) of one Markdown file."""
    words = Words(Pictures(folder), (), github_anchor)
    made = MarkdownWithMath(renderer=words).render((INSTRUCTOR / f"{name}.md").read_text("utf-8"))
    found, place = [], ""
    for piece in re.split(r"(?=<h[1-6] id=)", made):
        if heading := re.match(r'<h[1-6] id="([^"]*)"', piece):
            place = heading.group(1)
        found.append((place, words_of(piece)))
    return f'<div class="prose paper">{relinked(made, known)}</div>', words.headings, found
