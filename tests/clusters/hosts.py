"""Pretend hosts: each has its own name, network address, /etc/hosts and processes.

    with Hosts(2) as hosts:
        print(hosts.run(1, ["ping", "-c1", hosts.names[0]]).stdout)

A host is a set of Linux namespaces (network, host name, mounts, process ids), all hosts are joined
by a bridge, and there is no route out. Files are the machine's own, as on a cluster with a shared
file system; cores and memory are shared as well.

Nothing survives, however the tests end. The first process of a host, its `init`, only waits for
the end of a pipe that this process holds open. When this process closes the pipe, or dies by
`kill -9`, `init` ends, the kernel kills every process of the host, and the namespaces go with the
last of them. No namespace has a name, and the machine's own files are not touched: two runs at the
same time cannot collide.
"""

import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

NETWORK = "10.77.0"
HOST = ("unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc")
SWITCH = ("unshare", "--net", "--pid", "--fork")

# $1 is the host's name, $2 its /etc/hosts. The files lie in memory, and only this host sees them.
# With an empty resolver a name that is not in /etc/hosts is unknown at once, as where a DNS server
# answers; the machine's own would be asked for ten seconds, in a network that cannot reach it.
ISOLATE_HOST = """
echo "$1" > /proc/sys/kernel/hostname
mount -t tmpfs files /mnt
echo "$2" > /mnt/hosts
echo "hosts: files" > /mnt/nsswitch.conf
for file in hosts nsswitch.conf; do
    test ! -e /etc/$file || mount --bind /mnt/$file /etc/$file
done
umount --lazy /mnt
"""
# A process whose parent is gone becomes a child of `init`; SIGCHLD ignored, it leaves no zombie.
WAIT_FOR_OWNER = """
ip link set lo up
echo ready
exec env --ignore-signal=CHLD cat > /dev/null
"""


class Hosts:
    """Pretend hosts, from `with` to the end of the block; needs root.

    names: one name a host, or a number n for node1 to node<n>. Host i (from 0) has the name
        names[i] and the address addresses[i], on its interface eth0.

    Raises RuntimeError if the kernel refuses to make them; nothing is left behind then either.
    """

    def __init__(self, names: int | Sequence[str] = 2) -> None:
        if isinstance(names, int):
            names = [f"node{number}" for number in range(1, names + 1)]
        self.names = list(names)
        self.addresses = [f"{NETWORK}.{number}" for number in range(1, len(self.names) + 1)]

    def __enter__(self) -> "Hosts":
        self._started: list[Process] = []
        with ExitStack() as stack:
            stack.callback(self._reap)
            self._switch = stack.enter_context(Namespaces(SWITCH, WAIT_FOR_OWNER))
            self._hosts = [
                stack.enter_context(
                    Namespaces(HOST, ISOLATE_HOST + WAIT_FOR_OWNER, name, self._hosts_file())
                )
                for name in self.names
            ]
            self._connect()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error) -> None:
        self._stack.close()

    def _reap(self) -> None:
        """The hosts are gone, and every command with them; wait for each, close its pipes."""
        for process in self._started:
            with suppress(BrokenPipeError):  # unwritten input
                process.__exit__(None, None, None)

    def _hosts_file(self) -> str:
        pairs = zip(self.addresses, self.names, strict=True)
        return "\n".join(["127.0.0.1 localhost", *(" ".join(pair) for pair in pairs)])

    def _connect(self) -> None:
        """Plug every host's eth0 into one switch."""
        plugs = ["link add br0 type bridge", "link set br0 up"]
        for number, host in enumerate(self._hosts):
            plugs += [
                f"link add port{number} type veth peer name eth0 netns {host.pid}",
                f"link set port{number} master br0 up",
            ]
        self._switch.ip(plugs)
        for host, address in zip(self._hosts, self.addresses, strict=True):
            host.ip([f"addr add {address}/24 dev eth0", "link set eth0 up"])

    def popen(self, i: int, command: Sequence[str], **options) -> "Process":
        """Start a command on host i; options as for subprocess.Popen.

        It ends with the hosts at the latest.
        """
        process = Process(self._hosts[i].enter(command, options.pop("cwd", None)), **options)
        self._started.append(process)
        return process

    def run(
        self, i: int, command: Sequence[str], timeout: float = 60, **options
    ) -> subprocess.CompletedProcess:
        """Run a command on host i; return it with what it has printed, as text.

        options: as for subprocess.run, `check=True` among them.
        Raises subprocess.TimeoutExpired after `timeout` seconds: the command and its children are
        dead by then.
        """
        check = options.pop("check", False)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
        with self.popen(i, command, **options) as process:
            try:
                output, errors = process.communicate(timeout=timeout)
            except BaseException:
                process.kill_tree()
                raise
            finally:
                self._started.remove(process)
        result = subprocess.CompletedProcess(list(command), process.returncode, output, errors)
        if check:
            result.check_returncode()
        return result

    def processes(self, i: int) -> list[psutil.Process]:
        """The processes that run on host i, without its `init`."""
        return self._hosts[i].processes()

    def shape(self, bits_per_second: float, burst: int | None = None) -> None:
        """Let no host send faster than this.

        burst: the bytes that may leave at full speed after a rest. Unless given, what the rate
            sends in 2 ms, and at least the 64 KiB of the largest packet of a virtual link.
        """
        burst = burst or max(64 * 1024 + 512, int(bits_per_second * 0.002 / 8))
        rate = f"tbf rate {bits_per_second:.0f}bit burst {burst} latency 50ms"
        for i in range(len(self.names)):
            command = f"tc qdisc replace dev eth0 root {rate}".split()
            self.run(i, command, check=True)

    def unshape(self) -> None:
        """Let every host send at full speed again; nothing happens if none was slowed down."""
        for i in range(len(self.names)):
            self.run(i, ["tc", "qdisc", "del", "dev", "eth0", "root"])

    def cut(self, i: int) -> None:
        """Let the switch drop what host i sends and gets: nobody sees an error, only silence."""
        self._switch.ip([f"link set port{i} nomaster"])  # "down" would take away the carrier

    def heal(self, i: int) -> None:
        """Connect host i again."""
        self._switch.ip([f"link set port{i} master br0"])


class Process(subprocess.Popen):
    """A command inside of a host, in a session of its own."""

    def __init__(self, command: Sequence[str], **options) -> None:
        super().__init__(command, **{"start_new_session": True} | options)

    def kill_tree(self) -> None:
        """Kill the command, if it has not ended, and what it has started; wait for all.

        Its process group would not do: torchrun gives each rank a session of its own.
        """
        if self.poll() is None:
            tree = stopped_tree(psutil.Process(self.pid))
            for process in tree:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(tree[1:], timeout=30)
        self.wait()


def stopped_tree(process: psutil.Process) -> list[psutil.Process]:
    """This process and its descendants, stopped from the top down: what is stopped cannot fork."""
    tree = [process]
    with suppress(psutil.NoSuchProcess):
        process.suspend()
        for child in process.children():
            tree += stopped_tree(child)
    return tree


class Namespaces:
    """One set of namespaces, kept by an `init` that ends with this process at the latest."""

    def __init__(self, unshare: Sequence[str], script: str, *arguments: str) -> None:
        command = [*unshare, "sh", "-e", "-c", script, "sh", *arguments]
        self._init = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an Interrupt is for the tests, which then close the pipe
        )

    def __enter__(self) -> "Namespaces":
        if self._init.stdout.readline() != "ready\n":
            _, errors = self._init.communicate(timeout=10)
            reason = errors.strip() or f"exit code {self._init.returncode}"
            raise RuntimeError(f"No pretend host could be made here: {reason}")
        self._init.stdout.close()
        self._init.stderr.close()
        return self

    def __exit__(self, *error) -> None:
        self._init.stdin.close()
        self._init.wait(timeout=30)  # for the kernel to end all of its processes

    @property
    def pid(self) -> int:
        """The process in whose namespaces the host is; it is itself no member of the host."""
        return self._init.pid

    def enter(self, command: Sequence[str], folder: str | os.PathLike | None) -> list[str]:
        """The line that runs the command in these namespaces, in this folder or the current one."""
        spaces = Path("/proc", str(self.pid), "ns")
        kinds = {"net": "net", "uts": "uts", "mnt": "mount", "pid_for_children": "pid"}
        doors = [f"--{option}={spaces / kind}" for kind, option in kinds.items()]
        # A new mount namespace begins in /, and a relative path has to hold there as well.
        return ["nsenter", *doors, "env", "-C", str(folder or Path.cwd()), *map(str, command)]

    def ip(self, lines: Sequence[str]) -> None:
        """Run these lines of `ip`; raise RuntimeError with the first one that is refused."""
        command = ["nsenter", f"--net=/proc/{self.pid}/ns/net", "ip", "-batch", "-"]
        result = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"The pretend network was refused: {result.stderr.strip()}")

    def processes(self) -> list[psutil.Process]:
        """The processes in these namespaces, without `init` and without those that have ended."""
        mine = os.readlink(f"/proc/{self.pid}/ns/pid_for_children")
        result = []
        for process in psutil.process_iter():
            with suppress(OSError, psutil.NoSuchProcess):  # it may end while it is looked at
                inside = os.readlink(f"/proc/{process.pid}/ns/pid") == mine
                ended = process.status() == psutil.STATUS_ZOMBIE
                if inside and not ended and process.ppid() != self.pid:
                    result.append(process)
        return result
