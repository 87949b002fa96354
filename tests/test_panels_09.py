"""The panels of notebook 09 without a browser: what they say is what kvlib simulates, and what a hand can work out."""
import json
import time

import pytest

pytest.importorskip("ipywidgets")

import notebook_store as store  # noqa: E402

import kvlib  # noqa: E402
from kvlib import controls, traffic  # noqa: E402
from kvlib.panels import plan_for_traffic as lesson  # noqa: E402
from kvlib.panels import traffic_facts as facts  # noqa: E402
from kvlib.panels import traffic_pictures as pictures  # noqa: E402

NOTEBOOK = store.NOTEBOOKS / "09_plan_for_traffic.ipynb"
MIX = traffic.Mix(traffic.lognormal(2_000, 6_000), traffic.lognormal(250, 800))
GB10 = kvlib.Engine(gpu="GB10 (DGX Spark)", max_model_len=40_960)
QWEN = kvlib.load_model("Qwen3-8B")


@pytest.fixture(autouse=True)
def fresh_kernel(monkeypatch):
    monkeypatch.setenv("KVLIB_STRICT", "1")
    controls.forget()
    yield
    controls.forget()


def column(shown, key):
    return {row[shown.columns[0].key]: row[key] for row in shown.rows}


# -- the small pool -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("usable, prompt, output, gap, seqs", [
    (40, 64, 100, 6, 7), (30, 64, 150, 2, 7), (20, 100, 60, 0, 3), (60, 16, 200, 10, 7)])
def test_the_small_pool_is_the_simulations(usable, prompt, output, gap, seqs):
    engine = kvlib.Engine(max_model_len=4096, max_num_seqs=seqs, max_num_batched_tokens=2048, enable_prefix_caching=False,
                          async_scheduling=False)
    run = traffic.simulate(None, engine, [(gap * number, prompt, output) for number in range(7)], num_gpu_blocks=usable + 1,
                           groups=facts.GROUP)
    found = facts.moments(usable, prompt, output, gap, seqs)
    assert [each.used for each in found] == run.series["used"]
    assert [len(each.holds) for each in found] == run.series["running"]
    assert [len(each.waiting) for each in found] == run.series["waiting"]
    assert [(t, facts.LETTERS.index(who)) for t, each in enumerate(found) for who in each.thrown] == run.preemption_events


def test_the_newest_is_thrown_out():
    """By hand: A to F come every 6 steps with 4 blocks and take one more each 16 steps; G is the last to come in at step 36."""
    found = facts.moments(40, 64, 100, 6, 7)
    first = next(t for t, each in enumerate(found) if each.thrown)
    assert [who for who, _ in found[first - 1].holds][-1] == "G" and found[first].thrown == ("G",) == found[first].waiting
    assert lesson.SmallPool.predict.answer == lesson.NEWEST
    for step, each in enumerate(found[1:], 1):
        if each.thrown:
            before = [who for who, _ in found[step - 1].holds]
            assert list(each.thrown) == before[::-1][:len(each.thrown)], "the last of those running goes, then the one before"


def test_the_small_pool_shows_the_past_alone():
    panel = lesson.SmallPool()
    assert "Nobody has been thrown out" in panel.plain() and not panel.view.rows["thrown"]
    panel.set(moment=39)
    assert "the last was G, at step 39" in panel.plain() and len(panel.view.rows["thrown"]) == 1
    letters = [row["letter"] for row in panel.view.rows["pool"]]
    held = column(panel.view.table, "blocks")
    assert len(letters) == 40 and {who: letters.count(who) for who in held} == held
    assert column(panel.view.table, "state")["G"] == "waits, thrown out"
    panel.set(moment=2_000)
    assert "all have finished" in panel.plain() and set(column(panel.view.table, "state").values()) == {"finished"}


def test_a_small_pool_that_holds_none_is_one_sentence():
    panel = lesson.SmallPool()
    panel.set(usable=12, output=200)
    assert panel.error == ("request A needs 17 blocks at its end and the pool has 12: it would wait for ever, and so would all behind it; "
                           "enlarge the pool or shorten the answers")


# -- lengths ------------------------------------------------------------------------------------------------------

def test_equal_lengths_by_hand():
    """500 + 100 tokens: 599 are computed, 38 blocks; 10,649 usable ÷ 38 = 280.2, against 4.16 printed."""
    panel = lesson.BlocksOfAMix()
    panel.set(shape="fixed", prompt=500, output=100, max_num_seqs=200)
    kinds, tokens = panel.view.table
    assert kinds.rows[0]["p95"] == kinds.rows[0]["largest"] == 38 and tokens.rows[0]["mean"] == 600
    assert panel.view.answer.startswith("<b>Room for 280.2 requests of the 95th percentile</b>, 40% more than max_num_seqs 200")
    assert [row["value"] for row in panel.view.rows["figures"]][0] == 10_650 / 2_560
    assert len(panel.view.rows["bins"]) == 1 and panel.view.rows["bins"][0]["share"] == 100


@pytest.mark.parametrize("model, kinds", [("Qwen3-8B", ["full"]), ("gpt-oss-20b", ["sliding", "full"]), ("Qwen3.8-27B", ["state", "full"])])
def test_the_verdict_is_kvlibs(model, kinds):
    panel = lesson.BlocksOfAMix()
    panel.set(model=panel._inputs["model"].text(model))
    found = traffic.expect(kvlib.load_model(model), GB10.replace(max_num_seqs=32), MIX, num_gpu_blocks=panel.values.num_gpu_blocks,
                           samples=facts.SAMPLES)
    assert found.verdict in panel.plain() and panel.values.num_gpu_blocks == lesson.POOLS[model]
    assert sorted(row["kind"] for row in panel.view.table[0].rows) == sorted(lesson.KIND_WORDS[kind] for kind in kinds)
    assert sum(row["mean"] for row in panel.view.table[0].rows) == pytest.approx(found.blocks_mean)
    assert sum(row["share"] for row in panel.view.rows["bins"]) == pytest.approx(100)


def test_against_another_pool_is_a_fresh_reckoning():
    model = kvlib.load_model("gpt-oss-20b")
    first = traffic.expect(model, GB10, MIX, num_gpu_blocks=42_600, samples=500)
    for pool, seqs, batched in ((900, 8, 512), (10_650, 64, 2_048)):
        engine = GB10.replace(max_num_seqs=seqs, max_num_batched_tokens=batched)
        again, moved = traffic.expect(model, engine, MIX, num_gpu_blocks=pool, samples=500), first.against(model, engine, pool)
        assert moved == again and moved.verdict == again.verdict and moved.ends == again.ends


def test_own_requests_take_the_place_of_the_lengths():
    for make in (lesson.BlocksOfAMix, lesson.WillItPreempt):
        panel = make()
        panel.set(rows="prompt_tokens,output_tokens\n500,100\n500,100\n")
        assert not panel.error
        panel.set(prompt=4_000)
        if make is lesson.BlocksOfAMix:
            assert panel.view.table[0].rows[0]["largest"] == 38, "the lengths above no longer count"
        else:
            assert "Drawn by chance from 2 requests of yours" in panel.view.note


@pytest.mark.parametrize("line, said", [
    ("1800,", "line 3: output_tokens is missing"), ("-40,25", "line 3: prompt_tokens is '-40'"),
    ("2000,ten", "line 3: output_tokens is 'ten'"),
    ("9e99,5", "line 3: prompt_tokens is '9e99'"), ("40960,5", "line 3: a prompt of 40,960 tokens, and max_model_len is 40,960"),
    ("1e12,1", "line 3: prompt_tokens"), ("5,0\n7,x", "(and 1 more bad lines, the next 4)")])
@pytest.mark.parametrize("make", [lesson.BlocksOfAMix, lesson.WillItPreempt])
def test_a_bad_line_is_named_and_nothing_is_dropped(make, line, said):
    panel = make()
    before = panel.view
    panel.set(rows=f"prompt_tokens,output_tokens\n512,100\n{line}\n")
    assert said in panel.error and panel.error.startswith("Or your own requests") and panel.view is before
    panel.set(rows="")
    assert not panel.error


def test_a_median_above_its_p95():
    panel = lesson.BlocksOfAMix()
    panel.set(prompt=8_192)
    assert not panel.error and panel.raw["prompt_p95"] == "24,576", "the p95 goes along"
    panel.set(prompt_p95=1_024)
    assert panel.error == "p95 of a log-normal length is 1,024, less than median, 8,192"


# -- traffic ------------------------------------------------------------------------------------------------------

def fresh(a_minute=75, seconds=0.2, pool=10_650, seqs=256, batched=2_048, mix=MIX, seed=1):
    rows = [row for row in traffic.Load(mix, 5_000, a_minute * seconds / 60, seed, 40_960) if row[0] < facts.WINDOW]
    return traffic.simulate(QWEN, GB10.replace(max_num_seqs=seqs, max_num_batched_tokens=batched), rows, num_gpu_blocks=pool,
                            max_steps=facts.WINDOW)


@pytest.mark.parametrize("a_minute, seconds, pool, seqs, batched", [
    (75, 0.2, 10_650, 256, 2_048), (75, 0.1, 10_650, 256, 2_048), (60, 0.2, 10_650, 16, 2_048),
    (90, 0.2, 6_825, 256, 512), (5, 0.05, 42_600, 8, 8_192)])
def test_the_panel_is_a_run_of_kvlib(a_minute, seconds, pool, seqs, batched):
    panel = lesson.WillItPreempt()
    panel.set(a_minute=a_minute, seconds=seconds, num_gpu_blocks=pool, max_num_seqs=seqs, max_num_batched_tokens=batched)
    assert not panel.error
    run = fresh(a_minute, seconds, pool, seqs, batched)
    ways, happened = panel.view.table
    assert column(happened, "value")["preemptions"] == run.preemptions and column(happened, "value")["answers finished"] == run.finished
    running = sum(run.series["running"][750:]) / max(1, len(run.series["running"][750:]))
    assert column(ways, "count")["simulated, second half"] == pytest.approx(running) == panel.view.rows["dot"][0]["count"]
    assert len(panel.view.rows["thrown"]) == len({step for step, _ in run.preemption_events})
    assert max(row["share"] for row in panel.view.rows["used"]) == pytest.approx(100 * run.peak_used / (pool - 1))
    assert ("does not preempt" in panel.plain()) == (not run.preemptions)
    assert f">{1_500 * seconds / 60:.1f}<" in panel.view.note


def test_ten_throw_outs_in_five_minutes_are_two_a_minute():
    panel = lesson.WillItPreempt()
    assert column(panel.view.table[1], "value")["preemptions"] == 10
    assert "preempts about" in panel.view.answer and ">2 a minute<" in panel.view.answer
    said = "".join(o.text for c in store.read(NOTEBOOK).cells if c.id == "answer" for o in c.outputs)
    assert "preempts about 2.0 times a minute" in said, "the first cell of the notebook is the panel's first state"
    best = facts.most_seqs(facts.DOCUMENTS, 0.25, 10_650, 2_048)
    assert f"max_num_seqs {best} stops it" in said


def test_what_is_offered_helps():
    panel = lesson.WillItPreempt()
    panel.apply("search")
    best = panel.values.max_num_seqs
    assert "does not preempt" in panel.plain() and "holds requests back" in panel.plain() and 25 < best < 70
    assert fresh(seqs=best).preemptions == 0
    panel.undo()
    assert panel.values.max_num_seqs == 256
    panel.apply("thumb")
    assert panel.values.max_num_seqs == 25 and "does not preempt" in panel.plain()
    assert "thumb" not in [each.key for each in panel.view.actions]
    panel.undo()
    panel.apply("whole")
    assert panel.values.num_gpu_blocks == 42_600 and "does not preempt" in panel.plain()


def test_the_knee_by_hand():
    """Answers of 100 after prompts of 500: 100 steps, 32 to 38 blocks, 35 on average. 10,649 ÷ 35 ÷ 100 steps, 300 a minute: 912."""
    panel = lesson.WillItPreempt()
    panel.set(shape="fixed", prompt=500, output=100, max_num_seqs=512)
    found = facts.expected(panel_asked(panel), 10_650, 512, 2_048)
    assert found.rate_pool * 300 == pytest.approx(912, rel=0.01)
    assert column(panel.view.table[0], "count")["Little's law, rate × steps"] == pytest.approx(25)
    assert column(panel.view.table[0], "count")["simulated, second half"] == pytest.approx(25, rel=0.15)
    assert not panel.view.rows["knee"], "it lies beyond the picture"


def panel_asked(panel):
    return lesson._asked(panel.values, panel.values.share)


def test_a_shared_beginning_spares_blocks_and_changes_no_length():
    lengths = []
    for share in (0.0, 0.5, 1.0):
        rows, _ = facts.arrivals(facts.Asked(share=share), 0.25)
        lengths.append([row[:3] for row in rows])
    assert lengths[0] == lengths[1] == lengths[2]
    panel = lesson.WillItPreempt()
    panel.set(share=1.0)
    assert "does not preempt" in panel.plain() and column(panel.view.table[1], "value")["prompt tokens found in the prefix cache"] > 400_000


def test_a_pool_too_small_for_one_is_one_sentence():
    panel = lesson.WillItPreempt()
    before = panel.view
    panel.set(num_gpu_blocks=2_000)
    assert panel.error == ("The pool has 1,999 usable blocks and one request of max_model_len, 40,960 tokens, takes 2,560: vLLM would not "
                           "start; enlarge the pool") and panel.view is before


def test_cut_prompts_are_counted():
    panel = lesson.WillItPreempt()
    panel.set(prompt=16_384, prompt_p95=40_000, a_minute=20)
    rows, cut = facts.arrivals(panel_asked(panel), 20 * 0.2 / 60)
    assert cut and f"{cut} of {len(rows)} prompts are longer than max_model_len" in panel.view.note


def test_the_questions_have_their_answers():
    mix = lesson.BlocksOfAMix()
    mix.record("16")
    mix.set(num_gpu_blocks=42_600)
    assert mix.view.rows["guess"] and f"Room for {mix.predict.answer:,.1f} requests" in mix.plain()
    knee = lesson.WillItPreempt()
    start = knee.view.rows["knee"][0]["rate"]
    assert round(start) == 57, "as the question says"
    knee.set(seconds=0.1)
    assert knee.view.rows["knee"][0]["rate"] == pytest.approx(knee.predict.answer) == pytest.approx(2 * start)


def test_pictures_keep_inside():
    panel = lesson.WillItPreempt()
    for values in (dict(), dict(a_minute=150, seconds=0.5), dict(a_minute=5), dict(share=1.0, a_minute=150),
                   dict(num_gpu_blocks=42_600, max_num_seqs=512)):
        panel.reset()
        panel.set(**values)
        _, middle, knee = panel.view.chart
        for spec, name, field in ((middle, "lines", "count"), (knee, "curve", "count"), (knee, "dot", "count")):
            top = next(layer["encoding"]["y"]["scale"]["domain"][1] for layer in spec["layer"] if "scale" in layer["encoding"].get("y", {}))
            assert max(row[field] for row in panel.view.rows[name]) <= top


# -- all ----------------------------------------------------------------------------------------------------------

PANELS = [lesson.SmallPool, lesson.BlocksOfAMix, lesson.WillItPreempt]


@pytest.mark.parametrize("make, name, bad", [
    (lesson.SmallPool, "usable", "many"), (lesson.BlocksOfAMix, "prompt", "0"), (lesson.WillItPreempt, "seconds", "0"),
    (lesson.WillItPreempt, "share", "2"), (lesson.WillItPreempt, "a_minute", "")])
def test_a_bad_value_is_one_sentence_and_the_picture_stays(make, name, bad):
    panel = make()
    before = panel.view
    panel.set(**{name: bad})
    assert panel.error.count("expected") == 1 and panel.view is before


@pytest.mark.parametrize("make, name, values, most", [
    (lesson.SmallPool, "moment", (31, 55, 90), 0.01), (lesson.SmallPool, "output", (130, 150, 170), 0.05),
    (lesson.BlocksOfAMix, "max_num_seqs", (16, 64, 128), 0.01), (lesson.WillItPreempt, "a_minute", (40, 70, 100), 0.2)])
def test_computing_is_quick(make, name, values, most):
    """A step costs what it simulates: one window some 50 ms, the rest a few; the best of three, since machines are busy."""
    panel, best = make(), 9.0
    for value in values:
        state = panel._read()[0]
        setattr(state, name, value)
        start = time.process_time()
        panel.compute(state)
        best = min(best, time.process_time() - start)
    assert best < most


def test_one_state_gives_one_picture():
    for make in PANELS:
        panel = make()
        first = json.dumps([panel.view.rows, str(panel.view.chart)])
        facts.run_of.cache_clear(), facts.arrivals.cache_clear(), facts.drawn.cache_clear(), facts.moments.cache_clear()
        again = panel.compute(panel.values)
        assert json.dumps([again.rows, str(again.chart)]) == first


def test_the_still_knee():
    found = facts.expected(facts.DOCUMENTS, facts.QUARTER)
    shown = pictures.knee_picture(found, traffic.StepTime(0.2), (15, 75), [16.0, 61.1], [0, 86])
    assert "61 run from 57 requests a minute on" in shown.alt and "16 at 15, 61 at 75" in shown.alt
