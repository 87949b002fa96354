"""The panels of notebook 02, without a browser: what they say, show and table is what kvlib answers."""

import html
import re
import time

import pytest

import kvlib
from kvlib import Band, Engine, MemoryBudget, catalog, controls
from kvlib.memory import TERMS, requested_bytes
from kvlib.panels import memory_budget as calculator
from kvlib.panels.budget_facts import (
    GB10, LOADED_OVER_COMPUTED, VERSION, WIDTHS, agreement, ends, gb10_at, gb10_pool, judge, most_taken, step, taken,
    weights_of,
)
from kvlib.panels.memory_budget import ASSUMED, OWN, STARTS, TYPED, Calculator
from kvlib.panels.memory_gotchas import OtherProcesses, TwoServers, UnifiedMemory, UtilizationStep, server
from kvlib.panels.own_log import own_log
from kvlib.tables import Table
from kvlib.units import GiB, gib

PANELS = (Calculator, OtherProcesses, UnifiedMemory, UtilizationStep, TwoServers)


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setenv("KVLIB_STRICT", "1")
    controls.forget()
    yield
    controls.forget()


def plain(text):
    return html.unescape(re.sub(r"<[^>]+>", "", str(text))).strip()


def answer(panel):
    return plain(panel.view.answer)


def cells(panel, column="figure"):
    """The first table of a panel: its first column, and one other."""
    shown = panel.view.table
    return {plain(row[shown.columns[0].key]): plain(shown.columns[[c.key for c in shown.columns].index(column)]
                                                     .cell(row[column])) for row in shown.rows}


def drawn(panel):
    """What the picture shows, as something to compare."""
    rows = panel.view.rows
    return repr({name: [{k: v for k, v in row.items() if k != "figure"} for row in table]
                 for name, table in rows.items()}) + repr(panel.view.chart)


# The calculator


def test_it_opens_on_the_launch_with_the_reserve_of_the_note():
    panel = Calculator()
    memory = MemoryBudget(gib(121.63), gib(15.27), non_torch_bytes=gib(3))
    expected = kvlib.size(kvlib.load_model("Qwen3-8B"), Engine(vllm_version="0.28", gpu=GB10, max_model_len=40_960,
                                                              gpu_memory_utilization=0.92), memory=memory)
    assert (panel.values.model, panel.values.total_gib, panel.values.reserve_gib) == ("Qwen3-8B", 121.63, 3.0)
    assert f"{expected.kv_cache_tokens:,} tokens, {expected.max_concurrency:.2f} requests of 40,960" in answer(panel)
    assert "passes vLLM's memory checks" in answer(panel)
    assert cells(panel)["= KV cache"] == f"{expected.available_bytes / GiB:.2f} GiB"
    bar = {row["name"]: row["figure"] for row in panel.view.rows["bar"]}
    assert bar["KV cache"] == f"{expected.available_bytes / GiB:.2f} GiB" and bar["reserve"] == "3.00 GiB typed"
    assert panel.view.rows["span"][0]["end"] == pytest.approx(expected.max_concurrency)


def test_the_reserve_of_the_log_gives_the_figure_told_in_the_text():
    panel = Calculator()
    panel.set(reserve_gib="3.02")
    assert answer(panel).startswith("681,632 tokens") and panel.values.start == OWN


@pytest.mark.parametrize("start, said", [
    ("1 · 8,192 tokens", "83.22 requests of 8,192"), ("2 · FP8 cache", "33.29 requests of 40,960")])
def test_the_first_two_suggestions_keep_the_typed_reserve(start, said):
    panel = Calculator()
    panel.set(start=start)
    assert said in answer(panel) and panel.values.reserve_from == TYPED and panel.values.start == start


def test_the_third_suggestion_is_a_range_that_names_what_settles_it():
    panel = Calculator()
    panel.set(start="3 · gpt-oss-120b")
    low, typical, high = calculator.asked_for_gpt_oss()
    assert panel.values.reserve_from == ASSUMED and panel.values.model == "gpt-oss-120b"
    assert answer(panel).startswith("About 645,000 to 983,000 tokens") and "one launch tells" in answer(panel)
    assert (low.kv_cache_tokens, high.kv_cache_tokens) == (644_780, 983_051)
    assert cells(panel)["− weights"] == "64.38 GiB"
    assert low.max_concurrency < panel.predict.answer == typical.max_concurrency < high.max_concurrency


def test_back_to_the_first_start_is_the_opening_again():
    panel = Calculator()
    first = answer(panel)
    panel.set(gpu="L4 · 22.03 GiB")
    panel.set(model="Llama-3.1-8B")
    assert answer(panel) != first
    panel.set(start="the GB10 run")
    assert answer(panel) == first


@pytest.mark.parametrize("change", [
    {"model": "Llama-3.1-8B"}, {"tensor_parallel_size": 2}, {"gpu": "H100 SXM 80GB · 79.19 GiB"}, {"total_gib": 96.0}])
def test_a_reserve_measured_elsewhere_never_stands_for_something_else(change):
    panel = Calculator()
    panel.set(**change)
    assert panel.values.reserve_from == ASSUMED and panel.values.start == OWN
    assert "About" in answer(panel) or "Refused" in answer(panel)
    assert not re.match(r"[\d,]+ tokens", answer(panel))
    assert "− runtime reserve" not in cells(panel) and "− non-torch memory" in cells(panel)


def test_it_moves_to_the_band_even_where_the_new_model_cannot_be_sized():
    panel = Calculator()
    panel.set(model="MiniMax-M3")
    assert panel.error and panel.raw["reserve_from"] == ASSUMED
    panel.set(gpu="L4 · 22.03 GiB")
    assert panel.raw["reserve_from"] == ASSUMED and panel.raw["total_gib"] == "22.03"
    panel.set(model="Qwen3-0.6B")
    assert panel.values.reserve_from == ASSUMED and "About" in answer(panel)


def test_the_gpu_brings_its_memory_and_the_same_card_keeps_a_typed_reserve():
    panel = Calculator()
    panel.set(gpu="L4 · 22.03 GiB")
    assert panel.values.total_gib == 22.03
    panel.set(reserve_gib="1.2")
    panel.set(total_gib="22.16")           # seen on this very card
    assert panel.values.reserve_from == TYPED
    panel.set(total_gib="24")
    assert panel.values.reserve_from == ASSUMED


@pytest.mark.parametrize("reserve, word", [(2.0, "passes vLLM's memory checks"), (60.0, "Refused")])
def test_a_typed_reserve_gives_one_verdict(reserve, word):
    panel = Calculator()
    panel.set(gpu_memory_utilization="0.5")
    panel.set(reserve_gib=f"{reserve}")
    assert word in answer(panel)


def test_too_close_to_call_names_the_break_even_and_it_holds():
    panel = Calculator()
    panel.set(gpu="RTX 4090 · 23.53 GiB")
    said = re.search(r"Too close to call: it passes while the reserve takes at most ([\d.]+) GiB", answer(panel))
    limit = float(said[1])
    panel.set(reserve_gib=f"{limit - 0.01:.2f}")
    assert "passes vLLM's memory checks" in answer(panel)
    panel.set(reserve_gib=f"{limit + 0.01:.2f}")
    assert answer(panel).endswith("GiB are left. A max_model_len of 40,896 would pass.") and "Refused:" in answer(panel)


def test_the_break_even_counts_the_blocks_of_states():
    model = kvlib.load_model("Qwen3.8-27B")
    engine = Engine(vllm_version="0.28", gpu=GB10, max_model_len=40_960)
    limit = most_taken(kvlib.size(model, engine, memory=MemoryBudget(gib(121.63), gib(51.1), non_torch_bytes=gib(4))))
    found = [kvlib.size(model, engine, memory=MemoryBudget(gib(121.63), limit + more)) for more in (0, 1)]
    assert [each.outcome for each in found] == ["passes", "max_num_seqs"]
    assert taken(found[0]) == limit


@pytest.mark.parametrize("settings, said", [
    ({"model": "DeepSeek-V3"}, "larger than the GPU"),
    ({"model": "gpt-oss-120b", "gpu": "L4 · 22.03 GiB"}, "the weights, 64.38 GiB, are larger than the GPU"),
    ({"model": "gpt-oss-120b", "gpu": "H100 SXM 80GB · 79.19 GiB", "gpu_memory_utilization": "0.7"},
     "nothing is left for the cache"),
    ({"gpu": "L4 · 22.03 GiB", "max_model_len": "131072"}, "would pass"),
])
def test_refused_says_where_it_fails_first(settings, said):
    panel = Calculator()
    for name, value in settings.items():
        panel.set(**{name: value})
    assert "Refused:" in answer(panel) and said in answer(panel)
    assert "passes" not in answer(panel)
    assert any(row["colour"] == "#D55E00" for row in panel.view.rows["bar"])


def test_the_range_and_its_picture_agree_with_size_range():
    panel = Calculator()
    panel.set(gpu="H100 SXM 80GB · 79.19 GiB")
    s = panel.values
    weights, _ = weights_of(s.model, s.weights)
    terms = calculator.reserve_of(s.model, calculator._engine(s))
    sizes = kvlib.size_range(kvlib.load_model("Qwen3-8B"),
                             Engine(vllm_version=VERSION, gpu="H100 SXM 80GB", max_model_len=40_960),
                             memory=MemoryBudget(gib(79.19), weights, **terms))
    least, most = sizes[0].max_concurrency, sizes[2].max_concurrency
    assert [row["end"] for row in panel.view.rows["span"]] == pytest.approx([least, most])
    assert cells(panel)["= KV cache"] == f"{sizes[0].available_bytes / GiB:.2f} to {sizes[2].available_bytes / GiB:.2f} GiB"
    pale = [row for row in panel.view.rows["bar"] if row["opacity"] == 0.4 and row["colour"] == "#E69F00"]
    assert pale[0]["end"] - pale[0]["start"] == pytest.approx(
        sum(band.high - max(0, band.low) for band in terms.values()) / GiB, abs=0.01)


def test_what_loaded_weights_were_bears_out_the_band():
    """Every report on file of a model that is sized lies in the band of its width, but for one with a vision encoder."""
    outside = []
    for row in catalog.table("weights_seen.csv"):
        width = catalog.WEIGHT_BYTES.get(row["weight_dtype"])
        if row["catalog_name"] not in catalog.models() or width not in LOADED_OVER_COMPUTED:
            continue
        source = catalog.model_config(row["catalog_name"])["_source"]
        total = source["total_parameters_published"]
        if total:
            total -= source.get("stored_not_loaded", 0)
            ratio = float(row["loaded_gib"]) * GiB * int(row["tensor_parallel_size"]) / (total * width)
            low, _, high = LOADED_OVER_COMPUTED[width]
            if not low <= ratio <= high:
                outside.append(row["catalog_name"])
    assert sorted(set(outside)) == ["DeepSeek-V4-Flash", "Gemma-3-4b"]


def test_weights_are_measured_where_a_launch_printed_them_else_a_band():
    assert weights_of("Qwen3-8B")[0] == gib(15.27)
    assert isinstance(weights_of("Qwen3-8B", "4-bit")[0], Band)
    for choice in WIDTHS:
        value, known = weights_of("Llama-3.1-8B", choice)
        assert isinstance(value, int) and known == "printed by a launch"


def test_a_model_without_known_weights_says_what_to_do():
    panel = Calculator()
    before = answer(panel)
    panel.set(model="Devstral-2-123B")
    assert "not on file" in panel.error and "Your turn" in panel.error and answer(panel) == before


@pytest.mark.parametrize("name", ["Baichuan2-7B", "Gemma-3n-E4B", "DeepSeek-V4-Pro", "Llama-3.2-11B-Vision"])
def test_what_cannot_be_sized_is_one_sentence(name):
    panel = Calculator()
    panel.set(model=name)
    assert name in panel.error and "\n" not in panel.error and "Traceback" not in panel.error
    assert "weights" not in panel.error, "what is not known of the cache comes first"


def test_every_other_model_of_the_menu_is_answered():
    panel, refused = Calculator(), []
    for name in catalog.models():
        panel.set(model=name)
        if panel.error:
            refused.append(name)
    assert len(refused) <= 16, refused
    assert not any("mistake of its own" in panel.error for _ in refused)


@pytest.mark.parametrize("field, text, said", [
    ("total_gib", "much", "expected a number from 4.0 to 320.0 GiB"), ("total_gib", "-5", "found -5"),
    ("gpu_memory_utilization", "1.5", "found 1.5"), ("max_model_len", "1e99", "expected a whole number"),
    ("reserve_gib", "", "found nothing")])
def test_a_bad_value_is_one_sentence_and_the_picture_stays(field, text, said):
    panel = Calculator()
    before = drawn(panel)
    panel.set(**{field: text})
    assert said in panel.error and drawn(panel) == before
    panel.set(start="the GB10 run")
    assert panel.error == ""


def test_what_is_not_checked_is_listed():
    assert all(word in Calculator().view.note for word in ("other processes", "kernels", "CUDA graphs", "vision"))


def test_a_length_beyond_the_models_own_is_cautioned():
    panel = Calculator()
    panel.set(max_model_len="131072")
    assert "VLLM_ALLOW_LONG_MAX_MODEL_LEN" in panel.view.note


# No dull control


def sweeps(kind):
    panel = kind()
    for field in panel.inputs:
        if isinstance(field, controls.Number):
            yield field


@pytest.mark.parametrize("kind, name", [(kind, field.name) for kind in PANELS for field in sweeps(kind)])
def test_each_slider_gives_five_pictures_and_is_refused_on_at_most_half_its_way(kind, name):
    panel = kind()
    field = next(each for each in panel.inputs if each.name == name)
    if name == "reserve_gib":
        panel.set(total_gib="48", start=OWN)
    stops = field.stops() or [field.min + i * (field.max - field.min) / 40 for i in range(41)]
    pictures, refused = set(), 0
    for stop in stops:
        panel.set(**{name: field.text(round(stop, 6))})
        assert panel.error == ""
        pictures.add(drawn(panel))
        refused += any(word in answer(panel) for word in ("Refused", "refused", "short"))
    assert len(pictures) >= 5
    assert refused <= len(stops) / 2, f"{refused} of {len(stops)}"


def test_each_choice_of_the_calculator_changes_the_picture():
    for field in Calculator.inputs:
        if isinstance(field, controls.Choice) and field.name not in ("start",):
            controls.forget()
            panel = Calculator()
            pictures = set()
            for shown in list(field.options)[:12]:
                panel.set(**{field.name: shown})
                pictures.add(drawn(panel))
            assert len(pictures) >= 2, field.name


@pytest.mark.parametrize("start", STARTS)
def test_a_move_is_quick(start):
    panel = Calculator()
    panel.set(start=start)
    panel.compute(panel.values)
    best = min(_seconds(lambda: panel.compute(panel.values)) for _ in range(20))
    assert best < 0.005


def _seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


@pytest.mark.parametrize("kind", PANELS)
def test_a_guess_is_drawn_and_the_answer_is_not_shown_before(kind):
    panel = kind()
    shown = plain(panel.plain())
    assert panel.predict.show(panel.predict.answer) not in shown
    assert not any(row for name, row in panel.view.rows.items() if "guess" in name)
    panel.record("12")
    assert panel.view.rows["guess"], "the guess is in the picture"
    assert "You said" in panel._asked()["verdict"]


# Other processes


def test_three_gib_held_by_another_process_refuse_the_default_launch():
    panel = OtherProcesses()
    assert "Refused at start: 110.91 GiB are free, 111.90 GiB are requested, 0.99 GiB are missing" in answer(panel)
    assert "Free memory on device" in panel.view.table.footer
    panel.set(held_gib="2.01")
    assert "The launch goes on" in answer(panel) and panel.predict.answer == 2.01
    panel.set(held_gib="2.02")
    assert "Refused" in answer(panel)


@pytest.mark.parametrize("held", ["0.5", "3", "9.7", "16"])
def test_the_share_it_offers_is_the_largest_that_passes(held):
    panel = OtherProcesses()
    panel.set(held_gib=held, gpu_memory_utilization="0.98")
    share = float(re.search(r"share of ([\d.]+)\.", answer(panel))[1])
    free = gib(113.91 - float(held))
    assert requested_bytes(gib(121.63), share) <= free < requested_bytes(gib(121.63), round(share + 0.01, 2))


def test_the_pieces_held_by_others_add_up():
    panel = OtherProcesses()
    for held in ("0", "2.5", "4", "12"):
        panel.set(held_gib=held)
        rows = [row for row in panel.view.rows["strips"] if row["name"] in ("in use before", "other", "too much")]
        assert sum(row["end"] - row["start"] for row in rows) == pytest.approx(min(24, 7.72 + float(held)), abs=1e-6)


# Unified memory


def test_headroom_costs_tokens():
    panel = UnifiedMemory()
    panel.set(gpu_memory_utilization="0.85")
    assert answer(panel).startswith("619,600 to 619,616 tokens, and 10.52 GiB stay free")
    assert panel.predict.answer == 62_000
    panel.set(later_gib="12")
    assert "1.48 GiB short" in answer(panel)


def test_the_pinned_pool_prints_what_the_log_printed():
    low, high = gb10_pool(0.92)
    assert (low, high) == (gib(93.605), gib(93.6057))
    assert {found.kv_cache_tokens for found in gb10_at(0.92)} == {681_600}


def test_the_parts_of_the_gb10_add_up_to_its_memory():
    panel = UnifiedMemory()
    for share, later in (("0.92", "0"), ("0.92", "4"), ("0.7", "3"), ("0.94", "1"), ("0.6", "12")):
        panel.set(gpu_memory_utilization=share, later_gib=later)
        rows = [row for row in panel.view.rows["strips"] if row["name"] != "short"]
        assert max(row["end"] for row in rows) == pytest.approx(121.63, abs=0.01), (share, later)
        wanted = requested_bytes(gib(121.63), float(share)) / GiB + float(later) + 121.63 - 113.91
        assert max(row["end"] for row in panel.view.rows["strips"]) == pytest.approx(max(121.63, wanted), abs=0.01)


# A step of the share


def test_the_step_of_the_note():
    panel = UtilizationStep()
    panel.set(after="0.95")
    assert answer(panel) == "Going from 0.92 to 0.95 adds 2.40 GiB: 17,476 tokens of Qwen3-8B, 17,472 in whole blocks."
    assert panel.predict.answer == step(80, 0.92, 0.95)[1] == 17_476
    panel.set(after="0.90")
    assert "takes away 1.60 GiB: 11,650 tokens" in answer(panel)


# Two servers


def test_two_servers_share_a_card():
    panel = TwoServers()
    panel.set(first="0.45", second="0.45")
    assert answer(panel) == "Both pass vLLM's memory checks, with 31 to 40 GiB of cache together."
    panel.set(second="0.56")
    assert "The second is refused at start" in answer(panel) and "at most 0.55" in answer(panel)
    panel.set(second="0.55")
    assert "Both pass" in answer(panel)


def test_a_server_with_too_small_a_share_is_refused_for_its_weights():
    panel = TwoServers()
    panel.set(first="0.15")
    assert "The first server is refused" in answer(panel)
    panel.set(first="0.45", second="0.26")
    assert "Too close to call for the second" in answer(panel)
    assert judge(*server(0.26, 44)).word == "close"


# The static pieces


@pytest.mark.parametrize("wrong, said", [
    ({"total_gib": "121,63"}, "total_gib is '121,63'"), ({"weights_gib": None}, "weights_gib is None"),
    ({"total_gib": -1}, "total_gib is -1"), ({"non_kv_cache_gib": None}, "give one of"),
    ({"available_gib": 93.61}, "give one of"), ({"model": "Qwen3-8"}, "there is no model"),
    ({"gpu_memory_utilization": 92}, "gpu_memory_utilization is 92"), ({"max_model_len": "long"}, "max_model_len"),
    ({"tensor_paralel_size": 2}, "did you mean"), ({"tensor_parallel_size": 3}, "must divide")])
def test_a_wrong_figure_in_the_own_log_is_one_sentence(wrong, said):
    right = {"model": "Qwen3-8B", "total_gib": 121.63, "gpu_memory_utilization": 0.92, "weights_gib": 15.27,
             "non_kv_cache_gib": 18.29, "max_model_len": 40_960}
    shown = own_log(**right | wrong)
    assert not isinstance(shown, Table) and said in plain(shown)


def test_the_own_log_is_solved_both_ways():
    ways = {"non_kv_cache_gib": 18.29}, {"available_gib": 93.61}
    for way in ways:
        shown = own_log(model="Qwen3-8B", total_gib=121.63, gpu_memory_utilization=None, weights_gib=15.27,
                        max_model_len=40_960, **way)
        figures = [plain(row["figure"]) for row in shown.rows]
        assert figures[0] == "3.02" and "passes" in shown.caption
        low, high = (int(text.replace(",", "")) for text in figures[3].split(" to "))
        assert low <= 681_600 <= high
    refused = own_log(model="Llama-3.1-8B", total_gib=24, gpu_memory_utilization=0.92, weights_gib=15.0,
                      available_gib=6.28, max_model_len=131_072)
    assert "refused" in refused.caption


def test_agreement_tells_exact_from_rounded():
    assert agreement((681_600, 681_680), (681_600, 681_600)) == "within the rounding"
    assert agreement(ends(93.70), ends(93.61)) == "off"


def test_terms_are_the_four_of_the_notebook():
    assert set(calculator.NAMES) == set(TERMS) == set(calculator.SETTLES)
