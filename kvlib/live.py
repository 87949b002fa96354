"""A live chart: the Altair spec goes to the browser once, afterwards only rows do.

    chart = alt.Chart(alt.NamedData("bars"), width=520, height=200).mark_bar().encode(x="gib:Q", y="part:N")
    live = LiveChart(chart, rows={"bars": [{"part": "KV cache", "gib": 93.61}]}, description="KV cache 93.61 GiB")
    live.rows = {"bars": [...]}          # redraws in place; every view shows the newest rows

Give fixed sizes and fixed axis domains, or send the domain as rows, so that nothing jumps.
Vega itself comes from ``vl_convert.javascript_bundle`` in one widget per kernel: nothing is fetched.
"""

from __future__ import annotations

import functools
import gzip
import math
import os
import sys
import uuid
import zlib
from pathlib import Path

import anywidget
import traitlets as T

WEB = Path(__file__).with_name("web")
_SEND = """
const page = (globalThis.kvlibPage ??= { waiting: [] });
page.embed = vegaEmbed;
for (const go of page.waiting.splice(0)) go(vegaEmbed);
"""
# anywidget gives a widget's script two seconds, and Vega takes longer on a busy machine: so it comes as a value,
# loaded by a script that is ready at once; packed, since it is most of what a notebook sends.
_CARRY = """
async function load(packed) {
  const text = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const address = URL.createObjectURL(new Blob([await new Response(text).blob()], { type: "text/javascript" }));
  await import(address).finally(() => URL.revokeObjectURL(address));
}
function initialize({ model }) {
  load(model.get("script")).catch((problem) => console.warn("kvlib: Vega did not load:", problem));
}
export default { initialize };
"""


def web(*names: str) -> str:
    """The text of our scripts or styles, joined in order."""
    return "\n".join((WEB / name).read_text("utf-8") for name in names)


def _cache_folder() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kvlib"


def vega_bundle() -> str:
    """The script that carries Vega, Vega-Lite and vega-embed (0.9 MB)."""
    return gzip.decompress(_packed_vega()).decode()


def _packed_vega() -> bytes:
    """``vega_bundle`` as it travels (0.3 MB). Making it takes seconds, so it is kept in the user's
    cache folder, by version; an unwritable folder is no error."""
    import vl_convert

    kept = None
    try:
        kept = _cache_folder() / f"vega-{vl_convert.__version__}-{hash_of(_SEND)}.js.gz"
        packed = kept.read_bytes()
        if gzip.decompress(packed):
            return packed
    except (OSError, RuntimeError, EOFError, zlib.error):
        pass
    packed = gzip.compress(vl_convert.javascript_bundle(_SEND).encode(), mtime=0)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(packed)
        part.replace(kept)
    except (OSError, AttributeError):
        pass
    return packed


def hash_of(text: str) -> str:
    """Eight hex digits that change with the text."""
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:8]


@functools.cache
def _vega_class():
    class VegaOnce(anywidget.AnyWidget):
        """Carries Vega to the page; needs no view of its own."""

        _esm = _CARRY
        script = T.Bytes().tag(sync=True)

    return VegaOnce


_carrier = None


def vega_reference() -> str:
    """The reference by which a widget finds the one Vega carrier of this kernel."""
    global _carrier
    if _carrier is None or _carrier.comm is None:
        _carrier = _vega_class()(script=_packed_vega())
    return f"IPY_MODEL_{_carrier.model_id}"


def spec_of(chart) -> dict:
    """The Vega-Lite spec of an Altair chart (or a ready dict), in our theme, without data."""
    from kvlib import charts

    spec = charts.themed(chart)
    return charts.Themed({key: part for key, part in spec.items() if key != "datasets"}) if "datasets" in spec else spec


def clean_rows(rows) -> dict:
    """Rows as the browser can read them: plain numbers, None for what is not finite."""
    return {name: [{k: v if type(v) in _AS_IT_IS else _plain(v) for k, v in row.items()} for row in _records(table)]
            for name, table in (rows or {}).items()}


_AS_IT_IS = {str, bool, int, type(None)}


def packed(rows, _widget=None) -> dict:
    """Rows as they travel: per table its columns; a tenth of the bytes. ``unpacked`` in chart.js reads it.

    A column of one value is that value; where few values come again and again, each is named by its place among them.
    Six digits of a number are more than a picture can show.

    >>> packed({"bar": [{"part": "weights", "gib": 1.5, "ink": "#fff"}, {"part": "weights", "gib": 2.5, "ink": "#fff"}]})
    {'bar': {'count': 2, 'columns': {'part': 'weights', 'gib': [1.5, 2.5], 'ink': '#fff'}}}
    """
    out = {}
    for name, table in rows.items():
        keys = dict.fromkeys(key for row in table for key in row)
        out[name] = {"count": len(table), "columns": {key: _column([row.get(key) for row in table]) for key in keys}}
    return out


def _column(values: list):
    kinds = set(map(type, values))
    if len(kinds) > 1 or list in kinds:
        return [_short(value) for value in values]
    few = list(dict.fromkeys(values))
    if len(few) == 1:
        return _short(few[0])
    if len(few) * (2 if str in kinds else 4) <= len(values):
        places = {value: place for place, value in enumerate(few)}
        return {"values": [_short(value) for value in few], "places": [places[value] for value in values]}
    return [_short(value) for value in values] if float in kinds else values


def _short(value):
    return float(f"{value:.6g}") if isinstance(value, float) else value


def changes(before: dict, now: dict) -> dict:
    """Of packed rows what is not as ``before``: whole tables, or of a table as long as before its changed columns.

    >>> old = packed({"bar": [{"x": 1, "ink": "#fff"}, {"x": 2, "ink": "#fff"}]})
    >>> changes(old, packed({"bar": [{"x": 1, "ink": "#fff"}, {"x": 3, "ink": "#fff"}]}))
    {'bar': {'count': 2, 'columns': {'x': [1, 3]}, 'kept': True}}
    """
    out = {}
    for name, table in now.items():
        was = before.get(name)
        if table == was:
            continue
        if was and was["count"] == table["count"] and was["columns"].keys() == table["columns"].keys():
            columns = {key: column for key, column in table["columns"].items() if column != was["columns"][key]}
            table = {"count": table["count"], "columns": columns, "kept": True}
        out[name] = table
    return out


def _records(table):
    return table.to_dict("records") if hasattr(table, "to_dict") else table


def _plain(value):
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, (str, bool, int, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (int, bool)) else str(value)


class Heard(anywidget.AnyWidget):
    """A widget that tells its script its own id, with which the script keeps it listening."""

    me = T.Unicode().tag(sync=True)

    def __init__(self, **kwargs):
        me = uuid.uuid4().hex
        super().__init__(model_id=me, me=me, **kwargs)


class LiveChart(Heard):
    """One picture. ``rows`` maps the names in ``alt.NamedData`` to lists of dicts or DataFrames;
    ``description`` states the current figures for readers who do not see the picture."""

    _esm = web("chart.js", "live.js")
    _css = web("card.css")

    vega = T.Unicode().tag(sync=True)
    spec = T.Dict().tag(sync=True)
    rows = T.Dict().tag(sync=True, to_json=packed)
    description = T.Unicode().tag(sync=True)
    stale = T.Bool(False).tag(sync=True)

    def __init__(self, chart, rows=None, description="", **kwargs):
        super().__init__(vega=vega_reference(), spec=spec_of(chart), rows=rows or {},
                         description=description, **kwargs)

    @T.validate("rows")
    def _clean(self, proposal):
        return clean_rows(proposal["value"])

    def _repr_mimebundle_(self, **kwargs):
        from kvlib import charts

        bundle = super()._repr_mimebundle_(**kwargs)
        data, meta = bundle if isinstance(bundle, tuple) else (bundle, {})
        data = dict(data) | charts.picture(self.spec, self.rows, self.description)
        return data, dict(meta) | {"image/png": charts.about(data, self.description)}
