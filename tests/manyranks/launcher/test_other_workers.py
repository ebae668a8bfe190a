"""Other people's workers: each runs as it is, or is told at once what to change; none waits."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from manyranks.diagnostics import advice
from manyranks.diagnostics.evidence import State
from manyranks.errors import LaunchRefused, RankFailed, RanksHung
from manyranks.launcher.calls import call_of
from manyranks.launcher.launch import launch, run_ranks
from manyranks.recording.collectives import record_collectives
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tests.workers.pasted import parallel_styles, spawn_style
from tools.set_up import ROOT

SCRIPT = Path(spawn_style.__file__).with_name("script.py")
LIMIT = 60  # seconds that nobody may wait for


def at_once(worker, *args, ranks=2, **kwargs) -> RankFailed:
    """The failure of a launch that must not wait for its time limit."""
    launch(spawn_style.local_rank_first, 1, ranks=1)  # the fork server's own start does not count
    start = time.monotonic()
    with pytest.raises(RankFailed) as caught:
        launch(worker, *args, ranks=ranks, timeout=LIMIT, **kwargs)
    assert not isinstance(caught.value, RanksHung)
    assert time.monotonic() - start < LIMIT / 2
    return caught.value


# The meeting place


def test_a_port_of_the_workers_own_is_answered_in_one_line(capsys):
    assert launch(spawn_style.own_port, ranks=2) == [3.0, 3.0]
    lines = [line for line in capsys.readouterr().out.splitlines() if "localhost:12355" in line]
    assert len(lines) == 1 and "launch's own store" in lines[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", socket.gethostname()])
def test_a_local_url_is_answered(host):
    assert launch(spawn_style.own_url, url=f"tcp://{host}:23456", ranks=2) == [3.0, 3.0]


def test_another_machine_is_named():
    error = at_once(spawn_style.own_url, url="tcp://203.0.113.7:23456")
    assert "meet at 203.0.113.7:23456, on another machine" in str(error)
    assert "Leave out init_method" in str(error)


@pytest.mark.parametrize("ranks", [2, 4])
def test_leaving_a_group_and_joining_a_new_one(ranks):
    for _ in range(3):  # it failed in 3 of 5 launches while groups shared their keys in the store
        assert (
            launch(spawn_style.joins_again, 3, ranks=ranks)
            == [[ranks * (ranks + 1) / 2] * 3] * ranks
        )


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_mesh_that_makes_the_group_may_be_made_again(ranks):
    """torch's device_mesh has a name of its own for init_process_group: all failed at 4 ranks."""
    for _ in range(3):
        assert launch(spawn_style.meshes, 3, ranks=ranks) == [[float(ranks)] * 3] * ranks


# Rank and world size


@pytest.mark.parametrize(
    ("worker", "args", "kwargs", "results"),
    [
        (spawn_style.own_port, (), {}, [3.0, 3.0]),
        (spawn_style.own_port, (2,), {}, [3.0, 3.0]),  # mp.spawn(own_port, args=(2,))
        (spawn_style.own_port, (), {"world_size": 2}, [3.0, 3.0]),
        (spawn_style.own_url, (), {}, [3.0, 3.0]),
        (spawn_style.with_more, (10,), {}, [30.0, 30.0]),
        (spawn_style.with_more, (2, 10), {"shift": 1}, [31.0, 31.0]),
        (spawn_style.as_in_a_tutorial, (2, spawn_style.total), {}, [3.0, 3.0]),
        (spawn_style.as_in_a_tutorial, (spawn_style.total,), {}, [3.0, 3.0]),
        (spawn_style.keywords_only, (), {}, [(0, 2), (1, 2)]),
        (spawn_style.with_defaults, ("x",), {}, [("x", 0, 2), ("x", 1, 2)]),
        (spawn_style.size_is_a_size, (1000,), {}, [(1000, 2)] * 2),  # no rank: it is the caller's
        (spawn_style.local_rank_first, (5,), {}, [(0, 5), (1, 5)]),
        (spawn_style.local_rank_first, (), {"epochs": 5}, [(0, 5), (1, 5)]),
        (spawn_style.local_rank_first, (7, 5), {}, [(7, 5), (7, 5)]),  # the call says it all
    ],
)
def test_rank_and_world_size_are_filled_in_where_the_call_leaves_them_open(
    worker, args, kwargs, results
):
    assert launch(worker, *args, ranks=2, **kwargs) == results


def test_what_does_not_fit_the_signature_is_refused_before_anything_starts():
    with pytest.raises(
        LaunchRefused, match=r"own_port\(rank, world_size\) cannot be called .* too"
    ):
        launch(spawn_style.own_port, 1, 2, 3)
    with pytest.raises(LaunchRefused, match="missing a required argument: 'epochs'"):
        launch(spawn_style.local_rank_first)
    with pytest.raises(LaunchRefused, match="unexpected keyword argument 'batch'"):
        launch(spawn_style.own_port, batch=3)
    with pytest.raises(LaunchRefused, match="world_size=4 contradicts ranks=2"):
        launch(spawn_style.own_port, 4, ranks=2)
    with pytest.raises(LaunchRefused, match="rank=0 would be the same on all 2 ranks"):
        launch(spawn_style.own_port, 0, 2, ranks=2)
    with pytest.raises(LaunchRefused, match="awaited is an async function"):
        launch(spawn_style.awaited)


@pytest.mark.parametrize(
    ("worker", "args", "says"),
    [
        (spawn_style.all_are_rank_0, (2,), "rank=0 contradicts the launch: this process is rank 1"),
        (spawn_style.all_are_rank_0_by_environment, (), "rank=0 contradicts the launch"),
        (spawn_style.one_too_many, (), "world_size=3 contradicts the launch"),
        (spawn_style.rank_0_in_a_file, ("no_matter",), "rank=0 contradicts the launch"),
    ],
)
def test_numbers_that_contradict_the_launch_are_named(worker, args, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one makes a file
    error = at_once(worker, *args)
    assert says in str(error) and 'int(os.environ["RANK"])' in str(error)


# What else makes groups and sends


@pytest.mark.parametrize(
    "worker",
    [parallel_styles.tensor_parallel, parallel_styles.compiled, parallel_styles.zero_redundancy],
)
def test_other_parts_of_pytorch_run_as_they_are(worker):
    assert launch(worker, ranks=2, timeout=LIMIT) == [True, True]


# What a GPU, or another launcher, would do


@pytest.mark.parametrize(
    "worker",
    [spawn_style.nccl, spawn_style.to_rank, spawn_style.set_device, spawn_style.device_ids],
)
def test_what_is_written_for_gpus_computes_on_the_cpu(worker, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    launch(worker, ranks=2, timeout=LIMIT)
    assert capsys.readouterr().out.count("asks for a GPU") == 1


def test_ranks_within_ranks_run_in_place_or_are_named():
    """`mp.spawn` is told which rank it is in; a loop over processes is not."""
    launch(spawn_style.spawns, ranks=2, timeout=LIMIT)
    assert "Launch own_port itself" in str(at_once(spawn_style.starts_ranks))


def test_spawning_no_process_is_said(tmp_path, capsys):
    """As many as there are GPUs, where there are none: mp.spawn is silent."""
    file = tmp_path / "spawns.py"
    file.write_text(
        "import torch, torch.multiprocessing as mp\ndef train(rank):\n    pass\n"
        "if __name__ == '__main__':\n    mp.spawn(train, nprocs=torch.cuda.device_count())\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        launch(file, ranks=1, as_if_gpus=False)
    assert "asked for 0 processes, so train does not run" in capsys.readouterr().out


def test_stores_that_nobody_else_can_see_are_named(tmp_path):
    assert "A HashStore lives in one process" in str(at_once(spawn_style.one_process_store))
    gone = at_once(spawn_style.rank_0_in_a_file, str(tmp_path / "gone" / "file"))
    assert "there is no folder" in str(gone)


def test_what_still_runs_when_the_worker_returns_may_end_or_is_named(tmp_path, capsys):
    """torchrun waits for it; a launch waits for a moment, and never loses it without a word."""
    launch(spawn_style.saves_late, str(tmp_path), ranks=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    assert "still ran" not in capsys.readouterr().out
    launch(spawn_style.leaves_a_child, ranks=2)
    assert "Rank 0, 1: threads or processes still ran 2 s after" in capsys.readouterr().out


@pytest.mark.push("other people's programs again")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_rank_alone_may_make_a_group_of_its_own_children(method, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("FREE_PORT", str(port))
    assert launch(spawn_style.starts_processes, method, ranks=1, timeout=180) == [[0, 0]]


def test_a_program_that_replaced_the_rank_is_named():
    error = at_once(spawn_style.replaces_itself, ["sleep", "100"])
    assert "was replaced by another program (sleep 100)" in str(error)
    assert "subprocess.run" in str(error)
    short = at_once(spawn_style.replaces_itself, ["true"])
    assert "exit code 0 without returning" in str(short) or "(true)" in str(short)


def test_a_function_of_the_readers_is_not_taken_for_ours():
    with pytest.raises(RanksHung) as caught:
        launch(spawn_style.unpack, 1, ranks=1, timeout=0.5)
    (place,) = caught.value.positions
    assert place.state is State.AT_LINE and place.file == spawn_style.__file__
    assert advice.LOOP in str(caught.value)


# Scripts


def test_a_script_runs_as_under_torchrun(capsys):
    assert launch(SCRIPT, "--epochs", "3", ranks=2) == [None, None]
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("torchrun --standalone --nproc-per-node 2 ")
    assert out.splitlines()[0].endswith("script.py --epochs 3")
    assert out.count("sum 6.0 from next door script.py") == 2
    assert "No rank joined" not in out


def test_a_script_is_recorded_with_its_own_lines():
    wire = record_collectives(str(SCRIPT), "--epochs", 3, ranks=2)
    assert wire[["op", "bytes"]].values.tolist() == [["all_reduce", 12]] * 2
    assert wire["line"].str.startswith("script.py:").all()


def test_an_error_of_a_script_is_told_with_its_line():
    error = at_once(SCRIPT, "--epochs", "1", "--fail")
    assert "ValueError: asked to fail" in str(error) and "script.py" in str(error)


def test_a_script_may_end_by_os_exit(tmp_path, capsys):
    """As the chapters do: the interpreter's own end can crash after correct work."""
    file = tmp_path / "exits.py"
    file.write_text(
        "import os, sys, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\ndist.barrier()\nprint('done')\nsys.stdout.flush()\n"
        "os._exit(int(sys.argv[1]))\n"
    )
    assert launch(file, 0, ranks=2) == [None, None]
    assert capsys.readouterr().out.count("done") == 2
    assert record_collectives(file, 0, ranks=2)["op"].tolist() == ["barrier", "barrier"]
    assert "SystemExit: 3" in str(at_once(file, 3))


def test_a_script_that_forks_is_still_one_rank(tmp_path, capsys):
    file = tmp_path / "forks.py"
    file.write_text("import os\nif os.fork():\n    os.wait()\n    print('parent')\n")
    assert launch(file, ranks=2) == [None, None]
    assert capsys.readouterr().out.count("] parent") == 2


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "says"),
    [
        ("missing.py", (), {}, "There is no script"),
        ("folder", (), {}, "is a folder"),
        ("page.ipynb", (), {}, "is a notebook"),
        ("broken.py", (), {}, r"broken.py, line 1 is not valid Python: "),
        ("bytes.py", (), {}, "is not valid Python"),
        ("good.py", (), {"epochs": 3}, r'epochs=3: a script takes command-line .*"--epochs", "3"'),
        ("good.py", ({1},), {}, r"\{1\}: a script's arguments must be strings or numbers"),
    ],
)
def test_a_script_that_cannot_run_is_refused(tmp_path, name, args, kwargs, says):
    (tmp_path / "folder").mkdir()
    (tmp_path / "page.ipynb").write_text("{}")
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "good.py").write_text("pass\n")
    with pytest.raises(LaunchRefused, match=says):
        launch(tmp_path / name, *args, ranks=2, **kwargs)


# Whoever calls: a script without a guard, -c, stdin, IPython

CALLER = f"""
import sys
sys.path.insert(0, {str(SCRIPT.parents[3])!r})
from tests.workers.pasted import spawn_style
from ddp_workbook import launch
print("once")
print(launch(spawn_style.own_port, ranks=2, timeout=60))
"""
IN_A_TERMINAL = """
get_ipython().run_line_magic('load_ext', 'ddp_workbook')
print(get_ipython().run_cell_magic('ranks', '2', 'rank * 10'))
"""
OWN = """
def worker():
    return 1
launch(worker, ranks=2)
"""
TEXTS = {  # an interpreter takes seconds to start: each runs all that is tried in it
    "script": CALLER,
    "-c": CALLER + OWN,
    "stdin": CALLER + OWN,
    "ipython": CALLER + IN_A_TERMINAL + OWN,
}


def call(how: str, text: str, folder: Path) -> subprocess.CompletedProcess:
    """Run `text` as a script, by -c, from stdin, or in IPython."""
    file = folder / {"ipython": "caller.ipy"}.get(how, "caller.py")
    file.write_text(text)
    words = {
        "script": [str(file)],
        "-c": ["-c", text],
        "stdin": ["-"],
        "ipython": ["-m", "IPython", "--colors=NoColor", str(file)],
    }[how]
    return subprocess.run(
        [sys.executable, *words],
        input=text if how == "stdin" else "",
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env=os.environ | {"IPYTHONDIR": str(folder), "NO_COLOR": "1", "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture(scope="module")
def called(tmp_path_factory) -> Callable[[str], subprocess.CompletedProcess]:
    """What each of the ways to run its text has printed."""
    return cache(lambda how: call(how, TEXTS[how], tmp_path_factory.mktemp("caller")))


@pytest.mark.push("other people's programs again")
@pytest.mark.parametrize("how", TEXTS)
def test_the_caller_runs_once_where_the_worker_lives_elsewhere(how, called):
    done = called(how)
    assert done.stdout.count("once") == 1, done.stderr
    assert "[3.0, 3.0]" in done.stdout.splitlines(), done.stderr


CHILDREN = """
import concurrent.futures, multiprocessing, sys
sys.path.insert(0, {folder!r})
from ddp_workbook import launch
from tests.workers.pasted import spawn_style

def sweep(number):
    return launch(spawn_style.local_rank_first, number, ranks=2)

if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        print(list(pool.map(sweep, [1, 2])))
    with context.Pool(1) as pool:
        try:
            pool.map(sweep, [1])
        except ValueError as error:
            print(type(error).__name__, "ProcessPoolExecutor" in str(error))
"""


@pytest.mark.push("other people's programs again")
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_script_that_imports_launch_may_have_children_that_launch(method, tmp_path):
    done = call("script", CHILDREN.format(folder=str(SCRIPT.parents[3]), method=method), tmp_path)
    assert done.stdout.splitlines()[-2:] == [
        "[[(0, 1), (1, 1)], [(0, 2), (1, 2)]]",
        "LaunchRefused True",
    ], done.stderr


AGAIN = pytest.mark.push("other people's programs again")


@pytest.mark.parametrize("how", [pytest.param("-c", marks=AGAIN), "stdin", "ipython"])
def test_a_worker_without_a_file_is_refused_in_words_that_are_true(how, called):
    done = called(how)
    told = " ".join((done.stdout + done.stderr).split())
    assert "`worker` was defined at a prompt, or in a script that is not a file" in told
    assert "__main__" not in told.split("LaunchRefused")[-1]


def test_values_of_a_ranks_cell_stand_side_by_side_as_text_in_a_terminal(called):
    done = called("ipython")
    assert "\nrank 0: 0\nrank 1: 10\n" in done.stdout, done.stderr


def test_the_call_is_the_same_for_launch_and_for_the_recorder():
    """`record_collectives` fills in what `launch` does."""
    wire = record_collectives(spawn_style.own_url, ranks=2)
    assert wire["op"].tolist() == ["all_reduce"] * 2
    assert run_ranks(call_of(spawn_style.own_url, (), {}, 2), 2, quiet=True) == [3.0, 3.0]
