"""Change one rule at a time and see that a test fails: run by hand, `python tests/mutants.py`, or with a file's
name or a piece of a mutant's text for some of them.

Each mutant is a small slip of the kind people make: a +1 dropped, a floor for a ceiling, a version too early. The
tests run on a copy of the package, first those that fail fastest; a mutant that passes them all has survived.
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["test_capacity.py", "test_oracle.py", "test_engine.py", "test_config.py", "test_real_configs.py", "test_oracle_more.py",
         "test_real_launches.py",
         "test_laws.py"]
MUTANTS = [  # file, what stands there, what is put in its place
    ("units.py", "return -(-a // b)", "return a // b"),
    ("units.py", "return cdiv(value, multiple) * multiple", "return value // multiple * multiple"),
    ("units.py", "str(round(num_bytes / GiB, 2))", "f\"{num_bytes / GiB:.2f}\""),
    ("memory.py", "math.ceil(total_bytes * gpu_memory_utilization)", "math.floor(total_bytes * gpu_memory_utilization)"),
    ("memory.py", 'engine.enforce_eager or not engine.version.has("graph_estimate")', "engine.enforce_eager"),
    ("memory.py", '"least": ("low", "high")', '"least": ("low", "low")'),
    ("spec.py", "spec.reach - 1 + tokens_in_flight", "spec.reach + tokens_in_flight"),
    ("spec.py", "max_model_len), spec.block_size) + 1", "max_model_len), spec.block_size)"),
    ("spec.py", "min(spec.reach + tokens_in_flight, max_model_len), spec.block_size)",
     "min(spec.reach + tokens_in_flight, max_model_len), spec.block_size) + 1"),
    ("spec.py", "cdiv(cdiv(max_model_len, dcp), spec.block_size)", "cdiv(max_model_len, spec.block_size)"),
    ("spec.py", "max(1, num_kv_heads // tensor_parallel_size)", "max(1, -(-num_kv_heads // (2 * tensor_parallel_size)))"),
    ("spec.py", "FP8_DS_MLA_BYTES_PER_TOKEN = 656", "FP8_DS_MLA_BYTES_PER_TOKEN = 576"),
    ("spec.py", "SCALE_BYTES_PER_HEAD = 8", "SCALE_BYTES_PER_HEAD = 4"),
    ("spec.py", "INDEXER_SCALE_BYTES, INDEXER_SCALE_WIDTH = 4, 128", "INDEXER_SCALE_BYTES, INDEXER_SCALE_WIDTH = 2, 128"),
    ("spec.py", "MLA_HYBRID_BLOCK = 128", "MLA_HYBRID_BLOCK = 64"),
    ("spec.py", "layer.linear_conv_kernel_dim - 1 + drafts", "layer.linear_conv_kernel_dim + drafts"),
    ("spec.py", "layer.conv_kernel - 1 + drafts", "layer.conv_kernel - 1"),
    ("spec.py", "layer.n_groups if layer.n_groups % tp == 0 else tp", "layer.n_groups"),
    ("spec.py", 'fallback = "float32" if on_cpu or isinstance(layer, KimiDelta) else setup.model_dtype',
     "fallback = setup.model_dtype"),
    ("spec.py", "return 1 + drafts", "return 1"),
    ("spec.py", "return 2 + drafts + keeps_checkpoint", "return 2 + drafts"),
    ("spec.py", "granularity * cdiv(largest, granularity * per_token)", "granularity * max(1, largest // (granularity * per_token))"),
    ("spec.py", "math.lcm(granularity, GDN_CHECKPOINT_TOKENS)", "granularity"),
    ("spec.py", "block_size if caches_prefixes(model, engine) else setup.max_model_len", "block_size"),
    ("spec.py", 'layer.inclusive and engine.version.has("inclusive_window")', "False"),
    ("pool.py", "unaligned = _without_attention(model, engine)", "unaligned = set()"),
    ("pool.py", "block_size=engine.block_size or DEFAULT_BLOCK_SIZE), []", "block_size=DEFAULT_BLOCK_SIZE), []"),
    ("pool.py", "if unaligned else ordered", "if False else ordered"),
    ("pool.py", "attention += range(len(model.layers), len(model.layers) + len(draft_layers(model, engine)))", "pass"),
    ("pool.py", "return sum(count * max(", "return sum(max("),
    ("resolve.py", "backend = backend._replace(default_block=64)", "pass"),
    ("resolve.py", 'cache_dtype in ("fp8", "fp8_e4m3") and', 'cache_dtype.startswith("fp8") and'),
    ("resolve.py", '"head_dim", 0) == 512', '"head_dim", 0) >= 256'),
    ("families.py", "if heads % kv_heads:", "if False:"),
    ("families.py", "if hidden % heads:", "if hidden < heads:"),
    ("families.py", 'c.get("qk_nope_head_dim") == 0 == c.get("qk_rope_head_dim")', "False"),
    ("families.py", 'if shares_one and c.raw_type() in ("falcon", "gpt_bigcode"):', 'if shares_one and c.raw_type() == "falcon":'),
    ("families.py", "if window and switch is False and", "if False and"),
    ("families.py", 'if model_type in WINDOW_BY_SWITCH and not switch:', "if not switch:"),
    ("families.py", 'if window is None and "sliding_window" not in c.inner:', "if False:"),
    ("fields.py", "if value is not None and not isinstance(value, bool):", "if False:"),
    ("fields.py", 'if older != "num_layers" and', "if False and"),
    ("families.py", "if c.raw_type() not in GDN_MODEL_TYPES:", "if False:"),
    ("resolve.py", 'if model.model_type == "olmo_hybrid":', "if False:"),
    ("pool.py", "MERGE_BELOW = 1.5", "MERGE_BELOW = 2.0"),
    ("pool.py", "max(sizes) < min(sizes) * MERGE_BELOW", "max(sizes) <= min(sizes) * MERGE_BELOW"),
    ("pool.py", "tuple(indices[first::count])", "tuple(indices[first * width:(first + 1) * width])"),
    ("pool.py", "spec = replace(spec, page_size_bytes=page, block_size=spec.block_size * ratio)",
     "spec = replace(spec, page_size_bytes=page)"),
    ("pool.py", 'rest and spec.kind not in ("mla", "indexer")', "rest and False"),
    ("pool.py", "for back in range(2, rest + 2):", "for back in range(1, rest + 1):"),
    ("pool.py", "sizes[-1] += len(draft_layers(model, engine))", "sizes[0] += len(draft_layers(model, engine))"),
    ("pool.py", "ordered = {spec: sorted(indices) for", "ordered = {spec: indices for"),
    ("pool.py", 'return 1 if self.engine.version.has("null_block_held_back") else 0', "return 0"),
    ("pool.py", "per_stage = tuple(max(", "per_stage = tuple(min("),
    ("capacity.py", "num_blocks = min((stage.num_blocks", "num_blocks = max((stage.num_blocks"),
    ("capacity.py", "return int(concurrency * max_model_len)", "return round(concurrency * max_model_len)"),
    ("capacity.py", "concurrency = num_blocks / needed", "concurrency = num_blocks // needed"),
    ("capacity.py", "if each * needed > have:", "if each * needed >= have:"),
    ("capacity.py", "if any(have <= 0 for _, have in checked)", "if any(have < 0 for _, have in checked)"),
    ("capacity.py", "made.setup.max_num_seqs > num_blocks", "made.setup.max_num_seqs >= num_blocks"),
    ("capacity.py", "num_blocks // len(made.groups) * smallest", "num_blocks * smallest // len(made.groups)"),
    ("capacity.py", "if blocks_for(middle) <= room:", "if blocks_for(middle) < room:"),
    ("resolve.py", "0.92 if engine.version.has(\"utilization_092\") else 0.90", "0.92"),
    ("resolve.py", "return pp + 1 if newer_runner or pp == 1 else pp", "return pp + 1"),
    ("resolve.py", "if not engine.async_scheduling or", "if"),
    ("resolve.py", '"a100" in gpu.name.lower()', '"a1000" in gpu.name.lower()'),
    ("resolve.py", "gpu.total_bytes >= 70 * GiB", "gpu.total_bytes >= 80 * GiB"),
    ("resolve.py", "if large % small:", "if False:"),
    ("families.py", "return [full if index % 2 else sliding for index in range(count)]",
     "return [sliding if index % 2 else full for index in range(count)]"),
    ("families.py", "full if index % period == offset else mamba", "full if index % period == 0 else mamba"),
    ("families.py", "(index + 1) % every == 0 else \"linear_attention\"", "index % every == 0 else \"linear_attention\""),
    ("families.py", "kda if index + 1 in set(states)", "kda if index in set(states)"),
    ("families.py", "heads // per_group", "per_group"),
    *[("versions.py", f"Change(({before}), \"{rule}\"", f"Change(({after}), \"{rule}\"") for rule, before, after in (
        ("utilization_092", "0, 20, 0", "0, 21, 0"), ("graph_estimate", "0, 20, 0", "0, 21, 0"),
        ("tokens_from_concurrency", "0, 20, 1", "0, 20, 0"), ("tokens_in_flight", "0, 26, 0", "0, 29, 0"),
        ("null_block_held_back", "0, 29, 0", "0, 30, 0"), ("device_word", "0, 30, 0", "0, 33, 0"),
        ("runner_v2", "0, 30, 0", "0, 32, 0"), ("mamba2_keeps_three", "0, 32, 0", "0, 33, 0"),
        ("gdn_checkpoints", "0, 33, 0", "0, 32, 0"), ("gb10_small_tier", "0, 33, 0", "0, 32, 0"),
        ("one_line", "0, 28, 0", "0, 29, 0"))],
]


def run(copy: Path) -> str | None:
    """The name of the first test that fails, or None."""
    env = dict(os.environ, PYTHONPATH=str(copy), PYTHONDONTWRITEBYTECODE="1", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=line",
               *(f"tests/{name}" for name in TESTS)]
    try:
        done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return "the tests did not end"
    if not done.returncode:
        return None
    failed = next((line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), done.stdout[-80:])
    return failed.removeprefix("FAILED tests/").removeprefix("ERROR tests/").split(" - ")[0]


def main() -> int:
    survived, asked = [], sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("kvlib", "data", "tests"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "browser"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        for file, old, new in MUTANTS:
            if asked and not any(word == file or word in old for word in asked):
                continue
            path = copy / "kvlib" / file
            whole = path.read_text(encoding="utf-8")
            if old not in whole:
                print(f"STALE    {file}: {old!r} is not there any more")
                survived.append(old)
                continue
            path.write_text(whole.replace(old, new, 1), encoding="utf-8")
            killer = run(copy)
            path.write_text(whole, encoding="utf-8")
            print(f"{'killed  ' if killer else 'SURVIVED'} {file}: {old[:60]} -> {new[:40]}   {killer or ''}", flush=True)
            if not killer:
                survived.append(old)
    print(f"{len(MUTANTS) - len(survived)} passed, {len(survived)} failed" if not asked else f"{len(survived)} survived")
    return bool(survived)


if __name__ == "__main__":
    sys.exit(main())
