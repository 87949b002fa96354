"""Will it fit: budgets, verdicts, what helps, the way back, what is taken along; and the command line."""
import csv
import io
import json
import os
import random
import re
import sys
from dataclasses import replace
from types import ModuleType

import pytest

import kvlib
from kvlib import catalog
from kvlib.__main__ import main
from kvlib.command import read_command
from kvlib.budget import RESERVE
from kvlib.fit import fit
from kvlib.hub import download_config
from kvlib.improve import CARDS, card_map, improvements, needs
from kvlib.memory import Band, at
from kvlib.serve_line import serve_line, with_flags
from kvlib.take_along import figures, foretold, lines_to_expect, reopen, save, ticket, to_csv
from kvlib.units import GiB

GB10_LOG = catalog.log_text("qwen3-8b-gb10")


# -- the budget and the verdict ------------------------------------------------------------------

def test_a_measured_cache_gives_the_printed_figures_within_its_rounding():
    found = fit("Qwen3-8B", "--max-model-len 40960", gpu="GB10", vllm_version="0.28", log=GB10_LOG)
    assert found.exact and found.verdict.word == "passes"
    # 93.61 GiB printed is 93.605 to 93.615: whole blocks of 2,359,296 B, 16 tokens each
    assert found.low.kv_cache_tokens == int(93.605 * GiB) // 2_359_296 * 16 == 681_600
    assert found.high.kv_cache_tokens == int(93.615 * GiB) // 2_359_296 * 16
    assert found.say(found.low.max_concurrency, found.high.max_concurrency) == "16.64"


def test_before_a_launch_the_answer_is_a_range_and_names_what_settles_it():
    found = fit("Qwen3-8B", "--max-model-len 32768", gpu="RTX 4090")
    assert not found.exact and found.verdict.word == "close"
    assert "activations (0.2 to 1.7 GiB)" in found.settles and "Available KV cache memory" in found.settles
    assert set(found.assumed) == set(RESERVE)


def test_the_break_even_is_where_the_verdict_turns():
    """At the break-even one request just fits; a MiB more and it does not."""
    found = fit("Qwen3-8B", "--max-model-len 32768", gpu="RTX 4090")
    for more, word in ((0, "passes"), (1 / 1024, "refused")):
        typed = {"peak_activation_gib": found.verdict.break_even_bytes / GiB + more, "non_torch_gib": 0.0, "cuda_graph_gib": 0.0}
        assert fit("Qwen3-8B", "--max-model-len 32768", gpu="RTX 4090", **typed).verdict.word == word


@pytest.mark.parametrize("kwargs, word, said", [
    (dict(config="Qwen3-30B-A3B", gpu="RTX 4090"), "refused", "the weights, 56.88 GiB on each GPU, are larger than the GPU"),
    (dict(config="Qwen3-8B", gpu="GB10", free_gib=100.0), "refused", "111.9 GiB are requested, 100.0 GiB are free at start"),
    (dict(config="Qwen3-8B", gpu="RTX 4090", weights_gib=21.5), "refused", "nothing is left for the cache"),
    (dict(config="Llama-3.1-8B", gpu="L4"), "refused", "a request of 131,072 tokens needs 16.0 GiB of cache"),
    (dict(config="Qwen3-8B", gpu="H200"), "passes", ""),
])
def test_the_verdict_says_where_it_fails_first(kwargs, word, said):
    verdict = fit(**kwargs).verdict
    assert verdict.word == word and said in verdict.reason


def test_what_is_typed_replaces_what_is_assumed_and_narrows_the_answer():
    loose = fit("Qwen3-8B", "--max-model-len 8192", gpu="L40S")
    tight = fit("Qwen3-8B", "--max-model-len 8192", gpu="L40S", peak_activation_gib=1.0, non_torch_gib=0.5, cuda_graph_gib=0.5)
    assert tight.exact and tight.low.num_gpu_blocks == tight.high.num_gpu_blocks
    assert loose.low.num_gpu_blocks <= tight.low.num_gpu_blocks <= loose.high.num_gpu_blocks
    # L40S: 44.39 GiB reported; requested 0.92 of it, less 15.27, 1.0, 0.5 and 0.5
    card = catalog.gpu("L40S").total_bytes
    assert tight.low.available_bytes == -(-card * 92 // 100) - round(15.27 * GiB) - 2 * GiB


def test_more_of_the_card_never_means_less_cache():
    for name in ("Qwen3-8B", "gpt-oss-20b", "Qwen3.8-27B", "DeepSeek-V2-Lite"):
        blocks = [fit(name, f"--max-model-len 8192 --gpu-memory-utilization {share}", gpu="H100 SXM").low.num_gpu_blocks
                  for share in (0.5, 0.7, 0.9, 0.95)]
        assert blocks == sorted(blocks)


def test_a_log_of_other_flags_is_not_taken_for_this_launch():
    log = "non-default args: {'model': 'Qwen/Qwen3-8B', 'tensor_parallel_size': 1}\nAvailable KV cache memory: 93.61 GiB"
    one = fit("Qwen3-8B", "-tp 1", gpu="GB10", log=log)
    two = fit("Qwen3-8B", "-tp 2", gpu="GB10", log=log)
    assert one.exact and not two.exact
    assert any("tensor_parallel_size" in note for note in two.notes)
    other_card = one.changed(gpu="L4")
    assert not other_card.exact and other_card.terms["non_torch_bytes"].kind == "assumed"


def test_a_logged_reserve_carries_to_another_share_of_the_same_card():
    """The log gives requested − available; at another share the same is taken off: 0.92 → 0.90 loses 0.02 of the card."""
    log = "non-default args: {'model': 'Qwen/Qwen3-8B', 'gpu_memory_utilization': 0.92}\nAvailable KV cache memory: 93.61 GiB"
    lower = fit("Qwen3-8B", "--gpu-memory-utilization 0.90", gpu="GB10", log=log)
    total = catalog.gpu("GB10").total_bytes
    lost = -(-total * 92 // 100) - -(-total * 90 // 100)
    assert lower.exact and abs(lower.typical.available_bytes - (round(93.61 * GiB) - lost)) <= 2


def test_typed_weights_follow_the_number_of_gpus():
    found = fit("Qwen3-8B", "", gpu="RTX 4090", weights_gib=15.27)
    two = found.changed(tensor_parallel_size=2)
    assert 15.27 / 2 * 0.99 < at(two.memory.weights_bytes, "typical") / GiB < 15.27 / 2 * 1.01


def test_quantization_asked_for_in_the_command_counts():
    plain, narrow = (fit("Llama-3.1-8B", f"--max-model-len 8192 {flag}", gpu="L4") for flag in ("", "--quantization fp8"))
    ratio = at(narrow.memory.weights_bytes, "typical") / at(plain.memory.weights_bytes, "typical")
    assert 0.5 < ratio < 0.62   # embeddings and head stay in 16 bits


def test_a_checkpoint_folder_brings_its_own_weights(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(catalog.model_config("Qwen3-8B")))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 10 * GiB}}))
    found = fit(str(tmp_path), "", gpu="RTX 4090")
    assert found.terms["weights_bytes"] == (10 * GiB, "measured", "model.safetensors.index.json")
    assert reopen(save(found)).low.kv_cache_tokens == found.low.kv_cache_tokens   # and without the folder


def test_an_edited_file_is_read_again(tmp_path):
    file = tmp_path / "config.json"
    for layers in (36, 18):
        file.write_text(json.dumps(catalog.model_config("Qwen3-8B") | {"num_hidden_layers": layers}))
        os.utime(file, ns=(layers, layers))
        assert fit(str(file), gpu="H200").typical.plan.bytes_per_token == layers * 4096


@pytest.mark.parametrize("name, low, high", [("Qwen3-8B", 15.26, 15.27), ("Llama-3.3-70B", 131.4, 131.6)])
def test_weights_of_an_own_config_are_computed_with_their_band(name, low, high):
    config = {key: value for key, value in catalog.model_config(name).items() if key != "_source"}
    term = fit(config, "", gpu="B200").terms["weights_bytes"]
    assert term.kind == "computed" and isinstance(term.value, Band)
    assert low - 0.02 < term.value.typical / GiB < high + 0.02


@pytest.mark.parametrize("kwargs, said", [
    (dict(), "no model is given"), (dict(command="vllm serve --port 1"), "no model is given"),
    (dict(config="Qwen3-8B", free_gib=-1), "free_gib is -1"), (dict(config="Qwen3-8B", total_gib=0), "total_gib is 0"),
    (dict(config="Qwen3-8B", weights_gib="many"), "weights_gib is 'many'"), (dict(config="Qwen3-8B", weights_gib=float("nan")), "weights_gib"),
    (dict(config="Qwen3-8B", ram_gib=1), "fit has no argument ram_gib"), (dict(config="Qwen3-8B", gpu="ZX81"), "no gpu 'ZX81'"),
    (dict(config="Qwen3-8B", quantization="int3"), "int3"), (dict(config="Qwen3-8B", vllm_version="0.9"), "0.9"),
])
def test_what_cannot_be_read_is_one_sentence(kwargs, said):
    with pytest.raises(kvlib.SizingError, match=re.escape(said)) as caught:
        fit(**kwargs)
    assert "\n" not in str(caught.value)


# -- logs that ended badly, or are of something else ------------------------------------------------

FREE = ("(EngineCore pid=9) ValueError: Free memory on device cuda:0 (100.0/121.63 GiB) on startup is less than desired GPU memory "
        "utilization (0.92, 111.9 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.")
TOO_LONG = ("non-default args: {'model': 'meta-llama/Llama-3.1-8B', 'gpu_memory_utilization': 0.65}\n"
            "Model loading took 14.99 GiB memory and 3.1 seconds\nAvailable KV cache memory: 12.87 GiB\n"
            "ValueError: To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is needed, which "
            "is larger than the available KV cache memory (12.87 GiB). Based on the available memory, the estimated maximum model "
            "length is 105424. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.")


def test_free_memory_in_a_log_is_not_memory_for_the_cache():
    found = fit("Qwen3-8B", "--max-model-len 40960", gpu="GB10", log=FREE)
    assert found.verdict.word == "refused" and "111.9 GiB are requested, 100.0 GiB are free" in found.verdict.reason
    assert improvements(found)[0].name == "lower gpu_memory_utilization to 0.82"


def test_a_log_that_was_refused_never_passes_with_its_own_flags():
    found = fit(log=TOO_LONG, gpu="L40S")
    assert found.model.name == "Llama-3.1-8B" and found.verdict.word == "refused" and "12.87 GiB are left" in found.verdict.reason


def test_the_smallest_share_that_passes_is_offered():
    """16 GiB and the null block are needed, 12.87 are there: 3.14 GiB of 44.4 more, 0.0706; 0.65 becomes 0.73, not 0.95."""
    found = fit(log=TOO_LONG, gpu="L40S")
    first = improvements(found)[0]
    assert first.name == "raise gpu_memory_utilization to 0.73" and first.fit.verdict.word == "passes"
    assert found.changed(gpu_memory_utilization=0.72).verdict.word != "passes"


def test_a_log_of_another_model_or_card_is_not_used():
    other = fit("Qwen3-30B-A3B", "", gpu="RTX 4090", log=TOO_LONG)
    assert other.verdict.word == "refused" and "the log of meta-llama/Llama-3.1-8B is of another model" in other.cautions[0]
    small = fit("Qwen3-8B", "", gpu="RTX 4090", log="Available KV cache memory: 93.61 GiB")
    assert not small.exact and "of another gpu" in small.cautions[0]      # more than the card has


def test_the_logs_own_flags_stay_where_the_command_line_does_not_name_them(capsys, tmp_path):
    file = tmp_path / "server.log"
    file.write_text(TOO_LONG)
    assert main(["size", "-", "--gpu", "L40S", "--log", str(file), "--", "--max-model-len", "65536"]) == 0
    assert "--gpu-memory-utilization 0.65" in capsys.readouterr().out


def test_dtype_by_its_own_name_is_no_other_dtype():
    log = "non-default args: {'model': 'Qwen/Qwen3-8B', 'dtype': 'bfloat16'}\nAvailable KV cache memory: 4.5 GiB"
    assert fit("Qwen3-8B", "", gpu="RTX 4090", log=log).exact


# -- what vLLM refuses before or besides memory -----------------------------------------------------------

def test_a_length_above_the_models_own_is_refused():
    found = fit("Qwen3-8B", "--max-model-len 65536", gpu="H200")
    assert found.verdict.word == "refused" and "above the model's own maximum of 40,960" in found.verdict.reason
    assert improvements(found)[0].name == "lower max_model_len to 40,960"
    allowed = fit("Qwen3-8B", "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve Qwen/Qwen3-8B --max-model-len 65536", gpu="H200")
    assert allowed.verdict.word == "passes"


def test_free_memory_is_checked_with_a_fixed_cache_too():
    """vLLM 0.28 to 0.33 ask for the share of the card before they look at --kv-cache-memory-bytes."""
    assert fit("Qwen3-8B", "--max-model-len 8192 --kv-cache-memory-bytes 20000000000", gpu="GB10", free_gib=100.0).verdict.word == "refused"
    passes = fit("Qwen3-8B", "--max-model-len 8192 --kv-cache-memory-bytes 20000000000", gpu="GB10", free_gib=115.0)
    assert passes.verdict.word == "passes" and passes.exact
    assert passes.low.num_gpu_blocks == 20_000_000_000 // 2_359_296
    too_much = fit("Qwen3-8B", "--max-model-len 8192 --kv-cache-memory-bytes 20000000000", gpu="RTX 4090")
    assert "runs out of memory" in too_much.cautions[0]


def test_a_misspelt_flag_is_named():
    assert "did you mean --max-model-len?" in fit("Qwen3-8B", "--max-modellen 4096", gpu="H200").cautions[0]
    assert not fit("Qwen3-8B", "--port 1 --served-model-name x --max-logprobs 3", gpu="H200").cautions


def test_four_bit_weights_do_not_leave_under_a_16_bit_name():
    found = fit("Qwen3-30B-A3B", "vllm serve Qwen/Qwen3-30B-A3B --port 1", gpu="RTX 4090", quantization="awq")
    assert found.serve == "vllm serve A-AWQ-CHECKPOINT-OF/Qwen3-30B-A3B --port 1"
    assert "awq" in ticket(found).splitlines()[0] and "needs a checkpoint stored so" in found.cautions[0]


def test_secrets_stay_out_of_the_ticket():
    text = ticket(fit("Qwen3-8B", "vllm serve Qwen/Qwen3-8B --api-key 'my secret' --hf-token=abc123 --port 1", gpu="H200"))
    assert "my secret" not in text and "abc123" not in text and "--port 1" in text
# -- a log holds for its own set-up alone ------------------------------------------------------------------

def logged(line="INFO Available KV cache memory: 93.61 GiB", version=None, **flags):
    said = f"INFO vLLM API server version {version}\n" if version else ""
    return f"{said}INFO non-default args: {({'model': 'Qwen/Qwen3-8B'} | flags)!r}\n{line}"


@pytest.mark.parametrize("kwargs, said", [
    (dict(config="Llama-3.1-8B"), "another model"), (dict(command="--quantization fp8"), "another quantization"),
    (dict(quantization="fp8"), "another quantization"), (dict(command="--enable-lora"), "another enable_lora"),
    (dict(gpu="RTX 4090"), "another gpu"),                       # 93.61 GiB on a card of 24
    (dict(command="-dp 2"), "another data_parallel_size"), (dict(command="--attention-backend FLASHINFER"), "another attention_backend"),
    (dict(vllm_version="0.28", log=logged(version="0.33.0")), "another vllm_version"), (dict(command="--dtype float32"), "another dtype"),
    (dict(log=logged().replace("non-default args", "no args"), quantization="fp8"), "another quantization")])
def test_what_a_log_measured_is_not_taken_for_another_set_up(kwargs, said):
    found = fit(**dict(config="Qwen3-8B", gpu="GB10", log=logged()) | kwargs)
    words = said.removeprefix("another ")
    assert not found.exact and any("is of another" in note and words in note for note in (*found.notes, *found.cautions))
    assert all(found.terms[name].kind == "assumed" for name in RESERVE) and not foretold(found)


def test_a_finetune_s_log_is_taken_and_said_so():
    found = fit("Qwen3-8B", gpu="GB10", log=logged(model="me/my-finetune"))
    assert found.exact and any("the log is of me/my-finetune" in note for note in found.notes)


@pytest.mark.parametrize("version, share", [("0.19.0", 0.90), ("0.28.0", 0.92)])
def test_a_log_s_share_is_its_own_version_s(version, share):
    """Up to 0.19.1 vLLM asks for 0.90 of the card by itself: the printed memory is that launch's, to the last digit."""
    found = fit("Qwen3-8B", gpu="GB10", log=logged(version=version))
    assert found.typical.plan.setup.gpu_memory_utilization == share
    assert found.terms["available"].kind == "measured" and found.low.num_gpu_blocks == int(93.605 * GiB) // 2_359_296


REFUSED = ("ValueError: To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is needed, "
           "which is larger than the available KV cache memory (6.31 GiB). "
           "Based on the available memory, the estimated maximum model length is 51664.")


@pytest.mark.parametrize("version, held", [("0.28.0", 0), ("0.33.0", 1)])
def test_a_refusal_s_figure_gets_its_null_block_back(version, held):
    """Llama-3.1-8B: 131,072 B a token, 2 MiB a block; since 0.29 the refusal prints the memory without the null block."""
    found = fit("Llama-3.1-8B", gpu="RTX 4090", log=logged(REFUSED, version, model="meta-llama/Llama-3.1-8B"))
    assert found.low.num_gpu_blocks == int(6.305 * GiB) // (2 << 20) + held
    assert found.low.estimated_max_model_len == int(6.305 * GiB) // (2 << 20) * 16
    assert found.low.estimated_max_model_len <= 51_664 <= found.high.estimated_max_model_len


def test_free_memory_of_a_refusal_is_no_cache():
    line = ("ValueError: Free memory on device cuda:0 (18.5/23.52 GiB) on startup is less than desired GPU memory utilization "
            "(0.92, 21.64 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.")
    found = fit("Qwen3-8B", gpu="RTX 4090", log=logged(line, "0.33.0"))
    assert found.verdict.word == "refused" and "21.64 GiB are requested, 18.5" in found.verdict.reason
    assert "available" not in found.terms


def test_another_share_closes_with_the_log_s_own_rounding_alone():
    """Printed to ±0.005 GiB: 0.01 GiB between the ends, not more because weights were printed too."""
    log = logged("INFO Model loading took 15.27 GiB\nINFO Available KV cache memory: 93.61 GiB", gpu_memory_utilization=0.92)
    found = fit("Qwen3-8B", "--gpu-memory-utilization 0.9", gpu="GB10", log=log)
    assert abs(found.high.available_bytes - found.low.available_bytes - 0.01 * GiB) <= 2


# -- what is known of a set-up, and what is not ----------------------------------------------------------------

def test_weights_of_another_type_or_with_drafts_are_not_those_a_launch_printed():
    """15.27 GiB were printed for 16 bits; 8,190,735,360 parameters × 4 B are 30.5 GiB."""
    wide = fit("Qwen3-8B", "--dtype float32", gpu="H100 SXM").terms["weights_bytes"]
    assert wide.kind == "computed" and 30.2 < at(wide.value, "typical") / GiB < 30.8
    plain, drafts = (fit("DeepSeek-V3", f"-tp 8 {flag}", gpu="B200") for flag in
                     ("", '--speculative-config \'{"method": "mtp", "num_speculative_tokens": 1}\''))
    assert drafts.terms["weights_bytes"].kind == "computed"
    assert at(drafts.memory.weights_bytes, "high") > at(plain.memory.weights_bytes, "high")


def test_a_cache_of_fixed_size_does_not_make_the_weights_fit():
    found = fit("Qwen3-30B-A3B", "--kv-cache-memory-bytes 5G --max-model-len 8192", gpu="RTX 4090")
    assert found.verdict.word == "refused" and "56.88 GiB on each GPU, are larger" in found.verdict.reason
    found = fit("Qwen3-8B", "--kv-cache-memory-bytes 10G --max-model-len 8192", gpu="RTX 4090")
    assert "take at least" in found.cautions[0] and "runs out of memory" in found.cautions[0]      # 15.27 + 10 and a reserve, of 23.53


def test_a_fixed_cache_beside_weights_that_are_a_band():
    """Llama-3.1-8B in 16 bits, 8,030,261,248 × 2 B = 14.96 GiB, may load 0.99 to 1.03 times that: 14.81 to 15.41."""
    config = {k: v for k, v in catalog.model_config("Llama-3.1-8B").items() if k != "_source"}
    for flag in ("--kv-cache-memory-bytes 2G", "--num-gpu-blocks-override 1024"):
        found = [fit(config, f"{flag} --max-model-len 8192", gpu="L4", total_gib=total).verdict for total in (14.7, 15.0, 15.5)]
        assert [verdict.word for verdict in found] == ["refused", "close", "passes"]
        assert "if the weights take at most 15.0 GiB" in found[1].reason


def test_a_cpu_has_no_share_of_a_card():
    with pytest.raises(kvlib.EngineError, match="VLLM_CPU_KVCACHE_SPACE"):
        fit("Qwen3-8B", "--device cpu", gpu="H100 SXM")
    found = fit("Qwen3-8B", "--device cpu --kv-cache-memory-bytes 4G --max-model-len 4096")
    assert found.low.num_gpu_blocks == (4 << 30) // (128 * 147_456)     # blocks of 128 tokens


@pytest.mark.parametrize("flag, note", [("compressed-tensors", True), ("torchao", True), ("fp8", False), ("awq_marlin", False)])
def test_a_quantization_that_is_not_known_is_said(flag, note):
    found = fit("Llama-3.1-8B", f"--quantization {flag}", gpu="L4")
    assert any("is not known here" in said for said in found.notes) == note == (found.quantization is None)


def test_the_config_s_own_quantization_wins_over_the_flag():
    config = {k: v for k, v in catalog.model_config("Llama-3.1-8B").items() if k != "_source"} | {
        "quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": -1}}
    plain, flagged = (fit(config, flag, gpu="L40S").memory.weights_bytes for flag in ("", "--quantization gptq"))
    assert plain == flagged


def test_the_break_even_of_auto_fit_is_one_token():
    """16.1 GiB requested less 15.27 of weights, less one block for a token and the null block, 2.25 MiB each: 0.8256 GiB."""
    verdict = fit("Qwen3-8B", "--max-model-len -1", gpu="RTX 4090", total_gib=17.5).verdict
    assert verdict.word == "close" and "at most 0.82 GiB together" in verdict.reason


def test_the_break_even_that_is_printed_passes():
    """It is rounded down: typed as it stands there, the launch passes."""
    for gpu in ("L4", "RTX 4090", "A10"):
        found = fit("Qwen3-8B", "--max-model-len 32768", gpu=gpu)
        if found.verdict.break_even_bytes:
            most = float(re.search(r"at most ([\d.]+) GiB", found.verdict.reason)[1])
            assert fit("Qwen3-8B", "--max-model-len 32768", gpu=gpu, peak_activation_gib=most, non_torch_gib=0.0,
                       cuda_graph_gib=0.0).verdict.word == "passes"


# -- what helps -----------------------------------------------------------------------------------

def test_every_improvement_does_what_it_says():
    for name, command, gpu in (("Qwen3-8B", "--max-model-len 32768", "RTX 4090"), ("Llama-3.3-70B", "-tp 2", "H100 SXM"),
                               ("Qwen3.8-27B", "--max-model-len 65536", "A100 80GB SXM"), ("gpt-oss-20b", "", "L4")):
        before = fit(name, command, gpu=gpu)
        for each in improvements(before):
            again = fit(name, with_flags(command, **each.flags) if each.flags else command, gpu=gpu,
                        quantization=each.quantization, **each.typed)
            assert (again.verdict.word, again.low.num_gpu_blocks) == (each.fit.verdict.word, each.fit.low.num_gpu_blocks), each.name
            rank = ("refused", "close", "passes").index
            assert rank(again.verdict.word) >= rank(before.verdict.word)


def test_what_passes_comes_first_and_fewer_gpus_hide_more():
    found = improvements(fit("Qwen3-30B-A3B", "--max-model-len 32768", gpu="RTX 4090"))
    words = [each.fit.verdict.word for each in found]
    assert words == sorted(words, key=("passes", "close", "refused").index)
    assert [each.flags.get("tensor_parallel_size") for each in found].count(4) == 1
    assert not any(each.flags.get("tensor_parallel_size") == 8 for each in found)


def test_memory_held_by_others_can_be_freed():
    found = improvements(fit("Qwen3-8B", "", gpu="GB10", free_gib=100.0))
    assert [each.name for each in found[:2]] == [
        "lower gpu_memory_utilization to 0.82", "free 11.9 GiB held by other processes"]   # 100 ÷ 121.63 = 0.822
    assert all(each.fit.verdict.word == "passes" for each in found[:2])


# -- the way back ---------------------------------------------------------------------------------

def test_the_memory_needed_is_the_least_that_holds_the_requests():
    """Qwen3-8B, 8 requests of 32,768 tokens: 8 × 2,048 blocks and the null block, 2,359,296 B each."""
    found = fit("Qwen3-8B", "--max-model-len 40960", gpu="L4")
    need = needs(found, 8, 32_768)
    assert need.available_bytes == (8 * 2_048 + 1) * 2_359_296
    for less, holds in ((0, True), (1, False)):
        s = kvlib.size(found.model, found.engine, available_bytes=need.available_bytes - less)
        assert (s.num_gpu_blocks - 1 >= 8 * 2_048) == holds


@pytest.mark.parametrize("requests, tokens", [(1, 1_000), (8, 4_096), (64, 16_384)])
def test_the_card_found_holds_them_and_the_one_below_does_not(requests, tokens):
    found = fit("Llama-3.1-8B", "--max-model-len 16384", gpu="L4")
    surely, _ = needs(found, requests, tokens).gpu
    cards = sorted(CARDS, key=lambda name: catalog.gpu(name).total_bytes)

    def enough(card):
        low = fit("Llama-3.1-8B", "--max-model-len 16384", gpu=card).low
        return low.fits and low.num_gpu_blocks >= requests * low.plan.blocks_per_request(tokens)

    if surely is None:
        assert not any(map(enough, cards))
    else:
        assert enough(surely) and not any(map(enough, cards[:cards.index(catalog.gpu(surely).name)]))


def test_the_states_of_so_many_sequences_are_part_of_the_need():
    """With a card named, max_num_seqs is checked against the blocks: fewer than 256 blocks would be refused."""
    found = fit("Nemotron-3-Nano-30B-A3B", "--max-model-len 32768 --max-num-seqs 256", gpu="A100 80GB SXM")
    need = needs(found, 1, 1_000)
    assert need.blocks == 256
    assert [kvlib.size(found.model, found.engine, available_bytes=need.available_bytes - less).outcome for less in (0, 1)] == \
        ["passes", "max_num_seqs"]


@pytest.mark.parametrize("command", ["--gpu-memory-utilization 0.9555", "--enforce-eager", "--gpu-memory-utilization 0.3"])
def test_the_card_needed_is_enough_and_the_least(command):
    found = fit("Qwen3-8B", f"--max-model-len 8192 {command}", gpu="L4", peak_activation_gib=1.0, non_torch_gib=0.5, cuda_graph_gib=2.0)
    total = needs(found, 8, 8_192).total_bytes[1]
    for less, enough in ((0, True), (2, False)):
        memory = replace(found.memory, total_bytes=total - less)
        assert (kvlib.size(found.model, found.engine, memory=memory).num_gpu_blocks >= 8 * 512 + 1) == enough


def test_a_fixed_cache_says_nothing_of_another_card():
    found = fit("Qwen3-8B", "--kv-cache-memory-bytes 60G --max-model-len 8192", gpu="L4")
    assert needs(found, 40, 8_192).gpu == needs(fit("Qwen3-8B", "--max-model-len 8192", gpu="L4"), 40, 8_192).gpu


def test_a_card_that_vllm_refuses_is_passed_over():
    """Blocks of 16 do not suit the backend for latent attention on a B200."""
    assert needs(fit("DeepSeek-V2-Lite", "--block-size 16 --max-model-len 8192", gpu="L40S"), 1, 4_096).gpu[0]


def test_the_map_agrees_with_the_panel_cell_by_cell():
    found = fit("Qwen3-32B", "--max-model-len 16384", gpu="L40S")
    for cell in card_map(found):
        alone = fit("Qwen3-32B", f"--max-model-len 16384 -tp {cell.tensor_parallel_size}", gpu=cell.gpu)
        assert cell.word == alone.verdict.word
        if cell.word != "refused":
            assert cell.high == pytest.approx(alone.high.max_concurrency)


def test_a_split_that_vllm_refuses_is_a_cell_with_a_reason():
    cells = card_map(fit("Qwen2.5-1.5B", "", gpu="L4"), ["L4"], [1, 8])
    assert cells[1].word == "unknown" and "must divide the 12 attention heads" in cells[1].reason


# -- the command there and back ---------------------------------------------------------------------

COMMANDS = [
    "vllm serve Qwen/Qwen3-8B --max-model-len 32768 --port 8000 --api-key 'a b'",
    "vllm serve m/x -tp 4 --kv-cache-dtype fp8 --no-enable-prefix-caching --enforce-eager --trust-remote-code",
    'vllm serve m/x --speculative-config \'{"method": "mtp", "num_speculative_tokens": 3}\' --max-num-seqs 64',
    "vllm serve m/x --enable-lora --max-loras 4 --gpu-memory-utilization=0.9 --hf-overrides '{\"a\": {\"b\": 1}}'",
    '["--model", "m/x", "--tensor-parallel-size", "2", "--max-model-len", "8k"]',
    "- serve\n- m/x\n- --max-model-len\n- '4096'\n- --swap-space\n- '4'",
    "non-default args: {'model': 'm/x', 'max_model_len': 8192, 'enforce_eager': True, 'port': 1}",
]


@pytest.mark.parametrize("text", COMMANDS)
def test_command_engine_command(text):
    engine, other = read_command(text)
    again, rest = read_command(serve_line(engine, other))
    assert again == engine and rest.model == other.model and rest.takes_memory == other.takes_memory
    assert {name: str(value) for name, value in rest.given.items()} == \
        {name: str(value) if not isinstance(value, bool) else str(value) for name, value in other.given.items()}


@pytest.mark.parametrize("seed", range(20))
def test_any_flag_set_is_read_back(seed):
    draw = random.Random(seed)
    flags = {"max_model_len": draw.choice([None, -1, 4096, 131072]), "tensor_parallel_size": draw.choice([1, 2, 8]),
             "gpu_memory_utilization": draw.choice([None, 0.9, 0.955]), "kv_cache_dtype": draw.choice(["auto", "fp8", "fp8_e5m2"]),
             "enforce_eager": draw.random() < 0.5, "enable_prefix_caching": draw.random() < 0.5,
             "max_num_seqs": draw.choice([None, 16]), "block_size": draw.choice([None, 64])}
    text = draw.choice(COMMANDS)
    line = with_flags(text, **flags)
    engine, other = read_command(line)
    defaults = kvlib.Engine()
    assert all(getattr(engine, name) == (getattr(defaults, name) if value is None else value) for name, value in flags.items())
    kept = {name for name in read_command(text)[1].given if name not in kvlib.Engine.__dataclass_fields__}
    assert kept <= set(other.given)
    assert with_flags(line, **flags) == line


# -- taken along --------------------------------------------------------------------------------------

SETUPS = [dict(config="Qwen3-8B", command="vllm serve Qwen/Qwen3-8B --max-model-len 32768 --port 9", gpu="RTX 4090"),
          dict(config="Qwen3.8-27B", command="-tp 2 --kv-cache-dtype fp8", gpu="A100 80GB SXM", non_torch_gib=2.1),
          dict(config={k: v for k, v in catalog.model_config("gpt-oss-20b").items() if k != "_source"}, gpu="L4"),
          dict(config="Qwen3-8B", command="--max-model-len 40960", gpu="GB10", log=GB10_LOG, free_gib=119.0),
          dict(config="Llama-3.1-8B", command="--quantization fp8", gpu="L40S", vllm_version="0.28")]


@pytest.mark.parametrize("asked", SETUPS)
def test_export_and_reopen_give_the_same_figures(asked):
    found = fit(**asked)
    again = reopen(json.dumps(json.loads(save(found))))
    assert figures(again) == figures(found) and again.verdict == found.verdict
    assert save(again) == save(found)


@pytest.mark.parametrize("text, said", [("{", "not JSON"), ("[]", "kvlib_fit"), ('{"kvlib_fit": 2}', "kvlib_fit"),
                                        ('{"kvlib_fit": 1, "config": "Qwen3-8B", "rm": 1}', "rm")])
def test_a_file_that_is_no_saved_set_up(text, said):
    with pytest.raises(kvlib.ConfigError, match=said):
        reopen(text)


def test_the_ticket_says_all_that_is_needed_to_check_it():
    text = ticket(fit(**SETUPS[0] | {"command": SETUPS[0]["command"] + " --enable-lora"}), 4_096)
    assert "too close to call" in text and "vllm serve Qwen/Qwen3-8B --max-model-len 32768 --port 9 --enable-lora" in text
    assert "| activations | 0.20 to 1.70 | assumed |" in text and "vLLM 0.33" in text
    assert "Available KV cache memory: between 2.73 and 5.98 GiB" in text   # 21.65 − 15.27 − (0.40 … 3.65)
    assert "below 4.5 GiB vLLM stops: lower max_model_len to" in text and "LoRA" in text and "Not checked" in text


def test_below_the_figure_of_the_ticket_vllm_does_stop():
    found = fit(**SETUPS[0])
    least = float(re.search(r"below ([\d.]+) GiB", lines_to_expect(found)[1])[1])
    assert not kvlib.size(found.model, found.engine, available_bytes=round((least - 0.01) * GiB)).fits
    assert kvlib.size(found.model, found.engine, available_bytes=round((least + 0.01) * GiB)).fits


def test_the_real_log_stands_beside_what_was_foretold():
    rows = {row.figure: row for row in foretold(fit(**SETUPS[3]))}
    assert rows["GPU KV cache size (tokens)"].printed == 681_600
    assert rows["GPU KV cache size (tokens)"].verdict == "inside"
    assert foretold(fit(**SETUPS[0])) == ()
    short = fit("Qwen3-8B", "--max-model-len 8192", gpu="L4", log="Available KV cache memory: 0.5 GiB")
    assert foretold(short)[0].verdict == "below"


def test_csv_reads_back():
    rows = [figures(fit(**asked)) for asked in SETUPS[:2]]
    assert [row["model"] for row in csv.DictReader(io.StringIO(to_csv(rows)))] == ["Qwen3-8B", "Qwen3.8-27B"]


EVIL = '<script>alert(1)</script>|`x`*b*[l](javascript:1)"'


def test_a_name_of_others_means_nothing_in_a_ticket():
    config = {k: v for k, v in catalog.model_config("Llama-3.1-8B").items() if k != "_source"} | {"_name_or_path": EVIL}
    text = ticket(fit(config, "vllm serve x --max-model-len 8192 --chat-template 'a\n```\nb|c'", gpu="L40S"))
    first = text.splitlines()[0]
    assert not re.search(r"(?<!\\)[<|`\[]", first) and "script" in first
    assert text.count("\n````") == 2 and "\n```\nb|c'" in text     # a longer fence than the one inside


@pytest.mark.parametrize("name", ["=1+1", "@SUM(1)", "-2+3", "+1", '=cmd|"/c calc"!A1'])
def test_a_name_is_no_formula_in_a_spreadsheet(name):
    row = next(csv.DictReader(io.StringIO(to_csv([{"name": name, "less": -3}]))))
    assert row == {"name": "'" + name, "less": "-3"}


@pytest.mark.parametrize("name, value", [("command", 5), ("command", ["a"]), ("log", 5), ("gpu", {"a": 1}), ("quantization", []),
                                         ("vllm_version", 28)])
def test_a_saved_set_up_with_another_kind_of_value(name, value):
    with pytest.raises(kvlib.ConfigError, match=f"{name} .*must be text"):
        reopen(json.dumps({"kvlib_fit": 1, "config": "Qwen3-8B", name: value}))


# -- the command line -----------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments, status", [
    (["size", "Qwen3-8B", "--gpu", "H200", "--", "--max-model-len", "8192"], 0),
    (["size", "Qwen3-30B-A3B", "--gpu", "RTX 4090"], 1), (["size", "Qwen3-8B", "--gpu", "RTX 4090", "--", "--max-model-len=32768"], 3),
    (["size", "nothing-of-that-name", "--gpu", "L4"], 2), (["size", "-", "--gpu", "H200", "--", "serve", "Qwen/Qwen3-8B"], 0),
    (["log", os.fspath(catalog.data_dir() / "logs" / "qwen3-8b-gb10.log"), "--config", "Qwen3-8B"], 0), (["log", "no-such.log"], 2),
])
def test_the_exit_status_is_the_verdict(arguments, status, capsys):
    assert main(arguments) == status
    said = capsys.readouterr()
    assert bool(said.err) == (status == 2) and "Traceback" not in said.err
    assert len(said.err.strip().splitlines()) <= 1


def test_the_command_line_says_what_the_package_says(capsys):
    main(["size", "Qwen3-8B", "--gpu", "RTX 4090", "--json", "--", "--max-model-len", "32768"])
    told, found = json.loads(capsys.readouterr().out), fit("Qwen3-8B", "--max-model-len 32768", gpu="RTX 4090")
    assert {name: told[name] for name in figures(found)} == figures(found) and told["reason"] == found.verdict.reason
    assert [each["change"] for each in told["improvements"]] == [each.name for each in improvements(found)]
    main(["size", "Qwen3-8B", "--gpu", "RTX 4090", "--save", "--", "--max-model-len", "32768"])
    assert reopen(capsys.readouterr().out).verdict.word == "close"


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs devices")
def test_a_device_is_not_read_as_a_log(capsys):
    assert main(["log", "/dev/zero"]) == 2 == main(["size", "Qwen3-8B", "--log", "/dev/zero"])
    assert "is not a file" in capsys.readouterr().err


# -- the Hub, only when asked ------------------------------------------------------------------------------

def test_nothing_is_fetched_unless_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(kvlib.ConfigError, match="no model 'some/model'"):
        fit("some/model", gpu="L4")
    with pytest.raises(kvlib.ConfigError, match="pip install huggingface_hub"):
        download_config("some/model")


def test_a_config_from_the_hub(monkeypatch, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({k: v for k, v in catalog.model_config("Qwen3-8B").items() if k != "_source"}))
    hub = ModuleType("huggingface_hub")
    hub.hf_hub_download = lambda repo, name: str(file) if repo == "me/mine" and name == "config.json" else 1 / 0
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert fit(download_config("me/mine"), gpu="L4").model.name == "me/mine"
    for name, said in (("me/other", "the Hub gave no config.json"), ("../../etc", "not a name on the Hub"), ("x", "owner/model")):
        with pytest.raises(kvlib.ConfigError, match=re.escape(said)):
            download_config(name)




@pytest.mark.parametrize("gpu", ["L4", "RTX 4090", "H100 SXM 80GB"])
@pytest.mark.parametrize("model", ["Qwen3-8B", "Qwen3-30B-A3B", "gpt-oss-120b"])
def test_the_first_few_improvements_are_those_of_the_whole_list(model, gpu):
    found = fit(model, "--max-model-len 20000", gpu=gpu)
    every = [(each.name, each.gain) for each in improvements(found)]
    for most in (1, 2, 4):
        assert [(each.name, each.gain) for each in improvements(found, most)] == every[:most]


@pytest.mark.parametrize("model, gpu", [("Qwen3-30B-A3B", "RTX 4090"), ("Qwen3-30B-A3B", "L4"), ("gpt-oss-120b", "H100 SXM 80GB"), ("Qwen3-8B", "L4"),
                                        ("Llama-3.3-70B", "H100 SXM 80GB")])
@pytest.mark.parametrize("typed", [{}, {"free_gib": 10.0}, {"weights_gib": 200.0}, {"available_gib": 3.0}])
def test_what_cannot_help_is_left_out_and_nothing_else(model, gpu, typed, monkeypatch):
    """Where the weights are larger than the card, changes that leave them so are not tried."""
    from kvlib import improve

    def told():
        return [(each.name, each.gain) for each in improvements(fit(model, "--max-model-len 16384", gpu=gpu, **typed), 4)]

    few = told()
    monkeypatch.setattr(improve, "_too_large", lambda found: False)
    assert few == told()
