"""Other programs that size a cache, each in a Python of its own, timed in turn with ours.

A child gets its set-up as JSON on its first line, answers with what it found, and then with one sample a line:
"N" runs N calls and prints the seconds of one.
"""
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What installs from PyPI and gives the right bytes: its name and version, and the call that is timed.
PEERS = {
    "kvfit 0.3.0": ("kvfit==0.3.0", """
from kvfit import estimate_cache
def call(): return estimate_cache(case["config"], context_tokens=case["max_model_len"])
def answer(): return sum(part.bytes for part in call().components)
"""),
}
PEER_CHILD = """
import json, sys, time
case = json.loads(sys.stdin.readline())
{code}
print(json.dumps({{"answer": answer()}}), flush=True)
for line in sys.stdin:
    number = int(line)
    start = time.process_time()
    for _ in range(number): call()
    print((time.process_time() - start) / number, flush=True)
"""


class Absent(Exception):
    """The other program cannot be asked here; says why in a few words."""


class Child:
    """A program that is asked for samples."""

    def __init__(self, command, case, environment=None, patience=1):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True, env={**os.environ, "PYTHONPATH": "", **(environment or {})})
        self.found = json.loads(self._ask(json.dumps(case)))
        self.number = 1
        self.number = max(1, round(0.05 * patience / max(self.sample(), 1e-7)))

    def _ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except OSError as problem:
            raise Absent(f"it stopped ({problem})") from None
        if not answer:
            raise Absent(f"it stopped with code {self.process.wait()}")
        return answer

    def sample(self):
        """Seconds of one call."""
        return float(self._ask(str(self.number)))

    def close(self):
        """End the program; one that takes its time over it is stopped."""
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def vllm_child(case):
    """vLLM's own functions, in the Python that KV_BENCH_VLLM names."""
    python = os.environ.get("KV_BENCH_VLLM")
    if not python:
        raise Absent("KV_BENCH_VLLM names no Python with vLLM in it")
    try:
        return Child([python, str(HERE / "vllm_child.py")], case, {"PYTHONPATH": os.environ.get("KV_BENCH_VLLM_PATH", "")}, 4)
    except (OSError, json.JSONDecodeError) as problem:
        raise Absent(f"it does not start ({problem})") from None


def peer_python(requirement, folder):
    """A Python with that package, made in ``folder`` unless it is there."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=True)
    try:
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", requirement], check=True,
                       capture_output=True, timeout=180, env={**os.environ, "PYTHONPATH": ""})
    except (OSError, subprocess.SubprocessError):
        raise Absent("pip could not fetch it") from None
    return str(python)


def peer_child(name, case):
    """A peer in an environment of its own, under the folder KV_BENCH_PEERS or the temporary one."""
    requirement, code = PEERS[name]
    folder = Path(os.environ.get("KV_BENCH_PEERS") or Path(tempfile.gettempdir()) / "kv-bench-peers") / requirement
    return Child([peer_python(requirement, folder), "-c", PEER_CHILD.format(code=code)], case)


def fresh_import(module, root):
    """Seconds that importing a module takes in a new Python."""
    code = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    return float(done.stdout)
