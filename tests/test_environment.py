"""environment.yml says what pyproject.toml says, and what is installed here lies within it."""
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
CONDA_ONLY = {"pip"}


def pyproject():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def environment():
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


def by_name(lines):
    found = {}
    for requirement in map(Requirement, lines):
        name = canonicalize_name(requirement.name)
        assert name not in found, f"{name} is named twice"
        assert not requirement.marker and not requirement.url, f"{name}: conda knows names and bounds only"
        found[name] = requirement.specifier
    return found


def conda_packages():
    lines = [entry for entry in environment()["dependencies"] if isinstance(entry, str) and not entry.startswith("python=")]
    # What pip and conda read alike: a name and comma-separated bounds.
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+((>=|<|!=)[0-9.]+(,(>=|<|!=)[0-9.]+)*)?", line), line
    return by_name(lines)


def everything():
    project = pyproject()
    return project["dependencies"] + [line for lines in project["optional-dependencies"].values() for line in lines]


def test_same_packages_and_bounds():
    conda = conda_packages()
    assert {name: bounds for name, bounds in conda.items() if name not in CONDA_ONLY} == by_name(pyproject()["dependencies"])


def test_binder_and_conda_take_a_python_that_we_support():
    """Binder finds "python=3.12" only; a range would make it start from its own default."""
    named = [line for line in environment()["dependencies"] if isinstance(line, str) and line.startswith("python")]
    assert len(named) == 1
    minor = re.fullmatch(r"python=(3\.[0-9]+)", named[0])
    assert minor and minor.group(1) in SpecifierSet(pyproject()["requires-python"])


def test_the_project_itself_is_installed_by_pip():
    entries = environment()["dependencies"]
    assert [entry for entry in entries if not isinstance(entry, str)] == [{"pip": ["-e ."]}]
    assert "pip" in entries


def test_one_channel():
    assert environment()["channels"] == ["conda-forge"]


@pytest.mark.parametrize("line", everything())
def test_ranges_not_pins(line):
    operators = sorted(bound.operator for bound in Requirement(line).specifier)
    assert operators == ["<", ">="], "a lowest version and an upper bound on the major"


@pytest.mark.parametrize("line", pyproject()["dependencies"] + pyproject()["optional-dependencies"]["test"])
def test_installed_versions_lie_within(line):
    requirement = Requirement(line)
    assert requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)


def test_this_python_is_one_of_them():
    assert "{}.{}.{}".format(*sys.version_info[:3]) in SpecifierSet(pyproject()["requires-python"])
