"""Exercises of notebook 06: a model, a command, a card."""

from kvlib.fit import fit
from kvlib.units import GB, GiB
from kvlib.workshop.entry import entry, price

AVAILABLE, LENGTH = 23.5, 32_768   # GiB and tokens, of the log of 06.1


def _requests(token, unit=GiB):
    return int(AVAILABLE * unit) // (16 * token) / (LENGTH // 16)


def _llama():
    return fit("Llama-3.1-8B", gpu="L4")


EXERCISES = (
    entry("06.1", "A figure from a log", "read this log", "medium", 4,
          "attention heads for KV heads; keys without values; GB for GiB",
          ("Whole blocks first: how many of 16 × 147,456 B go into 23.5 GiB?", "A request of 32,768 tokens takes 2,048 of them."),
          expected=lambda: _requests(price("Qwen3-8B")), unit="requests", within=0.1, because="10,695 blocks ÷ 2,048 a request.",
          slips=lambda: [(_requests(price("Qwen3-8B") * 4), "that counts all 32 query heads; only the 8 KV heads are kept"),
                         (round(_requests(price("Qwen3-8B") * 4), 2), "that counts all 32 query heads; only the 8 KV heads are kept"),
                         (_requests(price("Qwen3-8B") // 2), "that counts keys without values, or values without keys"),
                         (_requests(price("Qwen3-8B"), GB), "GiB were read as GB"),
                         (5, "two decimals are asked for: vLLM prints the fraction as well")]),
    entry("06.2", "Find the mistake", "find the mistake", "easy", 4,
          "the parameters that work on a token are taken for all that are loaded",
          ("Which experts work on a token changes from token to token.", "What has to be in memory before the first token comes?"),
          expected="active", because="All experts are loaded, 56.9 GiB in 16 bits.",
          slips={"heads": "heads decide the cache, and this is about weights", "GB": "that would be off by 7 per cent, not by nine times"}),
    entry("06.3", "Choose the flags", "choose the flags", "hard", 6,
          "the typical reserve is planned with, not the largest",
          ("An answer is a range. Which end of it must hold one request?", "The panel's first remedy names the length; so does fit(…).low"),
          expected=lambda: _llama().low.estimated_max_model_len, unit="tokens", within=0.1,
          because="The least cache of the range holds one request of that length.",
          slips=lambda: [(131_072, "that is what is refused"),
                         (_llama().typical.estimated_max_model_len,
                          "that is for the usual reserve; for certain means the largest one thought possible"),
                         (_llama().high.estimated_max_model_len,
                          "that is the upper end of the range: it passes only with luck")]),
)
