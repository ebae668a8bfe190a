"""Runs a Python module on other people's code: in bubblewrap where it works, always with limits.

In the sandbox there is nothing to read but the system's programs and libraries, Python, its
packages and the workbook's own files; nothing can be written but folders in memory, the home folder
is empty, and there is no network but a loopback of its own. Without it, the limits hold, and
nothing else does. Neither guards the verdict: an attempt runs beside the process that judges it.
"""

import contextlib
import os
import pwd
import select
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from ddp_workbook.page.pages import CHECKOUT
from manyranks.errors import WorkbookError
from manyranks.launcher.limits import free_memory

MIB = 2**20
CPU_LIMIT_S = 300  # of one process
ANSWER_TIMEOUT_S = 240.0  # of one answer
FILE_BYTES = 256 * MIB  # of one file
MEMORY_BYTES = 4096 * MIB  # of one process; of all: see `SandboxedProcess`
SCRATCH_BYTES = 512 * MIB  # of each folder in memory
MAX_PROCESSES = 256  # of one run, at once; four ranks are seven
EXTRA_THREADS = 1024  # more than the user has at the start
KILL_TIMEOUT_S = 10.0  # seconds until all of them have been killed
POLL_S = 0.2  # seconds between two looks at what the processes take
VARIABLE_NAMES = (  # variables that programs need; others may be secrets
    *("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "VIRTUAL_ENV"),
    *("LD_LIBRARY_PATH", "OMP_WAIT_POLICY"),
)
# What Python and torch need of the system; each is left out where it is not there.
SYSTEM_FOLDERS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/nix/store", "/gnu/store"),  # all programs and libraries of NixOS and Guix
    *("/sys/devices/system", "/sys/fs/cgroup"),  # processors, and how much memory there is
    *("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts"),  # names, of loopback too
)
WORKBOOK_FOLDERS = ("src", "data", "job_scripts")  # of this checkout: nobody's attempts
MISSING = "bwrap is not installed (Debian and Ubuntu: sudo apt install bubblewrap)"


class SandboxLimitExceeded(Exception):
    """What runs apart has been killed; the message says what it did, as the end of a sentence."""


@dataclass(frozen=True)
class Sandbox:
    """How code runs here: `name` is bubblewrap or none; `why` says why there is none."""

    name: str
    why: str = ""

    def __str__(self) -> str:
        if not self.why:
            return (
                "in a sandbox (bubblewrap): it could change none of your files and reach no network"
            )
        return (
            f"without a sandbox, because {self.why}: it {danger()}. Only time, memory, processes "
            "and the size of a file were limited"
        )


def danger() -> str:
    """What code that runs without a sandbox could do, after "it"."""
    whose = (
        "all files of this machine, because you are root," if os.geteuid() == 0 else "your files"
    )
    return f"could change {whose} and use the network"


@cache
def sandbox() -> Sandbox:
    """The sandbox of this machine, tried once."""
    bwrap = shutil.which("bwrap")
    if not bwrap:
        return Sandbox("none", MISSING if sys.platform == "linux" else "bwrap needs Linux")
    try:
        line = [*bwrap_command(bwrap), sys.executable, "-c", "import socket"]
        result = subprocess.run(line, capture_output=True, text=True, timeout=60, env=variables())
    except (OSError, subprocess.SubprocessError) as error:
        return Sandbox("none", f"bwrap does not start ({error})")
    if result.returncode:
        last_lines = result.stderr.strip().splitlines()[-1:]
        return Sandbox("none", f"bwrap does not work here ({' '.join(last_lines)})")
    return Sandbox("bubblewrap")


def variables() -> dict[str, str]:
    """The environment of code that runs apart; no GPU, which other people's code could hold."""
    environment = {name: os.environ[name] for name in VARIABLE_NAMES if name in os.environ}
    user = {"PYTHONUSERBASE": site.getuserbase()}
    return environment | user | {"CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}


def bwrap_command(bwrap: str) -> list[str]:
    """The command line of bubblewrap, up to the program."""
    namespaces = ["--unshare-" + what for what in ("user", "ipc", "pid", "net", "uts")]
    scratch = ["--size", str(SCRATCH_BYTES), "--tmpfs"]
    line = [bwrap, *namespaces, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for folder in SYSTEM_FOLDERS:
        line += ["--ro-bind-try", folder, folder]
    line += ["--dev", "/dev", *scratch, "/dev/shm", "--remount-ro", "/dev", "--proc", "/proc"]
    for path in filter(Path.is_dir, scratch_folders()):
        line += [*scratch, str(path)]
    for path in needed_folders():
        line += ["--ro-bind", str(path), str(path)]
    line += ["--remount-ro", "/"]  # it is in memory as well, without a limit
    return [*line, "--setenv", "HOME", "/tmp", "--chdir", "/tmp", "--"]


def scratch_folders() -> list[Path]:
    """Folders that are empty in the sandbox, and can be written there."""
    homes = {Path.home().resolve(), Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()}
    folders = {Path("/home"), Path("/tmp"), Path("/run"), Path("/var/tmp"), *homes}
    return sorted(folders - {Path("/")})  # outer folders before inner ones


def needed_folders() -> list[Path]:
    """What Python, torch and the workbook are read from; no folder that has a home folder in it."""
    names = [sys.prefix, sys.base_prefix, site.getusersitepackages()]
    names += [str(CHECKOUT / name) for name in WORKBOOK_FOLDERS]
    names += set(sys.path) - {os.getcwd()}  # it is there after `python -m`
    names += [name for name in os.environ.get("LD_LIBRARY_PATH", "").split(":") if name]
    program = Path(sys.executable)
    while program.is_symlink():  # .venv's Python may lead through a folder of links
        program = program.parent / program.readlink()
        names.append(str(program.parent))
    folders = {
        path for name in names if name for path in (Path(name).absolute(), Path(name).resolve())
    }
    private = scratch_folders()
    return sorted(  # outer folders before inner ones
        path
        for path in folders
        if path.exists() and not any(own.is_relative_to(path) for own in private)
    )


def limit_this_process() -> None:
    """Apply the limits to this process and to all that it starts; end it if its parent dies."""
    import resource

    threads = 0
    for process in psutil.process_iter(["uids", "num_threads"]):
        if process.info["uids"] and process.info["uids"].real == os.getuid():
            threads += process.info["num_threads"] or 0
    limits = {
        "CPU": CPU_LIMIT_S,
        "FSIZE": FILE_BYTES,
        "DATA": MEMORY_BYTES,  # not AS: torch reserves far more addresses than it uses
        "NPROC": threads + EXTRA_THREADS,
        "CORE": 0,
    }
    for name, limit in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        most = resource.getrlimit(kind)[1]
        least = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (least, least))
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: nobody gets away from it


class SandboxedProcess:
    """A Python module that runs apart and answers lines with lines, until `close`.

    Its first line says that it is ready. `words` is the command line after `python -m`.
    """

    def __init__(self, *words: str):
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self.scratch = tempfile.TemporaryDirectory(prefix="ddp-workbook-apart-")
        line: list[str] = [sys.executable, "-m", *words]
        env = variables()
        if sandbox().name == "bubblewrap":
            line = [*bwrap_command(shutil.which("bwrap") or "bwrap"), *line]
        else:
            env |= {"HOME": self.scratch.name, "TMPDIR": self.scratch.name}
        self.memory = free_memory() * 3 // 4
        self.process = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=env,
            cwd=self.scratch.name,
            start_new_session=True,
        )
        self.buffer = b""
        try:
            self._line()
        except SandboxLimitExceeded as problem:
            self.log.seek(0)
            last_lines = self.log.read().decode("utf-8", "replace").strip().splitlines()[-3:]
            self.close()
            message = "\n".join(
                [f"What judges attempts does not start: it {problem}.", *last_lines]
            )
            raise WorkbookError(message) from None

    def answer(self, line: str) -> str:
        """The line that it answers. SandboxLimitExceeded if it took too much, or has ended."""
        assert self.process.stdin
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise SandboxLimitExceeded("ended the process that judges it") from None
        return self._line()

    def _line(self) -> str:
        assert self.process.stdout
        end = time.monotonic() + ANSWER_TIMEOUT_S
        while b"\n" not in self.buffer:
            if time.monotonic() > end:
                raise SandboxLimitExceeded(f"has not ended after {ANSWER_TIMEOUT_S:g} s")
            if select.select([self.process.stdout], [], [], POLL_S)[0]:
                data = os.read(self.process.stdout.fileno(), 65536)
                if not data:
                    raise SandboxLimitExceeded("ended the process that judges it")
                self.buffer += data
                if len(self.buffer) > MIB:
                    raise SandboxLimitExceeded("wrote into the pipe of the process that judges it")
            self._look()
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    def _look(self) -> None:
        """Raise SandboxLimitExceeded if all its processes together take too much."""
        running = self.running()
        if len(running) > MAX_PROCESSES:
            raise SandboxLimitExceeded(f"started more than {MAX_PROCESSES} processes")
        if sum(map(most_memory, running)) > self.memory < sum(map(memory, running)):
            raise SandboxLimitExceeded(f"used more than {self.memory / 2**30:.1f} GiB of memory")

    def running(self) -> list[psutil.Process]:
        """What runs of its processes and theirs."""
        try:
            first = psutil.Process(self.process.pid)
            return list(filter(runs, [first, *first.children(recursive=True)]))
        except psutil.Error:
            return []

    def close(self) -> None:
        """End all its processes, and remove what they wrote."""
        end = time.monotonic() + KILL_TIMEOUT_S
        remaining = self.running()
        if sandbox().name == "bubblewrap":
            self.process.kill()  # with it ends the first process in there, and so do all others
        # Otherwise the first adopts what the others leave, and ends last.
        while remaining and time.monotonic() < end:
            for sign in (signal.SIGSTOP, signal.SIGKILL):  # what is stopped starts no others
                for process in remaining:
                    if process.pid != self.process.pid:
                        with contextlib.suppress(psutil.Error):
                            process.send_signal(sign)
            time.sleep(0.01)
            remaining = [*self.running()[1:], *self._session()]
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            assert stream
            with contextlib.suppress(OSError):  # what was not written to a process that has ended
                stream.close()
        self.scratch.cleanup()

    def _session(self) -> list[psutil.Process]:
        """What runs in the session that began with this one, once this one has ended."""
        if self.process.poll() is None:
            return []
        processes = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if os.getsid(process.pid) == self.process.pid and runs(process):
                    processes.append(process)
        return processes


def most_memory(process: psutil.Process) -> int:
    """Bytes that it takes at most: what it has in common with its parent since a fork counts."""
    with contextlib.suppress(psutil.Error):
        taken = process.memory_info()
        return taken.rss - getattr(taken, "shared", 0)
    return 0


def memory(process: psutil.Process) -> int:
    """Bytes that it takes, of what it shares with others its part. Slower than `most_memory`."""
    with contextlib.suppress(psutil.Error):
        taken = process.memory_full_info()
        return getattr(taken, "pss", taken.uss)
    return most_memory(process)


def runs(process: psutil.Process) -> bool:
    """Whether it has not ended; a zombie has."""
    with contextlib.suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
