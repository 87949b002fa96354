"""The exercises: what each check says to the right answer, to likely wrong ones, and to nonsense.

Right answers and slips are worked out by hand here, from the numbers in the question or in the notes.
"""
import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import learner  # noqa: E402

from kvlib import workshop  # noqa: E402
from kvlib.exercise import KINDS, LEVELS  # noqa: E402
from kvlib.workshop import check, hint, ninety, progress, register  # noqa: E402

BLOCK = 147_456 * 16   # bytes of a block of Qwen3-8B; 147,456 is in the GB10 note

# number: ([right answers], [(a likely wrong one, what must be said of it)])
ANSWERS = {
    "01.1": ([94 * 4 * 128 * 2 * 2, "192,512 bytes", "188 KiB", "192512"],
             [(94 * 64 * 128 * 2 * 2, "64 query heads"), (94 * 4 * 64 * 2 * 2, "head_dim was divided"), (94 * 4 * 128, "key and value"),
              (188, "would be right in KiB"), ("188 KB", "steps of 1,000")]),
    "01.2": (["head_dim", "`head_dim`", " Head_Dim "],
             [("num_key_value_heads", "that is right"), ("hidden_size", "one of the two it divided"), ("torch_dtype", "2 bytes a number")]),
    "01.3": ([1, "1 request", "1.0"],
             [(4, "that was Qwen3-8B"), (0, "the first one counts"), (11, "layers, KV heads and width"), (2, "too large")]),
    "01.4": ([135_633, "135,633 tokens", "135 633"],
             [(145_635, "decimal GB"), (135_633.68, "round down"), (135_634, "round down"), (20_000_000_000 // 589_824, "32 query heads")]),
    "02.1": ([1.70, "1.70 GiB", "1,70", "1741 MiB"],
             [(8.04, "from the whole card"), (16.70, "the weights are still in it"), (2.9, "not of what the weights leave"),
              ("1.70 GB", "right in GiB, and GB was written")]),
    "02.2": ([14_563 * 16, "233,008 tokens"],
             [(233_016, "blocks are whole"), (214_368, "leaves the share aside"), (14_563, "those are blocks"),
              (int(32e9 // BLOCK) * 16, "GiB were read as GB")]),
    "02.3": ([0.89, "0.89", "89 %"],
             [(0.90, "only 108.91 are free"), (0.95, "share of the total"), (0.93, "forgets the 5 GiB"), (108.91 / 121.63, "two decimals")]),
    "02.4": ([8_950, "9000 tokens", "8,954"],
             [(11_390, "the sampler is the larger one"), (13_016, "the question is for the difference"), (560, "counts blocks"), (100, "too small")]),
    "03.1": ([3_215 // 8 * 16, "6,416 tokens"],
             [(6_430, "begins another block"), (6_432, "one block more"), (16_384, "divide the pool"), (401, "those are blocks")]),
    "03.2": (["num_key_value_heads", "'num_key_value_heads'"],
             [("num_attention_heads", "query heads"), ("head_dim", "width of one head"), ("num_kv_heads", "nearly")]),
    "03.3": ([676_190, "676,190 tokens"],
             [(681_600, "slots of the pool"), (676_000, "multiplies the fraction"), (687_096, "a block begun is a block taken"),
              (676.19, "those are requests")]),
    "04.1": ([24, "24 KiB", "24576 B"],
             [(12, "cannot hold half of one"), (96, "one GPU"), (48, "each of two GPUs"), (192, "all eight keep together"), ("24 kB", "steps of 1,000")]),
    "04.2": ([1_419_824, "1,419,824 tokens"],
             [(177_472, "the token is that of one GPU"), (11_358_592, "TP is counted twice"), (1_587_600, "the share is missing"),
              (2 * 523_296, "one of the two gains only"), (1_322_320, "GiB were read as GB")]),
    "04.3": ([31_254, "31,254 blocks", 31_254.5],
             [(125_018, "weigh it"), (7_813, "TP is taken out twice"), (62_509, "number of GPUs"), (500_064, "blocks are asked for")]),
    "05.1": ([10_288 * 16, "164,608 tokens"],
             [(164_656, "20.1 on the dot"), (164_688, "that is the most"), (164_618, "blocks are whole"), (10_288, "those are blocks")]),
    "05.2": ([1, "1"], [(0, "the smaller pool decides"), (2, "count from 0"), (163_408, "too large")]),
    "05.3": ([2.25, "2.25 MiB", "2304 KiB", "2,359,296 B"],
             [(10.24, "span of the printed GiB"), (0.140625, "a block has 16"), (9, "32 query heads"), (1.125, "keys without values")]),
    "06.1": ([5.22, "5.22x", "5.22 requests"],
             [(1.31, "32 query heads"), (10.44, "keys without values"), (4.86, "GiB were read as GB"), (5, "two decimals")]),
    "06.2": (["active", "Active"], [("heads", "this is about weights"), ("GB", "7 per cent"), ("cache", "ask for a hint")]),
    "06.3": ([], [(131_072, "that is what is refused"), (1, "too small"), (10**6, "too large")]),
    "07.1": ([80, "80 KiB", 10 * 16 * 256 * 2 / 1024],
             [(496, "all 62 layers"), (40, "keys alone"), (416, "stopped growing"), (160, "attention heads")]),
    "07.2": ([61 * (1_152 + 132) / 1024, 76.5, "78,324 B"],
             [(68.625, "latent row alone"), (76.25, "scale is missing"), (137.25, "not two"), (145.1, "not two")]),
    "07.3": ([24.9, 25, "24.9x"],
             [(12.44, "not as key and as value"), (71.1, "the tool took 56"), (0.0402, "turn the fraction round"), (128, "narrow ones")]),
    "08.1": ([(2_210 - 1) // 13, "169 sequences", 170],
             [(320, "counted in blocks, states included"), (220, "prefix caching"), (315, "leaves out the states")]),
    "08.2": ([54 * 1_568, "84,672 tokens"], [(9_408, "where it is half"), (54, "counts blocks"), (94_080, "on top of the tokens")]),
    "08.3": ([1_668_183], [(1_604_022, "blocks of state do not double"), (3_208_045, "the tokens do not"), (10, "too small")]),
    "08.4": ([3_208_045, "3,208,045 tokens"], [(865_536, "the old figure"), (3_465_280, "slots of the pool"), (10, "too small")]),
    "09.1": ([106, "106 requests", 42_599 // 400],
             [(16, "as the printed figure does"), (16.64, "as the printed figure does"), (6, "a block holds 16"), (96, "keeps the margin")]),
    "09.2": ([60, "60 requests", 40 / 60 * 90],
             [(40, "arrivals in a minute"), (3_600, "rate per minute by seconds"), (300, "counts steps as seconds"), (90, "one request stays")]),
    "09.3": (["B", " b "], [("C", "goes by admission"), ("A", "nobody behind it"), ("all", "ask for a hint")]),
    "capstone": (["--max-model-len 32768 --kv-cache-dtype fp8", "vllm serve m --max-model-len=32k --kv-cache-dtype fp8 --max-num-seqs 64"],
                 [("--kv-cache-dtype fp8", "nothing limits the longest request"), ("--max-model-len 16384", "would be turned away"),
                  ("--max-model-len 32768", "too close to call"), ("--max-model-len 32000 --gpu-memory-utilization 0.97", "of 20"),
                  ("--max-model-len 32768 -tp 2", "there is one card"),
                  ("--max-model-len 32768 --quantization fp8", "stay in 16 bits tonight"),
                  ("--max-model-len 131072 --kv-cache-dtype fp8", "refused"),
                  ("--max-model-len 32768 --kv-cache-dtype fp8 --max-num-seqs 8", "lets fewer run"), ("fp8", "is not a flag"),
                  ("--max-model-len 32000 --num-gpu-blocks-override 99999", "no longer checked"), ("--max-model-len x", "max_model_len")]),
}
NONSENSE = ("hello", "???", [1], {}, float("nan"), float("inf"), True, object(), "1e999", "-", "12 parsecs", "1 2 3 x y", "\0", "9" * 5_000, b"12")


def test_every_exercise_is_tried():
    assert list(ANSWERS) == list(register())
    assert all(len(wrong) >= 3 for _, wrong in ANSWERS.values())


@pytest.mark.parametrize("number, answer", [(n, a) for n, (right, _) in ANSWERS.items() for a in right])
def test_right(number, answer):
    verdict = check(number, answer)
    assert verdict.state == "right" and str(verdict).startswith("Right: "), verdict


@pytest.mark.parametrize("number, answer, said", [(n, a, s) for n, (_, wrong) in ANSWERS.items() for a, s in wrong])
def test_wrong_names_the_slip_and_not_the_answer(number, answer, said):
    verdict = check(number, answer)
    assert verdict.state == "wrong" and said in str(verdict), verdict
    right = register()[number].right
    if right and answer not in ("188 KB", "24 kB", "1.70 GB", 188):   # there the figure itself was typed
        shown = {text.replace(",", "").rstrip(".") for text in re.findall(r"[\d.,]*\d", str(verdict))} if not isinstance(right, str) else str(verdict)
        own = {text.replace(",", "") for text in re.findall(r"[\d.,]*\d", str(answer))}
        assert (f"{right:g}" if isinstance(right, float) else str(right)) not in (shown if isinstance(shown, str) else shown - own) or number == "05.2"


@pytest.mark.parametrize("number", ANSWERS)
@pytest.mark.parametrize("answer", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_is_answered_in_a_sentence(number, answer):
    verdict = check(number, answer)
    assert verdict.state == "wrong" and str(verdict)[-1] in ".?" and len(str(verdict)) < 400
    assert "<" not in verdict._repr_html_().split(">", 1)[1].rsplit("</div>", 1)[0]


@pytest.mark.parametrize("number", ANSWERS)
def test_a_blank_is_open(number):
    assert {check(number, blank).state for blank in (None, ..., "", "  ")} == {"open"}


def test_the_length_for_certain_is_the_least_of_the_range():
    from kvlib.fit import fit
    assert check("06.3", fit("Llama-3.1-8B", gpu="L4").low.estimated_max_model_len).state == "right"
    assert "usual reserve" in str(check("06.3", fit("Llama-3.1-8B", gpu="L4").typical.estimated_max_model_len))


def test_each_foreseen_slip_is_wrong_and_named():
    for number, exercise in register().items():
        for slip, why in exercise.wrong:
            verdict = exercise.check(slip)
            assert verdict.state == "wrong" and why in str(verdict), (number, slip, str(verdict))


def test_a_number_that_does_not_exist_names_those_that_do():
    assert "01.1, 01.2, 01.3, 01.4" in str(check("01.9", 3))
    assert "such as \"03.2\"" in str(check("nothing", 3)) and check(3.2, 1).state == "wrong" and hint("x").state == "wrong"


def test_hints_come_in_two_steps_and_do_not_hold_the_answer():
    workshop._asked.clear()
    assert [str(hint("03.3"))[:11] for _ in range(3)] == ["Hint 1 of 2", "Hint 2 of 2", "Hint 2 of 2"]
    assert str(hint("03.3", 1)).startswith("Hint 1")
    for number, exercise in register().items():
        right = exercise.right
        if right and number != "05.2":
            shown = right if isinstance(right, str) else f"{right:,}"
            assert not any(re.search(rf"(?<![\d.]){re.escape(shown)}(?![\d.])", text) for text in exercise.about.hints), number


def test_the_register_is_complete():
    for number, exercise in register().items():
        about = exercise.about
        assert about.kind in KINDS and about.level in LEVELS and 1 <= about.minutes <= 10 and about.misconception, number
    kinds = {about.kind for about in ninety()}
    assert len(ninety()) == 6 and kinds == set(KINDS), "the six show every kind"
    for lesson in range(1, 10):
        assert len([n for n in register() if n.startswith(f"0{lesson}.")]) in (3, 4)


# -- progress -------------------------------------------------------------------------------------------------------

@pytest.fixture
def kernel(monkeypatch, tmp_path):
    """As in a notebook that runs in tmp_path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.delenv("KVLIB_STRICT", raising=False)
    return workshop._kept


def test_progress_is_one_line_and_stays(kernel, tmp_path):
    kernel.forget()
    assert str(progress()) == "0 of 31 right: 01 ····  02 ····  03 ···  04 ···  05 ···  06 ···  07 ···  08 ····  09 ···  capstone ·"
    check("01.2", "head_dim"), check("03.2", "head_dim"), check("08.1", 169)
    assert str(progress()).startswith("2 of 31 right: 01 ·✓··  02 ····  03 ···")
    kernel.forget()
    assert str(progress()).startswith("2 of 31 right"), "another notebook of the folder sees it"
    (tmp_path / kernel.NAME).write_text("[[", encoding="utf-8")
    assert str(progress()).startswith("0 of 31 right"), "a broken file is an empty one"
    check("01.2", "head_dim")
    assert json.loads((tmp_path / kernel.NAME).read_text(encoding="utf-8")) == ["01.2"]


def test_nothing_is_written_outside_a_notebook(kernel, monkeypatch, tmp_path):
    monkeypatch.setenv("KVLIB_STRICT", "1")
    kernel.forget()
    check("01.2", "head_dim")
    assert list(tmp_path.iterdir()) == [] and "1 of 31" in str(progress())
    kernel.forget()


# -- the notebooks --------------------------------------------------------------------------------------------------

def cells_by_number():
    found = {}
    for path in learner.learners():
        for cell in learner.cells_of(path):
            if (number := learner.number_of(cell.id)):
                found.setdefault(number, []).append((path, cell))
    return found


def test_the_lessons_hold_what_the_solutions_make_of_them():
    assert learner.drifted() == [], "run `python run.py learner`"


def test_every_exercise_stands_solved_and_blank():
    solved = {learner.number_of(cell_id) for cell_id in learner.exercises()}
    assert solved == set(register())
    assert solved == set(cells_by_number())


def test_every_question_is_headed_as_the_register_says():
    for cell_id, text in learner.exercises().items():
        if not cell_id.endswith("-check"):
            assert text.startswith(register()[learner.number_of(cell_id)].about.heading + "\n\n"), cell_id


def test_every_blank_is_blank_and_asks_for_its_own_number():
    for cell_id, text in learner.exercises().items():
        if cell_id.endswith("-check"):
            number = learner.number_of(cell_id)
            assert re.fullmatch(rf'(my_\w+) = None( +# .*)?\ncheck\("{re.escape(number)}", \1\)', text), text
            right = register()[number].right
            if isinstance(right, str) and right or not isinstance(right, str) and right > 9:
                assert (right if isinstance(right, str) else f"{right:g}") not in text


def test_every_solution_is_right():
    for path in sorted(learner.SOLUTIONS.glob("*.ipynb")):
        for cell in learner.cells_of(path):
            if cell.cell_type == "code" and learner.number_of(cell.id):
                (output,) = cell.outputs
                assert "".join(output.data["text/plain"]).startswith("Right: "), (path.name, cell.id)


def test_a_lesson_does_not_hold_worked_answers():
    worked = {cell.id: cell.source for path in learner.SOLUTIONS.glob("*.ipynb") for cell in learner.cells_of(path) if cell.id.startswith("worked-")}
    assert len(worked) == len(register())
    for path in learner.learners():
        text = "\n".join(cell.source for cell in learner.cells_of(path))
        assert not [cell_id for cell_id, answer in worked.items() if answer[:60] in text], path.name


def test_blanking():
    assert learner.blank('my_x = 3 * 4   # KiB\ncheck("01.1", my_x)') == 'my_x = None                        # KiB\ncheck("01.1", my_x)'
    assert learner.blank('my_f = "a # b"\ncheck("01.2", my_f)').startswith("my_f = None")
    assert learner.number_of("ex-01-2-check") == "01.2" and learner.number_of("ex4-fit") is None


def card_minutes(path):
    return [int(n) for n in re.findall(r"\d+", re.search(r"\*\*Time\*\*(.*)", learner.cells_of(path)[0].source)[1])]


def test_the_minutes_fit_the_cards():
    for path in learner.learners():
        _, exercises = card_minutes(path)
        if path.stem == "workshop_90":
            assert exercises == sum(about.minutes for about in ninety())
        else:
            assert sum(e.about.minutes for n, e in register().items() if n.startswith(path.name[:2])) <= exercises, path.name


def test_the_ninety_minutes_hold_the_six_and_no_others():
    cells = learner.cells_of(learner.NOTEBOOKS / "workshop_90.ipynb")
    held = {learner.number_of(cell.id) for cell in cells} - {None}
    assert held == {about.number for about in ninety()}
    clock = next(cell.source for cell in cells if cell.id == "clock")
    times = [int(h) * 60 + int(m) for h, m in re.findall(r"^\| (\d):(\d\d) ", clock, re.M)]
    assert times == sorted(times) and times[0] == 0 and times[-1] < 90


def test_what_is_said_holds_no_markup():
    """A check's sentence is shown as it stands, so a word set off by stars would show its stars."""
    for number, exercise in register().items():
        said = [*exercise.about.hints, exercise.because, *(why for _, why in exercise.wrong)]
        assert not [text for text in said if re.search(r"(?<!\*)\*\w+\*(?!\*)|`|\*\*\w", text)], number
