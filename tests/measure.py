"""What a notebook costs the computer it runs on: memory and CPU of its kernel, and of each live panel.

    python tests/measure.py [00 01 ...]

Run by hand; prints the figures behind the guide's advice on sizing a hub. Memory is the kernel's own share (Linux: PSS, so that
libraries shared by several kernels are counted once), CPU is seconds of the kernel's process; neither counts the browser.
"""
from __future__ import annotations

import json
import os
import sys
import time

import notebook_store as keep
import psutil
from jupyter_client.manager import start_new_kernel

SWEEP = """
import json as _json, time as _time
from kvlib.controls import _LIVE
from kvlib.inputs import Number
_found = {}
for _name, _panel in _LIVE.items():
    _number = next((i for i in _panel.inputs if isinstance(i, Number)), None)
    if _number is None:
        continue
    _start, _n = _time.process_time(), 0
    for _k in range(40):
        _panel.set(**{_number.name: _number.default if _k % 2 else _number.min})
        _n += 1
    _found[_name] = round(1000 * (_time.process_time() - _start) / _n, 1)
print(_json.dumps(_found))
"""


def megabytes(process):
    info = process.memory_full_info()
    return round(getattr(info, "pss", info.rss) / 2**20)


def cpu(process):
    times = process.cpu_times()
    return times.user + times.system


def run(client, code):
    """What a piece of code printed."""
    said = []

    def hear(message):
        if message["header"]["msg_type"] == "stream":
            said.append(message["content"]["text"])
    reply = client.execute_interactive(code, output_hook=hear, timeout=300)
    if reply["content"]["status"] != "ok":
        raise RuntimeError(reply["content"].get("evalue"))
    return "".join(said)


def measure(path):
    """A row of figures for one notebook."""
    os.chdir(path.parent)
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        process = psutil.Process(manager.provisioner.process.pid)
        empty, start = megabytes(process), time.monotonic()
        cells = [cell for cell in keep.read(path).cells if cell.cell_type == "code"]
        run(client, cells[0].source)
        ready, ready_cpu = megabytes(process), cpu(process)
        for cell in cells[1:]:
            run(client, cell.source)
        whole, whole_cpu, seconds = megabytes(process), cpu(process), time.monotonic() - start
        panels = json.loads(run(client, SWEEP).strip().splitlines()[-1])
        return {"empty": empty, "set up": ready, "run all": whole, "after panels": megabytes(process), "set-up CPU": ready_cpu,
                "run-all CPU": whole_cpu, "seconds": seconds, "panels": panels}
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def main(names):
    print("| notebook | kernel empty (MiB) | set up | Run All | panels moved | CPU to Run All (s) | panels | CPU a move (ms) |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for path in keep.names(names):
        if path.parent != keep.NOTEBOOKS:
            continue
        row = measure(path)
        moves = row["panels"].values()
        span = f"{min(moves):g} to {max(moves):g}" if moves else "–"
        print(f"| {path.stem} | {row['empty']} | {row['set up']} | {row['run all']} | {row['after panels']} | {row['run-all CPU']:.0f} | "
              f"{len(moves)} | {span} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
