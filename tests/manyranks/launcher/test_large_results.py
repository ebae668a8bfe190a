"""Results of ranks: sent without copies, told while they are sent, and read."""

import contextlib
import os
import re
import signal
import threading
import time
import tracemalloc
from types import SimpleNamespace

import numpy
import pytest
import torch

from manyranks.diagnostics import advice
from manyranks.errors import LaunchInterrupted, RankFailed, RanksHung
from manyranks.launcher import framing, limits, serialization
from manyranks.launcher.calls import Call
from manyranks.launcher.fork_server import CONTEXT
from manyranks.launcher.launch import run_ranks
from tests.leaks import no_rank_left, wait_until  # noqa: F401
from tests.workers import results

LARGE = 100_000_000  # bytes
MEDIUM = 8_000_000


def run(worker, *args, ranks=1, timeout=60) -> list:
    return run_ranks(Call(worker, args), ranks, timeout, quiet=True)


def failure(worker, *args, ranks=2, timeout=30) -> RankFailed:
    with pytest.raises(RankFailed) as caught:
        run(worker, *args, ranks=ranks, timeout=timeout)
    return caught.value


@pytest.fixture
def slow_reading(monkeypatch):
    """The kernel reads 1,000 bytes at a time, and so never to the end of a large result."""

    def readv(descriptor, gaps):
        time.sleep(0.005)
        return os.readv(descriptor, [gaps[0][:1000]])

    slow = SimpleNamespace(name=os.name, read=os.read, write=os.write, readv=readv)
    monkeypatch.setattr(framing, "os", slow)


# On the way without copies


def unpack_copy(result):
    """What the kernel makes of a result, each part in memory of its own."""
    parts = [numpy.array(part) for part in serialization.pack_result(result)]
    return serialization.unpack(parts[0], parts[1:])


SHAPES = {
    "small": lambda t: t[:4].clone(),
    "large": lambda t: t,
    "matrix": lambda t: t.view(200, 500),
    "transposed": lambda t: t.view(200, 500).T,
    "0-dim": lambda t: t[1].clone(),
    "empty": lambda t: torch.empty(0, 3, dtype=t.dtype),
    "part": lambda t: t[10:20],
    "every other": lambda t: t[::2],
    "expanded": lambda t: t[:1].clone().expand(100, 3),
}
DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.bool,
    torch.uint8, torch.int64, torch.float8_e4m3fn, torch.uint16,
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_comes_back_as_it_was(dtype, shape):
    tensor = SHAPES[shape]((torch.arange(100_000) % 2).to(dtype))
    back = unpack_copy(tensor)
    assert type(back) is torch.Tensor and back.dtype == dtype and back.shape == tensor.shape
    assert back.tolist() == tensor.tolist() and not back.requires_grad
    assert back.untyped_storage().nbytes() <= max(tensor.nbytes, 1)
    if shape in ("large", "matrix", "transposed", "expanded"):
        assert back.stride() == tensor.stride()
    if shape != "expanded":
        back.copy_(torch.ones(()))  # it can be written to
        assert back.tolist() == torch.ones_like(tensor).tolist()


def test_special_tensors_come_back_as_they_were():
    values = torch.arange(40_000.0)
    leaf = values.clone().requires_grad_()
    named = torch.nn.Parameter(values.clone())
    named.note = "of the reader's own"
    conjugate = torch.complex(values, values).conj()
    sparse = torch.eye(300).to_sparse()
    back = unpack_copy([leaf, named, leaf * 2, conjugate, sparse])
    assert back[0].requires_grad and back[0].is_leaf and back[2].requires_grad
    assert type(back[1]) is torch.nn.Parameter and back[1].note == "of the reader's own"
    assert back[3].is_conj() and torch.equal(back[3], conjugate)
    assert torch.equal(back[4].to_dense(), torch.eye(300))


def test_arrays_come_back_as_they_were_and_can_be_written_to():
    fortran = numpy.asfortranarray(numpy.arange(60_000.0).reshape(200, 300))
    arrays = [numpy.arange(100_000), fortran, numpy.arange(100_000)[::3], numpy.arange(3)]
    for before, after in zip(arrays, unpack_copy(arrays), strict=True):
        assert numpy.array_equal(before, after) and before.dtype == after.dtype
        after[:] = 0
    assert unpack_copy(fortran).flags.f_contiguous


def test_a_large_result_shares_its_memory_at_both_ends():
    tensor = torch.ones(MEDIUM, dtype=torch.uint8)
    pickled, memory = serialization.pack_result({"weights": tensor})
    assert numpy.shares_memory(numpy.asarray(memory), tensor.numpy()) and pickled.nbytes < 1000
    arrived = numpy.array(memory)
    back = serialization.unpack(numpy.array(pickled), [arrived])["weights"]
    assert numpy.shares_memory(back.numpy(), arrived) and torch.equal(back, tensor)


def test_the_kernel_holds_a_large_result_once():
    tracemalloc.start()  # it sees bytes and what numpy allocates
    try:
        (tensor,) = run(results.ones, LARGE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tensor.sum() == LARGE and peak < 1.5 * LARGE


def test_nested_results():
    state, measured, (one, same, view) = run(results.nested)[0]
    torch.manual_seed(0)
    expected = torch.nn.Linear(300, 300).state_dict()
    assert list(state) == ["weight", "bias"] and torch.equal(state["weight"], expected["weight"])
    assert type(measured) is results.Measurement and measured.name == "loss"
    assert measured.curve.sum() == sum(range(50_000)) and measured.points[0].trace() == 200
    assert one is same and torch.equal(view.view(-1), one)


def test_large_results_of_four_ranks_at_once():
    for rank, (lists, alone) in enumerate(run(results.many_pieces, ranks=4)):
        assert len(lists) == 20
        for pieces in (lists[0], lists[-1], alone):
            assert all(map(torch.equal, pieces, results.pieces_of(rank)))


def test_messages_in_pieces_of_any_size(monkeypatch):
    """Parts without a byte among them; and as on Windows, where a piece has its own length."""
    messages = [(b"first", [b"abc", b"", b"d" * 100_000]), (b"", []), (b"last", [b""])]
    for system in (os.name, "nt"):
        for at_once in (1, 7, 1000, 1 << 20):
            ours, theirs = CONTEXT.Pipe()
            monkeypatch.setattr(framing, "READ_BYTES", at_once)
            monkeypatch.setattr(framing, "WRITE_BYTES", max(at_once, 1000))
            monkeypatch.setattr(framing, "os", SimpleNamespace(**vars(os) | {"name": system}))
            sender = threading.Thread(target=send_all, args=(theirs, messages))
            sender.start()
            decoder, found = framing.Decoder(), []
            with contextlib.suppress(EOFError):
                while True:
                    found += decoder.read(ours)
            sender.join()
            ours.close()
            told = [(head, [part.tobytes() for part in body]) for head, body in found]
            assert told == messages and decoder.missing == 0


def send_all(pipe, messages):
    for head, body in messages:
        framing.send(pipe, head, [memoryview(part) for part in body])
    pipe.close()


# What the page says while a result is sent


def test_the_page_says_that_a_rank_sends_its_result_and_how_large_it_is(slow_reading):
    error = failure(results.ones, MEDIUM, ranks=1, timeout=2)
    assert isinstance(error, RanksHung)
    assert "  rank 0  is sending its result, 8 MB\n" in str(error)
    assert f"look at   {advice.RETURN_LESS}" in str(error) and advice.NO_LINE not in str(error)


def test_a_rank_that_hangs_while_another_sends_is_told_by_its_line(slow_reading):
    text = str(failure(results.sends_while_another_hangs, MEDIUM, timeout=3))
    assert re.search(r"rank 0 +is sending its result, 8 MB\n", text)
    assert re.search(r"rank 1 +is at +tests/workers/results.py:\d+  time.sleep\(60\)\n", text)
    assert f"look at   {advice.NO_LOOP}" in text and advice.RETURN_LESS not in text


def test_a_rank_that_is_killed_while_it_sends(slow_reading):
    error = failure(results.gets_a_signal_while_sending, MEDIUM, signal.SIGKILL)
    assert error.rank == 0 and str(error).startswith("Rank 0 (of 2) was ended by SIGKILL.")


def test_a_rank_that_is_stopped_while_it_sends_holds_up_no_other(slow_reading):
    error = failure(results.gets_a_signal_while_sending, MEDIUM, signal.SIGSTOP, timeout=4)
    assert re.search(r"rank 0 +is sending its result", str(error))
    assert re.search(r"rank 1 +has returned", str(error))


# Read here


def test_an_interrupt_ends_the_reading_of_a_result():
    """Reading runs code of the reader's, which may never end."""
    threading.Thread(target=interrupt_the_reading, args=(threading.get_ident(),)).start()
    with pytest.raises(LaunchInterrupted) as caught:
        run(results.endless)
    assert "rank 0  has returned" in str(caught.value)


def interrupt_the_reading(thread: int):
    def reads() -> bool:
        return "__setstate__" in {frame.f_code.co_name for frame in results.outwards(thread)}

    assert wait_until(reads)
    os.kill(os.getpid(), signal.SIGINT)


# More than memory holds


def test_a_result_larger_than_memory_is_refused_before_it_is_received(monkeypatch):
    monkeypatch.setattr(limits, "free_memory", lambda: 50_000_000)
    error = failure(results.ones, LARGE, 1)
    assert error.rank == 1 and not isinstance(error, RanksHung)
    first = (
        "Rank 1 (of 2): its result cannot be sent back. "
        "It takes 100 MB, but only 50 MB of memory are free here."
    )
    assert str(error).splitlines()[0] == first
    assert advice.RETURN_LESS in str(error) and "Traceback" not in str(error)


def test_what_other_ranks_have_yet_to_send_is_not_free(monkeypatch, slow_reading):
    """Each result would fit alone."""
    monkeypatch.setattr(limits, "free_memory", lambda: 12_000_000)
    text = str(failure(results.ones, MEDIUM))
    assert re.search(r"It takes 8 MB, but only [345] MB of memory are free here", text)


def test_a_rank_without_memory_to_pickle_its_result():
    error = failure(results.too_much, ranks=1)
    assert str(error).startswith(
        "Rank 0 (of 1): its result cannot be sent back. There is not enough memory to pickle it.\n"
    )
    assert advice.RETURN_LESS in str(error)
