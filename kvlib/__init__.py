"""How big is a vLLM server's KV cache? config.json + flags + memory in, the figures vLLM prints out.

>>> import kvlib
>>> model = kvlib.load_model("Qwen3-8B")
>>> kvlib.bytes_per_token(model)
147456
"""

from .capacity import Refusal, Sizing, Stage, bytes_per_token, size, size_range
from .engine import Engine
from .errors import ConfigError, EngineError, SizingError, UnknownArchitectureError
from .memory import Band, MemoryBudget
from .config import load_model
from .model import Model, from_layers

__all__ = ["Band", "ConfigError", "Engine", "EngineError", "MemoryBudget", "Model", "Refusal", "Sizing",
           "SizingError", "Stage", "UnknownArchitectureError", "bytes_per_token", "from_layers", "load_model",
           "size", "size_range"]
