"""torchrun over pretend hosts: the result of one process, and what torch says when it breaks."""

import csv
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from benchmarks.traces import wait_until
from ddp_workbook.chapters import single_process
from ddp_workbook.experiments.fully_sharded.one_process import one_process
from tests.clusters.breakages import BREAKAGES, HEAD_BY_ADDRESS, own_name_is_loopback
from tests.clusters.hosts import Hosts
from tests.clusters.record_messages import read_records
from tests.clusters.torchruns import PORT, TIMEOUT_S, TORCHRUN, WORKER, line, run_on_hosts

pytestmark = pytest.mark.push("hosts and Slurm")

CHAPTERS = Path(single_process.__file__).parent
SIZE = ("--epochs=1", "--batch-size=250", "--width=32", "--depth=2")
cluster = pytest.mark.cluster


@pytest.fixture(scope="module")
def hosts():
    """Two hosts for the tests that leave them as they are."""
    with Hosts(2) as hosts:
        yield hosts


@cache
def alone(program: str) -> tuple[float, float]:
    """Loss and accuracy of the same training in one process, without a group."""
    train = one_process if program == "fully_sharded" else single_process.train
    trained = train(epochs=1, batch_size=250, width=32, depth=2)
    return torch.tensor(trained.losses).mean().item(), trained.accuracy


def train_on(hosts, program, nodes, ranks, results):
    """One training over these hosts; how each torchrun ended, and the row of results."""
    chapter = [str(CHAPTERS / f"{program}.py"), *SIZE, f"--results={results}"]
    command = line(nodes=nodes, ranks=ranks, program=chapter)
    runs = run_on_hosts(hosts, dict.fromkeys(range(nodes), command), TIMEOUT_S)
    assert [each.code for each in runs] == [0] * nodes, "\n".join(each.output for each in runs)
    with open(results) as file:
        (row,) = csv.DictReader(file)
    return runs, row


def check(row, names, ranks) -> None:
    """The row tells where the ranks were, and their training is the one of one process."""
    # Which host has rank 0 is decided by who comes first.
    assert (sorted(row["hosts"].split()), row["nodes"]) == (names, str(len(names)))
    assert row["ranks"] == str(len(names) * ranks)
    loss, accuracy = alone(row["program"])
    assert float(row["loss"]) == pytest.approx(loss, rel=1e-4)
    assert float(row["accuracy"]) == pytest.approx(accuracy, abs=0.002)  # a row on the border


@cluster
@pytest.mark.parametrize(
    "program",
    [
        "fully_sharded",
        pytest.param(
            "distributed_data_parallel", marks=pytest.mark.release("programs over hosts, again")
        ),
    ],
)
def test_two_hosts_train_as_one_process_does(hosts, program, tmp_path):
    """One rank on each."""
    _, row = train_on(hosts, program, nodes=2, ranks=1, results=tmp_path / "results.csv")
    check(row, hosts.names, ranks=1)


@cluster
def test_roll_call_on_two_hosts(hosts, tmp_path):
    """Two ranks on each: rank 0 prints where every rank is, neighbours on the same host."""
    results = tmp_path / "results.csv"
    runs, row = train_on(hosts, "many_machines", nodes=2, ranks=2, results=results)
    check(row, hosts.names, ranks=2)
    calls = [
        re.findall(r"^rank (\d): host (\w+), local rank (\d), cpu$", each.output, re.MULTILINE)
        for each in runs
    ]
    (printed,) = [i for i, call in enumerate(calls) if call]
    first, second = hosts.names[printed], hosts.names[1 - printed]
    places = [("0", first, "0"), ("1", first, "1"), ("2", second, "0"), ("3", second, "1")]
    assert calls[printed] == places


@cluster
@pytest.mark.release("programs over hosts, again")
@pytest.mark.parametrize("program", ["distributed_data_parallel", "many_machines"])
def test_four_hosts_train_as_one_process_does(program, tmp_path):
    """As on two."""
    with Hosts(4) as hosts:
        _, row = train_on(hosts, program, nodes=4, ranks=1, results=tmp_path / "results.csv")
        check(row, hosts.names, ranks=1)


# What breaks


def test_every_breakage_is_recorded():
    """With its message, in which its key words are; mixed versions need another torch."""
    known = read_records()
    assert set(known) == {breakage.name for breakage in BREAKAGES} | {"mixed_versions"}
    for breakage in BREAKAGES:
        record = known[breakage.name]
        assert (record["what"], record["key"]) == (breakage.what, breakage.key)
        assert breakage.key in "\n".join(record["message"].values())
        assert str(Path(WORKER).parent) not in json.dumps(record)


def again(breakage):
    """A parameter of the next test; two of them run in `make test`."""
    marks = [cluster]
    if breakage.name not in ("rank_fails", "unknown_name"):
        marks.append(pytest.mark.release("breakages between hosts"))
    return pytest.param(breakage, marks=marks, id=breakage.name)


@pytest.mark.parametrize("breakage", [again(breakage) for breakage in BREAKAGES])
def test_the_recorded_words_still_hold(breakage):
    """Today's torch says the same, on the same host, and each torchrun ends with the same code."""
    record = read_records()[breakage.name]
    with Hosts(2) as hosts:
        runs = breakage.run(hosts)
    assert {each.host: each.code for each in runs} == record["exit_code"]
    said = "\n".join(breakage.message_of(each) for each in runs)
    assert breakage.key in said, "\n".join(each.output for each in runs)


@cluster
def test_only_the_failing_ranks_own_host_has_the_root_cause():
    """Both torchruns fail, but on the other host the report blames a closed connection."""
    record = read_records()["rank_fails"]
    message, code = record["message"], record["exit_code"]
    assert code == {"node1": 1, "node2": 1}
    assert "ValueError: this rank has no rows left" in message["node2"]
    assert "ValueError" not in message["node1"]
    assert "closed by peer" in message["node1"]


@cluster
@pytest.mark.release("breakages between hosts")
@pytest.mark.parametrize(
    "endpoint, head, other",
    [
        (f"node1:{PORT}", (), ()),
        (HEAD_BY_ADDRESS, ("--rdzv-conf=is_host=true",), ("--rdzv-conf=is_host=false",)),
    ],
    ids=["by name", "by address"],
)
def test_what_mends_a_host_whose_name_is_loopback(endpoint, head, other):
    """gloo is told the interface; the head, that it is the head, where the address hides it."""
    lines = {0: line(*head, endpoint=endpoint), 1: line(*other, endpoint=endpoint)}
    with Hosts(2) as hosts, own_name_is_loopback(hosts):
        runs = run_on_hosts(hosts, lines, TIMEOUT_S, environment={"GLOO_SOCKET_IFNAME": "eth0"})
    assert [each.code for each in runs] == [0, 0], "\n".join(each.output for each in runs)


# Who may connect

LISTENING = """
import json, psutil
found = [c.laddr for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
print(json.dumps([[address.ip, address.port] for address in found]))
"""
STRANGER = """
import sys
from datetime import timedelta
from torch.distributed import TCPStore
store = TCPStore(sys.argv[1], int(sys.argv[2]), is_master=False, timeout=timedelta(seconds=20))
store.set("a stranger's key", "was here")
print(store.num_keys(), store.get("a stranger's key").decode())
"""
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def listening(hosts: Hosts, i: int) -> list[tuple[str, int]]:
    """Addresses and ports on which something listens on host i."""
    result = hosts.run(i, [sys.executable, "-c", LISTENING], check=True)
    return [(address, port) for address, port in json.loads(result.stdout)]


def visit(hosts: Hosts, i: int, address: str, port: int) -> subprocess.CompletedProcess:
    """A stranger to the job, on host i, uses the store at this address."""
    return hosts.run(
        i, [*NOBODY, sys.executable, "-c", STRANGER, address, str(port)], timeout=TIMEOUT_S
    )


@cluster
def test_the_store_listens_everywhere_and_asks_nobody(hosts):
    """Even --standalone: another user, on another host, sets a key in the store of the job.

    On a login node that is every user of it. gloo's own ports are on the address of the host's
    name, and wait for anyone as well.
    """
    found = {}

    def look(printed) -> bool:
        assert wait_until(lambda: "step 1" in printed(0), TIMEOUT_S), printed(0)
        found["ports"] = listening(hosts, 0)
        everywhere = [port for address, port in found["ports"] if address in ("::", "0.0.0.0")]
        found["visits"] = [visit(hosts, 1, hosts.names[0], port) for port in everywhere[:1]]
        return True

    steps = (WORKER, "--steps=100000", "--pause=0.1")
    command = [TORCHRUN, "--standalone", "--nproc-per-node=2", *steps]
    run_on_hosts(hosts, {0: command}, TIMEOUT_S, meanwhile=look)
    addresses = [address for address, _ in found["ports"]]
    assert hosts.addresses[0] in addresses  # gloo, once for each rank
    (visit_done,) = found["visits"]
    assert visit_done.stdout.strip().endswith("was here"), visit_done.stderr
    assert int(visit_done.stdout.split()[0]) > 1  # beside the job's own keys
