"""What a release attaches: the same bytes each time, and every tool runs where only they are."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from tests import bare_environment
from tools import release, set_up, try_tools
from tools.set_up import ROOT

pytestmark = pytest.mark.push("what a release attaches")


WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
STEPS = {step["name"]: step["run"] for step in WORKFLOW["jobs"]["attach"]["steps"] if "run" in step}
TAG = f"v{release.version()}"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The sdist and the wheel, made by somebody whose files only they may read."""
    before = os.umask(0o077)
    try:
        sdist, wheel = release.build(tmp_path_factory.mktemp("dist"))
    finally:
        os.umask(before)
    return sdist, wheel


@pytest.fixture
def python(tmp_path) -> Path:
    """The Python of an empty environment: with what the tools ask for, and pytest."""
    project = tomllib.loads(set_up.PROJECT.read_text(encoding="utf-8"))["project"]
    return bare_environment.make(tmp_path / "empty", [*project["dependencies"], "pytest"])


def test_the_workflow_builds_tries_and_attaches(built, python, tmp_path):
    """Its steps as they stand, in another folder, with the same bytes as here.

    Not run: setting up, the book, of which there is one page, and the installation from an index.
    In its place pip installs the wheel where nothing else can be imported than it asks for.
    """
    checkout = tmp_path / "checkout"
    release.copy(checkout)
    for line in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *line], cwd=checkout, check=True)
    (checkout / ".venv").symlink_to(sys.prefix)
    (checkout / "build/book").mkdir(parents=True)
    (checkout / "build/book/index.html").touch()
    (tmp_path / "gh").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/gh.txt\n')
    (tmp_path / "gh").chmod(0o755)
    env = bare_environment.environment() | {
        "SOURCE_DATE_EPOCH": str(release.seconds()),
        "GITHUB_REF_NAME": TAG,
        "RUNNER_TEMP": str(tmp_path),
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
    }
    first, *rest = STEPS.items()
    assert first[1].startswith("make book TORCH=cpu") and len(rest) == 5
    for name, step in rest:
        if "uv pip install" in step:
            run = bare_environment.install(python, str(checkout / "dist" / built[1].name))
        else:
            line = ["bash", "-e", "-c", step]
            run = subprocess.run(line, cwd=checkout, env=env, capture_output=True, text=True)
        assert run.returncode == 0, f"{name}: {run.stdout}{run.stderr}"
    book = f"book-{TAG}.tar.gz"
    dist = {path.name: path.read_bytes() for path in checkout.glob("dist/*")}
    assert dist.keys() == {book, *(path.name for path in built)}
    assert {path.name: path.read_bytes() for path in built}.items() <= dist.items()
    with tarfile.open(checkout / "dist" / book) as archive:
        assert f"book-{TAG}/index.html" in archive.getnames()
    words = (tmp_path / "gh.txt").read_text().splitlines()
    assert words[:3] == ["release", "create", TAG]
    assert {f"dist/{name}" for name in dist} <= set(words)
    assert (ROOT / words[words.index("--notes-file") + 1]).is_file()


def test_the_workflow_may_write_the_release_alone():
    """Tests come first, and no action of somebody else runs."""
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert WORKFLOW["jobs"]["tests"] == {"uses": "./.github/workflows/tests.yml"}
    attach = WORKFLOW["jobs"]["attach"]
    assert attach["needs"] == "tests" and attach["permissions"] == {"contents": "write"}
    actions = [step["uses"] for step in attach["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in actions)


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
        assert run.stdout.startswith(f"ddp-workbook {version}, in {tmp_path}/empty/")
    site = next((tmp_path / "empty").glob("lib/python3*/site-packages"))
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
