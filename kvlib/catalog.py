"""The files of ``data/``, read when asked for: models, GPUs, loaded weights, the notes' figures, logs.

Nothing here computes a cache. Every record says where it comes from; ``data/README.md`` says how far to
trust each file. Standard library only.

>>> gpu("h200").name, model_config("qwen3-8b")["num_hidden_layers"]
('H200 SXM 141GB', 36)
>>> note_row("A39")["printed"], log_text("qwen3.8-27b-hybrid").split(",")[0]
('681,600', 'Available KV cache memory: 52.89 GiB\\nGPU KV cache size: 3')
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path

from .errors import ConfigError, EngineError
from .fields import text_part
from .units import cdiv, gib

#: bytes of one weight by dtype name; the 4-bit formats without their scales
WEIGHT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "int8": 1,
                "int4": 0.5, "mxfp4": 0.5, "nvfp4": 0.5}
_DTYPE_NAMES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32",
                "awq": "int4", "gptq": "int4", "4-bit": "int4", "8-bit": "int8"}


@dataclass(frozen=True)
class Gpu:
    """A card and the memory its driver reports, in bytes and GiB; ``low`` and ``high`` are the extremes seen.

    ``compute_capability`` is None where there is none to speak of (``arch`` names the chip then).
    ``marketing_gb`` is decimal. ``unified`` is True where CPU and GPU share the memory.
    """

    name: str
    vendor: str
    arch: str
    compute_capability: tuple[int, int] | None
    marketing_gb: int
    total_bytes: int
    reported_gib: float
    reported_low_gib: float
    reported_high_gib: float
    unified: bool
    source: str
    remark: str = ""


@dataclass(frozen=True)
class Weights:
    """What the weights take on one GPU, in bytes: ``kind`` is "measured" or "computed"."""

    bytes: int
    kind: str
    source: str


@cache
def data_dir() -> Path:
    """The folder with the data: inside an installed package, or beside it in a clone."""
    inside = Path(__file__).parent / "_data"
    return inside if inside.is_dir() else Path(__file__).parents[1] / "data"


@cache
def table(name: str) -> tuple[dict[str, str], ...]:
    """The rows of a CSV file in ``data/``, such as ``"reserve.csv"``, as text by column."""
    with open(data_dir() / name, encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


# Models


@cache
def _model_names() -> tuple[str, ...]:
    return tuple(sorted((path.stem for path in (data_dir() / "models").glob("*.json")), key=str.lower))


@cache
def _model_text(name: str) -> str:
    return (data_dir() / "models" / f"{name}.json").read_text(encoding="utf-8")


@cache
def _hub_ids() -> dict[str, str]:
    return {json.loads(_model_text(name))["_source"]["hf_id"].lower(): name for name in reversed(_model_names())}


def models() -> list[str]:
    """The names in ``data/models``, in alphabetical order."""
    return list(_model_names())


def model_name(name: str) -> str:
    """The catalogue's spelling of a name, whatever its case; a Hub id ("Qwen/Qwen3-8B") will do too.

    Raises ConfigError with the closest names.

    >>> model_name("GPT-OSS-120B"), model_name("qwen/qwen3-8b")
    ('gpt-oss-120b', 'Qwen3-8B')
    >>> model_name("Qwen3-8")
    Traceback (most recent call last):
    kvlib.errors.ConfigError: there is no model 'Qwen3-8' in the catalogue; close names are Qwen3-8B, Qwen3-4B and Qwen3-VL-8B
    """
    wanted = str(name).strip().lower()
    by_lower = {known.lower(): known for known in _model_names()}
    found = by_lower.get(wanted) or ("/" in wanted and _hub_ids().get(wanted))
    if found:
        return found
    near = [by_lower[low] for low in get_close_matches(wanted.rsplit("/", 1)[-1], by_lower, 3, 0.5)]
    remedy = f"close names are {_and(near)}" if near else "catalog.models() lists the names; a config.json will do too"
    raise ConfigError(f"there is no model {str(name)!r} in the catalogue; {remedy}",
                      field="model", found=name, expected=", ".join(near) or None)


def model_config(name: str) -> dict:
    """A model's ``config.json`` fields, with ``_source`` for where they come from. A fresh dict each time.

    Raises ConfigError, as :func:`model_name` does.
    """
    return json.loads(_model_text(model_name(name)))


# GPUs


@cache
def _gpus() -> dict[str, Gpu]:
    return {row["name"]: Gpu(
        name=row["name"], vendor=row["vendor"], arch=row["arch"],
        compute_capability=_capability(row["compute_capability"]), marketing_gb=int(row["marketing_gb"]),
        total_bytes=gib(float(row["reported_gib"])), reported_gib=float(row["reported_gib"]),
        reported_low_gib=float(row["reported_low_gib"]), reported_high_gib=float(row["reported_high_gib"]),
        unified=row["unified"] == "yes", source=f"{row['kind_of_source']}: {row['source']}", remark=row["remark"],
    ) for row in table("gpus.csv") if row["reported_gib"]}


def _capability(text: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def gpus() -> dict[str, Gpu]:
    """Every card with a reported memory, by name, in the order of the file."""
    return dict(_gpus())


def gpu(name: str) -> Gpu:
    """The card of that name; case, order of words and the vendor's prefix do not matter.

    Raises EngineError when no card, or more than one, answers to the name.

    >>> gpu("NVIDIA A100-SXM4-80GB").name, gpu("4090").name
    ('A100 80GB SXM', 'RTX 4090')
    >>> gpu("H100")
    Traceback (most recent call last):
    kvlib.errors.EngineError: gpu 'H100' could be H100 PCIe 80GB, H100 SXM 80GB or H100 NVL 94GB; write one of them
    """
    return name if isinstance(name, Gpu) else _gpu_named(str(name))


@cache
def _gpu_named(name: str) -> Gpu:
    cards, wanted = _gpus(), _words(name)
    found = ([card for card in cards if _words(card) == wanted]
             or [card for card in cards if wanted and set(wanted) <= set(_words(card))]
             or [card for card in cards if wanted and " ".join(wanted) in " ".join(_words(card))])
    if len(found) == 1:
        return cards[found[0]]
    if found:
        near = found[:6]
        message = f"gpu {name!r} could be {_and(near, 'or')}; write one of them"
    elif unreported := [row["name"] for row in table("gpus.csv") if wanted and set(wanted) <= set(_words(row["name"]))]:
        near = []
        message = (f"nobody has reported the memory of a {unreported[0]}; "
                   "give the total that its own driver shows in its place")
    else:
        low = {" ".join(_words(card)): card for card in cards}
        near = [low[key] for key in get_close_matches(" ".join(wanted), low, 3, 0.3)]
        message = f"there is no gpu {name!r} on the list; " + (
            f"close names are {_and(near)}" if near else "catalog.gpus() shows the names")
    raise EngineError(message, flag="gpu", found=name, expected=", ".join(near) or None)


_SAID_BY_DRIVERS = {"nvidia", "geforce", "tesla", "amd", "instinct", "intel", "generation", "server", "workstation",
                    "edition"}


def _words(name: str) -> list[str]:
    """The words of a card's name, as drivers and people spell it, brought to one form."""
    text = re.sub(r"[^a-z0-9]+", " ", str(name).lower())
    text = re.sub(r"\brtx(\d)", r"rtx \1", text)
    text = re.sub(r"\bsxm\d\b|\bhbm3\b", "sxm", re.sub(r"\b(\d+) gb\b", r"\1gb", text))
    return [word for word in text.split() if word not in _SAID_BY_DRIVERS]


# Weights


@lru_cache(maxsize=1024)
def weights(model: str, dtype: str | None = None, tensor_parallel_size: int = 1) -> Weights:
    """The weights of a catalogue model on one GPU: as a launch measured them, else as the parameters imply.

    ``dtype`` is the width the weights are stored in ("bfloat16", "fp8", "mxfp4", …); None is the
    checkpoint's own. A measured figure is what vLLM printed, so good to half of its last digit. A computed
    one is published parameters × width ÷ GPUs: it counts tensors that may not be loaded (MTP layers), and
    with 4 bits it is low, because some layers keep 16. Raises ConfigError for an unknown model or dtype,
    and where neither way gives a figure.

    >>> weights("Qwen3-8B").kind, weights("Qwen3-8B", "fp8").kind
    ('measured', 'computed')
    """
    name = model_name(model)
    config = json.loads(_model_text(name))
    if dtype in (None, "auto"):
        dtype = _own_dtype(config)
    else:
        dtype = _DTYPE_NAMES.get(str(dtype).lower(), str(dtype).lower())
    if dtype not in (*WEIGHT_BYTES, "mixed"):
        raise ConfigError(f"weights of dtype {dtype!r} are not known; use one of {', '.join(WEIGHT_BYTES)}",
                          field="dtype", found=dtype, expected=", ".join(WEIGHT_BYTES))
    seen = _seen(name, dtype, tensor_parallel_size)
    if seen:
        row, spread = seen[0], loaded_gib(name, dtype, tensor_parallel_size)
        others = (f"; {len(seen)} reports from {min(spread):g} to {max(spread):g} GiB"
                  if min(spread) != max(spread) else "")
        return Weights(gib(float(row["loaded_gib"])), "measured",
                       f"{row['model']}, {row['checkpoint_or_dtype']}, vLLM version {row['vllm_version']}: "
                       f"{row['loaded_gib']} GiB printed ({row['source']}){others}")
    source = config["_source"]
    total = source["total_parameters_published"]
    if total is None or dtype == "mixed":
        reason = "no count of its parameters is on file" if total is None else "they are stored in mixed widths"
        raise ConfigError(f"the weights of {name} cannot be computed because {reason}; type what one launch "
                          'prints after "Model loading took"', field="weights_bytes", found=name)
    total -= source.get("stored_not_loaded", 0)
    width = WEIGHT_BYTES[dtype]
    return Weights(cdiv(int(total * width), tensor_parallel_size), "computed",
                   f"{total:,} published parameters × {width:g} B"
                   + (f" ÷ {tensor_parallel_size} GPUs" if tensor_parallel_size > 1 else "")
                   + ("; layers kept in 16 bits would add to it" if width < 1 else "")
                   + ("; MTP layers, loaded only with speculative decoding, are counted in"
                      if "MTP" in source["parameter_count"] else ""))


def _seen(name: str, dtype: str, tensor_parallel_size: int) -> list[dict[str, str]]:
    return [row for row in table("weights_seen.csv")
            if row["catalog_name"] == name and row["tensor_parallel_size"] == str(tensor_parallel_size)
            and row["weight_dtype"] in _same_width(dtype)]


def loaded_gib(model: str, dtype: str | None = None, tensor_parallel_size: int = 1) -> list[float]:
    """What launches printed as loaded on each GPU, in GiB, in the order of the file; empty where there is no report.

    >>> min(loaded_gib("Qwen3-8B")) <= 15.27 <= max(loaded_gib("Qwen3-8B"))
    True
    """
    name = model_name(model)
    dtype = _own_dtype(model_config(name)) if dtype in (None, "auto") else _DTYPE_NAMES.get(str(dtype).lower(), str(dtype).lower())
    return [float(row["loaded_gib"]) for row in _seen(name, dtype, tensor_parallel_size)]


def _own_dtype(config: dict) -> str:
    """What the checkpoint stores its weights in: a key of WEIGHT_BYTES, or "mixed".

    float32 counts as 16 bits, because vLLM loads such a checkpoint so unless told otherwise.
    """
    parts = (config, text_part(config)[0])
    quantization = next((part["quantization_config"] for part in parts if part.get("quantization_config")), {})
    told = json.dumps([quantization, config.get("_hf_quant_config")]).lower()
    if any("expert_dtype" in part for part in parts) or "mixed_precision" in told:
        return "mixed"
    named = re.search(r'"(?:quant_method|quant_algo)": "(fp8|int8|mxfp4|nvfp4)"', told)
    if named:
        return named[1]
    bits = re.search(r'"num_bits": ([48])', told)
    if bits:
        return "int" + bits[1]
    stated = next((part[key] for part in parts for key in ("torch_dtype", "dtype")
                   if isinstance(part.get(key), str)), "bfloat16")
    return "bfloat16" if stated == "float32" else stated


def _same_width(dtype: str) -> tuple[str, ...]:
    return ("bfloat16", "float16") if dtype in ("bfloat16", "float16") else (dtype,)


# The notes


@cache
def _notes() -> dict[str, dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    for path in sorted((data_dir() / "notes").glob("*.csv")):
        for row in table(f"notes/{path.name}"):
            rows[row["id"]] = {"note": path.stem, **row}
    return rows


def note_rows(note: str | None = None) -> list[dict[str, str]]:
    """The notes' figures, tables and controls; of one note ("qwen3-8b-gb10", …) when named.

    Each row is a dict of text: note, id, where, kind, what, printed, unit, exact, remark, lost, notebook, cell.
    """
    return [dict(row) for row in _notes().values() if note is None or row["note"] == note]


def note_row(row_id: str) -> dict[str, str]:
    """The row with that id ("A39"). Raises KeyError when there is none."""
    return dict(_notes()[row_id.upper()])


# Logs


@cache
def _logs() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in table("logs/index.csv")}


def logs() -> list[str]:
    """The names of the logs on file; :func:`log_facts` says what each is."""
    return list(_logs())


def log_facts(name: str) -> dict[str, str]:
    """Origin, vLLM version, model and launch of a log. Raises KeyError when there is none of that name."""
    return dict(_logs()[name.removesuffix(".log")])


def log_text(name: str) -> str:
    """A log as it was printed. Raises KeyError when there is none of that name."""
    return (data_dir() / "logs" / f"{log_facts(name)['name']}.log").read_text(encoding="utf-8")


def _and(names: list[str], word: str = "and") -> str:
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), names[-1])))
