"""Small models really launched on vLLM 0.32's CPU build: what the engine held must come out exactly."""
import json
from pathlib import Path

import pytest

import kvlib

LOGS = Path(__file__).resolve().parent.parent / "data" / "logs"
LAUNCHED = [path for path in sorted((LOGS / "real").glob("*.json")) if "args" in json.loads(path.read_text())]


@pytest.mark.parametrize("path", LAUNCHED, ids=lambda path: path.stem)
def test_launch(path):
    truth = json.loads(path.read_text())
    flags = dict(truth["args"], max_num_batched_tokens=truth["mnbt"])
    model = kvlib.load_model(LOGS / f"{flags.pop('model')}.json")
    drafts = flags.pop("speculative_config", None)
    if drafts:
        flags.update(speculative_method=drafts["method"], num_speculative_tokens=drafts["num_speculative_tokens"])
    sizing = kvlib.size(model, kvlib.Engine(vllm_version="0.32", device="cpu", **flags))
    assert (sizing.num_gpu_blocks, sizing.kv_cache_tokens, sizing.max_concurrency, sizing.block_size,
            sizing.max_model_len) == (truth["num_gpu_blocks"], truth["kv_cache_size_tokens"],
                                      truth["kv_cache_max_concurrency"], truth["block_size"], truth["max_model_len"])
    assert any(sizing.log_lines()[-1] in line for line in path.with_suffix(".log").read_text().splitlines())


def test_the_launch_that_was_refused():
    truth = json.loads((LOGS / "real" / "qwen3_toosmall.json").read_text())["refusal"]
    sizing = kvlib.size(kvlib.load_model(LOGS / "tiny" / "qwen3.json"), kvlib.Engine(vllm_version="0.32", device="cpu"),
                        available_bytes=1 << 26)
    assert {name: getattr(sizing.refusal, name) for name in truth} == truth


def test_there_are_enough_of_them():
    assert len(LAUNCHED) >= 14
