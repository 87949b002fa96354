"""Notebook 11: the figures of each answer against logs, the rules and hand arithmetic; the tree; the links."""
import html
import re
from pathlib import Path

import pytest

pytest.importorskip("ipywidgets")

import notebook_store as store  # noqa: E402

from kvlib import charts  # noqa: E402
from kvlib.panels import questions as q  # noqa: E402
from kvlib.panels import questions_log, questions_memory  # noqa: E402
from kvlib.panels.decision_tree import HEADINGS, anchor, examples, leaves, tree  # noqa: E402
from kvlib.tables import as_text  # noqa: E402

NOTEBOOKS = store.NOTEBOOKS
NOTEBOOK = store.read(NOTEBOOKS / "11_questions.ipynb")
CELLS = {cell.id: cell for cell in NOTEBOOK.cells}


def rows(shown):
    """The table's cells as plain text, row by row."""
    lines = []
    for row in shown.rows:
        lines.append([html.unescape(re.sub(r"<[^>]+>", "", str(col.cell(row.get(col.key))))) for col in shown.columns])
    return lines


def column(shown, header):
    heads = [html.unescape(re.sub(r"<[^>]+>", "", str(col.head()))) for col in shown.columns]
    return [row[heads.index(header)] for row in rows(shown)]


# One test a question: expected values from logs, from vLLM's rules, or by hand. None is copied from what the cell prints.

def test_1_how_many_at_once():
    found = q.at_once((500, 4_000, 40_960), max_num_seqs=256)
    usable = 681_600 // 16 - 1                                       # the log's tokens in blocks, without the null block
    assert column(found, "fit at once") == [f"{usable // -(-n // 16):,}" for n in (500, 4_000, 40_960)] == ["1,331", "170", "16"]
    assert column(found, "run, with --max-num-seqs 256") == ["256", "170", "16"]
    assert "681,600 tokens, 16.64x" in found.caption                 # both printed by the GB10


def test_2_the_refusal_and_the_ways_out():
    was = questions_log.refused()
    assert (was.refusal.needed_gib, was.refusal.available_gib, was.refusal.estimated_max_model_len) == ("23.25", "22.5", 190_272)
    assert was.needed_bytes == 196_608 * 2 * 62 * 4 * 128 * 2        # 62 layers, 4 of 8 KV heads on each of two GPUs
    found = {row[0]: row[1:] for row in rows(q.ways_out())}
    assert found["--max-model-len 190272"][:2] == ["passes vLLM's memory checks", "1.00"]
    assert found["--max-model-len -1 (auto)"][0].endswith("at 190,272")
    assert found["--kv-cache-dtype fp8"][1] == f"{11_893 * 2 / (196_608 / 16):.2f}"     # twice the blocks of 190,272 / 16 + 1
    assert found["--gpu-memory-utilization 0.81"][2].startswith(f"{0.01 * 121.63:.2f} GiB")


def test_3_the_hybrids_table_two():
    assert column(q.printed_by_length(), "printed tokens") == ["1,508,693", "2,682,121", "3,208,045", "3,329,530"]
    assert column(q.printed_by_length(), "concurrency") == ["184.17", "81.85", "24.29", "12.70"]
    assert column(q.printed_by_length(), "blocks a request: tokens + states") == ["6 + 6", "21 + 6", "85 + 6", "168 + 6"]


def test_4_two_prints_of_one_pool():
    found = q.two_prints()
    assert column(found, "printed tokens") == ["290,864", "1,082,800", "1,082,800"]      # the log's, and today's
    assert set(column(found, "concurrency at 32,768")) == {"33.04x"}
    assert 1_487 // 4 * 784 == 290_864 and int(1_487 / 45 * 32_768) == 1_082_800         # 42 blocks of tokens and 3 states
    assert "516,424" in q.which_line(129_472, 1.97, 262_144) and "older print" in q.which_line(129_472, 1.97, 262_144)
    assert "both lines say the same" in q.which_line(681_600, 16.64, 40_960)


def test_5_what_an_upgrade_changes():
    found = q.after_upgrade()
    said = dict(zip(column(found, "vLLM"), column(found, "printed tokens"), strict=True))
    assert round(int(said["0.20.0"].replace(",", "")), -3) == 55_000                     # "about 55k" in the report
    assert said["0.20.0"] == f"{20_480 // 6 * 16:,}"                                     # 6 groups; 50 GiB of 2.5 MiB blocks
    assert abs(int(said["0.21.0"].replace(",", "")) - 525_000) < 10_000                  # "about 525k"
    assert said["0.21.0"] == f"{int(20_480 / (5 * 193 + 4_096) * 131_072):,}"            # window: cdiv(1,023 + 2,048, 16) + 1
    assert said["0.26.0"] == f"{int(20_480 / (5 * 321 + 4_096) * 131_072):,}"            # two batches in flight
    assert column(found, "what changed")[2] == "the token line is computed another way"
    late = q.after_upgrade("Gemma-4-31B", 49, ("0.25.1", "0.26.0"), max_model_len=262_144, max_num_batched_tokens=32_768)
    needed = [(5 * blocks + 8_192) * 10 * 16 * 2 * 16 * 256 * 2 / 2**30 for blocks in (2_113, 4_161)]
    assert column(late, "one request needs (GiB)") == [f"{each:.2f}" for each in needed] == ["45.79", "70.79"]


def test_5_the_report_of_a_known_pool():
    """64.68 GiB at 262,144 tokens and 8,192 batched: 626,949 tokens in the log, 2.39x."""
    found = q.after_upgrade("Gemma-4-31B", 64.68, ("0.25.1",), max_model_len=262_144, max_num_batched_tokens=8_192)
    assert column(found, "printed tokens") == ["626,949"] and column(found, "concurrency") == ["2.39x"]
    assert column(found, "blocks") == ["26,492"]


def test_6_windows_are_charged_for_tokens_in_flight():
    found = q.window_table()
    printed = [row[2::2] for row in rows(found)]
    assert printed == [["383,853", "564,274"], ["290,979", "517,297"], ["290,979", "465,613"]]
    assert rows(found)[1][1] == "512 + 513" and rows(found)[1][3] == "8,192 + 1,033"


def test_7_the_pool_stays():
    assert set(column(q.same_pool(), "tokens")) == {"681,600"}
    assert column(q.same_pool(), "concurrency")[:2] == ["16.64", "33.28"]
    found = q.profiled()
    assert column(found, "tokens") == ["31,232", "23,648", "47,680"]                     # the first two printed
    assert column(found, "report") == ["starts", "refused", "starts"]
    pools = column(found, "0.90 × 23.58 − peak − 0.35 (GiB)")
    assert pools[:2] == ["3.81", "2.89"]                                                 # printed as kv_cache_size
    for pool, blocks in zip(pools[:2], (1_952, 1_478), strict=True):
        assert abs(float(pool) - blocks * 2 / 1024) < 0.01                               # 2 MiB a block of Llama-3.1-8B


def test_8_what_another_program_holds():
    found = q.held_elsewhere(100.0)
    assert column(found, "available (GiB)") == ["113.91", "100.00", "100.00", "113.91"]
    assert column(found, "share")[2] == "0.82" and int(100 * 100 / 121.63) == 82
    assert column(found, "requested (GiB)")[:3] == ["111.90", "111.90", f"{121.63 * 0.82:.2f}"]
    assert [row.split()[0] for row in column(found, "outcome")] == ["passes", "refused", "passes", "passes"]
    lost = 681_600 - int(column(found, "tokens")[2].split()[0].replace(",", ""))
    assert abs(lost - (0.92 - 0.82) * 121.63 * 2**30 / 147_456) < 32 and round(lost, -3) == 89_000
    assert "12.16 GiB" in CELLS["q8"].source and f"{0.1 * 121.63:.2f}" == "12.16"


def test_9_what_a_share_costs():
    found = q.shares((0.92, 0.87, 0.85))
    assert column(found, "requested (GiB)") == [f"{121.63 * share:.2f}" for share in (0.92, 0.87, 0.85)]
    assert column(found, "of it free at start (GiB)") == [f"{113.91 - 121.63 * share:.2f}" for share in (0.92, 0.87, 0.85)]
    assert column(found, "tokens of Qwen3-8B")[0] == "681,600"
    assert abs(0.01 * 121.63 * 2**30 / 147_456 - 8_860) < 10 and int(100 * (113.91 - 8) / 121.63) == 87


def test_10_the_cache_by_hand():
    found = q.fixed_cache()
    blocks = 20 * 2**30 // (16 * 147_456)
    assert column(found, "blocks") == [f"{blocks:,}", f"{blocks:,}", "2,560", "2,561"] and blocks == 9_102
    assert column(found, "tokens")[0] == f"{blocks * 16:,}" == "145,632"
    assert [text.split(":")[0] for text in column(found, "outcome")] == ["passes vLLM's memory checks"] * 2 + [
        "refused", "passes vLLM's memory checks"]


def test_11_the_blocks_of_a_hybrid():
    found = q.hybrid_blocks()
    assert column(found, "attention block size") == ["1,568", "784", "784", "1,600"]
    assert column(found, "a state (B)")[0] == "1,603,584" and column(found, "a token, one layer (B)")[0] == "1,024"
    assert column(found, "state padded by")[0] == f"{100 * (1_605_632 / 1_603_584 - 1):.2f} %"
    assert column(found, "blocks of state a request") == ["6", "6", "6", "15"]           # MTP 3: (2 + 3) × 3 groups
    said = column(q.too_many(), "outcome")
    assert said[0] == "refused: max_num_seqs 256 is more than the 184 blocks for states"
    assert said[1:] == ["passes vLLM's memory checks"] * 2
    assert column(q.too_many(), "chats of 100 tokens that fit") == [str(183 // 7)] * 3
    for blocks, seqs in ((969, 1_024), (161, 256)):                                      # two more reports
        assert column(q.too_many(blocks, (seqs, blocks)), "outcome")[0].startswith(f"refused: max_num_seqs {seqs:,}")


def test_12_where_the_card_went():
    found = q.where_it_went()
    assert "75.23 GiB requested = 51.45 weights + 3.99 activations + 0.26 other + 19.53 cache" == found.caption
    sampler = 3.85 * 1_024 * 262_208 * 4 / 2**30                                         # the fit, by hand
    forward = 1.3 * 8_192 * (3 * 21_504 + 2 * 5_376) * 2 / 2**30
    assert abs(float(column(found, "sampler (GiB)")[1]) - sampler) < 0.03
    assert abs(float(column(found, "forward pass (GiB)")[1]) - forward) < 0.03
    assert abs(sampler - 3.99) < 0.16                                                    # and against the log
    assert "kv-assumed" in str(found.rows[2]["cache"]) and "kv-measured" in str(found.rows[0]["cache"])


def test_13_fp8():
    found = q.fp8_gain()
    assert column(found, "16 bits") == ["681,600", "1,668,183", f"{2_210 * 8_192 // 17:,}"]
    assert column(found, "FP8")[1:] == ["3,208,045", "1,508,693"]
    assert column(found, "gain") == ["2.00x", f"{3_208_045 / 1_668_183:.2f}x", f"{17 / 12:.2f}x"]


def test_14_who_gets_which_heads():
    found = {row[0].split(",")[0]: row[1:] for row in rows(q.split())}
    assert found["Llama-3.1-70B"] == [f"{80 * 2 * heads * 128 * 2:,}" for heads in (8, 4, 2, 1, 1)]
    assert found["Qwen3-30B-A3B"] == [f"{48 * 2 * heads * 128 * 2:,}" for heads in (4, 2, 1, 1, 1)]
    assert set(found["DeepSeek-V3"]) == {"70,272"}
    eight = rows(q.eight_gpus())
    for row, printed in zip(eight[:2], (715_072, 5_721_088), strict=True):               # printed by a log
        low, high = (int(text.replace(",", "")) for text in row[1].split(" to "))
        assert low <= printed <= high and row[2] == f"{printed:,}"
    assert eight[0][3] == "0.72 million" and eight[2][3] == "5.72 million"


def test_15_a_planners_launch_and_one_not_made():
    low, high = questions_memory.planned()
    assert low.refusal.needed_gib == high.refusal.needed_gib == "22.5"
    assert low.needed_bytes == 36 * (256 + 64) * 2 * 1_048_576
    assert low.estimated_max_model_len <= 810_208 <= high.estimated_max_model_len        # printed
    found = q.cards()
    assert column(found, "verdict") == ["refused", "refused", "passes vLLM's memory checks", "passes vLLM's memory checks"]
    assert set(column(found, "weights (GiB)")) == {f"{30.532e9 * 2 / 2**30:.1f}"}


def test_16_what_stops_preemption():
    found = q.preempting()
    fit = 42_599 // -(-4_000 // 16)                       # usable blocks ÷ 250 of a request
    assert fit == 170 and column(found, "launch")[1] == f"--max-num-seqs {fit}"
    assert column(found, "most at once")[1] == "170" and column(found, "preemptions")[1] == column(found, "tokens computed again")[1] == "0"
    assert int(column(found, "preemptions")[0]) > 50 and int(column(found, "tokens computed again")[0].replace(",", "")) > 0
    hybrid = q.hybrid_requests()
    assert column(hybrid, "blocks a request") == [str(-(-10_000 // 1_568) + 6), str(-(-10_000 // 1_568) + 3)]
    assert column(hybrid, "fit at once") == [str(2_209 // 13), str(2_209 // 10)] == ["169", "220"]
    assert column(hybrid, "printed tokens ÷ 10,000")[0] == str(3_208_045 // 10_000)


# The page

QUESTIONS = range(1, 17)


@pytest.mark.parametrize("number", QUESTIONS)
def test_each_section_has_all_its_parts(number):
    text, cell = CELLS[f"q{number}"].source, CELLS[f"q{number}-live"]
    assert text.startswith(f"## {HEADINGS[number][0]}\n")
    for part in ("**Turn**", "**It costs**", "**Rests on**", "**Lesson**"):
        assert text.count(part) == 1
    assert re.search(r"\*\*Rests on\*\*.*`(log|rules|assumption)`", text)
    assert len(cell.source.splitlines()) <= 8 and cell.outputs
    assert re.search(r"^\*\*.+\*\*", text, re.M), "the answer stands in bold"


#: Figures of the prose that a report or a log gave and the cell does not print.
REPORTED = {1: {"17"}, 4: set(), 5: {"0.20", "0.21", "0.25", "525", "40"}, 7: {"0.92", "3090", "10517", "29,000", "20,000", "35,000"},
            8: set(), 9: {"0.01", "1.22", "8,860", "0.87", "8"}, 11: {"969", "161", "1,024", "256"},
            12: {"8,224", "3.9", "262,208", "44"}, 14: {"7.7"}, 15: {"3.3"}}


@pytest.mark.parametrize("number", QUESTIONS)
def test_the_figures_of_an_answer_are_worked_out_in_its_cell(number):
    """Every figure with a comma or a point in it that the prose states stands in what the cell shows or was asked for."""
    prose = CELLS[f"q{number}"].source.split("**Turn**")[0].split("\n", 1)[1]
    cell = CELLS[f"q{number}-live"]
    shown = " ".join(re.sub(r"<[^>]+>", " ", "".join(output.get("text", "") or output.get("data", {}).get("text/html", "")))
                     for output in cell.outputs) + cell.source.replace("_", ",")
    figures = set(re.findall(r"\d[\d,]*\.?\d*", re.sub(r"\]\([^)]*\)", "", re.sub(r"[A-Z][\w.]*-[\w.-]+", "", prose))))
    stated = {figure.rstrip(".,") for figure in figures if re.search(r"[,.]\d", figure)}
    stated -= REPORTED.get(number, set()) | {"0.18", "0.19", "0.20.0", "0.20.1", "0.29"}   # releases
    missing = {figure for figure in stated if not re.search(rf"(?<![\d,.]){re.escape(figure)}(?!\d)", shown)}
    assert not missing


def test_the_contents_name_every_question_once():
    card = NOTEBOOK.cells[0].source
    assert re.findall(r"^\| \[Q(\d+)\]\((#[^)]+)\)", card, re.M) and sorted(
        int(n) for n, _ in re.findall(r"^\| \[Q(\d+)\]\((#[^)]+)\)", card, re.M)) == list(QUESTIONS)
    for number, target in re.findall(r"^\| \[Q(\d+)\]\((#[^)]+)\)", card, re.M):
        assert target == anchor(int(number))


def headings(path):
    text = "\n\n".join(cell.source for cell in store.read(path).cells if cell.cell_type == "markdown")
    return {re.sub(r"\s", "-", head.strip()) for head in re.findall(r"^#+ (.*)", text, re.M)}


@pytest.mark.parametrize("name", ["10_where_calculators_differ.ipynb", "11_questions.ipynb"])
def test_every_link_leads_to_a_heading(name):
    text = "\n".join(cell.source for cell in store.read(NOTEBOOKS / name).cells if cell.cell_type == "markdown")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 3
    for target in targets + [lesson for _, lesson in HEADINGS.values()]:
        path, _, part = target.partition("#")
        file = NOTEBOOKS / (path or name)
        assert Path(file).exists(), target
        assert not part or part in headings(file), target


# The tree

def test_every_question_but_the_two_on_amounts_is_a_leaf():
    asked = {leaf.question for found in leaves().values() for leaf in found}
    assert asked == set(QUESTIONS) - {9, 10}
    assert list(leaves()) == ["It refuses to start", "Too few requests", "It preempts", "A number moved"]


def test_the_examples_are_those_of_the_sections():
    text = as_text(examples())
    for figure in ("190,272", "100.0 GiB free, 111.9 asked", "256 is more than the 184 blocks", "56.88 GiB", "16.64x", "170 requests",
                   "1,668,183 → 3,208,045", "0.72 → 5.72 million", "465,613 → 564,274", "169 fit; the printed size suggests 320",
                   "54,608 → 530,400", "1,508,693 at 8,192, 3,329,530 at 262,144", "290,864 tokens beside 33.04x"):
        assert figure in text
    linked = re.findall(r'<a href="(#[^"]+)">Q(\d+)</a>', examples().html)
    assert len(linked) == 16 and all(target == anchor(int(number)) for target, number in linked)


def test_the_tree_is_a_picture_with_words_that_takes_the_pages_ink():
    charts.setup()
    data, about = tree()._bundle()
    words = about["image/png"]["alt"]
    assert all(leaf.clue in words and f"Q{leaf.question}" in words for found in leaves().values() for leaf in found)
    drawing = data["text/html"]
    assert 'role="img"' in drawing and "currentColor" in drawing and "http://" not in drawing.replace("http://www.w3.org", "")
    for found in leaves().values():
        for leaf in found:                            # 13 px of a sans-serif: about 7 px a letter
            assert len(leaf.clue) * 7.3 < 390 and len(leaf.lever) * 7.3 < 388 - 40
