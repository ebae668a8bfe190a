"""What pip installs into .venv, and how a failure of pip becomes one sentence.

torch never takes part in pip's resolution: it is installed first, then everything else without it,
so that no package can replace it by another build.
"""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

from tools import torch_build
from tools.problems import NETWORK, NOT_FOUND, InstallerFailed

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
LOG = VENV / "set_up.log"
UNFINISHED = VENV / "unfinished"  # there while something is being installed


def variables(kind):
    """The environment variables for a program of .venv, without those that lead it elsewhere."""
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
    env = variables(kind)

    def run(what, command):
        run_installer(what, command, env)

    if kind == "site":
        torch_build.show_site_torch(PYTHON, env)
    else:
        torch_build.install(kind, pinned("torch"), run)
    wanted = requirements(dev)
    # What a site has beside torch may be old, and its JupyterLab keeps its pages elsewhere.
    own = ["--ignore-installed"] if kind == "site" else []
    run(f"JupyterLab and {len(wanted) - 1} other packages", ["pip", "install", *own, *wanted])
    run(
        "ddp_workbook itself",
        ["pip", "install", "--no-deps", "--no-build-isolation", "-e", str(ROOT)],
    )


def pinned(name):
    """The version that constraints.txt gives `name`."""
    return re.search(rf"(?m)^{name}==([^\s;]+)", CONSTRAINTS.read_text()).group(1)


def requirements(dev):
    """What pyproject.toml asks for, without torch; setuptools is what installs the package."""
    import tomllib  # not in the Pythons that are turned away with a sentence

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + (project["optional-dependencies"]["dev"] if dev else [])
    return [line for line in wanted if re.match(r"[\w.-]+", line).group() != "torch"] + [
        "setuptools"
    ]


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
    # torch is the one download worth a progress bar, which pip draws on stdout
    quiet = [] if sys.stdout.isatty() and what.startswith("torch") else ["--quiet"]
    done = subprocess.run(command + quiet, stderr=subprocess.PIPE, env=env)
    words = done.stderr.decode("utf-8", "replace")
    with contextlib.suppress(OSError), open(str(LOG), "a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(command)}\n{words}")  # not on a full disk, which is told below
    failed = InstallerFailed(what, words, LOG.relative_to(ROOT)) if done.returncode else None
    if failed is None or failed.kind in (NETWORK, NOT_FOUND):  # nothing was installed yet
        UNFINISHED.unlink()
    if failed:
        raise failed
