"""data/ is whole, says where it comes from, and the catalogue reads it."""

import json
import re

import pytest

from kvlib import catalog
from kvlib.errors import ConfigError, EngineError
from kvlib.units import GiB

DATA = catalog.data_dir()
TEXT_FILES = [path for path in sorted(DATA.rglob("*")) if path.is_file() and path.suffix != ".gz"]
NAMED_BY_THE_NOTES = ["Qwen3-8B", "Qwen3-30B-A3B", "gpt-oss-120b", "gpt-oss-20b", "DeepSeek-V3", "Llama-3.1-8B",
                      "Llama-3.3-70B", "Qwen2.5-1.5B", "Qwen3.8-27B", "Qwen3-Next-80B-A3B"]


# Models


@pytest.mark.parametrize("name", catalog.models())
def test_a_model_has_its_fields_and_its_source(name):
    config = catalog.model_config(name)
    text = config.get("text_config") or config
    assert config["architectures"] and config["model_type"]
    assert text.get("num_hidden_layers", 0) > 0 or text.get("model_type") == "llama"
    source = config["_source"]
    assert source["from"] and source["hf_id"].count("/") == 1
    assert source["kind"] in ("copy", "fixture", "assembled")
    assert source["verified_by"] in ("one source + count", "two sources", "two sources + count")
    assert source["parameter_count"]
    total = source["total_parameters_published"]
    assert total is None or isinstance(total, int) and total > 10**8
    if source["verified_by"] == "one source + count":
        assert source["parameter_count"].startswith("exact")
    assert source.get("from_memory", "only fields without effect on sizes").startswith("only fields without effect")


def test_the_models_of_the_notes_are_there():
    assert set(NAMED_BY_THE_NOTES) <= set(catalog.models())
    assert len(catalog.models()) == 136


def test_qwen25_is_the_instruct_model():
    config = catalog.model_config("Qwen2.5-1.5B")
    assert config["max_position_embeddings"] == 32768
    assert config["_source"]["hf_id"].endswith("-Instruct") and "131072" in config["_source"]["note"]


def test_a_config_is_a_fresh_dict():
    catalog.model_config("Qwen3-8B")["num_hidden_layers"] = 1
    assert catalog.model_config("Qwen3-8B")["num_hidden_layers"] == 36


@pytest.mark.parametrize("asked, name", [("qwen3-8b", "Qwen3-8B"), (" Qwen3-8B ", "Qwen3-8B"),
                                         ("openai/gpt-oss-120b", "gpt-oss-120b"),
                                         ("deepseek-ai/deepseek-v3", "DeepSeek-V3")])
def test_a_model_answers_to_its_name_and_its_hub_id(asked, name):
    assert catalog.model_name(asked) == name


def test_an_unknown_model_is_named_with_close_ones():
    with pytest.raises(ConfigError) as error:
        catalog.model_config("Qwen3-7B")
    assert error.value.field == "model" and error.value.found == "Qwen3-7B"
    assert "Qwen3-8B" in str(error.value) and "\n" not in str(error.value)


def test_a_stranger_with_a_known_name_is_not_taken_for_it():
    with pytest.raises(ConfigError):
        catalog.model_name("somebody/Qwen3-8B")


# GPUs


def test_every_gpu_reports_close_to_what_its_name_says():
    cards = catalog.gpus()
    assert len(cards) == 48
    for card in cards.values():
        assert card.reported_low_gib <= card.reported_gib <= card.reported_high_gib
        assert card.total_bytes == round(card.reported_gib * GiB)
        assert 0.85 <= card.reported_gib / card.marketing_gb <= 1.0
        assert card.source and (card.compute_capability is not None) == (card.vendor == "NVIDIA")
    assert [name for name, card in cards.items() if card.unified] == [
        "GB10 (DGX Spark)", "Jetson AGX Thor 128GB", "Jetson AGX Orin 64GB", "Jetson AGX Orin 32GB"]
    assert cards["GB10 (DGX Spark)"].compute_capability == (12, 1)


@pytest.mark.parametrize("asked, name", [
    ("A100 80GB SXM", "A100 80GB SXM"), ("h200", "H200 SXM 141GB"), ("RTX 4090", "RTX 4090"), ("4090", "RTX 4090"),
    ("L40", "L40"), ("l40s", "L40S"), ("A10", "A10"), ("B200", "B200"), ("GB10", "GB10 (DGX Spark)"),
    ("DGX Spark", "GB10 (DGX Spark)"), ("NVIDIA H100 80GB HBM3", "H100 SXM 80GB"), ("H100 80 GB SXM", "H100 SXM 80GB"),
    ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"), ("Tesla T4", "T4"), ("NVIDIA GeForce RTX 5090", "RTX 5090"),
    ("AMD Instinct MI300X", "MI300X"), ("rtx pro 6000", "RTX PRO 6000 Blackwell 96GB")])
def test_a_gpu_answers_to_the_names_people_and_drivers_use(asked, name):
    assert catalog.gpu(asked).name == name


def test_every_gpu_answers_to_its_own_name():
    assert all(catalog.gpu(name) is card for name, card in catalog.gpus().items())


@pytest.mark.parametrize("asked, said", [
    ("A100", "A100 40GB PCIe, A100 40GB SXM, A100 80GB PCIe or A100 80GB SXM"), ("RTX 9090", "close names are"),
    ("", "no gpu ''"), ("toaster", "no gpu 'toaster'"), ("MI350X", "nobody has reported")])
def test_a_gpu_that_is_not_clear_is_one_sentence(asked, said):
    with pytest.raises(EngineError) as error:
        catalog.gpu(asked)
    assert error.value.flag == "gpu" and said in str(error.value) and "\n" not in str(error.value)


# Weights


def test_weights_are_measured_where_seen():
    seen = catalog.weights("Qwen3-8B")
    assert seen.kind == "measured" and seen.bytes == round(15.27 * GiB) and "GB10 note" in seen.source
    assert catalog.weights("Llama-3.1-8B", "bf16", 4).bytes == round(3.77 * GiB)
    assert catalog.weights("gpt-oss-120b").bytes == round(64.38 * GiB)
    assert "3 reports from 57.82 to 58.99" in catalog.weights("Gemma-4-31B").source


def test_weights_are_computed_where_not_seen():
    computed = catalog.weights("Llama-3.3-70B", "bfloat16", 2)
    assert (computed.kind, computed.bytes) == ("computed", 70_553_706_496)
    assert "70,553,706,496 published parameters × 2 B ÷ 2 GPUs" in computed.source
    assert catalog.weights("Qwen3-1.7B").bytes == 2 * (2_031_739_904 - 151_936 * 2_048)
    assert catalog.weights("Qwen3-235B-A22B", "int4").bytes == 235_093_634_560 // 2
    assert "MTP" in catalog.weights("DeepSeek-V3").source


def test_computed_weights_lie_close_to_the_measured_ones():
    """Where both exist for an unquantized model on one GPU, they agree within 8 % (a wrong row would show)."""
    compared = 0
    for row in catalog.table("weights_seen.csv"):
        name, dtype = row["catalog_name"], row["weight_dtype"]
        if not name or dtype not in ("bfloat16", "float16") or row["tensor_parallel_size"] != "1":
            continue
        source = catalog.model_config(name)["_source"]
        total = source["total_parameters_published"] - source.get("stored_not_loaded", 0)
        assert float(row["loaded_gib"]) * GiB == pytest.approx(2 * total, rel=0.08), name
        compared += 1
    assert compared >= 25


@pytest.mark.parametrize("name", catalog.models())
def test_weights_give_a_figure_or_one_sentence(name):
    try:
        assert catalog.weights(name).bytes > GiB // 2
    except ConfigError as error:
        assert "type what one launch prints" in str(error)


def test_an_unknown_dtype_is_named():
    with pytest.raises(ConfigError, match="'int3' are not known"):
        catalog.weights("Qwen3-8B", "int3")


# Reserve


def test_reserve_rows_are_ordered_and_accounted_for():
    rows = catalog.table("reserve_bands.csv")
    assert len({(row["term"], row["case"]) for row in rows}) == len(rows)
    assert {row["term"] for row in rows} == {"peak_activation_bytes", "non_torch_bytes", "cuda_graph_bytes"}
    for row in rows:
        assert row["basis"] in ("seen", "fit", "guess") and row["source"]
        if row["case"] != "since_028":  # its upper end is that of the older releases
            assert float(row["low"]) <= float(row["typical"]) <= float(row["high"])
        assert int(row["rows"]) > 0 or row["basis"] == "guess"


def test_reserve_reports_are_all_there():
    kinds = [row["kind"] for row in catalog.table("reserve.csv")]
    assert (kinds.count("log"), kinds.count("table"), kinds.count("constant")) == (120, 8, 18)


# Logs


def test_every_log_is_indexed_and_can_be_read():
    on_disk = {path.relative_to(DATA / "logs").with_suffix("").as_posix() for path in (DATA / "logs").rglob("*.log")}
    assert on_disk == set(catalog.logs()) and len(on_disk) == 22
    for name in catalog.logs():
        facts = catalog.log_facts(name)
        assert catalog.log_text(name).endswith("\n")
        assert facts["origin"].split(",")[0] in ("measured", "illustrative")
        for column in ("config", "truth"):
            if facts[column].endswith(".json"):
                json.loads((DATA / facts[column]).read_text(encoding="utf-8"))


def test_a_real_log_prints_what_its_engine_held():
    checked = 0
    for name in catalog.logs():
        if not name.startswith("real/"):
            continue
        truth = json.loads((DATA / catalog.log_facts(name)["truth"]).read_text(encoding="utf-8"))
        if "kv_cache_size_tokens" in truth:
            assert f"KV cache size: {truth['kv_cache_size_tokens']:,} tokens" in catalog.log_text(name)
            checked += 1
    assert checked == 15


def test_the_notes_logs_say_what_the_notes_print():
    for name, row in {"qwen3-8b-gb10": "A39", "qwen3.8-27b-hybrid": "B02"}.items():
        assert f"KV cache size: {catalog.note_row(row)['printed']} tokens" in catalog.log_text(name)


def test_an_unknown_log_is_a_key_error():
    with pytest.raises(KeyError):
        catalog.log_text("../README.md")


# The folder


def test_readme_lists_every_file():
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    patterns = {cell.strip("` ") for cell in re.findall(r"^\| (`[^`]+`) \|", readme, re.MULTILINE)}
    for path in sorted(DATA.rglob("*")):
        if path.is_file():
            name = path.relative_to(DATA).as_posix()
            folder, _, rest = name.rpartition("/")
            assert name in patterns or f"{folder}/*.{rest.rsplit('.', 1)[-1]}" in patterns, name
    for name in catalog.models():
        assert re.search(rf"(: |, ){re.escape(name)}(,|$)", readme, re.MULTILINE), name


def test_readme_counts_what_it_lists():
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    for file, count in re.findall(r"^\| `([\w./-]+\.csv)` \| (\d+) \|", readme, re.MULTILINE):
        assert len(catalog.table(file)) == int(count), file
    for pattern, count in re.findall(r"^\| `([\w./-]+\*\.\w+)` \| (\d+) \|", readme, re.MULTILINE):
        assert len(list(DATA.glob(pattern))) == int(count), pattern


@pytest.mark.parametrize("path", TEXT_FILES, ids=lambda path: path.relative_to(DATA).as_posix())
def test_no_machine_path_and_no_registry_host(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.-])/(work|root|home|tmp|mnt|Users|private|opt)/", text)
    assert not re.search(r"pypi\.org|pythonhosted|huggingface\.co|conda\.anaconda|registry\.npmjs|\bshared/", text)
