"""Parameters counted from configs against published totals, and weights against sizes that launches printed."""
import csv
import json
import struct
from pathlib import Path

import pytest

import kvlib
from kvlib import catalog
from kvlib.parameters import parameters
from kvlib.weights import QUANTIZATIONS, checkpoint_bytes, quantization_of, weights_per_gpu

DATA = Path(__file__).resolve().parent.parent / "data"
GiB = 1 << 30
REFUSED = ("Baichuan2-7B", "Llama-3.2-11B-Vision", "Zamba2-2.7B")


def published():
    for name in catalog.models():
        source = catalog.model_config(name)["_source"]
        if source.get("parameter_count") == "exact" and name not in REFUSED:
            yield name, source["total_parameters_published"], "vision_config" in catalog.model_config(name)


@pytest.mark.parametrize("name, total, vision", list(published()), ids=lambda value: str(value))
def test_parameters_against_the_published_total(name, total, vision):
    counted = parameters(kvlib.load_model(name)).total
    if vision:  # the tower is not counted, and the answer says so
        assert counted < total < counted * 1.12
    else:
        assert abs(counted - total) <= total * 1.1e-5


@pytest.mark.parametrize("name", ["Qwen3-8B", "Llama-3.3-70B", "DeepSeek-V2-Lite", "Jamba-1.5-mini", "Nemotron-H-8B", "LFM2-1.2B",
                                  "Falcon-H1-7B", "Gemma-2-27b", "Qwen3-235B-A22B", "MiniMax-M1", "Granite-4.0-H-Small"])
def test_these_come_out_to_the_last_digit(name):
    assert parameters(kvlib.load_model(name)).total == catalog.model_config(name)["_source"]["total_parameters_published"]


def launches():
    for row in csv.DictReader(open(DATA / "weights_seen.csv", encoding="utf-8")):
        if row["weight_dtype"] in ("bfloat16", "float16", "fp8", "int8") and row["catalog_name"] in DENSE:
            yield row["catalog_name"], row["weight_dtype"], int(row["tensor_parallel_size"]), float(row["loaded_gib"])


DENSE = ("Qwen3-8B", "Qwen3-32B", "Qwen2.5-7B", "Qwen2.5-72B", "Llama-3.1-8B", "Llama-3.3-70B", "Gemma-2-9b", "Phi-4",
         "Qwen3-30B-A3B", "Mixtral-8x7B", "DeepSeek-V3", "Qwen3-Next-80B-A3B", "Qwen3-235B-A22B", "Granite-3.3-8B")


@pytest.mark.parametrize("name, dtype, tp, loaded", list(launches()))
def test_weights_against_a_launch(name, dtype, tp, loaded):
    how = dtype if dtype in ("fp8", "int8") else "none"
    weights = weights_per_gpu(kvlib.load_model(name), quantization=how, tensor_parallel_size=tp)
    assert abs(weights.bytes / GiB - loaded) <= 0.01 * loaded + 0.03 and weights.kind == "computed"


@pytest.mark.parametrize("name, how", [("Qwen3-8B", None), ("Qwen3-8B-FP8", "fp8 blocks"), ("DeepSeek-V3", "fp8 blocks"),
                                       ("gpt-oss-120b", "mxfp4"), ("Gemma-4-31B-NVFP4", "nvfp4")])
def test_quantization_is_read_from_the_config(name, how):
    assert quantization_of(kvlib.load_model(name)) == (QUANTIZATIONS[how] if how else None)


def test_past_the_kv_heads_weights_stop_shrinking_in_step():
    model = kvlib.load_model("Qwen2.5-1.5B")
    two, four = (weights_per_gpu(model, tensor_parallel_size=tp).bytes for tp in (2, 4))
    assert two / 2 < four < two


def test_a_checkpoint_folder_is_measured(tmp_path):
    assert checkpoint_bytes(tmp_path) is None
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1000}}))
    assert checkpoint_bytes(tmp_path).bytes == 1000
    header = json.dumps({"__metadata__": {}, "a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 8)
    assert checkpoint_bytes(tmp_path).bytes == 8 and checkpoint_bytes(tmp_path).kind == "measured"
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 64)  # a broken file: back to the index
    assert checkpoint_bytes(tmp_path).bytes == 1000


def test_unknown_storage_is_one_sentence():
    with pytest.raises(kvlib.ConfigError, match="int3"):
        weights_per_gpu(kvlib.load_model("Qwen3-8B"), quantization="int3")
    odd = {**catalog.model_config("Qwen3-8B"), "quantization_config": {"quant_method": "wild"}}
    with pytest.raises(kvlib.ConfigError, match="wild"):
        weights_per_gpu(kvlib.load_model(odd))
