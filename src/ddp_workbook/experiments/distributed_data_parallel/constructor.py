"""Every argument of DistributedDataParallel, from the signature of the torch that runs."""

import pandas as pd
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.experiments.arguments import explained

EXPLAINED = {
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
    return explained(DistributedDataParallel, EXPLAINED)
