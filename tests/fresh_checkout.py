"""A newcomer's machine for the tests of `make setup`: a copy of the checkout and nothing else.

Nothing is fetched: torch, setuptools and uv are wheels of a few lines, made on the spot.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
TORCH = """
__version__ = {version!r}


class version:
    cuda = {cuda!r}
"""
# Hands over to pip; an editable install, which needs a real setuptools, is one path here.
UV = """
import os, subprocess, sys, sysconfig

words = [word for word in sys.argv[1:] if not word.startswith("--torch-backend")]
if "-e" in words:
    with open(os.path.join(sysconfig.get_path("purelib"), "newcomer.pth"), "w") as paths:
        paths.write(os.path.join(words[words.index("-e") + 1], "src"))
    sys.exit()
sys.exit(subprocess.call([sys.executable, "-m", *words]))
"""


def make_wheel(folder: Path, name: str, version: str, module: str, text: str) -> None:
    """A wheel that pip installs, with this module and nothing else."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/{module}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)


class FreshCheckout:
    """A fresh copy of the checkout, on a machine that has nothing but this Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "the workbook"  # with a space, as many a home folder
        self.venv = self.folder / ".venv"
        self.log, self.stamp = self.venv / "set_up.log", self.venv / "workbook.json"
        self.pins = self.folder / "constraints.txt"
        shutil.copytree(CHECKOUT / "tools", self.folder / "tools")
        (self.folder / "src/ddp_workbook").mkdir(parents=True)
        (self.folder / "src/ddp_workbook/__init__.py").touch()
        for name in ("Makefile", "constraints.txt"):
            shutil.copy(CHECKOUT / name, self.folder)
        project = (CHECKOUT / "pyproject.toml").read_text()
        project = re.sub(r"(?s)dependencies = \[.*?\n\]", 'dependencies = ["torch>=2.11"]', project)
        project = re.sub(r"(?s)lab = \[.*?\n\]", "lab = []", project)
        (self.folder / "pyproject.toml").write_text(project)
        wheels, versions = (
            folder / "wheels",
            dict(re.findall(r"(\S+)==(\S+)", self.pins.read_text())),
        )
        make_wheel(wheels, "uv", versions["uv"], "__main__", UV)
        make_wheel(wheels, "setuptools", versions["setuptools"], "__init__", "")
        version = versions["torch"] + "+cpu"
        make_wheel(wheels, "torch", version, "__init__", TORCH.format(version=version, cuda=None))
        self.variables = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "PYTHON": sys.executable,
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": wheels.as_uri(),
        }

    def call(self, *words: str, **variables: str | None) -> list[str]:
        """The command line for Popen or run, with these variables set, or taken away by None."""
        env = {**self.variables, **variables}
        pairs = [f"{name}={value}" for name, value in env.items() if value is not None]
        return ["env", "-i", *pairs, "make", "--no-print-directory", *words]

    def make(self, *words: str, **variables: str | None) -> subprocess.CompletedProcess:
        """Run make to its end; gives its exit code, stdout and stderr."""
        line = self.call(*words, **variables)
        return subprocess.run(line, cwd=self.folder, capture_output=True, text=True, timeout=120)

    def torch(self) -> str:
        """The version of the torch that .venv imports."""
        ask = "import torch, ddp_workbook; print(torch.__version__)"
        return subprocess.check_output([self.venv / "bin/python", "-c", ask], text=True).strip()


def obey_permissions() -> None:
    """In a child of root: give up CAP_DAC_OVERRIDE, so that read-only means read-only."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)


def assert_refused(result: subprocess.CompletedProcess, *parts: str) -> None:
    """Assert that the command failed in words that have these parts, and without a traceback."""
    assert result.returncode != 0
    assert "Traceback" not in result.stdout + result.stderr
    for part in parts:
        assert part in result.stderr
