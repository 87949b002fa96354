"""From a ``config.json`` to a :class:`kvlib.model.Model`: find the file, check its fields, read what is common.

Which layer keeps what is decided in :mod:`kvlib.families`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import families
from .errors import ConfigError
from .fields import OLDER_NAMES, TEXT_PARTS, Fields, plain_text, short
from .model import Model

MAX_FILE_BYTES = 8 << 20

def load_model(source: str | os.PathLike | Mapping) -> Model:
    """Read a model.

    Parameters
    ----------
    source : a name in ``data/models``, a path to a ``config.json`` or to its folder, the config as a dict, or
        as JSON text.

    Raises
    ------
    ConfigError : the config is missing, broken or incomplete (``field``, ``found``, ``expected``).
    UnknownArchitectureError : it is fine, but its cache is not one whose size is known here.

    Examples
    --------
    >>> load_model("Qwen3-8B")
    Model('Qwen3-8B': 36 layers, 36 full)
    """
    return read_model(*read_source(source))


def read_source(source: Any) -> tuple[Mapping, str]:
    """The config and a name for it, from any of the forms that :func:`kvlib.load_model` takes."""
    if isinstance(source, Model):
        return source.config, source.name
    if isinstance(source, Mapping):
        return source, _name_of(source)
    if isinstance(source, (bytes, bytearray)):
        return _from_bytes(bytes(source), "the pasted config")
    if not isinstance(source, (str, os.PathLike)):
        raise ConfigError(f"a model is given as a name, a path, a dict or JSON text, not as {type(source).__name__}",
                          found=source, expected="a name, a path, a dict or JSON text")
    text = os.fspath(source)
    if isinstance(source, str) and text.lstrip()[:1] in ("{", "["):
        return _from_bytes(text.encode(errors="replace"), "the pasted config")
    if isinstance(source, str) and (len(text) > 1024 or "\n" in text or not text.strip()):
        raise ConfigError("the text given is neither a model's name, nor a path, nor a JSON object; "
                          "paste the whole config.json, from its first { to its last }",
                          found=short(text), expected="a JSON object")
    try:
        path = Path(text).expanduser()
        is_path = path.exists()
    except (OSError, ValueError, RuntimeError):
        is_path = False
    if is_path:
        return _from_path(path)
    if isinstance(source, os.PathLike) or text.endswith(".json") or text.startswith((".", "~", os.sep)):
        raise ConfigError(f"there is no file or folder {text}", field=text, found=None, expected="a config.json")
    from . import catalog  # csv and the GPU list are not needed before a name is asked for

    config = catalog.model_config(text)
    return config, next((name for name in catalog.models() if name.lower() == text.lower()), text)


def _from_path(path: Path) -> tuple[Mapping, str]:
    folder = path if path.is_dir() else path.parent
    file = path / "config.json" if path.is_dir() else path
    if not file.exists():
        raise ConfigError(f"the folder {path.name or path} has no config.json", field=str(path), found=None,
                          expected="a folder with a config.json")
    if not file.is_file():
        raise ConfigError(f"{file.name} is not a file; give a config.json", field=str(file), found=None,
                          expected="a config.json")
    try:
        with file.open("rb") as opened:
            raw = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file.name} cannot be read ({error.strerror}); give a config.json that this account may read",
                          field=file.name) from None
    config, name = _from_bytes(raw, file.name)
    beside = folder / "hf_quant_config.json"
    if "_hf_quant_config" not in config and beside.is_file() and file.name == "config.json":
        try:
            if beside.stat().st_size <= MAX_FILE_BYTES:
                config = {**config, "_hf_quant_config": json.loads(beside.read_bytes())}
        except (OSError, ValueError, RecursionError):
            pass
    if name == config.get("model_type") or name == "the config":
        name = folder.name if file.name == "config.json" else file.stem
    return config, name


def _from_bytes(raw: bytes, where: str) -> tuple[Mapping, str]:
    if raw[:4] == b"GGUF":
        raise ConfigError(f"{where} is a GGUF file; give the config.json of the model it was made from", field=where,
                          found="GGUF", expected="a config.json")
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"{where} is larger than {MAX_FILE_BYTES >> 20} MiB; a config.json is a few KiB: give the model's own",
                          field=where, expected="a file under 8 MiB")
    notes: list[str] = []

    def refuse(constant):
        raise ConfigError(f"{where} holds {constant}, which is not a number JSON allows", field=where, found=constant)

    def once(pairs):
        entries = dict(pairs)
        if len(entries) < len(pairs):
            names = [name for name, _ in pairs]
            for name in [name for name in entries if names.count(name) > 1][:8]:
                notes.append(f"{plain_text(name)} stands twice in the file; the last, {short(entries[name])}, counts, as for vLLM")
        return entries

    try:
        config = json.loads(_text(raw, where, notes), parse_constant=refuse, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        cut = " (the text ends too early: is it whole?)" if error.pos >= len(error.doc.rstrip()) - 1 or "Unterminated" in error.msg \
            else ""
        raise ConfigError(f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}{cut}; "
                          "give the file as it was published",
                          field=where, found=f"line {error.lineno}", expected="valid JSON") from None
    except RecursionError:
        raise ConfigError(f"{where} is nested too deeply for a config.json", field=where) from None
    except ConfigError:
        raise
    except ValueError:
        raise ConfigError(f"{where} holds a number too long to read", field=where) from None
    if not isinstance(config, dict):
        raise ConfigError(f"{where} is a JSON {type(config).__name__}; a config.json is an object in braces",
                          field=where, found=type(config).__name__, expected="an object")
    if notes:
        config["_notes"] = notes
    return config, _name_of(config)


def _text(raw: bytes, where: str, notes: list[str]) -> str:
    """The file's text: UTF-8, or UTF-16 as some Windows programs write it."""
    encoding = json.detect_encoding(raw)
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        text = "\0"
    if not encoding.startswith("utf-8") and text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        notes.append(f"the file is {encoding[:6].upper()} text; vLLM reads UTF-8 only, so save it as that before serving")
        return text
    if b"\0" in raw[:4096]:
        raise ConfigError(f"{where} is a binary file; give the model's config.json", field=where, found="binary",
                          expected="a config.json")
    if text == "\0":
        raise ConfigError(f"{where} is not UTF-8 text; give the model's config.json", field=where)
    return text


def _name_of(config: Mapping) -> str:
    source = config.get("_source")
    for value in (source.get("hf_id") if isinstance(source, Mapping) else None, config.get("_name_or_path"),
                  config.get("model_type")):
        if isinstance(value, str) and value.strip():
            return plain_text(value)
    return "the config"


def read_model(config: Mapping, name: str) -> Model:
    """Check ``config`` and make a :class:`Model` of it. Raises ConfigError or UnknownArchitectureError."""
    if not isinstance(config, Mapping) or not config:
        raise ConfigError("the config is empty; give the model's whole config.json", found=config,
                          expected="a config.json")
    _not_another_file(config, name)
    fields = Fields(config, name)
    for sentence in config["_notes"] if isinstance(config.get("_notes"), list) else ():
        fields.note(str(sentence))
    architecture = _architecture(fields)
    model_type = fields.raw_type()
    families.refuse_uncovered(fields, architecture, model_type)
    layers, draft_layers = families.read_layers(fields, model_type, architecture)
    longest, before_030 = _max_length(fields, model_type)
    return Model(
        name=name, model_type=model_type, architecture=architecture, layers=layers, draft_layers=draft_layers,
        dtype=_dtype(fields), max_position_embeddings=longest, yarn_max_model_len=before_030,
        default_max_model_len=_long_rope_length(fields),
        num_attention_heads=fields.integer("num_attention_heads", 0, low=0),
        hidden_size=fields.integer("hidden_size", None), vocab_size=_vocab_size(fields),
        kv_cache_dtype=_checkpoint_kv_dtype(fields), mamba_ssm_dtype=_ssm_dtype(fields, model_type),
        head_dim_source=families.head_dim_source(fields), notes=tuple(fields.notes), config=config)


_OTHER_FILES = (  # keys that only such a file has, and what it is
    (("weight_map",), "a checkpoint's index"),
    (("tokenizer_class",), "a tokenizer's config (tokenizer_config.json)"),
    (("added_tokens", "model"), "a tokenizer (tokenizer.json)"),
    (("image_processor_type",), "an image preprocessor's config (preprocessor_config.json)"),
    (("feature_extractor_type",), "a preprocessor's config (preprocessor_config.json)"),
    (("processor_class",), "a preprocessor's config (preprocessor_config.json)"),
    (("producer", "quantization"), "a quantization config (hf_quant_config.json)"),
    (("dim", "n_layers"), "a params.json in Mistral's own form"),
    (("eos_token_id",), "a generation config (generation_config.json)"),
    (("temperature",), "a generation config (generation_config.json)"),
)
_LAYER_COUNTS = ("num_hidden_layers", *OLDER_NAMES["num_hidden_layers"])


def _not_another_file(config: Mapping, name: str) -> None:
    """The files people drop by mistake, each named for what it is."""
    if "peft_type" in config:
        base = plain_text(str(config.get("base_model_name_or_path") or "the base model"))
        raise ConfigError(f"{name}: this is the config of a PEFT adapter; give the config.json of {base}",
                          field="peft_type", found=config["peft_type"], expected="a model's config.json")
    nested = any(config.get(part) for part in TEXT_PARTS)
    if not nested and "model_type" not in config:
        for keys, what in _OTHER_FILES:
            if all(key in config for key in keys) and (keys[0] == "dim" or not any(key in config for key in _LAYER_COUNTS)):
                raise ConfigError(f"{name}: this is {what}; give the model's config.json, which stands beside it", field=keys[0],
                                  found=config[keys[0]], expected="a model's config.json")
        if not any(key in config for key in (*_LAYER_COUNTS, "architectures")):
            raise ConfigError(f"{name}: this is not a model's config.json: it has neither model_type nor num_hidden_layers",
                              field="model_type", found=None, expected="a model's config.json")
    model_type = plain_text(str(config.get("model_type") or ""))
    if not nested and "vocab_size" not in config and ("vision" in model_type or "image_size" in config
                                                      and "num_key_value_heads" not in config):
        raise ConfigError(f"{name}: this is the config of a vision encoder ({model_type or 'no model_type'}), which "
                          "keeps no KV cache; give the language model's config.json", field="model_type",
                          found=model_type, expected="a language model")


def _architecture(fields: Fields) -> str | None:
    """The first of ``architectures``, the outer ones before the nested."""
    value = fields.top.get("architectures") or fields.get("architectures")
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    if first and not isinstance(first, str):
        raise ConfigError(f"{fields.name}: architectures is {short(value)}; it must be a list of names", field="architectures",
                          found=value, expected="a list of names")
    return plain_text(first) if first else None


def _vocab_size(fields: Fields) -> int | None:
    value = fields.anywhere("vocab_size")
    return None if value is None else fields.whole("vocab_size", value, low=0)


def _dtype(fields: Fields) -> str:
    value = fields.anywhere("torch_dtype") or fields.anywhere("dtype")
    if value is None:
        fields.note("dtype is absent: taken as bfloat16, as vLLM does on a current card")
        return "bfloat16"
    text = str(value).removeprefix("torch.")
    if text not in ("bfloat16", "float16", "float32"):
        raise ConfigError(f"{fields.name}: torch_dtype is {short(value)}; it must be bfloat16, float16 or float32",
                          field="torch_dtype", found=value, expected="bfloat16, float16 or float32")
    if text == "float32":
        fields.note("the config says float32; vLLM serves it in a 16-bit type unless --dtype float32 is given")
        return "bfloat16"
    return text


_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
                "max_target_positions", "max_sequence_length", "max_seq_length", "seq_len")
_UNSCALED_ROPE = (None, "default", "su", "longrope", "llama3", "proportional")
_YARN = ("yarn", "deepseek_yarn", "deepseek_llama_scaling")
NO_LENGTH = 2048


def _max_length(fields: Fields, model_type: str) -> tuple[int, int | None]:
    """The longest request in tokens, and what vLLM before 0.30 made of a YaRN config (None: the same).

    The smallest length key counts, ``model_max_length`` before all, stretched by the RoPE scaling's factor where
    vLLM stretches it: linear and dynamic scaling always, YaRN only before 0.30.
    """
    found = [fields.integer(key) for key in _LENGTH_KEYS if fields.given(key)]
    if not found:
        fields.note(f"no length key: vLLM takes {NO_LENGTH:,} tokens unless max_model_len is given")
    length = min(found, default=NO_LENGTH)
    older = None
    rope = _rope(fields)
    if rope and "gemma3" not in model_type:
        for part in [part for part in rope.values() if isinstance(part, Mapping)] or [rope]:
            kind, factor = part.get("rope_type") or part.get("type"), part.get("factor")
            if isinstance(factor, (str, bool, list, Mapping)):
                raise fields.wrong("rope_scaling", f"has the factor {short(factor)}; it must be a number", factor, "a number")
            usable = isinstance(factor, (int, float)) and not isinstance(factor, bool) and 1 <= factor <= 10_000
            if kind in _UNSCALED_ROPE or not usable:
                continue
            base = part.get("original_max_position_embeddings")
            if kind in _YARN:
                older = int(base * factor) if isinstance(base, int) and not isinstance(base, bool) and 0 < base <= 1 << 40 \
                    else None
            else:
                length = int(length * factor)
    named = fields.integer("model_max_length", None)
    return named or length, None if named or older == length else older


def _rope(fields: Fields) -> Mapping:
    return fields.mapping("rope_scaling") or fields.mapping("rope_parameters")


def _long_rope_length(fields: Fields) -> int | None:
    """LongRoPE: without --max-model-len, vLLM serves the length from before the stretching."""
    rope = _rope(fields)
    if {"longrope", "su"} & {str(rope.get("rope_type")), str(rope.get("type"))}:
        return fields.integer("original_max_position_embeddings", None)
    return None


def _checkpoint_kv_dtype(fields: Fields) -> str | None:
    """The cache type a checkpoint declares, which "auto" then takes: ModelOpt's, or any compressed-tensors scheme."""
    fields.mapping("quantization_config")
    outer = fields.top.get("quantization_config")
    if not isinstance(outer, Mapping):
        outer = fields.top.get("_hf_quant_config")
        outer = {"quant_method": "modelopt", **outer} if isinstance(outer, Mapping) else {}
    inner = outer.get("quantization")
    inner = inner if isinstance(inner, Mapping) else outer
    if str(outer.get("quant_method", "")).startswith("modelopt"):
        said = next((place[key] for key in ("kv_cache_scheme", "kv_cache_quant_algo") for place in (inner, outer)
                     if place.get(key) is not None), None)
        if isinstance(said, Mapping):
            if said.get("type") != "float" or said.get("dynamic") is not False:
                return None
            return {"8": "fp8_e4m3", "4": "nvfp4"}.get(str(said.get("num_bits")))
        return {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}.get(str(said).lower())
    anywhere = fields.anywhere("quantization_config")
    if isinstance(anywhere, Mapping) and anywhere.get("quant_method") == "compressed-tensors" and \
            anywhere.get("kv_cache_scheme") is not None:
        return "fp8"
    return None


def _ssm_dtype(fields: Fields, model_type: str) -> str | None:
    for key in ("mamba_ssm_dtype", "mamba_ssm_cache_dtype"):
        value = fields.get(key)
        if value is not None:
            if value not in ("float32", "bfloat16", "float16"):
                raise ConfigError(f"{fields.name}: {key} is {short(value)}; it must be float32, bfloat16 or float16",
                                  field=key, found=value, expected="float32, bfloat16 or float16")
            return value
    return "float32" if model_type == "nemotron_h" else None
