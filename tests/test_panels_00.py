"""The first notebook's panel and the words of its *your turn* cells: agreement with kvlib, and with one another."""
import re

import pytest

pytest.importorskip("altair")

import kvlib
from kvlib import catalog, tables
from kvlib.controls import forget
from kvlib.panels import start_here, start_words
from kvlib.panels.start_here import EACH, LIMIT, FirstLine, launch
from kvlib.ranges import span
from kvlib.reserve import assumed_budget
from kvlib.units import GiB

STOPS = [1024, 2048, 4096, 8192, 16384, 32768, 40960, 65536, 131072]


@pytest.fixture
def panel():
    forget("00-first-line")
    yield FirstLine()
    forget("00-first-line")


def own(length):
    """kvlib's answer, asked anew: the log's pool under another length."""
    model = kvlib.load_model("Qwen3-8B")
    return kvlib.size(model, kvlib.Engine(vllm_version="0.28", max_model_len=length), available_bytes=42_600 * 16 * 147_456)


def drawn(panel, pool):
    """The strips of a pool, and the numbers of the requests in it."""
    rows = panel.view.rows[pool]
    return rows, {row["number"] for row in rows} - {0}


def test_the_first_screen_says_what_was_promised(panel):
    plain = panel.plain()
    assert "16.64 requests of 40,960 tokens fit at once in the worst case; at 4,000 tokens each, about 170." in plain
    line = "GPU KV cache size: 681,600 tokens, Maximum concurrency for 40,960 tokens per request: 16.64x"
    assert plain.count(line) == 2, "what vLLM would print, and what it did print"
    assert catalog.log_text("qwen3-8b-gb10").splitlines()[-1] == line
    assert "The same to the last digit." in plain
    assert 'title="measured">The GB10 printed' in str(panel.fallback())


def test_the_answer_to_the_question_does_not_stand_above_it(panel):
    assert "83.2" not in panel.plain()
    panel.reveal()
    assert "83.2 requests" in panel._asked()["verdict"]


@pytest.mark.parametrize("length", [*STOPS, 1025, 4000, 5000, 40_959, 40_961, 100_000])
def test_sentence_lines_table_and_picture_agree_with_kvlib(panel, length):
    panel.set(max_model_len=length)
    assert panel.error == ""
    s = own(length)
    full = f"{s.max_concurrency:.2f}"
    text = panel.plain()
    assert full in re.sub("<[^>]+>", "", panel.view.answer)
    assert s.log_lines()[-1] in text
    two = panel.view.table[1].rows
    assert (two[0]["tokens"], two[0]["blocks"], two[0]["fit"]) == (length, s.blocks_per_request, s.max_concurrency)
    assert tables.gib(s.needed_bytes) in two[0]["bytes"]
    rows, requests = drawn(panel, "worst")
    assert len(requests) == int(s.max_concurrency)
    assert full in panel.view.description
    for number in range(1, int(s.max_concurrency) + 1):
        assert sum(row["end"] - row["start"] for row in rows if row["number"] == number) == s.blocks_per_request
    assert [row["end"] for row in rows[:-1]] == [row["start"] for row in rows[1:]]
    assert (rows[0]["start"], rows[-1]["end"]) == (0, s.num_gpu_blocks)


def test_everyday_requests_need_a_limit_that_lets_them_in(panel):
    for length in STOPS:
        panel.set(max_model_len=length)
        _, requests = drawn(panel, "everyday")
        assert len(requests) == (int(own(EACH).max_concurrency) if length >= EACH else 0)
        assert ("turned away" in panel.plain()) == (length < EACH)


def test_beyond_the_models_own_maximum_vllm_refuses(panel):
    panel.set(max_model_len=LIMIT)
    assert "refuses" not in panel.plain()
    panel.set(max_model_len=65_536)
    assert panel.error == "", "the figures are shown, with what vLLM says first"
    text = panel.plain()
    assert "vLLM refuses 65,536 tokens" in text and "own maximum is 40,960" in panel.view.note
    assert "Unstretched, vLLM prints an error that names max_model_len." in text
    assert "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1" in panel.view.note and "--hf-overrides" in panel.view.note
    assert {row["colour"] for row in drawn(panel, "worst")[0]} == {"#D55E00", "#999999"}
    assert any("VLLM_ALLOW_LONG_MAX_MODEL_LEN" in note for note in own(65_536).notes), "kvlib says so too"


def test_no_dull_control(panel):
    shapes = set()
    for length in STOPS:
        panel.set(max_model_len=length)
        shapes.add(str(panel.view.rows))
    assert len(shapes) == len(STOPS)


def test_a_step_takes_under_five_milliseconds(panel):
    import time
    best = {}
    for length in (1024, 2048, 8192):
        panel.compute(panel.values)
        start_here._pool.cache_clear()
        panel.set(max_model_len=length)
        times = []
        for _ in range(9):
            start_here._pool.cache_clear()
            start = time.process_time()
            panel.compute(panel.values)
            times.append(time.process_time() - start)
        best[length] = min(times)
    assert max(best.values()) < 0.005, best


@pytest.mark.parametrize("typed", ["200000", "1023", "0", "-1", "", "many", "1e9", "4096.5", "nan"])
def test_a_bad_value_is_one_sentence_and_the_last_picture_stays(panel, typed):
    panel.set(max_model_len=8192)
    before = panel.view
    panel.set(max_model_len=typed)
    assert panel.error.startswith("Longest request: found ")
    assert panel.error.endswith("expected a whole number from 1,024 to 131,072 tokens.")
    assert panel.view is before and panel.raw["max_model_len"] == typed
    panel.set(max_model_len="16K")
    assert panel.error == "" and panel.values.max_model_len == 16_384


@pytest.mark.parametrize("guess, end, said", [
    ("40", 40 * 8192 / 681_600, "40 × 8,192 tokens end at the mark"), ("83.2", 83.2 * 8192 / 681_600, "end at the mark"),
    ("500", 1, "500 × 8,192 tokens would need 6.0 such pools"), ("0", 0, "0 × 8,192 tokens end")])
def test_the_guess_is_drawn_where_it_would_end(panel, guess, end, said):
    panel.record(guess)
    (row,) = panel.view.rows["guess"]
    line = (row["y"] + 2 - start_here._HEAD) / start_here._TALL
    assert (line + row["value"]) / start_here._LINES == pytest.approx(end)
    assert said in row["label"]


def test_launch_is_the_running_example():
    assert launch(LIMIT).num_gpu_blocks == 42_600


# ---- words -----------------------------------------------------------------------------------------------------------


def ask(gpu="RTX 4090", length=8192, each=4000, model="Qwen3-8B"):
    m, engine = kvlib.load_model(model), kvlib.Engine(gpu=gpu, max_model_len=length)
    memory = assumed_budget(m, engine)
    sizes = kvlib.size_range(m, engine, memory=memory)
    return repr(start_words.before_launch(*sizes, memory, each)), sizes, memory


def test_before_a_launch_a_range_and_what_settles_it():
    text, (low, _, high), _ = ask()
    assert "passes vLLM's memory checks." in text
    assert "about 19,800 to 43,600 tokens" in text
    assert 19_000 <= low.kv_cache_tokens and high.kv_cache_tokens <= 44_000, "never drawn narrower"
    assert f"{low.kv_cache_tokens:,}" not in text, "no exact digits before a launch"
    assert "One launch settles it" in text and "Not checked: kernels" in text
    assert not re.search(r"\b(starts|will run)\b", text)


def test_too_close_to_call_names_the_break_even():
    text, (low, _, high), memory = ask(length=40_960)
    assert not low.fits and high.fits
    even = float(re.search(r"take at most ([\d.]+) GiB together", text)[1])
    weights, total = memory.weights_bytes, memory.total_bytes
    block = low.bytes_per_block
    needed = (40_960 // 16 + 1) * block
    assert even == pytest.approx((total * 0.92 - weights - needed) / GiB, abs=0.06)


@pytest.mark.parametrize("gpu, length, said", [
    ("T4", 8192, "the weights alone are larger than the GPU"), ("RTX 4080 16GB", 1024, "no memory is left for the cache blocks"),
    ("L4", 40_960, "one request of 40,960 tokens does not fit. In that memory about ")])
def test_where_it_fails_first(gpu, length, said):
    text, _, _ = ask(gpu, length)
    assert "fails vLLM's memory checks: " + said in text


def test_longer_than_the_model_was_made_for():
    text, _, _ = ask("H100 SXM 80GB", 65_536)
    assert text.startswith("max_model_len 65,536 is more than the 40,960 of Qwen3-8B's config: vLLM refuses it unless ")
    assert "vLLM refuses" not in ask("H100 SXM 80GB", 40_960)[0]


def test_a_length_that_vllm_chooses_is_a_range_too():
    text, (low, _, high), _ = ask(length=-1)
    assert low.max_model_len < high.max_model_len
    assert "requests of up to about 19,800 to 41,000 tokens" in text


def test_several_cards():
    model, engine = kvlib.load_model("Qwen3-8B"), kvlib.Engine(gpu="L4", max_model_len=8192, tensor_parallel_size=2)
    memory = assumed_budget(model, engine)
    text = repr(start_words.before_launch(*kvlib.size_range(model, engine, memory=memory), memory, 4000))
    assert text.startswith("Qwen3-8B on 2 × L4, requests of up to 8,192 tokens: ")


def test_requests_longer_than_the_limit_are_none():
    assert "none of 9,000 tokens, which is more than the longest allowed" in ask(each=9000)[0]


@pytest.mark.parametrize("each", [0, -3, 2.5, "4000", True])
def test_a_bad_length_of_ones_own(each):
    with pytest.raises(kvlib.SizingError, match="tokens_each is .*; it must be a whole number of at least 1"):
        ask(each=each)


@pytest.mark.parametrize("gpu, said", [("RTX 4091", "close names are RTX 4090"), ("A100 80GB", "could be A100 80GB PCIe or")])
def test_a_wrong_card_is_one_sentence(gpu, said):
    with pytest.raises(kvlib.SizingError, match=said):
        ask(gpu)


def test_what_is_measured_leaves_no_range():
    model, engine = kvlib.load_model("Qwen3-8B"), kvlib.Engine(gpu="RTX 4090", max_model_len=8192)
    memory = kvlib.MemoryBudget(24 * GiB, 16 * GiB, GiB, GiB)
    text = repr(start_words.before_launch(*kvlib.size_range(model, engine, memory=memory), memory, 4000))
    assert "It is a range" not in text


def test_a_log_as_a_table():
    shown = start_words.log_table(kvlib.explain(catalog.log_text("qwen3-8b-gb10"), model="Qwen3-8B"))
    text = tables.as_text(shown)
    assert "All in all: within rounding" in text
    assert "681,600 to 681,680" in text and "tokens in the cache" in text


@pytest.mark.parametrize("log", ["", "hello", "INFO 12:00 nothing of interest"])
def test_a_log_without_figures(log):
    assert "No figure of the cache was found" in repr(start_words.log_table(kvlib.explain(log, model="Qwen3-8B")))


@pytest.mark.parametrize("low, high, said", [
    (19_856, 43_520, "19,800 to 43,600"), (2.42, 5.31, "2.42 to 5.31"), (0, 0.944, "0 to 0.95"), (9.99, 1001, "9.99 to 1,010"),
    (17.187, 17.187, "17.1 to 17.2"), (5, 5, "5.00")])
def test_spans(low, high, said):
    assert span(low, high) == said
