"""Exercises of notebook 01: the price of a token."""

from kvlib import catalog
from kvlib.units import GB, GiB
from kvlib.workshop.entry import entry, price, shape

LARGE, SMALL, RUNNING = "Qwen3-235B-A22B", "Qwen3-0.6B", "Qwen3-8B"
LONG = 32_768   # tokens of a request


def _four_numbers():
    right, large = price(LARGE), shape(LARGE)
    share = large["query_heads"] // large["kv_heads"]
    return [(right * share, f"the {large['query_heads']} query heads are counted; only the {large['kv_heads']} KV heads are kept"),
            (right // 2, "half of it: either the value beside each key is missing, or head_dim was divided and not read"),
            (right // 4, "a quarter of it: key and value, and 2 bytes for each number"),
            (right * share // 2, "query heads are counted, and the width was divided and not read"),
            (right // large["layers"], "that is one layer of them")]


def _small_model():
    running = catalog.weights(RUNNING).bytes // (price(RUNNING) * LONG) + 1
    return [(running, "that was Qwen3-8B; take the 28 layers of Qwen3-0.6B and its 1.12 GiB"),
            (0, "without a request there is no cache; the first one counts"),
            (11, "that is how much smaller its parameters are; layers, KV heads and width decide the cache")]


EXERCISES = (
    entry("01.1", "Four numbers in a config", "fill the cell", "easy", 3,
          "attention heads are counted for KV heads; a value beside each key is forgotten; head_dim is divided",
          ("Four of the entries matter: layers, the heads that are kept, the width of one head, and the bytes of a number.",
           "layers × KV heads × head_dim × 2 × bytes. The factor 2 is key and value; bfloat16 has 2 bytes."),
          ninety=True, expected=lambda: price(LARGE), unit="B", because="That is 188 KiB.", slips=_four_numbers),
    entry("01.2", "Find the mistake: half a cache", "find the mistake", "easy", 2,
          "head_dim is the hidden size over the attention heads",
          ("Compare each factor of the tool's line with the file. Four are right.",
           "The 64 stands nowhere in the file: the tool made it from two other entries, though the file gives the width itself."),
          ninety=True, expected="head_dim", because="2,048 ÷ 32 is 64, and the file says 128: half of the cache was missing.",
          slips={"num_key_value_heads": "it has read 4, and that is right",
                 "num_attention_heads": "that is one of the two it divided; which entry makes the division needless?",
                 "hidden_size": "that is one of the two it divided; which entry makes the division needless?",
                 "num_hidden_layers": "it has read 48, and that is right",
                 "torch_dtype": "it took 2 bytes a number, and bfloat16 has 2", "dtype": "it took 2 bytes a number, and bfloat16 has 2"}),
    entry("01.3", "A small model", "predict", "medium", 3,
          "a small model has a small cache",
          ("Price one token first: the four numbers are in the question.",
           "Multiply by 32,768 tokens and compare with 1.12 GiB, once for one request, then for two."),
          expected=lambda: catalog.weights(SMALL).bytes // (price(SMALL) * LONG) + 1, unit="requests", slips=_small_model,
          because="It holds 3.5 GiB, three times the 1.12 GiB of weights: a small model need not have a small cache."),
    entry("01.4", "The wrong unit", "fill the cell", "easy", 2,
          "GB are taken for GiB",
          ("How many bytes are 20 decimal gigabytes?", "Divide them by the bytes of one token of Qwen3-8B; a part of a token is none."),
          expected=lambda: 20 * GB // price(RUNNING), unit="tokens", because="20,000,000,000 B ÷ 147,456 B, rounded down.",
          slips=lambda: [(20 * GiB // price(RUNNING), "that is 20 GiB; the planner wrote decimal GB, 10⁹ bytes"),
                         (20 * GB // price(RUNNING) + 1, "only whole tokens count: round down"),
                         (20 * GB / price(RUNNING), "only whole tokens count: round down"),
                         (20 * GB // (price(RUNNING) * 4), "the 32 query heads are counted; only the 8 KV heads are kept"),
                         (20 * GB // (price(RUNNING) // 2), "that counts keys without values")]),
)
