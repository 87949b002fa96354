"""The exercises of the hybrid lesson; each answer is worked out by kvlib when it is asked for."""

from __future__ import annotations

from kvlib.exercise import Exercise
from kvlib.panels.hybrid_setups import blocks, launch


def _running() -> int:
    """Sequences of 10,000 tokens that the pool of the log holds at once; one block is never given out."""
    held = sum(blocks(launch(max_model_len=10_000)))
    return (launch().num_gpu_blocks - 1) // held


def _nine_tenths() -> int:
    """The max_model_len, in whole blocks, from which nine tenths of the slots are printed."""
    states, block = blocks(launch())[1], launch().block_size
    return 9 * states * block


REAL_SEQUENCES = Exercise(
    _running, unit="sequences", within=0.7,
    slips={320: "that divides the printed size by 10,000; what a sequence holds is counted in blocks, states included",
           315: "that is the count for sequences of one block; 10,000 tokens need seven",
           221: "the state of prefix caching is missing: two blocks in each of three groups"},
    because="Half of what the printed size suggests: 13 blocks each, and one block of the pool is never given out.")

NINE_TENTHS = Exercise(
    _nine_tenths, unit="tokens", within=2,
    slips={9_408: "that is where it is half", 54: "that counts blocks; the question asks for tokens"},
    because="Where tokens are nine times the state: 54 blocks of them beside 6.")

BF16_CACHE = Exercise(
    lambda: launch(kv_cache_dtype="bfloat16").kv_cache_tokens, unit="tokens", within=0.5,
    slips={1_604_022: "that halves the printed size; the blocks of state do not double, so a little more is left"},
    because="784 tokens a block, 169 + 6 blocks a request, and the same 2,210 blocks.")

OLD_LOG = Exercise(
    lambda: launch().kv_cache_tokens, unit="tokens", within=0.1,
    slips={865_536: "that is the old figure; up to 0.20.0 it counted each of the four groups as a part of the pool"},
    because="The second line was right all along: concurrency × max_model_len is what is printed since 0.20.1.")
