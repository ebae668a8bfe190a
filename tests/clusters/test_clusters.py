"""The labs themselves: pretend hosts, Slurm on them, and that nothing of either stays."""

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from benchmarks.traces import wait_until
from tests import clusters
from tests.clusters.hosts import Hosts
from tests.clusters.slurm import FOLDER, Slurm, remove_leftovers
from tools.set_up import ROOT

pytestmark = pytest.mark.cluster


def machine() -> dict[str, object]:
    """What a lab could leave behind on this machine, without other tests' labs."""
    run = {path for path in Path("/run").rglob("*") if "slurm" in path.name or "munge" in path.name}
    return {
        "folders": set(Path(tempfile.gettempdir()).glob(f"{FOLDER}{os.getpid()}-*")),
        "/etc/hosts": Path("/etc/hosts").read_bytes(),
        "/etc": {path for part in ("slurm", "munge") for path in Path("/etc", part).glob("*")},
        "/run": run | set(Path("/run/netns").glob("*")),
        "links": set(os.listdir("/sys/class/net")),
        "mounts": Path("/proc/self/mounts").read_text(),
    }


def processes_of(test: str) -> list[psutil.Process]:
    """Every living process that a test has started, wherever it is now.

    pytest puts the test's name into its environment, and a process in a lost namespace is found.
    """
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            name = process.environ().get("PYTEST_CURRENT_TEST", "")
            if process.pid != os.getpid() and name.split(" ")[0] == test:
                processes.append(process)
    return processes


@pytest.fixture
def as_before(request):
    """After the test the machine is as it was before it."""
    before = machine()
    yield
    assert wait_until(lambda: processes_of(request.node.nodeid) == [])
    assert machine() == before


def inside(hosts: Hosts, i: int, code: str) -> str:
    """What a line of Python prints on host i."""
    return hosts.run(i, [sys.executable, "-c", code], check=True).stdout.strip()


# Hosts


def test_each_host_has_its_own_name_address_and_processes(as_before):
    """It knows the others by name, and sees neither their processes nor a way out.

    A command that takes too long is ended with its children, so a test's time limit leaves nothing.
    """
    with Hosts(2) as hosts:
        sleeper = hosts.popen(0, ["sleep", "60"])
        for i, name in enumerate(hosts.names):
            assert inside(hosts, i, "import socket; print(socket.gethostname())") == name
        resolve = "import socket; print(*{a[4][0] for a in socket.getaddrinfo('node2', 1)})"
        assert inside(hosts, 0, resolve) == hosts.addresses[1]
        count = "import psutil; print(sum('sleep' in p.name() for p in psutil.process_iter()))"
        assert [inside(hosts, i, count) for i in (0, 1)] == ["1", "0"]
        assert [process.name() for process in hosts.processes(0)] == ["sleep"]
        routes = hosts.run(0, ["ip", "route"], check=True).stdout
        assert "default" not in routes and hosts.addresses[0] in routes
        with pytest.raises(subprocess.TimeoutExpired):
            hosts.run(1, ["sh", "-c", "setsid sleep 60 & sleep 60"], timeout=1)
        assert wait_until(lambda: hosts.processes(1) == [])
    assert sleeper.wait(timeout=10) != 0


def test_kill_minus_nine_of_the_owner_ends_all_hosts():
    """The kernel closes the pipe for it; Slurm's folder is swept by the next lab."""
    lab = "from tests.clusters.slurm import Slurm\nwith Slurm(1) as slurm:\n    "
    lab += "slurm.hosts.popen(1, ['sleep', '321'])\n    print(slurm.folder, flush=True); input()"
    command = [sys.executable, "-c", lab]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    owner = subprocess.Popen(command, cwd=ROOT, **pipes)
    folder = Path(owner.stdout.readline().strip())
    assert folder.is_dir()
    family = psutil.Process(owner.pid)

    def names() -> set[str]:
        return {process.name() for process in family.children(recursive=True)}

    assert wait_until(lambda: {"slurmctld", "slurmd", "munged", "sleep"} <= names())
    mine = family.children(recursive=True)
    owner.kill()
    owner.communicate()
    assert wait_until(lambda: not any(process.is_running() for process in mine))
    remove_leftovers()
    assert not folder.exists()


TIME_A_TRANSFER = """
import socket, sys, time
with socket.create_connection(("node2", 5000)) as s:
    begin = time.monotonic()
    s.sendall(bytes(4_000_000)); s.shutdown(socket.SHUT_WR); s.recv(1)
    print(time.monotonic() - begin)
"""
SINK = """
import socket
with socket.create_server(("", 5000)) as server:
    while True:
        s, _ = server.accept()
        while s.recv(1 << 20): pass
        s.sendall(b"1"); s.close()
"""


def test_the_network_is_as_fast_as_it_is_told_to_be():
    """4 MB at 100 Mbit/s take 0.32 s, never less; without a limit they take a few ms.

    On a busy machine each may take longer, so the best of several counts.
    """

    def transfer() -> float:
        return float(inside(hosts, 0, TIME_A_TRANSFER))

    with Hosts(2) as hosts:
        hosts.popen(1, [sys.executable, "-c", SINK])
        listening = ["sh", "-c", "grep -q :1388 /proc/net/tcp"]  # port 5000
        assert wait_until(lambda: hosts.run(1, listening).returncode == 0)
        hosts.shape(100e6)
        assert 0.31 < min(transfer() for _ in range(3)) < 3
        hosts.unshape()
        assert wait_until(lambda: transfer() < 0.31, seconds=60)


def test_root_without_the_right_to_make_namespaces():
    """As in a container; the reason is the kernel's own."""
    ask = "from tests.clusters import missing; print(missing())"
    limited = ["setpriv", "--bounding-set", "-sys_admin", sys.executable, "-c", ask]
    result = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "network namespaces, which are not to be had here" in result.stdout
    assert "Operation not permitted" in result.stdout
    assert clusters.missing() == ""


# Slurm


def test_what_a_job_leaves_running_stays_and_is_seen(tmp_path):
    """Slurm with cgroups would kill it, and hide that the script did not."""
    (tmp_path / "job.slurm").write_text("#!/bin/bash\nsetsid sleep 63 > /dev/null 2>&1 &\n")
    with Slurm(1) as slurm:
        job = slurm.submit("job.slurm", folder=tmp_path)
        assert slurm.wait(job, timeout=300) == "COMPLETED"
        (left,) = slurm.processes()
        assert left.cmdline() == ["sleep", "63"]
