"""`make setup`: which torch it chooses, what it keeps, repairs and refuses."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from tests.fresh_checkout import CHECKOUT, TORCH, FreshCheckout, assert_refused, obey_permissions
from tools import set_up

BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)
release = pytest.mark.release("whole set-ups of an environment")


@pytest.fixture(scope="module")
def ready(tmp_path_factory) -> FreshCheckout:
    """A newcomer whose `make setup` has just gone well, under variables that lead pip astray."""
    ready = FreshCheckout(tmp_path_factory.mktemp("ready"))
    hostile = {"PIP_USER": "1", "PIP_TARGET": "/nowhere", "PYTHONPATH": "/nowhere"}
    ready.first = ready.make("setup", **hostile)
    return ready


@pytest.fixture
def newcomer(tmp_path) -> FreshCheckout:
    """A copy of the checkout with no environment."""
    return FreshCheckout(tmp_path)


# Made, kept, brought up to date, repaired


@pytest.mark.long
def test_from_nothing_to_ready(ready):
    """One command, and torch and the package can be imported."""
    assert ready.first.returncode == 0, ready.first.stdout + ready.first.stderr
    assert "torch: cpu, because this machine shows no NVIDIA GPU" in ready.first.stdout
    assert ready.torch() == f"{torch.__version__.partition('+')[0]}+cpu"


def test_the_second_call_starts_at_once(ready):
    """Nothing has changed: no installer is started."""
    log, start = ready.log.read_text(), time.monotonic()
    assert ready.make("setup").returncode == 0
    assert time.monotonic() - start < 5  # 0.3 s seen
    assert ready.log.read_text() == log


@pytest.mark.push("environments that are made anew")
def test_new_pins_go_into_the_same_environment(ready):
    """What cannot be found is reported, and .venv still works; the next call continues."""
    pins, stamp = ready.pins.read_text(), ready.stamp.read_text()
    made = (ready.venv / "pyvenv.cfg").stat().st_mtime_ns
    ready.pins.write_text(pins.replace("torch==", "torch==9"))
    result = ready.make("setup")
    assert_refused(result, "requested torch==9", "torch (cpu) could not", str(ready.log))
    assert ready.stamp.read_text() == stamp
    ready.pins.write_text(pins + "# changed\n")
    assert ready.make("setup").returncode == 0
    assert ready.stamp.read_text() != stamp
    assert (ready.venv / "pyvenv.cfg").stat().st_mtime_ns == made


@release
def test_a_moved_folder_is_made_anew(newcomer):
    """An environment cannot move: its programs name their own folder."""
    assert newcomer.make("setup").returncode == 0
    moved = newcomer.folder.rename(newcomer.folder.with_name("moved"))
    newcomer.folder, newcomer.venv = moved, moved / ".venv"
    assert newcomer.make("setup").returncode == 0
    assert str(moved) in (newcomer.venv / "bin/pip").read_text()


@release
def test_an_interrupted_set_up_is_repaired_by_the_next_call(newcomer):
    """Killed while pip installs; the next call comes from the half-made environment's Python."""
    line = newcomer.call("setup")
    quiet = subprocess.DEVNULL
    running = subprocess.Popen(line, cwd=newcomer.folder, stdout=quiet, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (newcomer.log.exists() and "torch" in newcomer.log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert not newcomer.stamp.exists()
    again = newcomer.make("setup", PYTHON=str(newcomer.venv / "bin/python"))
    assert again.returncode == 0, again.stderr
    assert newcomer.torch()


def test_a_python_that_is_gone_is_seen(monkeypatch, tmp_path):
    """An upgrade of the system removed the Python behind .venv."""
    (tmp_path / "python").symlink_to("/nowhere/python3.11")
    monkeypatch.setattr(set_up, "PYTHON", tmp_path / "python")
    assert set_up.python_version() == ""


# What a machine can lack


@pytest.mark.parametrize("version", [(3, 8, 18), (3, 10, 0), (3, 14, 0)])
def test_a_python_of_the_wrong_version(monkeypatch, version):
    """Too old and too new are told which ones fit; an old one can read that far."""
    ast.parse((CHECKOUT / "tools/set_up.py").read_text(), feature_version=(3, 8))
    monkeypatch.setattr(set_up.sys, "version_info", version)
    with pytest.raises(SystemExit, match=r"needs Python 3\.11, 3\.12 or 3\.13"):
        set_up.main(["lab"])


def test_windows_is_told_of_wsl(monkeypatch):
    # Not os.name itself: pathlib, and with it pytest, would take this for Windows, too.
    monkeypatch.setattr(set_up, "os", SimpleNamespace(name="nt"))
    with pytest.raises(SystemExit, match=r"on Windows, run it in WSL 2"):
        set_up.main(["lab"])


def test_a_python_without_venv(newcomer, tmp_path):
    """Debian's python3 without python3-venv."""
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian/ensurepip.py").write_text("raise ImportError('left out')\n")
    assert_refused(newcomer.make("setup", PYTHONPATH=str(tmp_path / "debian")), "python3-venv")


def test_a_python_that_is_only_a_name_is_passed_over(newcomer, tmp_path):
    """pyenv leaves commands that fail when run: make tries the next one."""
    path = tmp_path / "bin"
    path.mkdir()
    for name in ("make", "sh", "env"):
        (path / name).symlink_to(shutil.which(name))
    for name, text in [("python3", "exit 127"), ("python3.12", f'exec "{sys.executable}" "$@"')]:
        (path / name).write_text(f"#!/bin/sh\n{text}\n")
        (path / name).chmod(0o755)
    result = newcomer.make("setup", "TORCH=unknown", PATH=str(path), PYTHON=None)
    assert_refused(result, "TORCH=unknown", "cpu, cuda, site")  # so a Python has started


def test_a_folder_that_cannot_be_written(newcomer):
    """An instructor's read-only copy: copy it."""
    newcomer.folder.chmod(0o555)
    words = {"capture_output": True, "text": True, "preexec_fn": obey_permissions}
    result = subprocess.run(newcomer.call("setup"), cwd=newcomer.folder, **words)
    newcomer.folder.chmod(0o755)
    assert_refused(result, "Permission denied", "copy the workbook to a folder of your own")


@pytest.mark.parametrize(("build", "dev", "needs"), [("cpu", False, 2), ("cuda", True, 10)])
def test_a_disk_that_is_too_full(monkeypatch, tmp_path, build, dev, needs):
    """Said at once, also of the disk that .venv links to, and not by an installer in the middle."""
    venv, asked = tmp_path / ".venv", []
    (tmp_path / "disk").mkdir()
    venv.symlink_to(tmp_path / "disk" / "env")
    monkeypatch.setattr(set_up, "VENV", venv)
    monkeypatch.setattr(set_up, "STAMP", venv / "workbook.json")
    free = SimpleNamespace(free=int(1.24e9))
    monkeypatch.setattr(set_up.shutil, "disk_usage", lambda path: asked.append(path) or free)
    words = f"{tmp_path}/disk/env needs {needs} GB, and its disk has 1.2 GB free"
    with pytest.raises(SystemExit, match=re.escape(words)):
        set_up.ensure(build, dev)
    assert asked == [str(tmp_path / "disk")] and not venv.exists()
    free.free = needs * 10**9
    set_up.check_disk(build, dev)


def test_what_an_old_environment_takes_counts_as_free(monkeypatch, tmp_path):
    """It is removed before the new one is made."""
    monkeypatch.setattr(set_up, "VENV", tmp_path)
    (tmp_path / "torch").write_bytes(bytes(1000))
    free = SimpleNamespace(free=set_up.DISK_BYTES["cpu"] - 1000)
    monkeypatch.setattr(set_up.shutil, "disk_usage", lambda path: free)
    set_up.check_disk("cpu", dev=False)
    free.free -= 1
    with pytest.raises(SystemExit):
        set_up.check_disk("cpu", dev=False)


def test_unknown_commands_are_refused():
    """A misspelt command lists the ones that exist, and the nearest; --help explains each."""
    with pytest.raises(SystemExit, match=r"lab, test.*Did you mean lab\?"):
        set_up.main(["labs"])


@pytest.mark.parametrize(("user", "mark", "is_said"), [(0, "no", 1), (0, ".", 0), (1000, "no", 0)])
def test_a_jupyterlab_of_root_is_said_outside_a_container(
    monkeypatch, capsys, tmp_path, user, mark, is_said
):
    monkeypatch.setattr(set_up.os, "geteuid", lambda: user)
    monkeypatch.setattr(set_up, "CONTAINER_MARKS", (tmp_path / mark,))
    monkeypatch.setattr(set_up, "write_css", lambda _: None)
    set_up.command_line("lab", [])
    assert capsys.readouterr().out.count("You are root") == is_said


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_names_every_command_and_sets_up_nothing(capsys, monkeypatch, word):
    """For those who have no make."""
    monkeypatch.setattr(set_up, "provide", lambda *_, **__: pytest.fail("it sets up"))
    set_up.main([word])
    said = capsys.readouterr().out
    assert all(re.search(rf"\b{command}\b", said) for command in set_up.COMMANDS)


# Which build of torch


@pytest.mark.parametrize(
    ("wanted", "present", "gpu", "kind", "reason"),
    [
        ("", "", False, "cpu", "TORCH=cuda overrides"),
        ("", "", True, "cuda", "TORCH=cpu overrides"),
        ("", "cpu", False, "cpu", ".venv holds it"),
        ("", "cpu", True, "cpu", "TORCH=cuda would use it"),  # no rebuild at a change of node
        ("", "site", True, "site", ".venv holds it"),
        ("cpu", "cuda", True, "cpu", "TORCH=cpu asks"),
        ("cuda", "cpu", False, "cuda", "TORCH=cuda asks"),
        ("site", "cpu", True, "site", "TORCH=site asks"),
    ],
)
def test_the_choice_and_its_reason(monkeypatch, wanted, present, gpu, kind, reason):
    """TORCH= decides, then what is there, then the GPU; the reason names the way to change it."""
    monkeypatch.setattr(set_up, "has_nvidia_gpu", lambda: gpu)
    chosen, message = set_up.choose(wanted, present)
    assert chosen == kind
    assert reason in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("echo 'GPU 0: NVIDIA H200'", True),
        ("echo 'No devices were found'", False),
        ("exit 9", False),  # the tool is there, the driver is not
    ],
)
def test_a_gpu_is_one_that_the_driver_lists(monkeypatch, tmp_path, text, expected):
    """The driver's tool does not prove that there is a GPU."""
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{text}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(set_up.Path, "is_dir", lambda path: False)
    assert set_up.has_nvidia_gpu() is expected


@pytest.mark.parametrize(
    ("platform", "build", "gpu", "expected"),
    [
        ("linux", "cpu", False, ["pip install V+cpu", "uv pip install --torch-backend=cpu V"]),
        ("linux", "cuda", True, ["uv pip install --torch-backend=auto V"]),
        ("linux", "cuda", False, ["pip install V"]),  # no driver to ask
        ("darwin", "cpu", False, ["pip install V"]),
    ],
)
def test_the_commands_that_fetch_it(monkeypatch, platform, build, gpu, expected):
    """Which installer gets which request; the CPU build is never plain torch on Linux."""
    monkeypatch.setattr(set_up, "has_nvidia_gpu", lambda: gpu)
    monkeypatch.setattr(set_up.sys, "platform", platform)
    pinned = "torch==" + torch.__version__.partition("+")[0]
    constrained = f" -c {set_up.CONSTRAINTS}"
    asked = [" ".join(way).replace(constrained, "") for way in set_up.ways_to_torch(build)]
    asked = [line.replace(pinned, "V") for line in asked]
    assert asked == expected


@pytest.mark.parametrize(
    ("found", "words"),
    [(["2.13.0+cpu", None, "/torch"], "has no CUDA"), (None, "does not start")],
)
def test_a_torch_that_is_not_the_one_asked_for_is_refused(monkeypatch, found, words):
    """An index that has only the CPU build is not taken for CUDA, nor is half an installation."""
    monkeypatch.setattr(set_up, "install", lambda *_: None)
    monkeypatch.setattr(set_up, "about_torch", lambda *_: found)
    with pytest.raises(SystemExit, match=words):
        set_up.fill("cuda", dev=False, site=None)


@release
def test_the_torch_of_a_site_is_used_and_not_installed(newcomer, tmp_path):
    """On PYTHONPATH, as modules put it, or in an active environment; unloaded, that is told."""
    (tmp_path / "module/torch").mkdir(parents=True)
    text = TORCH.format(version="2.11.0a0+site", cuda="12.8")
    (tmp_path / "module/torch/__init__.py").write_text(text)
    loaded = {"PYTHONPATH": str(tmp_path / "module"), "PYTHON": BASE_PYTHON}
    result = newcomer.make("setup", "TORCH=site", **loaded)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "torch 2.11.0a0+site" in result.stdout
    assert not list(newcomer.venv.glob("lib/*/site-packages/torch"))
    assert newcomer.make("setup", **loaded).returncode == 0
    assert_refused(newcomer.make("setup", PYTHON=BASE_PYTHON), "load your site's PyTorch module")
    assert newcomer.make("setup", "TORCH=site").returncode == 0
    assert newcomer.torch() == torch.__version__  # of the venv that runs this test


@pytest.mark.parametrize("version", [None, "2.10.1+cu121"])
def test_a_site_without_a_fitting_torch_is_refused(newcomer, tmp_path, version):
    """None at all, or one that is too old: said before anything is made."""
    (tmp_path / "module/torch").mkdir(parents=True)
    text = TORCH.format(version=version, cuda=None) if version else "raise ImportError\n"
    (tmp_path / "module/torch/__init__.py").write_text(text)
    module = {"PYTHONPATH": str(tmp_path / "module"), "PYTHON": BASE_PYTHON}
    result = newcomer.make("setup", "TORCH=site", **module)
    assert_refused(result, "TORCH=site needs torch 2.11 or newer", version or "none that starts")
    assert not newcomer.venv.exists()


def test_torch_stays_out_of_what_is_resolved():
    """It is there already; asked for again, it could come as another build."""
    wanted = set_up.requirements(dev=True)
    assert not [line for line in wanted if line.startswith("torch")]
    assert {line.partition(">")[0] for line in wanted} >= {"jupyterlab", "pytest", "setuptools"}


@pytest.mark.gpu1
def test_a_gpu_machine_has_the_build_that_uses_it():
    """Where the driver lists GPUs, the torch that was installed sees them."""
    assert set_up.has_nvidia_gpu()
    listed = subprocess.check_output(["nvidia-smi", "-L"], text=True).count("GPU ")
    assert torch.cuda.device_count() == listed
