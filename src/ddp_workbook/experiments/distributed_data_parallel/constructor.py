"""Every argument of DistributedDataParallel, and a model in two parts, each on its own device."""

import os

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import forward_and_backward
from ddp_workbook.chapters.single_process import forward_and_backward as alone
from ddp_workbook.experiments.arguments import describe_arguments
from manyranks.launcher.launch import launch

ARGUMENT_HELP = {
    "module": "the model, on its device; at least one parameter must require a gradient",
    "device_ids": "[GPU]: forward moves this rank's inputs to that GPU. Not needed if you move "
    "them. None on a CPU, and for a model on several GPUs",
    "output_device": "the GPU of the output, device_ids[0] by default. None on a CPU",
    "dim": "nothing; a relic of DataParallel, which cuts the batch along it",
    "broadcast_buffers": "old name of forward_sync_buffers; with False, buffers are not sent even "
    "at the start",
    "init_sync": "False: nothing is compared or sent at the start; you make the weights equal",
    "process_group": "the ranks to average over, if not all",
    "bucket_cap_mb": "MiB at which a bucket is full: 25 by default, and 1 for the first bucket",
    "find_unused_parameters": "True: look in each step for parameters that it does not use",
    "check_reduction": "nothing any more",
    "gradient_as_bucket_view": "True: each .grad is a view of its bucket, which saves memory",
    "static_graph": "True: you promise that all steps use the same parameters; DDP looks once",
    "delay_all_reduce_named_params": "[(name, parameter)] that get an all_reduce of their own",
    "param_to_hook_all_reduce": "the parameter whose gradient starts that all_reduce",
    "mixed_precision": "compute and send in 16 bits; experimental, GPU only",
    "device_mesh": "in place of process_group, for programs that arrange their ranks in a mesh",
    "skip_all_reduce_unused_params": "True: a bucket of which nothing was used is not sent",
    "bucket_cap_mb_list": "a limit for each bucket, from the first step on",
    "batched_grad_copy": "True: one copy for each bucket, not for each parameter; for many small "
    "parameters",
    "forward_sync_buffers": "False: buffers are sent at the start, but not before forward passes",
}


def argument_table() -> pd.DataFrame:
    """A row for each argument: its name, its default, and what it does."""
    return describe_arguments(DistributedDataParallel, ARGUMENT_HELP)


# A model in two parts, each on a device of its own


ROWS = 64


class InTwoParts(DigitsMLP):
    """The hidden layer on one device, the output layer on another."""

    def __init__(self, first: torch.device, second: torch.device) -> None:
        super().__init__()
        self.hidden.to(first)
        self.output.to(second)

    def forward(self, images: Tensor) -> Tensor:
        """Only the hidden values go from device to device."""
        hidden = self.hidden[0](images.to(self.hidden[0].weight.device)).tanh()
        return self.output(hidden.to(self.output.weight.device))


def pick_two_devices() -> tuple[torch.device, torch.device]:
    """Two GPUs of this rank's own if its node has two for each of its ranks, else the CPU twice."""
    if torch.cuda.device_count() < 2 * int(os.environ["LOCAL_WORLD_SIZE"]):
        return torch.device("cpu"), torch.device("cpu")
    first = 2 * int(os.environ["LOCAL_RANK"])
    return torch.device("cuda", first), torch.device("cuda", first + 1)


def gradients_of_two_parts() -> tuple[list[str], list[Tensor]]:
    """A worker: the devices, and the gradients of a batch of which each rank takes its rows."""
    digits, devices = DigitsDataset(), pick_two_devices()
    dist.init_process_group("gloo" if devices[0].type == "cpu" else "nccl")
    mine = slice(dist.get_rank(), ROWS, dist.get_world_size())
    torch.manual_seed(0)
    ddp = DistributedDataParallel(InTwoParts(*devices))  # device_ids=None: it has two devices
    labels = digits.labels[mine].to(devices[1])
    forward_and_backward(ddp, digits.images[mine], labels, rows=ROWS)
    gradients = [parameter.grad.cpu() for parameter in ddp.parameters()]
    dist.barrier()
    return [str(device) for device in devices], gradients


def max_gradient_error(ranks: int = 2) -> tuple[list[str], float]:
    """The devices of rank 0, and how far its gradients are from those of one process, at most."""
    devices, gradients = launch(gradients_of_two_parts, ranks=ranks)[0]
    torch.manual_seed(0)
    model, digits = DigitsMLP(), DigitsDataset()
    alone(model, digits.images[:ROWS], digits.labels[:ROWS])
    pairs = zip(gradients, model.parameters(), strict=True)
    return devices, max((ours - theirs.grad).abs().max().item() for ours, theirs in pairs)
