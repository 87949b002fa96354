"""Fetch every package the workbook needs, for several kinds of laptop, so that a room can install without a network.

    python tests/bundle.py [--platform linux-x64 ...] [--python 3.12 ...] [--into wheels]

The wheels go into the folder `wheels` beside run.py. Copy the whole project, that folder included, to a stick; on each laptop
`python run.py lab` then installs from it. Python itself is not carried: each laptop needs 3.11 or newer of its own. The wheels for
Windows and macOS are those pip names for them; only on Linux was an installation tried.
"""
from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import wheels

PYTHONS = ["3.11", "3.12", "3.13"]


def needed():
    """The lines of pyproject.toml that a reader needs, and those that build the editable package."""
    content = tomllib.loads((wheels.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return content["project"]["dependencies"] + content["build-system"]["requires"] + ["editables>=0.3", "pip", "setuptools"]


def fetch(platform, python, into):
    """Download for one kind of laptop; None, or what stopped it."""
    found, missing = wheels.resolve(needed(), platform, python)
    if found is None:
        return f"no wheel: {missing}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input", "--disable-pip-version-check",
               "--only-binary", ":all:", "--python-version", python, "--implementation", "cp", "--dest", str(into)]
    for tag in wheels.PLATFORMS[platform][0]:
        command += ["--platform", tag]
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "exact.txt"
        asked.write_text("".join(f"{name}=={version}\n" for name, version in sorted(found.items())), encoding="utf-8")
        done = subprocess.run([*command, "--requirement", str(asked)], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["pip stopped"])[-1]


def main(argv=None):
    parser = argparse.ArgumentParser(description="Fetch the packages for laptops without a network.")
    parser.add_argument("--platform", nargs="+", default=list(wheels.PLATFORMS), choices=list(wheels.PLATFORMS))
    parser.add_argument("--python", nargs="+", default=PYTHONS)
    parser.add_argument("--into", type=Path, default=wheels.ROOT / "wheels")
    options = parser.parse_args(argv)
    options.into.mkdir(parents=True, exist_ok=True)
    started, failed = time.monotonic(), False
    for platform in options.platform:
        for python in options.python:
            problem = fetch(platform, python, options.into)
            failed = failed or problem is not None
            print(f"{'NO ' if problem else 'ok '} {platform:<12} Python {python}   {problem or ''}".rstrip(), flush=True)
    files = list(options.into.glob("*.whl"))
    size = sum(path.stat().st_size for path in files) / 2**20
    print(f"\n{len(files)} wheels, {size:,.0f} MiB in {options.into}, {time.monotonic() - started:.0f} s.")
    print("Copy the whole project, this folder included, to each laptop; there `python run.py lab` installs from it without a network.")
    print("Python itself is not in it: each laptop needs 3.11 or newer. Only Linux was tried; for Windows and macOS it is what pip names.")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
