"""No dull control: each input of each panel, swept over its range with the others at their first values, changes what is seen.

    python tests/test_no_dull_control.py        # prints the table

A slider gives at least five visibly different pictures, a menu half as many as it has options or four, a switch two;
at most half of the way is refused; and somewhere the answer says something else than before. A cell of a table has no way
that one could be refused on, and its answer is the table.
"""
import importlib
import json
import pkgutil
import re
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("ipywidgets")

import kvlib.panels  # noqa: E402
from kvlib import catalog, controls  # noqa: E402
from kvlib.live import clean_rows  # noqa: E402

STOPS = 11      # of a slider with more
OPTIONS = 12    # of a menu with more

# Where a panel's first values are a launch that is refused whatever else is turned: swept from these.
FROM = {"06-size-your-own": {"config": "Qwen3-8B", "gpu": "H100 SXM 80GB"}}

FULL_LOG = catalog.log_text("qwen3-8b-gb10")
ANY_LOG = [FULL_LOG, "Available KV cache memory: 18.4 GiB\n" + catalog.log_text("llama-tp-sweep-success"),
           catalog.log_text("llama-tp-sweep-refused")]
LENGTHS = ["", *(f"prompt_tokens,output_tokens\n{prompt},{output}\n400,40\n"
                 for prompt, output in ((500, 100), (2000, 300), (4000, 300), (4000, 900), (9000, 500)))]
GIB = ["", "0.5", "1", "2", "4", "8"]

# What is put into free boxes; those not named here are swept over their suggestions.
TYPED = {
    ("03-program", "programs.count"): ["1", "2", "3", "4"],
    ("05-read-log", "launch"): ["1", "last"],
    ("05-read-log", "path"): [str(catalog.data_dir() / "logs" / (name + ".log"))
                              for name in ("qwen3-8b-gb10", "llama-tp-sweep-refused", "qwen3.8-27b-hybrid")],
    ("05-read-log", "text"): ANY_LOG,
    ("05-read-log", "config"): [json.dumps(catalog.model_config(name)) for name in ("Qwen3-8B", "Llama-3.1-8B")],
    ("06-size-your-own", "command"): [f"vllm serve Qwen/Qwen3-8B --max-model-len {length}" for length in (4096, 8192, 16384, 32768)],
    ("06-size-your-own", "log"): ANY_LOG,
    ("09-mix", "rows"): LENGTHS, ("09-traffic", "rows"): LENGTHS,
} | {("06-size-your-own", name): GIB for name in ("free_gib", "weights_gib", "peak_activation_gib", "non_torch_gib", "cuda_graph_gib")}

# (panel, input): (what is asked of it instead, why). What can be asked: pictures, refused, answers.
EXCEPTIONS = {
    ("03-auto-fit", "vllm_version"): ({"pictures": 1, "answers": 1}, "the two rules part at the last tries only; see the next test"),
    ("03-refusal", "vllm_version"): ({"pictures": 1}, "one block of 3,215 is not seen; the sentence and the table show it"),
    ("04-knobs", "undo"): ({"pictures": 1, "answers": 1}, "takes back what was applied; at first there is nothing"),
    ("05-read-log", "model"): ({"pictures": 1}, "the picture is the log's own memory; the table's recomputed figures change"),
    ("05-read-log", "launch"): ({"pictures": 1, "answers": 1}, "the first log holds one launch; see the next test"),
    ("05-read-log", "config"): ({"pictures": 1}, "as for the model"),
    ("06-size-your-own", "requests"): ({"pictures": 1, "answers": 1}, "moves one table, of what so many requests need"),
    ("06-size-your-own", "show"): ({"answers": 1}, "chooses the second picture"),
    ("08-one-page", "enable_prefix_caching"): ({"answers": 1}, "the page keeps its size; the states kept of it are drawn"),
    ("06-size-your-own", "download"): ({"pictures": 1, "answers": 1}, "a consent: it changes what a name of the Hub may do"),
}
WITH = {  # the state in which an excepted input must show what it does
    ("03-auto-fit", "vllm_version"): {"tries": "17"},
    ("04-knobs", "undo"): {"apply": "kv_cache_dtype"},
    ("05-read-log", "launch"): {"log": "a crash loop"},
}


def kinds():
    """Every panel of the workbook."""
    found = []
    for info in pkgutil.iter_modules(kvlib.panels.__path__):
        module = importlib.import_module("kvlib.panels." + info.name)
        found += [kind for kind in vars(module).values()
                  if isinstance(kind, type) and issubclass(kind, controls.Panel) and kind.__module__ == module.__name__]
    return sorted(found, key=lambda kind: kind.name)


# ---- the way of an input -------------------------------------------------------------------------------------------------

def thinned(values, most):
    if len(values) <= most:
        return values
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def way(field):
    """The texts along a slider, the options of a menu, on and off."""
    if field.kind == "toggle":
        return ["off", "on"]
    if field.kind == "choice":
        return thinned(list(field.options), OPTIONS)
    if field.kind == "number":
        return [field.text(value) for value in thinned(field.every_stop(), STOPS)]
    return thinned(list(getattr(field, "suggestions", ())), OPTIONS)


def edits(panel, field):
    """(what is swept, the raw values it takes): a table of rows is swept column by column, in its first row."""
    if field.kind != "rows":
        yield field.name, field, TYPED.get((panel.name, field.name)) or way(field)
        return
    first = [list(row) for row in panel.raw[field.name]]
    for at, column in enumerate(field.columns):
        yield f"{field.name}.{column.name}", column, [[[*first[0][:at], text, *first[0][at + 1:]], *first[1:]]
                                                 for text in TYPED.get((panel.name, f"{field.name}.{column.name}")) or way(column)]


# ---- what is seen --------------------------------------------------------------------------------------------------------

def without_hover(node):
    """A spec less what shows only under the pointer."""
    if isinstance(node, dict):
        return {key: without_hover(value) for key, value in node.items() if key not in ("tooltip", "description")}
    return [without_hover(value) for value in node] if isinstance(node, list) else node


def rough(value):
    """A figure as a picture can show it: three digits."""
    return float(f"{value:.3g}") if isinstance(value, float) or isinstance(value, int) and not isinstance(value, bool) else value


def drawn(panel):
    """What the pictures of a panel are drawn from: their specs, and of the rows what the specs mention."""
    view = panel.view
    specs = panel.specs if view.chart is None else panel._spec_list(view.chart)
    text = json.dumps(without_hover(specs))
    mentioned = set(re.findall(r"\w+", text))
    rows = {name: [{key: rough(value) for key, value in row.items() if key in mentioned} for row in table]
            for name, table in clean_rows(view.rows).items() if name in mentioned}
    return json.dumps([text, rows], sort_keys=True)


def said(panel, raw):
    """The answer without what was put in."""
    text = re.sub(r"<[^>]+>", "", str(panel.view.answer))
    return text.replace(str(raw), "…") if isinstance(raw, str) and len(raw) > 2 else text


def sweep(kind, start=None, only=None):
    """For each input: how many stops were tried, pictures seen, stops refused, answers given."""
    controls.forget(kind.name)
    panel, start = kind(), FROM.get(kind.name, {}) if start is None else start
    for field in panel.inputs:
        if only not in (None, field.name):
            continue
        for name, source, raws in edits(panel, field):
            pictures, answers, refused = set(), set(), 0
            for raw in raws:
                panel.reset()
                panel.set(**start)
                panel._change({field.name: raw})
                if panel.error:
                    refused += 1
                else:
                    pictures.add(drawn(panel))
                    answers.add(str(panel.view.table) if field.kind == "rows" else said(panel, raw))
            panel.reset()
            yield SimpleNamespace(panel=kind.name, input=name, kind=field.kind if field.kind == "rows" else source.kind, tried=len(raws), pictures=len(pictures),
                                  refused=refused, answers=len(answers))


def wanted(found):
    """What is asked of an input: pictures, refused at most, answers."""
    pictures = {"number": min(5, found.tried), "choice": max(2, min(4, found.tried // 2))}.get(found.kind, 2)
    refused = found.tried if found.kind == "rows" else found.tried / 2
    return {"pictures": pictures, "refused": refused, "answers": 2} | EXCEPTIONS.get((found.panel, found.input), ({},))[0]


def complaints(found):
    if not found.tried:
        return ["never swept: name it in TYPED"]
    asked = wanted(found)
    return [text for wrong, text in [
        (found.pictures < asked["pictures"], f"{found.pictures} pictures, {asked['pictures']} wanted"),
        (found.refused > asked["refused"], f"refused at {found.refused} of {found.tried} stops"),
        (found.answers < asked["answers"], f"{found.answers} answers")] if wrong]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.name)
def test_no_control_is_dull(kind):
    assert {found.input: complaints(found) for found in sweep(kind) if complaints(found)} == {}


@pytest.mark.parametrize("key", WITH, ids="-".join)
def test_an_exception_changes_the_answer_elsewhere(key):
    name, only = key
    kind = next(kind for kind in kinds() if kind.name == name)
    (found,) = sweep(kind, WITH[key], only)
    assert found.answers >= 2


def test_no_exception_is_left_over():
    names = {(kind.name, name) for kind in kinds() for field in kind.inputs for name, _, _ in edits(kind(), field)}
    assert set(EXCEPTIONS) <= names and set(TYPED) <= names


def main():
    print(f"{'panel':<26}{'input':<28}{'tried':>6}{'pictures':>9}{'refused':>8}{'answers':>8}")
    for kind in kinds():
        for found in sweep(kind):
            print(f"{found.panel:<26}{found.input:<28}{found.tried:>6}{found.pictures:>9}{found.refused:>8}{found.answers:>8}  "
                  + "; ".join(complaints(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
