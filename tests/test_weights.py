"""Parameters counted from configs against published totals, and weights against sizes that launches printed."""
import csv
import json
import os
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


# -- files and quantizations as they come ------------------------------------------------------------

def _headed(folder, name, *offsets):
    header = json.dumps({f"t{n}": {"dtype": "BF16", "shape": [1], "data_offsets": pair} for n, pair in enumerate(offsets)}).encode()
    (folder / name).write_bytes(len(header).to_bytes(8, "little") + header)


def _indexed(folder, total, *files):
    (folder / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {"total_size": total}, "weight_map": {f"t{n}": name for n, name in enumerate(files)}}))


def test_a_second_copy_beside_the_index_s_files_is_not_counted(tmp_path):
    """Mistral's repositories hold consolidated.safetensors too; vLLM reads the files of the index."""
    for name in ("model-00001-of-00001.safetensors", "consolidated.safetensors"):
        _headed(tmp_path, name, [0, 1000], [1000, 1500])
    _indexed(tmp_path, 1500, "model-00001-of-00001.safetensors")
    assert checkpoint_bytes(tmp_path).bytes == 1500


def test_a_download_that_is_not_whole_is_taken_by_its_index(tmp_path):
    _headed(tmp_path, "model-00001-of-00002.safetensors", [0, 1000])
    _indexed(tmp_path, 2500, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    found = checkpoint_bytes(tmp_path)
    assert (found.bytes, found.kind, found.source) == (2500, "measured", "model.safetensors.index.json")


@pytest.mark.parametrize("offsets", [[100, 0], [0, 1.5], [0, 10**30], ["a", 1], [0], [0, True]])
def test_offsets_that_no_file_has(tmp_path, offsets):
    _headed(tmp_path, "model.safetensors", offsets)
    found = checkpoint_bytes(tmp_path)
    assert found is None or found.bytes == 1    # true is 1 in Python and in JSON's readers


@pytest.mark.parametrize("total", [-5, 0, True, 1.5, 1e300, "5", None, [1]])
def test_totals_that_no_index_has(tmp_path, total):
    _indexed(tmp_path, total)
    assert checkpoint_bytes(tmp_path) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_or_a_device_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "model.safetensors")
    os.mkfifo(tmp_path / "model.safetensors.index.json")
    os.symlink("/dev/zero", tmp_path / "model-00001-of-00001.safetensors")
    (tmp_path / "b.safetensors").mkdir()
    assert checkpoint_bytes(tmp_path) is None


def test_files_nested_too_deeply(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(catalog.model_config("Qwen3-8B")))
    for name in ("model.safetensors.index.json", "hf_quant_config.json"):
        (tmp_path / name).write_text("[" * 200_000)
    assert checkpoint_bytes(tmp_path) is None and kvlib.load_model(tmp_path).name


@pytest.mark.parametrize("declared, bits", [
    ({"quant_method": "awq", "bits": "4", "group_size": "128"}, 4), ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4), ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8)])
def test_quantizations_as_they_are_written(declared, bits):
    assert quantization_of(_llama(declared)).bits == bits


@pytest.mark.parametrize("declared, said", [
    ({"quant_method": "gptq", "bits": 0}, "bits"), ({"quant_method": "gptq", "bits": -4}, "bits"),
    ({"quant_method": "awq", "bits": [4]}, "bits"),
    ({"quant_method": "gptq", "bits": 10**9}, "bits"), ({"quant_method": "compressed-tensors", "config_groups": [1]}, "compressed-tensors"),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": True}}}}, "num_bits"),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 8, "group_size": "x"}}}}, "group_size"),
    ({"quant_method": "of my own"}, "of my own"), ({"quant_method": ["fp8"]}, "not known")])
def test_quantizations_that_cannot_be_read_are_a_sentence(declared, said):
    with pytest.raises(kvlib.ConfigError, match=said):
        quantization_of(_llama(declared))


def _llama(declared):
    config = {k: v for k, v in catalog.model_config("Llama-3.1-8B").items() if k != "_source"}
    return kvlib.load_model(config | {"quantization_config": declared})
