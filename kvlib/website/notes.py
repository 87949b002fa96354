"""A page for each of the three notes: where in the workbook each of its figures and tables stands."""

from __future__ import annotations

import html
from typing import NamedTuple

from kvlib import catalog


class Note(NamedTuple):
    page: str
    file: str
    title: str
    about: str


NOTES = (
    Note("note-gb10", "qwen3-8b-gb10", "The KV Cache, Sized", "The GB10 note; its launch is of 2026-10-02."),
    Note("note-hybrid", "qwen3.8-27b-hybrid", "vLLM Hybrid KV Cache", "KKZ-TN-156, the hybrid note, of 2026-11-04."),
    Note("note-sweep", "llama-tp-sweep", "Sizing the Cache", "The sweep note, checked by its author on 2026-10-05."),
)


def rows(note: Note) -> list[dict]:
    """The rows of a note, each as its inventory has it."""
    return catalog.note_rows(note.file)


def sources() -> dict:
    """{(notebook, cell): [(row, page of the note)]}."""
    found: dict = {}
    for note in NOTES:
        for row in rows(note):
            found.setdefault((row["notebook"].removesuffix(".ipynb"), row["cell"]), []).append((row["id"], note.page))
    return found


def body(note: Note, titles: dict) -> str:
    """The page of a note; ``titles`` names the notebooks that are there."""
    lines = []
    for row in rows(note):
        notebook = row["notebook"].removesuffix(".ipynb")
        where = "–"
        if notebook in titles:
            where = f'<a href="{notebook}.html#{html.escape(row["cell"])}">{html.escape(titles[notebook])}</a>'
        printed = " ".join(filter(None, (row["printed"], row["unit"]))) or "–"
        lost = " (lost; rebuilt)" if row["lost"] == "yes" else ""
        cells = [row["where"], row["kind"] + lost, row["what"], printed]
        lines.append(f'<tr id="{row["id"]}"><th scope="row">{row["id"]}</th>'
                     + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + f"<td>{where}</td></tr>")
    heads = "".join(f'<th scope="col">{head}</th>' for head in (
        "Row", "Section of the note", "Kind", "What it is", "As printed", "Where the workbook works it out"))
    return (f'<div class="prose"><h1>{html.escape(note.title)}</h1>\n<p>{html.escape(note.about)} Each row is one figure, table or '
            f"control of the note, told in our words, with the cell that works it out.</p></div>\n"
            f'<div class="scroll"><table class="words"><thead><tr>{heads}</tr></thead>\n<tbody>{"".join(lines)}</tbody></table></div>')
