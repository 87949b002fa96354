"""The exercises' checks in a page without a kernel.

What an exercise accepts, and the slips it knows, are worked out here by the exercise itself; the page's script
(``assets/check.js``) only reads what was typed and compares. The table comes packed, so that an answer is not read at a
glance in the page's source; whoever unpacks it finds it.
"""

from __future__ import annotations

import base64
import gzip
import html
import itertools
import json
import re

from kvlib import typed
from kvlib.command import flag_value
from kvlib.exercise import Exercise
from kvlib.website.twins import Pool
from kvlib.workshop import capstone, register

_ID = re.compile(r"ex-(\d\d-\d+|capstone)-check")
_REMARK = re.compile(r"my_\w+ = None\s+# (.+)")
# The flags of the capstone that a page judges; the first value is what is taken where the flag is missing.
FLAGS = {
    "max_model_len": [None, 2048, 4096, 8192, 16384, 32000, 32768, 40960, 65536, 131072, -1],
    "kv_cache_dtype": ["auto", "fp8"],
    "gpu_memory_utilization": [None, 0.85, 0.9, 0.92, 0.95, 0.97, 0.99],
    "max_num_seqs": [None, 8, 20, 64, 256],
    "enforce_eager": [False, True],
}
# Flags that are refused whatever else is given, unless their value is 1; with a value that stands for all others.
REFUSED = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "data_parallel_size": 2, "quantization": "fp8",
           "num_gpu_blocks_override": 9000, "kv_cache_memory_bytes": 5_000_000_000}
SHORT = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size", "q": "quantization",
         "kv_cache_memory": "kv_cache_memory_bytes"}
FP8 = ("fp8", "fp8_e4m3", "fp8_e5m2")
ADDS = "These answers were worked out beforehand, by the notebook's own check. The notebook adds calculations in Python, " \
       "and keeps what you got right."
BOX = """<form class="check" data-check="{number}" hidden>
<label for="answer-{number}">Your answer{remark}</label>
<div class="check-row"><input id="answer-{number}" type="text" autocomplete="off" autocapitalize="off" spellcheck="false">
<button type="submit">Check</button><button type="button" value="1">Hint 1</button><button type="button" value="2">Hint 2</button></div>
<p class="check-said" role="status"></p>
<details class="check-more"><summary>What the notebook adds</summary><p>{adds}</p></details>
</form>
<p class="check-wait">With scripts on, an answer can be checked here.</p>"""


def number_of(cell_id: str) -> str | None:
    """The exercise that a code cell checks ("ex-01-2-check" -> "01.2"), or None."""
    found = _ID.fullmatch(cell_id)
    number = found and found[1].replace("-", ".")
    return number if number in register() else None


def box(cell) -> str:
    """The form in place of a blank check; nothing for another cell."""
    number = number_of(cell.id)
    if number is None:
        return ""
    remark = _REMARK.search(cell.source)
    said = f' <span class="check-unit">({html.escape(remark[1].strip(chr(34)))})</span>' if remark else ""
    return BOX.format(number=number, remark=said, adds=html.escape(adds(register()[number])))


def adds(exercise: Exercise) -> str:
    """What stands under the box: what was worked out here, and what more the notebook has."""
    if not exercise.judge:
        return ADDS
    return "This page judges " + "; ".join(offer(name) for name in FLAGS) + ". The notebook judges any flags of vllm serve."


def offer(name: str) -> str:
    """A flag and its values in words."""
    texts = [f"{value}" for value in FLAGS[name] if value not in (None, False, True)]
    return flag(name) + (" " + ", ".join(texts) if texts else "")


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def table() -> dict:
    """All that the page's script needs: how numbers are typed, and every exercise."""
    return {"bytes": typed.BYTES, "decimal": typed.DECIMAL, "counts": list(typed.COUNTS), "spoken": typed._SPOKEN,
            "exercises": {number: row(exercise) for number, exercise in register().items()}}


def row(exercise: Exercise) -> dict:
    """One exercise: what is right, how near, the slips, and what is said."""
    found = {"hints": list(exercise.about.hints)}
    if exercise.judge:
        return found | flags_table()
    return found | {"right": exercise.right, "unit": exercise.unit, "within": max(exercise.within, 1e-9),
                    "because": exercise.because, "slips": [list(pair) for pair in exercise.wrong]}


def settings() -> list[dict]:
    """Every setting of the flags; the last moves first."""
    return [dict(zip(FLAGS, values, strict=True)) for values in itertools.product(*FLAGS.values())]


def line(setting: dict) -> str:
    """A setting as one would type it."""
    words = []
    for name, value in setting.items():
        if value is True:
            words.append(flag(name))
        elif value not in (None, False):
            words.append(f"{flag(name)} {value}")
    return f"vllm serve {capstone.MODEL} " + " ".join(words)


def flags_table() -> dict:
    """What the capstone's judge says to each setting."""
    pool, judge = Pool(), register()["capstone"].judge
    places = []
    for setting in settings():
        verdict = judge(line(setting))
        places.append(pool.place([verdict.state, verdict.text]))
    return {"flags": [[name, [spellings(name, value) for value in values]] for name, values in FLAGS.items()],
            "refused": {name: judge(line({name: value})).text for name, value in REFUSED.items()}, "short": SHORT,
            "places": places, "said": pool.things, "not a flag": judge("§").text, "page": adds(register()["capstone"])}


def spellings(name: str, value) -> list[str]:
    """How a value may be typed behind its flag: as vLLM's reading has it; for a switch that is on, nothing."""
    if value is None or isinstance(value, bool):
        return []
    if not isinstance(value, int):
        return list(FP8) if value == "fp8" else [f"{value}"]
    tried = [str(value), "auto"] + ([f"{value:,}", f"{value / 1000:g}k", f"{value / 1024:g}K"] if value >= 1000 else [])
    return [text for text in dict.fromkeys(tried) if read(name, text) == value]


def read(name: str, text: str):
    try:
        return flag_value(name, text)
    except ValueError:
        return None


def script() -> str:
    """The table as a script that hands it to the page, packed: a page from a folder may not fetch."""
    text = json.dumps(table(), ensure_ascii=False, separators=(",", ":"))
    whole = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return f'kvlibChecks.arrived("{whole}");\n'
