"""What a launch takes besides weights and cache, as a band per term: assumed, and saying how many reports stand behind it.

The numbers live in ``data/reserve_bands.csv`` (drawn from ``data/reserve.csv``), one row a case; this module
only chooses. A band is wide where the reports are few. One launch of your own replaces it.

>>> from kvlib.catalog import model_config
>>> bands = reserve_bands("H100 SXM", tensor_parallel_size=2, vllm_version="0.19", max_num_seqs=1024,
...                       max_num_batched_tokens=8192, **model_facts(model_config("Qwen3-8B")))
>>> round(bands["non_torch_bytes"].typical / GiB, 1)
2.1
>>> "9 reports" in bands["non_torch_bytes"].source
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from types import MappingProxyType

from . import catalog
from .catalog import Gpu, table
from .engine import Engine
from .errors import ConfigError
from .fields import text_part
from .memory import Band, MemoryBudget
from .model import Model
from .parameters import parameters
from .resolve import resolve
from .units import GiB, gib
from .versions import parse_version
from .weights import expected_weights

LARGE_CARD = 70 * GiB
_NVLINK = ("SXM", "NVL", "H200", "B200", "B300", "GB300")
_STEP = 0.05  # GiB; a band is not known more finely than this


@lru_cache(maxsize=4096)
def reserve_bands(gpu: str | Gpu | None = None, *, max_num_seqs: int, max_num_batched_tokens: int,
                  vocab_size: int, num_layers: int, tensor_parallel_size: int = 1, pipeline_parallel_size: int = 1,
                  vllm_version: str = "0.33", enforce_eager: bool = False, hidden_size: int | None = None,
                  intermediate_size: int | None = None, moe: bool = False, num_experts_per_tok: int | None = None,
                  moe_intermediate_size: int | None = None, num_parameters: int | None = None,
                  vision: bool = False, draft_model: bool = False) -> Mapping[str, Band]:
    """Bands for ``peak_activation_bytes``, ``non_torch_bytes`` and ``cuda_graph_bytes``, per GPU, in bytes.

    ``gpu`` is a card or its name; None stands for an 80 GiB data-centre card. :func:`model_facts` fills in
    what depends on the model. Raises EngineError for an unknown card or version.
    """
    card = catalog.gpu(gpu) if gpu is not None else None
    version = parse_version(vllm_version).number
    work = _Work(max_num_seqs, max_num_batched_tokens, vocab_size, hidden_size or 0, intermediate_size or 0,
                 tensor_parallel_size, moe, num_experts_per_tok or 0, moe_intermediate_size or 0,
                 num_parameters, vision, draft_model)
    return MappingProxyType({
        "peak_activation_bytes": _activation(card, version, work, pipeline_parallel_size).band(),
        "non_torch_bytes": _non_torch(card, version, tensor_parallel_size, pipeline_parallel_size).band(),
        "cuda_graph_bytes": _graphs(version, work, num_layers, enforce_eager).band(),
    })


def model_facts(config: dict) -> dict:
    """The arguments of :func:`reserve_bands` that a model's ``config.json`` answers.

    >>> facts = model_facts(catalog.model_config("Qwen3-30B-A3B"))
    >>> facts["vocab_size"], facts["moe"], facts["num_experts_per_tok"]
    (151936, True, 8)
    """
    text = text_part(config)[0]

    def first(*keys):
        values = (text[key][0] if isinstance(text.get(key), list) and text[key] else text.get(key) for key in keys)
        return next((value for value in values if isinstance(value, int)), None)

    experts = first("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    return {
        "vocab_size": first("vocab_size") or config.get("vocab_size") or 0,
        "num_layers": first("num_hidden_layers", "n_layer", "num_layers") or 0,
        "hidden_size": first("hidden_size", "n_embd"),
        "intermediate_size": first("intermediate_size", "ffn_dim"),
        "moe": bool(experts and experts > 1),
        "num_experts_per_tok": first("num_experts_per_tok", "num_experts_per_token", "moe_topk",
                                     "moe_k", "top_k_experts"),
        "moe_intermediate_size": first("moe_intermediate_size") or (first("intermediate_size") if experts else None),
        "num_parameters": (config.get("_source") or {}).get("total_parameters_published"),
        "vision": any("vision_config" in part for part in (config, config.get("thinker_config") or {})),
    }


@lru_cache(maxsize=4096)
def bands_of(model: Model, engine: Engine) -> dict[str, Band]:
    """:func:`reserve_bands` for a launch: the batch as vLLM takes it on that card, the rest from the config.

    >>> from kvlib import load_model
    >>> sorted(bands_of(load_model("Qwen3-8B"), Engine(gpu="L4")))
    ['cuda_graph_bytes', 'non_torch_bytes', 'peak_activation_bytes']
    """
    setup, facts = resolve(model, engine), _facts_of(model)
    return reserve_bands(
        setup.gpu, max_num_seqs=setup.max_num_seqs, max_num_batched_tokens=setup.max_num_batched_tokens,
        tensor_parallel_size=engine.tensor_parallel_size, pipeline_parallel_size=engine.pipeline_parallel_size,
        vllm_version=engine.vllm_version, enforce_eager=engine.enforce_eager,
        draft_model=engine.draft_model is not None, **facts)


@cache
def _facts_of(model: Model) -> dict:
    facts = model_facts(model.config)
    return facts | {"num_layers": len(model.layers), "num_parameters": facts["num_parameters"] or _counted(model),
                    "vocab_size": facts["vocab_size"] or model.vocab_size or 0}


def _counted(model: Model) -> int | None:
    try:
        return parameters(model).total
    except ConfigError:
        return None


@lru_cache(maxsize=8192)
def assumed_budget(model: Model, engine: Engine | None = None, *, weight_dtype: str | None = None) -> MemoryBudget:
    """What can be said of one GPU's memory before a launch: the card, the weights, and a band for each other term.

    ``weight_dtype`` is how the weights are stored: a name of :data:`kvlib.weights.QUANTIZATIONS`, "bfloat16", or None for
    what the config says. Without ``engine.gpu`` the card has 80 GiB. Raises ConfigError where the parameters cannot be
    counted, and what :func:`reserve_bands` and :func:`kvlib.resolve.resolve` raise.

    >>> from kvlib import load_model
    >>> budget = assumed_budget(load_model("Qwen3-8B"), Engine(gpu="RTX 4090"))
    >>> budget.assumed
    ('peak_activation_bytes', 'non_torch_bytes', 'cuda_graph_bytes')
    """
    engine = engine if engine is not None else Engine()
    setup = resolve(model, engine)
    bands = bands_of(model, engine)
    stored = "none" if weight_dtype in ("bfloat16", "float16") else None if weight_dtype == "auto" else weight_dtype
    return MemoryBudget(setup.gpu.total_bytes if setup.gpu is not None else 80 * GiB,
                        expected_weights(model, engine, stored).value, **bands)


class _Range:
    """A band in GiB while it is put together, with the sentences that account for it."""

    def __init__(self, low: float, typical: float, high: float, *sources: str):
        self.low, self.typical, self.high, self.sources = low, typical, high, list(sources)

    @classmethod
    def case(cls, term: str, case: str) -> _Range:
        row = _case(term, case)
        return cls(row["low"], row["typical"], row["high"], _account(row))

    def reach(self, other: _Range, typical: str = "own") -> _Range:
        """Widen to take in another band; ``typical`` "larger" also moves the middle."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        if typical == "larger":
            self.typical = max(self.typical, other.typical)
        self.sources += [source for source in other.sources if source not in self.sources]
        return self

    def band(self) -> Band:
        low = math.floor(self.low / _STEP + 1e-9) * _STEP
        high = math.ceil(self.high / _STEP - 1e-9) * _STEP
        typical = min(max(round(self.typical / _STEP) * _STEP, low), high)
        return Band(gib(low), gib(typical), gib(high), "; ".join(self.sources))


@dataclass(frozen=True)
class _Work:
    """What one profiling pass computes, in vLLM's own terms."""

    max_num_seqs: int
    max_num_batched_tokens: int
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    tensor_parallel_size: int
    moe: bool
    num_experts_per_tok: int
    moe_intermediate_size: int
    num_parameters: int | None
    vision: bool
    draft_model: bool

    def at_least(self, parameters: float) -> bool:
        """True for a model of that many parameters, and for one whose size is not known."""
        return self.num_parameters is None or self.num_parameters >= parameters

    @property
    def workspace(self) -> float:
        """GiB of the experts' buffers; 0 without experts."""
        if not self.moe:
            return 0.0
        values = 3 * self.moe_intermediate_size / self.tensor_parallel_size + self.hidden_size
        return self.max_num_batched_tokens * self.num_experts_per_tok * values * 2 / GiB

    @property
    def formula(self) -> float:
        """GiB of the older runner's peak: the sampler or the forward pass, by the fit."""
        factor = {name: _case("peak_activation_bytes", f"{name}_factor")["typical"] for name in ("sampler", "forward")}
        sampler = factor["sampler"] * self.max_num_seqs * self.vocab_size * 4 / GiB
        if self.moe:
            return sampler + self.workspace
        values = 3 * self.intermediate_size / self.tensor_parallel_size + 2 * self.hidden_size
        return max(sampler, factor["forward"] * self.max_num_batched_tokens * values * 2 / GiB)


def _activation(card: Gpu | None, version: tuple, work: _Work, stages: int) -> _Range:
    case = partial(_Range.case, "peak_activation_bytes")
    formula = _formula_band(card, version, work)
    if card is not None and card.vendor != "NVIDIA":
        found = case("other_vendor").reach(formula)
    elif work.moe and work.at_least(100e9):
        found = case("moe_100b").reach(formula)
        if work.num_experts_per_tok:
            found.typical = formula.typical
    elif card is not None and card.total_bytes < LARGE_CARD:
        found = case("card_below_70_gib").reach(_Range(work.formula, work.formula, work.formula), "larger")
    elif version < (0, 26):
        found = formula
    else:
        found = case("runner_v2_large" if work.at_least(10e9) else "runner_v2")
        found.typical = max(found.typical, work.workspace)
        found.reach(_Range(found.low, found.typical, max(found.high, formula.high),
                           "the older runner's formula taken as the upper end"))
        if version < (0, 28):
            found.typical = formula.typical
    if stages > 1:
        found.reach(case("pipeline_stages"))
    if work.draft_model:
        found.reach(case("draft_model"), "larger")
    if work.vision:
        found.reach(_Range(found.low, found.typical, case("vision").high, *case("vision").sources))
    return found


def _formula_band(card: Gpu | None, version: tuple, work: _Work) -> _Range:
    home = version[:2] == (0, 19) and (card is None or card.name.startswith("H100 SXM"))
    miss = _case("peak_activation_bytes", "formula_miss" if home else "formula_miss_elsewhere")
    centre = work.formula
    low = centre - work.workspace + miss["low"]
    return _Range(max(0.0, low), centre, centre + miss["high"],
                  "the sampler" + (" and the experts' buffers" if work.moe else " or the forward pass")
                  + ", " + _account(miss))


def _non_torch(card: Gpu | None, version: tuple, tp: int, stages: int) -> _Range:
    case = partial(_Range.case, "non_torch_bytes")
    if card is not None and card.unified:
        return case("unified_memory")
    if tp > 4:
        return case("tp8")
    nvlink = card is None or any(word in card.name for word in _NVLINK)
    if tp > 1:
        if card is not None and card.vendor != "NVIDIA":
            return case("tp_other").reach(case("other_vendor"))
        if nvlink and version[:2] == (0, 19) and tp in (2, 4):
            return case(f"tp{tp}_nvlink_019")
        return case("tp_nvlink" if nvlink else "tp_other")
    if card is not None and card.vendor != "NVIDIA":
        return case("other_vendor")
    if stages > 1:
        return case("pipeline_stages").reach(case("tp1_since_027") if version >= (0, 27) else case("tp1"))
    return case("tp1_since_027" if version >= (0, 27) else "tp1")


def _graphs(version: tuple, work: _Work, num_layers: int, enforce_eager: bool) -> _Range:
    case = partial(_Range.case, "cuda_graph_bytes")
    if enforce_eager:
        return case("eager")
    if version < (0, 20):
        return case("not_subtracted")
    if work.max_num_seqs <= 16:
        real = case("few_sizes")
    elif work.moe:
        real = case("moe_100b" if work.at_least(100e9) else "moe_80b" if work.at_least(50e9) else "moe_30b")
    else:
        constant, slope = (_case("cuda_graph_bytes", name) for name in ("dense_constant", "dense_per_layer"))
        layers = slope["typical"] * num_layers
        real = _Range(*(constant[end] + layers for end in ("low", "typical", "high")),
                      _account(constant))
    if version < (0, 28):
        miss = _case("cuda_graph_bytes", "estimate_less_real")
        return _Range(max(0.0, real.low + miss["low"]), real.typical, real.high + miss["high"], *real.sources,
                      _account(miss))
    since = case("since_028")
    return _Range(since.low, min(since.typical, real.typical), real.high, *since.sources)


@cache
def _cases() -> dict[tuple[str, str], dict]:
    return {(row["term"], row["case"]): {**row, **{end: float(row[end]) for end in ("low", "typical", "high")}}
            for row in table("reserve_bands.csv")}


def _case(term: str, case: str) -> dict:
    return _cases()[term, case]


def _account(row: dict) -> str:
    rows = int(row["rows"])
    return f"{row['source']} ({'no report' if not rows else f'{rows} report' + 's' * (rows > 1)})"
