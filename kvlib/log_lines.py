"""The start-up lines about the cache, worded as the version in question prints them."""

from __future__ import annotations

from .units import gib_text


def log_lines(sizing) -> tuple[str, ...]:
    """What vLLM would print about the cache, in its order; a refused launch ends in its error."""
    lines = [*_alignment(sizing), f"Available KV cache memory: {gib_text(sizing.available_bytes)} GiB"]
    if sizing.outcome == "free_memory":
        return (_free_memory(sizing),)
    if sizing.outcome == "weights_do_not_fit":
        return ("torch.OutOfMemoryError: CUDA out of memory.",)
    if sizing.engine.max_model_len == -1 and not sizing.fits and not sizing.estimated_max_model_len:
        return (*lines, "ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single "
                        "token.")
    if sizing.outcome == "no_cache_memory":
        return (*lines, "ValueError: No available memory for the cache blocks.")
    lines.extend(_auto_fit(sizing))
    if sizing.outcome == "max_model_len":
        return (*lines, _too_long(sizing))
    lines.extend(_capacity(sizing))
    if sizing.outcome == "max_num_seqs":
        seqs, blocks = sizing.plan.setup.max_num_seqs, sizing.num_gpu_blocks
        lines.append(f"ValueError: max_num_seqs ({seqs}) exceeds available Mamba cache blocks ({blocks}).")
    return tuple(lines)


def _alignment(sizing) -> list[str]:
    plan = sizing.plan
    if not plan.model.has_state or plan.setup.backend is None:
        return []
    lines = []
    if plan.block_size_tokens != (plan.engine.block_size or plan.setup.backend.default_block):
        lines.append(f"Setting attention block size to {plan.block_size_tokens} tokens to ensure that attention page "
                     "size is >= mamba page size.")
    padding = state_padding_percent(sizing)
    if padding:
        lines.append(f"Padding mamba page size by {padding:.2f}% to ensure that mamba page size and attention page "
                     "size are exactly equal.")
    return lines


def state_padding_percent(sizing) -> float | None:
    """How much larger than its state a state's page is, in percent; None without states.

    >>> from kvlib import Engine, load_model, size
    >>> s = size(load_model("Qwen3.8-27B"), Engine(tensor_parallel_size=2, kv_cache_dtype="fp8"),
    ...          available_bytes=1 << 35)
    >>> f"{state_padding_percent(s):.2f}"
    '0.13'
    """
    states = [spec for group in sizing.groups for spec, _ in group.specs if spec.state_blocks]
    if not states:
        return None
    largest = max(states, key=lambda spec: spec.unpadded_bytes)
    return 100 * (largest.page_size_bytes - largest.unpadded_bytes) / largest.unpadded_bytes


def _auto_fit(sizing) -> list[str]:
    if sizing.engine.max_model_len != -1 or not sizing.estimated_max_model_len:
        return []
    longest, new = sizing.plan.setup.max_model_len, sizing.max_model_len
    device = "GPU" if sizing.engine.device == "cuda" else sizing.engine.device.upper()
    held = sizing.plan.held_back_blocks
    room = gib_text(min(stage.available_bytes - held * stage.bytes_per_block for stage in sizing.stages))
    named = sizing.engine.version.number >= (0, 31, 0)
    where = f"available KV cache memory ({room} GiB {device})" if named else \
        "available GPU memory" + (f" ({room} GiB available for KV cache)" if new < longest else "")
    change = f"reduced from {longest} to {new} to fit" if new < longest else \
        f"full model context length {longest} fits"
    return [f"Auto-fit max_model_len: {change} in {where}"]


def _too_long(sizing) -> str:
    refusal = sizing.refusal
    estimate = (f" Based on the available memory, the estimated maximum model length is "
                f"{refusal.estimated_max_model_len}." if refusal.estimated_max_model_len else "")
    return (f"ValueError: To serve at least one request with the model's max seq len ({sizing.max_model_len}), "
            f"({refusal.needed_gib} GiB KV cache is needed, which is larger than the available KV cache memory "
            f"({refusal.available_gib} GiB).{estimate}")


def _free_memory(sizing) -> str:
    memory, refusal = sizing.memory.pick("typical"), sizing.refusal
    return (f"ValueError: Free memory on device cuda:0 ({refusal.available_gib}/{gib_text(memory.total_bytes)} GiB) on startup "
            f"is less than desired GPU memory utilization ({sizing.plan.setup.gpu_memory_utilization}, "
            f"{refusal.needed_gib} GiB).")


def _capacity(sizing) -> list[str]:
    device = "GPU" if sizing.engine.device == "cuda" or not sizing.engine.version.has("device_word") else \
        sizing.engine.device.upper()
    size = f"{device} KV cache size: {sizing.kv_cache_tokens:,} tokens"
    concurrency = (f"Maximum concurrency for {sizing.max_model_len:,} tokens per request: "
                   f"{sizing.max_concurrency:.2f}x")
    return [f"{size}, {concurrency}"] if sizing.engine.version.has("one_line") else [size, concurrency]
