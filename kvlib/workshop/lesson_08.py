"""Exercises of notebook 08: the pool of a hybrid."""

from kvlib import Engine, load_model, size
from kvlib.units import cdiv, gib
from kvlib.workshop.entry import entry

LENGTH, MINE, STATES = 132_096, 10_000, 6


def _log(**flags):
    """The launch of the hybrid note's log, some flags changed."""
    engine = Engine(gpu="A100 80GB SXM", tensor_parallel_size=2, kv_cache_dtype="fp8", max_model_len=LENGTH)
    return size(load_model("Qwen3.8-27B"), engine.replace(**flags), available_bytes=gib(52.89))


def _running():
    return (_log().num_gpu_blocks - 1) // _log(max_model_len=MINE).blocks_per_request


def _running_slips():
    s, tokens = _log(), cdiv(MINE, _log().block_size)
    return [(s.kv_cache_tokens // MINE,
             "that divides the printed size by 10,000; what a sequence holds is counted in blocks, states included"),
            (s.num_gpu_blocks // (1 + STATES), "that leaves out the states, or counts one block of tokens where 10,000 need more"),
            ((s.num_gpu_blocks - 1) // (tokens + STATES // 2),
             "the state of prefix caching is missing: two blocks in each of three groups")]


EXERCISES = (
    entry("08.1", "Sequences that really run", "fill the cell", "medium", 4,
          "the printed tokens are taken for slots, and divided",
          ("Count blocks, not tokens: how many for 10,000 tokens, how many for the states?",
           "The pool has 2,210 blocks, and one is never given out."),
          expected=_running, unit="sequences", within=0.7, slips=_running_slips,
          because="Half of what the printed size suggests: 13 blocks each, and one block of the pool is never given out."),
    entry("08.2", "Nine tenths of the slots", "fill the cell", "hard", 4,
          "the printed size is thought to be a property of the pool alone",
          ("size ÷ slots is about L ÷ (L + 9,408).", "Nine tenths are tokens, one tenth states: how much larger is L than the states?"),
          expected=lambda: 9 * STATES * _log().block_size, unit="tokens", within=2,
          slips=lambda: [(STATES * _log().block_size, "that is where it is half"),
                         (9 * STATES, "that counts blocks; the question asks for tokens"),
                         (10 * STATES * _log().block_size, "that gives ten elevenths: the states come on top of the tokens")],
          because="Where tokens are nine times the state: 54 blocks of them beside 6."),
    entry("08.3", "Sixteen bits", "predict", "hard", 4,
          "doubling the bytes of a token halves the printed size",
          ("The page stays as large as the state. So what happens to the tokens of a block, and to the number of blocks?",
           "784 tokens a block: how many blocks for 132,096 tokens, with 6 for the states?"),
          expected=lambda: _log(kv_cache_dtype="bfloat16").kv_cache_tokens, unit="tokens", within=0.5,
          slips=lambda: [(_log().kv_cache_tokens // 2,
                          "that halves the printed size; the blocks of state do not double, so a little more is left"),
                         (_log().kv_cache_tokens, "the states stay, the tokens do not: each takes twice the bytes")],
          because="784 tokens a block, 169 + 6 blocks a request, and the same 2,210 blocks."),
    entry("08.4", "A log of an older release", "read this log", "medium", 3,
          "the two lines of an old log are thought to be about the same thing",
          ("The request line was right all along. Which figure did it come from?",
           "Blocks of a request × concurrency gives whole blocks of the pool; then requests × length."),
          expected=lambda: _log().kv_cache_tokens, unit="tokens", within=0.1,
          slips=lambda: [(_log().num_gpu_blocks // 4 * _log().block_size,
                          "that is the old figure; up to 0.20.0 it counted each of the four groups as a part of the pool"),
                         (_log().num_gpu_blocks * _log().block_size, "those are the slots of the pool; states take some of them"),
                         (_log().num_gpu_blocks // 4 * _log().block_size * 4, "those are the slots of the pool; states take some of them")],
          because="The second line was right all along: concurrency × max_model_len is what is printed since 0.20.1."),
)
