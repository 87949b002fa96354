"""vLLM's own answers, set-up by set-up: every field of ``expect`` must come out, to the last digit."""
import gzip
import json
from functools import cache
from pathlib import Path

import pytest

import kvlib

ORACLE = Path(__file__).resolve().parent.parent / "data" / "oracle"
LINES = gzip.open(ORACLE / "cases.jsonl.gz", "rt").read().splitlines()
CASES = [json.loads(line) for line in LINES]


@cache
def model(name):
    """The oracle's own copy of the config: lengths and nesting may differ from the published file."""
    return kvlib.load_model(ORACLE / "configs" / f"{name}.json")


@pytest.mark.parametrize("case", CASES, ids=[f"{case['engine']['vllm_version']}/{case['id']}" for case in CASES])
def test_case(case):
    sizing = kvlib.size(model(case["model"]), kvlib.Engine(**case["engine"]), available_bytes=case["available_bytes"])
    for field, expected in case["expect"].items():
        if field == "log_line":
            assert expected in sizing.log_lines()
        elif field == "refusal":
            assert {name: getattr(sizing.refusal, name) for name in expected} == expected
        else:
            assert getattr(sizing, field) == expected, field
    shape = [(g.layers, g.block_size, g.page_size_bytes, g.blocks_per_request) for g in sizing.groups]
    assert shape == [(g["layers"], g["block_size"], g["page_size_bytes"], g["blocks_per_request"])
                     for g in case["groups"]]


def test_there_are_enough_of_them():
    assert len(CASES) >= 358
