"""What a release attaches: the same bytes each time, and every tool runs where only they are."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests import bare_environment
from tools import release, set_up, try_tools
from tools.set_up import ROOT

pytestmark = pytest.mark.push("what a release attaches")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The sdist and the wheel."""
    sdist, wheel = release.build(tmp_path_factory.mktemp("dist"))
    return sdist, wheel


@pytest.fixture
def python(tmp_path) -> Path:
    """The Python of an environment with what the tools ask for, and pytest."""
    project = tomllib.loads(set_up.PROJECT.read_text(encoding="utf-8"))["project"]
    return bare_environment.make(tmp_path / "environment", [*project["dependencies"], "pytest"])


def test_building_twice_gives_the_same_bytes(built, tmp_path):
    """Also by somebody whose files only they may read."""
    before = os.umask(0o077)
    try:
        again = release.build(tmp_path)
    finally:
        os.umask(before)
    assert [path.name for path in again] == [path.name for path in built]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in built]


def test_the_sdist_is_the_whole_workbook(built):
    """What git knows, and what setuptools adds; `make lab` works in it."""
    folder = built[0].name.removesuffix(".tar.gz")
    with tarfile.open(built[0]) as sdist:
        files = {one.name.removeprefix(f"{folder}/") for one in sdist if one.isfile()}
    added = {one for one in files if ".egg-info/" in one} | {"PKG-INFO", "setup.cfg"}
    assert files - added == set(release.tracked_files())


def test_the_sdist_makes_the_same_wheel(built, tmp_path):
    with tarfile.open(built[0]) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    line = [sys.executable, *release.BUILD, "--wheel", "--outdir", str(tmp_path), str(folder)]
    env = bare_environment.environment() | {"SOURCE_DATE_EPOCH": str(release.seconds())}
    subprocess.run(line, env=env, check=True, capture_output=True, umask=0o022)
    assert (tmp_path / built[1].name).read_bytes() == built[1].read_bytes()


def test_every_tool_runs_where_only_the_wheel_is(built, python):
    """Nothing but what `pip install` would bring; pip itself says that it is enough."""
    run = bare_environment.install(python, str(built[1]))
    assert run.returncode == 0, run.stderr
    try_tools.try_all(python)


def test_a_newer_version_takes_the_place_of_an_older_one(built, python, tmp_path):
    """In one environment there is one; a copy on PYTHONPATH hides it, and --version says so."""
    older = tmp_path / built[1].name.replace(release.version(), "0.1.0")
    with zipfile.ZipFile(built[1]) as new, zipfile.ZipFile(older, "w") as old:
        for name in new.namelist():
            text = new.read(name)
            if name.endswith("METADATA"):
                text = text.replace(f"Version: {release.version()}".encode(), b"Version: 0.1.0")
            old.writestr(name.replace(f"-{release.version()}.", "-0.1.0."), text)
    for wheel, version in ((older, "0.1.0"), (built[1], release.version())):
        assert bare_environment.install(python, str(wheel)).returncode == 0
        run = try_tools.call(python.with_name("manyranks"), ["--version"], tmp_path)
        assert run.stdout.startswith(f"ddp-workbook {version}, in {tmp_path}/environment/")
    site = next((tmp_path / "environment").glob("lib/python3*/site-packages"))
    assert len(list(site.glob("ddp_workbook-*.dist-info"))) == 1
    env = bare_environment.environment() | {"PYTHONPATH": str(ROOT / "src")}
    line = [str(python.with_name("manyranks")), "--version"]
    shadowed = subprocess.run(line, env=env, capture_output=True, text=True)
    assert shadowed.stdout == f"ddp-workbook {release.version()}, in {ROOT / 'src'}\n"


def test_parts_of_two_copies_are_refused(tmp_path):
    """The course of one copy before the workbench of another."""
    shutil.copytree(ROOT / "src/ddp_workbook", tmp_path / "ddp_workbook")
    env = bare_environment.environment() | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'src'}"}
    line = [sys.executable, "-c", "import ddp_workbook"]
    run = subprocess.run(line, env=env, capture_output=True, text=True)
    assert f"ddp_workbook comes from {tmp_path}, and manyranks from {ROOT / 'src'}" in run.stderr


def test_a_tag_of_another_version_is_refused():
    line = [sys.executable, "-m", "tools.release", "--tag", "v0.9.0"]
    run = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode and "The tag is v0.9.0, and pyproject.toml has version" in run.stderr
