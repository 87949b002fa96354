"""The controls of the hybrid lesson: what they say, show and draw is what kvlib works out, and none is dull."""
import json
import math
import re

import pytest

pytest.importorskip("ipywidgets")

import kvlib  # noqa: E402
from kvlib import Engine, catalog, controls  # noqa: E402
from kvlib.inputs import Choice, Number, Rows, Toggle  # noqa: E402
from kvlib.live import clean_rows  # noqa: E402
from kvlib.panels import hybrid_sizes, hybrid_tenants  # noqa: E402
from kvlib.panels.drawing import LAYERS  # noqa: E402
from kvlib.panels.hybrid_block_pool import (  # noqa: E402
    Groups, LayersOfAModel, LengthTable, OnePage, SizeAgainstLength, StateByVersion, TwoTenants,
)
from kvlib.panels.hybrid_pictures import layer_pattern, unit_length  # noqa: E402
from kvlib.charts import COLOURS  # noqa: E402
from kvlib.panels.hybrid_setups import A100, AVAILABLE, H100, MODEL, last_version, launch, mixed, readable  # noqa: E402
from kvlib.tables import as_text  # noqa: E402
from kvlib.units import GiB, cdiv  # noqa: E402

PANELS = (LayersOfAModel, OnePage, Groups, TwoTenants, SizeAgainstLength, LengthTable, StateByVersion)


@pytest.fixture(autouse=True)
def fresh_kernel(monkeypatch):
    monkeypatch.setenv("KVLIB_STRICT", "1")
    controls.forget()
    yield
    controls.forget()


def sized(**flags):
    """The launch of the log, as a reader of kvlib would write it."""
    asked = {"gpu": "A100 80GB SXM", "tensor_parallel_size": 2, "kv_cache_dtype": "fp8", "max_model_len": 132_096} | flags
    return kvlib.size(kvlib.load_model("Qwen3.8-27B"), Engine(**asked), available_bytes=round(52.89 * GiB))


def picture(panel):
    return json.dumps(clean_rows(panel.view.rows), sort_keys=True)


def plain(text):
    return re.sub(r"<[^>]+>", "", str(text))


def table_rows(panel):
    """The cells of a panel's table as text, without header and footer."""
    shown = panel.view.table
    return [[plain(c.cell(row.get(c.key))) for c in shown.columns] for row in shown.rows]


# no dull control


def travel(field):
    """The values along a control."""
    if isinstance(field, Rows):
        return [[{"max_model_len": length}] for length in (1_024, 4_096, 8_192, 50_000, 262_144)]
    if isinstance(field, Choice):
        return list(field.options)
    if isinstance(field, Toggle):
        return [True, False]
    stops = field.stops()
    if stops:
        return stops
    count = round((field.max - field.min) / field.step)
    return [field.min + i * field.step for i in range(0, count + 1, max(1, count // 9))]


@pytest.mark.parametrize("panel, name", [(p, i.name) for p in PANELS for i in p.inputs],
                         ids=[f"{p.__name__}-{i.name}" for p in PANELS for i in p.inputs])
def test_each_control_moves_the_picture(panel, name):
    made = panel()
    field = made._inputs[name]
    pictures, refused, values = set(), 0, travel(field)
    for value in values:
        made.set(**{name: value})
        refused += bool(made.error)
        if not made.error:
            pictures.add(picture(made))
    assert refused <= len(values) / 2
    wanted = len(values) - refused if isinstance(field, Toggle) or len(values) < 5 else 5
    if panel is Groups and name == "tensor_parallel_size":
        wanted = 2  # past the KV heads the groups ask for as many blocks as before
    assert len(pictures) >= wanted, f"{len(pictures)} pictures over {len(values)} values"


@pytest.mark.parametrize("panel", PANELS, ids=lambda p: p.__name__)
def test_bad_text_gets_one_sentence_and_keeps_the_picture(panel):
    made = panel()
    for field in panel.inputs:
        if not isinstance(field, Number):
            continue
        before = picture(made)
        for text in ("abc", "", "-1", "1e999", "99999999999"):
            made.set(**{field.name: text})
            assert made.error.startswith(f"{field.label}: found ") and made.error.count(". ") == 0
            assert made.error.endswith(".") and picture(made) == before
            assert made.raw[field.name] == text
        made.set(**{field.name: field.default})
        assert not made.error


# layers


@pytest.mark.parametrize("name", list(readable()))
def test_every_model_of_the_catalogue_has_its_strip(name):
    panel = LayersOfAModel()
    panel.set(model=name)
    assert not panel.error
    model = readable()[name]
    cells = [box for box in panel.view.rows["layers"] if box["tip"].startswith("layer ")]
    letters = "".join(LAYERS[part][0] for layer in model.layers for part in layer.kind.split("+"))
    assert len(cells) == sum(len(layer.kind.split("+")) for layer in model.layers)
    said = [word["text"] for word in panel.view.rows["layers_words"] if len(word["text"]) == 1 and word["size"] < 10]
    assert "".join(said) == letters
    assert len(model.layers) <= 3 * 44, "the strip has three lines"
    for row in panel.view.rows["share"]:
        assert -1e-9 <= row["low"] <= row["high"] <= 100 + 1e-9


def test_what_a_sequence_keeps():
    panel = LayersOfAModel()
    panel.set(tokens=4_698)
    (_, gdn, _, _, share), (_, full, _, _, other) = table_rows(panel)
    assert (gdn, full) == ("48", "16") and (share, other) == ("50.0", "50.0")
    assert 48 * (3 * 2**20 + 60 * 2**10) / 2**20 == float(catalog.note_row("B09")["exact"])
    assert "147 MiB" in plain(panel.view.answer)
    panel.set(model="Qwen3-8B", kv_cache_dtype="BF16", tokens=1_000)
    per_token = kvlib.bytes_per_token(kvlib.load_model("Qwen3-8B"))
    assert controls.gib(1_000 * per_token) in plain(panel.view.answer)
    assert panel.predict.answer == 4_698
    panel.record("4700")
    assert "close" in panel.predict.verdict(panel.guess, True)
    assert panel.view.rows["guess"] == [{"tokens": 4_700, "label": "your guess"}]


def test_figure_1_is_drawn_from_the_config():
    drawn = layer_pattern(kvlib.load_model("Qwen3.8-27B"))
    assert unit_length(MODEL) == 4
    assert "64 layers in units of 4, 3 Gated DeltaNet and one full attention" in drawn.alt
    assert "147 MiB a sequence" in drawn.alt and "32 KiB a token" in drawn.alt
    words = [row["text"] for row in drawn.spec["datasets"]["drawing_words"]]
    assert words.count("G") == 48 and words.count("F") == 16
    assert {"3 MiB recurrent state", "60 KiB convolution state", "2 KiB a token",
            "4 KV heads × 256 × 2 = 2,048"} <= set(words)


# one page


@pytest.mark.parametrize("state, block, bytes_", [
    ({}, 1568, (1_603_584, 1_024, 1_605_632, 2_048, 25_690_112)),
    ({"kv_cache_dtype": "BF16"}, 784, (1_603_584, 2_048, 1_605_632, 2_048, 25_690_112)),
    ({"num_speculative_tokens": 3}, 1600, (1_634_304, 1_024, 1_638_400, 4_096, 27_852_800)),
    ({"num_speculative_tokens": 3, "kv_cache_dtype": "BF16"}, 800, (1_634_304, 2_048, 1_638_400, 4_096, 27_852_800)),
    ({"tensor_parallel_size": "4"}, 1568, (801_792, 512, 802_816, 1_024, 12_845_056)),
    ({"tensor_parallel_size": "8"}, 784, (400_896, 512, 401_408, 512, 6_422_528)),
    ({"gpu": "H100"}, 1600, (1_603_584, 1_024, 1_638_400, 34_816, 26_214_400)),
    ({"gpu": "H100", "enable_prefix_caching": False}, 1568, (1_603_584, 1_024, 1_605_632, 2_048, 25_690_112)),
])
def test_table_1(state, block, bytes_):
    panel = OnePage()
    panel.set(**state)
    assert tuple(int(row[2].replace(",", "")) for row in table_rows(panel)) == bytes_
    assert f"A block is {block:,} tokens" in plain(panel.view.answer)
    last = [word for word in panel.view.rows["steps_words"] if word["weight"] == "bold"][1]
    assert last["text"] == f"{block:,}"
    ends = {row["end"] for row in panel.view.rows["page"]}
    assert max(ends) == bytes_[2] / 1024 and bytes_[0] / 1024 in ends
    dtype = "bfloat16" if state.get("kv_cache_dtype") == "BF16" else "fp8"
    drafts = state.get("num_speculative_tokens", 0)
    mtp = {"speculative_method": "mtp", "num_speculative_tokens": drafts} if drafts else {}
    own = sized(tensor_parallel_size=int(state.get("tensor_parallel_size", 2)), kv_cache_dtype=dtype,
                gpu="H100 SXM" if state.get("gpu") else "A100 80GB SXM",
                enable_prefix_caching=state.get("enable_prefix_caching", True), **mtp)
    assert (own.block_size, own.bytes_per_block) == (block, bytes_[4])


def test_a_block_one_step_shorter_is_too_small():
    panel = OnePage()
    for tp in "1248":
        for dtype in ("BF16", "FP8"):
            for gpu in ("A100", "H100"):
                panel.set(tensor_parallel_size=tp, kv_cache_dtype=dtype, gpu=gpu)
                words = [w["text"] for w in panel.view.rows["steps_words"]]
                assert sum(w.endswith(" short") for w in words) == 3 and sum(w.endswith("of padding") for w in words) == 1


# groups


@pytest.mark.parametrize("name", list(mixed()))
def test_the_groups_of_every_mixed_model(name):
    panel = Groups()
    panel.set(model=name, tensor_parallel_size="1")
    assert not panel.error
    model = mixed()[name]
    own = launch(model, tensor_parallel_size=1, max_model_len=32_768, vllm_version=last_version(model))
    longest = max(group.layers for group in own.groups)
    rows = table_rows(panel)
    assert len(rows) == len(own.groups) > 1
    assert sum(int(row[2]) for row in rows) == sum(model.kinds.values())
    pages = [box for box in panel.view.rows["groups"] if box["tip"]]
    assert len(pages) == len(rows) * longest
    assert f"{len(rows)} groups" in plain(panel.view.answer)


def test_groups_as_the_log_lists_them():
    assert tuple(group.block_size for group in launch().groups) == (1568, 1568, 1568, 1568)
    panel = Groups()
    assert [row[2:4] for row in table_rows(panel)] == [["16", "1,568"]] * 4
    assert panel.predict.answer == 10
    panel.set(model="Granite-4.0-H-Small")
    assert plain(panel.view.answer).startswith("10 groups of up to 4 layers")


# one pool


@pytest.mark.parametrize("caching, blocks", [(True, 6), (False, 3)])
@pytest.mark.parametrize("tokens", [1, 100, 1_568, 1_569, 60_000, 132_096])
def test_what_a_sequence_holds(tokens, caching, blocks):
    assert hybrid_tenants.held(tokens, caching) == (cdiv(tokens, 1_568), blocks)
    own = sized(max_model_len=tokens, enable_prefix_caching=caching)
    assert sum(hybrid_tenants.held(tokens, caching)) == own.blocks_per_request


@pytest.mark.parametrize("state", [{}, {"a": 0, "b": 0, "chats": 40, "each": 100}, {"a": 0, "b": 0, "chats": 0},
                                   {"a": 1_000_000}, {"enable_prefix_caching": False, "chats": 40}])
def test_cells_sentence_and_table_of_the_pool_agree(state):
    panel = TwoTenants()
    panel.set(**state)
    cells = panel.view.rows["pool"]
    assert len(cells) == hybrid_tenants.POOL
    states, tokens = (sum(cell["colour"] == COLOURS[meaning] for cell in cells) for meaning in ("state", "kv"))
    rows = [row for row in table_rows(panel) if row[0] != "none"]
    number = [[int(cell.replace(",", "")) for cell in (row[2], row[3], row[6])] for row in rows]
    assert states == sum(fixed * running for _, fixed, running in number)
    assert tokens == sum(grown * running for grown, _, running in number)
    assert f"{tokens} hold tokens, {states} hold states" in panel.view.description
    if states:
        assert f"{tokens} with tokens, {states} with states" in plain(panel.view.answer)


def test_how_many_chats_the_pool_holds():
    panel = TwoTenants()
    assert panel.predict.answer == 34
    panel.set(a=0, b=0, chats=40, each=100)
    assert "34 sequences run" in plain(panel.view.answer) and "6 more must wait" in plain(panel.view.answer)
    panel.record("100")
    assert panel.view.rows["guess"] == []  # beyond the pool
    panel.record("30")
    assert len(panel.view.rows["guess"]) == 1


# the printed size


@pytest.mark.parametrize("row_id", ["B50", "B51", "B52", "B53"])
def test_table_2(row_id):
    blocks, concurrency, printed = catalog.note_row(row_id)["exact"].split()
    length = {v: k for k, v in hybrid_sizes.NOTE_ROWS.items()}[row_id]
    panel = LengthTable()
    row = next(row for row in table_rows(panel) if row[0] == f"{length:,}")
    assert row[1].endswith(f"= {blocks}") and math.isclose(float(row[2]), float(concurrency), abs_tol=0.005)
    assert int(row[3].replace(",", "")) == int(printed) == sized(max_model_len=length).kv_cache_tokens
    assert "4 of 4 rows reproduced" in as_text(panel.view.table)


def test_the_pool_is_printed_tokens_unfilled_ends_and_states():
    panel = LengthTable()
    for state in ({}, {"groups": 0}, {"groups": 8}, {"enable_prefix_caching": False}, {"num_gpu_blocks": 4_400}):
        panel.set(**state)
        slots = panel.values.num_gpu_blocks * 1_568 / 1e6
        for line in range(4):
            parts = [bar for bar in panel.view.rows["split"] if bar["line"] == line]
            assert math.isclose(sum(bar["end"] - bar["start"] for bar in parts), slots)
            printed = int(table_rows(panel)[line][3].replace(",", ""))
            assert math.isclose(parts[0]["end"], printed / 1e6)
        assert ("reproduced" in as_text(panel.view.table)) == (not state)
        panel.reset()


def test_without_states_the_size_does_not_move():
    panel = LengthTable()
    panel.set(groups=0, lengths=[{"max_model_len": 1_568 * n} for n in (1, 3, 20, 150)])
    assert {row[3] for row in table_rows(panel)} == {"3,465,280"}


def test_a_pool_too_small_for_the_length_is_refused_in_its_row():
    panel = LengthTable()
    panel.set(num_gpu_blocks=50)
    assert [row[3] for row in table_rows(panel)][2:] == ["refused", "refused"]
    panel.set(num_gpu_blocks=5)
    assert "too few" in plain(panel.view.answer)
    panel.set(num_gpu_blocks=210)
    assert "max_num_seqs 256 is more than the 210 blocks" in plain(panel.view.note)


def test_the_guess_about_prefix_caching():
    panel = LengthTable()
    assert panel.predict.answer == 2_011_591
    panel.set(enable_prefix_caching=False)
    assert table_rows(panel)[0][3] == "2,011,591"


@pytest.mark.parametrize("state, flags", [
    ({}, {}), ({"kv_cache_dtype": "BF16"}, {"kv_cache_dtype": "bfloat16"}),
    ({"enable_prefix_caching": False}, {"enable_prefix_caching": False}),
    ({"num_speculative_tokens": 3}, {"speculative_method": "mtp", "num_speculative_tokens": 3}),
])
def test_the_curve_is_what_kvlib_prints(state, flags):
    panel = SizeAgainstLength()
    panel.set(**state)
    lines = [row for row in panel.view.rows["lines"] if row["series"] == "hybrid"]
    for row in lines[::5]:
        assert row["printed"] * 1e6 == pytest.approx(sized(max_model_len=row["tokens"], **flags).kv_cache_tokens)
    own = sized(**flags)
    assert f"{own.kv_cache_tokens:,}" in plain(panel.view.answer)
    slots = own.num_gpu_blocks * own.block_size
    full = [row["printed"] * 1e6 for row in panel.view.rows["lines"] if row["series"] == "full"]
    assert full == pytest.approx([slots, slots])
    assert table_rows(panel)[0][5] == f"{own.kv_cache_tokens:,}"


def test_the_extra_charge_and_the_asymptote():
    panel = SizeAgainstLength()
    assert panel.predict.answer == 9_408 == int(catalog.note_row("B54")["exact"])
    panel.set(max_model_len=9_408)
    assert "50.0 %" in plain(panel.view.answer)
    assert catalog.note_row("B55")["exact"] == "3465280" and "3,465,280 slots" in plain(panel.view.answer)


def test_refused_and_stopped_launches_say_so():
    panel = SizeAgainstLength()
    panel.set(available_gib=1)
    assert plain(panel.view.answer).startswith("Refused: a request of 132,096 tokens needs 91 of 41 blocks")
    own = kvlib.size(MODEL, launch().engine, available_bytes=GiB)
    assert f"{own.estimated_max_model_len:,} would pass" in plain(panel.view.answer)
    panel.set(available_gib=5)
    assert "and then stops: max_num_seqs 256" in plain(panel.view.answer)


# by version


@pytest.mark.parametrize("version, gpu, each, printed", [
    ("0.20.0", A100, 2, 865_536), ("0.28", A100, 2, 3_208_045), ("0.33", A100, 2, 3_208_045),
    ("0.32", H100, 2, 3_208_045), ("0.33", H100, 3, 3_109_999),
])
def test_two_blocks_a_group_is_not_for_ever(version, gpu, each, printed):
    panel = StateByVersion()
    panel.set(gpu="H100" if gpu is H100 else "A100")
    row = next(row for row in table_rows(panel) if row[0] == version)
    assert (int(row[1]), int(row[6].replace(",", ""))) == (each, printed)
    assert sum(bar["version"] == version for bar in panel.view.rows["state"]) == each
    own = sized(vllm_version=version, gpu=gpu)
    assert (own.groups[0].blocks_per_request, own.kv_cache_tokens) == (each, printed)


@pytest.mark.parametrize("name, since", [("Granite-4.0-H-Small", "0.32"), ("Nemotron-H-8B", "0.32")])
def test_mamba_2_keeps_three_since_032(name, since):
    panel = StateByVersion()
    panel.set(model=name)
    assert [int(row[1]) for row in table_rows(panel)] == [2, 2, 2, 3, 3]
    panel.set(num_speculative_tokens=2)
    assert [int(row[1]) for row in table_rows(panel)] == [4, 4, 4, 5, 5]
    panel.set(enable_prefix_caching=False)
    assert [int(row[1]) for row in table_rows(panel)] == [3, 3, 3, 3, 3]


def test_mtp_as_the_lesson_says():
    own = sized(speculative_method="mtp", num_speculative_tokens=3)
    assert (own.bytes_per_block, own.num_gpu_blocks, own.blocks_per_request, own.kv_cache_tokens) == (
        27_852_800, 2_038, 98, 2_747_057)


# questions


@pytest.mark.parametrize("panel", PANELS, ids=lambda p: p.__name__)
def test_a_guess_is_drawn_and_the_answer_does_not_stand_above_it(panel):
    made = panel()
    answer = made.predict.answer
    shown = plain(made.view.answer)
    figures = {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", shown)}
    if panel is not OnePage:  # there the question itself gives the figure, for another number of GPUs
        assert answer not in figures
    made.record(str(answer))
    assert made.view.rows["guess"], "the guess is in the picture"
    assert made.predict.verdict(made.guess, False)


def test_the_pool_of_the_log():
    assert AVAILABLE == round(52.89 * GiB)
    assert {launch(available_bytes=math.floor(gib * GiB)).num_gpu_blocks for gib in (52.885, 52.89, 52.895)} == {2_210}
