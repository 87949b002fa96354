"""What every lesson opens with: the running example as a strip, with the link the lesson is about lit."""

from __future__ import annotations

import math

from .capacity import size
from .config import load_model
from .engine import Engine
from .units import GiB

AVAILABLE_GIB = 93.605  # the least that prints 93.61 GiB and, with whole blocks, the 681,600 tokens of the log


def running_example():
    """The GB10 launch that runs through part one: Qwen3-8B, vLLM 0.28, 40,960 tokens a request.

    >>> running_example().kv_cache_tokens
    681600
    """
    return size(load_model("Qwen3-8B"), Engine(vllm_version="0.28", max_model_len=40_960),
                available_bytes=math.ceil(AVAILABLE_GIB * GiB))


class Strip:
    """The chain 147,456 B a token → … → 16.64x as HTML, each link leading to its notebook."""

    def __init__(self, lit: int):
        example = running_example()
        per_token = example.plan.bytes_per_token
        self.lit = lit
        self.links = (
            (1, "01_bytes_per_token", f"{per_token:,} B", "a token"),
            (2, "02_memory_budget", "93.61 GiB", "for the cache"),
            (3, "03_blocks_and_tokens", f"{example.num_gpu_blocks:,}", "blocks"),
            (3, "03_blocks_and_tokens", f"{example.kv_cache_tokens:,}", "tokens"),
            (3, "03_blocks_and_tokens", f"{example.max_concurrency:.2f}x", "of 40,960 tokens"))

    def _repr_html_(self) -> str:
        cells = []
        for number, notebook, figure, what in self.links:
            lit = number == self.lit
            style = ("border-bottom:3px solid #009E73;font-weight:600" if lit else
                     "border-bottom:3px solid transparent;opacity:.75")
            here = ' aria-current="step"' if lit else ""
            cells.append(f'<a href="{notebook}.ipynb"{here} style="padding:2px 6px;text-decoration:none;color:inherit;'
                         f'{style}"><b>{figure}</b> {what}</a>')
        return ('<nav aria-label="The running example, Qwen3-8B on a GB10" style="font-size:13px;line-height:2.2">'
                'Running example: ' + " → ".join(cells) + "</nav>")

    def __repr__(self) -> str:
        return "Running example: " + " → ".join(f"{figure} {what}" for _, _, figure, what in self.links)


def here(lesson: int) -> Strip:
    """The strip with this lesson's link lit; show it as the last line of the set-up cell."""
    return Strip(lesson)
