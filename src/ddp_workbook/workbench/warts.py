"""Faults of PyTorch that a launch works around, each with the version that it was seen on."""

import functools
from typing import Any

import torch.distributed as dist

KEPT: list[dist.ProcessGroup] = []


def keep_groups_of_ddp() -> None:
    """Let no process group end together with a DistributedDataParallel.

    A model that lives longer than `destroy_process_group()`, as in many a `main()`, holds the last
    reference to the group. Its end then waits for gloo's thread, with the GIL, which that thread
    needs to end: a deadlock in 1 of 15 runs (torch 2.13). A rank ends by os._exit, so a group
    that is kept costs no more than its open sockets until then.
    """
    make = dist.Reducer

    @functools.wraps(make, updated=())
    def make_and_keep(*args: Any, **kwargs: Any) -> dist.Reducer:
        groups = [a for a in (*args, *kwargs.values()) if isinstance(a, dist.ProcessGroup)]
        KEPT.extend(group for group in groups if group not in KEPT)
        return make(*args, **kwargs)

    dist.Reducer = make_and_keep
