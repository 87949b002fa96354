"""Run notebooks from a fresh kernel, and write or compare the form in which they are kept.

    python tests/notebook_store.py            # run and write all
    python tests/notebook_store.py 01 03      # those whose names begin so
    python tests/notebook_store.py --check    # run all, write nothing, say what differs

Kept form: no execution counts, no widget state, a plain kernelspec, cell ids as they are. The output of
a panel is kept as its HTML (sentence and table) and, apart, the picture of its starting state.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
PICTURES = ("image/png", "image/svg+xml")
MAX_BYTES = 400 * 1024


class NotebookFailed(AssertionError):
    """A cell or a control of a notebook raised."""


def names(only=()):
    """The notebooks, by name; ``only`` keeps those that begin with one of the texts."""
    found = sorted(p for p in NOTEBOOKS.rglob("*.ipynb") if not {".ipynb_checkpoints", "mine"} & set(p.relative_to(NOTEBOOKS).parts))
    return [p for p in found if not only or p.name.startswith(tuple(only))]


def read(path):
    return nbformat.read(path, as_version=4)


def run(path, timeout=300):
    """The executed notebook, its widget state still in it; raises NotebookFailed."""
    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.metadata["kernelspec"] = dict(KERNELSPEC)
    before = os.environ.get("KVLIB_STRICT")
    os.environ["KVLIB_STRICT"] = "1"
    try:
        client = NotebookClient(notebook, timeout=timeout, kernel_name="python3", allow_errors=True,
                                store_widget_state=True, resources={"metadata": {"path": str(Path(path).parent)}})
        client.execute()
    finally:
        if before is None:
            del os.environ["KVLIB_STRICT"]
        else:
            os.environ["KVLIB_STRICT"] = before
    problems = failures(notebook)
    if problems:
        raise NotebookFailed(f"{Path(path).name}: " + "\n".join(problems))
    return notebook


def failures(notebook):
    """Every error of a run: in cells, in Output widgets, and inside panels."""
    found = []
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                found.append(f"cell {number} ({cell.get('id')}): {output.ename}: {output.evalue}")
            elif output.output_type == "stream" and output.name == "stderr":
                found.append(f"cell {number} ({cell.get('id')}) wrote to stderr: {output.text[:300]}")
    for widget in widget_states(notebook).values():
        state = widget.get("state", {})
        for output in state.get("outputs", ()) if widget.get("model_name") == "OutputModel" else ():
            if output.get("output_type") == "error":
                found.append(f"an Output widget: {output.get('ename')}: {output.get('evalue')}")
        if state.get("fault"):
            found.append(f"panel {state.get('title')!r}: {state['fault']}")
    return found


def widget_states(notebook):
    kept = notebook.metadata.get("widgets", {}).get("application/vnd.jupyter.widget-state+json", {})
    return kept.get("state", {})


def stored(notebook):
    """The kept form of an executed notebook, as a new one."""
    out = nbformat.from_dict(json.loads(nbformat.writes(notebook)))
    out.metadata = nbformat.from_dict({"kernelspec": dict(KERNELSPEC), "language_info": {"name": "python"}})
    out.nbformat, out.nbformat_minor = 4, 5
    for cell in out.cells:
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in ("tags", "jupyter")})
        if cell.cell_type != "code":
            continue
        cell.execution_count = None
        cell.outputs = _joined([kept for output in cell.outputs for kept in _kept(output)])
    return out


def _kept(output):
    if output.output_type == "stream":
        output.text = _text(output.text)   # in lines, it would keep the places where the kernel cut it
        return [output]
    data = {k: _text(v) for k, v in output.data.items()}
    alt = output.metadata.get("image/png", {})
    if "image/png" in data and data.get("text/html", "").startswith('<div class="kv-static">'):
        del data["text/html"]  # the same picture for a page; viewers show the PNG, and need it
    is_panel = data.pop(WIDGET_VIEW, None) is not None
    picture = {k: data.pop(k) for k in PICTURES if k in data} if is_panel and "text/html" in data else {}
    parts = []
    if data and not (is_panel and set(data) == {"text/plain"} and not picture):
        parts.append(nbformat.v4.new_output("display_data", data, metadata=_meta(data, alt)))
    if picture:
        words = alt.get("alt", "")
        parts.append(nbformat.v4.new_output("display_data", picture | {"text/plain": words}, metadata=_meta(picture, alt)))
    return parts


def _meta(data, alt):
    return {"image/png": dict(alt)} if "image/png" in data and alt else {}


def _text(value):
    return "".join(value) if isinstance(value, list) else value


def _joined(outputs):
    """Streams that follow one another are one: a kernel may cut them anywhere."""
    out = []
    for output in outputs:
        if out and output.output_type == "stream" == out[-1].output_type and output.name == out[-1].name:
            out[-1].text += output.text
        else:
            out.append(output)
    return out


def written(notebook):
    """The file text of a notebook in the kept form."""
    return nbformat.writes(notebook, indent=1) + ("" if nbformat.writes(notebook).endswith("\n") else "\n")


def store(path):
    """Run a notebook and write it in the kept form; True if the file changed. A picture is only
    replaced when the words or the tables beside it changed, so that fonts cause no churn."""
    path = Path(path)
    fresh = stored(run(path))
    old = read(path)
    before = path.read_text("utf-8")
    if not compare(old, fresh):
        _keep_pictures(old, fresh)
    text = written(fresh)
    path.write_text(text, "utf-8")
    return text != before


def _keep_pictures(old, fresh):
    for was, now in zip(old.cells, fresh.cells, strict=True):
        for a, b in zip(was.get("outputs", ()), now.get("outputs", ()), strict=True):
            for kind in PICTURES:
                if kind in b.get("data", {}):
                    b.data[kind] = a.data[kind]


def compare(kept, fresh):
    """What differs between a kept notebook and a fresh run (in kept form), as sentences; [] when equal.
    Text and HTML must be equal; of pictures only the presence counts, since fonts differ by machine."""
    found = []
    if [c.get("id") for c in kept.cells] != [c.get("id") for c in fresh.cells]:
        return ["the cells differ"]
    for was, now in zip(kept.cells, fresh.cells, strict=True):
        a, b = ([_seen(o) for o in cell.get("outputs", ())] for cell in (was, now))
        if a != b:
            found.append(f"cell {was.get('id')}: {_first_difference(a, b)}")
    return found


def _seen(output):
    if output.output_type == "stream":
        return {"stream": output.name, "text": _text(output.text)}
    return {k: "a picture" if k in PICTURES else _text(v) for k, v in output.data.items()}


def _first_difference(a, b):
    if len(a) != len(b):
        return f"{len(a)} outputs are kept, a fresh run gives {len(b)}"
    for old, new in zip(a, b, strict=True):
        for kind in sorted(set(old) | set(new)):
            x, y = str(old.get(kind)), str(new.get(kind))
            if x != y:
                at = next((i for i, (p, q) in enumerate(zip(x, y)) if p != q), min(len(x), len(y)))
                lo = max(0, at - 40)
                return f"{kind}: kept …{x[lo:at + 40]!r}, fresh …{y[lo:at + 40]!r}"
    return "the order differs"


def rules(path):
    """What in a notebook breaks the rules of the house, as sentences."""
    notebook, found = read(path), []
    raw = Path(path).read_bytes()
    if len(raw) > MAX_BYTES:
        found.append(f"{len(raw):,} bytes, more than {MAX_BYTES:,}")
    if "widgets" in notebook.metadata:
        found.append("widget state is kept")
    if notebook.metadata.get("kernelspec") != KERNELSPEC:
        found.append("the kernelspec is not the plain python3 one")
    if raw.decode("utf-8") != written(stored(notebook)):
        found.append("not in the kept form; run `python run.py store`")
    if len({c.get("id") for c in notebook.cells}) != len(notebook.cells):
        found.append("cell ids are missing or doubled")
    setups = 0
    for number, cell in enumerate(notebook.cells):
        where = f"cell {number} ({cell.get('id')})"
        if cell.cell_type == "markdown":
            words = len(re.sub(r"<[^>]+>|[|`*#-]", " ", cell.source).split())
            if words > 170 and number:
                found.append(f"{where}: {words} words, at most 170")
            continue
        lines = cell.source.splitlines()
        if len(lines) > 25:
            found.append(f"{where}: {len(lines)} lines of code, at most 25")
        if max(map(len, lines), default=0) > 110:
            found.append(f"{where}: a line of {max(map(len, lines))} characters, at most 110")
        if re.search(r"^\s*[%!]|sys\.path|https?://(?!\S*\bexample\b)", cell.source, re.M):
            found.append(f"{where}: a magic, a changed path or an address in code")
        setups += "charts.setup()" in cell.source
        if number and notebook.cells[number - 1].cell_type != "markdown" and "charts.setup()" not in notebook.cells[number - 1].source:
            found.append(f"{where}: code without a text cell before it that says what to look for")
    if any(c.cell_type == "code" for c in notebook.cells):
        if notebook.cells[0].cell_type != "markdown" or not notebook.cells[0].source.lstrip().startswith("# "):
            found.append("the first cell is not a card with a title")
        if setups != 1:
            found.append(f"charts.setup() stands in {setups} cells, expected 1")
    return found


def main(argv=None):
    parser = argparse.ArgumentParser(description="Run the notebooks and keep their outputs.")
    parser.add_argument("names", nargs="*", help="beginnings of file names; all without")
    parser.add_argument("--check", action="store_true", help="write nothing, only say what differs")
    args = parser.parse_args(argv)
    bad = 0
    for path in names(args.names):
        try:
            if args.check:
                found = rules(path) + compare(read(path), stored(run(path)))
                print(f"{path.name}: " + ("; ".join(found) or "as kept"))
                bad += bool(found)
            else:
                print(f"{path.name}: " + ("written" if store(path) else "unchanged"))
        except NotebookFailed as problem:
            print(problem)
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
