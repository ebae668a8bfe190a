"""In a rank: what a call sends, and which of its collectives nobody waits for."""

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ddp_workbook.exercises.judging.not_yet import NotYet
from ddp_workbook.recording.dispatch_mode import Recorder, threads_recorded

FROM_PYTHON = "distributed_c10d.py"  # who waits for what DDP's reducer starts is DDP's own affair
KEPT: list[dist.Work] = []  # gloo may never carry out a send or receive that nobody keeps
MOST = 100  # sends and receives of a rank in one call: far more than any task needs
WAITING = ("wait", "synchronize", "get_future", "is_completed")


class Watch(Recorder):
    """Records like its parent; and knows of each asynchronous operation whether it was waited for.

    Of a Work that Python has started, the dispatcher sees the same object that the caller gets. In
    such an operation's row, `under_way` is the number of those that nobody had waited for before.
    """

    def __init__(self, called: Callable[[], str]) -> None:
        super().__init__([])
        self.called = called
        self.started: list[tuple[dict, dist.Work | None]] = []  # None: somebody has waited for it
        self.threads = threads_recorded(self.rows)

    def __enter__(self) -> "Watch":
        self.threads.__enter__()
        self.methods = {name: getattr(dist.Work, name) for name in WAITING}
        for name, method in self.methods.items():
            setattr(dist.Work, name, self.noting(name, method))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for name, method in self.methods.items():
            setattr(dist.Work, name, method)
        self.threads.__exit__(None, None, None)
        KEPT.extend(work for _, work in self.started if work is not None)

    def noting(self, name: str, method: Any) -> Any:
        """The method, which also notes that somebody has waited; a poll counts once it says yes."""

        def asked(work: dist.Work, *args: Any, **kwargs: Any) -> Any:
            answer = method(work, *args, **kwargs)
            if name != "is_completed" or answer:
                # Not kept any longer: a Work of gloo keeps the tensors that it has filled.
                self.started = [(row, None if one is work else one) for row, one in self.started]
            return answer

        return asked

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run the operator; keep the Work of one that was called from Python."""
        before = len(self.rows)
        if func._schema.name in ("c10d::send", "c10d::recv_"):
            self.refuse_message(dist.ProcessGroup.unbox(args[1]), args[2])
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if len(self.rows) > before and called_from_python():
            returned = result if isinstance(result, tuple | list) else (result,)
            for one in returned:
                if isinstance(one, torch.ScriptObject):
                    self.rows[-1]["under_way"] = len(self.unwaited)
                    self.started.append((self.rows[-1], dist.Work.unbox(one)))
        return result

    def refuse_message(self, group: dist.ProcessGroup, peer: int) -> None:
        """Raise NotYet for a rank that is not there, at which gloo crashes, and for a flood."""
        if peer not in range(group.size()):
            came = f"rank {group.rank()} sends to rank {peer}, or receives from it"
            look = "Who comes after the last rank, and who before rank 0?"
            raise NotYet(self.called(), came, f"one of ranks 0 to {group.size() - 1}", look)
        if sum(row["op"] in ("send", "recv") for row in self.rows) == MOST:
            came, look = f"more than {MOST} messages", "Which numbers can travel together?"
            raise NotYet(self.called(), came, "as many as the task says, and no more", look)

    @property
    def unwaited(self) -> list[dict]:
        """The operations whose Work nobody has waited for."""
        return [row for row, work in self.started if work is not None]

    def in_words(self) -> str:
        """ "2 of 5 operations (all_reduce in line 7)" """
        lines = {f"{row['op']} in line {row['line'].rpartition(':')[2]}" for row in self.unwaited}
        total = len(self.started)
        operations = f"operation{'s' * (total > 1)}"
        return f"{len(self.unwaited)} of {total} {operations} ({', '.join(sorted(lines)[:3])})"


def called_from_python() -> bool:
    """Whether a function of `torch.distributed` has asked for the operation on its way."""
    frame = sys._getframe(2)
    for _ in range(8):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith(FROM_PYTHON):
            return True
        frame = frame.f_back
    return False
