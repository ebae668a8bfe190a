"""Which build of torch fits this machine, and how to get it.

TORCH=cpu   the build without CUDA: a tenth of the size, and all that gloo needs
TORCH=cuda  the build that fits this machine's NVIDIA driver
TORCH=site  the torch that the running Python already has, from a cluster's module or conda
TORCH=auto  cuda where there is an NVIDIA GPU, otherwise cpu (the default)
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tools.problems import NOT_FOUND, InstallerFailed, Problem

CHOICES = ("auto", "cpu", "cuda", "site")
OLDEST = (2, 11)
GIGABYTES = {"cpu": 2, "cuda": 8, "site": 1}  # of free disk before anything starts
SITE_HAS_NONE = (
    "TORCH=site: {python} cannot import torch; load your site's PyTorch module or activate its "
    "environment first, and run this again."
)
UNUSED_GPU = "this machine has a GPU, and TORCH=cuda would use it"
NAMES = {"cpu": "CPU build", "cuda": "CUDA build", "site": "this site's own"}

_ASK = """
import json, torch
print(json.dumps({
    "version": str(torch.__version__),
    "folder": torch.__path__[0],
    "cuda": torch.version.cuda,
    "gpus": torch.cuda.device_count() if torch.cuda.is_available() else 0,
}))
"""


def has_nvidia_gpu():
    """Whether the NVIDIA driver of this machine shows at least one GPU."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20
        )
        if answer.returncode == 0 and b"GPU " in answer.stdout:
            return True
    except (OSError, subprocess.TimeoutExpired):
        pass  # no driver tools, or a driver that hangs: the kernel's own list decides
    try:
        return bool(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return False


def choose(wanted, present):
    """(kind, reason) for TORCH=`wanted`, in an environment that holds `present` (or None).

    Without TORCH= an environment keeps what it has: on a cluster the same folder is seen from nodes
    with and without GPUs, and must not be rebuilt at each change of node.
    """
    if wanted not in CHOICES:
        raise Problem(f"TORCH={wanted} is unknown: it is one of {', '.join(CHOICES)}.")
    if wanted == "cuda" and sys.platform == "darwin":
        raise Problem("There is no CUDA build of torch for macOS: leave TORCH=cuda out.")
    if wanted != "auto":
        return wanted, f"TORCH={wanted} asks for it"
    if present == "cpu" and has_nvidia_gpu():
        return present, f"it is what .venv holds; {UNUSED_GPU}"
    if present:
        return present, "it is what .venv holds"
    if has_nvidia_gpu():
        return "cuda", "this machine has an NVIDIA GPU; TORCH=cpu overrides it"
    return "cpu", "this machine shows no NVIDIA GPU; TORCH=cuda overrides it"


def ask(python, env=None):
    """What `python` knows about its torch: version, folder, cuda, gpus; None if it has none."""
    answer = subprocess.run(
        [str(python), "-c", _ASK], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    )
    return json.loads(answer.stdout.decode().splitlines()[-1]) if answer.returncode == 0 else None


def release(version):
    """(2, 11) for any spelling of 2.11: 2.11.0+cu128, 2.11.0a0+git1234."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def site_torch():
    """The torch of the Python that runs this; a Problem if there is none or it is too old."""
    found = ask(sys.executable)
    if found is None:
        raise Problem(SITE_HAS_NONE.format(python=sys.executable))
    if release(found["version"]) < OLDEST:
        raise Problem(
            f"TORCH=site: {sys.executable} has torch {found['version']}, and the workbook needs "
            f"{OLDEST[0]}.{OLDEST[1]} or newer: load a newer module, or leave TORCH=site out."
        )
    return found


def show_site_torch(venv_python, env):
    """Let the new environment see the site's torch where --system-site-packages does not show it.

    A venv made from another venv sees that one's base, not its packages: a path file adds them.
    """
    outside = site_torch()
    if ask(venv_python, env) is None:
        where = [str(venv_python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        packages = subprocess.check_output(where, env=env).decode().strip()
        path_file = Path(packages) / "site_torch.pth"
        path_file.write_text(str(Path(outside["folder"]).parent) + "\n")
    inside = ask(venv_python, env)
    if inside is None or inside["version"] != outside["version"]:
        raise Problem(
            f"TORCH=site: torch {outside['version']} of {sys.executable} cannot be imported from "
            ".venv; leave TORCH=site out to get a torch of its own."
        )


def install(kind, version, run):
    """Install torch `version` as `kind`; `run(what, [tool, ...])` is environment's installer call.

    No package host is written down here. A CPU build that pip can find (a local wheel, a configured
    index) is taken; otherwise uv, itself an ordinary package, knows where PyTorch keeps its builds.
    """
    what = f"torch {version} ({NAMES[kind]})"
    if kind == "cpu" and sys.platform.startswith("linux"):
        try:
            return run(what, ["pip", "install", f"torch=={version}+cpu"])
        except InstallerFailed as failed:
            if failed.kind != NOT_FOUND:  # plain torch would bring gigabytes of CUDA packages
                raise
        return _with_uv(what, "cpu", version, run)
    if kind == "cuda" and has_nvidia_gpu():
        return _with_uv(what, "auto", version, run)  # auto: the newest CUDA that the driver can run
    # On Linux this is the CUDA build, for a node without a GPU; elsewhere it is the CPU or MPS one.
    return run(what, ["pip", "install", f"torch=={version}"])


def _with_uv(what, backend, version, run):
    run("uv, which fetches " + what, ["pip", "install", "uv"])
    run(what, ["uv", "pip", "install", f"--torch-backend={backend}", f"torch=={version}"])


def verify(kind, venv_python, env):
    """(sentence to print, torch version) after the set-up; a Problem if torch cannot be used."""
    found = ask(venv_python, env)
    if found is None:
        raise Problem(
            "torch was installed and cannot be imported: delete .venv and run this again."
        )
    if kind == "cuda" and not found["cuda"]:
        raise Problem(
            f"TORCH=cuda: the package index in use gave torch {found['version']}, which has no "
            "CUDA; TORCH=cpu or TORCH=site would work."
        )
    seen = f"torch {found['version']}, {found['gpus']} GPUs"
    if kind == "cuda" and not found["gpus"]:
        seen += " (no GPU answers here, so the notebooks run on the CPU; nvidia-smi tells more)"
    return seen
