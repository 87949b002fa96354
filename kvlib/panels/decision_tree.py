"""From symptom to lever, as a picture and as a table with links: what you see, what the log says, what to turn."""

from __future__ import annotations

from typing import NamedTuple

import altair as alt

from kvlib import charts
from kvlib.capacity import size
from kvlib.engine import Engine
from kvlib.fit import fit
from kvlib.lesson import AVAILABLE_GIB
from kvlib.panels.budget_facts import gb10_launch
from kvlib.panels.drawing import INK, box, canvas, word
from kvlib.panels.parallel_facts import peak_parts
from kvlib.panels.question_base import HYBRID, HYBRID_GIB, model, sized
from kvlib.panels.questions_log import REPORT_4, refused
from kvlib.tables import Col, Html, Table, html, table
from kvlib.units import GiB

HYBRID_MODEL = "Qwen3.8-27B"
WIDTH, ROW, GAP = 960, 31, 12  # pixels: the picture, a leaf, the space between two symptoms
SYMPTOM, CLUE, LEVER = (0, 128), (158, 390), (572, 388)  # left edge and width of each column


class Leaf(NamedTuple):
    """One way through the tree. ``question`` is the number of the section, ``example`` what kvlib computes for it."""

    clue: str
    lever: str
    question: int
    example: str


HEADINGS = {  # the section's heading in notebook 11, and the lesson behind it
    1: ("Q1. Is 16.64x a limit on requests", "03_blocks_and_tokens.ipynb#The-worst-case,-and-yours"),
    2: ("Q2. Refused, more GiB KV cache is needed", "03_blocks_and_tokens.ipynb#A-refusal,-and-the-length-that-passes"),
    3: ("Q3. The size grows with max_model_len", "08_hybrid_block_pool.ipynb#Why-it-moves"),
    4: ("Q4. Two log lines disagree", "05_read_a_startup_log.ipynb#4-·-When-both-lines-are-right-and-still-disagree"),
    5: ("Q5. Ten times more after an upgrade", "05_read_a_startup_log.ipynb#4-·-When-both-lines-are-right-and-still-disagree"),
    6: ("Q6. A window model shows few tokens", "07_beyond_full_attention.ipynb#3-·-What-the-server-charges"),
    7: ("Q7. A shorter max_model_len frees nothing", "03_blocks_and_tokens.ipynb#Bytes,-blocks,-tokens,-concurrency"),
    8: ("Q8. Free memory is less than desired on a GB10", "02_memory_budget.ipynb#5-·-Others-want-the-memory-too"),
    9: ("Q9. Is gpu_memory_utilization a hard cap", "02_memory_budget.ipynb#Where-CPU-and-GPU-share-memory,-the-system-counts"),
    10: ("Q10. Set the cache in bytes", "02_memory_budget.ipynb#4-·-The-calculator"),
    11: ("Q11. Hybrid blocks of 1,568, and max_num_seqs refused", "08_hybrid_block_pool.ipynb#One-page-for-both"),
    12: ("Q12. Half of the card is missing", "02_memory_budget.ipynb#3-·-What-is-in-the-18.29-GiB?"),
    13: ("Q13. FP8 gives less than twice", "07_beyond_full_attention.ipynb#5-·-Fewer-bits"),
    14: ("Q14. Does tensor parallelism split the cache", "04_tensor_parallelism.ipynb#2-·-Heads-are-dealt,-not-sliced"),
    15: ("Q15. Will it fit before I download it", "06_size_your_own.ipynb#Three-boxes,-one-answer"),
    16: ("Q16. It preempts", "09_plan_for_traffic.ipynb#Your-traffic"),
}
COLOURS = {"It refuses to start": "refused", "Too few requests": "kv", "It preempts": "reserve", "A number moved": "weights"}


def leaves() -> dict[str, tuple[Leaf, ...]]:
    """The tree: leaves by symptom, each with an example worked out now."""
    stopped, half, gemma = refused(), gb10_launch(0.92, 13.91), {"max_model_len": 131_072, "max_num_batched_tokens": 2_048}
    short, middle, long = (
        sized(HYBRID_MODEL, HYBRID_GIB, max_model_len=length, **HYBRID) for length in (8_192, 132_096, 262_144)
    )
    pool = sized("Qwen3-8B", AVAILABLE_GIB, vllm_version="0.28", max_model_len=40_960)
    many, hybrid = (
        (each.num_gpu_blocks - 1) // each.plan.blocks_per_request(tokens) for each, tokens in ((pool, 4_000), (short, 10_000))
    )
    state = size(
        model(HYBRID_MODEL),
        Engine(max_model_len=8_192, gpu="L40S"),
        available_bytes=184 * sized(HYBRID_MODEL, 1, max_model_len=8_192).bytes_per_block,
    )
    old, new, newer = (sized("Gemma-4-31B", 50, vllm_version=version, **gemma) for version in ("0.20.0", "0.21.0", "0.26.0"))
    few, more = (sized("gpt-oss-120b", 20, max_model_len=131_072, max_num_batched_tokens=batched) for batched in (16_384, 2_048))
    wide = sized(HYBRID_MODEL, HYBRID_GIB, max_model_len=132_096, **{**HYBRID, "kv_cache_dtype": "auto"})
    sampler, smaller = (
        max(peak_parts("Gemma-3-27b", 1, seqs, batched)) / GiB for seqs, batched in ((1_024, 8_192), (256, 2_048))
    )
    weights = fit("Qwen3-30B-A3B", "--max-model-len 32768", gpu="RTX 4090").verdict
    tp, dp = (
        sized("Kimi-K2", 46.8, max_model_len=131_072, vllm_version="0.28", **{flag: 8})
        for flag in ("tensor_parallel_size", "data_parallel_size")
    )
    return {
        "It refuses to start": (
            Leaf(
                "“… GiB KV cache is needed”, more than there is",
                "--max-model-len to the estimate, or FP8 cache",
                2,
                f"MiniMax-M2.7: {stopped.engine.max_model_len:,} → {stopped.estimated_max_model_len:,} tokens passes",
            ),
            Leaf(
                "“Free memory … is less than desired”",
                "a smaller share, or stop what holds it",
                8,
                f"GB10: {half.refusal.available_gib} GiB free, {half.refusal.needed_gib} asked; a share of 0.82 passes",
            ),
            Leaf(
                "max_num_seqs exceeds the Mamba cache blocks",
                "--max-num-seqs to the number of blocks",
                11,
                f"Qwen3.8-27B: {state.refusal.message}; 184 passes",
            ),
            Leaf(
                "out of memory, or no memory for cache blocks",
                "narrower weights, more GPUs, another card",
                15,
                f"Qwen3-30B-A3B on an RTX 4090: {weights.reason}",
            ),
        ),
        "Too few requests": (
            Leaf(
                "the “x” is low, and my requests are shorter",
                "nothing: divide the tokens by your length",
                1,
                f"Qwen3-8B: {pool.max_concurrency:.2f}x at 40,960 tokens, {many} requests of 4,000",
            ),
            Leaf(
                "max_model_len was lowered, and no tokens came",
                "nothing: the pool takes what is left",
                7,
                f"Qwen3-8B: {pool.kv_cache_tokens:,} tokens at 40,960 and at 5,120",
            ),
            Leaf(
                "“Available KV cache memory” is small for the card",
                "fewer sequences, fewer batched tokens",
                12,
                f"Gemma-3-27b: activation peak {sampler:.2f} → {smaller:.2f} GiB (assumed)",
            ),
            Leaf(
                "the GiB are there, a token costs too much",
                "--kv-cache-dtype fp8",
                13,
                f"Qwen3.8-27B: {wide.kv_cache_tokens:,} → {middle.kv_cache_tokens:,} tokens",
            ),
            Leaf(
                "latent attention, or more GPUs than KV heads",
                "data parallel, or split the context",
                14,
                f"Kimi-K2, eight GPUs: {tp.fleet_kv_cache_tokens / 1e6:.2f} → {dp.fleet_kv_cache_tokens / 1e6:.2f} million tokens",
            ),
            Leaf(
                "a window model, long steps",
                "--max-num-batched-tokens lower",
                6,
                f"gpt-oss-120b: {few.kv_cache_tokens:,} → {more.kv_cache_tokens:,} tokens",
            ),
        ),
        "It preempts": (
            Leaf(
                "preemptions are counted: running requests grew",
                "--max-num-seqs to what fits at your length",
                16,
                f"Qwen3-8B, 4,000 tokens each: {many} fit where 256 may run",
            ),
            Leaf(
                "a hybrid: states take blocks from the first token",
                "count blocks, states too; --max-num-seqs",
                16,
                f"Qwen3.8-27B, 10,000 tokens each: {hybrid} fit; the printed size suggests {middle.kv_cache_tokens // 10_000}",
            ),
        ),
        "A number moved": (
            Leaf(
                "the tokens, not the GiB, after an upgrade",
                "nothing: only the line changed; see the “x”",
                5,
                f"Gemma-4-31B: {old.kv_cache_tokens:,} → {new.kv_cache_tokens:,} tokens, {old.max_concurrency:.2f}x both times",
            ),
            Leaf(
                "the “x” too, at the same GiB, after an upgrade",
                "windows reserve more: fewer batched tokens",
                5,
                f"Gemma-4-31B, 0.25 → 0.26: {new.max_concurrency:.2f}x → {newer.max_concurrency:.2f}x",
            ),
            Leaf(
                "the tokens, with max_model_len alone",
                "nothing: concurrency × length is printed",
                3,
                f"Qwen3.8-27B: {short.kv_cache_tokens:,} at 8,192, {long.kv_cache_tokens:,} at 262,144",
            ),
            Leaf(
                "tokens and “x” of one log disagree",
                "trust the “x”: an older way to print",
                4,
                f"Qwen3.5-27B, 0.19.0: {REPORT_4['tokens']:,} tokens beside {REPORT_4['concurrency']}x of 32,768",
            ),
        ),
    }


def tree() -> charts.Static:
    """The tree as a picture; its words are the alternative text."""
    boxes, words, lines, top = [], [], [], 26
    for x, said in ((SYMPTOM[0], "what you see"), (CLUE[0], "what the log says"), (LEVER[0], "what to turn, and the section")):
        words.append(word(x + 4, 10, said, size=12))
    for symptom, found in leaves().items():
        high, colour = len(found) * ROW, COLOURS[symptom]
        boxes.append(box(*_at(SYMPTOM, top), SYMPTOM[1], high - 4, colour))
        for line, part in enumerate(symptom.rsplit(" ", 1) if len(symptom) > 12 else [symptom]):
            words.append(
                word(
                    SYMPTOM[0] + SYMPTOM[1] / 2,
                    top + high / 2 - 2 + (line - 0.5 * (len(symptom) > 12)) * 17,
                    part,
                    align="center",
                    bold=True,
                    size=13,
                    on=colour,
                )
            )
        spine = SYMPTOM[1] + (CLUE[0] - SYMPTOM[1]) / 2
        middles = [top + i * ROW + (ROW - 4) / 2 for i in range(len(found))]
        lines.append(_line(SYMPTOM[1], top + (high - 4) / 2, spine, top + (high - 4) / 2))
        lines.append(_line(spine, middles[0], spine, middles[-1]))
        for leaf, middle in zip(found, middles, strict=True):
            y = middle - (ROW - 4) / 2
            lines += [_line(spine, middle, CLUE[0], middle), _line(CLUE[0] + CLUE[1], middle, LEVER[0], middle)]
            boxes += [
                box(*_at(CLUE, y), CLUE[1], ROW - 4, "unused", opacity=0.12, tip=leaf.example),
                box(*_at(LEVER, y), LEVER[1], ROW - 4, colour, opacity=0.28, tip=leaf.example),
            ]
            words += [
                word(CLUE[0] + 8, middle, leaf.clue, size=13),
                word(LEVER[0] + 8, middle, leaf.lever, size=13),
                word(LEVER[0] + LEVER[1] - 8, middle, f"Q{leaf.question}", align="right", bold=True, size=13),
            ]
        top += high + GAP
    picture = canvas("tree", width=WIDTH, height=top)
    rules = (
        alt.Chart(alt.NamedData("tree_lines"))
        .mark_rule(strokeOpacity=0.6)
        .encode(
            x=alt.X("x:Q", scale=alt.Scale(domain=[0, WIDTH], nice=False), axis=None),
            x2="x2:Q",
            y=alt.Y("y:Q", scale=alt.Scale(domain=[top, 0], nice=False), axis=None),
            y2="y2:Q",
            color=alt.value(INK),
        )
    )
    spec = charts.themed((rules + picture).properties(width=WIDTH, height=top + 16))
    spec["datasets"] = {"tree": boxes, "tree_words": words, "tree_lines": lines}
    return charts.static(
        spec,
        alt=" ".join(
            f"{symptom}: " + "; ".join(f"{leaf.clue} – {leaf.lever} (Q{leaf.question})" for leaf in found) + "."
            for symptom, found in leaves().items()
        ),
    )


def _at(column: tuple[int, int], y: float) -> tuple[float, float]:
    return column[0], y


def _line(x: float, y: float, x2: float, y2: float) -> dict:
    return {"x": x, "y": y, "x2": x2, "y2": y2}


def anchor(question: int) -> str:
    """The link to a section of notebook 11, from within it."""
    return "#" + HEADINGS[question][0].replace(" ", "-")


def examples() -> Table:
    """The leaves with their links and an example of each, as text."""
    rows = []
    for symptom, found in leaves().items():
        for number, leaf in enumerate(found):
            rows.append(
                {
                    "symptom": symptom if not number else Html(""),
                    "clue": leaf.clue,
                    "lever": leaf.lever,
                    "example": leaf.example,
                    "link": html('<a href="{}">Q{}</a>', anchor(leaf.question), leaf.question),
                }
            )
    return table(
        rows,
        [
            Col("symptom", "what you see", "text"),
            Col("clue", "what the log says", "text"),
            Col("lever", "what to turn", "text"),
            Col("link", "section"),
            Col("example", "for example", "text"),
        ],
    )
