"""Ranks on pretend hosts that time the parts of a DDP step, at a bandwidth of our choice."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Timer as Alarm
from typing import NamedTuple

import pandas as pd

from ddp_workbook.experiments.many_machines.costs import Timing, Workload, slowest_ranks
from tests.clusters.hosts import Hosts

CHECKOUT = Path(__file__).parents[2]
MBIT = 1e6 / 8  # bytes per second
WINDOW = 131_072  # bytes of a socket's buffer
TRIES = 6
DISTURBANCE = 0.2  # share of the time that a rank waits for a core
AGREE = 0.1


def burst(mbit: float) -> int:
    """Bytes that may leave at full speed: what a virtual link's packets need at this rate."""
    return 66_048 if mbit <= 600 else 262_144


class Form(NamedTuple):
    """What is trained and timed, at which Mbit/s; whether the ranks have the cores for themselves.

    Only all-reduces that are long against `BURST` show the bandwidth of a shaped link. A small one
    shows alpha, if no other program delays it.
    """

    work: Workload
    fitted: tuple[int, ...]
    predicted: tuple[int, ...]
    rounds: int
    alone: bool


class Ranks:
    """A rank on each host, from `with` to the end of the block."""

    def __init__(self, hosts: Hosts, form: Form) -> None:
        self.hosts, self.form = hosts, form

    def __enter__(self) -> "Ranks":
        with ExitStack() as stack:
            if not self.form.alone:
                self._shrink_send_buffers()
            self.processes = [stack.enter_context(self.start(i)) for i in range(2)]
            alarm = Alarm(240, lambda: [process.kill_tree() for process in self.processes])
            alarm.start()
            stack.callback(alarm.cancel)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error) -> None:
        for process in self.processes:
            process.kill_tree()
        self.stack.close()

    def _shrink_send_buffers(self) -> None:
        """Less than the queue of the slowest link, which drops the rest: TCP then sends it late.

        On a busy machine that took up to a quarter longer.
        """
        for i in range(2):
            line = f"echo 4096 16384 {WINDOW} > /proc/sys/net/ipv4/tcp_wmem"
            self.hosts.run(i, ["sh", "-c", line], check=True)

    def start(self, rank: int) -> subprocess.Popen:
        """Rank `rank`, with the variables that torchrun would set."""
        environment = {
            "RANK": rank,
            "LOCAL_RANK": 0,
            "WORLD_SIZE": 2,
            "LOCAL_WORLD_SIZE": 1,
            "MASTER_ADDR": self.hosts.addresses[0],
            "MASTER_PORT": 29500,
            "GLOO_SOCKET_IFNAME": "eth0",
            "CUDA_VISIBLE_DEVICES": "",
            "REAL_TIME": int(self.form.alone),
        }
        variables = [f"{name}={value}" for name, value in environment.items()]
        line = [
            sys.executable,
            "-m",
            "tests.workers.shaped_steps",
            json.dumps(self.form.work._asdict()),
        ]
        pipe = subprocess.PIPE
        return self.hosts.popen(
            rank, ["env", *variables, *line], stdin=pipe, stdout=pipe, text=True, cwd=CHECKOUT
        )

    def measure(self, mbit: float, *parts: str) -> pd.DataFrame:
        """The parts at this bandwidth: part, ranks, amount, seconds, waited.

        Of all rounds the median; the fastest one where other programs may run.
        """
        self.hosts.shape(mbit * 1e6, burst=burst(mbit))
        for process in self.processes:
            process.stdin.write(json.dumps([self.form.rounds, parts]) + "\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in self.processes]
        assert all(answers), "a rank has ended; its error is above"
        table = slowest_ranks([[Timing(*row) for row in json.loads(answer)] for answer in answers])
        rounds = table.groupby(["part", "ranks", "amount"], as_index=False)[["seconds", "waited"]]
        summary = rounds.median() if self.form.alone else rounds.min()
        return summary.assign(bytes_per_second=mbit * MBIT)

    def measure_without_disturbance(self, mbit: float, *parts: str) -> pd.DataFrame:
        """The same, from two runs that agree and in which no rank waited for a core."""
        calm_runs = []
        for _ in range(TRIES):
            run = self.measure(mbit, *parts)
            if not (run["waited"] > DISTURBANCE).any():  # nan where the system does not say
                calm_runs.append(run)
            for earlier in calm_runs[:-1]:
                if ((run["seconds"] / earlier["seconds"] - 1).abs() < AGREE).all():
                    return earlier.assign(seconds=(run["seconds"] + earlier["seconds"]) / 2)
        raise AssertionError(f"No two of {TRIES} runs at {mbit} Mbit/s agree: the machine is busy.")
