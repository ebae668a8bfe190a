"""Make .venv, then run a command:  python3 -m tools.set_up lab [arguments to pass on]

Python with pip is enough to begin: pip installs uv into .venv, and uv does the rest. torch is
installed first and is not part of later resolutions, so no package can replace it by another build.
Python 3.8 must be able to parse this file, so that it can say that it is too old.
"""

import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT, CONSTRAINTS = ROOT / "pyproject.toml", ROOT / "constraints.txt"
VENV = ROOT / ".venv"  # may be a link to a larger disk
PYTHON, LOG = VENV / "bin" / "python", VENV / "set_up.log"
STAMP = VENV / "workbook.json"  # what .venv was made from; absent while it is being made
PIP = ["pip", "install", "-c", str(CONSTRAINTS)]
UV = ["uv", *PIP]
# Files that Docker and Podman put into a container, where people are usually root.
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
CHECKSUMS = "SHA256SUMS"  # in a folder of wheels; `sha256sum -c` reads it, too
PORT = re.compile(r"--(port|ServerApp\.port|LabApp\.port)\b(?!_)")
BUILDS = ("cpu", "cuda", "site")  # of torch; site: what a cluster's module offers
GB = 10**9
DISK_BYTES = {"cpu": 2 * GB, "cuda": 9 * GB, "site": 1 * GB}  # bytes of disk, from nothing
FOR_TESTS = 1 * GB  # more
NEED_TORCH = ("accelerate", "lightning")  # would bring a second torch beside a site's

# The Python to build on: not .venv's own, which is deleted when .venv is made again.
BASE = sys._base_executable if Path(sys.prefix) == VENV else sys.executable

# As many files at a time as tests/levels.py finds room for. In their own order, or the few long
# tests would run last and alone. A process that is killed ends the run: pytest-xdist 3.8 would
# start another one, and then wait for ever.
PYTEST = ["-m", "pytest", "-nauto", "--dist=loadfile", "--no-loadscope-reorder"]
PYTEST += ["--max-worker-restart=0"]
COMMANDS = {
    "setup": ["-c", "print('The environment is ready: make lab opens the first notebook.')"],
    "lab": ["-m", "jupyterlab"],
    "test": PYTEST,
    "test-push": [*PYTEST, "--push"],
    "test-all": [*PYTEST, "--all"],
    "check": ["-m", "tools.check"],
    "book": ["-m", "tools.book"],
    "figures": ["-m", "tools.figures"],
    "benchmark": ["-m", "benchmarks"],
    "gpu": ["-m", "benchmarks.gpu"],
    "lint": ["-m", "pre_commit", "run", "--all-files"],
}
HELP = """Usage: python3 -m tools.set_up COMMAND [WORDS]

Makes .venv or brings it up to date, then runs the command with the words, as `make COMMAND
ARGS="WORDS"` does where make is installed:

  lab        open JupyterLab on the first notebook
  setup      the environment alone
  test       what proves the workbook; test-push and test-all: the rest as well
  check      lint, types, and the tests that the changed files need
  book       execute every notebook and build the HTML to read, in build/book
  figures    draw every picture under figs/ anew, from recorded data
  benchmark  the measured ratios of this machine
  gpu        all that one NVIDIA GPU can show, recorded in data/gpu
  lint       formatting, lint, types, notebooks without outputs; fixes what it can

Variables of the environment, of which all are optional:

  TORCH=cpu|cuda|site  which build of PyTorch; site: the one that this Python has
  WHEELS=DIR           install from this folder, without a network
  SHARED=DIR           use the packages of this environment, which is only read"""
# JupyterLab itself breaks lines of output within words.
CSS = """/* Written by tools/set_up.py. */
.jp-OutputArea .jp-OutputArea-output pre { word-break: normal; overflow-wrap: anywhere; }
"""
KERNEL_SETTINGS = """# Written by tools/set_up.py.
c.InteractiveShellApp.extensions = ["ddp_workbook.page.after_restart"]
"""
MEND = (
    "fix it (the network, HTTPS_PROXY, space on the disk), or copy the workbook to a folder of "
    "your own, and run this again."
)
ABOUT_TORCH = """
import json, torch
print(json.dumps([str(torch.__version__), torch.version.cuda, torch.__path__[0]]))
"""
OF_GPU = ("numpy", "pandas", "psutil")  # besides torch
SEES_GPU = "import torch; raise SystemExit(not torch.cuda.is_available())"
SEES_TORCH = "import importlib.util as u; raise SystemExit(u.find_spec('torch') is None)"


def check_version():
    """Refuse a Python of another version, and Windows, where .venv has other paths."""
    if os.name == "nt":
        sys.exit(
            "The workbook's set-up needs Linux or macOS: on Windows, run it in WSL 2, a Linux "
            "inside Windows."
        )
    if not (3, 11) <= sys.version_info[:2] < (3, 14):
        sys.exit(
            f"The workbook needs Python 3.11, 3.12 or 3.13, but {sys.executable} is "
            f"{sys.version.split()[0]}: install one of them, or name it with PYTHON=/path/to/it."
        )


def check_python():
    """Refuse a Python of another version, and one that cannot make a venv."""
    check_version()
    try:
        import ensurepip  # noqa: F401 - Debian keeps it in a package of its own
    except ImportError:
        sys.exit(
            f"{sys.executable} cannot make virtual environments: install its venv package (Debian "
            "and Ubuntu: sudo apt install python3-venv) and run this again."
        )


def has_nvidia_gpu():
    """Whether this machine's NVIDIA driver lists a GPU; nvidia-smi may exist without one."""
    gpus = Path("/proc/driver/nvidia/gpus")
    if gpus.is_dir() and any(gpus.iterdir()):
        return True
    try:
        result = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0 and b"GPU " in result.stdout


def choose(request, present):
    """(build, reason) for TORCH=`request` where .venv holds the build `present`; "" for none.

    Without TORCH= an environment keeps its build: nodes with and without GPUs share one folder.
    """
    if request and request not in BUILDS:
        sys.exit(f"TORCH={request} is unknown: choose one of {', '.join(BUILDS)}.")
    if request:
        return request, f"TORCH={request} asks for it"
    gpu = has_nvidia_gpu()
    if present:
        hint = "; this machine has a GPU, and TORCH=cuda would use it"
        return present, ".venv holds it" + (hint if gpu and present == "cpu" else "")
    if gpu:
        return "cuda", "this machine has an NVIDIA GPU; TORCH=cpu overrides it"
    return "cpu", "this machine shows no NVIDIA GPU; TORCH=cuda overrides it"


def variables(build):
    """The environment for a program of .venv, without variables that point elsewhere."""
    env = dict(os.environ, VIRTUAL_ENV=str(VENV), PIP_USER="0")
    for name in ("PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "__PYVENV_LAUNCHER__"):
        env.pop(name, None)
    if build != "site":  # a cluster's module may show its torch through PYTHONPATH
        env.pop("PYTHONPATH", None)
    # What is compiled is kept, or each of a hundred kernels and ranks would compile it again.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env["PATH"] = str(PYTHON.parent) + os.pathsep + env.get("PATH", os.defpath)
    return env


def check_disk(build, dev):
    """Refuse a disk on which a new .venv does not fit; what an old one takes is free by then."""
    target = VENV.resolve()  # VENV may be a link, also to a folder that is not there yet
    place = next(folder for folder in (target, *target.parents) if folder.is_dir())
    free, size = shutil.disk_usage(str(place)).free, DISK_BYTES[build] + dev * FOR_TESTS
    if free < size:
        files = (path for path in target.rglob("*") if path.is_file() and not path.is_symlink())
        free += sum(path.stat().st_size for path in files)
    if free < size:
        sys.exit(
            f"{target} needs {size / GB:.0f} GB, and its disk has {free / GB:.1f} GB free: "
            "delete something, or make .venv a link to a folder on a larger disk, and try again."
        )


def about_torch(python, env=None):
    """[version, CUDA version, folder] of the torch that `python` imports; None without."""
    line = [str(python), "-c", ABOUT_TORCH]
    result = subprocess.run(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return None if result.returncode else json.loads(result.stdout.splitlines()[-1])


def site_torch():
    """What `about_torch` says about the Python that runs this; refuses if it is missing or old."""
    torch = about_torch(BASE)
    if not is_new_enough(torch):
        version = torch[0] if torch else "none that starts"
        sys.exit(
            f"TORCH=site needs torch 2.11 or newer, and {BASE} has {version}: load your site's "
            "PyTorch module or activate its environment first, and run this again."
        )
    return torch


def is_new_enough(torch):
    """Whether `about_torch` has found torch 2.11 or newer."""
    return bool(torch) and [int(number) for number in re.findall(r"\d+", torch[0])[:2]] >= [2, 11]


def install(what, build, *ways):
    """Run the installers of .venv in turn until one succeeds."""
    print(f"  {what} ...", flush=True)
    env = dict(variables(build), UV_PYTHON=str(PYTHON), UV_COMPILE_BYTECODE="1")
    if build == "site":  # what a site has may be old, so it does not count as installed
        env["PIP_IGNORE_INSTALLED"] = "1"
    env.update(from_wheels())
    for way in ways:
        line = [str(PYTHON), "-m", *way]
        with open(str(LOG), "a") as log:
            print("$", *line, file=log, flush=True)
            if not subprocess.call(line, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log):
                return
    print("", *LOG.read_text(errors="replace").splitlines()[-10:], sep="\n", file=sys.stderr)
    mend = (
        MEND
        if not from_wheels()
        else (
            f"does WHEELS={os.environ['WHEELS']} have the packages for Python "
            f"{sys.version.split()[0]} on this system? {MEND}"
        )
    )
    sys.exit(f"\n{what} could not be installed, for the reason above: {mend} Log: {LOG}")


def from_wheels():
    """Variables for pip and uv that make them install from the folder WHEELS=, without a network.

    Empty without WHEELS=. `ddp-workbook wheels` fills such a folder.
    """
    if not os.environ.get("WHEELS"):
        return {}
    folder = Path(os.environ["WHEELS"]).expanduser().absolute()
    if not any(folder.glob("*.whl")):
        sys.exit(
            f"WHEELS={os.environ['WHEELS']}: there are no wheels in {folder}. "
            "`ddp-workbook wheels --to DIR` fills such a folder, on a machine with a network."
        )
    links = folder.as_uri()  # a path with a space would be several
    return dict(PIP_FIND_LINKS=links, UV_FIND_LINKS=links, PIP_NO_INDEX="1", UV_NO_INDEX="1")


def check_wheels():
    """Refuse wheels of WHEELS= that are not those of the folder's list of checksums."""
    folder = Path(os.environ.get("WHEELS") or os.devnull).expanduser().absolute()
    listed = folder / CHECKSUMS
    if not listed.is_file():  # no WHEELS=, or a folder that was filled in another way
        return
    lines = re.findall(r"(?m)^([0-9a-f]{64}) [ *](.+)$", listed.read_text())
    wheels = [(digest, folder / name) for digest, name in lines]
    damaged = [file.name for digest, file in wheels if file.exists() and checksum(file) != digest]
    if damaged:
        sys.exit(
            f"WHEELS={os.environ['WHEELS']}: not as they were downloaded: {', '.join(damaged)}. "
            "Copy the folder again, or fill a new one with `ddp-workbook wheels --to DIR`."
        )


def checksum(file):
    """SHA-256 of a file, as sha256sum writes it."""
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        for part in iter(lambda: opened.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()


def pinned_requirement(name):
    """`name` with its version in constraints.txt."""
    return re.search(rf"(?m)^{name}==\S+", CONSTRAINTS.read_text()).group()


def ways_to_torch(build):
    """The installer calls to try for the pinned torch.

    No package host is named here: uv knows where PyTorch keeps its builds. pip comes first
    for the CPU build, because a local wheel may be configured for it. On Linux without a GPU, plain
    torch is gigabytes of CUDA packages: only TORCH=cuda gets it.
    """
    torch = pinned_requirement("torch")
    if build == "cpu" and sys.platform.startswith("linux"):
        return [*PIP, f"{torch}+cpu"], [*UV, "--torch-backend=cpu", torch]
    if build == "cuda" and has_nvidia_gpu():
        return ([*UV, "--torch-backend=auto", torch],)  # the newest CUDA that the driver can run
    return ([*PIP, torch],)  # macOS, or CUDA on a login node, which has no driver to ask


def requirements(dev, build=""):
    """What `.[lab]`, or `.[lab,dev]`, requires without torch; setuptools for the package itself.

    Installers do not count a site's torch as installed, so there packages that need torch are left
    out, too.
    """
    import tomllib  # older Pythons, which are refused, lack it

    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = project["dependencies"] + extras["lab"] + (extras["dev"] if dev else [])
    out = ("torch", *(NEED_TORCH if build == "site" else ()))
    lines_without_torch = [line for line in lines if re.match(r"[\w-]+", line).group() not in out]
    return [*lines_without_torch, "setuptools"]


def fill(build, dev, site):
    """Install everything into .venv; returns the version of its torch."""
    env = variables(build)
    # Without -c: with it, a pip that reaches no index reports a conflict with the pin.
    install("uv", build, ["pip", "install", pinned_requirement("uv")])
    if not site:
        install(f"torch ({build})", build, *ways_to_torch(build))
    elif about_torch(PYTHON, env) is None:  # .venv sees no packages of the venv it was made from
        path_file = next(VENV.glob("lib/python3*/site-packages")) / "site_torch.pth"
        path_file.write_text(str(Path(site[2]).parent) + "\n")
    packages = requirements(dev, build)
    install(
        "JupyterLab and all else", build, [*UV, *packages], [*PIP, *packages]
    )  # a mirror is pip's
    own = ["--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    install("ddp_workbook itself", build, [*UV, *own])
    version, cuda, _ = about_torch(PYTHON, env) or sys.exit(f"torch does not start. Log: {LOG}")
    if build == "cuda" and not cuda:
        sys.exit(f"torch {version} was installed, which has no CUDA: use TORCH=cpu or TORCH=site.")
    return version


def read_stamp(stamp=None):
    """What .venv, or another environment, was made from; empty if it was not finished."""
    try:
        return json.loads((stamp or STAMP).read_text())
    except (OSError, ValueError):
        return {}


def inputs():
    """A hash of what decides on the packages."""
    return hashlib.sha256(PROJECT.read_bytes() + CONSTRAINTS.read_bytes()).hexdigest()


def provide(request, dev):
    """Bring .venv up to date: with packages of its own, or those of SHARED=, now or earlier."""
    shared = os.environ.get("SHARED") or (not request and read_stamp().get("shared"))
    if shared and request and os.environ.get("SHARED"):
        sys.exit("Give either TORCH= or SHARED=: a shared environment has its torch already.")
    if shared:
        use(Path(shared).expanduser().resolve(), dev)
    else:
        ensure(request, dev)


def use(shared, dev):
    """Make .venv a thin one over the environment `shared`, which is only read."""
    from tools import thin

    theirs = read_stamp(shared / STAMP.name)
    if not theirs or "shared" in theirs:
        sys.exit(
            f"SHARED={shared}: there is no environment that `make setup` has finished, or you may "
            "not read it. Name the folder .venv of the copy in which it was set up."
        )
    env = variables(theirs["torch"])
    if theirs["inputs"] != inputs():
        words = (
            f"SHARED={shared} was made for another edition of the workbook: take the same one in "
            f"both copies, and let its owner run `make setup` in {theirs['root']}."
        )
        if read_stamp().get("shared") != str(shared) or not thin.finds_both(VENV, ROOT, env):
            sys.exit(words)
        print(f"{words} Until then, the packages are those of the earlier edition.", flush=True)
        return
    if dev and not theirs["dev"]:
        sys.exit(f"SHARED={shared} has no packages for tests: its owner runs `make test` once.")
    new = dict(theirs, root=str(ROOT), shared=str(shared))
    print(f"torch: {theirs['torch']}, from {shared}.", flush=True)
    if read_stamp() == new and thin.finds_both(VENV, ROOT, env):
        return
    if STAMP.exists() and not VENV.is_symlink():
        STAMP.unlink()
    try:
        old_paths = [str(Path(theirs["root"]) / VENV.name), str(shared)]
        options = ["--system-site-packages"] if theirs["torch"] == "site" else []
        thin.make(VENV, shared, ROOT, old_paths, options)
    except OSError as error:
        sys.exit(f".venv could not be made: {error}.")
    if not thin.finds_both(VENV, ROOT, env):
        sys.exit(f".venv does not find torch in {shared}: may you read and run all of it?")
    write_kernel_settings()
    STAMP.write_text(json.dumps(new, indent=1) + "\n")


def ensure(request, dev):
    """Bring .venv up to date with TORCH=`request`; at once if nothing has changed."""
    old = read_stamp()
    build, reason = choose(request, old.get("torch", ""))
    print(f"torch: {build}, because {reason}.", flush=True)
    new = {
        "root": str(ROOT),  # an environment cannot move
        "python": python_version(),
        "torch": build,
        "dev": dev or old.get("dev", False),
        "inputs": inputs(),
    }
    look = [str(PYTHON), "-c", SEES_TORCH]
    if old == new and subprocess.call(look, env=variables(build)) == 0:
        return
    start = time.monotonic()
    site = site_torch() if build == "site" else None
    keeps_packages = not site and all(
        old.get(key) == new[key] for key in ("root", "python", "torch")
    )
    if not keeps_packages:
        check_disk(build, new["dev"])
    check_wheels()
    if STAMP.exists():
        STAMP.unlink()  # if interrupted from here on, start from nothing next time
    try:
        if not keeps_packages:
            print(f"  .venv, with {BASE} ...", flush=True)
            options = ["--clear", *(["--system-site-packages"] if site else [])]
            # resolved: venv refuses a link
            if subprocess.call([BASE, "-m", "venv", *options, str(VENV.resolve())]):
                sys.exit(f".venv could not be made, for the reason above: {MEND}")
        version = fill(build, new["dev"], site)
    except SystemExit:
        if keeps_packages:  # an installer gave up before it changed anything, so .venv still works
            STAMP.write_text(json.dumps(old, indent=1) + "\n")
        raise
    write_kernel_settings()
    new["python"] = python_version()
    STAMP.write_text(json.dumps(new, indent=1) + "\n")
    print(f"Ready after {time.monotonic() - start:.0f} s: torch {version}.", flush=True)


def write_kernel_settings():
    """Let every kernel of .venv say what to do when a page's first cells have not run."""
    settings = VENV / "etc" / "ipython" / "ipython_kernel_config.py"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(KERNEL_SETTINGS)


def python_version():
    """Version of the Python behind .venv; "" if it is gone, as after an upgrade of the system."""
    return PYTHON.resolve().name.replace("python", "") if PYTHON.exists() else ""


def command_line(command, arguments):
    """(words, variables) that start the command's own program, with `arguments` at its end.

    JupyterLab's settings are in tools/lab. A reader's own server configuration is not read, because
    it may disable the token or listen on all addresses; their theme and shortcuts are.
    """
    env = variables(read_stamp().get("torch"))
    if command == "lab":
        if os.geteuid() == 0 and not any(mark.exists() for mark in CONTAINER_MARKS):
            print("You are root: cells, and all that they start, may change this whole machine.")
        home = env.get("JUPYTER_CONFIG_DIR", os.path.expanduser("~/.jupyter"))
        env.setdefault("JUPYTERLAB_SETTINGS_DIR", os.path.join(home, "lab", "user-settings"))
        env["JUPYTER_CONFIG_DIR"] = str(VENV / "etc" / "jupyter")
        write_css(VENV / "etc" / "jupyter")
        env["JUPYTER_CONFIG_PATH"] = str(ROOT / "tools" / "lab")
        env["JUPYTER_PREFER_ENV_PATH"] = "1"  # .venv's kernel before the reader's own
        if any(PORT.match(word) for word in arguments):
            # JupyterLab would silently take the next port, and a tunnel would end elsewhere.
            arguments = ["--ServerApp.port_retries=0", *arguments]
    return [str(PYTHON), *COMMANDS[command], *arguments], env


def write_css(folder):
    """What JupyterLab adds to its own style, in its configuration folder."""
    css = folder / "custom" / "custom.css"
    if not css.exists() or css.read_text() != CSS:
        css.parent.mkdir(parents=True, exist_ok=True)
        css.write_text(CSS)


def gpu_command(arguments):
    """The same as `command_line` for `make gpu`, after making ready what it needs.

    A machine with a GPU often has its own torch and no network. Without .venv and TORCH=, that
    torch is used if it has CUDA; if nothing can be installed beside it, its Python runs what it
    can.
    """
    if not has_nvidia_gpu() and not any(map(sees_gpu, (PYTHON, BASE))):
        sys.exit("make gpu measures an NVIDIA GPU, but this machine shows none.")
    check_version()
    request, site = os.environ.get("TORCH", ""), about_torch(BASE)
    if not request and not read_stamp() and is_new_enough(site) and site[1]:
        request = "site"
        print(f"{BASE} has torch {site[0]}, with CUDA {site[1]}: as with TORCH=site.", flush=True)
    if request == "site":
        for name, less in {"PIP_RETRIES": "1", "PIP_TIMEOUT": "10"}.items():
            os.environ.setdefault(name, less)  # otherwise pip retries for minutes without a network
    try:
        check_python()
        ensure(request, dev=True)
    except SystemExit as problem:
        if request != "site" or not is_new_enough(site):
            raise
        print(problem, file=sys.stderr)
        return with_site_alone(arguments)
    return command_line("gpu", arguments)


def with_site_alone(arguments):
    """`make gpu` without .venv, with the packages of the site's Python."""
    look = f"import importlib.util as u; print(*(n for n in {OF_GPU} if u.find_spec(n) is None))"
    lacking = subprocess.check_output([BASE, "-c", look]).decode().split()
    if lacking:
        sys.exit(f"{BASE} has no {', '.join(lacking)}, without which make gpu cannot start.")
    print(f"Without .venv: {BASE} runs the parts that need nothing else.", flush=True)
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths)))
    return [BASE, *COMMANDS["gpu"], *arguments], env


def sees_gpu(python):
    """Whether this Python has a torch that can use a GPU here."""
    line, quiet = [str(python), "-c", SEES_GPU], subprocess.DEVNULL
    return Path(python).exists() and not subprocess.call(line, stdout=quiet, stderr=quiet)


def main(arguments):
    """Set up and start; report anything that goes wrong in words, never by a traceback."""
    if arguments[:1] in (["--help"], ["-h"], ["help"]):
        print(HELP)
        return
    if not arguments or arguments[0] not in COMMANDS:
        near = difflib.get_close_matches(arguments[0], COMMANDS, 1) if arguments else []
        meant = f" Did you mean {near[0]}?" if near else ""
        sys.exit(f"Give one of these commands: {', '.join(COMMANDS)}.{meant} --help explains them.")
    try:
        if arguments[0] == "gpu":
            line, env = gpu_command(arguments[1:])
        else:
            check_python()
            provide(os.environ.get("TORCH", ""), dev=arguments[0] not in ("setup", "lab"))
            line, env = command_line(arguments[0], arguments[1:])
        os.chdir(str(ROOT))  # JupyterLab shows this folder, so that programs can be read
        os.execve(line[0], line, env)
    except OSError as error:  # ours, such as a full disk
        sys.exit(f"{error}: {MEND}")
    except KeyboardInterrupt:
        sys.exit("\nStopped; run it again to continue.")


if __name__ == "__main__":
    main(sys.argv[1:])
