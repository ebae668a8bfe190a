"""A folder of packages for a room with one Wi-Fi: filled once, and enough without a network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ddp_workbook import cli
from ddp_workbook.workshop import commands
from tests.fresh_checkout import FreshCheckout, assert_refused
from tools import wheels

pytestmark = pytest.mark.push("environments that are made anew")

NO_INDEX = {"PIP_NO_INDEX": None, "PIP_FIND_LINKS": None}  # nothing but WHEELS= says where


@pytest.fixture
def newcomer(tmp_path) -> FreshCheckout:
    """A machine with a copy of the checkout and an index of three small packages."""
    return FreshCheckout(tmp_path)


def fill(newcomer: FreshCheckout, folder: Path, **variables: str) -> subprocess.CompletedProcess:
    """Run `python -m tools.wheels` as the instructor's command does."""
    env = {**os.environ, **newcomer.variables, **variables}
    line = [sys.executable, "-m", "tools.wheels", str(folder)]
    return subprocess.run(line, cwd=newcomer.folder, env=env, capture_output=True, text=True)


def test_a_filled_folder_is_enough_without_a_network(newcomer, tmp_path):
    folder = tmp_path / "for the room"
    result = fill(newcomer, folder)
    assert result.returncode == 0, result.stderr
    assert f"3 files, 0 MB in {folder}, for " in result.stdout
    assert 'make lab WHEELS="/path/to/for the room"' in result.stdout
    set_up = newcomer.make("setup", f"WHEELS={folder}", **NO_INDEX)
    assert set_up.returncode == 0, set_up.stdout + set_up.stderr
    assert newcomer.torch().endswith("+cpu")
    again = fill(newcomer, folder)
    assert again.returncode == 0 and "3 files" in again.stdout, "what is there is kept"


def test_a_folder_without_packages_is_refused(newcomer, tmp_path):
    assert_refused(
        newcomer.make("setup", f"WHEELS={tmp_path}/no"), "there are no wheels in", "--to DIR"
    )
    assert not newcomer.stamp.exists()


def test_a_folder_that_lacks_a_package_is_named(newcomer, tmp_path):
    """It was made for another Python, say."""
    folder = tmp_path / "room"
    assert fill(newcomer, folder).returncode == 0
    next(folder.glob("torch-*")).unlink()
    result = newcomer.make("setup", f"WHEELS={folder}", **NO_INDEX)
    assert_refused(
        result, "torch (cpu) could not be installed", f"does WHEELS={folder} have the packages"
    )


def test_a_damaged_copy_of_a_package_is_not_installed(newcomer, tmp_path):
    folder = tmp_path / "room"
    assert fill(newcomer, folder).returncode == 0
    wheel = next(folder.glob("torch-*"))
    wheel.write_bytes(b"x")
    result = newcomer.make("setup", f"WHEELS={folder}", **NO_INDEX)
    assert_refused(result, "not as they were downloaded", wheel.name)
    assert not newcomer.stamp.exists()


def test_a_download_that_fails_says_why(newcomer, tmp_path):
    done = fill(newcomer, tmp_path / "room", PIP_FIND_LINKS=f"{tmp_path}/nothing")
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "torch" in done.stderr


def test_a_folder_that_cannot_be_made(newcomer, tmp_path):
    (tmp_path / "file").touch()
    done = fill(newcomer, tmp_path / "file" / "room")
    assert done.returncode != 0 and "cannot be made" in done.stderr


LOCK = """
[[packages]]
name = "torch"
wheels = [
    { url = "https://a.example/torch-2.13.0%2Bcpu-cp39-cp39-win32.whl", hashes = {sha256 = "0"} },
    { url = "https://a.example/torch-2.13.0%2Bcpu-py3-none-any.whl", hashes = {sha256 = "17"} },
]
"""


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (0, LOCK, "https://a.example/torch-2.13.0%2Bcpu-py3-none-any.whl#sha256=17"),
        (0, LOCK.replace("py3-none-any", "cp39-cp39-win32"), "for this Python and this system"),
        (1, "", "was not found, for the reason above"),
    ],
)
def test_where_uv_finds_the_cpu_build(monkeypatch, code, text, expected):
    """Of the wheels that it lists, the one for this Python, with its checksum."""
    result = subprocess.CompletedProcess([], code, text, "no network")
    monkeypatch.setattr(wheels.subprocess, "run", lambda *args, **kwargs: result)
    try:
        assert wheels.address_of("torch==2.13.0", "--torch-backend=cpu") == expected
    except SystemExit as ended:
        assert expected in str(ended)


def test_the_command_passes_the_folder_on(monkeypatch, tmp_path):
    """As an absolute path: the download runs in the workbook's folder."""
    lines = []

    def run(line, cwd, check):
        lines.append((line[1:], cwd))
        return subprocess.CompletedProcess(line, 3)

    monkeypatch.setattr(commands.subprocess, "run", run)
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli.app, ["wheels", "--to", "room"]).exit_code == 3
    assert lines[0][0] == ["-m", "tools.wheels", str(tmp_path / "room")]
    assert (lines[0][1] / "tools" / "wheels.py").is_file()
