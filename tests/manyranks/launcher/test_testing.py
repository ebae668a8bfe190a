"""`manyranks.testing` in a project outside this tree, under pytest and pytest-xdist."""

import os
import re
import subprocess
import sys

import pytest

from manyranks.testing import equals_one_process
from tests.workers import with_loaders
from tools.set_up import ROOT

TESTS = """
import os
import time

import pytest
import torch
import torch.distributed as dist
from manyranks.errors import RankFailed, RanksHung
from manyranks.testing import equals_one_process, ranks

from my_training import gradient


def total(mine):
    dist.init_process_group("gloo")
    x = torch.tensor(float(mine + dist.get_rank()))
    dist.all_reduce(x)
    return x.item()


def one_fails():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        raise ValueError("of its own")
    dist.barrier()


def sleeps():
    time.sleep(60)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_right(ranks, n):
    assert ranks(n)(total, 10) == [sum(range(10, 10 + n))] * n


def test_raises(ranks):
    with pytest.raises(RankFailed, match="of its own"):
        ranks(2)(one_fails)


def test_of_my_file():
    equals_one_process(gradient)


def test_variables(ranks):
    assert ranks(2, MY_WORD="hello")(os.getenv, "MY_WORD") == ["hello"] * 2


def test_wrong_fails(ranks):
    ranks(2)(one_fails)


def test_wrong_hangs(ranks):
    ranks(2, timeout=1)(sleeps)


def test_wrong_mean():
    equals_one_process(gradient, mean=False)


def test_wrong_number(ranks):
    ranks(0)(total, 1)
"""
TRAINING = '''
import torch
import torch.distributed as dist


def gradient(mean=True):
    """Of a step on rows 0 to 11, shared by the ranks."""
    dist.init_process_group("gloo")
    rows = torch.arange(12.0).reshape(12, 1)[dist.get_rank() :: dist.get_world_size()]
    torch.manual_seed(0)
    layer = torch.nn.Linear(1, 2)
    layer(rows).square().mean().backward()
    for parameter in layer.parameters():
        dist.all_reduce(parameter.grad)
        if mean:
            parameter.grad /= dist.get_world_size()
    return {"rows": 12, "gradients": [parameter.grad for parameter in layer.parameters()]}
'''


@pytest.fixture(
    scope="module",
    params=["", pytest.param("-n2", marks=pytest.mark.push("the fixture under pytest-xdist"))],
    ids=["alone", "xdist"],
)
def outcome(request, tmp_path_factory) -> str:
    """What pytest prints in a project that is not this one."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "my_training.py").write_text(TRAINING)
    (folder / "test_mine.py").write_text(TESTS)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-rA",
        *request.param.split(),
    ]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, env=os.environ, timeout=300, check=False
    )
    assert sorted(path.name for path in folder.glob("*.py")) == ["my_training.py", "test_mine.py"]
    return done.stdout + done.stderr


@pytest.mark.long
def test_what_is_right_passes_and_what_is_wrong_fails(outcome):
    ends = {name: end for end, name in re.findall(r"(PASSED|FAILED) \S*::(test_\w+)", outcome)}
    assert len(ends) == 8, outcome
    assert {name for name, end in ends.items() if end == "FAILED"} == {
        name for name in ends if "wrong" in name
    }


def test_a_failure_is_the_report_without_frames_of_this_package(outcome):
    for words in (
        r"Rank 1 \(of 2\) failed: ValueError: of its own",
        r"2 ranks did not finish within 1 s|The ranks did not finish within 1 s",
        r"rank 0 of 2, against one process: result\['gradients'\]\[0\] differs by up to",
        r"ranks=0|at least 1",
    ):
        assert re.search(words, outcome), words
    package = str(ROOT / "src")
    assert package not in outcome.replace(f"rootdir: {package}", "")


def test_one_process_takes_the_batches_of_the_ranks():
    """With a batch size for each rank, one process alone would train on smaller batches."""
    equals_one_process(with_loaders.train, ranks=(2, 3), same_batches=True)
    with pytest.raises(AssertionError, match="differs by up to"):
        equals_one_process(with_loaders.train, ranks=(2,))
    with pytest.raises(AssertionError, match=r"rank 0 of 2.*\['weight'\] differs by up to"):
        equals_one_process(with_loaders.train, 1.1, ranks=(2,), same_batches=True)
