"""Reserve bands: each report lies in the band of its case, and the band says how many stand behind it."""

import pytest

import kvlib
from kvlib import catalog
from kvlib.errors import EngineError
from kvlib.reserve import assumed_budget, model_facts, reserve_bands
from kvlib.units import GiB

TERMS = ("peak_activation_bytes", "non_torch_bytes", "cuda_graph_bytes")
IN_CATALOGUE = {row["model"]: row["catalog_name"] for row in catalog.table("weights_seen.csv") if row["catalog_name"]}
SWEEP = [row for row in catalog.table("reserve.csv")
         if row["vllm_version"] == "0.19.0" and row["kind"] == "log" and row["model"] in IN_CATALOGUE]


def bands(gpu, model, version, seqs=1024, tokens=8192, **more):
    facts = {**model_facts(catalog.model_config(model)), **more}
    return reserve_bands(gpu, vllm_version=version, max_num_seqs=seqs, max_num_batched_tokens=tokens, **facts)


def inside(band, gib_text):
    return band.low <= float(gib_text) * GiB <= band.high


def test_the_sweep_covers_many_launches():
    assert len(SWEEP) >= 30


@pytest.mark.parametrize("row", SWEEP, ids=lambda row: f"{row['model']}-{row['dtype']}-tp{row['tensor_parallel_size']}"
                                                      f"-pp{row['pipeline_parallel_size']}")
def test_a_launch_of_the_sweep_lies_in_its_band(row):
    found = bands("H100 SXM", IN_CATALOGUE[row["model"]], "0.19.0", int(row["max_num_seqs"]),
                  int(row["max_num_batched_tokens"]), tensor_parallel_size=int(row["tensor_parallel_size"]),
                  pipeline_parallel_size=int(row["pipeline_parallel_size"]), vision=False)
    assert inside(found["peak_activation_bytes"], row["activation_peak_gib"])
    assert inside(found["non_torch_bytes"], row["non_torch_gib"])
    assert found["cuda_graph_bytes"].high == 0  # printed, but not subtracted at 0.19


@pytest.mark.parametrize("gpu, model, version, seqs, activation, non_torch", [
    ("GB10", "Qwen3-8B", "0.28.0", 1024, "1.19", "1.83"),  # 18.29 - 15.27 - 1.19
    ("A100 80GB SXM", "Llama-3.1-8B", "0.31.0", 256, "1.44", "0.26"),  # 15.26 - 15.00
    ("B300", "Gemma-4-31B", "0.26.0", 1024, "3.90", "0.25"),
    ("RTX 3090", "Qwen2.5-7B", "0.29.0", 256, "1.09", "0.47")])
def test_a_single_report_lies_in_its_band(gpu, model, version, seqs, activation, non_torch):
    found = bands(gpu, model, version, seqs, vision=False)
    assert inside(found["peak_activation_bytes"], activation)
    assert inside(found["non_torch_bytes"], non_torch)


@pytest.mark.parametrize("gpu", [None, *catalog.gpus()])
def test_bands_rise_and_account_for_themselves_on_every_card(gpu):
    for version in ("0.18.1", "0.19.0", "0.22", "0.26", "0.28", "0.33"):
        for tp in (1, 2, 4, 8):
            for model in ("Qwen3-8B", "gpt-oss-120b", "DeepSeek-V3", "Qwen3.8-27B"):
                found = bands(gpu, model, version, tensor_parallel_size=tp)
                assert tuple(found) == TERMS
                for band in found.values():
                    assert band.low <= band.typical <= band.high and "report" in band.source


def test_no_graphs_when_eager():
    band = bands(None, "Qwen3-8B", "0.33", enforce_eager=True)["cuda_graph_bytes"]
    assert (band.low, band.high) == (0, 0)


def test_an_assumption_without_a_report_is_wide_and_says_so():
    eight, four = (bands("H200", "Llama-3.3-70B", "0.33", tensor_parallel_size=tp)["non_torch_bytes"] for tp in (8, 4))
    assert "no report" in eight.source and eight.high - eight.low > four.high - four.low


def test_two_gpus_assume_two_gib_more():
    one, two = (bands("H100 SXM", "Llama-3.1-8B", "0.33", tensor_parallel_size=tp)["non_torch_bytes"] for tp in (1, 2))
    assert two.typical - one.typical > 1.5 * GiB and round(two.typical / GiB, 1) == 2.1


def test_a_vision_encoder_widens_the_activation():
    blind, seeing = (bands("H100 SXM", "Qwen3-VL-8B", "0.33", vision=vision)["peak_activation_bytes"]
                     for vision in (False, True))
    assert seeing.high > blind.high and "vision" in seeing.source


def test_more_sequences_never_assume_less():
    peaks = [bands("H100 SXM", "Gemma-3-27b", "0.22", seqs)["peak_activation_bytes"].typical for seqs in (16, 256, 1024)]
    assert peaks == sorted(peaks)


def test_a_card_or_version_that_is_unknown_is_refused():
    with pytest.raises(EngineError, match="gpu"):
        bands("toaster", "Qwen3-8B", "0.33")
    with pytest.raises(EngineError, match="vllm_version"):
        bands("H200", "Qwen3-8B", "soon")


@pytest.mark.parametrize("name", catalog.models())
def test_every_model_yields_its_facts(name):
    facts = model_facts(catalog.model_config(name))
    assert all(band.high >= 0 for band in reserve_bands(
        None, max_num_seqs=256, max_num_batched_tokens=8192, **facts).values())


def test_the_gb10_launch_lies_in_the_range_assumed_for_it():
    """121.63 GiB, 15.27 of weights, 18.29 that is not cache: the log says 93.61 GiB and 681,600 tokens."""
    engine = kvlib.Engine(vllm_version="0.28.0", gpu="GB10")
    model = kvlib.load_model("Qwen3-8B")
    low, typical, high = kvlib.size_range(model, engine, memory=assumed_budget(model, engine))
    assert low.kv_cache_tokens < 681_600 < high.kv_cache_tokens
    assert low.kv_cache_tokens < typical.kv_cache_tokens < high.kv_cache_tokens


def test_a_budget_shares_the_weights_among_the_gpus():
    model = kvlib.load_model("Llama-3.3-70B")
    one, two = (assumed_budget(model, kvlib.Engine(gpu="H100 SXM", tensor_parallel_size=tp)) for tp in (1, 2))
    assert two.weights_bytes.typical * 2 == pytest.approx(one.weights_bytes.typical, rel=1e-4)   # norms stand on both
    assert two.total_bytes == one.total_bytes
