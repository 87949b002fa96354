"""The capstone: choose flags for a load, and let the memory checks judge them."""

from __future__ import annotations

from kvlib.errors import SizingError
from kvlib.exercise import Verdict
from kvlib.fit import fit
from kvlib.workshop.entry import entry

MODEL, CARD = "Llama-3.1-8B", "RTX 4090"
LONGEST, CHATS, CHAT = 32_000, 20, 2_000   # tokens of a document, chats at once, tokens of one


def _judge(flags: str) -> Verdict:
    """Right if the flags pass at the least cache of the range, take the document and hold the chats."""
    if not flags.strip().startswith(("-", "vllm")):
        return _no(f"{flags.strip()[:40]!r} is not a flag; write them as after vllm serve, such as \"--max-model-len 4096\"")
    try:
        found = fit(MODEL, flags if flags.strip().startswith("vllm") else f"vllm serve {MODEL} {flags}", gpu=CARD)
        engine = found.engine
        if engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.data_parallel_size > 1:
            return _no("there is one card")
        if "quantization" in found.other.given:
            return _no("that stores the weights narrower, and they stay in 16 bits tonight; what else takes memory for each token?")
        if engine.num_gpu_blocks_override or engine.kv_cache_memory_bytes:
            return _no("a typed size does not make room: whether weights and reserve fit beside it is no longer checked")
        if engine.max_model_len is None:
            return _no("nothing limits the longest request, so the model's own 131,072 tokens are asked for")
        if engine.max_model_len == -1:
            return _no("with -1 vLLM takes what passes; will a document of 32,000 tokens still be let in?")
        if engine.max_model_len < LONGEST:
            return _no(f"a document of {LONGEST:,} tokens would be turned away")
        if found.verdict.word != "passes":
            return _no(f"{found.verdict.phrase} for a request of {engine.max_model_len:,} tokens. {_way(found)}")
        held = found.requests_of(CHAT)[0]
        if held < CHATS:
            return _no(f"it passes, and at the least {int(held)} chats fit, of {CHATS}. {_way(found)}")
        if (engine.max_num_seqs or CHATS) < CHATS:
            return _no("the cache would do, but the scheduler lets fewer run at once")
    except SizingError as problem:
        return _no(str(problem).rstrip("."))
    lossy = " Say that FP8 rounds keys and values, and that quality has to be checked." if engine.kv_cache_dtype.startswith("fp8") else ""
    return Verdict("right", f"Right: it passes at the least cache thought possible, and {int(held)} chats fit at once.{lossy}")


def _way(found) -> str:
    if found.engine.kv_cache_dtype == "auto" and found.engine.max_model_len > 2 * LONGEST:
        return "The longest request may come down, and a token may become cheaper"
    if found.engine.kv_cache_dtype == "auto":
        return "A token may become cheaper"
    return "The token is cheap enough; what does the longest request still ask for?"


def _no(text: str) -> Verdict:
    return Verdict("wrong", f"Not yet: {text}" + ("" if text.endswith("?") else "."))


EXERCISES = (
    entry("capstone", "One card, one evening", "choose the flags", "hard", 10,
          "the longest request and the everyday load are thought to be one figure; the middle of a range is planned with",
          ("Two different things are asked: one document must be let in, and twenty chats must fit. Which flag is about which?",
           "Limit the longest request to what is needed; then look for the flag that makes every token cheaper."),
          ninety=True, expected="", judge=_judge),
)
