"""Which build of torch `make setup` chooses, where it gets it, and that nothing replaces it."""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires

import pytest
import torch
from packaging.requirements import Requirement

from tests.newcomer import TORCH, Newcomer, one_sentence
from tools import packages, torch_build
from tools.problems import NETWORK, NOT_FOUND, InstallerFailed, Problem

BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)


@pytest.fixture
def newcomer(tmp_path) -> Newcomer:
    """A copy of the checkout with no environment."""
    return Newcomer(tmp_path)


@pytest.mark.parametrize(
    ("wanted", "present", "gpu", "kind", "reason"),
    [
        ("auto", None, False, "cpu", "TORCH=cuda overrides"),
        ("auto", None, True, "cuda", "TORCH=cpu overrides"),
        ("auto", "cpu", False, "cpu", "what .venv holds"),
        ("auto", "cpu", True, "cpu", "TORCH=cuda would use it"),  # no rebuild at a change of node
        ("auto", "site", True, "site", "what .venv holds"),
        ("cpu", "cuda", True, "cpu", "TORCH=cpu asks"),
        ("cuda", "cpu", False, "cuda", "TORCH=cuda asks"),
        ("site", "cpu", True, "site", "TORCH=site asks"),
    ],
)
def test_the_choice_and_its_reason(monkeypatch, wanted, present, gpu, kind, reason):
    """TORCH= decides, then what is there, then the GPU; the reason names the way to change it."""
    monkeypatch.setattr(torch_build, "has_nvidia_gpu", lambda: gpu)
    chosen, told = torch_build.choose(wanted, present)
    assert chosen == kind
    assert reason in told


def test_an_unknown_choice_is_one_sentence(newcomer):
    """A misspelt TORCH= names the ones that exist."""
    one_sentence(newcomer.make("setup", "TORCH=gpu"), "TORCH=gpu", "cpu, cuda, site")


@pytest.mark.parametrize(
    ("text", "kernel", "expected"),
    [
        ("echo 'GPU 0: NVIDIA H200'", [], True),
        ("echo 'No devices were found'", [], False),
        ("exit 9", [], False),  # the tool is there, the driver is not
        ("exit 9", ["0000:3b:00.0"], True),
    ],
)
def test_a_gpu_is_one_that_the_driver_lists(monkeypatch, tmp_path, text, kernel, expected):
    """The driver's tool alone does not make a GPU."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{text}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(torch_build.os, "listdir", lambda folder: kernel)
    assert torch_build.has_nvidia_gpu() is expected


@pytest.mark.parametrize(
    ("platform", "kind", "gpu", "expected"),
    [
        ("linux", "cpu", False, ["pip install torch==2.13.0+cpu"]),
        (
            "linux",
            "cuda",
            True,
            ["pip install uv", "uv pip install --torch-backend=auto torch==2.13.0"],
        ),
        ("linux", "cuda", False, ["pip install torch==2.13.0"]),  # no driver to ask
        ("darwin", "cpu", False, ["pip install torch==2.13.0"]),
        ("win32", "cpu", False, ["pip install torch==2.13.0"]),
    ],
)
def test_the_commands_that_fetch_it(monkeypatch, platform, kind, gpu, expected):
    """Which installer gets which request, on which system."""
    monkeypatch.setattr(torch_build, "has_nvidia_gpu", lambda: gpu)
    monkeypatch.setattr(torch_build.sys, "platform", platform)
    asked = []
    torch_build.install(kind, "2.13.0", lambda what, words: asked.append(" ".join(words)))
    assert asked == expected


@pytest.mark.parametrize("kind", [NOT_FOUND, NETWORK])
def test_uv_fetches_the_cpu_build_that_pip_does_not_find(monkeypatch, kind):
    """Never a plain torch from pip, which is gigabytes of CUDA; a dead network stops at once."""
    monkeypatch.setattr(torch_build.sys, "platform", "linux")
    asked = []

    def run(what, words):
        asked.append(" ".join(words))
        if "+cpu" in asked[-1]:
            said = {NOT_FOUND: "No matching distribution found", NETWORK: "Retrying (5 more)"}[kind]
            raise InstallerFailed(what, said, "the log")

    if kind == NETWORK:
        with pytest.raises(InstallerFailed):
            torch_build.install("cpu", "2.13.0", run)
        assert asked == ["pip install torch==2.13.0+cpu"]
    else:
        torch_build.install("cpu", "2.13.0", run)
        assert asked[1:] == [
            "pip install uv",
            "uv pip install --torch-backend=cpu torch==2.13.0",
        ]


def test_a_cuda_request_that_gets_no_cuda_is_refused(monkeypatch):
    """An index that has only the CPU build is not passed off as CUDA."""
    found = {"version": "2.13.0+cpu", "cuda": None, "gpus": 0}
    monkeypatch.setattr(torch_build, "ask", lambda python, env: found)
    with pytest.raises(Problem, match=r"TORCH=cuda.*has no CUDA"):
        torch_build.verify("cuda", "python", {})
    assert "torch 2.13.0+cpu" in torch_build.verify("cpu", "python", {})


def test_a_cuda_build_without_a_gpu_says_where_it_runs(monkeypatch):
    """Set up on a login node: the build is right, and the sentence says that no GPU answers."""
    found = {"version": "2.13.0+cu130", "cuda": "13.0", "gpus": 0}
    monkeypatch.setattr(torch_build, "ask", lambda python, env: found)
    assert "no GPU answers here" in torch_build.verify("cuda", "python", {})


def test_a_torch_that_cannot_be_imported_is_refused(tmp_path):
    """Seen after an installation that a full disk cut short."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(Problem, match="cannot be imported"):
        torch_build.verify("cpu", python, {})


def test_the_torch_of_a_module_is_used_and_not_installed(newcomer, tmp_path):
    """On PYTHONPATH, as modules put it; when the module is not loaded, that is what is said."""
    module = tmp_path / "module"
    (module / "torch").mkdir(parents=True)
    (module / "torch/__init__.py").write_text(TORCH.format(version="2.11.0a0+site", cuda="12.8"))
    loaded = {"PYTHONPATH": str(module), "PYTHON": BASE_PYTHON}
    done = newcomer.make("setup", "TORCH=site", **loaded)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch 2.11.0a0+site" in done.stdout
    assert not list(newcomer.folder.glob(".venv/lib/*/site-packages/torch"))
    assert newcomer.make("setup", **loaded).returncode == 0
    one_sentence(newcomer.make("setup", PYTHON=BASE_PYTHON), "load your site's PyTorch module")


def test_the_torch_of_an_active_environment_is_used(newcomer):
    """A venv made from a venv does not see that one's torch by itself."""
    done = newcomer.make("setup", "TORCH=site")
    assert done.returncode == 0, done.stdout + done.stderr
    assert newcomer.torch() == torch.__version__


@pytest.mark.parametrize("version", [None, "2.10.1+cu121"])
def test_a_site_without_a_fitting_torch_is_one_sentence(newcomer, tmp_path, version):
    """None at all, or one that is too old: said before anything is made."""
    (tmp_path / "module/torch").mkdir(parents=True)
    text = TORCH.format(version=version, cuda=None) if version else "raise ImportError\n"
    (tmp_path / "module/torch/__init__.py").write_text(text)
    module = {"PYTHONPATH": str(tmp_path / "module"), "PYTHON": BASE_PYTHON}
    done = newcomer.make("setup", "TORCH=site", **module)
    one_sentence(done, "TORCH=site", version or "cannot import torch")
    assert not (newcomer.folder / ".venv").exists()


def test_torch_stays_out_of_what_pip_resolves():
    """Neither asked for beside the other packages, nor needed by one of them."""
    wanted, seen = [Requirement(line) for line in packages.requirements(dev=True)], set()
    while wanted:
        requirement = wanted.pop()
        assert requirement.name != "torch"
        here = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if requirement.name in seen or not here:
            continue
        seen.add(requirement.name)
        try:
            wanted += [Requirement(line) for line in requires(requirement.name) or []]
        except PackageNotFoundError:  # this environment has no development packages
            continue
    assert {"jupyterlab", "pandas", "tornado"} <= seen


@pytest.mark.gpu
def test_a_gpu_machine_has_the_build_that_uses_it():
    """Where the driver lists GPUs, the torch that was installed sees them."""
    assert torch_build.has_nvidia_gpu()
    facts = torch_build.ask(sys.executable)
    listed = subprocess.check_output(["nvidia-smi", "-L"], text=True).count("GPU ")
    assert facts["cuda"]
    assert facts["gpus"] == listed
