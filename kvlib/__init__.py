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
           "SizingError", "Stage", "UnknownArchitectureError", "bytes_per_token", "explain", "from_layers",
           "load_model", "read_command", "read_log", "size", "size_range"]


def __getattr__(name):
    """What reads logs and commands loads when first used: few readers of the sizes need it."""
    if name == "explain":
        from .explanation import explain as found
    elif name == "read_command":
        from .command import read_command as found
    elif name == "read_log":
        from .vllm_log import read_log as found
    else:
        raise AttributeError(f"module 'kvlib' has no attribute {name!r}")
    globals()[name] = found
    return found
