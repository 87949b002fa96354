"""Ask pip, per platform and Python, whether every package that the workbook needs comes as a wheel.

    python tests/wheels.py [--python 3.12 ...] [--platform linux-x64 ...] [--without-tests]

Run by hand, with the network on, after a change of dependencies: it installs nothing and prints the table that
stands in CONTRIBUTING.md. Takes some minutes. A package that must be compiled first would stop a reader's first start.
"""
import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def manylinux(machine):
    """Wheels that a Linux of 2021 or later takes (glibc 2.28 to 2.34 and older)."""
    return [f"manylinux_2_{minor}_{machine}" for minor in range(28, 4, -1)] + [f"manylinux2014_{machine}"]


# Names of wheels that pip may take, and what the platform's own Python says in a package's conditions.
PLATFORMS = {
    "windows-x64": (["win_amd64"], {"sys_platform": "win32", "os_name": "nt", "platform_system": "Windows", "platform_machine": "AMD64"}),
    "macos-arm64": (["macosx_13_0_arm64"], {"sys_platform": "darwin", "os_name": "posix", "platform_system": "Darwin", "platform_machine": "arm64"}),
    "macos-x64": (["macosx_13_0_x86_64"], {"sys_platform": "darwin", "os_name": "posix", "platform_system": "Darwin", "platform_machine": "x86_64"}),
    "linux-x64": (manylinux("x86_64"), {"sys_platform": "linux", "os_name": "posix", "platform_system": "Linux", "platform_machine": "x86_64"}),
    "linux-arm64": (manylinux("aarch64"), {"sys_platform": "linux", "os_name": "posix", "platform_system": "Linux", "platform_machine": "aarch64"}),
}


def ask_pip(lines, tags, python):
    """(the packages pip would install, None), or (None, the requirement it has no wheel for)."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-input",
                   "--disable-pip-version-check", "--report", str(report), "--target", folder, "--only-binary", ":all:",
                   "--python-version", python, "--implementation", "cp"]
        for tag in tags:
            command += ["--platform", tag]
        done = subprocess.run(command + lines, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return json.loads(report.read_text(encoding="utf-8"))["install"], None
    missing = re.search(r"No matching distribution found for ([^\s;(]+)", done.stderr)
    return None, missing.group(1) if missing else done.stderr.strip().splitlines()[-1]


def resolve(lines, platform, python):
    """(name -> version of all packages, None) or (None, what is missing).

    pip judges a package's conditions ("only on Windows") by the computer it runs on, so those that hold on the
    platform asked about are added until nothing is missing."""
    tags, conditions = PLATFORMS[platform]
    environment = dict(conditions, python_version=python, python_full_version=python + ".0", implementation_name="cpython",
                       platform_python_implementation="CPython")
    lines = list(lines)
    while True:
        packages, missing = ask_pip(lines, tags, python)
        if packages is None:
            return None, missing
        found = {canonicalize_name(p["metadata"]["name"]): p["metadata"]["version"] for p in packages}
        more = set()
        for package in packages:
            for line in package["metadata"].get("requires_dist", []):
                wanted = Requirement(line)
                extras = package.get("requested_extras", []) or [""]
                holds = wanted.marker is None or any(wanted.marker.evaluate(dict(environment, extra=extra)) for extra in extras)
                if holds and canonicalize_name(wanted.name) not in found:
                    wanted.marker = None
                    more.add(str(wanted))
        if not more:
            return found, None
        lines += sorted(more)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", nargs="+", default=PYTHONS)
    parser.add_argument("--platform", nargs="+", default=list(PLATFORMS), choices=list(PLATFORMS))
    parser.add_argument("--without-tests", action="store_true", help="only what the notebooks need")
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = project["dependencies"] + ([] if options.without_tests else project["optional-dependencies"]["test"])
    print(f"Asked on {datetime.date.today()}.\n")
    print("| | " + " | ".join("Python " + python for python in options.python) + " |")
    print("|---" * (len(options.python) + 1) + "|", flush=True)
    failed = False
    for platform in options.platform:
        answers = []
        for python in options.python:
            found, missing = resolve(lines, platform, python)
            answers.append(f"ok, {len(found)} packages" if found else f"no wheel: {missing}")
            failed = failed or not found
        print(f"| {platform} | " + " | ".join(answers) + " |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
