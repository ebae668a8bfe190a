"""What a machine can lack when `make lab` is typed: each gets one sentence that says what to do."""

import ast
import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.newcomer import CHECKOUT, Newcomer, one_sentence
from tools import environment, problems, set_up, torch_build


@pytest.fixture
def newcomer(tmp_path) -> Newcomer:
    """A copy of the checkout with no environment."""
    return Newcomer(tmp_path)


@pytest.fixture
def bare_path(tmp_path) -> Path:
    """A folder for PATH with what make and the scripts call, and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("make", "sh", "env"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


def test_no_python_at_all(newcomer, bare_path):
    """Which to install."""
    done = newcomer.make("lab", PATH=str(bare_path), PYTHON=None)
    one_sentence(done, "No Python was found", "3.11, 3.12 or 3.13")


def test_a_python_that_is_only_a_name_is_passed_over(newcomer, bare_path):
    """pyenv leaves commands that fail when run: the next one is tried."""
    for name, text in [("python3", "exit 127"), ("python3.12", f'exec "{sys.executable}" "$@"')]:
        (bare_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (bare_path / name).chmod(0o755)
    done = newcomer.make("setup", "TORCH=unknown", PATH=str(bare_path), PYTHON=None)
    one_sentence(done, "TORCH=unknown")  # so a Python has started


def test_a_named_python_that_does_not_run(newcomer):
    """PYTHON= that is not there is not silently replaced by another."""
    one_sentence(newcomer.make("lab", "PYTHON=/nowhere/python"), "PYTHON=/nowhere/python")


@pytest.mark.parametrize("version", [(3, 8, 18), (3, 10, 0), (3, 14, 0)])
def test_a_python_of_the_wrong_version(monkeypatch, capsys, version):
    """Too old and too new are told which ones fit."""
    monkeypatch.setattr(environment.sys, "version_info", version)
    assert set_up.main(["lab"]) == 1
    assert "needs Python 3.11, 3.12 or 3.13" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["set_up", "environment", "packages", "problems", "torch_build"])
def test_an_old_python_can_read_the_set_up(name):
    """Python 3.6 must get the sentence and not a syntax error."""
    ast.parse((CHECKOUT / "tools" / f"{name}.py").read_text(), feature_version=(3, 6))


def test_a_python_without_venv(newcomer, tmp_path):
    """Debian's python3 without python3-venv."""
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian/ensurepip.py").write_text("raise ImportError('left out')\n")
    done = newcomer.make("setup", PYTHONPATH=str(tmp_path / "debian"))
    one_sentence(done, "python3-venv")


def test_an_index_without_torch_then_no_network_then_both_mended(newcomer):
    """Two sentences, and the same command goes on from there once its cause is gone."""
    done = newcomer.make("setup")
    one_sentence(done, "torch 2.13.0", "not found", ".venv/set_up.log")
    closed = {"PIP_NO_INDEX": None, "PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "1"}
    done = newcomer.make("setup", **closed)
    one_sentence(done, "torch 2.13.0", "does not answer", "network")
    newcomer.add_torch()
    assert newcomer.make("setup").returncode == 0


def test_a_full_disk_is_told_before_anything_starts(monkeypatch, tmp_path):
    """Less room than the build takes: both figures; a half-made environment counts as room."""
    monkeypatch.setattr(environment, "VENV", tmp_path)
    with open(tmp_path / "torch", "wb") as half_made:
        half_made.truncate(7_000_000_000)
    usage = shutil.disk_usage("/")._replace(free=500_000_000)
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(problems.Problem, match=r"about 8 GB.* has 7\.5 GB for it"):
        environment.check_space(torch_build.GIGABYTES["cuda"])
    environment.check_space(torch_build.GIGABYTES["cpu"])


def test_a_disk_that_fills_up_meanwhile(monkeypatch, capsys):
    """Our own writing fails before pip's does: the same sentence."""

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(environment, "ensure", full)
    assert set_up.main(["setup"]) == 1
    assert "The disk is full" in capsys.readouterr().err


def obey_permissions() -> None:
    """In a child of root: give up CAP_DAC_OVERRIDE, so that read-only means read-only."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)


def test_a_folder_that_cannot_be_written(newcomer):
    """An instructor's read-only copy: copy it."""
    newcomer.folder.chmod(0o555)
    done = subprocess.run(
        newcomer.call("setup"),
        cwd=newcomer.folder,
        capture_output=True,
        text=True,
        preexec_fn=obey_permissions,
    )
    newcomer.folder.chmod(0o755)
    one_sentence(done, "cannot be written", "copy the workbook")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("ERROR: Could not install: [Errno 28] No space left on device", "The disk is full"),
        ("OSError: [Errno 122] Disk quota exceeded: '/home/me/.venv/lib'", "quota"),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\n"
            "ERROR: No matching distribution found for torch==2.13.0+cpu",
            "does not answer",
        ),
        ("SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]')", "certificate"),
        ("error: Failed to fetch: `https`\n  Caused by: dns error", "does not answer"),
        ("ERROR: Could not install packages: [Errno 13] Permission denied: '/x'", "read-only"),
        ("ERROR: No matching distribution found for numpy>=9", "not found for this Python"),
        ("note: odd {thing}\nERROR: Failed building wheel for psutil", "Failed building wheel"),
        ("", "no reason given"),
    ],
)
def test_what_installers_say_becomes_one_sentence(words, part):
    """Each known way to fail has its own advice; an unknown one is passed on."""
    sentence = str(problems.InstallerFailed("numpy", words, "the log"))
    assert part in sentence
    assert "\n" not in sentence
