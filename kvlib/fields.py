"""The fields of a ``config.json``, each checked as it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import ConfigError

MAX_LAYERS = 2_000
MISSING = object()

# Published files leave out of text_config what equals the default of its transformers class (5.19).
# A flat config that lacks a size is incomplete; only the window's default counts there too.
CLASS_DEFAULTS = {
    "llama": dict(hidden_size=4096, intermediate_size=11008, vocab_size=32000, num_hidden_layers=32, num_attention_heads=32,
                  max_position_embeddings=2048),
    "mistral": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                    sliding_window=4096, max_position_embeddings=131072),
    "gemma2": dict(num_hidden_layers=26, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
                   hidden_size=2304, sliding_window=4096, max_position_embeddings=8192),
    "gemma3_text": dict(num_hidden_layers=26, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
                        hidden_size=2304, sliding_window=4096, max_position_embeddings=131072),
    **dict.fromkeys(("cohere2", "ministral", "olmo3", "exaone4", "exaone_moe"), dict(sliding_window=4096)),
    "gpt_oss": dict(sliding_window=128),
}
OLDER_NAMES = {
    "hidden_size": ("n_embd", "n_embed", "d_model"), "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
}
TEXT_PARTS = ("thinker_config", "text_config", "llm_config", "language_config")


def text_part(config: Mapping, name: str = "the config") -> tuple[Mapping, str]:
    """The part of a config that describes the language model, and the path to it ("" where the config is flat).

    >>> text_part({"thinker_config": {"text_config": {"num_hidden_layers": 48}}})
    ({'num_hidden_layers': 48}, 'thinker_config.text_config.')
    """
    path = ""
    while True:
        key = next((key for key in TEXT_PARTS if config.get(key)), None)
        if key is None or path.count(".") == len(TEXT_PARTS):
            return config, path
        config, path = config[key], f"{path}{key}."
        if not isinstance(config, Mapping):
            raise ConfigError(f"{name}: {path[:-1]} is {short(config)}; it must be an object", field=path[:-1],
                              found=config, expected="an object")


class Fields:
    """The fields of one config, nested ones first, each checked as it is read.

    ``get`` returns the raw value (None where absent or null); ``integer``, ``text`` … raise ConfigError with the
    field's name, what was found and what was expected.
    """

    def __init__(self, config: Mapping, name: str):
        self.top, self.name = config, name
        self.inner, self.prefix = text_part(config, name)
        self.nested = bool(self.prefix)
        self.levels = [config]
        for key in self.prefix.split(".")[:-1]:
            self.levels.insert(0, self.levels[0][key])
        self.notes: list[str] = []
        defaults = CLASS_DEFAULTS.get(self.raw_type(), {})
        self.defaults = defaults if self.nested else {key: defaults[key] for key in ("sliding_window",) if key in defaults}

    def raw_type(self) -> str:
        value = self.inner.get("model_type", self.top.get("model_type"))
        if value is not None and not isinstance(value, str):
            raise self.wrong("model_type", f"is {short(value)}; it must be a text in quotes", value, "a text")
        return plain_text(value or "")

    def get(self, key: str, default: Any = None) -> Any:
        value = self.inner.get(self.spelled(key))
        return default if value is None else value

    def spelled(self, key: str) -> str:
        """The name under which the config says ``key``: its own, or an older one."""
        if key in OLDER_NAMES and self.inner.get(key) is None:
            return next((older for older in OLDER_NAMES[key] if self.inner.get(older) is not None), key)
        return key

    def path(self, key: str) -> str:
        """The full path of ``key`` as the config spells it."""
        return self.prefix + self.spelled(key)

    def wrong(self, key: str, sentence: str, found: Any = None, expected: str | None = None) -> ConfigError:
        """The error to raise about ``key``; ``sentence`` goes on after the field's full path."""
        return ConfigError(f"{self.name}: {self.path(key)} {sentence}", field=self.path(key), found=found, expected=expected)

    def given(self, key: str) -> bool:
        """True where the config says ``key``, or its class has a default for it."""
        return self.get(key) is not None or (key in self.defaults and key not in self.inner)

    def anywhere(self, key: str) -> Any:
        """The innermost value (dtype and quantization may stand inside or outside)."""
        return next((level[key] for level in self.levels if level.get(key) is not None), None)

    def integer(self, key: str, default: Any = MISSING, *, low: int = 1, high: int = 1 << 40) -> Any:
        """A whole number within [low, high]. Without a default, an absent field is an error."""
        value = self.get(key)
        if key in self.defaults and key not in self.inner:
            value = self.defaults[key]
            self.note(f"{self.prefix}{key} is absent: {value:,}, the default of model_type {self.raw_type()}")
        if value is None:
            if default is MISSING:
                raise ConfigError(f"{self.name}: the config has no {self.prefix}{key}; "
                                  f"add it as a whole number of at least {low}", field=self.prefix + key,
                                  found=None, expected=f"a whole number of at least {low}")
            return default
        for older in OLDER_NAMES.get(key, ()):
            if older != "num_layers" and self.inner.get(older) not in (None, value):
                raise self.wrong(key, f"is {short(value)} and {older} {short(self.inner[older])}; they mean the same, so take "
                                      "out the wrong one", value, "one value")
        return self.whole(key, value, low=low, high=high)

    def whole(self, key: str, value: Any, *, low: int = 1, high: int = 1 << 40) -> int:
        """``value`` if it is a whole number within [low, high], else a ConfigError naming ``key``."""
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            found = "is absent" if value is None else f"is {short(value)}"
            expected = f"a whole number from {low:,} to {high:,}"
            raise self.wrong(key, f"{found}; it must be {expected}", value, expected)
        return value

    def flag(self, key: str) -> bool | None:
        """True or false, None where the field is absent or null; a word in quotes is an error, not a guess."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, f"is {short(value)}; it must be true or false, without quotes", value, "true or false")
        return value

    def mapping(self, key: str) -> Mapping:
        """An object, {} where the field is absent or null."""
        value = self.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(key, f"is {short(value)}; it must be an object", value, "an object")
        return value or {}

    def list_of(self, key: str, length: int | None = None) -> list | None:
        """A list (of ``length`` entries, where given), or None where the field is absent or null."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(key, f"is {short(value)}; it must be a list", value, "a list")
        if length is not None and len(value) != length:
            raise self.wrong(key, f"has {len(value)} entries for {length} layers; it must have one for each layer",
                             len(value), f"{length} entries")
        return value

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def plain_text(value: str) -> str:
    """``value`` as one line that every terminal and page can show."""
    return " ".join(value.encode("utf-8", "replace").decode().split())[:120]
