"""What goes wrong when several machines start a job, on purpose, on pretend hosts.

`record_messages` runs each breakage once and keeps torch's own words in data/many_machines, where
page 07 takes them from; the tests run them again and look whether the words still hold.
"""

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.traces import wait_until
from tests.clusters.hosts import Hosts
from tests.clusters.torchruns import (
    PORT,
    TIMEOUT_S,
    TORCHRUN,
    WORKER,
    HostResult,
    line,
    run_on_hosts,
)

SHORT_GROUP = (WORKER, "--timeout=5")
ERROR_LINES = r"^\s*[\w.]*Error\b.*"


@dataclass(frozen=True)
class Breakage:
    """A mistake or an accident, and where to look for what torch says about it."""

    name: str
    what: str  # in words
    lines: Mapping[int, Sequence[str]]  # host -> the command typed there
    key: str  # words of the message that are the same in every run; "" if there is no message
    environment: Mapping[str, str] = field(default_factory=dict)
    around: Callable[[Hosts], AbstractContextManager] = nullcontext  # what else holds meanwhile
    meanwhile: Callable[[Hosts, Callable[[int], str]], object] | None = None
    message: str = ERROR_LINES  # the lines to keep of what was printed
    limit: float = TIMEOUT_S

    def run(self, hosts: Hosts) -> list[HostResult]:
        """Let it happen on these two hosts, which must be new: some change their /etc/hosts."""
        meanwhile = self.meanwhile
        with self.around(hosts):
            return run_on_hosts(
                hosts,
                self.lines,
                timeout=self.limit,
                environment=self.environment,
                meanwhile=meanwhile and (lambda output_of: meanwhile(hosts, output_of)),
            )

    def message_of(self, result: HostResult) -> str:
        """The message in what one host's torchrun printed, a line each, no line twice."""
        text = re.sub(r"^\[rank\d+\]: ", "", result.output, flags=re.MULTILINE)
        text = re.sub(r"^\[?[WE]\d{4} \S+( \d+)? \S+:\d+\] ", "", text, flags=re.MULTILINE)
        lines = [words.strip() for words in re.findall(self.message, text, re.MULTILINE)]
        return "\n".join(words for words in dict.fromkeys(lines) if "ChildFailed" not in words)

    def command_line(self, result: HostResult) -> str:
        """The command as one would type it, without this machine's folders."""
        words = [Path(word).name if word.startswith("/") else word for word in result.command]
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        return " ".join([*settings, shlex.join(words)])


@contextmanager
def own_name_is_loopback(hosts: Hosts):
    """Debian's installer writes such a line into /etc/hosts."""
    for i, (name, address) in enumerate(zip(hosts.names, hosts.addresses, strict=True)):
        text = hosts.run(i, ["cat", "/etc/hosts"], check=True).stdout
        text = text.replace(f"{address} {name}", f"127.0.1.1 {name}")
        hosts.run(i, ["sh", "-c", 'echo "$1" > /etc/hosts', "sh", text], check=True)
    yield


@contextmanager
def port_is_taken(hosts: Hosts):
    """Another program listens at the meeting point and answers nothing."""
    listen = f"import socket, time; s = socket.create_server(('', {PORT})); print(flush=True); "
    listen += "time.sleep(600)"
    listener = hosts.popen(0, [sys.executable, "-c", listen], stdout=-1)
    listener.stdout.readline()
    yield
    listener.kill_tree()


def cut_and_heal(hosts: Hosts, output_of: Callable[[int], str]) -> None:
    """Cut host 1 off in the middle of the steps, until both ranks have given up.

    Without the healing, host 1's torchrun waits a quarter of an hour for the store on host 0.
    """
    assert wait_until(lambda: "step 3" in output_of(0), TIMEOUT_S), output_of(0)
    hosts.cut(1)
    assert wait_until(lambda: all("Timed out" in output_of(i) for i in (0, 1)), TIMEOUT_S)
    hosts.heal(1)


def on_both(command: Sequence[str]) -> dict[int, Sequence[str]]:
    """The same command on both hosts."""
    return {0: command, 1: command}


HEAD_BY_ADDRESS = f"10.77.0.1:{PORT}"
STATIC = ("--nnodes=2", "--node-rank=0", "--nproc-per-node=1", "--master-addr=node1")
BREAKAGES = [
    Breakage(
        name="wrong_interface",
        what="GLOO_SOCKET_IFNAME names the loopback interface, which ends at the node",
        lines=on_both(line(program=SHORT_GROUP)),
        environment={"GLOO_SOCKET_IFNAME": "lo"},
        key="Connection refused, remote=[127.0.0.1]",
    ),
    Breakage(
        name="no_such_interface",
        what="GLOO_SOCKET_IFNAME names an interface that the node does not have",
        lines=on_both(line(program=SHORT_GROUP)),
        environment={"GLOO_SOCKET_IFNAME": "ib0"},
        key="Unable to find address for: ib0",
    ),
    Breakage(
        name="own_name_is_loopback",
        what="/etc/hosts gives a node's own name the address 127.0.1.1, as Debian's installer does",
        lines=on_both(line(program=SHORT_GROUP)),
        around=own_name_is_loopback,
        key="Connection refused, remote=[127.0.1.1]",
    ),
    Breakage(
        name="head_does_not_know_itself",
        what="the endpoint is an address that its node's own name does not resolve to: nobody "
        "opens the store",
        lines=on_both(line("--rdzv-conf=read_timeout=3", endpoint=HEAD_BY_ADDRESS)),
        around=own_name_is_loopback,
        key=f"timed out after 3000ms while trying to connect to (10.77.0.1, {PORT})",
    ),
    Breakage(
        name="unknown_name",
        what="the endpoint's host name does not resolve",
        lines=on_both(line("--rdzv-conf=read_timeout=3", endpoint=f"node9:{PORT}")),
        message=rf"^.*cannot be retrieved.*|{ERROR_LINES}",
        key="addresses of (node9, 29400) cannot be retrieved",
    ),
    Breakage(
        name="head_never_comes",
        what="the node that the endpoint names has not started its torchrun",
        lines={1: line("--rdzv-conf=read_timeout=3")},
        key="timed out after 3000ms while trying to connect to (node1, 29400)",
    ),
    Breakage(
        name="host_never_comes",
        what="one of the nodes has not started its torchrun",
        lines={0: line("--rdzv-conf=join_timeout=5")},
        key="RendezvousTimeoutError",
    ),
    Breakage(
        name="port_taken",
        what="another program has the port, and torchrun was told to use it by --master-port",
        lines={0: [TORCHRUN, *STATIC, f"--master-port={PORT}", WORKER]},
        around=port_is_taken,
        key="EADDRINUSE",
    ),
    Breakage(
        name="port_taken_in_silence",
        what="another program has the port of the endpoint: torchrun takes it for the store",
        lines=on_both(line()),
        around=port_is_taken,
        limit=30,
        key="",
    ),
    Breakage(
        name="rank_fails",
        what="rank 1, on node2, raises an error; node1 only sees that the connection is gone",
        lines=on_both(line(program=(WORKER, "--fail-rank=1"))),
        key="ValueError: this rank has no rows left",
    ),
    Breakage(
        name="host_cut_off",
        what="node2 is cut off in the middle of training; the group's time limit is 5 s",
        lines=on_both(line(program=(*SHORT_GROUP, "--steps=100000", "--pause=0.1"))),
        meanwhile=cut_and_heal,
        key="Timed out waiting 5000ms for",
    ),
    Breakage(
        name="standalone_on_both",
        what="--standalone on two nodes: two trainings of one node each, and no error",
        lines=on_both([TORCHRUN, "--standalone", "--nproc-per-node=1", WORKER]),
        message=r"^rank .*",
        key="rank 0 of 1 on node2",
    ),
]
