"""Exercises of notebook 04: a model over several GPUs."""

from kvlib.units import GB, GiB, KiB, gib
from kvlib.workshop.entry import entry, price

SEVENTY, MOE = "Llama-3.3-70B", "Qwen3-30B-A3B"
TOOL_BLOCKS, TP = 125_018, 4    # what the tool of 04.3 returned, and over how many GPUs


def _tokens(token, room):
    return int(room // (token * 16)) * 16


def _room(gpus=8, share=0.92, other=3.0, unit=GiB):
    return (share * 80 - 131.5 / gpus - other) * unit


def _two_gains():
    on_eight, whole = price(SEVENTY, 8), price(SEVENTY)
    return [(_tokens(whole, _room()), "the token is that of one GPU: eight GPUs deal its KV heads out among them"),
            (_tokens(on_eight, _room(gpus=1)), "all the weights on one GPU: they are dealt out too"),
            (_tokens(on_eight, _room(share=1)), "the share is missing"),
            (_tokens(on_eight, _room()) * 8, "TP is counted twice: all eight hold slices of the same tokens"),
            (_tokens(on_eight, _room(unit=GB)), "GiB were read as GB"),
            (_tokens(price(SEVENTY, 4), _room(4, other=0.8)) * 2, "twice the four-GPU figure: that is one of the two gains only"),
            (_tokens(on_eight // 2, _room()), "that counts keys without values")]


def _past():
    one = price(MOE) // KiB
    return [(one // 8, "that is the price ÷ 8; the model has 4 KV heads, and a GPU cannot hold half of one"),
            (one, "that is the price on one GPU"), (one // 2, "that is the price on each of two GPUs"),
            (price(MOE, 8) * 8 // KiB, "that is what all eight keep together, copies counted")]


EXERCISES = (
    entry("04.1", "Past the heads", "fill the cell", "medium", 3,
          "a token is divided by the GPUs, however many there are",
          ("Heads are dealt out whole. How many are there, and how many GPUs?",
           "Each GPU keeps at least one head. What does one head of the four cost?"),
          expected=lambda: price(MOE, 8) // KiB, unit="KiB", slips=_past,
          because="4 KV heads: on 8 GPUs each head stands on two of them, and a GPU still holds one."),
    entry("04.2", "Both gains", "fill the cell", "medium", 4,
          "TP is forgotten in the weights or in the token, or used twice",
          ("Two things shrink on each GPU: its part of the weights, and its part of a token.",
           "room = 80 × 0.92 − weights ÷ GPUs − 3.0; then whole blocks of 16 of one GPU's tokens."),
          expected=lambda: _tokens(price(SEVENTY, 8), 0.92 * 80 * GiB - gib(131.5) // 8 - gib(3.0)), unit="tokens", within=0.1,
          because="73.6 − 16.44 − 3 = 54.16 GiB, at 40 KiB a token.", slips=_two_gains),
    entry("04.3", "Find the mistake: two million tokens", "find the mistake", "medium", 3,
          "the memory of all GPUs is divided by the token of one, so that TP counts twice",
          ("Weigh the tool's answer: 125,018 blocks of 16 tokens at 320 KiB a token. Is there so much memory?",
           "It added up the memory of all four GPUs, and divided by what one of them alone keeps of a token. Which of the two must change?"),
          expected=TOOL_BLOCKS // TP, unit="blocks", within=0.01,
          because="Its own inputs give a quarter: 610 GiB of cache cannot stand on 320 GiB of GPUs.",
          slips=[(TOOL_BLOCKS, "that is the tool's own answer; weigh it"),
                 (TOOL_BLOCKS // TP**2, "TP is taken out twice"),
                 (TOOL_BLOCKS // 2, "half is a forgotten value, or FP8; here the number of GPUs is the point"),
                 (TOOL_BLOCKS * TP, "that goes the other way, or counts tokens; blocks are asked for"),
                 (TOOL_BLOCKS // 8, "the split is over four GPUs")]),
)
