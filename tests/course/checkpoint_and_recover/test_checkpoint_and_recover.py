"""Chapter 08: a training that is interrupted at any moment ends as if it had not been."""

import os
import random
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from ddp_workbook import RankFailed, launch
from ddp_workbook.chapters import checkpoint_and_recover
from ddp_workbook.chapters.checkpointing import FORMAT, MAX_SAVES, Checkpointer, is_whole
from ddp_workbook.chapters.digits import Result
from ddp_workbook.experiments.checkpoint_and_recover.elastic import TRACED_TRAINING
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tests.workers import killed

RUN = {"epochs": 1, "batch_size": 60, "every": 1}
STEPS = 30
LONG = 0.6  # seconds that such a run takes, from its first step to its end, on a quiet machine
FEW, MANY = 6, 60  # trainings, which are killed some 20 and 200 times
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
OFTEN = pytest.mark.release("trainings that are killed")


@cache
def uninterrupted_run(ranks: int) -> Result:
    return launch(checkpoint_and_recover.train, ranks=ranks, **RUN)[0]


def equal_in_every_bit(one: Result, other: Result) -> bool:
    same = [torch.equal(value, other.weights[name]) for name, value in one.weights.items()]
    return all(same) and one.losses == other.losses


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


@pytest.mark.push("killed trainings")
@pytest.mark.parametrize(
    "seed", [*range(FEW), *(pytest.param(n, marks=OFTEN) for n in range(FEW, MANY))]
)
def test_killed_at_any_moment_it_ends_the_same(seed, tmp_path, no_rank_left):  # noqa: F811
    """Rank and moment by chance, also in the middle of a save; killed until it gets through."""
    chance = random.Random(seed)
    ranks = chance.choice((1, 2, 4))
    for _ in range(10):
        moment, rank = chance.uniform(0, LONG), chance.randrange(ranks)
        try:
            results = launch(killed.killed_at, moment, rank, str(tmp_path), ranks=ranks, **RUN)
            break
        except RankFailed as error:
            assert error.rank == rank
    else:
        results = launch(checkpoint_and_recover.train, ranks=ranks, saved=str(tmp_path), **RUN)
    assert all(equal_in_every_bit(one, uninterrupted_run(ranks)) for one in results)
    assert len(files(tmp_path)) == MAX_SAVES, "no unfinished file is left"


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGUSR1])
def test_told_to_stop_all_ranks_save_after_the_same_step(ranks, sent, tmp_path):
    chance = random.Random(ranks + sent)
    moment, victim = chance.uniform(0, LONG / 2), chance.randrange(ranks)
    of_ranks = launch(killed.killed_at, moment, victim, str(tmp_path), sent, ranks=ranks, **RUN)
    assert len({len(results.losses) for results in of_ranks}) == 1
    saved = max(files(tmp_path))
    assert saved.startswith(f"step_{len(of_ranks[0].losses):06}_")
    results = launch(checkpoint_and_recover.train, ranks=ranks, saved=str(tmp_path), **RUN)
    assert all(equal_in_every_bit(one, uninterrupted_run(ranks)) for one in results)


def test_a_damaged_save_is_passed_over(tmp_path, capfd):
    """One bit, and a file that ends early; nobody begins anew by themselves if all are damaged."""
    start = {"ranks": 2, "saved": str(tmp_path), **RUN}
    launch(checkpoint_and_recover.train, **start)
    newest = tmp_path / max(files(tmp_path))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    capfd.readouterr()
    results = launch(checkpoint_and_recover.train, **start)
    assert f"{newest} is damaged: taking the save before it" in capfd.readouterr().out
    assert equal_in_every_bit(results[1], uninterrupted_run(2))
    for path in tmp_path.glob("step_*"):
        path.write_bytes(path.read_bytes()[:1000])
    before = files(tmp_path)
    with pytest.raises(RankFailed, match=f"{tmp_path}: no save is whole. To begin again, delete"):
        launch(checkpoint_and_recover.train, **start)
    assert files(tmp_path) == before


def test_damaged_saves_do_not_crowd_out_a_good_one(tmp_path):
    """Two newer ones are damaged: the save before them goes only once KEEP newer ones are good."""
    start = {"ranks": 1, "saved": str(tmp_path), **RUN}
    launch(checkpoint_and_recover.train, **start)
    for step in (STEPS + 1, STEPS + 2):
        (tmp_path / f"step_{step:06}_0123456789abcdef.pt").write_bytes(b"torn")
    launch(killed.saves_once, STEPS, str(tmp_path), ranks=1)
    good = [path for path in tmp_path.glob("step_*.pt") if is_whole(path)]
    assert len(good) == MAX_SAVES and len(files(tmp_path)) == MAX_SAVES + 2


def test_the_millionth_step_is_newer_than_the_one_before(tmp_path):
    names = ("step_999999_0.pt", "step_1000000_0.pt", "step_000001_0.pt")
    for name in names:
        (tmp_path / name).touch()
    model = torch.nn.Linear(1, 1)
    saves = Checkpointer(tmp_path, model, torch.optim.SGD(model.parameters())).saves()
    assert [save.name for save in saves] == ["step_1000000_0.pt", *names[::2]]


def test_the_clock_may_jump(tmp_path):
    """Dates that contradict the order of the saves, and one in the future."""
    start = {"ranks": 2, "saved": str(tmp_path), **RUN}
    launch(killed.killed_at, LONG / 3, 1, str(tmp_path), signal.SIGTERM, ranks=2, **RUN)
    for date, path in zip((2**33, 1), sorted(tmp_path.glob("step_*")), strict=True):
        os.utime(path, (date, date))
    assert equal_in_every_bit(
        launch(checkpoint_and_recover.train, **start)[0], uninterrupted_run(2)
    )


def test_a_save_of_a_newer_version_is_refused(tmp_path):
    start = {"ranks": 2, "saved": str(tmp_path), **RUN}
    launch(killed.saves_once, 1, str(tmp_path), ranks=2, version=FORMAT + 1)
    before = files(tmp_path)
    with pytest.raises(RankFailed, match="is from a newer version of this program: resume with"):
        launch(checkpoint_and_recover.train, **start)
    assert files(tmp_path) == before


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_save_of_more_or_fewer_ranks_says_what_it_cannot_restore(ranks, tmp_path, capfd):
    launch(killed.saves_once, 1, str(tmp_path), ranks=2)
    capfd.readouterr()
    launch(checkpoint_and_recover.train, ranks=ranks, saved=str(tmp_path), **RUN)
    output = capfd.readouterr().out
    assert output.count(f"is of 2 ranks, not {ranks}: random numbers start anew") == 1


@pytest.mark.push("killed trainings")
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_second_run_in_a_folder_is_refused_and_names_the_first(ranks, tmp_path):
    first = subprocess.Popen(
        [sys.executable, "-m", "tests.workers.killed", str(tmp_path)],
        stdout=subprocess.PIPE,
    )
    with first:
        assert first.stdout.readline() == b"holds it\n"
        output = f"{tmp_path} is in use by process {first.pid} on .*: end that run, or take another"
        with pytest.raises(RankFailed, match=output):
            launch(killed.without_patience, str(tmp_path), ranks=ranks, **RUN)
        first.kill()  # nobody cleans up, and the next run may start
    launch(killed.without_patience, str(tmp_path), ranks=ranks, **RUN)


@pytest.mark.push("killed trainings")
def test_a_run_waits_for_the_end_of_one_that_is_being_killed(tmp_path, no_rank_left):  # noqa: F811
    first = subprocess.Popen(
        [sys.executable, "-m", "tests.workers.killed", str(tmp_path), "2"],
        stdout=subprocess.PIPE,
    )
    with first:
        assert first.stdout.readline() == b"holds it\n"
        results = launch(checkpoint_and_recover.train, ranks=2, saved=str(tmp_path), **RUN)
    assert equal_in_every_bit(results[0], uninterrupted_run(2))


@pytest.mark.parametrize("why", ["a file", "read-only"])
def test_a_folder_that_cannot_be_written_is_refused_before_training(why, tmp_path):
    """Root may write anywhere but on a disk that is read-only: /proc is like one."""
    saved = {"a file": tmp_path / "file", "read-only": Path("/proc/sys/kernel")}[why]
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RankFailed, match=f"{saved}: .*A training must save: take another folder"):
        launch(checkpoint_and_recover.train, ranks=2, saved=str(saved), **RUN)


def test_a_save_of_another_model_is_refused(tmp_path):
    start = {"ranks": 2, "saved": str(tmp_path), "epochs": 1, "batch_size": 600, "every": 1}
    launch(checkpoint_and_recover.train, **start)
    before = files(tmp_path)
    with pytest.raises(RankFailed, match="is of another model or optimizer: take another folder"):
        launch(checkpoint_and_recover.train, **start, width=32)
    assert files(tmp_path) == before


@pytest.mark.skipif(sys.platform == "win32", reason="no limit for the size of a file")
def test_on_a_full_disk_it_trains_on_and_keeps_what_it_has(tmp_path, capfd):
    results = launch(killed.with_a_full_disk, 25, str(tmp_path), ranks=2, **RUN)
    assert [name[:11] for name in files(tmp_path)] == ["step_000023", "step_000024"]
    output = capfd.readouterr().out
    assert all(f"not saved after step {step}: " in output for step in range(25, STEPS + 1))
    assert equal_in_every_bit(results[0], uninterrupted_run(2))


@pytest.mark.push("torchrun starts again")
@pytest.mark.skipif(sys.platform == "win32", reason="no parents that die")
def test_ranks_whose_torchrun_was_killed_leave_the_folder_to_the_next(tmp_path, no_rank_left):  # noqa: F811
    """SIGKILL to torchrun alone: its ranks would train on, and keep out who resumes."""
    start = [sys.executable, *TORCHRUN, *TRACED_TRAINING, "--pace", "0.3"]
    start += ["--saved", str(tmp_path), "--every", "5"]
    with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as torchrun:
        assert any('"step": 7' in output for output in torchrun.stdout)
        torchrun.kill()
    results = launch(checkpoint_and_recover.train, ranks=2, saved=str(tmp_path))
    expected = launch(checkpoint_and_recover.train, ranks=2)
    assert equal_in_every_bit(results[0], expected[0])


@pytest.mark.push("torchrun starts again")
def test_torchrun_starts_again_and_goes_on(tmp_path):
    """SIGKILL on rank 1: its agent ends the others, and starts all ranks again."""
    line = [*TORCHRUN, "--max-restarts", "3", *TRACED_TRAINING, "--accident", "rank-1-dies", "7"]
    result = subprocess.run(
        [sys.executable, *line, "--saved", str(tmp_path), "--every", "1"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    expected = launch(checkpoint_and_recover.train, ranks=2)[0]
    assert expected.report(checkpoint_and_recover.EPOCHS) in result.stdout
    state = torch.load(tmp_path / max(files(tmp_path)), weights_only=True)
    assert state["losses"] == expected.losses
    assert all(torch.equal(value, expected.weights[n]) for n, value in state["model"].items())
