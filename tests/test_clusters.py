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
from tests.clusters.slurm import FOLDER, SLURM_CONF, Slurm, sweep

pytestmark = pytest.mark.cluster
CHECKOUT = Path(__file__).parents[1]


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


def started_by(test: str) -> list[psutil.Process]:
    """Every living process that a test has started, wherever it is now.

    pytest puts the test's name into its environment, and a process in a lost namespace is found.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            name = process.environ().get("PYTEST_CURRENT_TEST", "")
            if process.pid != os.getpid() and name.split(" ")[0] == test:
                found.append(process)
    return found


@pytest.fixture
def as_before(request):
    """After the test the machine is as it was before it."""
    before = machine()
    yield
    assert wait_until(lambda: started_by(request.node.nodeid) == [])
    assert machine() == before


def inside(hosts: Hosts, i: int, code: str) -> str:
    """What a line of Python prints on host i."""
    return hosts.run(i, [sys.executable, "-c", code], check=True).stdout.strip()


# Hosts


def test_each_host_has_its_own_name_address_and_processes(as_before):
    """It knows the others by name, and sees neither their processes nor a way out."""
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
    assert sleeper.wait(timeout=10) != 0


def test_two_labs_at_the_same_time_do_not_meet():
    """Same names, same addresses, other networks."""
    with Hosts(1) as one, Hosts(1) as other:
        one.run(0, ["touch", "/dev/null"], check=True)
        server = "import socket, time; s = socket.create_server(('', 5000)); print(flush=True);"
        serving = one.popen(0, [sys.executable, "-c", f"{server} time.sleep(60)"], stdout=-1)
        serving.stdout.readline()
        ask = f"import socket; print(socket.socket().connect_ex(('{one.addresses[0]}', 5000)))"
        assert inside(one, 0, ask) == "0"
        assert inside(other, 0, ask) != "0"
        serving.stdout.close()


def test_a_command_that_takes_too_long_is_dead_with_its_children(as_before):
    """So a test's time limit leaves nothing."""
    with Hosts(1) as hosts:
        with pytest.raises(subprocess.TimeoutExpired):
            hosts.run(0, ["sh", "-c", "setsid sleep 60 & sleep 60"], timeout=2)
        assert wait_until(lambda: hosts.processes(0) == [])


def test_signals_reach_the_command_and_its_exit_code_comes_back(as_before):
    """Not only the program that leads into the host."""
    with Hosts(1) as hosts:
        trap = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"
        process = hosts.popen(0, ["sh", "-c", trap], stdout=subprocess.PIPE)
        process.stdout.readline()
        process.terminate()
        assert process.wait(timeout=20) == 7
        process.stdout.close()
        assert hosts.run(0, ["sh", "-c", "kill -9 $$"]).returncode == -9
        assert hosts.run(0, ["no-such-program"]).returncode == 127


def test_a_daemon_ends_with_its_host(as_before):
    """Its parent is gone, its session is its own, and it ignores every polite signal."""
    deaf = "trap '' TERM HUP INT; sleep 60 & sleep 60"
    with Hosts(1) as hosts:
        hosts.run(0, ["sh", "-c", f'setsid sh -c "{deaf}" > /dev/null 2>&1 &'])
        assert wait_until(lambda: len(hosts.processes(0)) == 3)
        daemons = hosts.processes(0)
    assert wait_until(lambda: not any(daemon.is_running() for daemon in daemons))


def test_hosts_that_cannot_be_made_say_why_and_leave_nothing(as_before, monkeypatch):
    """Refused by `ip` when both hosts run, and by the kernel when the second one is made."""
    with pytest.raises(RuntimeError, match=r"refused.*File exists"), Hosts(2) as hosts:
        hosts._connect()  # a second time
    lab = "tests.clusters.hosts.BECOME_A_HOST"
    monkeypatch.setattr(lab, 'test "$1" = node1 || { echo "mount: no right" >&2; exit 3; }')
    with pytest.raises(RuntimeError, match=r"No pretend host.*: mount: no right"), Hosts(2):
        pass


def test_kill_minus_nine_of_the_owner_ends_all_hosts():
    """The kernel closes the pipe for it; Slurm's folder is swept by the next lab."""
    lab = "from tests.clusters.slurm import Slurm\nwith Slurm(1) as slurm:\n    "
    lab += "slurm.hosts.popen(1, ['sleep', '321'])\n    print(slurm.folder, flush=True); input()"
    command = [sys.executable, "-c", lab]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    owner = subprocess.Popen(command, cwd=CHECKOUT, **pipes)
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
    sweep()
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
    done = subprocess.run(limited, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert "network namespaces, which are not to be had here" in done.stdout
    assert "Operation not permitted" in done.stdout
    assert clusters.missing() == ""


# Slurm


@pytest.fixture(scope="module")
def slurm():
    """Two nodes with four pretend GPUs each."""
    with Slurm() as slurm:
        yield slurm


@pytest.fixture
def script(tmp_path):
    """Call with a text; gives the path of a job script."""

    def script(text: str, name: str = "job.slurm") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return script


def test_what_a_job_leaves_running_stays_and_is_seen(slurm, script):
    """Slurm with cgroups would kill it, and hide that the script did not."""
    leaving = script("#!/bin/bash\nsetsid sleep 63 > /dev/null 2>&1 &\n")
    job = slurm.submit(leaving.name, folder=leaving.parent)
    assert slurm.wait(job, timeout=60) == "COMPLETED"
    (left,) = slurm.processes()
    assert left.cmdline() == ["sleep", "63"]
    left.kill()
    assert wait_until(lambda: slurm.processes() == [])


def test_a_job_that_does_not_end_says_what_it_printed(slurm, script):
    """The words for the test's own failure."""
    path = script("#!/bin/bash\necho so far\nsleep 60\n")
    job = slurm.submit(path.name, folder=path.parent)
    slurm.wait(job, timeout=60, states=("RUNNING",))
    assert wait_until(lambda: "so far" in slurm.output(job))
    with pytest.raises(TimeoutError, match=r"is RUNNING after 0.2 s(.|\n)*so far"):
        slurm.wait(job, timeout=0.2)
    slurm.run(["scancel", job], check=True)


def test_a_lab_that_cannot_start_shows_the_logs(as_before, monkeypatch):
    """The daemon's own words, not a time limit's."""
    monkeypatch.setattr("tests.clusters.slurm.SLURM_CONF", SLURM_CONF + "NoSuchOption=1\n")
    with pytest.raises(RuntimeError, match=r"(?s)slurmctld.* ended.*NoSuchOption"), Slurm(nodes=1):
        pass


def test_shellcheck_finds_nothing_in_what_stands_in_for_pbs():
    """pbsdsh, and the prolog that writes PBS_NODEFILE."""
    folder = CHECKOUT / "tests" / "clusters"
    command = ["shellcheck", str(folder / "pbsdsh"), str(folder / "task_prolog")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
