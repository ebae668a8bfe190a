"""`launch` keeps torchrun's contract: what a worker is given, what comes back, which code runs."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from manyranks.errors import RankFailed
from manyranks.launcher import fork_server, rank_environment
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import launch, run_ranks
from tests.leaks import alive, no_rank_left, wait_until  # noqa: F401
from tests.workers import contract, launching
from tests.workers.torchrun_style import loader, mesh, plain, recorded
from tools.set_up import ROOT

# torchrun's agent gives a file for errors and the list of signals that it passes on; here there is
# no agent.
AGENTS_OWN = {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}


def quietly(worker, *args, ranks=2, timeout=120, **kwargs) -> list:
    return run_ranks(Call(worker, args), ranks, timeout, quiet=True, **kwargs)


def test_results_come_in_rank_order_whoever_returns_first():
    assert quietly(contract.slower_first, ranks=4) == [0, 1, 2, 3]


def test_arguments_reach_every_rank():
    results = launch(contract.echo, 1, [2], ranks=2, timeout=30, key={"a": torch.ones(2)})
    assert [(rank, args) for rank, args, _ in results] == [(r, (1, [2])) for r in range(2)]
    assert all(torch.equal(kwargs["key"]["a"], torch.ones(2)) for _, _, kwargs in results)


@pytest.mark.push("other ways to start")
@pytest.mark.parametrize("ranks", [1, 3, 64])
def test_ranks_meet_in_a_group(ranks):
    assert quietly(launching.all_reduce, ranks=ranks) == [ranks * (ranks + 1) / 2] * ranks


@pytest.mark.push("other ways to start")
def test_a_rank_that_returns_at_once_does_not_disturb_those_that_still_connect():
    """It would, in half of these launches, if it left at once."""
    for _ in range(6):
        assert quietly(contract.hello, ranks=16) == list(range(16))


def test_the_line_for_torchrun_is_shown_for_a_file_that_can_be_run(capsys):
    launch(plain.main, ranks=1)
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        "torchrun --standalone --nproc-per-node 1 tests/workers/torchrun_style/plain.py"
    )
    launch(contract.rank, ranks=1)
    assert "torchrun" not in capsys.readouterr().out


def test_in_a_notebook_the_line_is_for_jupyterlabs_terminal(capsys, monkeypatch, tmp_path):
    """Which begins at the project, and finds no torchrun; elsewhere it is for the reader's own."""
    monkeypatch.setattr(rank_environment, "prints_in_kernel", lambda: True)
    monkeypatch.setattr(sys, "prefix", f"{ROOT / '.venv'}")
    monkeypatch.chdir(ROOT / "notebooks")
    launch(plain.main, ranks=1)
    script = "tests/workers/torchrun_style/plain.py"
    line = f"--standalone --nproc-per-node 1 {script}"
    assert capsys.readouterr().out.splitlines()[0] == f".venv/bin/torchrun {line}"
    monkeypatch.chdir(tmp_path)
    launch(plain.main, ranks=1)
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("torchrun --standalone") and first.endswith(f"/{script}")


@pytest.mark.push("other ways to start")
def test_a_worker_finds_the_same_as_under_torchrun(capsys):
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [sys.executable, *command, plain.__file__], capture_output=True, text=True
    )  # gloo may abort once all is done: torchrun's exit code tells nothing
    quietly(plain.main)
    theirs, ours = (
        sorted(map(json.loads, re.findall(r"\{.*?\}", text)), key=lambda found: found["rank"])
        for text in (run.stdout, capsys.readouterr().out)  # torchrun can mix two ranks' lines
    )
    for one in theirs:
        one["names"] = [name for name in one["names"] if name not in AGENTS_OWN]
    assert ours == theirs


@pytest.mark.parametrize(
    ("worker", "says"),
    [(recorded.main, "sum 8"), (loader.main, "INFO seen 120"), (mesh.main, "sum -2.7488")],
    ids=["record_and_argparse", "data_loader_with_workers", "mesh_and_fsdp"],
)
def test_workers_written_for_torchrun_run_unchanged(worker, says, capsys):
    assert quietly(worker, timeout=60) == [None, None]
    assert says in capsys.readouterr().out


def test_an_error_under_record_is_the_workers_own():
    with pytest.raises(RankFailed, match="ValueError: seen through @record"):
        quietly(recorded.failing)


def test_variables_set_after_the_first_launch_are_seen(monkeypatch):
    quietly(contract.rank, ranks=1)
    monkeypatch.setenv("WORKBOOK_LATE", "seen")
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")  # torch reads it when imported
    assert quietly(contract.environment, ranks=1)[0]["WORKBOOK_LATE"] == "seen"
    assert quietly(contract.own_state, ranks=1)[0]["level"] == "DETAIL"
    monkeypatch.delenv("WORKBOOK_LATE")
    assert "WORKBOOK_LATE" not in quietly(contract.environment, ranks=1)[0]


def test_a_rank_has_the_kernels_folder_but_neither_its_keyboard_nor_its_arguments(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    around = quietly(contract.own_state, ranks=1)[0]
    assert around["cwd"] == str(tmp_path)
    assert around["stdin"] == b"" and around["argv"] == [contract.__file__]
    assert around["group"]  # a process group of its own, to be ended as a whole
    assert around["method"] is None  # not the fork server: a DataLoader's workers would wait


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_threads_of_a_rank_are_cores_by_ranks(ranks, monkeypatch):
    monkeypatch.setattr(rank_environment, "usable_cores", lambda: 6)
    threads = quietly(contract.own_state, ranks=ranks)[-1]["threads"]
    assert threads == max(1, 6 // ranks)


def test_threads_can_be_chosen_and_variables_given_to_all_ranks():
    given = {"environment": {"GLOO_LOG": "1"}, "threads": 3}
    for env in quietly(contract.environment, **given):
        assert (env["OMP_NUM_THREADS"], env["GLOO_LOG"]) == ("3", "1")
    assert quietly(contract.own_state, threads=3)[1]["threads"] == 3


def test_the_random_numbers_of_ranks_differ():
    """As in separate processes: Python, NumPy and torch each begin with a seed of their own."""
    drawn = [*quietly(contract.numbers), *quietly(contract.numbers)]
    assert all(len(set(of_ranks)) == 4 for of_ranks in zip(*drawn, strict=True))


def test_neighbours_of_the_workers_file_are_found():
    assert quietly(contract.neighbour, ranks=1) == ["hello from next door"]


@pytest.mark.parametrize("code", [None, 0])
def test_sys_exit_without_an_error_is_a_return(code):
    assert quietly(contract.leaves, code) == [None, None]


def test_what_a_worker_leaves_for_its_end_is_done(tmp_path):
    names = quietly(contract.says_goodbye, str(tmp_path))
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["goodbye"] * 2
    assert not any(Path(name).exists() for name in names)  # temporary folders
    late = tmp_path / "late"
    late.mkdir()
    quietly(contract.thread_writes_late, str(late))
    assert [(late / str(rank)).read_text() for rank in range(2)] == ["late"] * 2


@pytest.mark.parametrize("daemon", [True, False])
def test_threads_that_never_end_hold_nothing_up(daemon):
    start = time.monotonic()
    assert quietly(contract.endless_threads, daemon) == [0, 1]
    assert time.monotonic() - start < 25  # else 30, the time limit


def test_an_idle_thread_pool_holds_nothing_up(capsys):
    """Or its rank would be ended after its time to leave, which is said."""
    assert quietly(contract.idle_pool) == [0, 1]
    assert capsys.readouterr().out == ""


def test_a_fork_that_returns_from_the_worker_too_is_no_rank():
    assert quietly(contract.fork_falls_through) == [0, 1]


@pytest.mark.long
def test_a_rank_can_launch():
    assert quietly(contract.nested, ranks=1) == [[3.0, 3.0]]


def test_a_model_may_live_longer_than_its_group():
    """Its end, and that of the group with it, is a deadlock in torch 2.13: see `workarounds`."""
    assert quietly(contract.ddp_outlives_its_group) == [True, True]


@pytest.mark.parametrize("own", [None, "timeout:3"])
def test_no_name_server_is_asked_who_127_0_0_1_is(own, monkeypatch, capfd):
    """Its answer can take 10 s, in each rank, where the network is slow: see `workarounds`."""
    monkeypatch.delenv("RES_OPTIONS", raising=False)
    if own:
        monkeypatch.setenv("RES_OPTIONS", own)
    mine = own and own.encode()
    asked = [mine, b"attempts:0" if sys.platform == "linux" else mine, mine]
    assert quietly(contract.options_of_the_resolver) == [asked, asked]
    assert os.environ.get("RES_OPTIONS") == own
    printed = capfd.readouterr()  # no warning that there is no name, nothing else held back
    assert sorted(printed.out.splitlines()) == ["[rank 0] kept", "[rank 1] kept"]
    assert printed.err == ""


def test_launch_from_a_thread_and_several_at_once():
    results = {}

    def run(number: int) -> None:
        for _ in range(3):
            results.setdefault(number, []).append(quietly(launching.all_reduce, ranks=number))

    threads = [threading.Thread(target=run, args=(number,)) for number in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: [[n * (n + 1) / 2] * n] * 3 for n in (1, 2, 3, 4)}


@pytest.mark.long
def test_the_fork_server_has_one_thread_and_comes_back_when_it_is_killed():
    quietly(contract.rank, ranks=1)
    server = fork_server.server_pid()
    names = [path.read_text().strip() for path in Path(f"/proc/{server}/task").glob("*/comm")]
    names = [name for name in names if name != "jemalloc_bg_thd"]  # pyarrow's; a fork is prepared
    assert len(names) == 1  # else forking is not safe
    os.kill(server, 9)
    assert wait_until(lambda: not alive([server]))
    assert quietly(launching.all_reduce) == [3.0, 3.0]
    assert fork_server.server_pid() != server


@pytest.mark.push("other ways to start")
def test_where_there_is_no_fork_server_ranks_are_spawned(monkeypatch):
    """As on Windows and, with its own pipes, wherever Python knows no fork server."""
    import multiprocessing

    monkeypatch.setattr(fork_server, "METHOD", "spawn")
    monkeypatch.setattr(fork_server, "CONTEXT", multiprocessing.get_context("spawn"))
    server = fork_server.server_pid()
    assert server is None
    assert quietly(launching.all_reduce) == [3.0, 3.0]


def test_all_ranks_get_gpus_or_none_does(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert "CUDA_VISIBLE_DEVICES" not in rank_environment.RankEnvironment(2, 1, None, {}).of(1)
    hidden = [rank_environment.RankEnvironment(3, 1, None, {}).of(rank) for rank in range(3)]
    assert [env["CUDA_VISIBLE_DEVICES"] for env in hidden] == ["", "", ""]
    assert quietly(contract.cuda_visible, ranks=3) == [("", 0)] * 3


SCRIPT = """
import sys
from manyranks.launcher.launch import launch

def worker(x):
    import os
    return int(os.environ["RANK"]) * x

{guard}
    print(launch(worker, 10, ranks=2, timeout=20))
"""


@pytest.mark.parametrize("guard", ['if __name__ == "__main__":', "if True:"])
def test_a_script_launches_its_own_function_if_it_is_guarded(tmp_path, guard):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.format(guard=guard))
    run = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=60)
    if guard == "if True:":
        assert run.returncode == 1 and 'if __name__ == "__main__":' in run.stderr.splitlines()[-1]
        assert run.stderr.count("Traceback") == 1  # the launching process's own
    else:
        assert run.stdout.splitlines()[-1] == "[0, 10]", run.stderr


def test_an_edited_file_is_what_runs_next(tmp_path, monkeypatch):
    """The file, and one that it imports: same length, same second, no reload in the kernel."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    worker, helper = tmp_path / "edited_worker.py", tmp_path / "edited_helper.py"
    text = "import edited_helper\ndef worker():\n    return 1, edited_helper.value()\n"
    worker.write_text(text)
    helper.write_text("def value():\n    return 1\n")
    import edited_worker

    assert quietly(edited_worker.worker) == [(1, 1)] * 2
    worker.write_text(text.replace("return 1", "return 2"))
    assert quietly(edited_worker.worker) == [(2, 1)] * 2
    helper.write_text("def value():\n    return 3\n")
    assert quietly(edited_worker.worker) == [(2, 3)] * 2
    worker.write_text("def worker(:\n")
    with pytest.raises(RankFailed, match=r"SyntaxError: .*\(edited_worker.py, line 1\)") as caught:
        quietly(edited_worker.worker)
    assert "def worker(:" in str(caught.value)
    worker.write_text("def other():\n    return 4\n")
    with pytest.raises(RankFailed, match="import it again"):
        quietly(edited_worker.worker)


def test_a_function_of_a_reloaded_module_still_runs(tmp_path, monkeypatch):
    import importlib

    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "reloaded_worker.py"
    file.write_text("def worker():\n    return 'old'\n")
    import reloaded_worker

    old = reloaded_worker.worker
    file.write_text("def worker():\n    return 'brand new'\n")
    importlib.reload(reloaded_worker)
    assert quietly(old, ranks=1) == quietly(reloaded_worker.worker, ranks=1) == ["brand new"]


def test_what_the_fork_server_loads_is_light():
    """The first launch waits for it; test_layout.py says which parts of ours it may import."""
    code = "import sys, manyranks.launcher.subreaper, manyranks.launcher.rank_process; "
    code += "print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"matplotlib", "pandas", "IPython", "ipywidgets", "pygments", "sympy"}
    assert not heavy & set(done.stdout.split())
