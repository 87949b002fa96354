"""Every figure of the three notes worked out again: from configs, flags and memory, never from the note itself.

``COMPUTED`` maps a row of ``data/notes`` to the calculation of its figures; ``score`` holds them against what the
note prints.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from . import catalog
from .capacity import bytes_per_token, size
from .config import load_model
from .engine import Engine
from .memory import MemoryBudget, requested_bytes
from .spec import state_shapes
from .units import GiB, KiB, MiB, gib

OLD = "0.28"  # the GB10 note's release; the sweep note's figures agree with it too (no block held back)
GB10_TOTAL, GB10_FREE, GB10_NOT_CACHE, GB10_WEIGHTS = (gib(value) for value in (121.63, 113.91, 18.29, 15.27))
GB10_POOL = (gib(93.605), gib(93.6057))  # what the first launch's printed tokens leave of its printed 93.61 GiB
HYBRID_POOL = (gib(52.885), gib(52.89), gib(52.895) - 1)  # 52.89 as printed, and the ends of its rounding

# Models and launches


def model(name):
    return load_model(name)


def engine(**flags):
    return Engine(**{"vllm_version": OLD, **flags})


def gb10(available=GB10_POOL[0], **flags):
    """Qwen3-8B on the GB10."""
    return size(model("Qwen3-8B"), engine(**flags), available_bytes=available)


def hybrid(available=HYBRID_POOL[1], **flags):
    """Qwen3.8-27B on two A100 with an FP8 cache, unless told otherwise."""
    asked = {"gpu": "A100 80GB SXM", "tensor_parallel_size": 2, "kv_cache_dtype": "fp8", "max_model_len": 132_096}
    return size(model("Qwen3.8-27B"), engine(**{**asked, **flags}), available_bytes=available)


@dataclass(frozen=True)
class Card:
    """A row of the sweep note's program: a card, the weights it types and 0.8 GiB of everything else."""

    name: str
    weights_gib: float
    total_gib: int = 24
    tensor_parallel_size: int = 1

    def size(self, **flags):
        tp = self.tensor_parallel_size
        memory = MemoryBudget(self.total_gib * GiB, gib(self.weights_gib / tp), non_torch_bytes=gib(0.8))
        return size(model(self.name), engine(tensor_parallel_size=tp, **flags), memory=memory)


QWEN, LLAMA_8B = Card("Qwen2.5-1.5B", 2.9), Card("Llama-3.1-8B", 15.0)
LLAMA_8B_80 = Card("Llama-3.1-8B", 15.0, 80)
LLAMA_70B_2, LLAMA_70B_4 = (Card("Llama-3.3-70B", 131.5, 80, tp) for tp in (2, 4))


def tokens_and_concurrency(sizing):
    return sizing.kv_cache_tokens, sizing.max_concurrency


def full_layer(name):
    return next(layer for layer in model(name).layers if layer.kind == "full")


def gdn_state(tensor_parallel_size=1, drafts=0):
    """Bytes of a GDN layer's convolution state (BF16) and recurrent state (FP32) on one GPU."""
    layer = next(layer for layer in model("Qwen3.8-27B").layers if layer.kind == "gdn")
    shapes = dict(state_shapes(layer, tensor_parallel_size, drafts))
    return math.prod(shapes["conv"]) * 2, math.prod(shapes["ssm"]) * 4


def gdn_layers():
    return sum(layer.kind == "gdn" for layer in model("Qwen3.8-27B").layers)


def attention_page(sizing):
    return next(group for group in sizing.groups if group.is_attention)


def per_token(name, **flags):
    return bytes_per_token(model(name), engine(**flags))


def difference(first_utilization, second_utilization, total):
    return requested_bytes(total, second_utilization) - requested_bytes(total, first_utilization)


def blocks_by_kind(sizing):
    attention = sum(group.blocks_per_request for group in sizing.groups if group.is_attention)
    return attention, sizing.blocks_per_request - attention, sizing.blocks_per_request


def table_2(length):
    sizing = hybrid(max_model_len=length)
    return sizing.blocks_per_request, sizing.max_concurrency, sizing.kv_cache_tokens


def requests_to_outweigh():
    request = 32_768 * per_token("Qwen3-8B")
    return catalog.weights("Qwen3-8B").bytes // request + 1


def published(name):
    return catalog.model_config(name)["_source"]["total_parameters_published"]


# id: the figures, in the order of the row's exact values

COMPUTED = {
    "A01": lambda: (len(model("Qwen3-8B").layers), full_layer("Qwen3-8B").num_kv_heads,
                    full_layer("Qwen3-8B").head_dim, 2),
    "A02": lambda: per_token("Qwen3-8B"),
    "A03": lambda: per_token("Qwen3-8B") / KiB,
    "A04": lambda: gb10(max_model_len=32_768).needed_bytes / GiB,
    "A06": requests_to_outweigh,
    "A07": lambda: model("Qwen3-8B").num_attention_heads / full_layer("Qwen3-8B").num_kv_heads,
    "A08": lambda: (catalog.model_config("Qwen3-30B-A3B")["hidden_size"] // model("Qwen3-30B-A3B").num_attention_heads,
                    full_layer("Qwen3-30B-A3B").head_dim),
    "A11": lambda: gb10(max_model_len=8_192).max_concurrency / gb10(max_model_len=40_960).max_concurrency,
    "A12": lambda: per_token("Qwen3-8B") / per_token("Qwen3-8B", kv_cache_dtype="fp8"),
    "A13": lambda: per_token("gpt-oss-120b") / per_token("Qwen3-8B"),
    "A14": lambda: published("gpt-oss-120b") / published("Qwen3-8B"),
    "A20": lambda: gb10().plan.setup.gpu_memory_utilization,
    "A21": lambda: gb10().block_size,
    "A32": lambda: requested_bytes(GB10_TOTAL, 0.92) / GiB,
    "A37": lambda: size(model("Qwen3-8B"), engine(), memory=MemoryBudget(
        GB10_TOTAL, GB10_WEIGHTS, non_torch_bytes=GB10_NOT_CACHE - GB10_WEIGHTS)).available_bytes / GiB,
    "A38": lambda: (GB10_NOT_CACHE - GB10_WEIGHTS) / GiB,
    "A39": lambda: gb10().kv_cache_tokens,
    "A40": lambda: gb10().max_concurrency,
    "A42": lambda: gb10(max_model_len=8_192).max_concurrency,
    "A43": lambda: gb10(kv_cache_dtype="fp8").kv_cache_tokens,
    "A44": lambda: (per_token("gpt-oss-120b", disable_hybrid_kv_cache_manager=True) / KiB,
                    per_token("gpt-oss-120b") / KiB),
    "A45": lambda: per_token("DeepSeek-V3") / KiB,
    "A46": lambda: 32_768 / 4_000,
    "A47": lambda: difference(0.92, 0.95, 80 * GiB) / GiB,
    "A48": lambda: difference(0.92, 0.95, 80 * GiB) // per_token("Qwen3-8B"),
    "A49": lambda: (GB10_FREE - requested_bytes(GB10_TOTAL, 0.92)) / GiB,
    "A50": lambda: requested_bytes(GB10_TOTAL, 0.85) / GiB,
    "B02": lambda: hybrid().kv_cache_tokens,
    "B03": lambda: hybrid().max_concurrency,
    "B05": lambda: full_layer("Qwen3.8-27B").num_kv_heads * (full_layer("Qwen3.8-27B").head_dim
                                                             + full_layer("Qwen3.8-27B").v_head_dim),
    "B06": lambda: per_token("Qwen3.8-27B", kv_cache_dtype="fp8") / KiB,
    "B07": lambda: gdn_state()[1] / MiB,
    "B08": lambda: gdn_state()[0] / KiB,
    "B09": lambda: gdn_layers() * sum(gdn_state()) / MiB,
    "B10": lambda: gdn_layers() * sum(gdn_state()) / per_token("Qwen3.8-27B", kv_cache_dtype="fp8"),
    "B11": lambda: (gdn_layers() * sum(gdn_state(2)) / MiB,
                    per_token("Qwen3.8-27B", kv_cache_dtype="fp8", tensor_parallel_size=2) / KiB),
    "B20": lambda: sum(gdn_state(2)),
    "B21": lambda: per_token("Qwen3.8-27B", kv_cache_dtype="fp8", tensor_parallel_size=2)
    // attention_page(hybrid()).layers,
    "B22": lambda: attention_page(hybrid()).page_size_bytes,
    "B23": lambda: hybrid().block_size,
    "B24": lambda: 100 * (attention_page(hybrid()).page_size_bytes / sum(gdn_state(2)) - 1),
    "B25": lambda: hybrid(kv_cache_dtype="auto").block_size,
    "B26": lambda: tuple(hybrid(kv_cache_dtype=dtype, speculative_method="mtp", num_speculative_tokens=3).block_size
                         for dtype in ("fp8", "auto")),
    "B27": lambda: hybrid(tensor_parallel_size=4).block_size,
    "B28": lambda: tuple(group.block_size for group in hybrid().groups),
    "B29": lambda: hybrid().bytes_per_block,
    "B31": lambda: tuple(blocks_by_kind(hybrid(enable_prefix_caching=caching))[1] for caching in (False, True)),
    "B40": lambda: hybrid().num_gpu_blocks,
    "B41": lambda: blocks_by_kind(hybrid()),
    "B42": lambda: hybrid(enable_prefix_caching=False).blocks_per_request,
    "B50": lambda: table_2(8_192),
    "B51": lambda: table_2(32_768),
    "B52": lambda: table_2(132_096),
    "B53": lambda: table_2(262_144),
    "B54": lambda: blocks_by_kind(hybrid())[1] * hybrid().block_size,
    "B55": lambda: hybrid().num_gpu_blocks * hybrid().block_size,
    "C01": lambda: requested_bytes(24 * GiB, gb10().plan.setup.gpu_memory_utilization) / GiB,
    "C02": lambda: 100 * (1 - gb10().plan.setup.gpu_memory_utilization),
    "C11": lambda: difference(0.905, 0.92, 24 * GiB) / GiB,
    "C12": lambda: QWEN.size().available_bytes / GiB,
    "C20": lambda: attention_page(LLAMA_8B.size()).page_size_bytes,
    "C21": lambda: LLAMA_8B.size().bytes_per_block,
    "C22": lambda: per_token("Llama-3.1-8B"),
    "C30": lambda: float(LLAMA_8B.size().refusal.needed_gib),
    "C31": lambda: (float(LLAMA_8B.size().refusal.available_gib), LLAMA_8B.size().refusal.estimated_max_model_len),
    "C32": lambda: LLAMA_8B.size(max_model_len=-1).max_model_len,
    "C33": lambda: tokens_and_concurrency(QWEN.size()),
    "C34": lambda: QWEN.size().kv_cache_tokens // 2_000,
    "C60": lambda: tokens_and_concurrency(QWEN.size(gpu_memory_utilization=0.92)),
    "C61": lambda: tokens_and_concurrency(QWEN.size(gpu_memory_utilization=0.50)),
    "C62": lambda: tokens_and_concurrency(QWEN.size(kv_cache_dtype="fp8")),
    "C63": lambda: tokens_and_concurrency(LLAMA_8B.size()),
    "C64": lambda: tokens_and_concurrency(LLAMA_8B_80.size()),
    "C65": lambda: tokens_and_concurrency(LLAMA_70B_2.size()),
    "C66": lambda: tokens_and_concurrency(LLAMA_70B_4.size()),
    "C67": lambda: sum(card.size(**flags).max_concurrency < 1 for card, flags in PROGRAM),
    "C70": lambda: LLAMA_8B.size().kv_cache_tokens // 8,
}
PROGRAM = [(QWEN, {}), (QWEN, {"gpu_memory_utilization": 0.50}), (QWEN, {"kv_cache_dtype": "fp8"}),
           (LLAMA_8B, {}), (LLAMA_8B_80, {}), (LLAMA_70B_2, {}), (LLAMA_70B_4, {})]


@dataclass(frozen=True)
class Score:
    """One row of a note beside our figure. ``verdict``: "equal", "differs", or "shown" where there is no figure."""

    row: dict
    ours: tuple
    verdict: str

    @property
    def difference(self) -> float | int | None:
        """Ours less the row's exact value, where both are one number."""
        wanted = self.row["exact"].split()
        if self.verdict == "shown" or len(wanted) != 1 or len(self.ours) != 1:
            return None
        gap = Fraction(self.ours[0]) - Fraction(wanted[0])
        return int(gap) if gap.denominator == 1 else float(gap)


    @property
    def against_print(self) -> str:
        """How the note's print stands to our figure: "equal", "rounded", "off", or "not printed"; "" without one."""
        if self.verdict == "shown":
            return ""
        printed = re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", self.row["printed"]))
        if not printed:
            return "not printed"
        if re.fullmatch(r"\d+/\d+", self.row["printed"]):
            printed = [str(float(Fraction(self.row["printed"])))]
        mega = 10**6 if self.row["unit"] == "MB" else 1
        verdicts = {min((_print_of(Fraction(value) / mega, text) for text in printed), key=_WORSE.index) for value in self.ours}
        return max(verdicts, key=_WORSE.index)


_WORSE = ("equal", "rounded", "off")


def _print_of(value: Fraction, text: str) -> str:
    gap = abs(value - Fraction(text))
    if gap <= abs(value) / 10**8:  # a GiB of whole bytes
        return "equal"
    return "rounded" if gap <= _last_digit(text) / 2 else "off"


def _last_digit(text: str) -> Fraction:
    """The worth of a printed figure's last digit that is not a filling zero."""
    whole, _, decimals = text.partition(".")
    return Fraction(1, 10**len(decimals)) if decimals else Fraction(10 ** (len(whole) - len(whole.rstrip("0"))))


def within(value, text: str) -> bool:
    """Is a figure that of the row: equal as an integer, or to the last digit of a decimal?"""
    decimals = len(text.partition(".")[2])
    slack = Fraction(1, 2 * 10**decimals) if decimals else Fraction(isinstance(value, float), 10**9)
    return abs(Fraction(value) - Fraction(text)) <= slack


def score(row: dict) -> Score:
    """Work a row out and compare it with its exact value.

    >>> score(catalog.note_row("A39")).ours
    (681600,)
    """
    if row["id"] not in COMPUTED:
        return Score(row, (), "shown")
    found = COMPUTED[row["id"]]()
    found = found if isinstance(found, tuple) else (found,)
    wanted = row["exact"].split()
    equal = len(found) == len(wanted) and all(map(within, found, wanted))
    return Score(row, found, "equal" if equal else "differs")
