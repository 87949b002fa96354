"""The checks of the site's pages: what they say is what kvlib.workshop.check says, and no page holds an answer in plain.

Here their script runs in Node, where that is installed; tests/browser/test_site_checks.py has the pages.
"""
import json
import re
import shutil
import subprocess

import pytest
from typed_answers import texts

from kvlib.exercise import OPEN
from kvlib.website import checks
from kvlib.website.build import ASSETS
from kvlib.workshop import check, register

NODE = shutil.which("node")
RUN = """
const { table, asked } = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(asked.map(([number, text]) => kvlibChecks.check(table, number, text))));
"""


@pytest.fixture(scope="module")
def table():
    return checks.table()


def in_node(table, asked):
    script = (ASSETS / "check.js").read_text("utf-8") + RUN
    done = subprocess.run([NODE, "-e", script], input=json.dumps({"table": table, "asked": asked}), capture_output=True, text=True,
                          encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
def test_the_page_says_what_the_notebook_says(table):
    asked = [(number, text) for number in register() for text in texts(number)]
    differ, not_here = [], 0
    for (number, text), said in zip(asked, in_node(table, asked), strict=True):
        verdict = check(number, text)
        if number == "capstone" and said["state"] == "open" and text.strip():
            assert "was not worked out for this page" in said["text"]
            not_here += 1
        elif (said["state"], said["text"]) != (verdict.state, verdict.text):
            differ.append((number, text, said["text"], verdict.text))
    assert differ == [], f"{len(differ)} of {len(asked)}"
    assert not_here <= 5 and len(asked) > 4_000


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
@pytest.mark.parametrize("typed, value", [("94 * 4 * 128 * 2 * 2", 192_512), ("94×4×128×2×2", 192_512),
                                          ("(94 + 2) * 2_000 + 512", 192_512),
                                          ("2**16 * 3 - 4_096", 192_512), ("385025 // 2", 192_512), ("-(5 - 7) * 96,256", 192_512),
                                          ("94 * 4 * 64 * 2 * 2", 96_256)])
def test_a_calculation_is_worked_out(table, typed, value):
    (said,) = in_node(table, [("01.1", typed)])
    assert said["text"] == check("01.1", value).text


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
def test_a_blank_is_told_what_to_do(table):
    assert [said["state"] for said in in_node(table, [(number, "  ") for number in register()])] == ["open"] * len(register())


def test_the_table_holds_every_exercise_and_its_hints(table):
    assert list(table["exercises"]) == list(register())
    for number, row in table["exercises"].items():
        assert row["hints"] == list(register()[number].about.hints)
    judged = table["exercises"]["capstone"]
    assert len(judged["places"]) == len(checks.settings())


def test_no_answer_is_read_in_the_source_of_what_is_fetched():
    text = checks.script()
    assert re.fullmatch(r'kvlibChecks\.arrived\("[\w+/=]+"\);\n', text) and len(text) < 40_000
    page = (ASSETS / "check.js").read_text("utf-8")
    for number, exercise in register().items():
        if isinstance(exercise.right, str) and len(exercise.right) > 1:      # one letter stands in any script
            assert exercise.right not in page, number


def test_only_blank_checks_get_a_box():
    assert checks.number_of("ex-03-2-check") == "03.2" and checks.number_of("ex-capstone-check") == "capstone"
    assert checks.number_of("ex-99-1-check") is checks.number_of("ex4-fit") is checks.number_of("setup") is None


def test_the_flags_of_the_capstone_are_told():
    said = checks.adds(register()["capstone"])
    assert all(checks.flag(name) in said for name in checks.FLAGS) and OPEN not in said
