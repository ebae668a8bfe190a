"""For exercises that are to be solved with sends and receives alone."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_workbook.exercises.judging.not_yet import NotYet

MOST = 100  # sends and receives of a rank in one case: far more than any task needs


class Started(TorchDispatchMode):
    """Keeps what sends and receives return, for gloo may never carry out one that nobody keeps."""

    def __init__(self, called: str):
        super().__init__()
        self.called, self.works = called, []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator as it is; NotYet for a rank that is not there, where gloo crashes."""
        rank, ranks = dist.get_rank(), dist.get_world_size()
        if func._schema.name in ("c10d::send", "c10d::recv_") and args[2] not in range(ranks):
            came = f"rank {rank} sends to or receives from rank {args[2]}"
            look = "Who comes after the last rank, and who before rank 0?"
            raise NotYet(self.called, came, f"one of ranks 0 to {ranks - 1}", look)
        result = func(*args, **(kwargs or {}))
        self.works += [dist.Work.unbox(result)] if isinstance(result, torch.ScriptObject) else []
        if len(self.works) > MOST:
            came, look = f"more than {MOST} messages", "Which numbers can travel together?"
            raise NotYet(self.called, came, "as many as the task says, and no more", look)
        return result


def call(function: Callable, called: str, *args: Any) -> None:
    """In a rank: call it; NotYet if it has not waited. Then wait until all ranks are through."""
    with Started(called) as started:
        function(*args)
    calls, waited = len(started.works), sum(work.is_completed() for work in started.works)
    if waited < calls:  # none is completed before someone has waited
        came = f"{waited} of {calls} sends and receives on rank {dist.get_rank()} were waited for"
        look = "A message may leave later than the call that starts it. What tells you that it has?"
        raise NotYet(called, came, "nothing is under way when the function returns", look)
    dist.barrier()  # no message of this case is for the next one; `by_case` sees its end


def by_case(called: str, wire: pd.DataFrame) -> list[list[pd.DataFrame]]:
    """The sends and receives, a table for each case and rank. NotYet for collectives."""
    ends = wire["line"] == ""  # the check's own barriers come from no line of the reader
    for row in wire[~ends & ~wire["op"].isin(["send", "recv"])].to_dict("records"):
        came, look = f"rank {row['rank']} called {row['op']}", "Which sends and receives do that?"
        raise NotYet(called, came, "sends and receives, and no collective", look)
    number = ends.groupby(wire["rank"]).cumsum()[~ends]
    tables = {key: rows for key, rows in wire[~ends].groupby([number, "rank"])}
    cases, ranks = ends.sum() // wire["rank"].nunique(), wire["rank"].nunique()
    return [[tables.get((n, rank), wire[:0]) for rank in range(ranks)] for n in range(cases)]


from ddp_workbook.exercises.judging.check import Look, Seen, When

MESSAGES_ALONE = Look(
    of=lambda seen: [op for op in dict.fromkeys(seen.ops) if op not in ("send", "recv")],
    right=[],
    mistakes={
        "What does the barrier add? A receive waits until its message is there.": When(
            lambda seen: "barrier" in seen.ops
        ),
    },
    otherwise="Which sends and receives do the same?",
    came="rank {rank} called {value}",
    required="sends and receives, and no collective",
    words=", ".join,
)


def sends_of(seen: Seen) -> list[dict]:
    """The messages that this rank has sent, in order."""
    return [row for row in seen.wire if row["op"] == "send"]
