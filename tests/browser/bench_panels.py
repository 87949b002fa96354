"""How long a step of a control takes to its changed picture, beside a bare round trip to the kernel in the same run.

    python run.py bench --panels            # all notebooks
    python run.py bench --panels 00 04      # those whose names begin so

The bare round trip is an ipywidgets slider (a menu, where the panel's first input is one) that sets a label. Both are stepped in turn,
ten trips and then ten steps, so that they meet the same minute of the machine; before each ten come four that are not counted, while the
page settles after it has scrolled.
Times go from the key to the last change of the words or the picture; each is the median of 30 steps, there and back.
Bytes are those of the page's websockets, both ways.
kvlib's share is processor time of the panel's own answer to a step, over twelve stops: kvlib_ms when it has not seen them before,
again_ms when it has, as after a panel has looked ahead along its slider (then that is what the aim is for).
A layout shift counts where something in the panel has moved.
What misses its aim is listed at the end.
"""
import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from browser.lab import guarded_page, open_notebook, running_browser, running_lab
from browser.walk import NOTEBOOKS, WATCH, panels_of, stops
from test_no_dull_control import FROM

STEPS, FEW, SETTLING, DRAG = 30, 10, 4, 20
MOST = {"ratio": 1.3, "ratio of several": 2, "kvlib_ms": 5, "step_bytes": 10 * 1024, "drag_trips": 2, "blank": 0, "shift": 0,
        "page_bytes": 1_500_000}
BARE = """\
import ipywidgets
_slider, _menu = ipywidgets.IntSlider(value=50), ipywidgets.Dropdown(options=[str(each) for each in range(9)], value="4")
_label = ipywidgets.Label("50")
for _each in (_slider, _menu):
    _each.observe(lambda change: setattr(_label, "value", str(change["new"])), "value")
ipywidgets.VBox([_slider, _menu, _label])"""

# Armed before a key: resolves with [ms to the first change, ms to the last], once 120 ms pass without another.
ARM = """([root, watched]) => {
  const places = [...root.querySelectorAll(watched)];
  window.kvStep = new Promise(done => {
    let start = 0, first = 0, last = 0, quiet = null;
    const end = () => { eye.disconnect(); done(first ? [first - start, last - start] : null); };
    const eye = new MutationObserver((changes) => {
      if (changes.every(change => change.type === "attributes" && places.includes(change.target))) return;   // its words
      last = performance.now();
      first ||= last;
      clearTimeout(quiet);
      quiet = setTimeout(end, 120);
    });
    window.addEventListener("keydown", () => {
      start = performance.now();
      for (const place of places) eye.observe(place, { childList: true, subtree: true, attributes: true, characterData: true });
      quiet = setTimeout(end, 1500);
    }, { capture: true, once: true });
  });
}"""
SHIFTS = """(card) => {
  card.kvShift = 0;
  new PerformanceObserver(list => {
    for (const { sources, value } of list.getEntries()) if (sources.some(({ node }) => card.contains(node))) card.kvShift += value;
  }).observe({ type: "layout-shift" });
}"""
PICTURE = ".kv-picture"


class Traffic:
    """Bytes over the page's websockets since the last look."""

    def __init__(self, page):
        self.bytes = 0
        page.on("websocket", self._watch)

    def _watch(self, socket):
        for event in ("framereceived", "framesent"):
            socket.on(event, self._count)

    def _count(self, frame):
        self.bytes += len(frame)

    def taken(self):
        found, self.bytes = self.bytes, 0
        return found


def step(page, root, handle, watched, key):
    handle.focus()
    page.evaluate(ARM, [root, watched])
    page.keyboard.press(key)
    return page.evaluate("() => window.kvStep")


def steps(page, root, handle, watched, keys):
    """[(first, last) in ms, ...] of a few steps that changed something, after some to get there."""
    there, back = keys
    found = [step(page, root, handle, watched, there if number % 2 else back) for number in range(FEW + SETTLING)]
    return [each for each in found[SETTLING:] if each]


def handle_of(card, twin):
    """(what takes the keys, its name, the keys there and back): the first slider, or else the first choice."""
    for kind in ("number", "choice"):
        for field in twin.inputs:
            if field.kind != kind:
                continue
            if kind == "number" and field.slider:
                return card.get_by_role("slider", name=field.label + ", slider", exact=True), field, ("ArrowRight", "ArrowLeft")
            if kind == "choice" and field.style == "buttons":
                return card.get_by_role("group", name=field.label, exact=True).locator("input:checked"), field, ("ArrowRight", "ArrowLeft")
            if kind == "choice":
                return card.get_by_role("combobox", name=field.label, exact=True), field, ("ArrowDown", "ArrowUp")
    return None, None, None


def kvlib_share(twin, field):
    """Milliseconds of this process that the panel takes for a stop, when it is new and when it has been seen: medians of a dozen."""
    values = stops(field) if field.kind == "number" else list(field.options)
    values = values[:: max(1, len(values) // 12)]
    found = []
    for _ in range(2):
        spent = []
        for value in values:
            start = time.process_time()
            twin._change({field.name: value})
            twin._shown()
            spent.append((time.process_time() - start) * 1000)
        found.append(median(spent))
    return found


def median(values):
    return round(statistics.median(values), 1) if values else None


def bench_panel(page, notebook, place, traffic, bare):
    card = notebook.output(place.cell).locator(".kv-card").first
    card.scroll_into_view_if_needed()
    for picture in card.locator(PICTURE).all():
        picture.locator("svg.marks").wait_for()
    twin, start = place.twin(), FROM.get(place.twin().name, {})
    if start:   # as it opens, its launch is refused whatever is turned
        twin.set(**start)
        notebook.add_and_run(f"{place.kind}().set(**{start!r})")
        card.scroll_into_view_if_needed()
    handle, field, keys = handle_of(card, twin)
    if handle is None:
        return None
    same, bare_keys = (".noUi-handle", ("ArrowRight", "ArrowLeft")) if field.kind == "number" else ("select", ("ArrowDown", "ArrowUp"))
    same = bare.locator(same)
    same.evaluate("node => node.setAttribute('data-lm-suppress-shortcuts', 'true')")   # else Lab takes a menu's arrows
    root, trips, found, sent = card.element_handle(), [], [], 0
    handle.focus()
    root.evaluate(WATCH)
    root.evaluate(SHIFTS)
    for _ in range(STEPS // FEW):
        trips += steps(page, bare.element_handle(), same, ".widget-label:not(.widget-readout)", bare_keys)
        traffic.taken()
        found += steps(page, root, handle, PICTURE, keys)
        sent += traffic.taken()
    ends = [drag(page, root, handle, *there_or_back) for there_or_back in (keys, keys[::-1]) * 2] if field.kind == "number" else []
    new, again = kvlib_share(twin, field)
    trip, last = median([last for _, last in trips]), median([last for _, last in found])
    dragged, moves = median([end for end in ends if end]), STEPS // FEW * (FEW + SETTLING)
    return {"panel": str(place), "moved": field.name, "pictures": card.locator(PICTURE).count(), "trip_ms": trip,
            "first_ms": median([first for first, _ in found]), "step_ms": last, "ratio": round(last / trip, 2) if last and trip else None,
            "kvlib_ms": new, "again_ms": again, "ahead": twin.ahead, "steps": len(found), "step_bytes": sent // moves,
            "drag_trips": round(dragged / trip, 2) if dragged and trip else None, "blank": root.evaluate("card => card.kvSeen.blank"),
            "shift": round(root.evaluate("card => card.kvShift"), 3)}


def drag(page, root, handle, forth, back):
    """Milliseconds from the last key of a quick hand to the last change: many keys one way, the last one the other."""
    for _ in range(DRAG - 1):
        page.keyboard.press(forth, delay=0)
        page.wait_for_timeout(40)
    end = step(page, root, handle, ".kv-card, .kv-answer, .kv-picture, .kv-result", back)
    return end and end[1]


def bench(names=()):
    """A row for each panel, and the bytes with which each notebook loads."""
    rows, loads = [], {}
    with tempfile.TemporaryDirectory() as folder, running_lab(folder) as lab, running_browser() as browser:
        for name in NOTEBOOKS:
            if names and not name.startswith(tuple(names)):
                continue
            with guarded_page(browser) as page:
                traffic = Traffic(page)
                notebook = open_notebook(page, lab, name)
                notebook.run_all()
                page.wait_for_timeout(1500)
                loads[name] = traffic.taken()
                bare = notebook.output(notebook.add_and_run(BARE))
                for place in panels_of(name):
                    row = bench_panel(page, notebook, place, traffic, bare)
                    rows += [row] if row else []
                    print(".", end="", flush=True, file=sys.stderr)
            lab.end_kernels()
    return rows, loads


def missed(row):
    """What of a panel's row is more than was aimed at."""
    several = " of several" if row["pictures"] > 1 else ""
    share = "again_ms" if row["ahead"] else "kvlib_ms"
    aims = {name: MOST[name] for name in ("step_bytes", "drag_trips", "blank", "shift")}
    aims |= {"ratio": MOST["ratio" + several], share: MOST["kvlib_ms"]}
    found = [f"{row['panel']}: {name} {row[name]:,}, at most {most:,}" for name, most in aims.items()
             if row[name] is not None and row[name] > most]
    return found if row["steps"] == STEPS else [*found, f"{row['panel']}: only {row['steps']} of {STEPS} steps changed a picture"]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="beginnings of notebooks' names")
    rows, loads = bench(parser.parse_args(arguments).names)
    heads = ("panel", "moved", "pictures", "trip_ms", "first_ms", "step_ms", "ratio", "kvlib_ms", "again_ms", "steps", "step_bytes",
             "drag_trips", "blank", "shift")
    print("\n| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for row in rows:
        print("| " + " | ".join("–" if row[head] is None else f"{row[head]:,}" if isinstance(row[head], int) else str(row[head])
                                for head in heads) + " |")
    print()
    for name, size in loads.items():
        print(f"{name}: {size / 1024:,.0f} KiB over the websockets until it is drawn")
    wrong = [line for row in rows for line in missed(row)]
    wrong += [f"{name}: {size:,} bytes, at most {MOST['page_bytes']:,}" for name, size in loads.items() if size > MOST["page_bytes"]]
    load = f"; the machine's load was {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"\nMissed ({len(wrong)}{load}):\n" + "\n".join(wrong) if wrong else f"\nNothing missed its aim{load}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
