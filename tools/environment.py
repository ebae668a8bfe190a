"""The workbook's own environment, .venv: made once, repaired when half made, left alone when fresh.

Standard library only, like all that `make lab` needs on a bare machine.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools import packages, torch_build
from tools.packages import CONSTRAINTS, LOG, PYTHON, ROOT, UNFINISHED, VENV
from tools.problems import InstallerFailed, Problem

STAMP = VENV / "workbook.json"

_LOOK = """
import importlib.util, sys
import pip
print("%d.%d" % sys.version_info[:2], importlib.util.find_spec("torch") is not None)
"""


def ensure(wanted, dev):
    """Bring .venv up to date with TORCH=`wanted`, with the development packages if `dev`.

    Returns at once, without pip, when the stamp says that nothing has changed.
    """
    old = read_stamp()
    kind, reason = torch_build.choose(wanted, old.get("torch"))
    version, sees_torch = look_inside(kind)
    new = make_stamp(kind, version, dev or old.get("dev", False))
    if old == new and not UNFINISHED.exists():
        if kind == "site" and not sees_torch:
            raise Problem(torch_build.SITE_HAS_NONE.format(python=PYTHON))
        if torch_build.UNUSED_GPU in reason:
            print(f"torch: {torch_build.NAMES[kind]}; {reason}.")
        return
    check_folder()
    print(f"Python {sys.version.split()[0]}, {sys.executable}")
    print(f"torch: {torch_build.NAMES[kind]}, because {reason}.", flush=True)
    started = time.monotonic()
    if kind == "site":
        torch_build.site_torch()  # before anything is deleted
    if must_rebuild(old, new):
        check_space(torch_build.GIGABYTES[kind])
        make_venv(kind)
    packages.install(kind, new["dev"])
    seen = torch_build.verify(kind, PYTHON, packages.variables(kind))
    new["python"], _ = look_inside(kind)
    STAMP.write_text(json.dumps(new, indent=1) + "\n")
    print(f"Ready after {time.monotonic() - started:.0f} s: {seen}.", flush=True)


def read_stamp():
    """What .venv was made from; empty if it is not there or was not finished."""
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}


def make_stamp(kind, version, dev):
    """What .venv would be made from now. The folder belongs to it: an environment cannot move."""
    inputs = b"".join(path.read_bytes() for path in (ROOT / "pyproject.toml", CONSTRAINTS))
    return {
        "root": str(ROOT),
        "python": version,
        "torch": kind,
        "dev": dev,
        "inputs": hashlib.sha256(inputs).hexdigest(),
    }


def look_inside(kind):
    """(Python version, whether it finds a torch) in .venv; ("", False) if that is broken."""
    try:
        answer = subprocess.run(
            [str(PYTHON), "-c", _LOOK],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=packages.variables(kind),
        )
    except OSError:
        return "", False
    words = answer.stdout.decode().split()
    return (words[0], words[1] == "True") if answer.returncode == 0 else ("", False)


def must_rebuild(old, new):
    """Whether .venv is absent, broken, half made, was moved, or holds another build of torch."""
    if not new["python"] or UNFINISHED.exists():
        return True
    fixed = ["root", "python", "torch"]
    if new["torch"] == "site":  # its packages ignore what is installed, so pip cannot renew them
        fixed += ["inputs", "dev"]
    return bool(old) and any(old[key] != new[key] for key in fixed)


def check_python():
    """Raise a Problem where the running Python is of another version or cannot make a venv."""
    if not (3, 11) <= sys.version_info[:2] < (3, 14):
        raise Problem(
            f"The workbook needs Python 3.11, 3.12 or 3.13, and {sys.executable} is "
            f"{sys.version.split()[0]}: install one of them, or name it with PYTHON=."
        )
    try:
        import ensurepip  # noqa: F401 - Debian leaves it out, in a package of its own
        import venv  # noqa: F401
    except ImportError:
        raise Problem(
            f"{sys.executable} cannot make virtual environments: install its venv package (on "
            "Debian and Ubuntu: sudo apt install python3-venv) and run this again."
        ) from None


def check_folder():
    """Raise a Problem if .venv could not be written here."""
    for folder in (ROOT, VENV):
        if folder.exists() and not os.access(str(folder), os.W_OK):
            raise Problem(
                f"{folder} cannot be written: copy the workbook to a folder of your own and run "
                "this again."
            )


def check_space(gigabytes):
    """Raise a Problem if the disk that will hold .venv is too full for it."""
    free = shutil.disk_usage(str(VENV if VENV.exists() else ROOT)).free
    inside = [os.path.join(folder, name) for folder, _, names in os.walk(VENV) for name in names]
    free += sum(os.lstat(path).st_size for path in inside)  # what is there now makes room
    if free < gigabytes * 1e9:
        raise Problem(
            f"The environment takes about {gigabytes} GB, and the disk that holds {ROOT} has "
            f"{free / 1e9:.1f} GB for it: make room, or copy the workbook to a larger disk."
        )


def make_venv(kind):
    """An empty .venv in place of whatever is there; .venv may be a link to a larger disk."""
    VENV.mkdir(exist_ok=True)
    for old in VENV.iterdir():
        shutil.rmtree(str(old)) if old.is_dir() and not old.is_symlink() else old.unlink()
    UNFINISHED.write_text("python -m venv\n")
    # Started from .venv itself, the running Python has just been deleted: the one behind it stays.
    inside = VENV in Path(sys.executable).parents
    python = getattr(sys, "_base_executable", sys.executable) if inside else sys.executable
    command = [python, "-m", "venv", str(VENV)]
    command += ["--system-site-packages"] if kind == "site" else []
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    LOG.write_bytes(made.stdout)
    if made.returncode:
        words = made.stdout.decode("utf-8", "replace")
        raise InstallerFailed("The virtual environment", words, LOG)
    UNFINISHED.unlink()
