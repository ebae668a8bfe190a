"""The three lists of packages agree: pyproject.toml, environment.yml, constraints.txt."""

import asyncio
import json
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

from tools import set_up

CHECKOUT = Path(__file__).parents[1]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
CONDA = yaml.safe_load((CHECKOUT / "environment.yml").read_text())
CONDA_LINES = [line for line in CONDA["dependencies"] if isinstance(line, str)]
CONDA_NAMES = {"torch": "pytorch"}  # where conda-forge calls a package differently


def constraints() -> dict[str, Version]:
    """What constraints.txt pins, by canonical name."""
    lines = (CHECKOUT / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pins}


def as_conda(line: str) -> tuple[str, frozenset[str]]:
    """A pyproject line as conda's name and set of bounds."""
    wanted = Requirement(line)
    bounds = frozenset(str(bound) for bound in wanted.specifier)
    return CONDA_NAMES.get(wanted.name, wanted.name), bounds


def test_conda_and_pip_ask_for_the_same():
    """Same packages, same ranges, and Python's own range."""
    expected = {as_conda(line) for line in PROJECT["dependencies"]}
    expected |= {as_conda("python" + PROJECT["requires-python"]), ("pip", frozenset())}
    pairs = [line.partition(" ")[::2] for line in CONDA_LINES]
    found = {(name, frozenset(filter(None, bounds.split(",")))) for name, bounds in pairs}
    assert found == expected
    assert len(pairs) == len(expected)


@pytest.mark.parametrize("line", CONDA_LINES)
def test_conda_reads_each_line_as_meant(line):
    """conda's own strict parser finds the name and the bounds."""
    spec = pytest.importorskip("rattler").MatchSpec(line, strict=True)
    name, _, bounds = line.partition(" ")
    assert str(spec.name.normalized if hasattr(spec.name, "normalized") else spec.name) == name
    assert str(spec.version or "") == bounds


def test_conda_leaves_only_this_package_to_pip():
    """Only conda-forge, no prefix of a particular machine, and pip must not resolve anything."""
    assert set(CONDA) == {"name", "channels", "dependencies"}
    assert CONDA["channels"] == ["conda-forge"]
    assert [line for line in CONDA["dependencies"] if not isinstance(line, str)] == [
        {"pip": ["-e . --no-deps"]}
    ]


@pytest.mark.parametrize("line", PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"])
def test_each_pin_lies_in_its_range(line):
    """What is installed is what pyproject.toml allows."""
    wanted = Requirement(line)
    assert constraints()[canonicalize_name(wanted.name)] in wanted.specifier


def test_each_package_has_its_reason():
    """A comment after every line of the two lists."""
    text = (CHECKOUT / "pyproject.toml").read_text()
    lists = re.findall(r"(?ms)^(?:dependencies|dev) = \[\n(.*?)^\]", text)
    lines = [line for block in lists for line in block.splitlines()]
    assert len(lines) == len(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"])
    assert [line for line in lines if not re.search(r"\",\s+# \S", line)] == []


def closure(build: str = "") -> dict[str, Version]:
    """Everything that the set-up brings into the running environment, with its version."""
    wanted = [(Requirement(line), "") for line in set_up.requirements(dev=True, build=build)]
    found = {}
    while wanted:
        requirement, extra = wanted.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        if name in found and not requirement.extras:
            continue
        try:
            there = distribution(name)
        except PackageNotFoundError:  # set up without the development packages
            continue
        if not Path(there.locate_file("")).is_relative_to(sys.prefix):  # TORCH=site: not ours
            continue
        found[name] = Version(there.version)
        for line in there.requires or []:
            wanted += [(Requirement(line), extra) for extra in {"", *requirement.extras}]
    return found


def test_all_that_is_installed_is_pinned():
    """The environment that `make test` has made is the one constraints.txt describes.

    torch's own pins hold its CUDA packages (nvidia-, triton), which a CPU build does not have.
    """
    pins, found = constraints(), closure()
    ours = {n: v for n, v in found.items() if not n.startswith(("nvidia-", "cuda-", "triton"))}
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


def solved(channel: str, python: str, cache: Path) -> dict[str, Version]:
    """What conda's own solver would install from environment.yml, by conda's name."""
    rattler = pytest.importorskip("rattler")
    records = asyncio.run(
        rattler.solve(
            sources=[rattler.Channel(channel)],
            specs=[*CONDA_LINES, f"python {python}.*"],
            gateway=rattler.Gateway(cache_dir=cache),
            platforms=["linux-64", "noarch"],
            virtual_packages=rattler.VirtualPackage.detect(),
        )
    )
    return {record.name.normalized: Version(str(record.version)) for record in records}


def made_channel(folder: Path, versions: dict[str, list[str]]) -> str:
    """A channel of empty packages; its address."""
    packages = {
        f"{name}-{version}-0.conda": {
            "name": name,
            "version": version,
            "build": "0",
            "build_number": 0,
            "depends": [],
            "sha256": "0" * 64,
            "size": 1,
        }
        for name in versions
        for version in versions[name]
    }
    for subdir, here in {"noarch": packages, "linux-64": {}}.items():
        (folder / subdir).mkdir(parents=True)
        data = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": here}
        (folder / subdir / "repodata.json").write_text(json.dumps(data))
    return folder.as_uri()


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_conda_solves_it(tmp_path, python):
    """Each package has one that is too old, its lower bound and its pin: the pin is taken."""
    pins = {name: str(version) for name, version in constraints().items()}
    versions = {"python": ["3.10.0", f"{python}.0", "3.14.0"], "pip": ["25.0"]}
    for wanted in map(Requirement, PROJECT["dependencies"]):
        name = CONDA_NAMES.get(wanted.name, wanted.name)
        lowest = next(bound.version for bound in wanted.specifier if bound.operator == ">=")
        versions[name] = ["0.0.1", lowest, pins[canonicalize_name(wanted.name)]]
    found = solved(made_channel(tmp_path / "channel", versions), python, tmp_path / "cache")
    expected = {name: Version(listed[-1]) for name, listed in versions.items()}
    assert found == expected | {"python": Version(f"{python}.0")}


def test_conda_says_what_is_missing(tmp_path):
    """A channel whose PyTorch is too old."""
    versions = {line.split()[0]: ["99.0"] for line in CONDA_LINES}
    versions |= {"python": ["3.12.0"], "pytorch": ["2.10.0"]}
    channel = made_channel(tmp_path / "channel", versions)
    with pytest.raises(Exception, match=r"pytorch >=2\.11"):
        solved(channel, "3.12", tmp_path / "cache")


@pytest.mark.network
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_conda_forge_has_all_of_it(tmp_path, python):
    assert solved("conda-forge", python, tmp_path)["pytorch"] >= Version("2.11")
