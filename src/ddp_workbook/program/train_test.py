"""However many ranks train, the weights are the same; and a training goes on where it ended.

pytest
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

HERE = Path(__file__).parent
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def command(folder: Path, ranks: int, *options: str) -> dict:
    """What `subprocess` takes to train on the CPU."""
    words = ["train.py", "--checkpoint", str(folder / "saved"), *options]
    line = [sys.executable, *words] if ranks == 1 else [*TORCHRUN, str(ranks), *words]
    settings = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return {"args": line, "cwd": HERE, "env": os.environ | settings, "text": True}


def trained(folder: Path, ranks: int, *options: str) -> dict[str, torch.Tensor]:
    """The weights after a training."""
    done = subprocess.run(**command(folder, ranks, *options), capture_output=True)
    assert done.returncode == 0, done.stderr
    return weights(folder / "saved")


def weights(saved: Path) -> dict[str, torch.Tensor]:
    """Of a file of rank 0, or of the newest folder of all ranks."""
    if saved.is_dir():
        dcp_to_torch_save(max(saved.glob("epoch_*")), saved / "whole.pt")
        saved = saved / "whole.pt"
    return torch.load(saved, weights_only=True)["model"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("alone"), 1, "--epochs", "2")


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-4, rtol=1e-4, msg=name)


@pytest.mark.parametrize("ranks", [2, 4])
def test_more_ranks_train_to_the_same_weights(alone, ranks, tmp_path):
    assert_same(trained(tmp_path, ranks, "--epochs", "2"), alone)


def test_accumulation_changes_nothing(alone, tmp_path):
    assert_same(trained(tmp_path, 2, "--epochs", "2", "--accumulate", "4"), alone)


def test_a_killed_training_goes_on_at_another_number_of_ranks(alone, tmp_path):
    """Killed on two ranks after its first epoch, resumed on one."""
    start = command(tmp_path, 2, "--epochs", "2")
    with subprocess.Popen(**start, stdout=subprocess.PIPE, start_new_session=True) as training:
        for line in training.stdout:
            if line.startswith("epoch 0") and wait_for_checkpoint(tmp_path / "saved"):
                break
        os.killpg(training.pid, signal.SIGKILL)
    assert_same(trained(tmp_path, 1, "--epochs", "2"), alone)


def wait_for_checkpoint(saved: Path) -> bool:
    """The line is printed just before the checkpoint is complete."""
    for _ in range(600):
        if saved.is_file() or list(saved.glob("epoch_*/.metadata")):
            return True
        time.sleep(0.05)
    return False
