"""Chapter 07's program stops when it is asked to, and continues as if nothing had happened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ddp_workbook import RankFailed, launch
from ddp_workbook.chapters import distributed_data_parallel, many_machines, single_process

PROGRAM = many_machines.__file__
BATCHES = ("--batch-size", "300")
SHORT = {"epochs": 3, "batch_size": 300}


def read_output(capsys: pytest.CaptureFixture) -> list[str]:
    """What the ranks of a launch printed, without launch's command line and the roll call."""
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if "torchrun" not in line and ", local rank " not in line]


def stop(state: Path, ranks: int, *words: str) -> None:
    """Run until the end of the next epoch."""
    Path(f"{state}.stop").touch()
    launch(PROGRAM, "--state", str(state), *BATCHES, *words, ranks=ranks)


# Stop and resume


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_training_with_stops_equals_one_without(ranks, tmp_path, capsys):
    """On every rank: momentum and losses continue as well.

    To the last bit on one or two ranks. With more, the order of a sum counts, and a new DDP has its
    gradients in another order until it rebuilds its buckets after the first step (torch 2.13).
    """
    state = tmp_path / "run.state"
    stop(state, ranks)
    first = f"[rank 0] Stopped after epoch 1. The same command resumes from {state}."
    assert read_output(capsys) == [first]
    stop(state, ranks)
    assert read_output(capsys) == [first.replace("epoch 1", "epoch 2")]
    assert os.listdir(tmp_path) == ["run.state"]  # no request, nothing half-written
    with_stops = launch(many_machines.train, ranks=ranks, state=str(state), **SHORT)
    without = launch(many_machines.train, ranks=ranks, **SHORT)
    assert len(with_stops[0].losses) == 18
    for one, other in zip(with_stops, without, strict=True):
        atol = 0 if ranks <= 2 else 1e-6  # 3e-8 was the largest difference seen
        torch.testing.assert_close(one.weights, other.weights, rtol=0, atol=atol)
        assert one.losses == pytest.approx(
            other.losses, abs=1e-6
        )  # all added up at the end, or part


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 1)])
def test_it_may_go_on_with_more_or_fewer_ranks(before, after, tmp_path):
    state = tmp_path / "run.state"
    stop(state, before)
    trained = launch(many_machines.train, ranks=after, state=str(state), **SHORT)[0]
    expected = single_process.train(**SHORT)
    assert trained.losses == pytest.approx(expected.losses, abs=5e-6)
    torch.testing.assert_close(trained.weights, expected.weights, rtol=0, atol=5e-6)


def test_the_report_at_the_end_is_that_of_the_whole_training(tmp_path, capsys):
    state = tmp_path / "run.state"
    stop(state, 2)
    read_output(capsys)
    launch(PROGRAM, "--state", str(state), *BATCHES)
    report = single_process.train(**SHORT).report(3).splitlines()
    assert read_output(capsys) == [f"[rank 0] {line}" for line in report]


def test_a_request_that_comes_in_the_last_epoch_is_answered_by_the_end(tmp_path, capsys):
    """Nothing is saved, and the request does not wait for the next training."""
    stop(tmp_path / "run.state", 2, "--epochs", "1")
    assert read_output(capsys)[-1].endswith("of the digits right")
    assert os.listdir(tmp_path) == []


def test_without_a_state_nobody_asks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".stop").touch()
    assert len(launch(many_machines.train, **SHORT)[0].losses) == 18
    assert os.listdir(tmp_path) == [".stop"]


def ask(folder: str) -> bool:
    """A worker whose ranks are on hosts that share no folder."""
    device = distributed_data_parallel.setup()
    asked = many_machines.stop_requested(f"{folder}/{dist.get_rank()}", device)
    distributed_data_parallel.cleanup()
    return asked


@pytest.mark.parametrize("rank", [0, 1])
def test_all_ranks_hear_what_rank_0_sees(rank, tmp_path):
    """A file that two ranks see differently must not separate them: one would wait forever."""
    (tmp_path / f"{rank}.stop").touch()
    assert launch(ask, str(tmp_path), ranks=3) == [rank == 0] * 3


def resume_apart(folder: str) -> int:
    """A worker: continue from a file that only rank 0 has; returns the finished epochs."""
    distributed_data_parallel.setup()
    model = many_machines.DigitsMLP(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    settings = {"batch_size": 300, "width": 64, "depth": 1}
    state = f"{folder}/{dist.get_rank()}/run.state"
    done, losses = many_machines.resume(state, 3, settings, model, optimizer)
    distributed_data_parallel.cleanup()
    return done, len(losses), next(iter(optimizer.state.values()))["momentum_buffer"].sum().item()


def test_the_other_hosts_need_not_see_the_file(tmp_path):
    (tmp_path / "0").mkdir()
    stop(tmp_path / "0" / "run.state", 2)
    first, *others = launch(resume_apart, str(tmp_path), ranks=3)
    assert first[:2] == (1, 6) and first[2] != 0
    assert others == [first] * 2


# Files that are no state


class Malice:
    """Unpickled with all that pickle can do, it makes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def write_state(path: Path, **changed) -> None:
    """A state of two epochs, with something changed."""
    model = many_machines.DigitsMLP(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    whole = {
        "settings": {"batch_size": 300, "width": 64, "depth": 1},
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "done": 2,
        "losses": torch.zeros(12),
    }
    torch.save(whole | changed, path)


def truncate(path: Path) -> None:
    """What a program leaves that saves in place, and is killed."""
    write_state(path)
    path.write_bytes(path.read_bytes()[:5000])


CANNOT_BE_READ = "cannot be read as a saved training"
WRONG = {
    "cut": (truncate, CANNOT_BE_READ),
    "empty": (Path.touch, CANNOT_BE_READ),
    "text": (lambda path: path.write_text("my thesis"), CANNOT_BE_READ),
    "folder": (Path.mkdir, CANNOT_BE_READ),
    "code": (lambda path: torch.save(Malice(path.with_name("ran")), path), CANNOT_BE_READ),
    "tensor": (lambda path: torch.save(torch.ones(3), path), "is not a training that"),
    "foreign": (lambda path: torch.save({"model": {}}, path), "is not a training that"),
    "width": (
        lambda path: write_state(path, settings={"batch_size": 300, "width": 32, "depth": 1}),
        "'width': 32, 'depth': 1}, not {'batch_size': 300, 'width': 64",
    ),
    "epochs": (lambda path: write_state(path, done=4), "has 4 epochs already; --epochs asks for 3"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_is_no_state_is_refused_by_its_name(wrong, tmp_path, capsys):
    """One sentence from rank 0, and it is not overwritten."""
    make, words = WRONG[wrong]
    path = tmp_path / "run.state"
    make(path)
    before = path.is_file() and path.read_bytes()
    with pytest.raises(RankFailed, match="SystemExit: 2") as failed:
        launch(PROGRAM, "--state", str(path), *BATCHES, ranks=3)
    assert "on 2 other ranks" in str(failed.value)
    (line,) = read_output(capsys)
    assert line.startswith(f"[rank 0] {path}") and words in line
    assert os.listdir(tmp_path) == ["run.state"]  # no stranger's code has run
    assert not before or path.read_bytes() == before


def test_a_folder_that_is_not_there_is_found_out_at_the_beginning(tmp_path, capsys):
    with pytest.raises(RankFailed, match="SystemExit: 2"):
        launch(PROGRAM, "--state", str(tmp_path / "none" / "run.state"))
    (line,) = read_output(capsys)
    assert "none is not a folder where this job may write" in line


def test_a_state_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    """The disk is full in the middle of it: the older one is still there."""
    state = tmp_path / "run.state"
    stop(state, 1)
    before = state.read_bytes()

    def full(descriptor):
        os.ftruncate(descriptor, 1000)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    Path(f"{state}.stop").touch()
    with pytest.raises(OSError, match="No space left"):
        many_machines.train(state=str(state), **SHORT)
    dist.destroy_process_group()
    assert state.read_bytes() == before


# Under torchrun


@pytest.mark.push("torchrun again")
def test_torchrun_ends_with_0_after_a_stop(tmp_path):
    """For a job script, a training that will continue is not a failure."""
    state = tmp_path / "run.state"
    Path(f"{state}.stop").touch()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, PROGRAM, "--state", state, "--results", tmp_path / "results.csv"],
        capture_output=True,
        text=True,
        timeout=200,
        env={name: value for name, value in os.environ.items() if "RANK" not in name}
        | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    *places, last = done.stdout.splitlines()
    assert [place.split(":")[0] for place in places] == ["rank 0", "rank 1"]
    assert last.startswith("Stopped after epoch 1.")
    assert os.listdir(tmp_path) == ["run.state"]  # no row: the run that resumes writes one


# The roll call


def test_the_roll_call_has_every_rank_in_order(capsys):
    places = launch(where, ranks=3)
    assert places[0] == places[1] == places[2]
    assert [(p.rank, p.local_rank, p.device) for p in places[0]] == [
        (rank, rank, "cpu") for rank in range(3)
    ]
    lines = [line for line in capsys.readouterr().out.splitlines() if "torchrun" not in line]
    assert lines == [f"[rank 0] {place}" for place in places[0]]


def where() -> list[many_machines.Place]:
    """A worker: what every rank is told of all places."""
    device = distributed_data_parallel.setup()
    places = many_machines.rank_placement(device)
    distributed_data_parallel.cleanup()
    return places
