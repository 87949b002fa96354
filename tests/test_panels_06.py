"""The panel of notebook 06 without a browser: command and controls agree, nothing is lost, chips do what they say."""
import csv
import io
import json

import pytest

pytest.importorskip("ipywidgets")

import notebook_store as store  # noqa: E402

import kvlib  # noqa: E402
from kvlib import catalog, controls  # noqa: E402
from kvlib.command import read_command  # noqa: E402
from kvlib.fit import fit  # noqa: E402
from kvlib.improve import card_map, improvements  # noqa: E402
from kvlib.panels import own_pictures, size_your_own  # noqa: E402
from kvlib.panels.size_your_own import COMPARE, LENGTHS, MAP, SizeYourOwn  # noqa: E402
from kvlib.take_along import figures, reopen, save  # noqa: E402
from kvlib.workshop import check  # noqa: E402

NOTEBOOK = store.NOTEBOOKS / "06_size_your_own.ipynb"
EIGHT = {key: value for key, value in catalog.model_config("Qwen3-8B").items() if key != "_source"}
LOG = ("INFO (APIServer pid=1) [utils.py:233] non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 8192, 'port': 8001}\n"
       "INFO (EngineCore pid=2) Available KV cache memory: 4.5 GiB\n")


@pytest.fixture(autouse=True)
def fresh_kernel(monkeypatch):
    monkeypatch.setenv("KVLIB_STRICT", "1")
    controls.forget()
    yield
    controls.forget()


@pytest.fixture
def panel():
    return SizeYourOwn()


def rule_of(panel):
    """The package's own answer to what stands in the boxes."""
    s = panel.values
    typed = {name: getattr(s, name) for name in size_your_own.TYPED if getattr(s, name) is not None}
    return fit(s.config, s.command, log=s.log, gpu=s.gpu, vllm_version=s.vllm_version, quantization=s.quantization, **typed)


# -- the command is the one truth --------------------------------------------------------------------

@pytest.mark.parametrize("name, value, flag", [
    ("max_model_len", 8_192, "--max-model-len 8192"), ("tensor_parallel_size", 4, "--tensor-parallel-size 4"),
    ("gpu_memory_utilization", 0.85, "--gpu-memory-utilization 0.85"), ("kv_cache_dtype", "fp8", "--kv-cache-dtype fp8")])
def test_a_control_writes_its_flag_into_the_command(panel, name, value, flag):
    panel.set(command="vllm serve Qwen/Qwen3-30B-A3B --port 8000 --api-key secret --max-model-len 32768")
    panel.set(**{name: value})
    assert flag in panel.raw["command"] and "--port 8000 --api-key secret" in panel.raw["command"]
    assert getattr(read_command(panel.raw["command"])[0], name) == value and not panel.error


def test_the_controls_follow_the_command(panel):
    panel.set(command="vllm serve Qwen/Qwen3-30B-A3B -tp 2 --max-model-len 16k --kv-cache-dtype fp8 --gpu-memory-utilization 0.8")
    assert [panel.raw[name] for name in size_your_own.FLAGS] == ["16,000", "2", "0.80", "fp8"]
    panel.set(command="vllm serve Qwen/Qwen3-30B-A3B")   # the model's own maximum, and vLLM's own share
    assert [panel.raw[name] for name in size_your_own.FLAGS] == ["40,960", "1", "0.92", "auto"]


def test_model_and_command_follow_each_other(panel):
    panel.set(config="Qwen3-8B")
    assert "Qwen/Qwen3-8B" in panel.raw["command"] and "--max-model-len 32768" in panel.raw["command"]
    panel.set(command="vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192")
    assert panel.raw["config"] == "Llama-3.1-8B" and panel.values.max_model_len == 8_192
    panel.set(command="vllm serve me/a-finetune --max-model-len 8192")   # not in the catalogue: the box keeps its model, and says so
    assert panel.raw["config"] == "Llama-3.1-8B" and "the command names me/a-finetune" in panel.view.note.lower()


def test_the_answer_is_the_packages_own(panel):
    for changes in ({"gpu": "H100 SXM 80GB"}, {"tensor_parallel_size": 2}, {"quantization": "FP8"}, {"max_model_len": 8_192},
                    {"non_torch_gib": "1.5"}, {"config": json.dumps(EIGHT)}, {"vllm_version": "0.28"}):
        panel.set(**changes)
        found, text = rule_of(panel), panel.plain()
        assert not panel.error
        if found.verdict.word != "refused":
            assert f"{found.say(found.low.max_concurrency, found.high.max_concurrency)} requests of" in text
            assert f"{found.say(*found.requests_of(panel.values.tokens))} of {panel.values.tokens:,}" in text
        assert {"passes": "Passes vLLM's memory checks", "close": "Too close to call", "refused": "Refused"}[found.verdict.word] in text


# -- the log -------------------------------------------------------------------------------------------

def test_a_log_brings_its_flags_and_they_can_be_had_back(panel):
    panel.set(gpu="RTX 4090", command="vllm serve mine --max-model-len 999 --port 5", config="Qwen3-32B")
    before = dict(panel.raw)
    panel.set(log=LOG)
    assert panel.raw["config"] == "Qwen3-8B" and "--max-model-len 8192 --port 8001" in panel.raw["command"]
    # 4.5 GiB printed: 4.495 to 4.505 GiB in blocks of 2,359,296 B and 16 tokens
    assert f"{int(4.495 * 2**30) // 2_359_296 * 16:,} to {int(4.505 * 2**30) // 2_359_296 * 16:,} tokens" in panel.plain()
    assert "Foretold and printed" in panel.plain()
    panel.undo()
    assert panel.raw == before


def test_a_log_without_flags_keeps_the_command(panel):
    panel.set(gpu="H100 SXM 80GB")
    command = panel.raw["command"]
    panel.set(log="Available KV cache memory: 12.5 GiB")
    assert panel.raw["command"] == command and rule_of(panel).exact


# -- chips ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("start", [{}, {"config": "Qwen3-8B", "max_model_len": 32_768}, {"config": "Llama-3.3-70B", "gpu": "H100 SXM 80GB"},
                                   {"gpu": "GB10 (DGX Spark)", "free_gib": "90"}])
def test_each_chip_gives_what_it_says_and_is_undone(start):
    count = len(improvements(_started(start)[1])[:size_your_own.CHIPS])
    assert count
    for number in range(count):
        panel, found = _started(start)
        wanted, before = improvements(found)[number], dict(panel.raw)
        panel.apply(str(number))
        after = rule_of(panel)
        assert not panel.error
        assert (after.verdict.word, after.low.num_gpu_blocks) == (wanted.fit.verdict.word, wanted.fit.low.num_gpu_blocks), wanted.name
        panel.undo()
        assert panel.raw == before


def _started(start):
    controls.forget()
    panel = SizeYourOwn()
    for name, value in start.items():
        panel.set(**{name: value})
    return panel, rule_of(panel)


def test_undo_keeps_what_was_typed_since(panel):
    panel.apply("0")
    panel.set(tokens=2_048)
    panel.undo()
    assert panel.values.tokens == 2_048 and panel.values.tensor_parallel_size == 1


def test_undo_takes_its_flag_back_out_of_a_command_changed_since(panel):
    label = next(action for action in panel.view.actions if "tensor_parallel_size" in action.label)
    panel.apply(label.key)
    panel.set(kv_cache_dtype="fp8")
    panel.undo()
    engine = read_command(panel.raw["command"])[0]
    assert (engine.tensor_parallel_size, panel.values.tensor_parallel_size) == (1, 1) and engine.kv_cache_dtype == "fp8"


def test_the_controls_follow_the_new_model_of_a_command(panel):
    panel.set(config="Llama-3.1-8B")
    panel.set(command="vllm serve Qwen/Qwen3-8B")
    assert (panel.raw["config"], panel.values.max_model_len) == ("Qwen3-8B", 40_960)
    panel.set(log=LOG.replace("Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B").replace(", 'max_model_len': 8192", ""))
    assert (panel.raw["config"], panel.values.max_model_len) == ("Llama-3.1-8B", 131_072)


def test_an_empty_command_is_the_log_s(panel):
    panel.set(log=LOG)
    panel.set(command="")
    assert not panel.error and panel.values.max_model_len == 8_192
    panel.set(tensor_parallel_size=2)
    assert "--max-model-len 8192 --port 8001" in panel.raw["command"]


def test_every_covered_version_can_be_chosen_by_a_log(panel):
    for minor in range(18, 34):
        panel.set(log=f"INFO vLLM API server version 0.{minor}.0\n{LOG}")
        assert panel.raw["vllm_version"] == f"0.{minor}" and not panel.error


HOSTILE = "<script>alert(1)</script>\"'|=1"


def test_a_hostile_name_is_text_wherever_it_stands(panel):
    panel.set(config=json.dumps(EIGHT | {"_name_or_path": HOSTILE}), show=COMPARE)
    panel.set(command=f'vllm serve x --max-model-len 8192 --enable-lora --served-model-name "{HOSTILE.replace(chr(34), "")}"')
    panel.apply("keep")
    assert "<script" not in str(panel.fallback()) and "&lt;script&gt;" in str(panel.fallback())
    shown = panel._shown()
    assert not any("<script" in str(shown[name]) for name in ("answer", "note", "table", "actions"))


def test_kept_set_ups_stand_side_by_side(panel):
    for gpu in ("A100 80GB SXM", "H100 SXM 80GB"):
        panel.set(gpu=gpu)
        panel.apply("keep")
    panel.set(show=COMPARE)
    assert [row["label"].split(",")[1].strip() for row in panel.view.rows["compare"] if row["label"]] == ["A100 80GB SXM", "H100 SXM 80GB"]
    name, text = panel.take("csv", panel.values)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert name.endswith(".csv") and [row["gpu"] for row in rows] == ["H100 SXM 80GB", "A100 80GB SXM", "H100 SXM 80GB"]
    for _ in range(10):
        panel.apply("keep")
    assert len(panel._kept_setups()) == own_pictures.COMPARED
    panel.apply("forget")
    assert not panel._kept_setups()


# -- taken along ------------------------------------------------------------------------------------------

def test_save_and_drop_it_back(panel):
    for name, value in {"config": json.dumps(EIGHT), "gpu": "L4", "max_model_len": 8_192, "quantization": "FP8", "weights_gib": "9.1",
                        "kv_cache_dtype": "fp8"}.items():
        panel.set(**{name: value})
    before, (name, text) = figures(rule_of(panel)), panel.take("json", panel.values)
    controls.forget()
    again = SizeYourOwn()
    again.set(config=text)
    assert not again.error and figures(rule_of(again)) == before and name.endswith(".json")
    assert figures(reopen(text)) == before
    assert again.raw["kv_cache_dtype"] == "fp8" and again.raw["max_model_len"] == "8,192" and again.raw["quantization"] == "FP8"
    again.undo()
    assert again.raw["gpu"] == "RTX 4090"


def test_undo_of_a_saved_set_up_brings_all_back(panel):
    panel.set(command="vllm serve Qwen/Qwen3-30B-A3B -tp 4 --port 1", vllm_version="0.28", weights_gib="20")
    before = dict(panel.raw)
    panel.set(config=save(fit("Qwen3-8B", gpu="H100 SXM", vllm_version="0.30.0")))     # a name of the card, not the catalogue's
    assert not panel.error and panel.raw["command"] == "" and panel.raw["weights_gib"] == ""
    assert (panel.raw["gpu"], panel.raw["vllm_version"], panel.values.tensor_parallel_size) == ("H100 SXM 80GB", "0.30", 1)
    panel.undo()
    assert panel.raw == before


@pytest.mark.parametrize("asked", [dict(total_gib=30.0), dict(available_gib=4.0), dict(quantization="bitsandbytes")])
def test_what_the_panel_cannot_hold_of_a_saved_set_up_is_said(panel, asked):
    text = save(fit("Qwen3-8B", gpu="L4", **asked))
    panel.set(config=text)
    assert next(iter(asked)) in panel.error and "reopen" in panel.error and panel.raw["config"] == text


def test_a_saved_set_up_with_its_keys_sorted(panel):
    panel.set(config=json.dumps(json.loads(save(fit(EIGHT, "--max-model-len 8192", gpu="L4"))), sort_keys=True))
    assert not panel.error and panel.raw["gpu"] == "L4" and panel.values.max_model_len == 8_192


def test_the_command_and_the_ticket(panel):
    panel.set(config="Qwen3-8B")
    assert panel.take("command", panel.values) == ("", "vllm serve Qwen/Qwen3-8B --max-model-len 32768")
    assert "4.84 to 10.7 of 4,096" in panel.take("ticket", panel.values)[1]


def test_memory_that_is_not_counted_stands_in_the_verdict(panel):
    panel.set(command="vllm serve Qwen/Qwen3-8B --max-model-len 8192 --enable-lora --max-loras 4 --cpu-offload-gb 10")
    assert "LoRA adapters take memory that is not counted" in panel.view.answer and "Weights kept on the CPU" in panel.view.answer
    rows = panel.view.table[-1].rows
    assert [row["what"].split()[0] for row in rows] == ["takes", "takes", "takes", "used"]


# -- bad input -----------------------------------------------------------------------------------------------

BAD = [
    ("config", '{"model_type": "qwen3", "hidden', "ends too early"), ("config", "GGUF\x00\x00", "no model 'GGUF"),
    ("config", '{"tokenizer_class": "X"}', "tokenizer"), ("config", '{"peft_type": "LORA"}', "PEFT"),
    ("config", '{"model_type": "clip_vision_model", "image_size": 224}', "vision encoder"), ("config", "[" * 100_000, "nested"),
    ("config", '{"a": NaN}', "NaN"), ("config", json.dumps(EIGHT | {"num_hidden_layers": 10**6}), "num_hidden_layers"),
    ("config", "/no/such/folder", "no file or folder"), ("config", "Qwen3-9B", "close names"),
    ("config", json.dumps({"kvlib_fit": 2}), "kvlib_fit"), ("command", "vllm serve m/x --max-model-len 1 --max-model-len 2", "given twice"),
    ("command", "vllm serve m/x --max-model-len many", "max_model_len"), ("command", "vllm serve 'm/x", "quotation mark"),
    ("command", "hello", "no flag found"), ("command", "--tensor-parallel-size 7", "must divide"),
    ("weights_gib", "a lot", "Weights on each GPU"), ("weights_gib", "nan", "Weights on each GPU"), ("free_gib", "-3", "free_gib is -3"),
    ("max_model_len", "0", "Longest request"), ("gpu_memory_utilization", "7", "Share of the GPU"),
]


@pytest.mark.parametrize("name, text, said", BAD, ids=[f"{name}-{said[:12]}" for name, _, said in BAD])
def test_bad_input_is_a_sentence_and_nothing_typed_is_lost(panel, name, text, said):
    panel.set(tokens=2_048, gpu="L4")
    before, view = dict(panel.raw), panel.view
    panel.set(**{name: text})
    assert said in panel.error and "\n" not in panel.error and len(panel.error) < 400
    assert panel.raw[name] == text and panel.view is view
    others = [n for n in before if n != name and not (name == "command" and n in size_your_own.FLAGS)]   # those follow it
    assert {n: panel.raw[n] for n in others} == {n: before[n] for n in others}
    panel.set(**{name: before[name]})
    assert not panel.error and {n: v for n, v in panel.raw.items() if n != "command"} == {n: v for n, v in before.items() if n != "command"}


def test_a_folder_without_config(panel, tmp_path):
    panel.set(config=str(tmp_path))
    assert "has no config.json" in panel.error


def test_an_unknown_architecture_is_named(panel):
    panel.set(config="DeepSeek-V4-Flash")
    assert "compressed cache" in panel.error and "paste the log" in panel.error


# -- no dull control ---------------------------------------------------------------------------------------------

def pictures_of(panel, name, values):
    drawn, refused = set(), 0
    for value in values:
        panel.set(**{name: value})
        refused += bool(panel.error)
        drawn.add(json.dumps([panel.view.rows, panel.view.answer, str(panel.view.table)], default=str))
    return len(drawn), refused / len(values)


@pytest.mark.parametrize("name", ["max_model_len", "gpu_memory_utilization", "tensor_parallel_size", "tokens", "requests"])
def test_each_slider_changes_the_picture(panel, name):
    panel.set(config="Qwen3-8B", gpu="H100 SXM 80GB")
    box = panel._inputs[name]
    stops = box.stops() or [box.min + i * (box.max - box.min) / 12 for i in range(13)]
    drawn, refused = pictures_of(panel, name, [box.text(stop) for stop in stops])
    assert drawn >= 5 and refused <= 0.5


@pytest.mark.parametrize("name", ["gpu", "kv_cache_dtype", "quantization", "show", "vllm_version"])
def test_each_menu_changes_the_picture(panel, name):
    panel.set(config="Qwen3-8B", gpu="H100 SXM 80GB")
    drawn, refused = pictures_of(panel, name, list(panel._inputs[name].options))
    assert drawn >= 3 and refused <= 0.5


def test_the_map_is_kvlibs(panel):
    panel.set(gpu="A100 80GB SXM", show=MAP)
    wanted = {(cell.gpu, str(cell.tensor_parallel_size)): cell.word for cell in card_map(rule_of(panel))}
    assert {(row["gpu"], row["split"]): row["word"] for row in panel.view.rows["map"]} == wanted
    here = [row for row in panel.view.rows["map"] if row["here"]]
    assert [(row["gpu"], row["split"]) for row in here] == [("A100 80GB SXM", "1")]
    panel.set(show=LENGTHS)
    assert "lengths" in panel.view.rows


# -- the notebook ---------------------------------------------------------------------------------------------------

def test_the_length_of_the_last_exercise_passes_at_the_least():
    least = fit("Llama-3.1-8B", gpu="L4").low.estimated_max_model_len
    assert check("06.3", least).state == "right" and check("06.3", 131_072).state == "wrong"
    low = kvlib.size(kvlib.load_model("Llama-3.1-8B"), kvlib.Engine(gpu="L4", max_model_len=least),
                     memory=fit("Llama-3.1-8B", gpu="L4").memory.pick("least"))
    assert low.fits


def test_the_ten_lines_say_what_the_panel_says(panel):
    """The script under the panel, run with the panel's inputs, gives the panel's figures."""
    cells = {cell["id"]: "".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]}
    space = {}
    exec(cells["setup"].replace("charts.setup()", ""), space)  # noqa: S102
    exec(cells["script"], space)  # noqa: S102
    scripted = space["found"]
    panel.set(config="Llama-3.3-70B")
    panel.set(command="vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 4 --max-model-len 65536", gpu="A100 80GB SXM", tokens=8_192)
    assert figures(rule_of(panel)) == figures(scripted) and save(scripted)
    assert scripted.say(*scripted.requests_of(8_192)) + " of 8,192" in panel.plain()
