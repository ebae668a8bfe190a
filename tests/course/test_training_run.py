"""The command line of the chapters' programs, what they say, and the row that they append."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from ddp_workbook import RankFailed, launch
from ddp_workbook.chapters import (
    data_parallel,
    distributed_data_parallel,
    samplers,
    single_process,
    training_run,
)
from ddp_workbook.chapters.digits import Result
from ddp_workbook.chapters.results import COLUMNS, read_results
from manyranks.launcher.rendezvous import free_port

DDP = distributed_data_parallel
SHORT = {"epochs": 2, "batch_size": 600}  # 3 steps an epoch
OPTIONS = ("--epochs", "2", "--batch-size", "600")


def read_output(capsys: pytest.CaptureFixture) -> list[str]:
    """What the ranks of a launch printed, without what launch itself says."""
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("[rank ")]


def program(folder: Path, body: str) -> Path:
    """A program with a `train` of its own."""
    path = folder / "program.py"
    path.write_text(
        "import os, sys, torch\n"
        "from ddp_workbook.chapters.digits import Result\n"
        "from ddp_workbook.chapters.training_run import run\n\n"
        "def train(epochs: int = 2, batch_size: int = 8, width: int = 1, depth: int = 0):\n"
        + "".join(f"    {line}\n" for line in body.splitlines())
        + "\nif __name__ == '__main__':\n    run(train)\n"
    )
    return path


# Options


@pytest.mark.parametrize("chapter", [single_process, data_parallel, DDP])
def test_every_parameter_of_train_is_an_option(chapter, capsys):
    words = ["--epochs", "1", "--batch-size=500", "--width", "8", "--depth", "0"]
    launch(chapter.__file__, *words, ranks=1)
    expected = single_process.train(epochs=1, batch_size=500, width=8, depth=0)
    assert read_output(capsys) == [f"[rank 0] {line}" for line in expected.report(1).splitlines()]


def test_rank_0_alone_explains_the_options(capsys):
    launch(data_parallel.__file__, "--help")
    lines = read_output(capsys)
    assert all(line.startswith("[rank 0] ") for line in lines)
    page = "\n".join(lines)
    for option in ("--epochs N", "--batch-size N", "--replicas N", "--results FILE"):
        assert page.count(f"  {option}") == 1
    assert data_parallel.__doc__.splitlines()[0].split(":")[0] in page


# Bad input: one sentence, from one rank, before the training


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--epochs", "-1"], "argument --epochs: '-1' is not a whole number from 0 on"),
        (["--batch-size", "0"], "argument --batch-size: '0' is not a whole number from 1 on"),
        (["--batch-size", "ten"], "argument --batch-size: 'ten' is not a whole number from 1 on"),
        (["--width", "1.5"], "argument --width: '1.5' is not a whole number from 1 on"),
        (["--depth"], "argument --depth: expected one argument"),
        (["--epoch", "3"], "unrecognized arguments: --epoch 3"),
        (["3"], "unrecognized arguments: 3"),
    ],
)
def test_a_wrong_option_is_one_sentence_from_rank_0(words, sentence, capsys):
    with pytest.raises(RankFailed) as failed:
        launch(samplers.__file__, *words, ranks=3)
    assert read_output(capsys) == [f"[rank 0] samplers.py: {sentence}; --help shows the options."]
    assert "SystemExit: 2" in str(failed.value) and "on 2 other ranks" in str(failed.value)


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("", None, "is a folder; give a file in it."),
        ("none/results.csv", None, "there is no folder"),
        ("results.csv", b"epoch,loss\n1,0.5\n", "another version of the workbook wrote it"),
    ],
)
def test_a_file_of_results_is_refused_before_the_training(file, text, words, tmp_path, capsys):
    path = tmp_path / file
    if text:
        path.write_bytes(text)
    with pytest.raises(RankFailed, match="SystemExit: 2"):
        launch(DDP.__file__, "--results", str(path), ranks=3)
    (line,) = read_output(capsys)
    assert line.startswith(f"[rank 0] {path}") and words in line
    assert text is None or path.read_bytes() == text


def test_a_rank_that_was_given_another_command_line_says_so_itself(tmp_path, capsys):
    """Two hosts, two terminals, one slip of the hand."""
    path = program(tmp_path, "import torch.distributed as dist\ndist.init_process_group('gloo')")
    slip = "sys.argv[1:] = ['--epochs', 'x'] if os.environ['RANK'] == '1' else []"
    path.write_text(path.read_text().replace("    run(train)", f"    {slip}\n    run(train)"))
    with pytest.raises(RankFailed, match=r"Rank 1 \(of 2\) failed: SystemExit: 2"):
        launch(path)
    (line,) = read_output(capsys)
    assert line.startswith("[rank 1] program.py: argument --epochs: 'x'")


# The row


def test_rank_0_appends_what_was_trained_and_where(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    path = tmp_path / "results.csv"
    launch(single_process.__file__, *OPTIONS, "--results", str(path), ranks=1)
    launch(DDP.__file__, *OPTIONS, "--results", str(path), ranks=3)
    table = read_results(path)
    trained = single_process.train(**SHORT)
    assert table["program"].tolist() == ["single_process", "distributed_data_parallel"]
    assert table["ranks"].tolist() == [1, 3]
    for row in table.to_dict("records"):
        assert abs(pd.Timestamp.now("UTC") - row["time"]) < pd.Timedelta("10min")
        assert (row["job"], row["hosts"], row["nodes"], row["device"]) == (
            "17",
            socket.gethostname(),
            1,
            "cpu",
        )
        assert [row[name] for name in ("epochs", "batch_size", "width", "depth")] == [2, 600, 64, 1]
        assert row["steps"] == len(trained.losses) == 6
        assert row["loss"] == pytest.approx(sum(trained.losses[3:]) / 3, abs=1e-5)
        assert row["accuracy"] == pytest.approx(trained.accuracy, abs=2 / 1797)
        assert 0 < row["step_ms"] < 1e3 * row["seconds"]
        assert row["samples_per_second"] == pytest.approx(600e3 / row["step_ms"], rel=1e-4)
        assert row["torch"] == torch.__version__


def test_ranks_that_know_nothing_of_each_other_append_a_row_each(tmp_path, capsys):
    """The program of one process under torchrun: as many trainings as there are ranks."""
    path = tmp_path / "results.csv"
    launch(single_process.__file__, *OPTIONS, "--results", str(path), ranks=3)
    assert read_results(path)["ranks"].tolist() == [1, 1, 1]
    assert len(read_output(capsys)) == 3 * len(single_process.train(**SHORT).report(2).splitlines())


def test_without_a_step_there_is_no_row(tmp_path, capsys):
    path = tmp_path / "results.csv"
    launch(DDP.__file__, "--epochs", "0", "--results", str(path))
    result, reason = read_output(capsys)
    assert result.endswith("of the digits right")
    assert reason == f"[rank 0] There were no steps, so {path} gets no row."
    assert not path.exists()


def test_a_row_that_cannot_be_written_any_more_is_printed(tmp_path, capsys):
    """Another file has been put there meanwhile; the result is neither lost nor hidden."""
    path = tmp_path / "results.csv"
    worker = program(
        tmp_path,
        "weight = torch.nn.Parameter(torch.ones(1))\n"
        "torch.optim.SGD([weight], lr=0.1).step()\n"
        f"open({str(path)!r}, 'w').write('my thesis')\n"
        "return Result([0.5, 0.25], 0.75, {})",
    )
    with pytest.raises(RankFailed, match="SystemExit: 1"):
        launch(worker, "--results", str(path), ranks=1)
    line = read_output(capsys)[-1]
    assert "is not a table of results" in line and ",0.25,0.75,nan,nan," in line
    assert path.read_text() == "my thesis"


@pytest.mark.parametrize(
    ("variables", "job"),
    [({"SLURM_JOB_ID": "12"}, "12"), ({"PBS_JOBID": "12.head"}, "12.head"), ({}, "")],
)
def test_the_row_has_the_schedulers_number(variables, job, monkeypatch):
    for name in ("SLURM_JOB_ID", "PBS_JOBID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    steps = training_run.Steps()
    steps.ends, steps.hosts = [1.0], ["b", "b", "a", "a"]
    row = training_run.row_of("samplers", {**SHORT, "width": 1, "depth": 1}, TRAINED, steps, 2.0)
    assert list(row) == COLUMNS
    assert (row["job"], row["hosts"], row["nodes"], row["ranks"]) == (job, "b a", 2, 4)
    assert (row["loss"], row["step_ms"], row["samples_per_second"]) == ("0.25", "nan", "nan")


TRAINED = Result([1.0, 0.5, 0.3, 0.2], 0.9, {})


# The time of a step


def step(times: list[float], monkeypatch) -> training_run.Steps:
    """What the hook has noted of steps that ended at these times, in seconds."""
    steps = training_run.Steps()
    weight = torch.nn.Parameter(torch.ones(1))
    clock = iter(times)
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    for _ in times:
        steps(torch.optim.SGD([weight]), (), {})
    monkeypatch.undo()
    return steps


@pytest.mark.parametrize(
    ("times", "milliseconds"),
    [
        ([5], None),
        ([5, 7], 2000),
        ([0, 9, 18, 27, 28, 30, 31], 1000),  # the first three do not count
        ([0, 1, 2, 3, 4, 24, 25, 26], 1000),  # a disturbance is no step time
    ],
)
def test_the_time_of_a_step_is_the_median_without_the_first_few(times, milliseconds, monkeypatch):
    assert step(times, monkeypatch).milliseconds() == milliseconds


def test_on_a_gpu_steps_are_timed_by_marks_in_its_queue(monkeypatch):
    """Python only asks for the work there. No GPU needed: a double has the marks."""

    class Mark:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.time = next(clock)

        def elapsed_time(self, later):
            assert waited
            return later.time - self.time

    clock, waited = iter([0, 10, 20, 30, 40, 47, 54]), []
    monkeypatch.setattr(torch.cuda, "Event", Mark)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(True))
    weight = SimpleNamespace(device=torch.device("cuda", 1))
    steps = training_run.Steps()
    for _ in range(7):
        steps(SimpleNamespace(param_groups=[{"params": [weight]}]), (), {})
    assert steps.device == weight.device and steps.milliseconds() == 7


# How a program ends


@pytest.mark.push("torchrun again")
@pytest.mark.parametrize("code", ["", "3"])
def test_a_training_may_end_the_program(code, tmp_path):
    """What it printed is there, and its exit code counts; there is no report and no row."""
    path = program(tmp_path, f"print('saved')\nsys.exit({code})")
    done = subprocess.run(
        [sys.executable, path, "--results", tmp_path / "r.csv"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stdout, done.stderr) == (int(code or 0), "saved\n", "")
    assert not (tmp_path / "r.csv").exists()


# Under torchrun


def torchrun(path: Path, *words: object, agents: int = 2, **environment: str):
    """One torchrun with two ranks, or two of them that play a host with one rank each."""
    hosts = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d"]
    hosts += ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--local-addr", "127.0.0.1"]
    one = ["--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", "torch.distributed.run", *(hosts if agents > 1 else one)]
    own = {name: value for name, value in os.environ.items() if "RANK" not in name}
    started = [
        subprocess.Popen(
            [*command, str(path), *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=own | {"OMP_NUM_THREADS": "1"} | environment,
        )
        for _ in range(agents)
    ]
    try:
        outputs = [agent.communicate(timeout=200) for agent in started]
    finally:
        for agent in started:
            agent.kill()
            agent.wait()
    return [(agent.returncode, *output) for agent, output in zip(started, outputs, strict=True)]


@pytest.mark.push("torchrun again")
def test_two_torchruns_append_one_row(tmp_path):
    """With a store in rank 0, where `train` meets again, and not in torchrun."""
    path = tmp_path / "results.csv"
    words = (*OPTIONS, "--results", path)
    done = torchrun(Path(DDP.__file__), *words, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    assert [code for code, _, _ in done] == [0, 0], done
    printed = [out for _, out, _ in done if out]
    assert printed == [single_process.train(**SHORT).report(2) + "\n"]
    assert read_results(path)["ranks"].tolist() == [2]


@pytest.mark.push("torchrun again")
def test_two_torchruns_refuse_with_one_sentence(tmp_path):
    """The ranks of the other host hear of it, leave quietly, and do not wait."""
    done = torchrun(Path(DDP.__file__), "--results", tmp_path / "none" / "results.csv")
    assert [code for code, _, _ in done] == [1, 1]  # torchrun's own code for ranks that have failed
    text = "\n".join(err for _, _, err in done)
    assert text.count("there is no folder") == 1
    assert text.count("exitcode  : 2") == 2, text  # both ranks
    assert "training_run" not in text  # no traceback of a rank


@pytest.mark.push("torchrun again")
def test_torchruns_report_has_the_error_of_the_rank_that_failed_first(tmp_path):
    worker = program(
        tmp_path,
        "import time\nimport torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "if dist.get_rank() == 1:\n"
        "    raise ZeroDivisionError('too few rows')\n"
        "try:\n"
        "    dist.barrier()\n"
        "finally:\n"
        "    time.sleep(2)",  # torchrun compares times in whole seconds
    )
    ((code, _, err),) = torchrun(worker, agents=1)
    assert code == 1
    root = err.partition("Root Cause")[2]
    assert "rank      : 1" in root and "ZeroDivisionError: too few rows" in root
