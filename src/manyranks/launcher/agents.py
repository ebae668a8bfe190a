"""Several torchruns at once, each playing a host: real processes that end with the cell.

Each torchrun is started by a keeper, which is a process of `launch`. So everything that holds for
ranks holds here: output streams as whole lines, an interrupt or the end of the kernel ends all
processes, and the fork server kills workers that a dying torchrun could not end itself.
"""

import contextlib
import functools
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from manyranks.errors import LaunchInterrupted, LaunchRefused
from manyranks.launcher import preconditions
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import run_ranks

POLL_INTERVAL_S = 0.05  # seconds between two looks for new workers
GRACE_S = 5.0  # seconds that a torchrun has to end its workers after SIGTERM
MAX_LINES = 4000  # kept of one torchrun's output
SOURCE = re.compile(r"^\[default(\d+)\]:")  # torchrun's --tee: the worker's local rank
# The start of a log line of torch, in Python or C++: level, date and time, where it was written.
LOG = re.compile(r"\[?[IWE]\d{4} (\d\d):(\d\d):(\d\d)\.(\d{6})(\d*) (?:\d+ )?[^ ]+:\d+\] ?")
FRAME = re.compile(r"frame #\d+: |Exception raised from |<omitting python frames>|$")  # of C++
ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Signal)\b|socket\.gaierror")
LAUNCH_ENV_PREFIXES = (
    "RANK",
    "LOCAL_",
    "ROLE_",
    "GROUP_",
    "WORLD_SIZE",
    "MASTER_",
    "TORCHELASTIC_",
    "TORCH_FR_",
)


@dataclass(frozen=True)
class Line:
    """A line of output: seconds since the run began, the worker that wrote it, the text.

    `local_rank` is None for torchrun's own lines. `log` is True for torch's log. A line of Python's
    log has the time that it states; any other line has its time of arrival, and workers' lines
    arrive up to a tenth of a second late through --tee.
    """

    time: float
    local_rank: int | None
    text: str
    log: bool


@dataclass(frozen=True)
class AgentRun:
    """The outcome of one torchrun.

    `returncode` is None if it was stopped at the time limit. Times are seconds since the run began.
    `environments` has the environment of each worker by local rank, as the system reports it.
    `worker_start_times` is when each worker was first seen, up to a tenth of a second late: Linux
    knows the start of a process only to the second. `addresses` has the (address, port) pairs at
    which torchrun itself accepted connections.
    """

    host: str
    command: str
    returncode: int | None
    start: float
    end: float
    lines: list[Line]
    environments: dict[int, dict[str, str]] = field(default_factory=dict)
    worker_start_times: dict[int, float] = field(default_factory=dict)
    addresses: set[tuple[str, int]] = field(default_factory=set)

    @property
    def output(self) -> str:
        """What torchrun and its workers printed, without torch's log."""
        return "\n".join(line.text for line in self.lines if not line.log)


def run_agents(
    commands: Mapping[str, Sequence[str]],
    *,
    timeout: float = 60,
    delays: Mapping[str, float | Path] | None = None,
    environment: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> dict[str, AgentRun]:
    """Run one torchrun a host, all at once: `commands[host]` are its arguments.

    Shows the command lines, then the workers' output, each line with its host, and the error of a
    torchrun that fails. (--tee 3 tells workers' lines from torchrun's own.) A host in `delays`
    starts that many seconds later, or as soon as a file matches that path.
    `environment` is added to the environment of every torchrun. A torchrun that is still running
    after `timeout` seconds is stopped. `quiet` shows nothing. GPUs are hidden,
    because two hosts would take the same ones.

    Raises:
        LaunchRefused: there is no host, or the time limit is not a positive number.
        LaunchInterrupted: the reader interrupted; all processes have ended.
    """
    if not commands:
        raise LaunchRefused("There is no torchrun to start: give at least one host.")
    preconditions.check(len(commands), timeout, None)
    hosts, start_time = list(commands), time.time()
    if not quiet:
        for host in hosts:
            print(f"{host} $ {command_line(commands[host])}", flush=True)
    agents = [(host, list(map(str, commands[host]))) for host in hosts]
    waits = [(delays or {}).get(host, 0.0) for host in hosts]
    longest = max(timeout if isinstance(wait, Path) else wait for wait in waits)
    patience = longest + 2 * timeout + 60  # the keepers watch `timeout`; this limits the keepers
    with tempfile.TemporaryDirectory(prefix="ddp-workbook-agents-") as folder:
        # torchrun makes a folder for its logs in TMPDIR and leaves it behind.
        variables = {"TMPDIR": folder} | dict(environment or {})
        call = Call(_supervise, (agents, waits, start_time, timeout, variables, quiet))
        try:
            runs = run_ranks(call, len(hosts), patience, quiet=True, threads=1, names=hosts)
        except LaunchInterrupted:
            raise LaunchInterrupted("Interrupted. All hosts and their ranks have ended.") from None
    return dict(zip(hosts, runs, strict=True))


def command_line(arguments: Sequence[str]) -> str:
    """The torchrun line to type in a terminal, in this folder."""
    return shlex.join(["torchrun", *map(str, arguments)])


def _supervise(
    agents: list[tuple[str, list[str]]],
    waits: list[float | Path],
    start_time: float,
    timeout: float,
    environment: dict[str, str],
    quiet: bool,
) -> AgentRun:
    """In the keeper: run this host's torchrun to its end, or to the time limit."""
    number = int(os.environ["RANK"])
    host, words = agents[number]
    _sleep(waits[number], timeout)
    start = time.time() - start_time
    command = [sys.executable, "-m", "torch.distributed.run", *words]
    # The keeper's environment without what `launch` has set for a rank.
    own = {
        key: value for key, value in os.environ.items() if not key.startswith(LAUNCH_ENV_PREFIXES)
    }
    own |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"} | environment
    with _Agent(command, own, start_time, quiet) as agent:
        returncode = agent.wait(timeout)
    if not quiet and returncode is None:
        print("torchrun was still running at the time limit, and was stopped", flush=True)
    elif not quiet and returncode:
        error = error_of(agent.lines)
        print(f"torchrun failed with exit code {returncode}: {error}", flush=True)
    return AgentRun(
        host,
        command_line(words),
        returncode,
        start,
        time.time() - start_time,
        agent.lines,
        agent.environments,
        agent.worker_start_times,
        agent.addresses,
    )


def _sleep(wait: float | Path, timeout: float) -> None:
    """So many seconds; or until a file matches, for at most the time limit."""
    if isinstance(wait, Path):
        end = time.monotonic() + timeout
        while time.monotonic() < end and not any(wait.parent.glob(wait.name)):
            time.sleep(POLL_INTERVAL_S)
    else:
        time.sleep(wait)


class _Agent:
    """One torchrun: reads its output, watches its workers, stops it at the limit."""

    def __init__(
        self, command: list[str], environment: dict[str, str], start_time: float, quiet: bool
    ):
        self.start_time, self.quiet = start_time, quiet
        self.lines: list[Line] = []
        self.environments: dict[int, dict[str, str]] = {}
        self.worker_start_times: dict[int, float] = {}
        self.addresses: set[tuple[str, int]] = set()
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="backslashreplace",
        )
        assert self.process.stdout
        self.output = self.process.stdout
        # A thread, not a loop: torchrun's workers can hold the pipe longer than torchrun lives.
        self.reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "_Agent":
        self.reader.start()
        return self

    def __exit__(self, *_) -> None:
        # SIGTERM, so that torchrun ends its workers; the rest is killed with this process.
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_S)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.reader.join(1)
        if not self.reader.is_alive():
            self.output.close()

    def wait(self, seconds: float) -> int | None:
        """Wait for its exit code; None if it still runs after that time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(POLL_INTERVAL_S)
            self._inspect()
        return None

    def _inspect(self) -> None:
        """Note where torchrun listens, and which workers are new."""
        with contextlib.suppress(psutil.Error):
            torchrun = psutil.Process(self.process.pid)
            for connection in torchrun.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    self.addresses.add(tuple(connection.laddr))
            for child in torchrun.children():
                with contextlib.suppress(psutil.Error, OSError):
                    variables = child.environ()
                    local_rank = int(variables.get("LOCAL_RANK", -1))
                    if local_rank >= 0 and local_rank not in self.environments:
                        self.environments[local_rank] = variables
                        self.worker_start_times[local_rank] = time.time() - self.start_time

    def _read(self) -> None:
        for text in self.output:
            if len(self.lines) < MAX_LINES:
                line = parse_line(text.rstrip("\n"), time.time() - self.start_time, self.start_time)
                self.lines.append(line)
                if not (line.log or self.quiet or line.local_rank is None):
                    print(line.text, flush=True)


def error_of(lines: Sequence[Line]) -> str:
    """The last error that torchrun itself raised, as Python writes it; "" for none."""
    errors = [line.text for line in lines if line.local_rank is None and ERROR.match(line.text)]
    return errors[-1] if errors else ""


def parse_line(text: str, arrival: float, start_time: float) -> Line:
    """Parse a line of output: which worker wrote it, when, and whether it is torch's log.

    `arrived` is in seconds since `began`, a time of the system's clock. torch's log gives only the
    time of day.
    """
    local_rank = None
    if match := SOURCE.match(text):
        local_rank, text = int(match[1]), text[match.end() :]
    if not (match := LOG.search(text)):
        return Line(arrival, local_rank, text, log=bool(FRAME.match(text)))
    *clock, nanos = match.groups()
    if nanos:  # C++ takes seconds from one clock and nanoseconds from another (torch 2.13)
        return Line(arrival, local_rank, text[match.end() :], log=True)
    hours, minutes, seconds, micros = map(int, clock)
    elapsed = 3600 * hours + 60 * minutes + seconds + micros / 1e6 - _time_of_day(start_time)
    return Line((elapsed + 43200) % 86400 - 43200, local_rank, text[match.end() :], log=True)


@functools.cache
def _time_of_day(clock: float) -> float:
    """Seconds since midnight, local time, as torch's log counts them."""
    local = time.localtime(clock)
    return 3600 * local.tm_hour + 60 * local.tm_min + local.tm_sec + clock % 1
