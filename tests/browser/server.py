"""JupyterLab's server, started as `make lab` starts it, for a test."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tools import set_up


@contextlib.contextmanager
def server(root: Path) -> Iterator[dict]:
    """`make lab`'s own server on a free port, at the folder `root`; gives url, token, port, pid.

    Only what belongs to a reader is ours: the theme, no saving by itself, and every cell drawn at
    once for the picture.
    """
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as home:
        home = Path(home)
        write_setting(home, "apputils-extension", "themes", theme="JupyterLab Light")
        write_setting(home, "notebook-extension", "tracker", windowingMode="none")
        write_setting(home, "docmanager-extension", "plugin", autosave=False)
        set_up.write_css(home / "config")
        line, env = set_up.command_line("lab", ["--ServerApp.port=0", "--no-browser"])
        line[0] = sys.executable
        line += [f"--ServerApp.root_dir={root}", "--LabApp.expose_app_in_browser=True"]
        env["PATH"] = os.path.dirname(sys.executable) + os.pathsep + env["PATH"]
        env["IPYTHONDIR"] = str(home / "ipython")
        for name in ("config", "data", "runtime"):
            env[f"JUPYTER_{name.upper()}_DIR"] = str(home / name)
        for name in ("settings", "workspaces"):
            env[f"JUPYTERLAB_{name.upper()}_DIR"] = str(home / name)
        with open(home / "log", "w") as log:
            options = {"env": env, "stdout": log, "stderr": log, "start_new_session": True}
            process = subprocess.Popen(line, **options)
        try:
            yield wait_for_server(process, home)
        finally:
            process.terminate()  # it ends its kernels, and they their ranks
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:  # seen once: a worker thread of anyio 4.14 that
                process.kill()  # nobody had ended, after kernels and sockets were gone
                process.wait()


def write_setting(home: Path, extension: str, name: str, **values: object) -> None:
    """One of JupyterLab's settings files."""
    folder = home / "settings" / "@jupyterlab" / extension
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jupyterlab-settings").write_text(json.dumps(values))


def wait_for_server(process: subprocess.Popen, home: Path) -> dict:
    """What the server writes about itself, once it answers: url, token, port, pid."""
    about = home / "runtime" / f"jpserver-{process.pid}.json"
    deadline = time.monotonic() + 300
    while not (about.exists() and about.read_text().endswith("}") and answers(about)):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("JupyterLab does not start:\n" + (home / "log").read_text())
        time.sleep(0.1)
    return json.loads(about.read_text())


def answers(about: Path) -> bool:
    """Whether the server takes a connection: on a busy machine its file has come before that."""
    try:
        socket.create_connection(("127.0.0.1", json.loads(about.read_text())["port"])).close()
    except ConnectionRefusedError:
        return False
    return True
