"""Mutated logs by the thousand: ``python tests/fuzz_log.py [INPUTS] [SEED]``. None may crash or take long.

Prints how many were tried, and the longest time of one. The suite runs a small share of it.
"""
from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from kvlib import explain, read_log
from kvlib.errors import SizingError
from kvlib.log_choices import choices
from kvlib.log_diff import diff

LOGS = Path(__file__).resolve().parent.parent / "data" / "logs"
MODELS = [LOGS / "tiny" / "qwen3.json", LOGS / "tiny" / "nemotronh.json", LOGS / "tiny" / "gptoss.json", "Qwen3-8B", None]
SPICE = ["\x00", "\x1b[", "\x1b[1;36m", "9" * 400, "-", ",", ".", "{", "}", "'", '"', "<script>alert(1)</script>", "\\n", "\r", "\u2028", "█▄",
         " GiB", "(Worker_TP1 pid=9)", "EngineCore_DP1", "0", "1e400", "٣", "NaN", "max_model_len", "'tensor_parallel_size': 3,",
         "'kv_cache_dtype': 'fp8',", "'block_size': 7,", "v0.6.1", "v9.9", "# GPU blocks: 0, # CPU", "tokens per request: 0.00x"]


def seeds() -> list[str]:
    """The logs that are mutated: whole real ones, the notes' own, every wording of a refusal."""
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(LOGS.rglob("*.log"))]
    texts.append("ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (184). Each\nmax seq len (4096) is larger than the "
                 "maximum number of tokens that can be stored in KV cache (31232).\nFree memory on device (1.0/2.0 GiB) on startup is less "
                 "than desired GPU memory utilization (0.9, 1.8 GiB).\nNo available memory for the cache blocks.")
    return texts


def mutated(text: str, rng: random.Random) -> str:
    """The text with one to thirty changes: characters, lines, spices, cuts, figures."""
    for _ in range(rng.choice([1, 2, 4, 8, 30])):
        at = rng.randrange(len(text) + 1)
        way = rng.randrange(7)
        if way == 0:
            text = text[:at] + rng.choice(SPICE) + text[at:]
        elif way == 1:
            text = text[:at] + text[at + rng.randrange(1, 60):]
        elif way == 2:
            text = text[:at] + chr(rng.choice([rng.randrange(32, 127), rng.randrange(0x10FFFF)])) + text[at + 1:]
        elif way == 3:
            lines = text.splitlines(True) or [""]
            rng.shuffle(lines)
            text = "".join(lines)
        elif way == 4:
            text = text[:at] + "\n" + text[at:]
        elif way == 5:
            digits = [i for i, char in enumerate(text) if char.isdigit()]
            for i in rng.sample(digits, min(len(digits), 5)):
                text = text[:i] + rng.choice("0123456789") + text[i + 1:]
        else:
            text = text + text[at:at + 4_000]
    return text[:400_000]


def one(text: str, model) -> str:
    """What a reader does with a log; only SizingError may come out of a model that does not suit."""
    log = read_log(text)
    x = explain(log, model=model)
    choices(x)
    if len(log.launches) > 1:
        diff(log.launches[0], log.last)
    return x.verdict


def run(inputs: int, seed: int = 0) -> tuple[int, float, str]:
    """(inputs tried, longest seconds, verdicts); raises what a mutated log raised, with the log in ``fuzz_found``."""
    rng, texts, longest, verdicts = random.Random(seed), seeds(), 0.0, {}
    for _ in range(inputs):
        text, model = mutated(rng.choice(texts), rng), rng.choice(MODELS)
        start = time.process_time()
        try:
            verdict = one(text, model)
        except SizingError as problem:
            raise AssertionError(f"{problem}: a log must be explained, whatever it says\n{text[-3000:]}") from problem
        except Exception as problem:
            raise AssertionError(f"{type(problem).__name__}: {problem}\n{text[-3000:]}") from problem
        longest = max(longest, time.process_time() - start)
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
    return inputs, longest, str(verdicts)


if __name__ == "__main__":
    tried, slowest, seen = run(*(int(arg) for arg in sys.argv[1:3] or ["10000"]))
    print(f"{tried:,} inputs tried, none crashed, longest {slowest:.2f} s, verdicts {seen}")
