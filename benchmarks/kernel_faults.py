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
START = 60.0  # seconds at most for a kernel, and for its ranks to be in their deadlock
CELL = """
from benchmarks.workers.failing import deadlock
from ddp_workbook import launch
launch(deadlock, {folder!r}, ranks={ranks}, timeout=600)
"""


def kernel_faults(interrupts: int) -> dict[str, list[float]]:
    """Seconds until the cell returns, or until no rank is left, after each of the three events."""
    with tempfile.TemporaryDirectory() as folder, running_kernel(Path(folder)) as (manager, client):
        returned = [after_interrupt(manager, client, Path(folder)) for _ in range(interrupts)]
        restarted = until_gone(client, Path(folder), lambda: manager.restart_kernel(now=True))
        client.wait_for_ready(START)
        killed = until_gone(
            client, Path(folder), lambda: os.kill(manager.provisioner.pid, signal.SIGKILL)
        )
    return {
        "cell returns after: the reader interrupts": returned,
        "no rank is left after: the kernel is restarted": [restarted],
        "no rank is left after: the kernel is killed": [killed],
    }


@contextlib.contextmanager
def running_kernel(folder: Path) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    """A kernel and a client that is ready, over local sockets: no port can clash with others."""
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "kernel"))
    manager.start_kernel(cwd=str(ROOT))
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(START)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def deadlocked(client: BlockingKernelClient, folder: Path) -> tuple[str, Path]:
    """Run a cell whose ranks get into a deadlock; its message id, and the folder of their pids."""
    pids = Path(tempfile.mkdtemp(dir=folder))
    # An interrupted cell is an error, after which a kernel drops what was sent to it meanwhile.
    message = client.execute(CELL.format(folder=str(pids), ranks=RANKS), stop_on_error=False)
    if not wait_until(lambda: len(alive(ranks_in(pids))) == RANKS, START):
        raise TimeoutError(f"the ranks did not get into their deadlock: {_answers(client)}")
    time.sleep(0.2)  # from the file to the inside of gloo
    return message, pids


def _answers(client: BlockingKernelClient) -> list:
    """What the kernel has said meanwhile: errors and printed text."""
    said = []
    with contextlib.suppress(queue.Empty):
        while True:
            content = client.get_iopub_msg(timeout=0.5)["content"]
            said += [content[key] for key in ("traceback", "text") if key in content]
    return said


def ranks_in(folder: Path) -> list[int]:
    """The pids that name the files there; one that is being written has a dot before its name."""
    return [int(file.name) for file in folder.iterdir() if file.name.isdecimal()]


def after_interrupt(manager: KernelManager, client: BlockingKernelClient, folder: Path) -> float:
    """Seconds from the interrupt to the cell's answer; raises where a rank is left then."""
    message, pids = deadlocked(client, folder)
    start = time.monotonic()
    manager.interrupt_kernel()
    while True:
        reply = client.get_shell_msg(timeout=START)
        if reply["parent_header"].get("msg_id") == message:
            break
    seconds = time.monotonic() - start
    if reply["content"]["status"] != "error" or alive(ranks_in(pids)):
        raise AssertionError(f"after an interrupt: {reply['content']['status']}, ranks are left")
    return seconds


def until_gone(client: BlockingKernelClient, folder: Path, event) -> float:
    """Seconds from the event until the last rank has ended."""
    _, pids = deadlocked(client, folder)
    start = time.monotonic()
    event()
    if not wait_until(lambda: not alive(ranks_in(pids)), START):
        raise TimeoutError(f"ranks are still there after {START:.0f} s: {ranks_in(pids)}")
    return time.monotonic() - start
