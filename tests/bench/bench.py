"""How fast the workbook's engine is: `python run.py bench`. Writes data/benchmarks/DATE.json and prints a table.

    --quick        few samples and small curves, to see that it runs
    --alone        without other programs
    --no-notebooks without the time that each notebook takes to run
    --out FILE     write there instead

Others are timed in turn with ours, in the same run. vLLM is asked where KV_BENCH_VLLM names a Python that has it; peers
are fetched by pip into environments of their own under the temporary folder (or KV_BENCH_PEERS). What is not there is
skipped with a word.
"""
import argparse
import datetime
import json
import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd

import kvlib
from kvlib import catalog
from kvlib.pool import plan
from kvlib.sweep import sweep

sys.path.insert(0, str(Path(__file__).resolve().parent))
import measure  # noqa: E402
import others  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
GiB = 1 << 30
MODELS = ("Qwen3-8B", "gpt-oss-20b")  # one kind of layer, and two
AVAILABLE = 20 * GiB


class Run:
    """Figures as they come, printed and kept."""

    def __init__(self, quick):
        self.quick = quick
        self.samples = 3 if quick else 11
        self.figures, self.growth, self.skipped = [], [], []

    def note(self, name, samples, unit, value=None):
        """Keep samples in seconds as they are, or as ``value(seconds)``, such as rows a second."""
        found = measure.summary([value(sample) for sample in samples] if value else samples)
        self.figures.append({"name": name, "unit": unit, **found})
        scale, shown = {"s": (1e6, "µs")}.get(unit, (1, unit))
        print(f"{name:<62} {found['median'] * scale:>14,.1f} {shown:<10} ({found['low'] * scale:,.1f} to {found['high'] * scale:,.1f})",
              flush=True)

    def time(self, name, call, unit="s", value=None):
        self.note(name, measure.sampled(call, self.samples, 0.01 if self.quick else 0.05), unit, value)

    def curve(self, name, sizes, call_at):
        """Least seconds at each size, and the exponent."""
        points = []
        for size in sizes:
            call = call_at(size)
            points.append((size, min(measure.sampled(call, self.samples, 0.02))))
        found = measure.exponent(points)
        self.growth.append({"name": name, "exponent": found, "points": points})
        print(f"{'growth with ' + name:<62} {found:>14.2f} exponent   ({sizes[0]:,} to {sizes[-1]:,})", flush=True)

    def skip(self, name, why):
        self.skipped.append({"name": name, "why": str(why)})
        print(f"{name:<62}        skipped: {why}", flush=True)


def uncached(model, engine, available=AVAILABLE):
    """Everything that size() does the first time it sees a set-up."""
    plan.cache_clear()
    return kvlib.size(model, engine, available_bytes=available)


def our_own(run):
    """import, load_model, size, sweep, read_log."""
    run.note("import kvlib, in a new Python", [others.fresh_import("kvlib", ROOT) for _ in range(run.samples)], "s")
    for name in MODELS:
        engine, model = kvlib.Engine(), kvlib.load_model(name)
        run.time(f"load_model, {name}", lambda name=name: kvlib.load_model(name))
        run.time(f"size(), a new set-up, {name}", lambda: uncached(model, engine))  # noqa: B023
        run.time(f"size(), a known set-up, {name}", lambda: kvlib.size(model, engine, available_bytes=AVAILABLE))  # noqa: B023
    side = 200 if run.quick else 1000
    lengths, memories = np.arange(1000, 1000 + side), np.arange(side) * 90_000_000
    for name in (*MODELS, "Gemma-3-27b", "Qwen3.8-27B"):
        grid = dict(models=name, max_model_len=lengths, available_bytes=memories)
        run.time(f"sweep(), lengths × memories, {name}", lambda: sweep(**grid), "rows/s", lambda spent: side * side / spent)  # noqa: B023
    many = np.arange(1, side * side + 1)
    run.time("sweep(), lengths alone, Qwen3-8B", lambda: sweep("Qwen3-8B", max_model_len=many, available_bytes=AVAILABLE),
             "rows/s", lambda spent: len(many) / spent)
    run.time("sweep(), auto-fit over memories, Gemma-3-27b",
             lambda: sweep("Gemma-3-27b", max_model_len=-1, available_bytes=many * 90_000), "rows/s", lambda spent: len(many) / spent)
    set_ups(run)
    long = served_log(200_000 if run.quick else 5_000_000)
    run.time("read_log(), a launch and what it served", lambda: kvlib.read_log(long), "MB/s", lambda spent: len(long) / 1e6 / spent)
    again = catalog.log_text("qwen3-8b-gb10") * 200
    run.time("read_log(), 200 launches", lambda: kvlib.read_log(again), "MB/s", lambda spent: len(again) / 1e6 / spent)


def served_log(size):
    """A start-up log, then the lines of a server at work, about so many characters."""
    served = ("INFO 10-02 12:00:00 [loggers.py:257] Engine 000: Avg prompt throughput: 1234.5 tokens/s, Avg generation throughput: "
              "567.8 tokens/s, Running: 12 reqs, Waiting: 0 reqs, GPU KV cache usage: 34.5%, Prefix cache hit rate: 12.3%\n"
              'INFO:     127.0.0.1:54321 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n')
    start = catalog.log_text("qwen3-8b-gb10")
    return start + served * ((size - len(start)) // len(served))


def set_ups(run):
    """Models × TP × cache types, each a plan of its own: known ones, and all new."""
    names = catalog.models()[:20] if run.quick else catalog.models()
    grid = dict(models=names, tensor_parallel_size=[1, 2, 4, 8], kv_cache_dtype=["auto", "fp8"], available_bytes=AVAILABLE)
    count = len(names) * 8
    run.time("sweep(), models × TP × cache type, known", lambda: sweep(**grid), "set-ups/s", lambda spent: count / spent)

    def new():
        plan.cache_clear()
        sweep(**grid)

    run.time("sweep(), models × TP × cache type, new", new, "set-ups/s", lambda spent: count / spent)
    cards = [name for name in ("H100 SXM 80GB", "L40S", "B200", "RTX 4090") if name in catalog.gpus()]
    over = {**grid, "gpus": cards, "available_bytes": None}
    run.time("sweep(), the same × GPUs, memory assumed, known", lambda: sweep(**over), "set-ups/s",
             lambda spent: count * len(cards) / spent)


def floors(run):
    """The arithmetic and nothing else, in turn with what we do around it."""
    made = plan(kvlib.load_model("Qwen3-8B"), kvlib.Engine())
    each, block = made.stage_bytes_per_block[0], made.block_size_tokens
    side = 200 if run.quick else 1000
    lengths, memories = np.arange(1000, 1000 + side), np.arange(1, side + 1) * 90_000_000

    def loop():
        for length in numbers:
            for memory in numbers_of_bytes:
                blocks = memory // each
                needed = -(-length // block)
                concurrency = blocks / needed
                int(concurrency * length), needed * each, needed > blocks - 1

    def arrays():
        blocks = memories // each
        needed = -(-lengths[:, None] // block)
        concurrency = blocks / needed
        return concurrency, (concurrency * lengths[:, None]).astype(np.int64), needed > blocks - 1

    def frame():
        concurrency, tokens, refused = arrays()
        return pd.DataFrame({"max_model_len": np.repeat(lengths, side), "available_bytes": np.tile(memories, side),
                             "num_gpu_blocks": np.tile(memories // each, side), "blocks_per_request": np.repeat(-(-lengths // block), side),
                             "max_concurrency": concurrency.ravel(), "kv_cache_tokens": tokens.ravel(), "refused": refused.ravel()})

    numbers, numbers_of_bytes = lengths[::10].tolist(), memories[::10].tolist()
    calls = {"a bare Python loop": (loop, len(numbers) * len(numbers_of_bytes)), "bare arrays": (arrays, side * side), "arrays into a frame": (frame, side * side),
             "sweep()": (lambda: sweep("Qwen3-8B", max_model_len=lengths, available_bytes=memories), side * side)}
    found = measure.in_turn({name: (lambda call=call, rows=rows: measure.per_call(call, 2) / rows) for name, (call, rows) in calls.items()},
                            run.samples)
    for name, samples in found.items():
        run.note(f"floor: {name}, Qwen3-8B", samples, "rows/s", lambda spent: 1 / spent)
    run.figures += [{"name": f"sweep() takes, in times of {floor}", "unit": "times", **measure.ratio(found, "sweep()", floor)}
                    for floor in ("a bare Python loop", "bare arrays", "arrays into a frame")]
    for figure in run.figures[-3:]:
        print(f"{figure['name']:<62} {figure['median']:>14.2f} times", flush=True)


def growth(run):
    """How time grows with layers, groups, rows and the length of a log."""
    engine, plenty = kvlib.Engine(max_model_len=8192), 1 << 50  # no search for a length that fits
    sizes = (32, 128, 512) if run.quick else (32, 64, 128, 256, 512, 1024, 2048)

    def layers(count):
        model = kvlib.from_layers([dict(kind="full", count=count // 4, num_kv_heads=8, head_dim=128),
                                   dict(kind="sliding", count=count - count // 4, num_kv_heads=8, head_dim=128, sliding_window=1024)])
        return lambda: uncached(model, engine, plenty)

    def groups(count):
        model = kvlib.from_layers([dict(kind="full", count=1, num_kv_heads=8, head_dim=128),
                                   dict(kind="sliding", count=count - 1, num_kv_heads=8, head_dim=128, sliding_window=1024)])
        return lambda: uncached(model, engine, plenty)

    run.curve("layers of a new set-up", sizes, layers)
    run.curve("groups of a new set-up", sizes[:-1], groups)
    run.curve("rows of a sweep", (10_000, 100_000) if run.quick else (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000), lambda rows: (
        lambda: sweep("Qwen3-8B", max_model_len=np.arange(1000, 1100), available_bytes=np.arange(rows // 100) * 1_000_000)))
    run.curve("length of a log", (50_000, 200_000) if run.quick else (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000), lambda size: (
        lambda long=served_log(size): kvlib.read_log(long)))


def beside_others(run):
    """vLLM's own functions and the peers, in turn with ours, on the same set-ups; and whether they agree."""
    for name in MODELS:
        model = kvlib.load_model(name)
        config = {key: value for key, value in catalog.model_config(name).items() if not key.startswith("_")}
        case = {"config": config, "max_model_len": model.max_position_embeddings, "available_bytes": AVAILABLE, "block_size": 128,
                "layers": [{"num_kv_heads": layer.num_kv_heads, "head_dim": layer.head_dim,
                            "sliding_window": getattr(layer, "sliding_window", 0)} for layer in model.layers]}
        one_beside(run, name, "vLLM", others.vllm_child, case, model)
        for peer in others.PEERS:
            one_beside(run, name, peer, lambda case, peer=peer: others.peer_child(peer, case), case, model)


def one_beside(run, name, who, start, case, model):
    try:
        child = start(case)
    except others.Absent as why:
        run.skip(f"{who}, {name}", why)
        return
    version = child.found.get("version")
    who = f"{who} {version}" if version else who
    cpu = kvlib.Engine(device="cpu", **({"vllm_version": version} if version else {}), max_model_len=case["max_model_len"])
    memories = np.arange(1, 100_001) * 300_000
    ours = {"size(), a new set-up": (lambda: uncached(model, cpu), 20), "size(), a known set-up":
            (lambda: kvlib.size(model, cpu, available_bytes=AVAILABLE), 200),
            "a row of sweep()": (lambda: sweep(model, device="cpu", max_model_len=case["max_model_len"], available_bytes=memories), 1)}
    rows = {"a row of sweep()": len(memories)}
    calls = {what: (lambda call=call, number=number, what=what: measure.per_call(call, number) / rows.get(what, 1))
             for what, (call, number) in ours.items()}
    found = measure.in_turn({who: child.sample, **calls}, run.samples)
    child.close()
    one = kvlib.size(model, cpu, available_bytes=AVAILABLE)
    answer = child.found["answer"]
    agree = list(answer) == [one.num_gpu_blocks, one.kv_cache_tokens, one.max_concurrency] if version else \
        f"{answer:,.0f} B a request, unpadded"
    run.note(f"{who}, one set-up, {name}", found[who], "s")
    for what in calls:
        times = measure.ratio(found, who, what)
        run.figures.append({"name": f"{who} takes, in times of {what}, {name}", "unit": "times", "agree": agree, **times})
        print(f"  in times of {what:<48} {times['median']:>14,.1f} times      (answers: "
              f"{'equal' if agree is True else agree or 'different'})", flush=True)


def notebook_times(run):
    """Run All of each notebook in a fresh kernel, by the clock on the wall."""
    import notebook_store

    for path in notebook_store.names():
        if path.parent == notebook_store.NOTEBOOKS:
            start = time.perf_counter()
            notebook_store.run(path)
            run.note(f"Run All, {path.stem}", [time.perf_counter() - start], "seconds")


def machine():
    """What kind of machine it is, in general words."""
    model = ""
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {"system": platform.system(), "architecture": platform.machine(), "processor": model, "cores": os.cpu_count(),
            "load_at_start": load and round(load, 1)}


def main(arguments=None):
    reader = argparse.ArgumentParser(prog="run.py bench", description="Measure the workbook's engine.")
    reader.add_argument("--quick", action="store_true", help="few samples and small curves")
    reader.add_argument("--alone", action="store_true", help="without vLLM and the peers")
    reader.add_argument("--no-notebooks", action="store_true", help="without running the notebooks")
    reader.add_argument("--out", type=Path, help="the file to write")
    asked = reader.parse_args(arguments)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    kind = machine()
    run = Run(asked.quick)
    our_own(run)
    floors(run)
    growth(run)
    if asked.quick or asked.no_notebooks:
        run.skip("Run All of the notebooks", "--quick" if asked.quick else "--no-notebooks")
    else:
        notebook_times(run)
    if asked.alone:
        run.skip("other programs", "--alone")
    else:
        beside_others(run)
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in ("numpy", "pandas")}}
    out = asked.out or ROOT / "data" / "benchmarks" / f"{today}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"date": today, "machine": kind, "versions": versions, "quick": asked.quick, "figures": run.figures,
                               "growth": run.growth, "skipped": run.skipped}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"Written to {out.relative_to(ROOT) if out.is_relative_to(ROOT) else out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
