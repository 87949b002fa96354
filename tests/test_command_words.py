"""What is pasted as a command: shells, containers, lists; and nothing of it lost or changed when it is written again."""
import random
import shlex
import shutil
import subprocess

import pytest

from kvlib import EngineError
from kvlib.command import read_command
from kvlib.serve_line import serve_line, with_flags

EIGHT = "Qwen/Qwen3-8B"
SAME = [   # all of them start Qwen3-8B with 8,192 tokens on two GPUs
    f"docker run --runtime nvidia --gpus all -v ~/a:/a -v /b:/b -e A=1 -eB=2 --env 'C=x y' -p8000:8000 --ipc=host --rm -it "
    f"vllm/vllm-openai:latest --model {EIGHT} --max-model-len 8192 -tp 2",
    f"sudo docker run --device /dev/kfd --device /dev/dri rocm/vllm vllm serve {EIGHT} --max-model-len 8192 -tp 2",
    f"pip install vllm && cd /srv && python -m vllm.entrypoints.openai.api_server --model {EIGHT} --max-model-len 8192 -tp=2",
    f"nohup vllm serve {EIGHT} --max-model-len 8192 -tp 2 > log.txt 2>&1 &",
    f"vllm serve {EIGHT} --max-model-len 8192 -tp 2 | tee log.txt",
    f"vllm serve {EIGHT} --max-model-len 8192 -tp 2  # was --max-model-len 4096",
    f"vllm serve {EIGHT} \\\n  # --max-model-len 4096 \\\n  --max-model-len 8192 \\\n  -tp 2 \\\n",
    f"vllm serve {EIGHT} `\n  --max-model-len 8192 `\n -tp 2", f"vllm serve {EIGHT} ^\n  --max-model-len 8192 ^\n -tp 2",
    f"vllm serve --trust-remote-code --max-model-len 8192 -tp 2 {EIGHT}", f"bash -lc 'vllm serve {EIGHT} --max-model-len 8192 -tp 2'",
    f"command: --model {EIGHT} --max-model-len 8192 -tp 2",
    f"command: >-\n  --model {EIGHT}\n  --max-model-len 8192\n  -tp 2\nports:\n  - 1",
    f'command: ["--model", "{EIGHT}",\n  "--max-model-len", "8192", "-tp", 2]',
    f'command: ["vllm", "serve", "{EIGHT}"]\nargs: ["--max-model-len", "8192", "--tensor-parallel-size=2"]',
    f'command: ["/bin/sh", "-c"]\nargs: ["vllm serve {EIGHT} --max-model-len 8192 -tp 2"]',
    f"command: ['/bin/bash', '-c']\nargs:\n- |\n  vllm serve {EIGHT} \\\n    --max-model-len 8192 \\\n    -tp 2\nports: []",
    f'services:\n  a:\n    command:\n      - --model={EIGHT}\n      - "--max-model-len"\n      - "8192"  # tokens\n'
    '      # - --max-model-len=1\n'
    '      - -tp 2\n    ports:\n      - "8000:8000"\n    environment:\n      - X=--max-model-len',
]


@pytest.mark.parametrize("text", SAME, ids=range(len(SAME)))
def test_what_stands_around_a_command_is_no_part_of_it(text):
    engine, other = read_command(text)
    assert (engine.max_model_len, engine.tensor_parallel_size, other.model) == (8192, 2, EIGHT)
    assert set(other.no_effect) <= {"trust_remote_code"}
    again, _ = read_command(serve_line(engine, other))
    assert again == engine


def test_a_list_keeps_json_whole():
    text = "args:\n- --model=a/b\n- --speculative-config\n- '{\"method\": \"mtp\", \"num_speculative_tokens\": 3}'\n- \"--api-key=a b\""
    engine, other = read_command(text)
    assert (engine.speculative_method, engine.num_speculative_tokens, other.no_effect["api_key"]) == ("mtp", 3, "a b")


def test_speculation_given_key_by_key_counts():
    engine, other = read_command("vllm serve a/b --speculative-config.method mtp --speculative-config.num_speculative_tokens 3")
    assert (engine.speculative_method, engine.num_speculative_tokens) == ("mtp", 3) and "mtp" in serve_line(engine, other)


KEPT = ["-O3", "-O 3", "-O.level 3", "--compilation-config.cudagraph_mode FULL", "--served-model-name a b c", "--lora-modules x=/a y=/b",
        "--api-key $KEY", '--api-key "$KEY"', '--download-dir "${HOME}/x y"', "--api-key $(cat key)", "--chat-template ''", "--foo=-bar",
        "--hf-overrides '{\"a\": \"it'\"'\"'s\"}'", "--name 'y;z|`id`$A'", "--seed -1", "--no-enable-chunked-prefill", "--x_y 1"]


@pytest.mark.parametrize("flag", KEPT)
def test_an_unrelated_flag_is_written_as_it_was_given(flag):
    line = with_flags(f"vllm serve a/b {flag} --port 1", max_model_len=4096)
    assert line == f"vllm serve a/b {flag} --port 1 --max-model-len 4096" == with_flags(line, max_model_len=4096)


def test_a_model_in_a_variable_and_the_environment_stay():
    line = 'CUDA_VISIBLE_DEVICES=0,1 A="$B c" vllm serve $MODEL -tp 2'
    assert with_flags(line, tensor_parallel_size=4) == 'CUDA_VISIBLE_DEVICES=0,1 A="$B c" vllm serve $MODEL --tensor-parallel-size 4'


@pytest.mark.skipif(not shutil.which("sh"), reason="needs a shell")
@pytest.mark.parametrize("seed", range(40))
def test_a_shell_reads_the_same_words(seed):
    """Any characters, in any quotation marks: sh makes the same words of the line before and after."""
    draw = random.Random(seed)
    flags = []
    for number in range(6):
        value = "".join(draw.choice([
            "a", "B", "7", " ", "'", '"', "\\", "$HOME", "$(", ")", "`", ";", "|", "&", "#", "*", "{", "}", "\n", "é", "="])
                        for _ in range(draw.randint(0, 9)))
        quoted = shlex.quote(value) if draw.random() < 0.6 else '"' + "".join("\\" + c if c in '"\\`$' else c for c in value) + '"'
        flags.append(f"--flag{number}{draw.choice(' =')}{quoted}")
    text = "vllm serve a/b " + " ".join(flags)
    assert _by_shell(text) == _by_shell(with_flags(text + " --max-model-len 9").removesuffix(" --max-model-len 9"))
    engine, other = read_command(text)
    assert [f"--{name}={value}" for name, value in other.given.items()] == _by_shell(text)


def _by_shell(line):
    script = 'for word in "$@"; do printf "%s\\0" "$word"; done'
    out = subprocess.run(["sh", "-c", f"set -- {line}\n{script}"], capture_output=True, check=True).stdout.decode()
    joined, found = out.split("\0")[3:-1], []
    while joined:   # --flag value and --flag=value are one
        word = joined.pop(0)
        found.append(word if "=" in word.split(" ")[0] and word.startswith("--flag") else f"{word}={joined.pop(0)}")
    return found


def test_a_log_s_arguments_become_flags_again():
    text = ("non-default args: {'model': 'a/b', 'enable_lora': True, 'seed': None, 'api_key': ['k'], 'enable_prefix_caching': False, "
            "'compilation_config': {'level': 3}}")
    assert serve_line(*read_command(text)) == \
        "vllm serve a/b --enable-lora --api-key k --no-enable-prefix-caching --compilation-config '{\"level\": 3}'"


@pytest.mark.parametrize("flag, said", [
    ("--hf-overrides '{}'", "may change the model's config"), ("--config x.yaml", "flags, in a file of their own"),
    ("--disable-sliding-window", "window layers"), ("--max-model-length 9", "is --max-model-len meant?"),
    ("--tensor-paralel-size 2", "is --tensor-parallel-size meant?"), ("--enable-chunked-prefill false", "tokens of a batch")])
def test_a_flag_that_changes_figures_and_is_not_followed_is_named(flag, said):
    assert any(said in note for note in read_command(f"vllm serve a/b {flag}")[1].notes)


def test_a_variable_of_vllm_s_is_named():
    assert "VLLM_CPU_KVCACHE_SPACE is set" in read_command("VLLM_CPU_KVCACHE_SPACE=4 vllm serve a/b -tp 1")[1].notes[0]


@pytest.mark.parametrize("text", ["vllm serve 'a", 'vllm serve a --x "b', "args: ['--x'", "[", "- '",
                                  "vllm serve $(", "a `", "\\", "-", "- |", "args:"])
def test_what_is_not_closed_is_one_sentence_or_read(text):
    try:
        read_command(text)
    except EngineError as problem:
        assert "\n" not in str(problem)


@pytest.mark.parametrize("seed", range(60))
def test_no_text_is_too_odd(seed):
    draw = random.Random(seed)
    parts = ["vllm serve ", "a/b ", "--max-model-len ", "8192 ", "'", '"', "\\", "\n", "- ", "args:", "command: ",
             "[", "]", ",", "{", "}", "#",
             "`", "$(", ")", "|", ">", "&", "=", "-tp ", "2", "--", "-O3", "docker run ",
             "sh -c ", "non-default args: ", "serve", "\t", "\x00", "é"]
    for _ in range(60):
        text = "".join(draw.choice(parts) for _ in range(draw.randint(1, 14)))
        try:
            engine, other = read_command(text)
            assert read_command(serve_line(engine, other))[0] == engine
        except EngineError as problem:
            assert "\n" not in str(problem)
