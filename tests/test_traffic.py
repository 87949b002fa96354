"""Laws of the simulation, request mixes by hand arithmetic, and input that is no request."""
import math
import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvlib
from kvlib import traffic
from kvlib.traffic_beats import Beats
from kvlib.traffic_plan import percentile
from kvlib.traffic_scheduler import Scheduler

QWEN = kvlib.load_model("Qwen3-8B")  # one group of full attention, blocks of 16 tokens
GPT_OSS = kvlib.load_model("gpt-oss-120b")  # a window group of 128 tokens and a full one, blocks of 16
HYBRID = kvlib.load_model("Qwen3.8-27B")  # three state groups and a full one
FULL, WINDOW, STATE = dict(kind="full", block_size=4), dict(kind="sliding", block_size=4, window=10), dict(kind="state", block_size=4)

requests = st.lists(st.one_of(
    st.tuples(st.integers(0, 40), st.integers(1, 60), st.integers(1, 40)),
    st.tuples(st.integers(0, 40), st.integers(1, 60), st.integers(1, 40), st.sampled_from("ab"), st.integers(0, 120)),
), min_size=1, max_size=20)
kinds = st.sampled_from([[FULL], [FULL, WINDOW], [WINDOW, FULL], [STATE, FULL], [STATE, STATE, FULL], [WINDOW]])
engines = st.builds(lambda **flags: kvlib.Engine(max_model_len=96, **flags), vllm_version=st.sampled_from(["0.28", "0.30", "0.32", "0.33"]),
                    max_num_batched_tokens=st.sampled_from([8, 16, 64]), max_num_seqs=st.integers(1, 8),
                    enable_prefix_caching=st.booleans(), async_scheduling=st.booleans())
pools = st.integers(10, 120)


def engine(**flags):
    return kvlib.Engine(**{**dict(max_model_len=4096, max_num_seqs=64, max_num_batched_tokens=2048, async_scheduling=False), **flags})


def by_hand(engine, groups):
    """The groups as they are without prefix caching: a state's block is as wide as the longest request."""
    if engine.enable_prefix_caching:
        return groups
    return [dict(group, block_size=engine.max_model_len, mode="none") if group["kind"] == "state" else group for group in groups]


def run_of(engine, load, pool, groups, **more):
    return traffic.simulate(None, engine, load, num_gpu_blocks=pool, groups=by_hand(engine, groups), **more)


# Laws

@given(engines, requests, pools, kinds)
@settings(deadline=None)
def test_limits_are_kept_and_everyone_ends_or_the_outcome_says_why(engine, load, pool, groups):
    run = run_of(engine, load, pool, groups)
    columns = run.series
    assert {len(column) for column in columns.values()} == {run.steps}
    assert max(columns["used"]) <= pool - 1
    assert max(columns["running"]) <= engine.max_num_seqs
    assert max(columns["tokens"]) <= engine.max_num_batched_tokens
    assert run.preemptions == sum(run.requests["preempted"]) == columns["preempted"][-1]
    ended = sum(step is not None for step in run.requests["finish"])
    assert ended == run.finished
    if run.outcome == "finished":
        assert ended == len(load)
    else:
        assert run.outcome == "stalled" and ended < len(load) and run.reason


@given(engines, requests, pools, kinds)
@settings(deadline=None)
def test_every_token_is_computed_once_for_each_time_it_is_needed(engine, load, pool, groups):
    run = run_of(engine, load, pool, groups)
    if run.outcome != "finished":
        return
    needed = sum(min(prompt + output, 96) - 1 for _, prompt, output, *_ in load)  # the last token is never computed
    lost = sum(run.series["tokens"]) + sum(run.series["hit"]) - needed
    assert lost >= 0
    if not run.preemptions:
        assert lost == 0


@given(engines, requests, pools, kinds)
@settings(deadline=None)
def test_skipping_and_counting_change_nothing(engine, load, pool, groups):
    """Quiet stretches in one go, and decoding requests by their beat, against a visit to everyone in every step."""
    quick = run_of(engine, load, pool, groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Beats, "suit", staticmethod(lambda groups: False))
        patch.setattr(Scheduler, "quiet_until", lambda self, t: t + 1)
        assert run_of(engine, load, pool, groups) == quick


@given(engines, requests, kinds)
@settings(deadline=None)
def test_nobody_is_thrown_out_of_a_pool_that_holds_everyone(engine, load, groups):
    assert not run_of(engine, load, 1 + len(groups) * len(load) * (96 // 4 + 3), groups).preemptions


@given(engines, requests, pools, kinds)
@settings(deadline=None)
def test_an_iterator_and_a_summary_tell_the_same(engine, load, pool, groups):
    load = sorted(load, key=lambda row: row[0])
    full, short = run_of(engine, load, pool, groups), run_of(engine, iter(load), pool, groups, record="summary")
    assert (full.outcome, full.steps, full.preemptions, full.finished) == (short.outcome, short.steps, short.preemptions, short.finished)
    assert short.mean_running * short.busy_steps == pytest.approx(sum(full.series["running"]))


def test_a_larger_pool_may_preempt_more():
    """One would expect the opposite of first come, first served. With 6 usable blocks one of three requests is thrown out once and
    waits until there is room to stay; with 7 it comes back two steps earlier, into a pool that is still too small for it."""
    load = [(0, 1, 6), (0, 7, 8), (0, 8, 7)]
    launch = kvlib.Engine(max_model_len=64, max_num_batched_tokens=64, max_num_seqs=8, async_scheduling=False, enable_prefix_caching=False)
    assert [run_of(launch, load, pool, [FULL]).preemptions for pool in (7, 8, 9, 10)] == [1, 2, 1, 0]


# What a run tells, by hand

def test_one_request_alone():
    """100 tokens and 40 outputs: a step for the prompt and 39 more; 139 tokens are computed, so at most ceil(139 / 16) = 9 blocks."""
    run = traffic.simulate(QWEN, engine(), [(3, 100, 40)], num_gpu_blocks=400)
    assert run.steps == 3 + 40
    assert run.series["running"] == [0] * 3 + [1] * 40
    assert run.series["tokens"] == [0] * 3 + [100] + [1] * 39
    assert (run.series["used"][3], run.peak_used) == (7, 9)
    assert run.requests == {"first": [3], "finish": [42], "preempted": [0], "admitted": [[3]], "hits": [[0]]}
    assert (run.mean_running, run.mean_steps_in_system, run.mean_steps_waiting) == (1.0, 40.0, 0.0)


def test_asynchronous_scheduling_holds_a_step_longer():
    run = traffic.simulate(QWEN, engine(async_scheduling=True), [(0, 100, 40)], num_gpu_blocks=400)
    assert run.steps == 41
    assert run.series["tokens"][-1] == 0
    assert run.series["used"][-1] == 9


def test_littles_law_holds_for_what_it_says_of_itself():
    """Requests present on average = arrivals a step × steps each stays: both sides count the same steps."""
    load = traffic.Load(traffic.Mix(traffic.uniform(10, 200), traffic.uniform(5, 60)), count=300, rate=0.4, seed=3)
    run = traffic.simulate(QWEN, engine(), load, num_gpu_blocks=2000)
    present = run.mean_running + run.mean_waiting
    assert present == pytest.approx(300 * run.mean_steps_in_system / run.busy_steps)


def test_output_is_cut_at_max_model_len_and_said_so():
    run = traffic.simulate(QWEN, engine(max_model_len=128), [(0, 100, 500)], num_gpu_blocks=400)
    assert run.steps == 28  # 128 - 100 outputs
    assert run.cut == 1
    assert "cut short" in run.notes[-1]


def test_a_pool_that_cannot_hold_one_names_the_request_and_its_blocks():
    run = traffic.simulate(QWEN, engine(), [(0, 30, 5), (1, 600, 10), (1, 20, 5)], num_gpu_blocks=20)
    assert run.outcome == "stalled"
    assert run.finished == 1
    assert "request 1 needs 38 blocks" in run.reason  # ceil(600 / 16)
    assert "the 1 behind it" in run.reason
    assert not run.startup_ok


def test_long_idle_stretches_cost_nothing():
    run = traffic.simulate(QWEN, engine(), [(0, 10, 2), (10**9, 10, 2)], num_gpu_blocks=400, record="summary")
    assert (run.steps, run.busy_steps) == (10**9 + 2, 4)


def test_too_many_steps_for_a_full_record_are_refused():
    with pytest.raises(traffic.TrafficError, match="summary"):
        traffic.simulate(QWEN, engine(), [(0, 10, 2), (10**9, 10, 2)], num_gpu_blocks=400)


def test_progress_is_told_and_an_interrupt_keeps_what_is_done():
    told = []

    def progress(run):
        told.append(run.finished)
        if len(told) == 3:
            raise KeyboardInterrupt

    load = traffic.Load(traffic.Mix(traffic.fixed(50), traffic.fixed(20)), count=10**6, rate=1.0)
    run = traffic.simulate(QWEN, engine(), load, num_gpu_blocks=2000, record="summary", progress=progress, progress_every=100)
    assert run.outcome == "interrupted"
    assert 0 < told[0] < told[1] < told[2] == run.finished < 400


def test_max_steps_stops_there():
    run = traffic.simulate(QWEN, engine(), [(0, 100, 40)], num_gpu_blocks=400, max_steps=10)
    assert (run.outcome, run.steps, run.series["running"]) == ("max_steps", 10, [1] * 10)


# Mixes

def test_lengths_by_their_definition():
    draw = random.Random(1)
    drawn = [traffic.lognormal(500, 2000).draw(draw) for _ in range(20_000)]
    assert percentile(drawn, 0.5) == pytest.approx(500, rel=0.03)
    assert percentile(drawn, 0.95) == pytest.approx(2000, rel=0.05)
    assert {traffic.fixed(7).draw(draw) for _ in range(5)} == {7}
    assert {traffic.uniform(3, 5).draw(draw) for _ in range(200)} == {3, 4, 5}
    assert traffic.lognormal(500, 500).draw(draw) == 500


def test_a_load_is_the_same_each_time_and_arrives_at_its_rate():
    load = traffic.Load(traffic.Mix(traffic.fixed(10), traffic.fixed(2)), count=20_000, rate=0.5, seed=9)
    rows = list(load)
    assert rows == list(load)
    assert rows[-1][0] == pytest.approx(40_000, rel=0.03)
    assert list(traffic.Load(load.mix, 3, math.inf)) == [(0, 10, 2)] * 3


def test_a_shared_prefix_comes_before_the_prompt():
    mix = traffic.Mix(traffic.fixed(10), traffic.fixed(2), prefix_share=0.5, prefixes=2, prefix_tokens=100)
    rows = list(traffic.Load(mix, 1000, 1.0, seed=2))
    shared = [row for row in rows if len(row) == 5]
    assert {row[1:] for row in shared} == {(110, 2, 0, 100), (110, 2, 1, 100)}
    assert len(shared) == pytest.approx(500, abs=50)
    assert all(row[1:] == (10, 2) for row in rows if len(row) == 3)


def test_prompts_too_long_for_the_launch_are_cut_and_counted():
    load = traffic.Load(traffic.Mix(traffic.uniform(50, 149), traffic.fixed(2)), 1000, 1.0, max_model_len=100)
    assert max(row[1] for row in load) == 99
    assert load.cut == pytest.approx(500, abs=50)


def test_blocks_of_full_attention_by_hand():
    """500 + 100 tokens: 599 are computed, 38 blocks of 16. Over its life a request holds 32 (500 to 512), 33 … 38 (593 to 599):
    13 × 32 + 16 × (33 + 34 + 35 + 36 + 37) + 7 × 38 = 3,482 block-steps in 100 steps."""
    found = traffic.expect(QWEN, engine(), traffic.Mix(traffic.fixed(500), traffic.fixed(100)), num_gpu_blocks=1001, samples=20)
    assert found.by_kind == (("full", 1, 38.0, 38, 38, 38),)
    assert found.blocks_over_life == 34.82
    assert found.concurrency_p95 == 1000 / 38
    assert found.concurrency_expected == pytest.approx(1000 / 34.82)
    assert found.rate_pool == pytest.approx(1000 / 3482)
    assert found.rate_tokens == 2048 / 599
    assert found.rate_seqs == 0.64
    assert found.limit == "pool"
    assert found.concurrency_worst == 1001 / 256  # 4,096 / 16 each, as the start-up line has it


def test_blocks_of_windows_and_states_by_hand():
    """A window of 128 in blocks of 16, 599 tokens computed: from token 599 - 128 = 471 on, block 29, so 38 - 29 = 9. A state is 1."""
    mix = traffic.Mix(traffic.fixed(500), traffic.fixed(100))
    window = traffic.expect(GPT_OSS, engine(), mix, num_gpu_blocks=1001, samples=5)
    assert [(part.kind, part.groups, part.p95) for part in window.by_kind] == [("sliding", 1, 9), ("full", 1, 38)]
    state = traffic.expect(HYBRID, engine(), mix, num_gpu_blocks=1001, samples=5)
    assert [(part.kind, part.groups, part.p95) for part in state.by_kind] == [("state", 3, 3), ("full", 1, 1)]


@pytest.mark.parametrize("prompt", [traffic.lognormal(500, 2000), traffic.uniform(1, 900), traffic.fixed(70)])
@pytest.mark.parametrize("output", [traffic.lognormal(100, 300), traffic.fixed(5)])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_lengths_at_once_are_those_drawn_one_by_one(prompt, output, share):
    mix, rng = traffic.Mix(prompt, output, share, 3, 40), random.Random(7)
    one_by_one = [mix.draw(rng)[:2] for _ in range(200)]
    assert list(zip(*mix.lengths(200, seed=7))) == one_by_one


@given(kinds, st.lists(st.tuples(st.integers(1, 250), st.integers(1, 90)), min_size=1, max_size=9))
@settings(deadline=None, max_examples=40)
def test_a_mix_asks_for_what_its_requests_ask_for_one_by_one(groups, rows):
    """Whole requests only: max_model_len cuts the longest."""
    launch = kvlib.Engine(max_model_len=200, max_num_batched_tokens=256, max_num_seqs=1)
    groups = by_hand(launch, groups)

    def asked(rows):
        requests = iter(rows)
        mix = SimpleNamespace(draw=lambda rng: next(requests))
        return traffic.expect(None, launch, mix, num_gpu_blocks=300, samples=len(rows), groups=groups)

    together, alone = asked(rows), [asked([row]) for row in rows]
    assert together.ends == sum((each.ends for each in alone), ())
    assert together.cut == sum(each.cut for each in alone)
    steps = sum(each.steps_mean for each in alone)
    block_steps = sum(each.blocks_over_life * each.steps_mean for each in alone)
    assert together.blocks_over_life == pytest.approx(block_steps / steps)


@given(kinds, st.integers(1, 90), st.integers(1, 60))
@settings(deadline=None, max_examples=60)
def test_block_steps_are_what_a_simulation_without_rivals_uses(groups, prompt, output):
    """A prompt in one step; then the closed form against the blocks used, step by step. States hold a second block in the steps that
    cross a border, and windows their whole prompt in the first step; the closed form leaves both out."""
    launch = kvlib.Engine(max_model_len=200, max_num_batched_tokens=256, max_num_seqs=1, async_scheduling=False, enable_prefix_caching=False)
    groups = by_hand(launch, groups)
    run = traffic.simulate(None, launch, [(0, prompt, output)], num_gpu_blocks=300, groups=groups)
    found = traffic.expect(None, launch, traffic.Mix(traffic.fixed(prompt), traffic.fixed(output)), num_gpu_blocks=300, samples=1,
                           groups=groups)
    first = sum(max(0, prompt - group.get("window", prompt)) // 4 for group in groups)
    assert round(found.blocks_over_life * output) + first == sum(run.series["used"])


def test_absurd_lengths_stay_whole_numbers():
    """2^39 + 10 tokens: 2^35 blocks of 16 hold the prompt, one more each of the nine tokens computed after it. Squares pass 64 bits."""
    groups = [{"kind": "full", "block_size": 16}]
    launch = kvlib.Engine(max_model_len=1 << 40, max_num_batched_tokens=1 << 40, max_num_seqs=1)
    for prompt, tokens_p95 in ((1 << 39, (1 << 39) + 10), (1 << 40, 1 << 40)):
        mix = traffic.Mix(traffic.fixed(prompt), traffic.fixed(10))
        found = traffic.expect(None, launch, mix, num_gpu_blocks=1 << 40, samples=1_000, groups=groups)
        assert (found.tokens_p95, found.cut) == (tokens_p95, 1_000 * (prompt == 1 << 40))
        assert found.ends == ((tokens_p95 - 1 + 15) // 16,) * 1_000 and type(found.ends[0]) is int
    at_first = traffic.expect(None, launch, traffic.Mix(traffic.fixed(1 << 39), traffic.fixed(10)), num_gpu_blocks=1 << 40, samples=1_000,
                              groups=groups)
    assert at_first.blocks_over_life == ((1 << 35) + 9 * ((1 << 35) + 1)) / 10


def test_the_rule_of_thumb_in_three_verdicts():
    mix = traffic.Mix(traffic.fixed(500), traffic.fixed(100))  # 38 blocks
    said = {pool: traffic.expect(QWEN, engine(max_num_seqs=20), mix, num_gpu_blocks=pool, samples=3).verdict for pool in (1001, 801, 501, 31)}
    assert "26.3 requests of the 95th percentile, 32% more than max_num_seqs 20: preemption is unlikely" in said[1001]
    assert "only 5% more" in said[801] and "max_num_seqs 19 leaves a margin" in said[801]
    assert "34% less" in said[501] and "max_num_seqs 11 leaves a margin" in said[501]
    assert "larger than the whole pool" in said[31]


def test_a_step_time_is_assumed_and_turns_steps_into_minutes():
    step = traffic.StepTime(0.02, 0.0001)
    run = traffic.simulate(QWEN, engine(), [(0, 500, 100)] * 10, num_gpu_blocks=300)
    assert step.basis == "assumed"
    assert step.run_seconds(run) == pytest.approx(200 * 0.02 + sum(run.series["tokens"]) * 0.0001)
    assert step.preemptions_per_minute(run) == pytest.approx(60 * 2 / step.run_seconds(run))


def test_fewer_sequences_stop_the_preemption():
    load = [(0, 500, 100)] * 10  # 32 blocks each to begin with, 38 at the end; 299 usable: 7 × 38 = 266 fit, 8 × 38 = 304 do not
    assert traffic.seqs_without_preemption(QWEN, engine(), load, num_gpu_blocks=300) == 7
    assert traffic.seqs_without_preemption(QWEN, engine(), load, num_gpu_blocks=1000) == 64
    assert traffic.seqs_without_preemption(QWEN, engine(), [(0, 500, 100)], num_gpu_blocks=30) is None


# Input that is no request

@pytest.mark.parametrize("row, field, words", [
    ((0, 0, 5), "prompt_tokens", "request 1: prompt_tokens is 0; it must be a whole number of at least 1"),
    ((0, 5, 0), "output_tokens", "output_tokens is 0"),
    ((-1, 5, 5), "arrival_step", "arrival_step is -1"),
    ((0, "many", 5), "prompt_tokens", "'many'"),
    ((0, 5.5, 5), "prompt_tokens", "5.5"),
    ((0, True, 5), "prompt_tokens", "True"),
    ((0, None, 5), "prompt_tokens", "None"),
    ((0, float("nan"), 5), "prompt_tokens", "nan"),
    ((0, 5, 10**30), "output_tokens", "at most 1,099,511,627,776"),
    ((0, 4096, 5), "prompt_tokens", "request 1 has a prompt of 4,096 tokens, and max_model_len is 4,096"),
    ((0, 5), None, "request 1 is (0, 5)"),
    ((0, 5, 5, "a"), None, "request 1 has 4 values"),
    ((0, 5, 5, "a", -3), "prefix_len", "prefix_len is -3"),
    ((0, 5, 5, ["a"], 3), "prefix_id", "prefix_id is ['a']"),
    (7, None, "request 1 is 7"),
    (dict(prompt_tokens=5, output_tokens=5), "arrival_step", "request 1 has no arrival_step"),
])
@pytest.mark.parametrize("kind", [list, iter])
def test_a_row_that_is_no_request_is_named(row, field, words, kind):
    with pytest.raises(traffic.TrafficError) as caught:
        traffic.simulate(QWEN, engine(), kind([(0, 10, 2), row]), num_gpu_blocks=300)
    assert words in str(caught.value)
    assert (caught.value.row, caught.value.field) == (1, field)


def test_an_iterator_out_of_order_is_named():
    with pytest.raises(traffic.TrafficError, match="request 1 arrives at step 2, before the one above it"):
        traffic.simulate(QWEN, engine(), iter([(5, 10, 2), (2, 10, 2)]), num_gpu_blocks=300)


def test_no_request_at_all_is_over_at_once():
    run = traffic.simulate(QWEN, engine(), [], num_gpu_blocks=300)
    assert (run.outcome, run.steps) == ("finished", 0)


@pytest.mark.parametrize("more, flag", [
    (dict(num_gpu_blocks=1), "num_gpu_blocks"), (dict(num_gpu_blocks=True), "num_gpu_blocks"), (dict(num_gpu_blocks=2.5), "num_gpu_blocks"),
    (dict(record="all"), "record"), (dict(watermark=1.0), "watermark"), (dict(watermark="5%"), "watermark"), (dict(max_steps=0), "max_steps"),
    (dict(long_prefill_token_threshold=-1), "long_prefill_token_threshold"), (dict(priority=1), "priority"),
    (dict(groups=[dict(kind="fully", block_size=16)]), "groups"),
])
def test_a_flag_it_cannot_follow_is_named(more, flag):
    with pytest.raises(kvlib.EngineError) as caught:
        traffic.simulate(QWEN, engine(), [(0, 10, 2)], **{"num_gpu_blocks": 300, **more})
    assert caught.value.flag == flag


@pytest.mark.parametrize("flags", [dict(pipeline_parallel_size=2), dict(max_model_len=-1),
                                   dict(num_speculative_tokens=3, speculative_method="ngram")])
def test_what_was_never_compared_is_refused(flags):
    with pytest.raises(kvlib.EngineError):
        traffic.simulate(QWEN, engine(**flags), [(0, 10, 2)], num_gpu_blocks=300)


@pytest.mark.parametrize("make, words", [
    (lambda: traffic.fixed(0), "tokens of a fixed length is 0"),
    (lambda: traffic.uniform(5, 3), "high of a uniform length is 3, less than low, 5"),
    (lambda: traffic.lognormal(500, 100), "p95 of a log-normal length is 100, less than median"),
    (lambda: traffic.lognormal(1.5, 100), "median"),
    (lambda: traffic.Mix(500, traffic.fixed(3)), "prompt is 500"),
    (lambda: traffic.Mix(traffic.fixed(3), traffic.fixed(3), prefix_share=1.2), "prefix_share is 1.2"),
    (lambda: traffic.Mix(traffic.fixed(3), traffic.fixed(3), prefixes=0), "prefixes is 0"),
    (lambda: traffic.Load(None, 0, 1.0), "count is 0"),
    (lambda: traffic.Load(None, 3, 0), "rate is 0"),
    (lambda: traffic.Load(None, 3, math.nan), "rate is nan"),
    (lambda: traffic.StepTime(0), "seconds of a step is 0"),
    (lambda: traffic.FromRows([]), "no request"),
])
def test_a_mix_that_is_none_is_named(make, words):
    with pytest.raises(traffic.TrafficError, match=words):
        make()


# Files

def test_a_csv_and_json_lines_are_read_alike(tmp_path):
    table = "﻿Prompt_Tokens; output_tokens ;model\n512;100;a\n\n40;8;b\n"
    lines = '{"prompt_tokens": 512, "output_tokens": 100}\n\n{"input_tokens": 40, "completion_tokens": 8.0}\n'
    (tmp_path / "a.csv").write_text(table, encoding="utf-8")
    wanted = [dict(prompt_tokens=512, output_tokens=100), dict(prompt_tokens=40, output_tokens=8)]
    assert traffic.read_requests(tmp_path / "a.csv") == wanted
    assert traffic.read_requests(lines) == wanted
    assert traffic.read_requests("prompt_tokens,output_tokens,arrival_step,prefix_id,prefix_len\n5,2,7,sys,3\n") == [
        dict(prompt_tokens=5, output_tokens=2, arrival_step=7, prefix_id="sys", prefix_len=3)]


@pytest.mark.parametrize("line, words", [
    (",100", "line 3: prompt_tokens is missing"),
    ("500,", "line 3: output_tokens is missing"),
    ("500", "line 3: output_tokens is missing"),
    ("-5,100", "line 3: prompt_tokens is '-5'"),
    ("12k,100", "line 3: prompt_tokens is '12k'"),
    ("5.5,100", "line 3: prompt_tokens is '5.5'"),
    ("nan,100", "line 3: prompt_tokens is 'nan'"),
    ("9e99,100", "line 3: prompt_tokens is '9e99'"),
    ("99999999999999999999,100", "at most 1,099,511,627,776"),
    ("4096,100", "line 3: a prompt of 4,096 tokens, and max_model_len is 4,096"),
])
def test_a_bad_line_is_named_and_none_is_dropped(line, words):
    text = f"prompt_tokens,output_tokens\n512,100\n{line}\n10,5\n"
    with pytest.raises(traffic.TrafficError) as caught:
        traffic.read_requests(text, max_model_len=4096)
    assert words in str(caught.value)
    assert caught.value.row == 3


def test_further_bad_lines_are_counted():
    with pytest.raises(traffic.TrafficError, match=r"line 2: .*and 2 more bad lines, the next 4"):
        traffic.read_requests("prompt_tokens,output_tokens\nx,1\n5,5\n-1,5\n5,y\n")


@pytest.mark.parametrize("text, words", [
    ("a,b\n1,2\n", "no column prompt_tokens; the columns are a, b"),
    ("prompt_tokens,output_tokens\n", "no request is in it"),
    ('{"prompt_tokens": 5\n', "line 1: "),
    ('[1, 2]', "line 1: 1 is not a request"),
    ('{"prompt_tokens": 5, "output_tokens": true}\n', "output_tokens is True"),
    ("prompt_tokens,output_tokens,prefix_len\n5,5,3\n", "prefix_id is empty"),
])
def test_a_file_that_is_none_is_named(text, words):
    with pytest.raises(traffic.TrafficError) as caught:
        traffic.read_requests(text)
    assert words in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(traffic.TrafficError, match="b.csv is not text"):
        traffic.read_requests(tmp_path / "b.csv")
    with pytest.raises(traffic.TrafficError, match="cannot be read"):
        traffic.read_requests(tmp_path / "none.csv")


def test_a_file_can_be_replayed_or_drawn_from():
    rows = traffic.read_requests("prompt_tokens,output_tokens\n100,5\n20,3\n")
    assert [row[1:] for row in traffic.spread(rows, rate=0.1, seed=1)] == [(100, 5), (20, 3)]
    assert {row[1:] for row in traffic.Load(traffic.FromRows(rows), 50, 1.0)} == {(100, 5), (20, 3)}
    with pytest.raises(traffic.TrafficError, match="spread"):
        traffic.simulate(QWEN, engine(), rows, num_gpu_blocks=300)
