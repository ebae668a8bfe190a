"""What torch decides in a rank that sees a GPU, on a machine without one. Preload it.

`init_process_group()` without a backend then takes the GPU's alone, and refuses tensors on the CPU.
The GPU's is gloo here, because a CPU build of torch has no nccl.
"""

import torch
import torch.distributed as dist

torch._C._get_accelerator = lambda *_: torch.device("cuda")
dist.Backend.default_device_backend_map["cuda"] = "gloo"


def without_a_backend() -> str:
    """What comes of leaving the choice to torch, with a tensor on the CPU."""
    dist.init_process_group()
    try:
        dist.all_reduce(torch.ones(1))
    except RuntimeError as error:
        return str(error)
    return "works"
