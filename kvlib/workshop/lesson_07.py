"""Exercises of notebook 07: layers that keep less."""

from kvlib import load_model
from kvlib.units import KiB
from kvlib.workshop.entry import entry, price

LATENT, INDEXED, WINDOWED = "DeepSeek-V3", "DeepSeek-V3.2", "Gemma-3-27b"
TOOL = 61 * 128 * (7_168 // 128) * 2 * 2   # bytes a token, what the tool of 07.3 returned


def _gemma():
    layers, right = load_model(WINDOWED).layers, price(WINDOWED) / KiB
    growing = sum(layer.grows for layer in layers)
    return [(right * len(layers) / growing, "that counts all 62 layers"), (right / 2, "that counts keys alone, or one byte a number"),
            (right * (len(layers) - growing) / growing, "that counts the window layers, which have stopped growing"),
            (right * 2, "that counts the 32 attention heads; 16 KV heads are kept")]


EXERCISES = (
    entry("07.1", "Which layers grow", "fill the cell", "easy", 2,
          "all layers are counted for the ones that grow",
          ("After a long conversation, which of the 62 layers still get larger with a token?",
           "The full layers × KV heads × 2 × 128 × 2 B."),
          expected=lambda: price(WINDOWED) / KiB, unit="KiB", within=0.5, slips=_gemma, because="The 10 full layers alone grow."),
    entry("07.2", "A latent row, and a key beside it", "fill the cell", "medium", 3,
          "the latent row is stored twice, as key and as value; the indexer is forgotten",
          ("Two things in each of 61 layers: a row of 512 + 64 numbers, and the indexer's key.",
           "The row has 2 bytes a number and stands once; the key has 128 bytes and 4 for its scale."),
          expected=lambda: price(INDEXED) / KiB, unit="KiB", within=0.05, because="61 × (576 × 2 + 128 + 4) bytes.",
          slips=lambda: [(price(LATENT) / KiB, "that is the latent row alone"),
                         (61 * (576 * 2 + 128) / KiB, "the 4-byte scale is missing"),
                         (2 * price(LATENT) / KiB, "the row is one for keys and values together, not two, and the indexer is missing"),
                         (61 * (576 * 4 + 132) / KiB, "the row is one for keys and values together, not two")]),
    entry("07.3", "Find the mistake: a row taken for heads", "find the mistake", "medium", 4,
          "latent attention is priced as keys and values of all heads",
          ("What does a token of DeepSeek-V3 cost? The table of section 4 has it in KiB.",
           "The tool's bytes ÷ (61 layers × 576 numbers × 2 bytes)."),
          expected=lambda: TOOL / price(LATENT), within=1, because="One row of 576 numbers a layer stands for all 128 heads.",
          slips=lambda: [(TOOL / price(LATENT) / 2, "the row stands once, not as key and as value"),
                         (61 * 128 * (192 + 128) * 2 / price(LATENT),
                          "that is the lesson's figure for 128 heads; the tool took 56 numbers a head"),
                         (128, "it counts 128 heads, but narrow ones; and one row is wider than one of its heads"),
                         (price(LATENT) / TOOL, "turn the fraction round")]),
)
