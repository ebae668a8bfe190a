"""torchrun_line: lines are read as torchrun reads them, and the solution's ones start one job."""

import os
import platform
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddp_workbook.exercises.many_machines.torchrun_line import call_on_host, torchrun_line
from ddp_workbook.judging import set_order, torchrun
from ddp_workbook.judging.torchrun import Reason, Unreadable
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)

LINE = "--nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=a:29500 --rdzv-id=7"


@pytest.mark.parametrize(
    "text",
    [
        f"torchrun {LINE} train.py --epochs 5",
        f"torchrun {LINE} -- train.py --epochs 5",
        f"/opt/bin/torchrun {LINE.replace('=', ' ')} train.py --epochs 5",
        f"torchrun {LINE.replace('nproc-per-node', 'nproc_per_node').replace('rdzv-', 'rdzv_')} "
        "train.py --epochs 5",
        f"torchrun {' '.join(reversed(LINE.split()))} train.py --epochs 5",
        f"python3 -m torch.distributed.run {LINE} train.py --epochs 5",
        f"OMP_NUM_THREADS=1 env A=b torchrun {LINE} \\\n    train.py --epochs 5  # comment",
        f"env PET_NNODES=2 PET_RDZV_ID=7 torchrun {LINE.replace('--nnodes=2 ', '')[:-12]} "
        "train.py --epochs 5",
        f"torchrun {LINE.replace('=2', '=2:2')} --no-python python train.py --epochs 5",
    ],
)
def test_spellings_of_one_line(text):
    assert torchrun.read(torchrun.split_line(text)) == torchrun.Line(
        nnodes="2",
        nproc="4",
        backend="c10d",
        endpoint="a:29500",
        run_id="7",
        standalone=False,
        node_rank=0,
        program=("train.py", "--epochs", "5"),
    )


@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [("a:1", "a", "1"), ("a", "a", ""), ("a:", "a", ""), ("[::1]:7", "[::1]", "7"), ("", "", "")],
)
def test_an_endpoint_has_a_host_and_a_port(endpoint, host, port):
    line = torchrun.read(["torchrun", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "x.py"])
    assert (line.host, line.port) == (host, port)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Reason.ANOTHER_COMMAND),
        ("srun torchrun x.py", Reason.ANOTHER_COMMAND),
        ("python x.py", Reason.ANOTHER_COMMAND),
        ("torchrun", Reason.REFUSED),
        ("torchrun --help", Reason.REFUSED),
        ("torchrun --nodes=2 x.py", Reason.REFUSED),
        ("PET_STANDALONE=yes torchrun x.py", Reason.REFUSED),
        ("torchrun 'x.py", Reason.OPEN_QUOTE),
    ],
)
def test_what_is_no_line(text, reason, capsys):
    with pytest.raises(Unreadable) as caught:
        torchrun.read(torchrun.split_line(text))
    assert caught.value.reason is reason
    assert capsys.readouterr() == ("", "")


def test_assignments_are_gone_once_they_are_read():
    before = dict(os.environ)
    torchrun.read(torchrun.split_line("PET_NNODES=3 A=b torchrun x.py"))
    assert dict(os.environ) == before
    assert torchrun.read(["torchrun", "x.py"]).nnodes == "1"


@pytest.mark.parametrize(
    "own",
    [
        lambda: os.getpid(),
        lambda: int(time.time()),
        lambda: socket.gethostname(),
        lambda: socket.getfqdn(),
        lambda: platform.node(),
    ],
    ids=["process", "time", "hostname", "full hostname", "node"],
)
def test_what_differs_between_hosts_differs_in_the_check(own, monkeypatch):
    """An id or an endpoint that is made of it is not the same in all lines."""
    monkeypatch.setattr(
        set_order.RankOrderedSet, "reverse_on_odd_ranks", False
    )  # as it is afterwards
    hosts = {"gpu-07": 4, "gpu-11": 2}
    first, second = (call_on_host(lambda *_: own(), host, hosts) for host in hosts)
    assert first != second


PROGRAM = """
import os, sys
folder, *words = sys.argv[1:]
names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"
with open(os.path.join(folder, os.environ["RANK"]), "w") as file:
    print(*(os.environ[name] for name in names), words, file=file)
"""


@pytest.mark.release("the solution of torchrun_line, typed on two hosts")
def test_the_lines_of_the_solution_start_one_job(tmp_path):
    """Two torchruns, one with two ranks and one with one; the program has a blank in its name."""
    program, ranks = tmp_path / "my program.py", tmp_path / "ranks"
    program.write_text(PROGRAM)
    ranks.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hosts = {"127.0.0.1": 2, "localhost": 1}
    typed = [
        torchrun_line(host, hosts, port, "17", [str(program), str(ranks), "two words"])
        for host in hosts
    ]
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    }
    running = [subprocess.Popen(words, env=environment) for words in typed]
    try:
        assert [process.wait(timeout=300) for process in running] == [0, 0]
    finally:
        for process in running:
            process.terminate()  # torchrun ends its ranks
            process.wait()
    found = {int(file.name): file.read_text().split(" ", 5) for file in ranks.iterdir()}
    assert sorted(found) == [0, 1, 2]
    assert {values[1] for values in found.values()} == {"3"}
    assert sorted(values[2:4] for values in found.values()) == [["0", "1"], ["0", "2"], ["1", "2"]]
    assert {tuple(values[4:]) for values in found.values()} == {("2", "['two words']\n")}
