"""The workbook's own environment, .venv: made once, repaired when half made, left alone when fresh.

Standard library only. torch never takes part in pip's resolution: it is installed first, then
everything else without it, so that no package can replace it by another build.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools import torch_build
from tools.problems import NETWORK, NOT_FOUND, InstallerFailed, Problem

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / "workbook.json"
UNFINISHED = VENV / "unfinished"  # there while something is being installed
LOG = VENV / "set_up.log"
CONSTRAINTS = ROOT / "constraints.txt"


def ensure(wanted, dev):
    """Bring .venv up to date with TORCH=`wanted`, with the development packages if `dev`.

    Returns at once, without pip, when the stamp says that nothing has changed.
    """
    old = read_stamp()
    kind, reason = torch_build.choose(wanted, old.get("torch"))
    new = make_stamp(kind, dev or old.get("dev", False))
    if old == new and not UNFINISHED.exists():
        if "TORCH=" in reason and wanted == "auto":
            print(f"torch: {torch_build.NAMES[kind]}: {reason}.")
        return
    check_folder()
    print(f"Python {sys.version.split()[0]}, {sys.executable}")
    print(f"torch: {torch_build.NAMES[kind]}, because {reason}.", flush=True)
    started = time.monotonic()
    if must_rebuild(old, new):
        check_space(torch_build.GIGABYTES[kind])
        make_venv(kind)
    install(kind, new["dev"])
    seen = torch_build.verify(kind, PYTHON, clean_environment(kind))
    new["python"] = venv_version()
    STAMP.write_text(json.dumps(new, indent=1) + "\n")
    print(f"Ready after {time.monotonic() - started:.0f} s: {seen}.", flush=True)


def read_stamp():
    """What .venv was made from; empty if it is not there or was not finished."""
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}


def make_stamp(kind, dev):
    """What .venv would be made from now. The folder belongs to it: an environment cannot move."""
    inputs = b"".join(path.read_bytes() for path in (ROOT / "pyproject.toml", CONSTRAINTS))
    return {
        "root": str(ROOT),
        "python": venv_version(),
        "torch": kind,
        "dev": dev,
        "inputs": hashlib.sha256(inputs).hexdigest(),
    }


def venv_version():
    """'3.11' for the Python in .venv, '' if there is none that runs and finds its packages."""
    ask = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run(
            [str(PYTHON), "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return ""
    return answer.stdout.decode().strip() if answer.returncode == 0 else ""


def must_rebuild(old, new):
    """Whether .venv is absent, broken, half made, was moved, or holds another build of torch."""
    if not venv_version() or UNFINISHED.exists():
        return True
    return bool(old) and any(old[key] != new[key] for key in ("root", "python", "torch"))


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
        if folder.exists() and not os.access(folder, os.W_OK):
            raise Problem(
                f"{folder} cannot be written: copy the workbook to a folder of your own and run "
                "this again."
            )


def check_space(gigabytes):
    """Raise a Problem if the disk that will hold .venv is too full for it."""
    free = shutil.disk_usage(str(VENV if VENV.exists() else ROOT)).free / 1e9
    if free < gigabytes:
        raise Problem(
            f"The environment takes about {gigabytes} GB and the disk that holds {ROOT} has "
            f"{free:.1f} GB free: make room, or copy the workbook to a larger disk."
        )


def make_venv(kind):
    """An empty .venv in place of whatever is there; .venv may be a link to a larger disk."""
    VENV.mkdir(exist_ok=True)
    for old in VENV.iterdir():
        shutil.rmtree(str(old)) if old.is_dir() and not old.is_symlink() else old.unlink()
    UNFINISHED.write_text("python -m venv\n")
    # Called from the environment itself, its own Python has just gone: the one behind it stays.
    python = getattr(sys, "_base_executable", sys.executable)
    inside = VENV in Path(sys.executable).parents
    command = [python if inside else sys.executable, "-m", "venv", str(VENV)]
    command += ["--system-site-packages"] if kind == "site" else []
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    LOG.write_bytes(made.stdout)
    if made.returncode:
        raise InstallerFailed(
            "The virtual environment", made.stdout.decode("utf-8", "replace"), LOG
        )
    UNFINISHED.unlink()


def clean_environment(kind):
    """The variables for a program of .venv: without those that send pip or Python elsewhere."""
    env = dict(os.environ, PIP_USER="0", PIP_DISABLE_PIP_VERSION_CHECK="1")
    strangers = ["PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "__PYVENV_LAUNCHER__"]
    if kind != "site":  # a cluster's module may show its torch through PYTHONPATH
        strangers.append("PYTHONPATH")
    for name in strangers:
        env.pop(name, None)
    env["VIRTUAL_ENV"] = str(VENV)
    env["PATH"] = str(PYTHON.parent) + os.pathsep + env.get("PATH", os.defpath)
    return env


def install(kind, dev):
    """torch, then the other packages, then this package itself."""
    env = clean_environment(kind)

    def run(what, command):
        run_installer(what, command, env)

    if kind == "site":
        packages = subprocess.check_output(
            [str(PYTHON), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], env=env
        )
        torch_build.show_site_torch(PYTHON, packages.decode().strip(), env)
    else:
        torch_build.install(kind, pinned("torch"), run)
    packages = requirements(dev)
    run(f"JupyterLab and {len(packages) - 1} other packages", ["pip", "install", *packages])
    own = ["pip", "install", "--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    run("ddp_workbook itself", own)


def pinned(name):
    """The version that constraints.txt gives `name`."""
    return re.search(rf"(?m)^{name}==([^\s;]+)", CONSTRAINTS.read_text()).group(1)


def requirements(dev):
    """What pyproject.toml asks for, without torch; setuptools is what installs the package."""
    import tomllib  # not in the Pythons that check_python has to turn away

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + (project["optional-dependencies"]["dev"] if dev else [])
    return [line for line in wanted if not line.startswith("torch>")] + ["setuptools"]


def run_installer(what, command, env):
    """Run pip or uv of .venv under the constraints; InstallerFailed says what went wrong.

    A process that is killed in the middle of installing leaves packages that look whole and are
    not. UNFINISHED stays behind then, and the next call starts afresh.
    """
    print(f"  {what} ...", flush=True)
    UNFINISHED.write_text(what + "\n")
    command = [str(PYTHON), "-m", *command, "-c", str(CONSTRAINTS)]
    if command[2] == "uv":
        command += ["--python", str(PYTHON)]
    quiet = [] if sys.stdout.isatty() and what.startswith("torch") else ["--quiet"]
    done = subprocess.run(command + quiet, stderr=subprocess.PIPE, env=env)  # stdout: progress bar
    words = done.stderr.decode("utf-8", "replace")
    with open(str(LOG), "a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(command)}\n{words}")
    failed = InstallerFailed(what, words, LOG.relative_to(ROOT)) if done.returncode else None
    if failed is None or failed.kind in (NETWORK, NOT_FOUND):  # nothing was installed yet
        UNFINISHED.unlink()
    if failed:
        raise failed
