"""A newcomer's machine for the tests of `make setup`: a copy of the checkout and nothing else.

Nothing is fetched: torch, setuptools and uv are wheels of a few lines, made on the spot.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tools import packages

CHECKOUT = Path(__file__).parents[1]
TORCH = """
__version__ = {version!r}


class version:
    cuda = {cuda!r}


class cuda:
    def is_available():
        return False
"""
# The part of setuptools that an editable install needs.
BACKEND = """
import zipfile
from pathlib import Path

PURE = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"


def get_requires_for_build_editable(config_settings=None):
    return []


def build_editable(folder, config_settings=None, metadata_directory=None):
    name, info = "ddp_workbook-0.1.0-py3-none-any.whl", "ddp_workbook-0.1.0.dist-info"
    about = "Metadata-Version: 2.1\\nName: ddp-workbook\\nVersion: 0.1.0\\n"
    with zipfile.ZipFile(Path(folder, name), "w") as wheel:
        wheel.writestr("ddp_workbook.pth", str(Path("src").resolve()))
        wheel.writestr(f"{info}/METADATA", about)
        wheel.writestr(f"{info}/WHEEL", PURE)
        wheel.writestr(f"{info}/RECORD", f"{info}/METADATA,,\\n{info}/WHEEL,,\\n")
    return name
"""


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """A wheel that pip installs, with these files and nothing else."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
        record += f"{path},sha256={digest.rstrip('=')},{len(text.encode())}\n"
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


class Newcomer:
    """A fresh copy of the checkout, on a machine that has nothing but this Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "the workbook"  # with a space, as many a home folder
        self.wheels = folder / "wheels"
        self.stamp = self.folder / ".venv" / "workbook.json"
        self.log = self.folder / ".venv" / "set_up.log"
        keep = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(CHECKOUT / "tools", self.folder / "tools", ignore=keep)
        (self.folder / "src/ddp_workbook").mkdir(parents=True)
        (self.folder / "src/ddp_workbook/__init__.py").touch()
        for name in ("Makefile", "constraints.txt"):
            shutil.copy(CHECKOUT / name, self.folder)
        project = (CHECKOUT / "pyproject.toml").read_text()
        project = re.sub(r"(?s)dependencies = \[.*?\n\]", 'dependencies = ["torch>=2.11"]', project)
        (self.folder / "pyproject.toml").write_text(project)
        backend = {"setuptools/__init__.py": "", "setuptools/build_meta.py": BACKEND}
        make_wheel(self.wheels, "setuptools", packages.pinned("setuptools"), backend)
        self.variables = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "PYTHON": sys.executable,
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": self.wheels.as_uri(),
        }

    def add_torch(self, version: str = "2.13.0+cpu", cuda: str | None = None) -> None:
        """Put a torch of this version where pip finds it."""
        files = {"torch/__init__.py": TORCH.format(version=version, cuda=cuda)}
        make_wheel(self.wheels, "torch", version, files)

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
        line = [self.folder / ".venv/bin/python", "-c", ask]
        return subprocess.check_output(line, text=True).strip()


def one_sentence(done: subprocess.CompletedProcess, *parts: str) -> None:
    """Assert that the command failed with one sentence that has these parts, and no traceback."""
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if line and not line.startswith("make: ***")]
    assert len(told) == 1, done.stderr
    for part in parts:
        assert part in told[0]
    assert "Traceback" not in done.stdout + done.stderr
