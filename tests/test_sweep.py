"""sweep(): equal to size() row by row, refusals as rows, bad input as sentences, chunks, interruption, and its two views."""
import random
import time
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvlib
from kvlib import Band, Engine, EngineError, MemoryBudget, SizingError, catalog
from kvlib.fit import fit
from kvlib.improve import CARDS, SPLITS, card_map
from kvlib.reserve import assumed_budget
from kvlib.sweep import heat_map, pareto, sweep, sweep_chunks
from kvlib.sweep import rows as sweep_rows
from kvlib.sweep.table import MISSING

GiB = 1 << 30
SAME = ("num_gpu_blocks", "block_size", "bytes_per_block", "blocks_per_request", "max_concurrency", "kv_cache_tokens",
        "max_model_len", "needed_bytes", "outcome")
KINDS = ("Qwen3-8B", "gpt-oss-20b", "Gemma-3-27b", "DeepSeek-V3", "DeepSeek-V3.2", "Qwen3.8-27B", "Nemotron-3-Nano-30B-A3B",
         "Llama-4-Scout", "Falcon-H1-7B", "LFM2-1.2B", "Kimi-Linear-48B-A3B", "MiMo-V2-Flash", "Jamba-v0.1", "Gemma-2-9b",
         "MiniMax-M1", "Phi-3-mini-128k", "Mistral-7B-v0.1", "Gemma-3n-E4B", "DeepSeek-V4-Pro")
STATES_ALONE = kvlib.from_layers([dict(kind="mamba1", count=24, intermediate_size=1536, state_size=16, conv_kernel=4)],
                                 name="states alone", max_position_embeddings=1 << 20)
NARROW = kvlib.from_layers([dict(kind="sliding", count=2, num_kv_heads=1, head_dim=8, sliding_window=64)], name="narrow")
VERSIONS = ["0.18", "0.19.1", "0.20.0", "0.20.1", "0.25", "0.26", "0.28", "0.29", "0.30", "0.32", "0.33"]
AXES = {"vllm_version": VERSIONS, "tensor_parallel_size": [1, 2, 3, 4, 8], "pipeline_parallel_size": [1, 2, 3],
        "decode_context_parallel_size": [1, 2], "kv_cache_dtype": ["auto", "fp8", "fp8_per_token_head", "bfloat16"],
        "block_size": [None, 32, 100, 128], "enable_prefix_caching": [True, False], "enforce_eager": [False, True],
        "max_num_seqs": [None, 1, 200, 100_000], "max_num_batched_tokens": [None, 512, 200_000], "device": ["cuda", "cpu"],
        "num_speculative_tokens": [0, 3], "async_scheduling": [True, False], "disable_hybrid_kv_cache_manager": [False, True],
        "num_gpu_blocks_override": [None, 700, 1 << 60], "mamba_ssm_cache_dtype": ["auto", "float32"]}
LENGTHS = st.one_of(st.sampled_from([None, -1, 1, 2, 7, 8, 16, 4096]), st.integers(1, 300_000), st.integers(1, 1 << 45))
MEMORIES = st.one_of(st.sampled_from([0, -1, 1, -60 * GiB, 1 << 62, -(1 << 62)]), st.integers(0, 300 * GiB))


def at_random(rng):
    """A few values on a few axes, over the catalogue or two models made by hand."""
    flags = {name: rng.sample(values, rng.randint(1, 2)) for name, values in AXES.items() if rng.random() < 0.3}
    return rng.sample([*KINDS, STATES_ALONE, NARROW, *catalog.models()], 2), flags


def expected(model, flags, **memory):
    """The row by size(), or the error."""
    try:
        if isinstance(model, str):
            model = kvlib.load_model(model)
        return kvlib.size(model, Engine(**flags), **memory)
    except SizingError as error:
        return error


def assert_same(row, one):
    if isinstance(one, SizingError):
        assert row["reason"] == str(one)
        assert row["outcome"] == ("unknown_architecture" if isinstance(one, kvlib.UnknownArchitectureError) else "flags_refused")
        assert pd.isna(row["num_gpu_blocks"]) and pd.isna(row["max_concurrency"]) and pd.isna(row["kv_cache_tokens"])
        return
    for name in SAME:
        found, wanted = row[name], getattr(one, name)
        assert (pd.isna(found) if wanted is None else found == wanted), (name, found, wanted)
        assert name != "max_concurrency" or isinstance(found, float)
    assert row["reason"]


@given(st.randoms(use_true_random=False), st.lists(LENGTHS, min_size=1, max_size=4), st.lists(MEMORIES, min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_equal_to_size_row_by_row(rng, lengths, memories):
    models, flags = at_random(rng)
    frame = sweep(models, max_model_len=lengths, available_bytes=memories, **flags)
    names = ["tensor_parallel_size", "kv_cache_dtype", *(name for name in flags if name not in ("tensor_parallel_size", "kv_cache_dtype"))]
    values = {"tensor_parallel_size": [1], "kv_cache_dtype": ["auto"], **flags}
    grid = list(product(models, *(values[name] for name in names), lengths, memories))
    assert len(frame) == len(grid)
    for row, (model, *chosen, length, memory) in zip(frame.to_dict("records"), grid):
        one = expected(model, {**dict(zip(names, chosen)), "max_model_len": length}, available_bytes=memory)
        assert row["model"] == (model if isinstance(model, str) else model.name)
        assert row["available_bytes"] == memory
        assert_same(row, one)


def test_equal_on_long_arrays_of_lengths_and_memories():
    rng = np.random.default_rng(5)
    lengths, memories = rng.integers(1, 200_000, 300), rng.integers(-GiB, 90 * GiB, 200)
    lengths[:40] = rng.integers(1, 40, 40)
    for model, flags in (("Gemma-3-27b", {}), ("Qwen3.8-27B", dict(enable_prefix_caching=False, vllm_version="0.19")),
                         ("gpt-oss-120b", dict(max_num_seqs=2)), (STATES_ALONE, dict(vllm_version="0.18", enable_prefix_caching=False))):
        frame = sweep(model, max_model_len=lengths, available_bytes=memories, **flags)
        loaded = kvlib.load_model(model) if isinstance(model, str) else model
        for place in rng.integers(0, len(frame), 400).tolist():
            length, memory = int(lengths[place // 200]), int(memories[place % 200])
            assert_same(frame.iloc[place], kvlib.size(loaded, Engine(max_model_len=length, **flags), available_bytes=memory))


@pytest.mark.parametrize("seed", range(6))
def test_the_range_of_a_card_is_that_of_size_range(seed):
    rng = random.Random(seed)
    models = rng.sample([name for name in catalog.models() if name not in ("DeepSeek-V4-Pro",)], 12)
    cards, lengths = rng.sample(list(catalog.gpus()), 3), [None, -1, 8192]
    frame = sweep(models, cards, tensor_parallel_size=[1, 4], max_model_len=lengths)
    for row, (model, card, tp, length) in zip(frame.to_dict("records"), product(models, cards, [1, 4], lengths)):
        engine = Engine(gpu=card, tensor_parallel_size=tp, max_model_len=length)
        try:
            loaded = kvlib.load_model(model)
            low, typical, high = kvlib.size_range(loaded, engine, memory=assumed_budget(loaded, engine))
        except SizingError as error:
            assert row["reason"] == str(error)
            assert row["outcome"] == {EngineError: "flags_refused", kvlib.ConfigError: "weights_unknown"}.get(
                type(error), "unknown_architecture")
            continue
        assert_same(row, typical)
        assert row["available_source"] == "assumed" and row["gpus_bytes"] == tp * catalog.gpu(card).total_bytes
        for side, one in (("_low", low), ("", typical), ("_high", high)):
            for name in ("num_gpu_blocks", "max_concurrency", "kv_cache_tokens", "max_model_len", "available_bytes", "outcome"):
                assert row[name + side] == getattr(one, name), name + side
        assert row["verdict"] == ("passes" if low.fits else "too close to call" if high.fits else "fails")


def test_memory_from_a_budget_a_function_and_a_flag():
    model = kvlib.load_model("Llama-3.1-8B")
    budget = MemoryBudget(80 * GiB, 15 * GiB, Band(GiB, 2 * GiB, 4 * GiB, "rows"), free_bytes=70 * GiB)
    row = sweep(model, memory=budget).iloc[0]
    assert row["outcome"] == "free_memory" and row["available_source"] == "assumed"
    ours = sweep(model, memory=lambda model, engine: MemoryBudget(80 * GiB, 15 * GiB // engine.tensor_parallel_size),
                 tensor_parallel_size=[1, 2])
    assert ours["available_source"].tolist() == ["computed"] * 2
    assert ours["available_bytes"].tolist() == [-(-80 * GiB * 92 // 100) - 15 * GiB // tp for tp in (1, 2)]
    fixed = sweep(model, kv_cache_memory_bytes=[GiB, 32 * GiB])  # 8,192 blocks a 16 GiB: 2 MiB each
    assert fixed["num_gpu_blocks"].tolist() == [512, 16384] and "verdict" not in fixed
    mixed = sweep(model, "H100 SXM", kv_cache_memory_bytes=[None, 32 * GiB])
    assert mixed["num_gpu_blocks_low"].tolist()[1] == mixed["num_gpu_blocks_high"].tolist()[1] == 16384
    assert sweep(model, num_gpu_blocks_override=5000)["num_gpu_blocks"].tolist() == [5000]


def test_axes_are_columns_under_vllms_names_in_the_order_given():
    frame = sweep(["Qwen3-8B", "Llama-3.1-8B"], ["L40S", None], tensor_parallel_size=[1, 2], enforce_eager=[True, False],
                  gpu_memory_utilization=[0.9, None], block_size=[None, 32], max_model_len=[4096, None], available_bytes=[GiB, 2 * GiB])
    assert list(frame.columns[:8]) == ["model", "gpu", "tensor_parallel_size", "kv_cache_dtype", "enforce_eager",
                                       "gpu_memory_utilization", "block_size_asked", "max_model_len_asked"]
    assert len(frame) == 2 ** 8
    assert frame["available_bytes"].tolist() == [GiB, 2 * GiB] * 128 and frame["model"].tolist() == ["Qwen3-8B"] * 128 + ["Llama-3.1-8B"] * 128
    assert frame["gpu"].isna().sum() == 128 and frame["gpus_bytes"].isna().sum() == 128
    assert frame["block_size_asked"].isna().tolist()[4:8] == [False] * 4 and frame["block_size"].tolist()[:8] == [16] * 4 + [32] * 4
    assert frame["max_model_len_asked"].isna().tolist()[:4] == [False, False, True, True]


@pytest.mark.parametrize("arguments, said", [
    (dict(tensor_paralel_size=2), "Engine has no flag tensor_paralel_size; did you mean tensor_parallel_size?"),
    (dict(kv_cache_dtype=()), "kv_cache_dtype has no values"), (dict(max_model_len=np.array([], int)), "max_model_len has no values"),
    (dict(available_bytes=[]), "available_bytes has no values"), (dict(gpus=[]), "gpus has no values"),
    (dict(kv_cache_dtype=["auto", "fp9"]), "kv_cache_dtype is 'fp9'"), (dict(tensor_parallel_size=[1, 0]), "tensor_parallel_size is 0"),
    (dict(max_model_len=[0]), "max_model_len is 0"), (dict(max_model_len=np.arange(-3, 3)), "max_model_len is -3"),
    (dict(max_model_len=[1.5]), "max_model_len is 1.5"), (dict(available_bytes=[1.5]), "available_bytes is 1.5"),
    (dict(available_bytes=[True]), "available_bytes is True"), (dict(available_bytes=1 << 63), "available_bytes is 9223372036854775808"),
    (dict(available_bytes=np.array([0.5])), "available_bytes is 0.5"), (dict(available_bytes=[None]), "available_bytes is None"),
    (dict(available_bytes=None), "no memory is given: name the gpus, or pass available_bytes"),
    (dict(memory=MemoryBudget(GiB, 1)), "available_bytes and memory are both given"),
    (dict(kv_cache_memory_bytes=GiB), "available_bytes and kv_cache_memory_bytes are both given"),
    (dict(available_bytes=None, memory=80), "memory is 80"), (dict(gpus="H100"), "gpu 'H100' could be"),
    (dict(gpu="L40S"), "gpu is not a flag of a sweep"), (dict(models="Qwen3-8"), "no model 'Qwen3-8'"), (dict(models=[]), "models has no values"),
    (dict(vllm_version=["0.33", "new"]), "vllm_version is 'new'"),
    (dict(max_model_len=range(1, 20_001), available_bytes=range(20_000)), "400,000,000 rows, more than the 100,000,000"),
])
def test_what_no_launch_takes_is_an_error(arguments, said):
    given_all = {"models": "Qwen3-8B", "gpus": None, "available_bytes": GiB, **arguments}
    with pytest.raises(SizingError) as caught:
        sweep(given_all.pop("models"), given_all.pop("gpus"), **given_all)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_what_cannot_go_together_is_a_row():
    frame = sweep(["Qwen3-8B", "Gemma-3n-E4B"], tensor_parallel_size=[1, 5], num_speculative_tokens=[0, 2], available_bytes=[GiB, 50 * GiB])
    assert len(frame) == 16
    assert frame["outcome"].tolist()[:8] == ["max_model_len", "passes", *["flags_refused"] * 6]
    assert "num_speculative_tokens is set without" in frame["reason"][2] and "it must divide the 32 attention heads" in frame["reason"][4]
    assert set(frame["outcome"][8:]) == {"unknown_architecture"} and "Gemma-3n-E4B" in frame["reason"][8]
    assert frame["num_gpu_blocks"].notna().tolist() == [True, True] + [False] * 14
    hand = kvlib.from_layers([dict(kind="full", count=2, num_kv_heads=8, head_dim=128)])
    frame = sweep(hand, ["L40S"], max_model_len=[None, -1, 64])
    assert frame["outcome"].tolist() == ["flags_refused"] * 2 + ["weights_unknown"]
    frame = sweep(hand, max_model_len=[None, -1, 64], available_bytes=GiB)
    assert frame["outcome"].tolist() == ["flags_refused"] * 2 + ["passes"] and "does not say its longest length" in frame["reason"][0]


@given(st.sampled_from(KINDS[:12]), st.lists(st.integers(-GiB, 200 * GiB), min_size=2, max_size=30), st.sampled_from(VERSIONS))
@settings(deadline=None)
def test_more_memory_never_gives_less(model, memories, version):
    frame = sweep(model, available_bytes=sorted(memories), max_model_len=[-1, 16_384], vllm_version=version)
    for _, rows in frame.groupby("max_model_len_asked"):
        assert rows["num_gpu_blocks"].is_monotonic_increasing
        assert rows["outcome"].eq("passes").is_monotonic_increasing
    fitted = frame[frame["max_model_len_asked"].eq(-1) & frame["outcome"].eq("passes")]
    assert fitted["max_model_len"].is_monotonic_increasing
    used = frame["num_gpu_blocks"] * frame["bytes_per_block"]
    assert (used <= frame["available_bytes"].clip(lower=0)).all()
    assert (frame["needed_bytes"] == frame["bytes_per_block"] * frame["blocks_per_request"]).all()


def test_chunks_are_the_same_rows():
    arguments = dict(models=["Qwen3-8B", "Gemma-3n-E4B", "Qwen3.8-27B"], tensor_parallel_size=[1, 2, 3],
                     max_model_len=[5, None, -1, 70_000], available_bytes=range(0, 80 * GiB, 7 * GiB))
    whole = sweep(**arguments)
    for rows in (5, 37, 100, 10_000):
        chunks = list(sweep_chunks(**arguments, chunk_rows=rows))
        assert max(map(len, chunks)) <= rows and sum(map(len, chunks)) == len(whole)
        together = pd.concat([chunk.astype({"reason": str}) for chunk in chunks], ignore_index=True)
        pd.testing.assert_frame_equal(together, whole.astype({"reason": str}), check_categorical=False)
    for wrong in (0, 1.5, None):
        with pytest.raises(SizingError, match="chunk_rows is"):
            sweep_chunks("Qwen3-8B", available_bytes=GiB, chunk_rows=wrong)


def test_memory_is_bounded_by_the_chunk_and_linear_in_rows():
    import tracemalloc

    def peak(run):
        tracemalloc.start()
        run()
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    lengths = np.arange(1000, 1400)
    run = dict(models="Qwen3-8B", max_model_len=lengths)
    sweep(**run, available_bytes=GiB)
    small, large = (peak(lambda n=n: sweep(**run, available_bytes=range(GiB, GiB + n))) for n in (250, 1000))
    assert large < 5 * small and large < 400 * len(lengths) * 1000
    chunks = peak(lambda: sum(len(chunk) for chunk in sweep_chunks(**run, available_bytes=range(GiB, GiB + 1000), chunk_rows=20_000)))
    assert chunks < large / 4


def interrupted_after(monkeypatch, pieces):
    """Ctrl-C in the middle of writing a piece."""
    put, calls = sweep_rows.Table.put, []

    def stop(self, *arguments):
        calls.append(1)
        if len(calls) == 2 * pieces + 2:
            raise KeyboardInterrupt
        put(self, *arguments)

    monkeypatch.setattr(sweep_rows.Table, "put", stop)


def test_an_interruption_keeps_what_is_done(monkeypatch):
    arguments = dict(models=["Qwen3-8B", "Llama-3.1-8B"], tensor_parallel_size=[1, 2, 4], available_bytes=[GiB, 90 * GiB])
    whole = sweep(**arguments)
    interrupted_after(monkeypatch, 4)
    with pytest.warns(UserWarning, match="stopped after 8 of 12 rows"):
        some = sweep(**arguments)
    pd.testing.assert_frame_equal(some, whole[:8])
    interrupted_after(monkeypatch, 0)
    with pytest.warns(UserWarning, match="stopped after 0 of 12 rows"):
        assert len(sweep(**arguments)) == 0
    interrupted_after(monkeypatch, 3)
    chunks = []
    with pytest.raises(KeyboardInterrupt):
        for chunk in sweep_chunks(**arguments, chunk_rows=4):
            chunks.append(chunk)  # noqa: PERF402
    assert [len(chunk) for chunk in chunks] == [4, 2]


def test_progress_is_told_from_the_first_second_on(monkeypatch):
    clock = iter(np.arange(0, 1000, 0.15).tolist())
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    told = []
    sweep("Qwen3-8B", max_model_len=range(1, 41), tensor_parallel_size=[1, 2] * 10, available_bytes=GiB,
          progress=lambda done, rows: told.append((done, rows)))
    assert told and told == sorted(told) and told[0][0] > 40 and {rows for _, rows in told} == {800}

    def stop(done, rows):
        raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="stopped after"):
        assert 0 < len(sweep("Qwen3-8B", tensor_parallel_size=[1] * 40, available_bytes=GiB, progress=stop)) < 40


def test_figures_beyond_64_bits_stay_exact():
    wide = kvlib.from_layers([dict(kind="sliding", count=1, num_kv_heads=1, head_dim=1, sliding_window=8)], name="one byte")
    frame = sweep(wide, max_model_len=[1 << 60, 1 << 40], available_bytes=[1 << 62, 1000])
    for row, (length, memory) in zip(frame.to_dict("records"), product([1 << 60, 1 << 40], [1 << 62, 1000])):
        assert_same(row, kvlib.size(wide, Engine(max_model_len=length), available_bytes=memory))
    assert frame["kv_cache_tokens"].max() > 1 << 63 > abs(MISSING) - 1


def test_where_numpys_division_would_round_twice():
    """2**53 + 1 blocks over 3: one rounding in Python's ints, two through floats; the tokens differ."""
    blocks, needed = (1 << 53) + 1, 3
    assert blocks / needed != np.float64(blocks) / np.float64(needed)
    wide = kvlib.from_layers([dict(kind="full", count=1, num_kv_heads=1, head_dim=1)], name="narrow")
    one = kvlib.size(wide, Engine(max_model_len=48), available_bytes=blocks * 64)
    assert (one.num_gpu_blocks, one.blocks_per_request) == (blocks, needed)
    assert_same(sweep(wide, max_model_len=48, available_bytes=blocks * 64).iloc[0], one)


def test_pareto_keeps_what_nothing_beats():
    frame = pd.DataFrame({"available_bytes": [1, 2, 2, 3, 4, 5, 1], "max_concurrency": [1.0, 3.0, 2.0, 3.0, 9.0, 4.0, 1.0],
                          "outcome": ["passes"] * 7})
    assert pareto(frame).index.tolist() == [0, 1, 4]
    frame["outcome"] = ["passes", "max_model_len", *["passes"] * 5]
    assert pareto(frame).index.tolist() == [0, 2, 3, 4]
    cards = sweep("Qwen3-8B", ["L40S", "H100 SXM", "RTX 4090"], tensor_parallel_size=[1, 2])
    line = pareto(cards)
    assert line["gpus_bytes"].is_monotonic_increasing and line["max_concurrency"].is_monotonic_increasing
    with pytest.raises(SizingError, match="no column cost"):
        pareto(cards, memory="cost")


def test_heat_map_marks_what_is_refused():
    frame = sweep(["Qwen3-8B"], ["L40S", "V100 SXM2 16GB"], tensor_parallel_size=[1, 3], max_model_len=[4096, 8192])
    with pytest.raises(SizingError, match="because max_model_len differs; choose one of each first"):
        heat_map(frame)
    cells = heat_map(frame[frame["max_model_len"] == 8192])
    assert len(cells) == 4 and cells["refused"].tolist() == [False, True, True, True]
    assert cells["label"].tolist()[1:] == ["✕"] * 3 and cells["label"][0].endswith("x")
    assert "attention heads" in cells["reason"][1] and cells["verdict"].tolist()[0] == "passes"


def test_fast_enough():
    """A million rows a second on a computer with nothing else to do; here other tests run beside it."""
    arguments = dict(models="Qwen3-8B", max_model_len=np.arange(1000, 2000), available_bytes=np.arange(1000) * 50_000_000)
    sweep(**arguments)
    spent = []
    while len(spent) < 10 and not (spent and min(spent) < 1.0):
        start = time.process_time()
        sweep(**arguments)
        spent.append(time.process_time() - start)
    assert min(spent) < 1.0


@pytest.mark.parametrize("name", ["Qwen3-8B", "gpt-oss-120b", "Qwen3.8-27B", "DeepSeek-V3"])
def test_the_map_of_cards_that_a_reader_sees_is_this_engine_s(name):
    """Notebook 06 asks fit() cell by cell; the same map from one sweep, in every cell, with its range and verdict."""
    words = {"passes": "passes", "too close to call": "close", "fails": "refused"}
    seen = card_map(fit(name, "--max-model-len 32768", gpu="H100 SXM 80GB"))
    cells = heat_map(sweep(name, list(CARDS), tensor_parallel_size=list(SPLITS[:4]), max_model_len=32_768))
    assert len(seen) == len(cells) == len(CARDS) * 4
    for cell, row in zip(seen, cells.itertuples()):
        assert (cell.gpu, cell.tensor_parallel_size) == (row.gpu, row.tensor_parallel_size)
        assert words[row.verdict] == cell.word
        assert (row.max_concurrency_low, row.max_concurrency, row.max_concurrency_high) == (cell.low, cell.typical, cell.high)
