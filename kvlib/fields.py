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
    "llama": dict(hidden_size=4096, intermediate_size=11008, vocab_size=32000, num_hidden_layers=32, num_attention_heads=32, max_position_embeddings=2048),
    "mistral": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                    sliding_window=4096, max_position_embeddings=131072),
    "gemma2": dict(num_hidden_layers=26, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
                   hidden_size=2304, sliding_window=4096, max_position_embeddings=8192),
    "gemma3_text": dict(num_hidden_layers=26, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
                        hidden_size=2304, sliding_window=4096, max_position_embeddings=131072),
    "cohere2": dict(sliding_window=4096),
    "ministral": dict(sliding_window=4096),
}


class Fields:
    """The fields of one config, nested ones first, each checked as it is read.

    ``get`` returns the raw value (None where absent or null); ``integer``, ``text`` … raise ConfigError with the
    field's name, what was found and what was expected.
    """

    def __init__(self, config: Mapping, name: str):
        self.top, self.name = config, name
        inner = config.get("text_config") or config.get("llm_config") or config.get("language_config")
        if inner is not None and not isinstance(inner, Mapping):
            raise ConfigError(f"{name}: text_config is {short(inner)}; it must be an object", field="text_config",
                              found=inner, expected="an object")
        self.nested = inner is not None
        self.inner: Mapping = inner if inner is not None else config
        self.prefix = "text_config." if self.nested else ""
        self.notes: list[str] = []
        defaults = CLASS_DEFAULTS.get(self.raw_type(), {})
        self.defaults = defaults if self.nested else {key: defaults[key] for key in ("sliding_window",) if key in defaults}

    def raw_type(self) -> str:
        value = self.inner.get("model_type", self.top.get("model_type"))
        return value if isinstance(value, str) else ""

    def get(self, key: str, default: Any = None) -> Any:
        value = self.inner.get(key)
        return default if value is None else value

    def given(self, key: str) -> bool:
        """True where the config says ``key``, or its class has a default for it."""
        return self.get(key) is not None or (key in self.defaults and key not in self.inner)

    def anywhere(self, key: str) -> Any:
        """The nested value, else the outer one (dtype and quantization may stand in either)."""
        value = self.inner.get(key)
        return self.top.get(key) if value is None else value

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
        return self.whole(key, value, low=low, high=high)

    def whole(self, key: str, value: Any, *, low: int = 1, high: int = 1 << 40) -> int:
        """``value`` if it is a whole number within [low, high], else a ConfigError naming ``key``."""
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ConfigError(f"{self.name}: {self.prefix}{key} is {short(value)}; "
                              f"it must be a whole number from {low:,} to {high:,}",
                              field=self.prefix + key, found=value, expected=f"a whole number from {low:,} to {high:,}")
        return value

    def list_of(self, key: str, length: int | None = None) -> list | None:
        """A list (of ``length`` entries, where given), or None where the field is absent or null."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise ConfigError(f"{self.name}: {self.prefix}{key} is {short(value)}; it must be a list",
                              field=self.prefix + key, found=value, expected="a list")
        if length is not None and len(value) != length:
            raise ConfigError(f"{self.name}: {self.prefix}{key} has {len(value)} entries for {length} layers; "
                              "it must have one for each layer", field=self.prefix + key, found=len(value),
                              expected=f"{length} entries")
        return value

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
