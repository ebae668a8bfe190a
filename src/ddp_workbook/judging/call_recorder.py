"""In a rank: records what a call sends, and which operations it does not wait for."""

import sys
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ddp_workbook.judging.check import CheckFailed
from manyranks.network.emulated_work import EmulatedWork
from manyranks.recording.dispatch_mode import Recorder, record_threads

FROM_PYTHON = "distributed_c10d.py"  # operations that DDP's reducer starts are DDP's to wait for
UNWAITED_WORKS: list[dist.Work] = []  # gloo may drop a send or receive whose Work is not kept
MAX_MESSAGES = 100  # sends and receives of a rank in one call: far more than any task needs
UNWAITED_ADVICE = (
    "An operation may end later than the function that started it. Which line waits for the ones "
    "that yours has started?"
)
WAIT_METHODS = ("wait", "synchronize", "get_future", "is_completed")


class CallRecorder(Recorder):
    """Also records whether each asynchronous operation was waited for.

    For an operation started from Python, the dispatcher sees the same Work that the caller gets. In
    its row, `under_way` is the number of earlier operations that were not waited for yet.
    """

    def __init__(self, describe_call: Callable[[], str]) -> None:
        super().__init__([])
        self.describe_call = describe_call
        self.works: list[tuple[dict, dist.Work | None]] = []  # None: it was waited for
        self.threads = record_threads(self.rows)

    def __enter__(self) -> "CallRecorder":
        self.threads.__enter__()
        self.wait_methods = [
            (kind, name, getattr(kind, name))
            for kind in (dist.Work, EmulatedWork)
            for name in WAIT_METHODS
            if name in vars(kind)
        ]
        for kind, name, method in self.wait_methods:
            setattr(kind, name, self.wrap_wait(name, method))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for kind, name, method in self.wait_methods:
            setattr(kind, name, method)
        self.threads.__exit__(None, None, None)
        UNWAITED_WORKS.extend(work for _, work in self.works if work is not None)

    def wrap_wait(self, name: str, method: Any) -> Any:
        """Wrap a method so that it notes the wait; a poll counts once it returns True."""

        def wrapper(work: dist.Work, *args: Any, **kwargs: Any) -> Any:
            answer = method(work, *args, **kwargs)
            if name != "is_completed" or answer:
                # No longer kept, because a Work of gloo keeps the tensors that it has filled.
                self.works = [(row, None if item is work else item) for row, item in self.works]
            return answer

        return wrapper

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run the operator; keep the Work of one that was called from Python."""
        before = len(self.rows)
        if func._schema.name in ("c10d::send", "c10d::recv_"):
            self.refuse_message(dist.ProcessGroup.unbox(args[1]), args[2])
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if len(self.rows) > before and called_from_python():
            returned = result if isinstance(result, tuple | list) else (result,)
            for value in returned:
                if isinstance(value, torch.ScriptObject):
                    self.rows[-1]["under_way"] = len(self.pending)
                    self.works.append((self.rows[-1], dist.Work.unbox(value)))
        return result

    def refuse_message(self, group: dist.ProcessGroup, peer: int) -> None:
        """Raise CheckFailed for a rank that does not exist, which crashes gloo, and for a flood."""
        if peer not in range(group.size()):
            actual = f"rank {group.rank()} sends to rank {peer}, or receives from it"
            look = "Which rank comes after the last one, and which before rank 0?"
            raise CheckFailed(
                self.describe_call(), actual, f"one of ranks 0 to {group.size() - 1}", look
            )
        if sum(row["op"] in ("send", "recv") for row in self.rows) == MAX_MESSAGES:
            actual, look = (
                f"more than {MAX_MESSAGES} messages",
                "Which numbers can be sent together?",
            )
            raise CheckFailed(
                self.describe_call(), actual, "no more messages than the task allows", look
            )

    @property
    def pending(self) -> list[dict]:
        """The operations that were not waited for."""
        return [row for row, work in self.works if work is not None]

    def refuse_pending(self, rank: int) -> None:
        """Raise CheckFailed for "2 of 5 operations (all_reduce in line 7)" still running."""
        if not self.pending:
            return
        lines = {f"{row['op']} in line {row['line'].rpartition(':')[2]}" for row in self.pending}
        total = len(self.works)
        raise CheckFailed(
            self.describe_call(),
            f"on rank {rank}, {len(self.pending)} of {total} operation{'s' * (total > 1)} "
            f"({', '.join(sorted(lines)[:3])}) still at work when your function returned",
            "no operation is still running when the function returns",
            UNWAITED_ADVICE,
        )


def called_from_python() -> bool:
    """Whether a function of `torch.distributed` has started the current operation."""
    frame: types.FrameType | None = sys._getframe(2)
    for _ in range(8):
        if frame is None or frame.f_code.co_filename.endswith(FROM_PYTHON):
            return frame is not None
        frame = frame.f_back
    return False
