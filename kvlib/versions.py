"""What changed in vLLM's cache sizing, release by release, as data.

Each rule below is one row of the table "what changed when". The rows of 0.28, 0.30, 0.32 and 0.33 were
checked by running those releases; the others were read in their source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from .errors import EngineError

OLDEST, NEWEST = (0, 18, 0), (0, 33, 0)
PROVED = ((0, 28), (0, 30), (0, 32), (0, 33))
LAST_PATCH = {(0, 18): 1, (0, 19): 1, (0, 20): 2}


LEFT_VLLM_AFTER = {  # architecture: the last release that served it
    "MllamaForConditionalGeneration": (0, 10, 2), "BambaForCausalLM": (0, 23, 0),
    "BaichuanForCausalLM": (0, 23, 0), "BaiChuanForCausalLM": (0, 23, 0), "MiniMaxM1ForCausalLM": (0, 23, 0),
    "MiniMaxText01ForCausalLM": (0, 23, 0), "QWenLMHeadModel": (0, 23, 0), "InternLMForCausalLM": (0, 23, 0),
    "XverseForCausalLM": (0, 23, 0), "Phi3SmallForCausalLM": (0, 9, 2), "MotifForCausalLM": (0, 10, 2),
    "JAISLMHeadModel": (0, 22, 0), "AquilaForCausalLM": (0, 24, 0), "AquilaModel": (0, 24, 0), "Grok1ForCausalLM": (0, 24, 0),
    "Grok1ModelForCausalLM": (0, 24, 0), "TeleChatForCausalLM": (0, 25, 0), "Plamo2ForCausalLM": (0, 26, 0),
    "OuroForCausalLM": (0, 26, 0), "ArcticForCausalLM": (0, 28, 0), "MPTForCausalLM": (0, 28, 0), "MptForCausalLM": (0, 28, 0),
    "RWForCausalLM": (0, 28, 0), "StableLMEpochForCausalLM": (0, 28, 0),
}


class Change(NamedTuple):
    """One row of the table: since which release, which rule, and what a user notices."""

    since: tuple[int, int, int]
    rule: str
    what: str
    basis: str  # "run" or "read"


CHANGES = (
    Change((0, 20, 0), "utilization_092", "gpu_memory_utilization defaults to 0.92 (before: 0.90)", "read"),
    Change((0, 20, 0), "graph_estimate", "the CUDA graph estimate is subtracted by default", "read"),
    Change((0, 20, 1), "tokens_from_concurrency",
           "printed tokens are concurrency × max_model_len (before: blocks // groups × smallest block)", "read"),
    Change((0, 26, 0), "tokens_in_flight",
           "window and chunk layers reserve every token in flight, not one batch", "read"),
    Change((0, 28, 0), "one_line", "cache size and concurrency are printed in one line", "run"),
    Change((0, 29, 0), "null_block_held_back",
           "the start-up check, the estimate and auto-fit hold back one block (the null block)", "read"),
    Change((0, 30, 0), "device_word", "the line names the device: GPU, CPU, XPU", "run"),
    Change((0, 30, 0), "window_block_size", "--block-size reaches window layers, which kept the kernel's smallest", "run"),
    Change((0, 30, 0), "short_conv_drafts", "draft tokens add rows to the state of LFM2's short convolutions", "run"),
    Change((0, 30, 0), "yarn_as_written", "a YaRN config's max_position_embeddings counts as it stands", "run"),
    Change((0, 30, 0), "inclusive_window", "Cohere 2's window counts the token itself beside it", "run"),
    Change((0, 30, 0), "kda_state_dtype", "--mamba-ssm-cache-dtype reaches Kimi Delta Attention", "run"),
    Change((0, 30, 0), "fa4_large_heads", "FLASH_ATTN takes blocks of 128 for head_dim 256 on a B200-class card", "read"),
    Change((0, 30, 0), "runner_v2", "the newer model runner is the default: with pipeline stages, one more batch in flight", "run"),
    Change((0, 30, 0), "kernel_rounding",
           "a hybrid's block is a multiple of the kernel blocks of all its backends", "run"),
    Change((0, 32, 0), "unequal_widths_fp8", "--kv-cache-dtype reaches layers whose keys and values differ in width (MiMo-V2)", "run"),
    Change((0, 32, 0), "sparse_dcp_wants_fp8", "a sparse indexer under decode context parallelism needs fp8_ds_mla", "run"),
    Change((0, 32, 0), "glm_dsa_fp8", "GLM-5's cache defaults to FP8 on a B200-class card", "read"),
    Change((0, 32, 0), "fa4_wide_heads_fp8",
           "FLASH_ATTN takes blocks of 64 for an 8-bit cache and head_dim 512 on Hopper (Gemma 4)", "run"),
    Change((0, 32, 0), "drafts_widen_windows", "an MTP of several layers widens every window by its drafts", "read"),
    Change((0, 32, 0), "mamba2_keeps_three", "Mamba-2 keeps 3 state blocks a group with prefix caching", "run"),
    Change((0, 33, 0), "gb10_small_tier", "a GB10 takes the batch defaults of a small card", "read"),
    Change((0, 33, 0), "ngram_async", "n-gram drafts run with asynchronous scheduling", "read"),
    Change((0, 33, 0), "gdn_checkpoints",
           "GDN with FlashInfer prefill keeps 3 state blocks a group; its block is a multiple of 64", "run"),
)


@dataclass(frozen=True)
class Version:
    """A vLLM release as the rules see it. ``text`` is what was asked for."""

    number: tuple[int, int, int]
    text: str

    def has(self, rule: str) -> bool:
        """Does this release follow the rule of that name in :data:`CHANGES`?"""
        return self.number >= _SINCE[rule]

    @property
    def proved(self) -> bool:
        """True when this minor release itself was run against the rules."""
        return self.number[:2] in PROVED

    @property
    def note(self) -> str | None:
        """A sentence for an answer that rests on less than a run, else None."""
        if self.number > NEWEST and self.number[:2] > NEWEST[:2]:
            return f"vLLM {self.text} is newer than the rules here; sized by those of 0.33"
        if not self.proved:
            return (f"vLLM {self.text} itself was not run: this rests on the table of what changed when "
                    "(0.28, 0.30, 0.32 and 0.33 were run)")
        return None

    @property
    def covered(self) -> bool:
        """False before 0.18: such a log is explained, but nothing is sized by it."""
        return self.number >= OLDEST

    def __str__(self) -> str:
        return ".".join(map(str, self.number))


_SINCE = {change.rule: change.since for change in CHANGES}


def parse_version(text: str) -> Version:
    """A vLLM version from "0.33", "0.33.0", "v0.20.1" or "0.29.1rc1.dev17" (taken as its release).

    "0.20" stands for its last patch. Raises EngineError on anything else.

    >>> parse_version("0.20").number, parse_version("0.29.1rc1.dev17").number
    ((0, 20, 2), (0, 29, 1))
    """
    version = _read(str(text).strip())
    if version is None:
        raise EngineError(f"vllm_version is {text!r}; write a release such as 0.33 or 0.28.0",
                          flag="vllm_version", found=text, expected="a release such as 0.33")
    return version


@lru_cache(maxsize=256)
def _read(text: str) -> Version | None:
    match = re.fullmatch(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:[.+-]?[a-zA-Z].*)?", text)
    if not match:
        return None
    major, minor = int(match[1]), int(match[2])
    patch = int(match[3]) if match[3] is not None else LAST_PATCH.get((major, minor), 0)
    return Version((major, minor, patch), text.lstrip("v"))
