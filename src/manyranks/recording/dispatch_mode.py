"""The part of the recorder that runs in a rank: notes each operation as PyTorch dispatches it.

Every collective, even one that DDP's reducer issues from C++, passes PyTorch's dispatcher as an
operator (`c10d::allreduce_`, ...) with its tensors. A TorchDispatchMode sees the call there,
whatever the backend then does. `collectives.py` is the part in the notebook.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from manyranks.diagnostics.user_code import is_own
from manyranks.launcher import serialization
from manyranks.network.operators import flat, size
from manyranks.recording.operations import LOCAL_OPS, NAMESPACES, operation_row, single_calls


class RecordedWorker:
    """A worker that returns its result together with FIELDS of each operation, in order."""

    def __init__(self, worker: Callable):
        self.__wrapped__ = worker
        self.__module__ = getattr(worker, "__module__", "")  # the rank names its program by it

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, list[tuple]]:
        """Run the worker in this rank, recorded."""
        rows: list[dict] = []
        result = None
        try:
            with Recorder(rows), record_threads(rows):
                result = self.__wrapped__(*args, **kwargs)
        except SystemExit as leaving:
            if leaving.code not in (None, 0):  # sys.exit(0) counts as a return, as in `launch`
                raise
        serialization.pack_result(result)  # a refusal then names the result itself, as in `launch`
        return result, [tuple(row.values()) for row in rows]


class Recorder(TorchDispatchMode):
    """Appends a dict of FIELDS to `rows` for each operation of the thread that enters it."""

    supports_higher_order_operators = True

    def __init__(self, rows: list[dict], started_at: str = ""):
        super().__init__()
        self.rows, self.started_at = rows, started_at
        self.thread = threading.get_ident()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile work, which it does not under other modes."""
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run every operator as it is; note those that communicate."""
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a DTensor unfolds first: it may communicate inside
        kwargs = kwargs or {}
        if getattr(func, "namespace", None) not in NAMESPACES:
            return func(*args, **kwargs)
        name = func._schema.name.rpartition("::")[2]
        if name in LOCAL_OPS:
            return func(*args, **kwargs)
        rows = self.note(func, name, args, kwargs)
        result = func(*args, **kwargs)
        if func.namespace != "c10d":  # functional: it returns what it made
            for row in rows:
                row["received"] = bytes_received(row, result)
        return result

    def note(self, func: Any, name: str, args: tuple, kwargs: dict) -> list[dict]:
        """Append this call before it runs, so that a failing call is recorded as well."""
        arguments = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        line = self.line()
        rows = [
            operation_row(name, arguments, line)
            for name, arguments in single_calls(name, arguments)
        ]
        self.rows += rows
        return rows

    def line(self) -> str:
        """The reader's line that led to this call; in autograd's threads, the worker's line."""
        if threading.get_ident() == self.thread:
            return user_line(sys._getframe()) or self.started_at
        return user_line(sys._current_frames().get(self.thread)) or self.started_at


def bytes_received(row: dict, result: Any) -> int:
    """Bytes that a functional operation brought to this rank, from what it returned."""
    point_to_point = row["op"] in ("send", "recv", "broadcast")
    return row["received"] if point_to_point else size(flat(result))


@contextlib.contextmanager
def record_threads(rows: list[dict]) -> Iterator[None]:
    """Record in threads that start inside as well: a mode sees only its own thread."""
    threads: Any = threading.Thread  # whose methods are replaced
    start = threads.start

    def start_recorded(thread: threading.Thread) -> None:
        run, started_at = thread.run, user_line(sys._getframe())

        def run_recorded() -> None:
            with Recorder(rows, started_at):
                run()

        vars(thread)["run"] = run_recorded
        start(thread)

    threads.start = start_recorded
    try:
        yield
    finally:
        threads.start = start


def user_line(frame: FrameType | None) -> str:
    """`file.py:12` of the reader's innermost frame, from `frame` outwards, or ''."""
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
