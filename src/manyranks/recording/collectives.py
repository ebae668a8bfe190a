"""`record_collectives`: every call that communicates while a worker runs, as a table."""

import os
from collections.abc import Callable
from typing import Any

import pandas as pd

from manyranks.launcher.calls import Call, call_of
from manyranks.launcher.launch import run_ranks
from manyranks.network.links import Network
from manyranks.recording.dispatch_mode import RecordedWorker
from manyranks.recording.operations import FIELDS


def record_collectives(
    worker: Callable | str | os.PathLike,
    *args: Any,
    ranks: int = 2,
    timeout: float = 60,
    network: str | Network | None = None,
    as_if_gpus: bool = True,
    **kwargs: Any,
) -> pd.DataFrame:
    """Run the worker as `launch` does; return a row for each operation of each rank, in order.

    Point-to-point calls are operations too, and so are the calls that DDP and FSDP make themselves.
    A table without rows also has the columns. They are:

    rank, seq
        Which rank, and in which order: the rank's first operation has seq 1.
    group
        "default" for the world, otherwise its members' global ranks: "ranks 0,2".
    op
        The function of torch.distributed: all_reduce, broadcast, reduce, all_gather, gather,
        scatter, reduce_scatter, all_to_all, all_to_all_single, all_gather_into_tensor and
        reduce_scatter_tensor (torch 2.13 also calls these two all_gather_single and
        reduce_scatter_single), send, recv, barrier, monitored_barrier. isend is recorded as send
        and irecv as recv; `async_op=True` changes nothing. A coalesced call is one row with several
        shapes, a functional call (DTensor, tensor parallel) has the plain name, and an object
        collective appears as the two or three operations on bytes that it consists of.
    peer
        Global rank of the root of a rooted operation, or of the other side of send and recv; empty
        otherwise, and for a receive from any source.
    shape, dtype
        Those of the tensors that `bytes` counts. Several tensors give a tuple of shapes; a barrier
        has none. Use `wire["shape"]`: `wire.shape` is the shape of the table.
    bytes
        Size of the tensors that this rank hands in; if it hands in none (recv, and every rank
        but the root of broadcast and scatter), of those that it receives. This is the payload of
        the call, not what the backend then sends: a ring all-reduce of S bytes sends 2 (N-1)/N S
        from each rank.
    received
        Size of the tensors that the call fills on this rank; 0 for a send, for the root of a
        broadcast, and for every rank but the root of reduce and gather. In an all_gather on
        4 ranks, 4 bytes go in and 16 are received.
    line
        "file.py:12", the reader's innermost line that led to the call. For what DDP sends in
        backward, that is the line of `loss.backward()`.

    Recorded are the calls of the worker's thread, of autograd's threads, and of threads that the
    worker starts with `threading`. Not recorded: traffic of the store (`init_process_group` and
    `new_group` on gloo send nothing else), direct calls of a backend's methods, and processes that
    the worker starts. Recording costs 0.1 to 0.2 ms for each operation and about 0.01 ms for every
    other tensor operation, so take no step times from a recorded run. It adds, drops and reorders
    nothing.

    Raises what `launch` raises.
    """
    return run_and_record(
        worker,
        *args,
        ranks=ranks,
        timeout=timeout,
        network=network,
        as_if_gpus=as_if_gpus,
        **kwargs,
    )[1]


def run_and_record(
    worker: Callable | str | os.PathLike,
    *args: Any,
    ranks: int = 2,
    timeout: float = 60,
    network: str | Network | None = None,
    as_if_gpus: bool = False,
    **kwargs: Any,
) -> tuple[list, pd.DataFrame]:
    """The worker's results, as from `launch`, and the table of `record_collectives`."""
    call = call_of(worker, args, kwargs, ranks)
    call = Call(RecordedWorker(call.worker), call.args, call.kwargs)
    outcomes = run_ranks(call, ranks, timeout, quiet=True, network=network, as_if_gpus=as_if_gpus)
    rows = [
        (rank, seq, *row)
        for rank, (_, operations) in enumerate(outcomes)
        for seq, row in enumerate(operations, start=1)
    ]
    columns = ["rank", "seq", *FIELDS]
    numbers = dict.fromkeys(("rank", "seq", "bytes", "received"), "int64") | {"peer": "Int64"}
    words = dict.fromkeys(("group", "op", "dtype", "line"), "str")
    wire = pd.DataFrame(rows, columns=columns).astype(numbers | words)
    return [result for result, _ in outcomes], wire
