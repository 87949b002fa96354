"""Tables and small marked-up sentences, as HTML that works in both themes and without a kernel.

Plain strings are always escaped; only :class:`Html` goes through as it is.

>>> html("{} of {}", strong("16.64x"), "<b>")
'<b>16.64x</b> of &lt;b&gt;'
>>> gib(147456), gib(100513587200)
('144 KiB', '93.6 GiB')
>>> print(mark("3 GiB", "assumed"))
<span class="kv-assumed" style="border-bottom:2px dotted" title="assumed">3 GiB</span>
"""

from __future__ import annotations

import html as _html
from dataclasses import dataclass, field

KINDS = {
    "measured": "border-bottom:2px solid",
    "assumed": "border-bottom:2px dotted",
    "computed": "",
}
_STYLE = (
    "<style>table.kv-table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.4em 0}"
    "table.kv-table caption{text-align:left;caption-side:top;padding:2px 0 4px;opacity:.8}"
    "table.kv-table th,table.kv-table td{text-align:right;padding:3px 12px 3px 2px;border:0;"
    "border-bottom:1px solid rgba(128,128,128,.35);vertical-align:top;background:none}"
    "table.kv-table th.kv-l,table.kv-table td.kv-l{text-align:left}"
    "table.kv-table tr.kv-on>*{background:rgba(0,114,178,.14)}"
    "table.kv-table tfoot td{border:0;text-align:left;opacity:.85}</style>"
)


class Html(str):
    """Text that is HTML already. Everything else is escaped where it is shown."""

    def __html__(self):
        return self


def esc(value) -> Html:
    """The value as HTML; an :class:`Html` stays as it is."""
    return value if isinstance(value, Html) else Html(_html.escape(str(value), quote=True))


def html(template: str, *args, **kwargs) -> Html:
    """``template.format(...)`` with every argument escaped; the template itself is HTML."""
    return Html(template.format(*map(esc, args), **{k: esc(v) for k, v in kwargs.items()}))


def strong(value) -> Html:
    """The value in bold: the figure of a sentence."""
    return html("<b>{}</b>", value)


def code(value) -> Html:
    """A flag, field or line in code type."""
    return html("<code>{}</code>", value)


def mark(text, kind: str) -> Html:
    """The text marked as measured (solid underline), assumed (dotted) or computed (plain)."""
    style = KINDS[kind]
    if not style:
        return esc(text)
    return Html(f'<span class="kv-{kind}" style="{style}" title="{kind}">{esc(text)}</span>')


def styled_by_sheet(text: str) -> Html:
    """The HTML without the styles that stand in it for pages without a style sheet of ours."""
    for style in ("text-align:left", *filter(None, KINDS.values())):
        text = text.replace(f' style="{style}"', "")
    return Html(text)


def legend() -> Html:
    """The one line that explains the underlines."""
    return html("{}, {}, computed (plain)", mark("measured", "measured"), mark("assumed", "assumed"))


def number(value) -> str:
    """Whole numbers grouped (681,600); others with up to four significant figures; None as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (hasattr(value, "dtype") and float(value).is_integer()):
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def gib(n_bytes) -> str:
    """Bytes as B, KiB, MiB or GiB with three significant figures (four digits where 1,000 to 1,023)."""
    n_bytes = int(n_bytes)
    size, unit = abs(n_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    if unit == "B":
        return f"{n_bytes} B"
    digits = max(0, 2 if size < 10 else 1 if size < 100 else 0)
    text = f"{size:.{digits}f}"
    if digits and n_bytes % 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit) == 0:
        text = text.rstrip("0").rstrip(".")
    return f"{'-' if n_bytes < 0 else ''}{text} {unit}"


def size(n_bytes) -> Html:
    """Bytes in a readable unit, with the exact bytes on hover and on focus."""
    return Html(f'<span class="kv-bytes" tabindex="0" title="{int(n_bytes):,} bytes">{gib(n_bytes)}</span>')


@dataclass(frozen=True)
class Col:
    """A column: the key in the rows, the header, and how a value is shown.

    ``fmt`` is "text", "int", "bytes", a format such as ".2f", or a function; ``unit`` goes into the header.
    """

    key: str
    header: str = ""
    fmt: object = None
    unit: str = ""

    def head(self) -> Html:
        text = self.header or self.key.replace("_", " ")
        return html("{} ({})", text, self.unit) if self.unit else esc(text)

    def cell(self, value) -> Html:
        if isinstance(value, Html):
            return value
        if callable(self.fmt):
            return esc(self.fmt(value))
        if value is None:
            return Html("–")
        if self.fmt == "bytes":
            return size(value)
        if self.fmt == "text" or isinstance(value, str):
            return esc(value)
        if self.fmt in (None, "int"):
            return esc(number(value))
        return esc(format(value, "," + self.fmt if not self.fmt.startswith(",") else self.fmt))


@dataclass(frozen=True)
class Table:
    """A finished table. Shows itself in a notebook; goes into a panel as ``View(table=...)``."""

    columns: tuple
    rows: tuple
    caption: str = ""
    footer: str = ""
    highlight: int | None = None
    left: frozenset = field(default_factory=frozenset)

    @property
    def html(self) -> Html:
        """The table without a style sheet."""
        sides = [' class="kv-l" style="text-align:left"' if c.key in self.left else "" for c in self.columns]
        head = "".join(f'<th scope="col"{side}>{c.head()}</th>' for c, side in zip(self.columns, sides))
        body = []
        for number_, row in enumerate(self.rows):
            shown = [c.cell(row.get(c.key)) for c in self.columns]
            cells = [f"<td{side}>{cell}</td>" for cell, side in zip(shown, sides)]
            if shown[0]:
                cells[0] = f'<th scope="row"{sides[0]}>{shown[0]}</th>'
            body.append(f"<tr{' class=kv-on' if number_ == self.highlight else ''}>{''.join(cells)}</tr>")
        caption = f"<caption>{esc(self.caption)}</caption>" if self.caption else ""
        foot = (f'<tfoot><tr><td colspan="{len(self.columns)}" style="text-align:left">{esc(self.footer)}</td></tr></tfoot>'
                if self.footer else "")
        return Html(f'<table class="kv-table">{caption}<thead><tr>{head}</tr></thead>'
                    f"<tbody>{''.join(body)}</tbody>{foot}</table>")

    def _repr_html_(self):
        return _STYLE + self.html

    def __repr__(self):
        return as_text(self)


def _is_text(rows, col) -> bool:
    values = [row.get(col.key) for row in rows if row.get(col.key) is not None]
    if col.fmt in ("bytes", "int") or (isinstance(col.fmt, str) and col.fmt != "text"):
        return False
    return col.fmt == "text" or any(isinstance(v, str) and not isinstance(v, Html) for v in values)


def table(rows, columns=None, *, caption="", footer="", highlight=None) -> Table:
    """A table from a list of dicts or a DataFrame.

    ``columns``: keys, ``Col`` records, or a dict from key to header; without it all keys of the first row.
    The first column is the row's header. Text stands left, numbers right. ``highlight`` is a row number.
    """
    if hasattr(rows, "to_dict"):
        rows = rows.to_dict("records")
    rows = tuple(dict(r) for r in rows)
    if columns is None:
        columns = list(rows[0]) if rows else []
    if isinstance(columns, dict):
        columns = [Col(k, h) if isinstance(h, str) else h for k, h in columns.items()]
    cols = tuple(c if isinstance(c, Col) else Col(c) for c in columns)
    left = frozenset(c.key for i, c in enumerate(cols) if _is_text(rows, c))
    return Table(cols, rows, caption, footer, highlight, left)


def steps_table(steps, *, caption="", only=None) -> Table:
    """The steps of a sizing as a table: name, formula, with the numbers in, value, unit, kind, source.

    ``steps`` are records or dicts with name, formula, numbers (or "with_numbers"), value, unit, kind, source;
    ``only`` keeps the named steps.
    """
    rows = []
    for step in steps:
        get = step.get if isinstance(step, dict) else lambda k, d=None, s=step: getattr(s, k, d)
        if only is not None and get("name") not in only:
            continue
        value, unit, kind = get("value"), get("unit") or "", get("kind") or "computed"
        shown = size(value) if unit in ("bytes", "B") and isinstance(value, int) else esc(number(value)
                if not isinstance(value, str) else value)
        rows.append({
            "step": get("name"), "formula": get("formula") or "",
            "with numbers": get("numbers") or get("with_numbers") or get("substituted") or "",
            "value": mark(shown, kind), "unit": "" if unit in ("bytes", "B") else unit,
            "kind": kind, "source": get("source") or "",
        })
    columns = [Col("step", fmt="text"), Col("formula", fmt="text"), Col("with numbers", fmt="text"),
               Col("value"), Col("unit", fmt="text"), Col("kind", fmt="text"), Col("source", fmt="text")]
    return table(rows, columns, caption=caption)


def reproduced(same: int, of: int, what: str = "rows") -> str:
    """The footer of a table that was recomputed.

    >>> reproduced(7, 7)
    '7 of 7 rows reproduced'
    """
    return f"{same} of {of} {what} reproduced"


def as_text(shown: Table) -> str:
    """The table in plain text, for terminals and for readers without HTML."""
    import re

    def plain(cell):
        return _html.unescape(re.sub(r"<[^>]+>", "", cell))

    grid = [[plain(c.head()) for c in shown.columns]]
    grid += [[plain(c.cell(row.get(c.key))) for c in shown.columns] for row in shown.rows]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)] if grid[0] else []
    lines = ["  ".join(cell.ljust(w) if c.key in shown.left else cell.rjust(w)
                       for cell, w, c in zip(line, widths, shown.columns, strict=True)).rstrip() for line in grid]
    return "\n".join(filter(None, [plain(esc(shown.caption)), *lines, plain(esc(shown.footer))]))
