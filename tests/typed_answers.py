"""What a class may type into an answer box, for every exercise: right, likely, sloppy, and nonsense; all as text."""
from __future__ import annotations

import random

from test_workshop import ANSWERS, NONSENSE

from kvlib.typed import BYTES
from kvlib.website import checks
from kvlib.workshop import register

WORDS = ("bytes", "KiB", "kib", "KB", "kB", "mb", "MiB", "GiB", "gb", "GB", "tokens", "token", "blocks",
         "requests", "x", "%", "percent", "parsecs")
NOISE = ["1.2.3", "1,2,3", "12 34", "0x10", "1e3", "1e400", "-5", "+7", "−3", "≈ 12", "~3.", "= 4", ".5", "5.", "1,70", "1.234.567",
         "it's 5", 'say "5"', "back\\slash", "a" * 60, "5 " + "b" * 60, "None", "ü", "1_000", "1'000", "nan", "inf", "0", "00012", "1/0"]


def texts(number: str) -> list[str]:
    """Answers to try on one exercise."""
    right, wrong = ANSWERS[number]
    found = [str(each) for each in right + [answer for answer, _ in wrong]]
    found += [each for each in NONSENSE if isinstance(each, str)] + NOISE
    exercise = register()[number]
    if exercise.judge:
        return found + flags()
    if isinstance(exercise.right, str):
        return found + [text for slip, _ in exercise.wrong for text in (slip, slip.upper(), f'"{slip}"', slip.replace("_", "-"))]
    found += [f"{value!r} {word}" for value in (exercise.right, exercise.wrong[0][0]) for word in WORDS]
    for value in [exercise.right, *(slip for slip, _ in exercise.wrong)]:
        found += figures(value)
        if exercise.unit in BYTES:
            found += [f"{value * BYTES[exercise.unit] / BYTES[unit]!r} {unit}" for unit in BYTES]
    return found


def figures(value) -> list[str]:
    """A figure as different people write it."""
    shapes = [f"{value!r}", f"{value:,}", *(f"{value:.{digits}f}" for digits in range(5)), f"{value:.3e}", f"{value:.2f}".replace(".", ",")]
    return shapes + [f"{value * factor:.{digits}f}" for factor in (0.99, 1.001, 2) for digits in (0, 2)]


def flags(count: int = 150) -> list[str]:
    """Flags of the capstone, in the spellings of its table."""
    chance, found = random.Random(9), []
    for setting in chance.sample(checks.settings(), count):
        words = []
        for name, value in setting.items():
            spelled = checks.spellings(name, value)
            if value is True:
                words.append(checks.flag(name))
            elif spelled and not (value == "auto" and chance.random() < 0.5):
                words.append(checks.flag(name) + chance.choice(" =") + chance.choice(spelled))
        chance.shuffle(words)
        found.append(chance.choice(["", "vllm serve m "]) + " ".join(words))
    alone = [f"--max-model-len 32000 {checks.flag(name)} {value}" for name, value in checks.REFUSED.items()]
    others = ["-tp 1 --max-model-len 32000 --kv-cache-dtype fp8", "--max_model_len 32K --gpu-memory-utilization 0.90"]
    return [each for each in found if each] + alone + others
