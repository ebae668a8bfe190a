"""`ddp-workbook new`: a program of one's own that passes its own tests, and its stages."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.utils.data import DistributedSampler
from typer.testing import CliRunner

from ddp_workbook import RankFailed, launch
from ddp_workbook.chapters import distributed_data_parallel
from ddp_workbook.cli import app
from ddp_workbook.judging.directives import parse_request
from ddp_workbook.page.code_diff import what_changed
from ddp_workbook.program import train, train_02, train_04, train_06, train_07
from ddp_workbook.program.new import CLUSTERS, STRATEGIES, NewProjectError, files, write
from tests.clusters.slurm import Slurm
from tests.leaks import wait_until

EPOCHS = 40  # long enough for a signal to come before the end
LONGEST = 125  # lines of train.py that are not empty
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # more of them wait for each other on a busy machine


def run(folder, *words: str) -> subprocess.CompletedProcess:
    """In the folder, without this checkout on the path."""
    without = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=without | ONE_THREAD,
        capture_output=True,
        text=True,
        timeout=540,
    )


def weights(saved: Path) -> dict[str, torch.Tensor]:
    """Those of a file, or of a folder's newest save: a file, or a folder of shards."""
    if saved.is_dir():
        newest = max(saved.glob("step_*"))
        if newest.is_dir():
            dcp_to_torch_save(newest, saved / "whole.pt")
            newest = saved / "whole.pt"
        saved = newest
    state = torch.load(saved, weights_only=True)
    return state.get("model", state)


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-4, rtol=1e-4, msg=name)


FEWER = [pytest.param(ranks, marks=pytest.mark.release("on fewer ranks")) for ranks in (1, 2)]


@pytest.fixture(scope="module", params=STRATEGIES)
def project(request, tmp_path_factory):
    """The folder of a new project."""
    folder = tmp_path_factory.mktemp("own") / request.param
    write(folder, request.param)
    return folder


# What it grows from


def stops_after_an_epoch(saved: str) -> None:
    """Page 07's program, in a job that ends too early."""

    def stop(sampler: DistributedSampler, epoch: int) -> None:
        if epoch == 1:
            raise TimeoutError("stopped")
        sampler.epoch = epoch

    DistributedSampler.set_epoch = stop  # in a rank, which ends with it
    train_07.main(saved)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The weights of page 02's program, in one process."""
    saved = tmp_path_factory.mktemp("first") / "saved"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")  # a GPU rounds in another way
        launch(train_02.main, str(saved), ranks=1)
    return weights(saved)


@pytest.mark.push("the program to take home")
@pytest.mark.parametrize("ranks", [*FEWER, 4])
@pytest.mark.parametrize("stage", [train_04, train_06, train_07], ids=["04", "06", "07"])
def test_each_stage_trains_as_the_first_one_does_alone(stage, ranks, first, tmp_path):
    launch(stage.main, str(tmp_path / "saved"), ranks=ranks)
    assert_same(weights(tmp_path / "saved"), first)


@pytest.mark.push("the program to take home")
def test_the_first_one_trains_with_a_larger_batch_on_more_ranks(first, tmp_path):
    launch(train_02.main, str(tmp_path / "saved"), ranks=2)
    with pytest.raises(AssertionError):
        assert_same(weights(tmp_path / "saved"), first)


def test_the_steps_from_stage_to_stage_are_small():
    pairs = (train_02, train_04), (train_04, train_06), (train_04, train_07)
    steps = [what_changed(old.main, new.main).changed_lines for old, new in pairs]
    assert max(steps) <= 12


@pytest.mark.long
def test_a_later_job_continues_on_another_number_of_ranks(first, tmp_path):
    """One epoch on two ranks, the rest on four."""
    saved = tmp_path / "saved"
    with pytest.raises(RankFailed, match="stopped"):
        launch(stops_after_an_epoch, str(saved), ranks=2)
    assert torch.load(saved, weights_only=True)["epochs"] == 1
    launch(train_07.main, str(saved), ranks=4)
    assert_same(weights(saved), first)


# Who joins


@pytest.mark.parametrize("way", [train.join, distributed_data_parallel.setup])
@pytest.mark.parametrize(
    ("gpus", "backend", "device"), [(0, "gloo", "cpu"), (1, "gloo", "cpu"), (2, "nccl", "cuda:1")]
)
def test_two_ranks_take_gpus_only_if_there_are_two(way, gpus, backend, device, monkeypatch):
    calls = []
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda gpu: calls.append(str(gpu)))
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(
        torch.distributed,
        "init_process_group",
        lambda backend, device_id: calls.append((backend, str(device_id))),
    )
    assert str(way()) == device
    named = [device, (backend, device)] if device != "cpu" else [(backend, "None")]
    assert calls == named


# The project


@pytest.mark.push("the program to take home")
def test_its_own_tests_pass(project):
    """The same weights on 1, 2 and 4 ranks, and after it was killed or told to stop."""
    result = run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert result.returncode == 0, result.stdout
    assert "5 passed" in result.stdout


@pytest.mark.push("the program to take home")
def test_it_learns_in_bfloat16_and_needs_nothing_of_the_workbook(project):
    result = run(project, "train.py", "--bf16", "--saved", "runs/bf16", "--workers", "1")
    assert result.returncode == 0, result.stderr
    first, *_, last = [float(line.split()[3].rstrip(",")) for line in result.stdout.splitlines()]
    assert last < first / 2
    assert "ddp_workbook" not in "".join(path.read_text() for path in project.glob("*.*"))


@pytest.mark.push("the program to take home")
def test_sharded_it_trains_to_the_same_weights(tmp_path):
    """Saving must not change the training: torch's `get_state_dict` can take a step itself."""
    found = {}
    for strategy in STRATEGIES:
        write(tmp_path / strategy, strategy)
        saved = tmp_path / strategy / "saved"
        launch(tmp_path / strategy / "train.py", "--epochs", "2", "--saved", saved, ranks=2)
        found[strategy] = weights(saved)
    assert_same(found["fsdp"], found["ddp"])


@pytest.mark.push("the program to take home")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_is_short_and_clean(strategy, tmp_path):
    write(tmp_path / "own", strategy)
    lines = (tmp_path / "own" / "train.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= LONGEST
    wide = ["--line-length", "100", "."]
    for check in (
        ["ruff", "check", *wide],
        ["ruff", "format", "--check", *wide],
        ["mypy", "train.py", "task.py"],
    ):
        result = run(tmp_path / "own", "-m", *check)
        assert result.returncode == 0, result.stdout


@pytest.mark.push("the program to take home")
def test_a_program_that_trains_on_the_same_rows_fails_its_tests(tmp_path):
    write(tmp_path / "own")
    train = tmp_path / "own" / "train.py"
    wrong = train.read_text().replace("DistributedSampler(data,", "DistributedSampler(data, 1, 0,")
    assert wrong != train.read_text()
    train.write_text(wrong)
    result = run(tmp_path / "own", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
    assert (
        result.returncode == 1 and "test_more_ranks_end_with_the_same_weights[2]" in result.stdout
    )


# Bad input of its own


def refusal_of(project: Path, *options: str, ranks: int = 1) -> str:
    """What it says when it fails."""
    with pytest.raises(RankFailed) as failed:
        launch(project / "train.py", *options, ranks=ranks)
    return str(failed.value)


@pytest.mark.long
def test_numbers_that_do_not_fit(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it saves here
    odd = refusal_of(project, "--batch", "62", ranks=4)
    assert "--batch 62 does not divide by 4 ranks x --accumulate" in odd
    assert "4096 samples are too few" in refusal_of(project, "--batch", "8192")


@pytest.mark.push("the program to take home")
def test_a_checkpoint_of_another_model_is_named(project, tmp_path):
    saved = tmp_path / "saved"
    launch(project / "train.py", "--epochs", "1", "--saved", saved, ranks=2)
    task = project / "task.py"
    own = task.read_text()
    task.write_text(own.replace("width: int = 64", "width: int = 32"))
    try:
        output = refusal_of(project, "--saved", str(saved))
    finally:
        task.write_text(own)
    assert "is of another model or optimizer" in output and "size mismatch" in output.lower()


@pytest.mark.push("the program to take home")
def test_sharded_a_model_without_blocks_is_refused(tmp_path, monkeypatch):
    """It would be one unit, which is gathered whole."""
    monkeypatch.chdir(tmp_path)  # it saves here
    write(tmp_path / "own", "fsdp")
    task = tmp_path / "own" / "task.py"
    task.write_text(task.read_text().replace("Block(width), Block(width)", "nn.GELU()"))
    assert "no layer of class Block" in refusal_of(tmp_path / "own", ranks=2)


@pytest.mark.push("the program to take home")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_ranks_follow_rank_0_where_not_all_see_the_checkpoint(strategy, tmp_path):
    """Rank 1's node sees none: it does not begin again by itself, while rank 0 continues."""
    write(tmp_path / "own", strategy)
    train, saved = tmp_path / "own" / "train.py", tmp_path / "saved"
    launch(train, "--epochs", "1", "--saved", saved, ranks=2)
    elsewhere = f"Path({str(tmp_path / 'elsewhere')!r}) if dist.get_rank() else args.saved"
    own = train.read_text()
    train.write_text(own.replace("Checkpointer(args.saved,", f"Checkpointer({elsewhere},"))
    assert train.read_text() != own
    launch(train, "--epochs", "2", "--saved", saved, ranks=2)  # rank 0 names the save
    assert [path.name[:11] for path in sorted(saved.glob("step_*"))] == [
        "step_000064",
        "step_000128",
    ]


@pytest.mark.push("the program to take home")
def test_a_checkpoint_that_cannot_be_written_fails_before_training(project, tmp_path):
    (tmp_path / "file").write_text("mine")
    output = refusal_of(project, "--saved", str(tmp_path / "file" / "below" / "saved"))
    assert "Not a directory" in output or "File exists" in output


# Its job scripts


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.skipif(not shutil.which("shellcheck"), reason="needs shellcheck")
def test_its_job_script_is_sound(cluster, tmp_path):
    texts = files("ddp", cluster)
    (tmp_path / "job").write_text(texts[f"job.{cluster}"])
    result = subprocess.run(["shellcheck", "job"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    assert f"job.{cluster}" in texts["README.md"] and "@" not in texts["README.md"]
    asked = parse_request(cluster, texts[f"job.{cluster}"])
    assert (asked.nodes, asked.gpus, asked.seconds, asked.unread_lines) == (1, 4, 3600, [])


def for_the_lab(job: Path, nodes: int, ranks: int, epochs: int) -> None:
    """Edit a job script as a reader would: this many nodes, ranks on each, and Python's folder."""
    python = f"export PATH={Path(sys.executable).parent}:/usr/bin:/bin"
    edits = {
        r"--nodes=\d": f"--nodes={nodes}",
        r"--gpus-per-node=\d": f"--gpus-per-node={ranks}",
        r"--cpus-per-task=\d+": f"--cpus-per-task={ranks}",
        r'"\$@"|--epochs \d': f"--epochs {epochs}",
        r"(?m)^# change me: what .*|^export PATH.*": python,
        r"select=\d:ncpus=\d+:ngpus=\d": f"select={nodes}:ncpus={ranks}:ngpus={ranks}",
        r"RANKS:-\d": f"RANKS:-{ranks}",
        r"threads=\d": "threads=1",
        r'setup=".*"': f'setup="{python}"',
    }
    text = job.read_text()
    for old, new in edits.items():
        text = re.sub(old, new, text)
    job.write_text(text)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("strategy", "cluster"),
    [
        ("ddp", "slurm"),
        ("fsdp", "pbs"),
        pytest.param("ddp", "pbs", marks=pytest.mark.release("jobs of one's own program")),
        pytest.param("fsdp", "slurm", marks=pytest.mark.release("jobs of one's own program")),
    ],
)
def test_a_job_on_two_nodes_is_continued_on_one(strategy, cluster, tmp_path):
    write(tmp_path / "own", strategy, cluster)
    script = f"job.{cluster}"
    with Slurm(nodes=2) as slurm:
        for nodes, ranks, epochs in ((2, 1, 1), (1, 2, 2)):
            for_the_lab(tmp_path / "own" / script, nodes, ranks, epochs)
            job = slurm.submit(script, tmp_path / "own")
            assert slurm.wait(job, timeout=240) == "COMPLETED", slurm.output(job)
            assert f"epoch {epochs - 1}: loss" in slurm.output(job)
        assert "64 of 128 steps are done" in slurm.output(job)


def trains(output: str, resumed: int) -> bool:
    """Whether a job that has resumed so many times has done an epoch since."""
    runs = output.split("steps are done")
    return len(runs) == resumed + 1 and "epoch " in runs[-1]


@pytest.mark.cluster
@pytest.mark.parametrize(
    "strategy", ["ddp", pytest.param("fsdp", marks=pytest.mark.release("sharded, too"))]
)
def test_a_job_that_is_told_to_stop_saves_and_queues_again(strategy, tmp_path):
    """As Slurm tells it before its time is over; on two nodes, in the middle of an epoch."""
    own = tmp_path / "own"
    write(own, strategy)
    with Slurm(nodes=2) as slurm:
        for_the_lab(own / "job.slurm", 2, 1, EPOCHS)
        job = slurm.submit("job.slurm", own)
        for run in range(2):  # its first two are told
            assert wait_until(lambda run=run: trains(slurm.output(job), run), 120)
            slurm.run(["scancel", "--batch", "--signal=USR1", job], check=True)
            assert wait_until(lambda run=run: slurm.job(job)["Restarts"] == str(run + 1), 120)
        assert slurm.wait(job, timeout=240) == "COMPLETED", slurm.output(job)
        output = slurm.output(job)
    saved = re.findall(r"told to stop: saved after (\d+) steps", output)
    assert len(saved) == 2
    assert all(f"saved: {steps} of {EPOCHS * 64} steps are done" in output for steps in saved)
    alone = "--epochs", str(EPOCHS), "--saved", tmp_path / "other"
    launch(own / "train.py", *alone, ranks=2, timeout=500)
    assert_same(weights(own / "saved"), weights(tmp_path / "other"))


@pytest.mark.cluster
@pytest.mark.release("jobs of one's own program")
def test_a_pbs_job_that_is_told_to_stop_saves_and_submits_another(tmp_path):
    """As its own clock tells it; on two nodes, of which one hears it."""
    own = tmp_path / "own"
    write(own, cluster="pbs")
    with Slurm(nodes=2) as slurm:
        for_the_lab(own / "job.pbs", 2, 1, EPOCHS)
        job = slurm.submit("job.pbs", own)
        assert wait_until(lambda: "epoch 0" in slurm.output(job), 120), slurm.output(job)
        slurm.run(["scancel", "--batch", "--signal=USR1", job], check=True)
        assert slurm.wait(job, timeout=240) == "COMPLETED", slurm.output(job)
        saved = re.search(r"told to stop: saved after (\d+) steps", slurm.output(job))
        following = str(int(job) + 1)
        assert slurm.wait(following, timeout=240) == "COMPLETED", slurm.output(following)
        output = slurm.output(following)
        assert saved and f"saved: {saved[1]} of {EPOCHS * 64} steps are done" in output
        assert wait_until(lambda: slurm.processes() == [])
    assert not list(own.glob("torchrun-*"))


# The command


def test_the_command_says_what_to_type_and_overwrites_nothing(tmp_path):
    result = CliRunner().invoke(app, ["new", str(tmp_path / "own"), "--cluster", "pbs"])
    assert result.exit_code == 0 and "python train.py" in result.output
    assert {path.name for path in (tmp_path / "own").iterdir()} == set(files("ddp", "pbs"))
    again = CliRunner().invoke(app, ["new", str(tmp_path / "own")])
    assert again.exit_code == 2 and "is there already" in again.output
    for wrong in (["--strategy", "zero"], ["--cluster", "lsf"], ["--stategy", "fsdp"]):
        unknown = CliRunner().invoke(app, ["new", str(tmp_path / "other"), *wrong])
        assert unknown.exit_code == 2 and wrong[0] in unknown.output
    assert not (tmp_path / "other").exists()


def test_where_nothing_can_be_written_it_says_so(tmp_path):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/own")):
        with pytest.raises(NewProjectError, match="Give "):
            write(folder)
    assert (tmp_path / "file").read_text() == "mine"
