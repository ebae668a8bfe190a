"""In a rank: device and default process group, for workers that do not set them up themselves."""

import os

import torch
import torch.distributed as dist


def set_up(bare: bool) -> torch.device:
    """This rank's device, a GPU each where there are enough; the default group unless `bare`."""
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cpu")
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    if not bare:
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
        wait_for_connections()
    return device


def wait_for_connections() -> None:
    """A rank that fails in its first line would cut off others that still connect to it.

    Through the store and not by a barrier: the page is to count the reader's collectives alone.
    """
    store = dist.distributed_c10d._get_default_store()
    if store.add("ranks that are connected", 1) == dist.get_world_size():
        store.set("all are connected", "")
    store.wait(["all are connected"])
