"""`ddp-workbook new`: a program of one's own, which passes its own tests."""

import os
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ddp_workbook.cli import app
from ddp_workbook.program.new import CLUSTERS, STRATEGIES, NewRefused, files, write

LONGEST = 120  # lines of train.py that are not empty


def run(folder, *words: str) -> subprocess.CompletedProcess:
    """In the folder, without this checkout on the path."""
    without = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=without,
        capture_output=True,
        text=True,
        timeout=540,
    )


@pytest.fixture(scope="module", params=STRATEGIES)
def project(request, tmp_path_factory):
    """The folder of a new project."""
    folder = tmp_path_factory.mktemp("own") / request.param
    write(folder, request.param)
    return folder


def test_its_own_tests_pass(project):
    """The same weights on 1, 2 and 4 ranks, and after a kill."""
    done = run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_it_learns_in_bfloat16_and_needs_nothing_of_the_workbook(project):
    done = run(project, "train.py", "--bf16", "--checkpoint", "bf16")
    assert done.returncode == 0, done.stderr
    first, *_, last = [float(line.split()[3].rstrip(",")) for line in done.stdout.splitlines()]
    assert last < first / 2
    assert "ddp_workbook" not in "".join(path.read_text() for path in project.glob("*.*y"))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_is_short_and_clean(strategy, tmp_path):
    (tmp_path / "train.py").write_text(files(strategy, "slurm")["train.py"])
    lines = (tmp_path / "train.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= LONGEST
    wide = ["--line-length", "100"]
    for check in (["ruff", "check", *wide], ["ruff", "format", "--check", *wide], ["mypy"]):
        done = run(tmp_path, "-m", *check, "train.py")
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.skipif(not shutil.which("shellcheck"), reason="needs shellcheck")
def test_its_job_script_is_sound(cluster, tmp_path):
    texts = files("ddp", cluster)
    (tmp_path / "job").write_text(texts[f"job.{cluster}"])
    done = subprocess.run(["shellcheck", "job"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert f"job.{cluster}" in texts["README.md"] and "@" not in texts["README.md"]


def test_a_program_that_trains_on_the_same_rows_fails_its_tests(tmp_path):
    write(tmp_path / "own")
    train = tmp_path / "own" / "train.py"
    wrong = train.read_text().replace("DistributedSampler(data,", "DistributedSampler(data, 1, 0,")
    assert wrong != train.read_text()
    train.write_text(wrong)
    done = run(tmp_path / "own", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
    assert done.returncode == 1 and "test_more_ranks_train_to_the_same_weights[2]" in done.stdout


def test_the_command_says_what_to_type_and_overwrites_nothing(tmp_path):
    done = CliRunner().invoke(app, ["new", str(tmp_path / "own"), "--cluster", "pbs"])
    assert done.exit_code == 0 and "python train.py" in done.output
    assert {path.name for path in (tmp_path / "own").iterdir()} == set(files("ddp", "pbs"))
    again = CliRunner().invoke(app, ["new", str(tmp_path / "own")])
    assert again.exit_code == 2 and "is there already" in again.output
    unknown = CliRunner().invoke(app, ["new", str(tmp_path / "other"), "--strategy", "zero"])
    assert unknown.exit_code == 2 and "take ddp or fsdp" in unknown.output
    assert not (tmp_path / "other").exists()


def test_where_nothing_can_be_written_it_says_so(tmp_path):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NewRefused, match="Give "):
            write(folder)
    assert (tmp_path / "file").read_text() == "mine"
