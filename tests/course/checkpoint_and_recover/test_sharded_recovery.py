"""`new --strategy fsdp`: a training that is killed at any moment ends as if it had not been."""

import contextlib
import functools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.utils._pytree import keystr, tree_flatten_with_path

from ddp_workbook import RankFailed, launch
from ddp_workbook.chapters.locking import lock
from ddp_workbook.program.checkpoints_sharded import KEEP
from ddp_workbook.program.new import write
from tests.leaks import no_rank_left, wait_until  # noqa: F401 (one is a fixture)
from tests.workers import killed_sharded

pytestmark = pytest.mark.push("killed trainings")

STEPS = 20
RUN = ["--epochs", f"{STEPS}", "--steps", "1", "--saved"]  # a save after every step
PATIENT = 600  # seconds for a run that takes four where nothing else runs
LONG = 2.0  # seconds from the first load to the last save, on a quiet machine
FEW, MANY = 3, 40  # trainings, each killed several times
FEW_AGENTS, MANY_AGENTS = 1, 10
OFTEN = pytest.mark.release("sharded trainings that are killed")


def some(few: int, many: int) -> list:
    """Seeds, the first few of them for every push."""
    return [*range(few), *(pytest.param(seed, marks=OFTEN) for seed in range(few, many))]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("own") / "project"
    write(folder, "fsdp")
    return str(folder)


@pytest.fixture(scope="module")
def uninterrupted_run(project, tmp_path_factory):
    """The state at the end, by the number of ranks."""

    @functools.cache
    def on(ranks: int) -> dict[str, torch.Tensor]:
        saved = tmp_path_factory.mktemp("uninterrupted") / "saved"
        launch(killed_sharded.train, project, *RUN, str(saved), ranks=ranks, timeout=PATIENT)
        return end_of(saved)

    return on


def end_of(saved: Path) -> dict[str, torch.Tensor]:
    """What the last save has: weights, and the optimizer's state."""
    file = saved.parent / "end.pt"
    dcp_to_torch_save(saved / f"step_{STEPS:06}", file)
    leaves = tree_flatten_with_path(torch.load(file, weights_only=True))[0]
    return {keystr(path): one for path, one in leaves if isinstance(one, torch.Tensor)}


def assert_ended_the_same(saved: Path, expected: dict[str, torch.Tensor]) -> None:
    """Equal in every bit, and only whole saves are left."""
    torch.testing.assert_close(end_of(saved), expected, rtol=0, atol=0)
    assert names(saved) == [f"step_{STEPS - n:06}" for n in reversed(range(KEEP))]


def names(saved: Path) -> list[str]:
    return sorted(path.name for path in saved.iterdir() if path.name != "lock")


@pytest.mark.parametrize("seed", some(FEW, MANY))
def test_killed_at_any_moment_it_ends_the_same(
    seed,
    project,
    uninterrupted_run,
    tmp_path,
    no_rank_left,  # noqa: F811
):
    """Rank and moment by chance, also in the middle of a save; killed until it gets through."""
    chance, saved = random.Random(seed), tmp_path / "saved"
    ranks = chance.choice((2, 4))
    for _ in range(10):
        moment, victim = chance.uniform(0, LONG), chance.randrange(ranks)
        line = (project, *RUN, str(saved))
        try:
            launch(killed_sharded.killed_at, moment, victim, *line, ranks=ranks, timeout=PATIENT)
            break
        except RankFailed as error:
            assert error.rank == victim
    else:
        launch(killed_sharded.train, project, *RUN, str(saved), ranks=ranks, timeout=PATIENT)
    assert_ended_the_same(saved, uninterrupted_run(ranks))


@pytest.mark.parametrize("seed", some(FEW_AGENTS, MANY_AGENTS))
def test_killed_with_its_agent_it_ends_the_same(seed, project, uninterrupted_run, tmp_path):
    """SIGKILL to torchrun at any moment after the first save; its ranks train on, or end."""
    chance, saved = random.Random(seed), tmp_path / "saved"
    ranks = chance.choice((2, 4))
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    line += [str(ranks), f"{project}/train.py", *RUN, str(saved)]
    settings = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(line, env=settings, start_new_session=True, **quiet) as agent:
        assert wait_until(lambda: (saved / "step_000001").exists(), 120)
        time.sleep(chance.uniform(0, LONG))
        of_ranks = psutil.Process(agent.pid).children(recursive=True)
        agent.kill()
    if chance.random() < 0.5:  # as a scheduler does
        for rank in of_ranks:
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.kill()
    assert not psutil.wait_procs(of_ranks, PATIENT)[1]
    subprocess.run(line, env=settings, timeout=PATIENT, check=True, **quiet)
    assert_ended_the_same(saved, uninterrupted_run(ranks))


# Bad saves


@pytest.fixture
def half(project, tmp_path) -> Path:
    """A folder with the saves after steps 9 and 10, of two ranks."""
    shorter = ["--epochs", "10", *RUN[2:]]
    launch(killed_sharded.train, project, *shorter, str(tmp_path / "saved"), ranks=2)
    return tmp_path / "saved"


def truncate(save: Path) -> None:
    shard = save / "__1_0.distcp"
    shard.write_bytes(shard.read_bytes()[:1000])


def flip(save: Path) -> None:
    shard = save / "__0_0.distcp"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)


DAMAGES = {
    "a file that ends early": (truncate, "__1_0.distcp"),
    "one bit": (flip, "__0_0.distcp"),
    "no file of rank 1": (lambda save: (save / "__1_0.distcp").unlink(), "__1_0.distcp"),
    "no .metadata": (lambda save: (save / ".metadata").unlink(), ".metadata"),
    "no check sums": (lambda save: (save / "check_sums.json").unlink(), "check_sums.json"),
    "an empty folder": (lambda save: [file.unlink() for file in save.iterdir()], "No such file"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_save_is_passed_over(damage, half, project, capfd):
    harm, named = DAMAGES[damage]
    harm(half / "step_000010")
    launch(killed_sharded.train, project, *RUN, str(half), ranks=2)
    output = capfd.readouterr().out
    assert f"{half}/step_000010 is damaged" in output and named in output
    assert "9 of 20 steps are done" in output
    assert names(half) == ["damaged_step_000010", "step_000019", "step_000020"]


def test_without_any_whole_save_it_does_not_begin_again(half, project, capfd):
    for save in half.glob("step_*"):
        truncate(save)
    with pytest.raises(RankFailed, match="no save is whole"):
        launch(killed_sharded.train, project, *RUN, str(half), ranks=2)
    assert names(half) == ["step_000009", "step_000010"]


BLOCKS = "Block(width), Block(width), "
OTHER_TASKS = {  # what stands in task.py instead
    "narrower": ("width: int = 64", "width: int = 32"),
    "fewer layers, which dcp.load alone would not notice": (BLOCKS, "Block(width), "),
    "more layers": (BLOCKS, f"Block(width), {BLOCKS}"),
}


@pytest.mark.parametrize("other", OTHER_TASKS)
def test_another_model_is_refused(other, half, project, tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(project, folder)
    task = (folder / "task.py").read_text()
    (folder / "task.py").write_text(task.replace(*OTHER_TASKS[other]))
    assert (folder / "task.py").read_text() != task
    before = names(half)
    with pytest.raises(RankFailed, match="of another model or optimizer: take another folder"):
        launch(killed_sharded.train, str(folder), *RUN, str(half), ranks=2)
    assert names(half) == before


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_save_of_more_or_fewer_ranks_is_loaded(ranks, half, project, tmp_path, capfd):
    same = tmp_path / "on 2" / "saved"
    shutil.copytree(half, same)
    launch(killed_sharded.train, project, *RUN, str(same), ranks=2)
    capfd.readouterr()
    launch(killed_sharded.train, project, *RUN, str(half), ranks=ranks)
    assert "10 of 20 steps are done" in capfd.readouterr().out
    torch.testing.assert_close(end_of(half), end_of(same), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(sys.platform == "win32", reason="no limit for the size of a file")
def test_on_a_full_disk_it_trains_on_and_keeps_what_it_has(tmp_path, project, capfd):
    saved = tmp_path / "saved"
    launch(killed_sharded.with_a_full_disk, 15, project, *RUN, str(saved), ranks=2)
    assert names(saved) == ["step_000013", "step_000014"]
    output = capfd.readouterr().out
    for step in range(15, STEPS + 1):
        assert f"not saved after step {step}: rank 1: " in output and "File too large" in output


@pytest.mark.skipif(sys.platform == "win32", reason="other rights")
def test_a_folder_that_becomes_read_only_keeps_what_it_has(project, capfd):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        saved = Path(folder, "saved")
        launch(killed_sharded.without_rights, 15, project, *RUN, str(saved), ranks=2)
        assert names(saved) == ["step_000013", "step_000014"]
    output = capfd.readouterr().out
    assert f"{saved}: not saved after step {STEPS}: " in output and "Permission denied" in output


def test_a_second_run_in_the_folder_is_refused(project, tmp_path):
    lock_file = lock(tmp_path / "saved")
    with pytest.raises(RankFailed, match=r"is in use by process \d+ on "):
        launch(killed_sharded.without_patience, project, *RUN, str(tmp_path / "saved"), ranks=2)
    lock_file.close()
    launch(killed_sharded.without_patience, project, *RUN, str(tmp_path / "saved"), ranks=2)
