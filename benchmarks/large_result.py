"""How long a large result takes from a rank to the kernel, against a bare pipe."""

import contextlib
import io
import time

from benchmarks.table import Line, beside
from benchmarks.workers.ones import ones, send_ones
from ddp_workbook import launch
from manyranks.launcher.fork_server import CONTEXT
from manyranks.recording.timing import compare

SIZE = 400_000_000  # bytes
NOTE = (
    "The bare pipe is multiprocessing's, from a process of the same fork server, which has torch "
    "preloaded. Each makes its tensor first, which counts for both."
)


def measure(quick: bool = False) -> list[Line]:
    """One line."""
    ways = {"launch": by_launch, "bare pipe": by_pipe}
    frame = compare(ways, 2 if quick else 5, warm_up=1)
    what = f"a result of {SIZE / 1e6:.0f} MB from one rank"
    return [beside(frame, what, "launch", "bare pipe", note=NOTE)]


def by_launch() -> float:
    """Seconds of a launch that returns the tensor."""
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):  # the torchrun line
        (tensor,) = launch(ones, SIZE, ranks=1)
    seconds = time.perf_counter() - start
    assert tensor.nbytes == SIZE
    return seconds


def by_pipe() -> float:
    """Seconds until a new process has sent the same bytes, and ended."""
    start = time.perf_counter()
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=send_ones, args=(theirs, SIZE))
    process.start()
    theirs.close()
    with ours:
        data = ours.recv_bytes()
    process.join()
    seconds = time.perf_counter() - start
    assert len(data) == SIZE
    return seconds
