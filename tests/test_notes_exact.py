"""Every figure of the notes that has an exact value, worked out again from configs, flags and memory.

A row is never compared with itself: what stands here is the set-up, and kvlib works out the figure.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import pytest

import kvlib
from kvlib import catalog
from kvlib.memory import requested_bytes
from kvlib.spec import state_shapes
from kvlib.units import GiB, KiB, MiB, cdiv, gib

OLD = "0.28"  # the GB10 note's release; the sweep note's figures agree with it too (no block held back)
GB10_TOTAL, GB10_FREE, GB10_NOT_CACHE, GB10_WEIGHTS = (gib(value) for value in (121.63, 113.91, 18.29, 15.27))
GB10_POOL = (gib(93.605), gib(93.6057))  # what the first launch's printed tokens leave of its printed 93.61 GiB
HYBRID_POOL = (gib(52.885), gib(52.89), gib(52.895) - 1)  # 52.89 as printed, and the ends of its rounding

# Models and launches


def model(name):
    return kvlib.load_model(name)


def engine(**flags):
    return kvlib.Engine(**{"vllm_version": OLD, **flags})


def gb10(available=GB10_POOL[0], **flags):
    """Qwen3-8B on the GB10."""
    return kvlib.size(model("Qwen3-8B"), engine(**flags), available_bytes=available)


def hybrid(available=HYBRID_POOL[1], **flags):
    """Qwen3.8-27B on two A100 with an FP8 cache, unless told otherwise."""
    asked = {"gpu": "A100 80GB SXM", "tensor_parallel_size": 2, "kv_cache_dtype": "fp8", "max_model_len": 132_096}
    return kvlib.size(model("Qwen3.8-27B"), engine(**{**asked, **flags}), available_bytes=available)


@dataclass(frozen=True)
class Card:
    """A row of the sweep note's program: a card, the weights it types and 0.8 GiB of everything else."""

    name: str
    weights_gib: float
    total_gib: int = 24
    tensor_parallel_size: int = 1

    def size(self, **flags):
        tp = self.tensor_parallel_size
        memory = kvlib.MemoryBudget(self.total_gib * GiB, gib(self.weights_gib / tp), non_torch_bytes=gib(0.8))
        return kvlib.size(model(self.name), engine(tensor_parallel_size=tp, **flags), memory=memory)


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
    return kvlib.bytes_per_token(model(name), engine(**flags))


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
    "A37": lambda: kvlib.size(model("Qwen3-8B"), engine(), memory=kvlib.MemoryBudget(
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


def test_every_row_with_an_exact_value_is_worked_out():
    assert {row["id"] for row in catalog.note_rows() if row["exact"]} == set(COMPUTED)


@pytest.mark.parametrize("row_id", COMPUTED)
def test_a_row_comes_out_exactly(row_id):
    """Equal as integers; a decimal to the last digit of the row."""
    wanted = catalog.note_row(row_id)["exact"].split()
    found = COMPUTED[row_id]()
    found = found if isinstance(found, tuple) else (found,)
    assert len(found) == len(wanted)
    for value, text in zip(found, wanted, strict=True):
        decimals = len(text.partition(".")[2])
        slack = Fraction(1, 2 * 10**decimals) if decimals else Fraction(isinstance(value, float), 10**9)
        assert abs(Fraction(value) - Fraction(text)) <= slack, f"{row_id}: {value} instead of {text}"


# What the remarks add


@pytest.mark.parametrize("available", HYBRID_POOL)
def test_b40_holds_over_the_rounding_of_the_printed_memory(available):
    assert (hybrid(available).num_gpu_blocks, hybrid(available).kv_cache_tokens) == (2_210, 3_208_045)


def test_a39_the_printed_memory_allows_a_little_more_than_was_printed():
    low, high = gb10(gib(93.605)), gb10(gib(93.615) - 1)
    assert (low.kv_cache_tokens, high.kv_cache_tokens, low.num_gpu_blocks) == (681_600, 681_680, 42_600)
    assert gb10(GB10_POOL[1]).kv_cache_tokens == 681_600


def test_a42_and_a43_as_the_log_would_print_them():
    shorter = gb10(max_model_len=8_192)
    assert (shorter.kv_cache_tokens, f"{shorter.max_concurrency:.2f}") == (681_600, "83.20")
    both = [gb10(end, kv_cache_dtype="fp8") for end in GB10_POOL]
    assert {(sizing.kv_cache_tokens, f"{sizing.max_concurrency:.2f}") for sizing in both} == {(1_363_216, "33.28")}
    assert gb10(gib(93.61), kv_cache_dtype="fp8").kv_cache_tokens == 1_363_280


def test_a44_a_request_is_charged_more_than_the_growth():
    charged = {length: kvlib.size(model("gpt-oss-120b"), engine(max_model_len=length, max_num_batched_tokens=8_192),
                                  available_bytes=32 * GiB).needed_bytes / length / KiB for length in (8_192, 131_072)}
    assert {length: round(kib, 1) for length, kib in charged.items()} == {8_192: 72.1, 131_072: 40.5}


def test_b26_mtp_widens_the_block():
    drafts = hybrid(speculative_method="mtp", num_speculative_tokens=3)
    assert drafts.bytes_per_block == 17 * attention_page(drafts).page_size_bytes
    assert (drafts.num_gpu_blocks, drafts.blocks_per_request, drafts.kv_cache_tokens) == (2_038, 98, 2_747_057)


def test_b27_holds_up_to_the_number_of_kv_heads():
    assert hybrid(tensor_parallel_size=8).block_size == 784


def test_b31_newer_releases_keep_more_on_hopper():
    newer = hybrid(vllm_version="0.33", gpu="H100 SXM", max_model_len=8_192)
    assert (newer.block_size, newer.blocks_per_request) == (1_600, cdiv(8_192, 1_600) + 9)


def test_b42_without_prefix_caching():
    without = hybrid(enable_prefix_caching=False)
    assert (f"{without.max_concurrency:.2f}", without.kv_cache_tokens) == ("25.11", 3_317_410)


def test_c31_the_two_printed_figures_do_not_belong_together():
    for version, estimates in {"0.28": (51_680, 51_440), "0.30": (51_664, 51_424)}.items():
        found = tuple(kvlib.size(model("Llama-3.1-8B"), engine(vllm_version=version),
                                 available_bytes=available).estimated_max_model_len
                      for available in (gib(6.31), LLAMA_8B.size().available_bytes))
        assert found == estimates
    ends = [kvlib.size(model("Llama-3.1-8B"), engine(), available_bytes=gib(value)).estimated_max_model_len
            for value in (6.305, 6.315)]
    assert ends[0] == 51_648 and ends[1] in (51_712, 51_728)


def test_c40_past_the_kv_heads_nothing_is_split():
    assert [per_token("Qwen2.5-1.5B", tensor_parallel_size=tp) for tp in (1, 2, 4)] == [28_672, 14_336, 14_336]
    assert per_token("DeepSeek-V3", tensor_parallel_size=8) == per_token("DeepSeek-V3")
    with pytest.raises(kvlib.EngineError, match="must divide"):
        per_token("Qwen2.5-1.5B", tensor_parallel_size=5)


def test_c60_to_c66_as_the_program_prints_them():
    lines = []
    for card, flags in PROGRAM:
        sizing = card.size(**flags)
        kib = per_token(card.name, tensor_parallel_size=card.tensor_parallel_size,
                        kv_cache_dtype=flags.get("kv_cache_dtype", "auto")) / KiB
        lines.append(f"{kib:.1f} KiB, {sizing.available_bytes / GiB:.1f} GiB, {sizing.kv_cache_tokens}, "
                     f"{sizing.max_concurrency:.1f}x")
    for number, line in enumerate(lines):
        assert catalog.note_row(f"C6{number}")["printed"].split(" at ")[0] == line


def test_c70_by_whole_blocks():
    by_length = {length: LLAMA_8B.size(max_model_len=length) for length in (6_416, 6_417, 6_430)}
    assert by_length[6_416].max_concurrency >= 8 > by_length[6_417].max_concurrency
    assert f"{by_length[6_430].max_concurrency:.4f}" == "7.9975"


# What was measured, against the log


@pytest.mark.parametrize("row_id", ["A31", "A32", "A33", "A34", "A35", "A36", "A37", "A39", "A40"])
def test_a_measured_figure_stands_in_the_log(row_id):
    assert catalog.note_row(row_id)["printed"] in catalog.log_text("qwen3-8b-gb10")


@pytest.mark.parametrize("row_id", ["B01", "B02", "B03"])
def test_a_figure_of_the_hybrid_stands_in_its_log(row_id):
    assert catalog.note_row(row_id)["printed"] in catalog.log_text("qwen3.8-27b-hybrid")
