"""More of vLLM's own answers: random flags over public configs, and kinds that the first cases do not show."""
import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import kvlib

ROWS = [json.loads(line) for line in gzip.open(Path(__file__).resolve().parent.parent / "data" / "oracle" / "more_cases.jsonl.gz", "rt")]
CONFIGS = {row["config"]: row["fields"] for row in ROWS if "fields" in row}
CASES = [row for row in ROWS if "fields" not in row]


@cache
def model(name):
    return kvlib.load_model(CONFIGS[name])


def differences(case):
    engine = kvlib.Engine(**case["engine"])
    sizing = kvlib.size(model(case["config"]), engine, available_bytes=case["available_bytes"])
    for field, expected in case["expect"].items():
        if field == "log_line":
            found = expected in sizing.log_lines()
            expected = True
        elif field == "refusal":
            found = {name: getattr(sizing.refusal, name) for name in expected}
        else:
            found = getattr(sizing, field)
        if found != expected:
            yield field, found, expected
    shape = [(g.layers, g.block_size, g.page_size_bytes, g.blocks_per_request) for g in sizing.groups]
    wanted = [(g["layers"], g["block_size"], g["page_size_bytes"], g["blocks_per_request"]) for g in case["groups"]]
    if shape != wanted:
        yield "groups", shape, wanted


@pytest.mark.parametrize("start", range(0, len(CASES), 50))
def test_fifty_cases(start):
    wrong = {case["id"]: list(differences(case)) for case in CASES[start:start + 50]}
    assert not {name: found for name, found in wrong.items() if found}


def test_there_are_enough_of_every_kind():
    kinds = Counter(kind for case in CASES for kind in model(case["config"]).kinds)
    assert len(CASES) >= 1000 and {"full", "sliding", "chunked", "mla", "gdn", "mamba1", "mamba2", "kda", "short_conv",
                                   "lightning"} <= set(kinds)
    types = Counter(case["engine"].get("kv_cache_dtype", "auto") for case in CASES)
    assert types["fp8_ds_mla"] + types["fp8"] > 50 and any("per_token_head" in name for name in types)
