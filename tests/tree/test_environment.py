"""The three lists of packages agree: pyproject.toml, environment.yml, constraints.txt."""

import asyncio
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ddp_workbook.workshop import requirements
from tools import set_up
from tools.set_up import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
CONDA_LINES = [line for line in CONDA["dependencies"] if isinstance(line, str)]
CONDA_NAMES = {"torch": "pytorch"}  # where conda-forge calls a package differently


def constraints() -> dict[str, Version]:
    """What constraints.txt pins, by canonical name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pins}


def as_conda(line: str) -> tuple[str, frozenset[str]]:
    """A pyproject line as conda's name and set of bounds."""
    wanted = Requirement(line)
    bounds = frozenset(str(bound) for bound in wanted.specifier)
    return CONDA_NAMES.get(wanted.name, wanted.name), bounds


def test_conda_and_pip_ask_for_the_same():
    """Same packages, same ranges, and Python's own range: tools and course, as `make setup`."""
    expected = {as_conda(line) for line in [*PROJECT["dependencies"], *EXTRAS["lab"]]}
    expected |= {as_conda("python" + PROJECT["requires-python"]), ("pip", frozenset())}
    pairs = [line.partition(" ")[::2] for line in CONDA_LINES]
    packages = {(name, frozenset(filter(None, bounds.split(",")))) for name, bounds in pairs}
    assert packages == expected
    assert len(pairs) == len(expected)


def test_commands_of_the_course_look_for_its_packages():
    """Those of the extra `lab`, so that one that is missing is named before it is needed."""
    assert [Requirement(line).name for line in EXTRAS["lab"]] == list(requirements.PACKAGES)


def test_conda_leaves_only_this_package_to_pip():
    """Only conda-forge, no prefix of a particular machine, and pip must not resolve anything."""
    assert set(CONDA) == {"name", "channels", "dependencies"}
    assert CONDA["channels"] == ["conda-forge"]
    assert [line for line in CONDA["dependencies"] if not isinstance(line, str)] == [
        {"pip": ["-e . --no-deps"]}
    ]


@pytest.mark.parametrize("line", [*PROJECT["dependencies"], *EXTRAS["lab"], *EXTRAS["dev"]])
def test_each_pin_lies_in_its_range(line):
    """What is installed is what pyproject.toml allows."""
    wanted = Requirement(line)
    assert constraints()[canonicalize_name(wanted.name)] in wanted.specifier


def test_each_package_has_its_reason():
    """A comment after every line of the three lists."""
    text = (ROOT / "pyproject.toml").read_text()
    lists = re.findall(r"(?ms)^(?:dependencies|lab|dev) = \[.*?\n(.*?)^\]", text)
    lines = [line for block in lists for line in block.splitlines()]
    assert len(lines) == len(PROJECT["dependencies"] + EXTRAS["lab"] + EXTRAS["dev"])
    assert [line for line in lines if not re.search(r"\",\s+# \S", line)] == []


def closure(build: str = "") -> dict[str, Version]:
    """Everything that the set-up brings into the running environment, with its version."""
    wanted = [(Requirement(line), "") for line in set_up.requirements(dev=True, build=build)]
    versions = {}
    while wanted:
        requirement, extra = wanted.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        if name in versions and not requirement.extras:
            continue
        try:
            there = distribution(name)
        except PackageNotFoundError:  # set up without the development packages
            continue
        if not Path(there.locate_file("")).is_relative_to(sys.prefix):  # TORCH=site: not ours
            continue
        versions[name] = Version(there.version)
        for line in there.requires or []:
            wanted += [(Requirement(line), extra) for extra in {"", *requirement.extras}]
    return versions


def test_all_that_is_installed_is_pinned():
    """The environment that `make test` has made is the one constraints.txt describes.

    torch's own pins hold its CUDA packages (nvidia-, triton), which a CPU build does not have.
    """
    pins, versions = constraints(), closure()
    ours = {n: v for n, v in versions.items() if not n.startswith(("nvidia-", "cuda-", "triton"))}
    other = {n: str(v) for n, v in ours.items() if pins.get(n) != Version(v.public)}
    assert other == {}
    assert {"jupyterlab", "tornado"} <= set(ours)


def test_nothing_brings_a_second_torch_beside_the_one_of_a_site():
    assert "torch" in closure()  # accelerate and lightning need it
    assert "torch" not in closure("site")


def test_every_pin_accepts_the_oldest_python():
    """A package may ask for 3.11.5, and Debian 12 has 3.11.2: pip would find no such version."""
    oldest = f"{PROJECT['requires-python'].removeprefix('>=').partition(',')[0]}.0"
    asked = {name: distribution(name).metadata["Requires-Python"] or "" for name in closure()}
    assert {name: text for name, text in asked.items() if oldest not in SpecifierSet(text)} == {}


@pytest.mark.network
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_conda_forge_has_all_of_it(tmp_path, python):
    """By conda's own solver, whose parser is strict."""
    rattler = pytest.importorskip("rattler")
    lines = [rattler.MatchSpec(line, strict=True) for line in [*CONDA_LINES, f"python {python}.*"]]
    records = asyncio.run(
        rattler.solve(
            sources=[rattler.Channel("conda-forge")],
            specs=lines,
            gateway=rattler.Gateway(cache_dir=tmp_path),
            platforms=["linux-64", "noarch"],
            virtual_packages=rattler.VirtualPackage.detect(),
        )
    )
    versions = {record.name.normalized: Version(str(record.version)) for record in records}
    assert versions["pytorch"] >= Version("2.11")
