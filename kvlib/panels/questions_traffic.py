"""Notebook 11, question 16: a server that preempts, by the simulation of vLLM's scheduler, and a hybrid's blocks counted."""

from __future__ import annotations

from kvlib import traffic
from kvlib.engine import Engine
from kvlib.panels.question_base import HYBRID, HYBRID_GIB, model, sized
from kvlib.tables import Col, Table, table

POOL = 42_600   # blocks of the GB10's log


def preempting(max_num_seqs=(256, 170), requests=400, prompt_tokens=3_000, output_tokens=1_000) -> Table:
    """That many equal requests at once on the GB10, with each max_num_seqs."""
    rows = []
    for seqs in max_num_seqs:
        engine = Engine(gpu="GB10", vllm_version="0.28", max_model_len=40_960, max_num_seqs=seqs)
        run = traffic.simulate(model("Qwen3-8B"), engine, [(0, prompt_tokens, output_tokens)] * requests, num_gpu_blocks=POOL)
        needed = requests * (prompt_tokens + output_tokens - 1)      # the last token is never computed
        rows.append({"flag": f"--max-num-seqs {seqs}", "most": run.peak_running, "out": run.preemptions,
                     "again": run.scheduled_tokens - needed, "steps": run.steps})
    return table(rows, [Col("flag", "launch", "text"), Col("most", "most at once"), Col("out", "preemptions"),
                        Col("again", "tokens computed again"), Col("steps", "steps until all are served")],
                 caption=f"{requests} requests of {prompt_tokens:,} + {output_tokens:,} tokens at once, Qwen3-8B on a GB10")


def hybrid_requests(tokens=10_000) -> Table:
    """How many requests of a hybrid fit, counted in blocks, and what the printed tokens suggest."""
    rows = []
    for caching in (True, False):
        s = sized("Qwen3.8-27B", HYBRID_GIB, max_model_len=132_096, enable_prefix_caching=caching, **HYBRID)
        each = s.plan.blocks_per_request(tokens)
        rows.append({"flag": "prefix caching on" if caching else "--no-enable-prefix-caching", "each": each,
                     "fit": (s.num_gpu_blocks - 1) // each, "printed": s.kv_cache_tokens // tokens})
    return table(rows, [Col("flag", "launch", "text"), Col("each", "blocks a request"), Col("fit", "fit at once"),
                        Col("printed", f"printed tokens ÷ {tokens:,}")],
                 caption=f"Qwen3.8-27B on two A100, FP8 cache, requests of {tokens:,} tokens")
