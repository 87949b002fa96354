"""Runs in a Python with vLLM: from the layers' specs and the available bytes to blocks, tokens and concurrency.

vLLM's own functions do the work, on the platform of its CPU build (blocks of 128 tokens, one batch in flight); only the
specs are stated here, which a launch reads off the loaded model. Answers as others.Child asks.
"""
import json
import os
import sys
import tempfile
import time

os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", VLLM_LOGGING_LEVEL="CRITICAL",
                  VLLM_HOST_IP="127.0.0.1")
answers = os.fdopen(os.dup(1), "w")  # vLLM prints to the ordinary output too
os.dup2(2, 1)

import torch  # noqa: E402
import vllm  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.v1.core import kv_cache_utils  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec  # noqa: E402

case = json.loads(sys.stdin.readline())
with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(case["config"], file)
    config = EngineArgs(model=folder, skip_tokenizer_init=True, load_format="dummy",
                        max_model_len=case["max_model_len"]).create_engine_config()
if hasattr(config.cache_config, "kv_cache_layout"):
    config.cache_config.kv_cache_layout = "LBNHC"

specs = {}
for number, layer in enumerate(case["layers"]):
    geometry = dict(block_size=case["block_size"], num_kv_heads=layer["num_kv_heads"], head_size=layer["head_dim"], dtype=torch.bfloat16)
    specs[f"model.layers.{number}.self_attn.attn"] = SlidingWindowSpec(**geometry, sliding_window=layer["sliding_window"]) \
        if layer["sliding_window"] else FullAttentionSpec(**geometry)


def call():
    workers = kv_cache_utils.get_kv_cache_configs(config, [dict(specs)], [case["available_bytes"]])
    scheduler = kv_cache_utils.generate_scheduler_kv_cache_config(workers)
    config.cache_config.num_gpu_blocks = scheduler.num_blocks
    return scheduler.num_blocks, *kv_cache_utils.get_kv_cache_capacity(config, scheduler)


print(json.dumps({"version": vllm.__version__, "answer": call()}), file=answers, flush=True)
for line in sys.stdin:
    start = time.process_time()
    for _ in range(int(line)):
        call()
    print((time.process_time() - start) / int(line), file=answers, flush=True)
