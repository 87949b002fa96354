"""Exercises of notebook 09: from capacity to traffic."""

from kvlib.units import cdiv
from kvlib.workshop.entry import entry

BLOCKS, LENGTH, LONG = 42_600, 40_960, 6_400          # the whole GB10; max_model_len; a request of the 95th percentile
A_MINUTE, ANSWER, STEP = 40, 450, 0.2                 # arrivals, tokens, seconds


def _fits(blocks: int, tokens: int) -> int:
    return (blocks - 1) // cdiv(tokens, 16)


EXERCISES = (
    entry("09.1", "A figure for the flag", "fill the cell", "easy", 3,
          "the printed concurrency is taken for the number of requests that fit",
          ("How many blocks do 6,400 tokens take?", "The pool, less the null block, divided by them; whole requests count."),
          expected=lambda: _fits(BLOCKS, LONG), unit="requests",
          because="Six times the printed figure, as each is about a sixth of 40,960 tokens long.",
          slips=lambda: [(_fits(BLOCKS, LENGTH), "that charges each with 40,960 tokens, as the printed figure does"),
                         (16.64, "that charges each with 40,960 tokens, as the printed figure does"),
                         ((BLOCKS - 1) // LONG, "that divides blocks by tokens; a block holds 16"),
                         (int(_fits(BLOCKS, LONG) / 1.1), "that keeps the margin of a tenth; the question is how many fit")]),
    entry("09.2", "How many run", "predict", "medium", 3,
          "requests at once are taken for requests a minute",
          ("How many seconds does one request stay?", "Arrivals a second × seconds that each stays."),
          expected=lambda: A_MINUTE / 60 * ANSWER * STEP, unit="requests", within=2,
          because="Each stays 90 s, and two arrive every three seconds.",
          slips=lambda: [(A_MINUTE, "those are arrivals in a minute; each stays for a minute and a half"),
                         (A_MINUTE * ANSWER * STEP, "that multiplies a rate per minute by seconds"),
                         (A_MINUTE / 60 * ANSWER, "that counts steps as seconds; a step takes 0.2 s"),
                         (ANSWER * STEP, "those are the seconds that one request stays")]),
    entry("09.3", "The next to go", "predict", "medium", 3,
          "the latest arrival, or whoever asks for the block, is thought to be thrown out",
          ("vLLM goes by a list of those running. What puts a request at its end?",
           "Who came back counts as newly admitted. Write down the list."),
          expected="B", because="The list is in order of admission: A, C, B.",
          slips={"C": "C arrived last; but the list goes by admission, and somebody was admitted after it",
                 "A": "the one that asks goes only if nobody behind it is left to throw out"}),
)
