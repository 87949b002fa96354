"""The five formulas by hand, and the slips behind what named tools answered (data/peers.csv)."""
import pytest

import kvlib
from kvlib import Engine, catalog, formulas, load_model
from kvlib.errors import ConfigError, SizingError
from kvlib.formulas import FORMULAS, counted, ours
from kvlib.slips import diagnose, read_bytes

MIB = 1 << 20
PEERS = catalog.table("peers.csv")
TIMES = {"half": 0.5, "mxfp4_width": 17 / 64}  # 4.25 bits of the 16


def by_hand(layers, heads, head_dim, width=2):
    return 2 * layers * heads * head_dim * width


# config.json of each: layers, KV heads, attention heads, head_dim, hidden_size
@pytest.mark.parametrize("formula, model, expected", [
    ("ours", "Qwen3-8B", by_hand(36, 8, 128)), ("ours", "Qwen3-30B-A3B", by_hand(48, 4, 128)),
    ("ours", "gpt-oss-120b", by_hand(18, 8, 64)), ("ours", "DeepSeek-V3", 61 * (512 + 64) * 2),
    ("ours", "DeepSeek-V3.2", 61 * (512 + 64) * 2 + 61 * (128 + 4)), ("ours", "Qwen3.5-27B", by_hand(16, 4, 256)),
    ("ours", "Gemma-4-31B", by_hand(10, 4, 512)), ("ours", "Nemotron-3-Nano-30B-A3B", by_hand(6, 2, 128)),
    ("attention_heads", "Qwen3-8B", by_hand(36, 32, 128)), ("attention_heads", "gpt-oss-120b", by_hand(18, 64, 64)),
    ("attention_heads", "Qwen3.5-27B", by_hand(16, 24, 256)), ("attention_heads", "DeepSeek-V3", 70_272),
    ("hidden_over_heads", "Qwen3-30B-A3B", by_hand(48, 4, 2048 // 32)), ("hidden_over_heads", "Qwen3-8B", 147_456),
    ("hidden_over_heads", "gpt-oss-120b", by_hand(18, 8, 2880 // 64)),
    ("mla_as_heads", "DeepSeek-V3", by_hand(61, 128, 7168 // 128)), ("mla_as_heads", "Qwen3-8B", 147_456),
    ("every_layer", "gpt-oss-120b", by_hand(36, 8, 64)), ("every_layer", "Qwen3.5-27B", by_hand(64, 4, 256)),
    ("every_layer", "Gemma-4-31B", by_hand(60, 16, 256)), ("every_layer", "Nemotron-3-Nano-30B-A3B", by_hand(52, 2, 128)),
    ("every_layer", "DeepSeek-V3", 70_272), ("every_layer", "Qwen3-8B", 147_456)])
def test_a_token_by_hand(formula, model, expected):
    assert FORMULAS[formula](model).per_token == expected


@pytest.mark.parametrize("model, fixed", [
    ("Qwen3-8B", 0), ("gpt-oss-120b", 18 * 2 * 8 * 64 * 2 * 128), ("Gemma-4-31B", 800 * MIB), ("Qwen3.5-27B", 153_944_064)])
def test_what_stops_growing(model, fixed):
    assert ours(model).fixed == fixed


def test_a_request():
    assert ours("gpt-oss-120b").bytes(100) == 100 * 73_728            # inside the window both halves grow
    assert ours("gpt-oss-120b").bytes(32_768) == 32_768 * 36_864 + 4_718_592
    assert formulas.every_layer("gpt-oss-120b").bytes(32_768) == 32_768 * 73_728
    assert ours("Qwen3.5-27B").bytes(1) == 154_009_600                # the 880-KiB kind of figure: a state and one token
    assert ours("Gemma-4-31B").bytes(1) == 901_120


def test_fp8_halves_the_cache_and_not_the_state():
    assert ours("Qwen3.5-27B", "fp8").per_token == 32_768
    assert ours("Qwen3.5-27B", "fp8").fixed == 153_944_064


def test_the_working_says_its_numbers():
    assert ours("Qwen3-8B").working == "36 layers × 8 heads × 2 × 128 × 2 B"
    assert ours("DeepSeek-V3").working == "61 layers × (512 + 64) × 2 B"


@pytest.mark.parametrize("name", ["Qwen3-8B", "MiMo-V2-Flash", "Llama-4-Scout", "Kimi-Linear-48B-A3B", "Falcon-H1-7B", "LFM2-1.2B"])
def test_ours_is_kvlibs(name):
    model = load_model(name)
    assert ours(model).per_token == kvlib.bytes_per_token(model, Engine(vllm_version="0.23"))


def test_what_a_formula_cannot_read_is_said():
    with pytest.raises(ConfigError, match="no slip 'heads'"):
        counted("Qwen3-8B", ("heads",))
    by_hand_only = kvlib.from_layers([dict(kind="full", count=2, num_kv_heads=8, head_dim=128)])
    with pytest.raises(ConfigError, match="reads num_attention_heads, and the config has none"):
        formulas.attention_heads(by_hand_only)


# What tools answered

@pytest.mark.parametrize("row", [row for row in PEERS if row["unit"] == "B/token" and row["times_vllm"]],
                         ids=lambda row: f"{row['tool']}-{row['model']}")
def test_the_slips_named_give_the_figure(row):
    right = counted(row["model"])
    assert right.per_token == int(row["vllm_figure"])
    slips = [slip for slip in row["slips"].split() if slip in formulas.WORDS]
    figure = counted(row["model"], tuple(slips)).per_token
    for word in set(row["slips"].split()) - set(slips) - {"first_token"}:
        figure *= TIMES[word]
    if row["slips"] == "first_token":
        figure = right.bytes(1)
    if row["their_figure"]:
        assert figure == int(row["their_figure"])
    digits = len(row["times_vllm"].partition(".")[2])
    assert abs(figure / right.per_token - float(row["times_vllm"])) <= 0.5001 * 10 ** -digits


@pytest.mark.parametrize("row", [row for row in PEERS if row["unit"] == "B/token" and row["their_figure"]],
                         ids=lambda row: f"{row['tool']}-{row['model']}-{row['their_figure']}")
def test_the_diagnosis_finds_what_was_found_by_hand(row):
    found = diagnose(row["model"], row["their_figure"])
    if not row["slips"]:
        assert found.agrees.startswith("this is what one more token costs")
        return
    wanted = set(row["slips"].split())
    for cause in found.causes:
        said = set(cause.slips) | ({"first_token"} if cause.first_token else set())
        if cause.factor is not None:
            said |= {word for word, times in TIMES.items() if times == cause.factor.times}
        if said == wanted:
            break
    else:
        raise AssertionError(found.sentence)


def test_the_tools_pool_and_the_hybrid_gap():
    """llm-d-planner's blocks are TP times too many; kvfit leaves out vLLM's padding, second state and whole blocks."""
    (pool,) = [row for row in PEERS if row["unit"] == "blocks"]
    assert int(pool["their_figure"]) // 4 == int(pool["vllm_figure"])
    for row in (row for row in PEERS if row["unit"] == "requests"):
        tokens = int(row["setting"].split(", ")[-1].split()[0].replace(",", ""))
        sizing = kvlib.size(load_model("Qwen3.8-27B"), Engine(tensor_parallel_size=2, kv_cache_dtype="fp8", max_model_len=tokens,
                                                              gpu="A100 80GB SXM"), available_bytes=round(52.89 * 2**30))
        assert f"{sizing.max_concurrency:.2f}" == row["vllm_figure"]
        states = 153_944_064 // 2 - 1_474_560 // 2              # on each GPU; the convolution states counted in FP8
        assert f"{52.89 * 2**30 / (tokens * 16_384 + states):.2f}" == row["their_figure"]


def test_every_row_says_where_it_comes_from():
    for row in PEERS:
        assert row["version"] and row["date"] == "2026-11-29" and row["source"] and row["setting"]
        assert row["said"] in ("figure", "refuses", "needs the network", "error", "crash")
        assert bool(row["times_vllm"]) == (row["said"] == "figure")


# The diagnosis

@pytest.mark.parametrize("text, value, miss", [
    ("49,152", 49_152, 24.576), ("48 KiB", 49_152, 512), ("0.05 MB", 50_000, 5_000), ("1.00 GiB/token", 1 << 30, 0.005 * 2**30),
    (70_272, 70_272, 35.136)])
def test_reading_a_figure(text, value, miss):
    assert read_bytes(text) == (value, pytest.approx(miss))


@pytest.mark.parametrize("text", ["", "many", "-3", "0", "1e400", "12 apples", "48 KiB MiB", None, "9" * 400])
def test_a_figure_that_is_none(text):
    with pytest.raises(SizingError, match="write it as 49,152 or 48 KiB"):
        diagnose("Qwen3-8B", text)


@pytest.mark.parametrize("tokens", [0, -1, 2.5, True, "8k", 1 << 40])
def test_a_length_that_is_none(tokens):
    with pytest.raises(SizingError, match="tokens is"):
        diagnose("Qwen3-8B", 147_456, tokens=tokens)


def test_a_figure_for_a_length():
    assert "18,432" not in diagnose("Qwen3-8B", "18 GiB", tokens=32_768).sentence
    assert diagnose("Qwen3-8B", "18 GiB", tokens=32_768).causes[0].slips == ("attention_heads",)
    assert diagnose("gpt-oss-120b", "1.13 GiB", tokens=32_768).agrees
    # 8,192 tokens: (512 blocks + 513 of the window) × 18 layers × 16 × 2,048 B
    whole = diagnose("gpt-oss-120b", str(1_025 * 18 * 16 * 2_048), tokens=8_192)
    assert whole.agrees.startswith("this is what vLLM reserves") and whole.reserved == 604_569_600


def test_two_explanations_are_both_told_and_a_model_that_parts_them():
    found = diagnose("Qwen3-30B-A3B", 49_152)
    assert len(found.causes) == 2 and "Put Qwen3-8B to your tool" in found.sentence
    assert "147,456 or 73,728" in found.sentence


def test_what_nothing_explains_is_not_explained_away():
    found = diagnose("Qwen3-8B", "100 KiB")
    assert not found.causes and not found.agrees and "None of the slips tried" in found.sentence
