"""Real kernels: what interrupts, restarts and deaths leave behind, and what pages show."""

import os
import signal
import time

import psutil
import pytest

from tests.cells import Kernel
from tests.leaks import alive, wait_until

pytestmark = pytest.mark.memory  # a kernel and its ranks

START = "from manyranks.launcher.launch import launch\nfrom tests.workers import in_kernels\n"
DEADLOCK = "launch(in_kernels.deadlock, {folder!r}, ranks={ranks}, timeout=100)"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One kernel for all tests that leave it as it was: a new one takes five seconds."""
    kernel = Kernel(tmp_path_factory.mktemp("shared"))
    kernel.run(START)
    yield kernel
    kernel.close()


CELL_FUNCTION = """
class Digit:
    pass

def train(rank):
    pass

from manyranks.launcher import fork_server
for worker, args in ((train, ()), (in_kernels.deadlock, (Digit(),)), (lambda: 1, ())):
    try:
        launch(worker, *args, ranks=2)
    except ValueError as error:
        print(error)
print("server:", fork_server.server_pid())
"""


def test_what_a_cell_defines_is_refused_in_these_words(shared):
    """Before there is a fork server: this is the shared kernel's first test."""
    of_train, advice, of_digit, _, of_lambda, server = (
        shared.run(CELL_FUNCTION).strip().splitlines()
    )
    assert of_train.startswith("The function `train` was defined in a notebook cell. A rank is")
    assert "(`%%writefile my_worker.py`, then `from my_worker import train`)" in advice
    assert of_digit.startswith("Argument 1 cannot be sent to the ranks. The class `Digit` was")
    assert of_lambda.startswith("A lambda has no name that another process could import. Write it")
    assert server == "server: None"


def start_deadlock(kernel: Kernel, ranks: int = 2) -> tuple[str, list[int], list[int]]:
    """Start ranks that wait forever: their request, their pids, all processes of the kernel."""
    kernel.run(START)
    files = [kernel.folder / f"pid{rank}" for rank in range(ranks)]
    sessions = [kernel.folder / f"session{rank}" for rank in range(ranks)]
    for file in files + sessions:
        file.unlink(missing_ok=True)  # of an earlier test
    request = kernel.send(DEADLOCK.format(folder=str(kernel.folder), ranks=ranks))
    assert wait_until(lambda: all(f.exists() and f.read_text() for f in files + sessions), 300)
    wait_until_idle([int(file.read_text()) for file in files])  # written before the collective
    pids = [int(file.read_text()) for file in files + sessions]
    return request, pids, sorted({*kernel.below(), *pids})


def wait_until_idle(pids: list[int], seconds: float = 0.3) -> None:
    """Until none of these processes has had, or has queued for, a processor for so long."""

    def looks() -> list[tuple]:
        processes = map(psutil.Process, pids)
        return [(p.status() == psutil.STATUS_SLEEPING, *p.cpu_times()[:2]) for p in processes]

    before, since = looks(), time.monotonic()
    end = since + 60
    while time.monotonic() - since < seconds:
        time.sleep(0.05)
        if (now := looks()) != before or not all(asleep for asleep, *_ in now):
            before, since = now, time.monotonic()
        assert time.monotonic() < end, before


def test_interrupt_ends_the_ranks_says_where_they_stood_and_leaves_a_working_kernel(shared):
    request, ranks, _ = start_deadlock(shared)
    shared.manager.interrupt_kernel()
    page = shared.answer(request, patience=30)  # the ranks alone would take 100 s
    assert wait_until(lambda: not alive(ranks))
    assert page.count("Interrupted.") == 1 and "Traceback" not in page
    assert "rank 0  waits in all_reduce" in page and "in_kernels.py" in page
    assert "rank 1 called barrier" in page
    assert "[3, 3]" in shared.run("print(launch(in_kernels.total, ranks=2, timeout=30))")


def test_two_interrupts_in_a_row_leave_nothing_either(shared):
    request, ranks, _ = start_deadlock(shared)
    for _ in range(3):
        shared.manager.interrupt_kernel()
        time.sleep(0.05)
    shared.answer(request)
    assert wait_until(lambda: not alive(ranks))
    assert "[3, 3]" in shared.run("print(launch(in_kernels.total, ranks=2, timeout=30))")


@pytest.mark.push("pages in a kernel")
def test_interrupt_while_the_fork_server_still_imports_torch(kernel):
    kernel.run("from manyranks.launcher.launch import launch\nfrom tests.workers import in_kernels")
    request = kernel.send("launch(in_kernels.total, ranks=2)")
    assert wait_until(lambda: len(kernel.below()) >= 2)
    time.sleep(0.2)
    kernel.manager.interrupt_kernel()
    page = kernel.answer(request)
    assert "Interrupted." in page and "Traceback" not in page and "forkserver" not in page
    assert "[3, 3]" in kernel.run("print(launch(in_kernels.total, ranks=2, timeout=60))")


@pytest.mark.long
def test_restart_leaves_nothing(kernel):
    _, _, processes = start_deadlock(kernel)
    kernel.manager.restart_kernel(now=True)
    assert wait_until(lambda: not alive(processes)), [psutil.Process(p) for p in alive(processes)]


@pytest.mark.long
def test_death_of_the_kernel_leaves_nothing(kernel):
    """Ranks, their processes in other sessions, the fork server, the resource tracker."""
    _, _, processes = start_deadlock(kernel)
    assert len(processes) >= 6
    os.kill(kernel.pid, signal.SIGKILL)
    assert wait_until(lambda: not alive(processes)), [psutil.Process(p) for p in alive(processes)]


@pytest.mark.push("pages in a kernel")
def test_death_of_the_kernel_ends_a_rank_that_holds_the_gil(kernel):
    kernel.run(START)
    kernel.send(f"launch(in_kernels.c_loop, {str(kernel.folder)!r}, ranks=2, timeout=100)")
    file = kernel.folder / "pid1"
    assert wait_until(lambda: file.exists() and file.read_text(), 60)
    processes = kernel.below()
    os.kill(kernel.pid, signal.SIGKILL)
    assert wait_until(lambda: not alive(processes))


def test_nothing_listens_beyond_loopback(shared):
    """The kernel, the fork server, the ranks: while a launch runs."""
    request, _, processes = start_deadlock(shared, ranks=3)
    found = [one for p in (shared.pid, *processes) for one in psutil.Process(p).net_connections()]
    addresses = [one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN]
    shared.manager.interrupt_kernel()
    shared.answer(request)
    assert len(addresses) >= 4  # the store, and gloo in each rank: it looks in the right place
    assert set(addresses) == {"127.0.0.1"}


def test_an_error_is_a_page_without_frames(shared):
    page = shared.run("launch(in_kernels.fails, ranks=2)")
    assert page.startswith("RankFailed: Rank 1 (of 2) failed: ValueError: no such digit")
    assert page.count("File ") == 1 and "workbench" not in page


@pytest.mark.release("many launches in a row")
def test_two_kernels_launch_at_the_same_time_50_times_each(tmp_path):
    kernels = [Kernel(tmp_path / name) for name in ("a", "b") if not (tmp_path / name).mkdir()]
    try:
        loop = START + (
            "results = [launch(in_kernels.total, ranks=2, timeout=30) for _ in range(50)]\n"
            "print(results == [[3, 3]] * 50)"
        )
        requests = [kernel.send(loop) for kernel in kernels]
        pages = [k.answer(request, 200) for k, request in zip(kernels, requests, strict=True)]
        assert [page.strip().splitlines()[-1] for page in pages] == ["True", "True"]
    finally:
        for kernel in kernels:
            kernel.close()
