"""What DDP sends in three steps, line by line; and the bytes that leave a rank for a payload."""

import inspect
import math
import os
import socket
import stat
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.digits import DigitsDataset, DigitsMLP
from ddp_workbook.launcher.launch import launch
from ddp_workbook.recording.collectives import record_collectives

NUMBERS = 1_000_000  # float32 of the all-reduce whose bytes are counted: 4 MB
BYTES_SENT = 200  # where Linux's struct tcp_info has tcpi_bytes_sent, since Linux 4.19


def three_steps() -> None:
    """Three training steps of a model with four layers, and nothing else."""
    device, digits = setup(), DigitsDataset()
    images, labels = digits.images[:64].to(device), digits.labels[:64].to(device)
    model = DigitsMLP(depth=3).to(device)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        scores = ddp(images)
        F.cross_entropy(scores, labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()  # no rank leaves early


def sent_by_rank_0(worker: Callable[..., Any], ranks: int = 2, **arguments: Any) -> pd.DataFrame:
    """Rank 0's row of each call that `worker` makes, with the text of the line behind it.

    Columns: seq (the index), line, op, peer, dtype, bytes.
    """
    wire = record_collectives(worker, ranks=ranks, **arguments).query("rank == 0")
    with open(inspect.getsourcefile(worker) or "", encoding="utf-8") as file:
        lines = ["", *(line.partition("  #")[0].strip() for line in file)]
    numbers = wire["line"].str.rpartition(":")[2].astype(int)
    columns = ["seq", "line", "op", "peer", "dtype", "bytes"]
    return wire.assign(line=[lines[number] for number in numbers])[columns].set_index("seq")


def payload_and_wire(ranks: Sequence[int] = (2, 3, 4)) -> pd.DataFrame:
    """One all-reduce of 4 MB: the payload, what left each rank's sockets, and a ring's formula.

    In MB; a row for each number of ranks. Sockets are counted on Linux with gloo, else nan.
    """
    rows = {}
    for count in ranks:
        payload, sent = zip(*launch(bytes_of_an_all_reduce, NUMBERS, ranks=count), strict=True)
        rows[count] = {
            "payload of the call": payload[0] / 1e6,
            "sent by a rank": max(sent) / 1e6,
            "2 (N-1)/N · payload": 2 * (count - 1) / count * payload[0] / 1e6,
        }
    return pd.DataFrame(rows).T.round(2).rename_axis("N ranks").rename_axis("MB", axis=1)


def bytes_of_an_all_reduce(numbers: int) -> tuple[int, float]:
    """Bytes of the tensor, and those that this rank's sockets sent for its all-reduce."""
    values = torch.ones(numbers, device=setup())
    dist.all_reduce(values)  # connections are made at the first call
    dist.barrier()
    before = bytes_sent()
    dist.all_reduce(values)
    sent = bytes_sent() - before
    on_sockets = values.device.type == "cpu"  # nccl may use shared memory, NVLink or InfiniBand
    cleanup()
    return values.nbytes, sent if on_sockets else math.nan


def bytes_sent() -> float:
    """Bytes that this process has sent on the TCP sockets it has open; nan if nobody counts them.

    Counted by the kernel for each socket (`man 7 tcp`, TCP_INFO): resent bytes are in it, TCP's
    own headers are not.
    """
    if not hasattr(socket, "TCP_INFO") or not os.path.isdir("/proc/self/fd"):
        return math.nan
    total = 0.0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            copy = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # it was closed meanwhile
            continue
        with copy:
            if copy.family in (socket.AF_INET, socket.AF_INET6):
                total += _sent_on(copy)
    return total


def _sent_on(connection: socket.socket) -> float:
    """Bytes sent on one socket; nan where the kernel is too old to say, 0 for what is no TCP."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return 0.0
    if len(info) < BYTES_SENT + 8:
        return math.nan
    return float(struct.unpack_from("Q", info, BYTES_SENT)[0])
