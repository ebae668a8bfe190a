"""Interrupt, restart and death of a real kernel whose ranks are deadlocked in gloo."""

import contextlib
import os
import queue
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from jupyter_client import BlockingKernelClient, KernelManager

from benchmarks.traces import alive, wait_until

ROOT = Path(__file__).parents[1]
RANKS = 4
START_TIMEOUT_S = (
    60.0  # seconds at most until a kernel is ready, and until its ranks are deadlocked
)
CELL = """
from benchmarks.workers.failing import deadlock
from ddp_workbook import launch
launch(deadlock, {folder!r}, ranks={ranks}, timeout=600)
"""


def kernel_faults(interrupts: int) -> dict[str, list[float]]:
    """Seconds until the cell returns, or until no rank is left, after each of the three events."""
    with tempfile.TemporaryDirectory() as folder, running_kernel(Path(folder)) as (manager, client):
        interrupts_s = [
            seconds_after_interrupt(manager, client, Path(folder)) for _ in range(interrupts)
        ]
        restart_s = seconds_until_gone(
            client, Path(folder), lambda: manager.restart_kernel(now=True)
        )
        client.wait_for_ready(START_TIMEOUT_S)
        kill_s = seconds_until_gone(
            client, Path(folder), lambda: os.kill(manager.provisioner.pid, signal.SIGKILL)
        )
    return {
        "cell returns after: the reader interrupts": interrupts_s,
        "no rank is left after: the kernel is restarted": [restart_s],
        "no rank is left after: the kernel is killed": [kill_s],
    }


@contextlib.contextmanager
def running_kernel(folder: Path) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    """A kernel and a ready client over local sockets, so that no port can clash."""
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "kernel"))
    manager.start_kernel(cwd=str(ROOT))
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(START_TIMEOUT_S)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run_deadlock(client: BlockingKernelClient, folder: Path) -> tuple[str, Path]:
    """Run a cell whose ranks deadlock; return its message id and the folder of their pids."""
    pids = Path(tempfile.mkdtemp(dir=folder))
    # After an error, such as an interrupted cell, a kernel drops the requests that wait.
    message = client.execute(CELL.format(folder=str(pids), ranks=RANKS), stop_on_error=False)
    if not wait_until(lambda: len(alive(ranks_in(pids))) == RANKS, START_TIMEOUT_S):
        raise TimeoutError(f"the ranks did not get into their deadlock: {_answers(client)}")
    time.sleep(0.2)  # time to get from the file into gloo
    return message, pids


def _answers(client: BlockingKernelClient) -> list:
    """The kernel's messages so far: errors and printed text."""
    texts = []
    with contextlib.suppress(queue.Empty):
        while True:
            content = client.get_iopub_msg(timeout=0.5)["content"]
            texts += [content[key] for key in ("traceback", "text") if key in content]
    return texts


def ranks_in(folder: Path) -> list[int]:
    """The pids that name the files there; unfinished files have a dot before their name."""
    return [int(file.name) for file in folder.iterdir() if file.name.isdecimal()]


def seconds_after_interrupt(
    manager: KernelManager, client: BlockingKernelClient, folder: Path
) -> float:
    """Seconds from the interrupt to the cell's answer; raises if a rank is left then."""
    message, pids = run_deadlock(client, folder)
    start = time.monotonic()
    manager.interrupt_kernel()
    while True:
        reply = client.get_shell_msg(timeout=START_TIMEOUT_S)
        if reply["parent_header"].get("msg_id") == message:
            break
    seconds = time.monotonic() - start
    if reply["content"]["status"] != "error" or alive(ranks_in(pids)):
        raise AssertionError(f"after an interrupt: {reply['content']['status']}, ranks are left")
    return seconds


def seconds_until_gone(client: BlockingKernelClient, folder: Path, event) -> float:
    """Seconds from the event until the last rank has ended."""
    _, pids = run_deadlock(client, folder)
    start = time.monotonic()
    event()
    if not wait_until(lambda: not alive(ranks_in(pids)), START_TIMEOUT_S):
        raise TimeoutError(f"ranks are still there after {START_TIMEOUT_S:.0f} s: {ranks_in(pids)}")
    return time.monotonic() - start
