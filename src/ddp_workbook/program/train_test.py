"""However many ranks train, the weights are the same; and a killed training can be resumed.

pytest
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

HERE = Path(__file__).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
SHORT = ["--epochs", "3", "--steps", "20", "--batch", "16"]


def command(saved: Path, ranks: int, *options: str) -> dict:
    """The arguments of `subprocess` for a short training on the CPU."""
    start = [sys.executable] if ranks == 1 else [*TORCHRUN, str(ranks)]
    line = [*start, "train.py", *SHORT, "--saved", str(saved), *options]
    settings = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return {"args": line, "cwd": HERE, "env": os.environ | settings, "text": True}


def train(saved: Path, ranks: int, *options: str) -> str:
    """Train to the end; what was printed."""
    run = subprocess.run(**command(saved, ranks, *options), capture_output=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def weights(saved: Path) -> dict[str, torch.Tensor]:
    """The weights of the newest save."""
    newest = max(saved.glob("step_*"))
    if newest.is_dir():  # sharded
        dcp_to_torch_save(newest, saved / "model.pt")
        newest = saved / "model.pt"
    return torch.load(newest, weights_only=True)["model"]


def assert_same(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            actual[name], value, atol=1e-4, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    saved = tmp_path_factory.mktemp("alone") / "saved"
    train(saved, ranks=1)
    return weights(saved)


@pytest.mark.parametrize("ranks", [2, 4])
def test_more_ranks_end_with_the_same_weights(alone, ranks, tmp_path):
    train(tmp_path / "saved", ranks)
    assert_same(weights(tmp_path / "saved"), alone)


def test_accumulation_changes_nothing(alone, tmp_path):
    train(tmp_path / "saved", 2, "--accumulate", "4")
    assert_same(weights(tmp_path / "saved"), alone)


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM])
def test_an_interrupted_training_is_resumed_on_another_number_of_ranks(alone, stop, tmp_path):
    """Killed, or told to stop, on two ranks after its first epoch; resumed on one."""
    start = command(tmp_path / "saved", 2)
    with subprocess.Popen(**start, stdout=subprocess.PIPE, start_new_session=True) as training:
        assert any(line.startswith("epoch 0") for line in training.stdout)
        os.killpg(training.pid, stop)  # torchrun, and its ranks
    assert re.search(r"[2-5]0 of 60 steps are done", train(tmp_path / "saved", 1))
    assert_same(weights(tmp_path / "saved"), alone)
