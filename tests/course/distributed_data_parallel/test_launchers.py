"""Claims of the page on launchers that no cell of it checks."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

from ddp_workbook.experiments import print_environment
from ddp_workbook.experiments.distributed_data_parallel import launchers
from manyranks.launcher.rendezvous import free_port
from tests.workers import ddp_claims as workers

pytestmark = pytest.mark.push("claims of further pages")

START = launchers.LaunchTiming("torchrun", 4.0, [(2.0, 3.0), (2.5, 3.5)], threads=1, accuracy=0.5)


def torchrun(*words: str) -> subprocess.CompletedProcess:
    """Run torchrun as from a terminal, to its end."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(launchers.LAUNCH_ENV_PREFIXES)
    }
    command = [sys.executable, "-m", "torch.distributed.run", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=launchers.TIMEOUT_S, env=own
    )


def test_spawn_ends_the_others_when_one_fails():
    with pytest.raises(torch.multiprocessing.ProcessRaisedException, match="as planned"):
        torch.multiprocessing.spawn(workers.fails_at_rank_0, nprocs=2)


def test_spawn_returns_nothing_or_a_context_to_join():
    assert torch.multiprocessing.spawn(print, nprocs=1) is None
    context = torch.multiprocessing.spawn(print, nprocs=1, join=False)
    while not context.join(timeout=launchers.TIMEOUT_S):
        pass


def test_torchrun_keeps_hold_of_the_port():
    """The ranks use the store of torchrun itself, which has the port from the start."""
    result = torchrun("--standalone", "--nproc-per-node", "1", workers.__file__)
    assert result.stdout == "True\n", result.stderr


def test_a_port_that_is_taken_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = torchrun("--master-port", str(taken.getsockname()[1]), print_environment.__file__)
    assert result.returncode != 0 and "EADDRINUSE" in result.stderr


def on_two_hosts(*lines: list[str]) -> list[list[dict]]:
    """What the ranks find that two torchruns start together, two each; in the order of `lines`."""
    words = [
        ["--nnodes", "2", "--nproc-per-node", "2", *line, print_environment.__file__]
        for line in lines
    ]
    with ThreadPoolExecutor() as pool:
        return list(
            pool.map(launchers.rank_outputs, ["torch.distributed.run"] * 2, words, [{}] * 2)
        )


def test_node_rank_and_local_rank_make_the_rank():
    """rank = nr * gpus + gpu, as driver scripts compute it."""
    port = str(free_port())
    lines = [["--node-rank", str(node), "--master-port", port] for node in range(2)]
    for node, found in enumerate(on_two_hosts(*lines)):
        numbers = {(int(one["LOCAL_RANK"]), int(one["RANK"])) for one in found}
        assert numbers == {(0, 2 * node), (1, 2 * node + 1)}
        assert {one["MASTER_PORT"] for one in found} == {port}


def test_c10d_needs_no_node_rank_and_the_run_has_the_name_that_it_is_given():
    line = ["--rdzv-backend", "c10d", "--rdzv-id", "mine"]
    line += ["--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    found = [one for host in on_two_hosts(line, line) for one in host]
    assert sorted(one["RANK"] for one in found) == ["0", "1", "2", "3"]
    assert {one["TORCHELASTIC_RUN_ID"] for one in found} == {"mine"}


def test_a_standalone_run_has_a_name_of_its_own():
    words = ["--standalone", "--nproc-per-node", "2", print_environment.__file__]
    runs = [launchers.rank_outputs("torch.distributed.run", words, {}) for _ in range(2)]
    names = [{one["TORCHELASTIC_RUN_ID"] for one in found} for found in runs]
    assert len(names[0]) == len(names[1]) == 1 and names[0] != names[1]


def test_what_each_launcher_tells_a_program():
    table = launchers.program_environments()
    assert list(table["sys.argv[1:]"]) == ["--epochs 5"] * 2 + ["--local-rank=0 --epochs 5"]
    assert list(table["LOCAL_RANK"]) == ["0"] * 3
    assert list(table["imports start in"]) == [
        "the program's folder",
        "your folder",
        "the program's folder",
    ]
    assert table["MASTER_PORT"].nunique() == 3  # a free one each


def test_gpus_are_counted_from_0_in_each_process():
    table = launchers.which_gpus("1,3")
    assert list(table["the program says"]) == ["cuda:0", "cuda:1"]
    assert list(table["GPU of the machine"]) == ["1", "3"]


GUARDLESS = """
import multiprocessing

def worker(rank):
    print("this is rank", rank)

{guard}process = multiprocessing.get_context("spawn").Process(target=worker, args=(0,))
{indent}process.start()
{indent}process.join()
"""


def test_a_program_without_the_guard_is_refused_and_one_with_it_runs(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(GUARDLESS.format(guard="", indent=""))
    assert "An attempt has been made to start a new process" in launchers.run_program(program)
    program.write_text(GUARDLESS.format(guard='if __name__ == "__main__":\n    ', indent="    "))
    assert launchers.run_program(program) == "this is rank 0"


def test_without_a_launcher_there_is_no_rank(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="environment variable RANK expected, but not set"):
        dist.init_process_group("gloo")


def test_launch_starts_the_worker_and_its_report_comes_back():
    start = launchers._time_launch("launch", launchers.by_launch)
    assert start.accuracy > 0.2  # 0.1 is guessing
    assert all(0 < began < ended < start.seconds for began, ended in start.training_times)


def test_starts_are_told_in_a_table_and_a_picture():
    (row,) = launchers.start_table([START]).to_dict("records")
    assert row["seconds in all"] == "4.0" and row["of these, training"] == "1.0"
    picture = launchers.lanes([START])
    assert "torchrun, rank 1: starts from 0 to 2.5, trains from 2.5 to 3.5" in picture.alt
    assert "All is over after 4.0 s with torchrun" in picture.alt
    assert [text.get_text().strip() for text in picture.axes.texts] == ["4.0 s"]


def test_gpus_in_use_are_what_nvidia_smi_prints(tmp_path):
    """A table; a sentence without NVIDIA's tool, and its own words if it fails."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'index, memory.used [MiB]'\necho '0, 17 MiB'\n")
    smi.chmod(0o755)
    assert launchers.gpus_in_use(str(smi)).to_dict("records") == [
        {"index": 0, "memory.used [MiB]": "17 MiB"}
    ]
    smi.write_text("#!/bin/sh\nexit 9\n")
    assert "status 9" in launchers.gpus_in_use(str(smi))
    assert "There is no" in launchers.gpus_in_use(str(tmp_path / "none"))


def test_one_process_uses_one_of_three_visible_gpus():
    assert list(launchers.which_gpus("0,1,2", ranks=1)["the program says"]) == ["cuda:0"]
