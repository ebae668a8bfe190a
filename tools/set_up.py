"""Make the workbook's environment, then start what was asked for.

    python3 -m tools.set_up setup|lab|test|book|benchmark|lint  [arguments to pass on]

It needs nothing but Python itself. An old Python must be able to read it, to be told that it is too
old: no syntax newer than Python 3.6 in this folder's set-up files.
"""

import json
import os
import subprocess
import sys

from tools import environment, packages
from tools.problems import InstallerFailed, Problem

FIRST_PAGE = "notebooks/00_start_here.ipynb"

LAB_CONFIGURATION = packages.VENV / "etc" / "workbook"

# command: (what runs in .venv afterwards, whether it needs the development packages)
COMMANDS = {
    "setup": ([], False),
    "lab": (["-m", "jupyterlab"], False),
    # Two files at a time: much of a test's time is waiting for time limits, kernels and pages. In
    # their own order, or the browser, which is few tests and long ones, would come last and alone.
    "test": (["-m", "pytest", "-n2", "--dist=loadfile", "--no-loadscope-reorder"], True),
    "book": (["-m", "tools.book"], True),
    "benchmark": (["-m", "benchmarks"], True),
    "lint": (["-m", "tools.lint"], True),
}

LAB_OPTIONS = [
    f"--LabApp.default_url=/lab/tree/{FIRST_PAGE}",
    "--ServerApp.ip=127.0.0.1",  # a shared node: nobody else's machine can even knock
    "--ServerApp.log_level=WARN",  # what is left is the address, with its token
    "--LabApp.news_url=None",  # nothing is fetched from elsewhere, and nobody is asked about news
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
]


def lab_environment(env):
    """`env` for JupyterLab: this environment's kernel first, and no server settings from elsewhere.

    A reader's own server configuration may switch the token off or listen to the world. Their
    JupyterLab settings (theme, shortcuts) are kept.
    """
    home = os.path.join(os.path.expanduser("~"), ".jupyter")
    own = os.path.join(env.get("JUPYTER_CONFIG_DIR", home), "lab", "user-settings")
    env.setdefault("JUPYTERLAB_SETTINGS_DIR", own)
    env["JUPYTER_CONFIG_DIR"] = str(LAB_CONFIGURATION)
    env["JUPYTER_PREFER_ENV_PATH"] = "1"
    return env


def write_lab_defaults(folder):
    """Defaults of JupyterLab's settings, in a configuration folder: no question about news."""
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    labconfig = os.path.join(str(folder), "labconfig")
    os.makedirs(labconfig, exist_ok=True)
    with open(os.path.join(labconfig, "default_setting_overrides.json"), "w") as defaults:
        json.dump({"@jupyterlab/apputils-extension:notification": quiet}, defaults)


def command_line(command, arguments):
    """(words, variables) that start the command's own program, with `arguments` at its end."""
    line = [str(packages.PYTHON), *COMMANDS[command][0]]
    env = packages.variables(environment.read_stamp().get("torch"))
    if command == "lab":
        env = lab_environment(env)
        line += LAB_OPTIONS
        if hasattr(os, "geteuid") and os.geteuid() == 0:  # in a container; loopback and token hold
            line.append("--allow-root")
    return line + arguments, env


def start(command, arguments):
    """Replace this process by the command's own program; its exit code where that cannot be."""
    line, env = command_line(command, arguments)
    os.chdir(str(packages.ROOT))  # JupyterLab shows this folder: programs are there to be read
    if command == "lab":
        print("JupyterLab starts. Ctrl-C, twice, stops it.")
    sys.stdout.flush()
    if os.name == "nt":  # exec there would give the prompt back while the program still runs
        return subprocess.call(line, env=env)
    os.execve(line[0], line, env)


def main(arguments):
    """Exit code of one command; a Problem is printed as its one sentence."""
    if not arguments or arguments[0] not in COMMANDS:
        print(f"Which of these? {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    command, rest = arguments[0], arguments[1:]
    try:
        environment.check_python()
        environment.ensure(os.environ.get("TORCH") or "auto", dev=COMMANDS[command][1])
        if not LAB_CONFIGURATION.exists():
            write_lab_defaults(LAB_CONFIGURATION)
        if COMMANDS[command][0]:
            return start(command, rest)
        print("The environment is ready: make lab opens the first notebook.")
        return 0
    except Problem as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    except OSError as error:  # ours, not pip's: such as a disk that is full to the last byte
        print(f"\n{InstallerFailed('The environment', str(error), packages.LOG)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; run it again to go on.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
