"""What a teacher is given: the guide's tables, the plans' clocks, the quiz, and the commands for a class."""
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import bundle  # noqa: E402
import learner  # noqa: E402
import wheels  # noqa: E402

import run  # noqa: E402
from kvlib.workshop import check, register  # noqa: E402

FOLDER = run.ROOT / "notebooks" / "instructor"
PAGES = sorted(FOLDER.glob("*.md"))
GUIDE = (FOLDER / "guide.md").read_text(encoding="utf-8")


def clock(text):
    return re.findall(r"^\| (\d:\d\d) \|", text, re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page):
    text = page.read_text(encoding="utf-8")
    headings = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"^#+ (.*)", text, re.M)}
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, part = target.partition("#")
        assert not path.startswith("http") and (not path or (FOLDER / path).exists()), target
        assert not part or part in headings, target


def test_the_guide_lists_the_exercises_as_they_are():
    for number, exercise in register().items():
        about = exercise.about
        shown = f"**{number}**" if about.ninety else number
        assert f"| {shown} | {about.title} | {about.kind} | {about.level} | {about.minutes} | {about.misconception} |" in GUIDE


def test_the_clock_of_the_guide_is_that_of_the_workshop_page():
    page = next(cell.source for cell in learner.cells_of(run.ROOT / "notebooks" / "workshop_90.ipynb") if cell.id == "clock")
    plan = re.search(r"\*\*90 minutes\*\*(.*?)\n\n\*\*", GUIDE, re.S)[1]
    assert clock(plan) == clock(page)
    named = re.compile(r"\b\d\d\.\d\b")
    assert sorted(set(named.findall(plan))) == sorted(set(named.findall(page.split("`hint")[0])))


def test_every_exercise_a_plan_names_exists():
    for number in re.findall(r"\b\d\d\.\d\b", GUIDE):
        assert number in register() or number in ("0.12",), number


def test_the_quiz_has_ten_questions_with_answers_and_objectives():
    quiz, answers = ((FOLDER / name).read_text(encoding="utf-8") for name in ("quiz.md", "quiz_answers.md"))
    asked = re.findall(r"^(\d+)\. \*\(([^)]+)\)\*", quiz, re.M)
    solved = re.findall(r"^\| (\d+) \| ([abcd]) \|[^|]*\| ([^|]+) \|", answers, re.M)
    assert [n for n, _ in asked] == [n for n, _, _ in solved] == [str(n) for n in range(1, 11)]
    assert [what for _, what in asked] == [what.strip() for _, _, what in solved]
    assert all(len(re.findall(r"\b[abcd]\) ", options)) == 4 for options in re.findall(r"\n   (a\).*)", quiz))
    assert not re.search(r"[Aa]nswer", quiz)


def test_the_quiz_answers_by_hand():
    assert 2 * 36 * 8 * 128 * 2 / 1024 == 144 and 80 * 0.92 == pytest.approx(73.6) and -(-1_000 // 16) == 63 and 681_600 // 4_000 == 170


def test_the_handout_fits_a_page():
    lines = (FOLDER / "handout.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 45 and sum(len(line.split()) for line in lines) < 420


# -- fresh ----------------------------------------------------------------------------------------------------------

@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one notebook, and no git."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "03_blocks.ipynb").write_text("as handed out")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setenv("KV_VENV", str(tmp_path / "env"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    return tmp_path


def kept(project):
    return sorted((project / "notebooks" / "mine").glob("*")) if (project / "notebooks" / "mine").exists() else []


def test_fresh_keeps_mine_and_puts_the_original_back(project, capsys):
    run.keep_originals()
    book = project / "notebooks" / "03_blocks.ipynb"
    assert run.main(["fresh", "03"]) == 0 and "as it was handed out" in capsys.readouterr().out and kept(project) == []
    book.write_text("my work")
    run.keep_originals()
    assert run.main(["fresh", "03"]) == 0
    (mine,) = kept(project)
    assert book.read_text() == "as handed out" and mine.read_text() == "my work" and mine.name.startswith("03_blocks-20")
    said = capsys.readouterr().out
    assert mine.name in said and "Reload Notebook from Disk" in said


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_fresh_prefers_what_git_holds(project):
    for arguments in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "x"]):
        subprocess.run(["git", *arguments], cwd=project, check=True)
    (project / "notebooks" / "03_blocks.ipynb").write_text("my work")
    assert run.main(["fresh", "03"]) == 0
    assert (project / "notebooks" / "03_blocks.ipynb").read_text() == "as handed out" and len(kept(project)) == 1


@pytest.mark.parametrize("arguments, said", [([], "Say which notebook"), (["77"], "No notebook begins with '77'; there are 03_blocks.ipynb"),
                                             (["03"], "The original of 03_blocks.ipynb is not at hand")])
def test_fresh_in_trouble_says_what_to_do(project, capsys, arguments, said):
    (project / "notebooks" / "03_blocks.ipynb").write_text("my work")
    assert run.main(["fresh", *arguments]) == 1
    assert said in capsys.readouterr().err
    assert (project / "notebooks" / "03_blocks.ipynb").read_text() == "my work" and kept(project) == []


# -- bundle ---------------------------------------------------------------------------------------------------------

def test_packages_that_were_brought_along_need_no_network(project, monkeypatch):
    shutil.copy(Path(__file__).resolve().parent.parent / "pyproject.toml", project)
    asked = []
    monkeypatch.setattr(run, "make_environment", lambda folder: folder.mkdir())
    monkeypatch.setattr(run, "look_into", lambda python: run.Found((3, 12), True))
    monkeypatch.setattr(run, "pip", lambda folder, found, arguments, show=False: (asked.append(arguments), (len(asked) > 1, ""))[1])
    (project / "wheels").mkdir()
    assert run.carried() is None, "an empty folder carries nothing"
    (project / "wheels" / "x-1-py3-none-any.whl").touch()
    run.set_up()
    first, second = asked
    assert first[-3:] == ["--no-index", "--find-links", str(project / "wheels")]
    assert "--no-index" not in second, "where they do not fit this laptop, the network is asked"


def test_the_bundle_asks_for_all_that_a_first_start_needs():
    names = {re.split(r"[<>=\[]", line)[0] for line in bundle.needed()}
    assert {"jupyterlab", "ipywidgets", "hatchling", "editables"} <= names
    assert set(bundle.PYTHONS) <= set(wheels.PYTHONS)


def test_help_names_the_commands_for_a_class(capsys):
    run.main([])
    said = capsys.readouterr().out
    assert "For a class:" in said and all(f"run.py {name}" in said for name in run.CLASSROOM)
    makefile = (run.ROOT / "Makefile").read_text()
    targets = {name for line in re.findall(r"^([\w -]+):$", makefile, re.M) for name in line.split()}
    assert set(run.CLASSROOM) <= targets


def test_the_handout_names_functions_that_exist():
    assert check("01.1", None).state == "open"


def test_links_of_solutions_and_the_workshop_page_lead_somewhere():
    for path in [*learner.SOLUTIONS.glob("*.ipynb"), run.ROOT / "notebooks" / "workshop_90.ipynb"]:
        for cell in learner.cells_of(path):
            for target in re.findall(r"\]\(([^)\s#]+)", cell.source) if cell.cell_type == "markdown" else ():
                assert (path.parent / target).exists(), (path.name, target)
