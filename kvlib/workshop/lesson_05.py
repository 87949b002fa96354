"""Exercises of notebook 05: figures of a start-up log."""

import math

from kvlib.units import GB, GiB, MiB
from kvlib.workshop.entry import entry, price

LLAMA_BLOCK = 16 * price("Llama-3.1-8B")
HALF = 0.005   # GiB, half of the last digit printed


def _tokens(pool_gib, unit=GiB):
    return int(pool_gib * unit) // LLAMA_BLOCK * 16


EXERCISES = (
    entry("05.1", "The least pool", "read this log", "medium", 4,
          "a printed figure is taken for an exact one",
          ("20.1 was rounded. Which is the least that is printed so?", "20.095 GiB in whole blocks of 2 MiB, times 16."),
          expected=lambda: _tokens(20.1 - HALF), unit="tokens",
          slips=lambda: [(_tokens(20.1), "that is for 20.1 on the dot; the least that prints 20.1 is 20.095"),
                         (_tokens(20.1 + HALF), "that is the most, for 20.105"),
                         (math.floor((20.1 - HALF) * GiB / price("Llama-3.1-8B")), "blocks are whole: round down to blocks first"),
                         (_tokens(20.05), "two decimals are kept: 20.05 is printed as 20.05"),
                         (_tokens(20.1 - HALF, GB), "GiB were read as GB"), (_tokens(20.1 - HALF) // 16, "those are blocks"),
                         (_tokens(20.1 - HALF) * 2, "that counts keys without values")]),
    entry("05.2", "Two workers", "read this log", "easy", 3,
          "each worker is thought to have a number of blocks of its own",
          ("Turn the tokens back into blocks, and the blocks into GiB.", "Which of the two printed figures may that many GiB be?"),
          expected=1, because="All ranks take the number of blocks of the one that has least.",
          slips={0: "20.1 GiB give more than that at the least; the smaller pool decides for all",
                 2: "count from 0: the first rank is 0"}),
    entry("05.3", "How sharp is a token figure?", "read this log", "medium", 3,
          "the GiB of a log are thought to be sharper than its tokens",
          ("Between two neighbouring token figures lies one whole piece of the pool. Which piece?",
           "The bytes of a block of Qwen3-8B: 16 tokens of 147,456 B."),
          expected=lambda: 16 * price("Qwen3-8B") / MiB, unit="MiB",
          because="The printed GiB leave 10.24 MiB open: tokens are four times as sharp.",
          slips=lambda: [(0.01 * 1024, "that is the span of the printed GiB, 0.01 GiB"),
                         (price("Qwen3-8B") / MiB, "that is one token; a block has 16"),
                         (16 * price("Qwen3-8B") * 4 / MiB, "the 32 query heads are counted; only the 8 KV heads are kept"),
                         (8 * price("Qwen3-8B") / MiB, "that counts keys without values")]),
)
