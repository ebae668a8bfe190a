"""What cannot work is refused in plain words before a process is started."""

import functools
import math
import threading

import numpy
import pytest
import torch

from manyranks.errors import LaunchRefused
from manyranks.launcher import fork_server, preconditions, serialization
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import launch, run_ranks
from tests.workers import contract


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch):
    def start(process):
        raise AssertionError("a process was started")

    monkeypatch.setattr(fork_server, "start", start)


@pytest.mark.parametrize("ranks", [0, -1, 2.5, True, "4", None, [2], torch.tensor(2), math.nan])
def test_ranks_that_are_no_number_of_ranks(ranks):
    with pytest.raises(LaunchRefused, match="must be a whole number, 1 or more") as caught:
        launch(contract.rank, ranks=ranks)
    assert str(caught.value).startswith(f"ranks={ranks!r}")


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf, "x", None, True])
def test_a_timeout_that_is_no_time(timeout):
    with pytest.raises(LaunchRefused, match="must be a number of seconds above 0"):
        launch(contract.rank, timeout=timeout)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_threads_that_are_no_number_of_threads(threads):
    with pytest.raises(LaunchRefused, match="whole number of threads"):
        run_ranks(Call(contract.rank), 2, threads=threads)


def test_more_ranks_than_memory_holds():
    with pytest.raises(LaunchRefused, match=r"ranks=1000000: .* GiB, but .* ranks fit"):
        launch(contract.rank, ranks=10**6)


def test_the_number_that_fits_is_right(monkeypatch):
    monkeypatch.setattr(
        preconditions, "free_memory", lambda: 5 * preconditions.RANK_MEMORY_BYTES + 1
    )
    preconditions.check_memory(5)
    with pytest.raises(LaunchRefused, match="At most 5 ranks fit"):
        preconditions.check_memory(6)


def test_more_ranks_than_open_files(monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    monkeypatch.setattr(preconditions.os, "listdir", lambda _: [f"{n}" for n in range(20)])
    preconditions.check_descriptors(24)
    with pytest.raises(LaunchRefused, match=r"open files .*\(256\).*`ulimit -n` raises"):
        preconditions.check_descriptors(25)
    monkeypatch.setattr(preconditions.os, "listdir", lambda _: [f"{n}" for n in range(120)])
    preconditions.check_descriptors(15)
    with pytest.raises(LaunchRefused, match="At most 15 ranks fit"):
        preconditions.check_descriptors(16)


def test_a_folder_that_is_gone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(LaunchRefused, match="current folder no longer exists"):
        launch(contract.rank)


@pytest.mark.parametrize("worker", [None, 3, [contract.rank]])
def test_a_worker_that_cannot_be_called(worker):
    with pytest.raises(LaunchRefused, match="The worker must be a function, or the path"):
        launch(worker)


def test_functions_without_a_home():
    def inner():
        pass

    with pytest.raises(LaunchRefused, match="A lambda has no name"):
        launch(lambda: 1)
    with pytest.raises(LaunchRefused, match=r"`inner` was defined inside a function \(test_func"):
        launch(inner)
    with pytest.raises(LaunchRefused, match="A lambda has no name"):
        launch(functools.partial(contract.echo, key=lambda: 1))


def test_the_argument_that_cannot_travel_is_named():
    class Inner:
        pass

    with pytest.raises(LaunchRefused, match=r"Argument 2 cannot be sent .*_thread.lock"):
        launch(contract.echo, 1, threading.Lock())
    with pytest.raises(LaunchRefused, match=r"Argument `model` cannot be sent .* generator"):
        launch(contract.echo, 1, model=(n for n in range(3)))
    with pytest.raises(LaunchRefused, match=r"Argument 1 cannot be sent .*class `Inner`"):
        launch(contract.echo, Inner())
    with pytest.raises(LaunchRefused, match="nested too deeply"):
        deep = []
        for _ in range(100_000):
            deep = [deep]
        launch(contract.echo, deep)


def test_a_message_never_shows_all_of_a_large_object():
    with pytest.raises(LaunchRefused) as caught:
        launch(contract.echo, [threading.Lock(), *range(10**6)])
    assert len(str(caught.value)) < 400


class Shy:
    def __repr__(self):
        raise RuntimeError("no")

    def __reduce__(self):
        raise TypeError("not to be packed")


def test_an_object_that_cannot_be_shown_is_named_by_its_type():
    with pytest.raises(LaunchRefused, match=r"\(type Shy\) cannot be pickled \(not to be packed\)"):
        launch(contract.echo, Shy())


def test_whole_numbers_of_other_libraries_are_welcome(monkeypatch):
    preconditions.check(numpy.int64(2), numpy.float32(1.5))


def test_a_tensor_of_another_device_travels_as_a_copy_on_the_cpu(monkeypatch):
    """The rule, without a GPU: what `needs_cpu_copy` says yes to arrives as a CPU tensor."""
    model, loss = torch.nn.Linear(2, 2), torch.tensor(1.5)
    far_away = {tensor.data_ptr() for tensor in (*model.parameters(), loss)}
    monkeypatch.setattr(serialization, "needs_cpu_copy", lambda t: t.data_ptr() in far_away)
    copies = []
    light = serialization.compact_cpu_copy
    monkeypatch.setattr(serialization, "compact_cpu_copy", lambda t: copies.append(t) or light(t))
    back = serialization.unpack(serialization.pack({"model": model, "loss": loss}))
    assert back["loss"].item() == 1.5 and len(copies) == 3
    assert torch.equal(back["model"].weight, model.weight)
    assert isinstance(back["model"].weight, torch.nn.Parameter)


@pytest.mark.gpu1
def test_a_tensor_on_a_gpu_comes_back_on_the_cpu():
    tensor = torch.ones(3, device="cuda")
    back = serialization.unpack(serialization.pack(tensor))
    assert back.device.type == "cpu" and torch.equal(back, tensor.cpu())


def test_a_tensor_without_data_is_left_as_it_is():
    meta = serialization.unpack(serialization.pack(torch.ones(2, device="meta")))
    sparse = serialization.unpack(serialization.pack(torch.eye(2).to_sparse()))
    assert meta.device.type == "meta" and sparse.is_sparse
