"""What notebook 02 knows: the GB10 launch, the weights and the reserve of other launches, and the verdict on a range.

Measured figures come from ``data/notes``, sizes from :func:`kvlib.size`. Nothing here draws.
"""

from __future__ import annotations

import dataclasses
from functools import cache, lru_cache

import kvlib
from kvlib import Band, Engine, MemoryBudget, catalog
from kvlib.errors import ConfigError
from kvlib.memory import TERMS, at, requested_bytes
from kvlib.reserve import model_facts, reserve_bands
from kvlib.resolve import resolve
from kvlib.tables import Html, html, strong
from kvlib.units import GiB, gib, gib_text

GB10, VERSION, CONTEXT = "GB10 (DGX Spark)", "0.28", 40_960
TOTAL, FREE, WEIGHTS, NOT_CACHE = (float(catalog.note_row(row)["printed"]) for row in ("A30", "A31", "A33", "A36"))
TOKENS = 681_600            # what that launch printed
HALF = 0.005                # GiB: a printed figure may be this far from the truth
PINNED = (93.605, 93.6057)  # GiB: what those tokens leave of the printed 93.61 GiB
NOT_CHECKED = "Not checked: what other processes hold, kernels, the capture of CUDA graphs, a vision encoder."

WIDTHS = {"as published": None, "16-bit": "bfloat16", "8-bit": "fp8", "4-bit": "int4"}
#: bytes loaded over bytes computed, by bytes a weight: least, usual, most in data/weights_seen.csv
LOADED_OVER_COMPUTED = {2: (0.98, 1.0, 1.03), 1: (0.99, 1.03, 1.15), 0.5: (1.05, 1.35, 1.45)}


# Figures in words


def ends(printed: float) -> tuple[float, float]:
    """The least and the most, in GiB, that vLLM prints as this figure.

    >>> ends(93.61)
    (93.605, 93.615)
    """
    return round(printed - HALF, 6), round(printed + HALF, 6)


def interval(low: float, high: float, decimals: int = 3) -> Html:
    """Two ends as tables show them, standing right like a number; one figure where both read alike.

    >>> interval(93.605, 93.615), interval(681600, 681680, 0), interval(-0.04, 2, 1)
    ('93.605 to 93.615', '681,600 to 681,680', '0.0 to 2.0')
    """
    low, high = (f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", "−") for value in (low, high))
    return Html(low if low == high else f"{low} to {high}")


def about(number: float) -> str:
    """A count to three figures, for a range that knows no more.

    >>> about(631168), about(17.188), about(0.485)
    ('631,000', '17.2', '0.48')
    """
    rounded = float(f"{number:.3g}")
    if rounded >= 100 or rounded == int(rounded):
        return f"{rounded:,.0f}"
    return f"{rounded:.{1 if rounded >= 10 else 2}f}"


def agreement(recomputed: tuple[float, float], printed: tuple[float, float]) -> str:
    """How a recomputed figure stands to a printed one, each given by its ends.

    >>> agreement((93.600, 93.619), ends(93.61)), agreement((5, 5), (5, 5)), agreement((1, 2), (3, 3))
    ('within the rounding', 'exact', 'off')
    """
    if recomputed[0] == recomputed[1] == printed[0] == printed[1]:
        return "exact"
    return "within the rounding" if recomputed[0] <= printed[1] and printed[0] <= recomputed[1] else "off"


# The GB10 launch


@cache
def model(name: str = "Qwen3-8B"):
    """A model of the catalogue, read once."""
    return kvlib.load_model(name)


def gb10_engine(**flags) -> Engine:
    """The flags of the GB10 launch, and changes to them."""
    return Engine(**{"vllm_version": VERSION, "max_model_len": CONTEXT, **flags})


def gb10_launch(gpu_memory_utilization: float, held_gib: float = 0.0):
    """The GB10 launch again, while another process holds some of the machine's memory (GiB).

    >>> gb10_launch(0.92, 3).outcome, gb10_launch(0.92).outcome
    ('free_memory', 'passes')
    """
    memory = MemoryBudget(gib(TOTAL), gib(WEIGHTS), non_torch_bytes=gib(NOT_CACHE - WEIGHTS),
                          free_bytes=gib(FREE - held_gib))
    return kvlib.size(model(), gb10_engine(gpu_memory_utilization=gpu_memory_utilization), memory=memory)


def gb10_asked(gpu_memory_utilization: float) -> float:
    """GiB requested on the GB10.

    >>> round(gb10_asked(0.85), 4)
    103.3855
    """
    return requested_bytes(gib(TOTAL), gpu_memory_utilization) / GiB


def gb10_pool(gpu_memory_utilization: float) -> tuple[int, int]:
    """The least and most bytes that launch would leave to the cache at another share, all else as measured.

    >>> [round(end / GiB, 4) for end in gb10_pool(0.92)]
    [93.605, 93.6057]
    """
    change, (low, high) = gpu_memory_utilization - 0.92, ends(TOTAL)
    if change < 0:
        low, high = high, low
    return gib(PINNED[0] + change * low), gib(PINNED[1] + change * high)


def gb10_at(gpu_memory_utilization: float) -> list:
    """The sizings at both ends of :func:`gb10_pool`.

    >>> [found.kv_cache_tokens for found in gb10_at(0.85)]
    [619600, 619616]
    """
    engine = gb10_engine(gpu_memory_utilization=gpu_memory_utilization)
    return [kvlib.size(model(), engine, available_bytes=end) for end in gb10_pool(gpu_memory_utilization)]


def step(total_gib: float, before: float, after: float) -> tuple[int, int, int]:
    """Bytes, tokens, and tokens in whole blocks, of Qwen3-8B between two shares of one card; negative when it shrinks.

    >>> step(80, 0.92, 0.95)[1:]
    (17476, 17472)
    """
    extra = requested_bytes(gib(total_gib), after) - requested_bytes(gib(total_gib), before)
    found = kvlib.size(model(), gb10_engine(), available_bytes=abs(extra))
    sign = 1 if extra >= 0 else -1
    return (extra, sign * (abs(extra) // kvlib.bytes_per_token(model(), gb10_engine())),
            sign * found.num_gpu_blocks * found.block_size)


# Other launches


@cache
def cards() -> dict[str, catalog.Gpu]:
    """The catalogue's cards, by name."""
    return catalog.gpus()


@lru_cache(maxsize=256)
def card(gpu: str, total_gib: float) -> catalog.Gpu:
    """The named card with that much memory; vLLM's batch defaults follow the memory."""
    found = cards()[gpu]
    same = abs(found.reported_gib - total_gib) < 1e-9
    return found if same else dataclasses.replace(found, total_bytes=gib(total_gib))


def another_card(gpu: str, total_gib: float) -> bool:
    """True where that much memory was never reported for the card of that name."""
    found = cards()[gpu]
    return not found.reported_low_gib - HALF <= total_gib <= found.reported_high_gib + HALF


@lru_cache(maxsize=256)
def weights_of(name: str, choice: str = "as published", tensor_parallel_size: int = 1) -> tuple[int | Band, str]:
    """The weights on one GPU in bytes, an int where a launch printed them, else a Band; and where that comes from.

    ``choice`` is a key of WIDTHS. Raises ConfigError where neither way gives a figure.

    >>> weights_of("gpt-oss-120b", "4-bit")[0] == gib(64.38)
    True
    """
    wanted = WIDTHS[choice]
    names = {"int4": ("int4", "mxfp4", "nvfp4"), "fp8": ("fp8", "int8")}.get(wanted, (wanted,))
    try:
        found = [catalog.weights(name, dtype, tensor_parallel_size) for dtype in names]
    except ConfigError as problem:
        if problem.field != "weights_bytes":
            raise
        raise ConfigError(f"the weights of {name} are not on file at this width; take another weights dtype, or use "
                          "the cell Your turn with what your launch prints", field="weights_bytes") from None
    best = next((each for each in found if each.kind == "measured"), found[0])
    if best.kind == "measured":
        return best.bytes, "printed by a launch"
    total = catalog.model_config(name)["_source"]["total_parameters_published"]
    width = min(LOADED_OVER_COMPUTED, key=lambda each: abs(each - best.bytes * tensor_parallel_size / total))
    low, typical, high = (round(best.bytes * factor) for factor in LOADED_OVER_COMPUTED[width])
    return Band(low, typical, high, f"published parameters × {width:g} B, and how far loaded ones were from that"), \
        f"parameters × {width:g} B, as far off as loaded ones were"


@lru_cache(maxsize=256)
def reserve_of(name: str, engine: Engine) -> dict[str, Band]:
    """The bands of what a launch takes besides weights and cache, by term, in bytes.

    >>> {term: band.high > band.low for term, band in reserve_of("Qwen3-8B", Engine(gpu="L4")).items()}
    {'peak_activation_bytes': True, 'non_torch_bytes': True, 'cuda_graph_bytes': True}
    """
    setup = resolve(model(name), engine)
    return reserve_bands(
        setup.gpu, max_num_seqs=setup.max_num_seqs, max_num_batched_tokens=setup.max_num_batched_tokens,
        tensor_parallel_size=engine.tensor_parallel_size, vllm_version=engine.vllm_version,
        enforce_eager=engine.enforce_eager, **model_facts(catalog.model_config(name)))


# The verdict


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What vLLM's memory checks say over a range: ``word`` is "passes", "close" or "refused"."""

    word: str
    sentence: Html


def judge(low, typical, high) -> Verdict:
    """The verdict on what :func:`kvlib.size_range` returned; the sizings carry their budgets."""
    if low.fits:
        return Verdict("passes", html("It {}.", strong("passes vLLM's memory checks")))
    if not high.fits:
        return Verdict("refused", html("{} {}", strong("Refused:"), _where_it_fails(low, high)))
    weights = {at(each.memory.weights_bytes, "typical") for each in (low, high)}
    apart = weights.pop() if len(weights) == 1 else 0
    spent = [(taken(each) - apart) / GiB for each in (high, low)]
    return Verdict("close", html(
        "{}: it passes while {} at most {} GiB (assumed: {}).", strong("Too close to call"),
        "the reserve takes" if apart else "weights and reserve together take",
        strong(gib_text(most_taken(typical) - apart)), interval(*spent, 2)))


def taken(sizing) -> int:
    """Bytes of weights and reserve together; bands at typical."""
    return sum(at(getattr(sizing.memory, term), "typical") for term in TERMS)


def most_taken(sizing) -> int:
    """The break-even: the most bytes that weights and reserve together may take before vLLM refuses."""
    spare = sizing.headroom_bytes
    if sizing.model.has_state and not sizing.engine.enforce_eager:
        spare = min(spare, sizing.available_bytes - sizing.plan.setup.max_num_seqs * sizing.bytes_per_block)
    return taken(sizing) + spare


def _where_it_fails(low, high) -> str:
    best = "" if low.available_bytes == high.available_bytes else " at best"
    total = at(high.memory.total_bytes, "typical")
    if high.outcome == "weights_do_not_fit":
        least, most = (at(each.memory.weights_bytes, "typical") / GiB for each in (high, low))
        return f"the weights, {interval(least, most, 2)} GiB, are larger than the GPU."
    if high.outcome == "free_memory":
        return f"{high.refusal.needed_gib} GiB are requested, {high.refusal.available_gib} GiB are free."
    if high.outcome == "no_cache_memory":
        asked = requested_bytes(total, high.plan.setup.gpu_memory_utilization)
        return (f"nothing is left for the cache; weights and reserve take {gib_text(taken(high))} GiB{best}, "
                f"{gib_text(asked)} GiB are requested.")
    if high.outcome == "max_num_seqs":
        return (f"max_num_seqs, {high.plan.setup.max_num_seqs:,}, is more than the {high.num_gpu_blocks:,} blocks "
                f"for their states{best}.")
    estimate = low.estimated_max_model_len
    return (f"a request of {high.max_model_len:,} tokens needs {gib_text(high.needed_bytes)} GiB, "
            f"{gib_text(high.available_bytes)} GiB are left{best}."
            + (f" A max_model_len of {estimate:,} would pass." if estimate else ""))
