"""Exercises of notebook 02: where the memory of a GPU goes."""

from kvlib import Engine, load_model, size
from kvlib.units import GB, GiB, MiB
from kvlib.workshop.entry import entry, price

SHARE, TOTAL, WEIGHTS, AVAILABLE = 0.92, 79.25, 15.0, 56.21        # of the log of 02.1, in GiB
GB10_TOTAL, GB10_FREE, HELD = 121.63, 113.91 - 5, 5                # of 02.3, in GiB
FIXED = 32                                                          # GiB of --kv-cache-memory-bytes
VOCABULARY, INTERMEDIATE, HIDDEN, SEQUENCES = 151_936, 12_288, 4_096, 256


def _fixed(num_bytes=FIXED * GiB):
    return size(load_model("Qwen3-8B"), Engine(kv_cache_memory_bytes=num_bytes, max_model_len=40_960)).kv_cache_tokens


def _peaks():
    """GiB by the fit of the lesson: the sampler, and the forward pass with 2,048 and with 16,384 tokens."""
    sampler = 3.85 * SEQUENCES * VOCABULARY * 4 / GiB
    return sampler, *(1.3 * batched * (3 * INTERMEDIATE + 2 * HIDDEN) * 2 / GiB for batched in (2_048, 16_384))


def _cost(gib_):
    return gib_ * GiB / price("Qwen3-8B")


def _batched():
    sampler, little, much = _peaks()
    return [(_cost(much - little), "at 2,048 the sampler is the larger one, not the forward pass"),
            (_cost(much), "that is the whole peak; the question is for the difference"),
            (_cost(much - sampler) / 16, "that counts blocks; tokens are asked for")]


EXERCISES = (
    entry("02.1", "Solve for the reserve", "read this log", "easy", 5,
          "the weights are subtracted from the whole card, or the share from what is free",
          ("Which of the card's GiB does vLLM count with? The share is of the total.",
           "requested − weights − available, where requested is total × share."),
          ninety=True, expected=TOTAL * SHARE - WEIGHTS - AVAILABLE, unit="GiB", within=0.7,
          because="Typed into the calculator, it makes an exact answer.",
          slips=[(TOTAL - WEIGHTS - AVAILABLE, "that subtracts from the whole card; vLLM starts from its share, 72.91 GiB"),
                 (TOTAL * SHARE - AVAILABLE, "the weights are still in it"),
                 (TOTAL * SHARE - WEIGHTS, "that is weights taken off the share; the cache has to go off as well"),
                 ((TOTAL - WEIGHTS) * SHARE - AVAILABLE, "the share is of the whole card, not of what the weights leave")]),
    entry("02.2", "A cache of fixed size", "fill the cell", "medium", 4,
          "tokens are not rounded to blocks; the share is applied to a typed cache",
          ("Nothing is subtracted from a size you type. How many whole blocks go into it?",
           "32 GiB ÷ 2.25 MiB, rounded down, then times 16."),
          expected=_fixed, unit="tokens", because="The share and the reserve play no part.",
          slips=lambda: [(FIXED * GiB // price("Qwen3-8B"), "blocks are whole: round down to blocks before you multiply by 16"),
                         (_fixed(int(FIXED * GiB * SHARE)), "that takes the share of it; this flag leaves the share aside"),
                         (int(FIXED * GiB * SHARE) // price("Qwen3-8B"), "that takes the share of it; this flag leaves the share aside"),
                         (_fixed(FIXED * GB), "GiB were read as GB"), (_fixed() // 16, "those are blocks; tokens are asked for"),
                         (FIXED * GiB // int(2.25 * MiB) * 16 * 2, "that counts keys without values")]),
    entry("02.3", "A share for a shared machine", "choose the flags", "medium", 5,
          "the share is taken of what is free, and rounded up",
          ("The request may not be larger than what is free. What is free here?", "free ÷ total, and then down to two decimals."),
          expected=int(100 * GB10_FREE / GB10_TOTAL) / 100, because="108.91 / 121.63 = 0.8954.",
          slips=[(int(100 * GB10_FREE / GB10_TOTAL) / 100 + 0.01, "that asks for 109.47 GiB, and only 108.91 are free: round down"),
                 (GB10_FREE / GB10_TOTAL, "two decimals are asked for: round down"), (0.8954, "two decimals are asked for: round down"),
                 (0.895, "two decimals are asked for: round down"),
                 (0.95, "that is a share of what is free; the flag is a share of the total"),
                 (0.93, "that forgets the 5 GiB of the notebook"),
                 (0.87, "the 5 GiB come off what is free, not off the request; a little more passes")]),
    entry("02.4", "What more tokens a step cost", "predict", "hard", 6,
          "the two parts of the peak are added, and each token more is thought to cost",
          ("The peak is the larger of the two figures. Which one is it at 2,048, which at 16,384?",
           "The difference of the two peaks in bytes, divided by the bytes of a token."),
          expected=lambda: _cost(_peaks()[2] - _peaks()[0]), unit="tokens", within=3, slips=_batched,
          because="Only a fit: your two launches decide."),
)
