"""The simulation against vLLM's own scheduler: every step of every scenario, and every request's admissions, hits and end.

``scheduler_cases.jsonl.gz`` holds hand-made scenarios, ``scheduler_random.jsonl.gz`` random ones (each id ends in its seed) over
eleven models and hand-made groups, 0.28.0 to 0.33.0, synchronous and asynchronous.
"""
import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import kvlib
from kvlib import traffic

ORACLE = Path(__file__).resolve().parent.parent / "data" / "oracle"
FLAGS = {"reserve_full_isl": "scheduler_reserve_full_isl", "long_prefill_token_threshold": "long_prefill_token_threshold",
         "watermark": "watermark", "retention_interval": "prefix_cache_retention_interval"}
EXPLAINED = {}  # id of a case: why the simulation differs there. None does.
PER_REQUEST = ("first", "finish", "preempted", "admitted", "hits")


def read(name):
    return [json.loads(line) for line in gzip.open(ORACLE / name, "rt")]


CASES = read("scheduler_cases.jsonl.gz") + read("scheduler_random.jsonl.gz")


@cache
def model(name):
    return kvlib.load_model(ORACLE / "configs" / f"{name}.json")


def simulate(case, **more):
    options = dict(case["options"])
    groups = options.pop("specs", None)
    return traffic.simulate(None if groups else model(case["model"]), kvlib.Engine(**case["engine"]), case["requests"],
                            num_gpu_blocks=case["num_gpu_blocks"], groups=groups, max_steps=case.get("max_steps"),
                            **{FLAGS[name]: value for name, value in options.items()}, **more)


def differences(case):
    """What differs, as (what, ours, vLLM's): the first step of each column, then the sums."""
    run, wanted = simulate(case), case["output"]
    endless = run.outcome == "stalled" and wanted["outcome"] == "max_steps"  # the recording of an asynchronous stall goes on
    for name in traffic.COLUMNS:
        ours, theirs = run.series[name], wanted["series"][name]
        if endless:
            theirs = theirs[:len(ours)]
        if ours != theirs:
            step = next((at for at, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), min(len(ours), len(theirs)))
            yield f"{name} from step {step}", ours[step:step + 3], theirs[step:step + 3]
    for name in PER_REQUEST:
        if run.requests[name] != wanted["requests"][name]:
            yield name, run.requests[name], wanted["requests"][name]
    if sorted(map(list, run.preemption_events)) != sorted(wanted["preemption_events"]):
        yield "preemption_events", run.preemption_events, wanted["preemption_events"]
    if not endless and (run.outcome, run.steps) != (wanted["outcome"], wanted["steps"]):
        yield "outcome", (run.outcome, run.steps), (wanted["outcome"], wanted["steps"])
    if wanted["startup_ok"] is not None and run.startup_ok != wanted["startup_ok"]:
        yield "startup_ok", run.startup_ok, wanted["startup_ok"]


def name_of(case):
    return f"{case['engine']['vllm_version']}/{case['id']}"


@pytest.mark.parametrize("case", CASES, ids=map(name_of, CASES))
def test_case(case):
    assert not list(differences(case)) or name_of(case) in EXPLAINED


def test_every_exception_is_one():
    by_name = {name_of(case): case for case in CASES}
    assert all(list(differences(by_name[name])) for name in EXPLAINED)


def test_there_is_something_of_every_kind():
    hand_made = read("scheduler_cases.jsonl.gz")
    tags = Counter(tag for case in hand_made for tag in case["tags"])
    assert len(hand_made) >= 25
    assert all(tags[kind] for kind in ("full", "mla", "window", "state", "async", "no-prefix-cache", "preempts", "hits", "would-not-start"))
    random = CASES[len(hand_made):]
    ways = Counter((case["engine"]["vllm_version"], case["engine"]["async_scheduling"]) for case in random)
    assert len(random) >= 150
    assert len(ways) == 8, "0.28.0, 0.30.0, 0.32.0 and 0.33.0, synchronous and asynchronous"
    assert sum(case["output"]["preemptions"] for case in random) > 500


@pytest.mark.parametrize("case", CASES[:25:3], ids=lambda case: case["id"])
def test_a_summary_adds_up_what_the_steps_say(case):
    full, short = simulate(case), simulate(case, record="summary")
    used = [used for used, running, waiting in zip(*(full.series[name] for name in ("used", "running", "waiting"))) if running or waiting]
    assert short.series == {}
    assert (short.steps, short.preemptions, short.outcome) == (full.steps, full.preemptions, full.outcome)
    assert short.peak_used == max(full.series["used"])
    assert short.scheduled_tokens == sum(full.series["tokens"])
    assert short.hit_tokens == sum(full.series["hit"])
    assert short.mean_used == pytest.approx(sum(used) / len(used))


if __name__ == "__main__":  # the agreement table
    print(f"{'case':44}{'steps':>7}{'requests':>10}{'preemptions':>13}  differs in")
    agree = 0
    for each in CASES:
        found = [what for what, *_ in differences(each)]
        agree += not found
        print(f"{name_of(each):44}{each['output']['steps']:7,}{len(each['requests']):10,}{each['output']['preemptions']:13,}  "
              + (", ".join(found) or "nothing"))
    print(f"{agree} of {len(CASES)} agree in every step and column")
