"""Exercises answer every kind of answer with one sentence."""
import pytest

from kvlib.exercise import Exercise

KIB = Exercise(lambda: 144, unit="KiB", within=1, slips={576: "counts the query heads"}, because="2 × 36 × 8 × 128 × 2 B.")


@pytest.mark.parametrize("answer, state, said", [
    (144, "right", "Right: 144 KiB. 2 ×"), (144.5, "right", "Right"), (576, "wrong", "576 KiB – counts the query heads."),
    (200, "wrong", "too large"), (1, "wrong", "too small"), (None, "open", "Put your answer"), (..., "open", "Put your answer"),
    ("144", "right", "Right: 144 KiB"), ("147,456 bytes", "right", "144 KiB"), ("147456", "wrong", "would be right in B"),
    ("144 kB", "wrong", "steps of 1,000"), ("144 tokens", "wrong", "KiB are asked for"), ("144 apples", "wrong", "not a unit"),
    ("", "open", "Put your answer"), ("hello", "wrong", "There is no number"), ("0.140625 MiB", "right", "144 KiB"), (True, "wrong", "a number is expected"), (float("nan"), "wrong", "a number"),
    (float("inf"), "wrong", "a number"), ([144], "wrong", "a number"),
])
def test_a_number(answer, state, said):
    verdict = KIB.check(answer)
    assert verdict.state == state and said in str(verdict)


def test_a_word_is_compared_without_case_and_slips_are_named():
    word = Exercise("num_key_value_heads", slips={"num_attention_heads": "those are the query heads"})
    assert word.check(" NUM_KEY_VALUE_HEADS ").state == "right"
    assert "query heads" in str(word.check("num_attention_heads"))
    assert word.check(3).state == "wrong"


def test_what_was_typed_is_escaped():
    assert "<b>" not in Exercise("x").check("<b>")._repr_html_()
