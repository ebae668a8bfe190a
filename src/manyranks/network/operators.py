"""The calls that communicate, as operators of PyTorch's dispatcher: their names, tensors, bytes."""

from typing import Any

import torch

# The dispatcher's name -> the function of torch.distributed that a reader calls. A coalesced call
# becomes the plain one with several tensors.
C10D = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "_allgather_base_": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced_": "all_gather_into_tensor",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter_tensor",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all_single",
    "gather_": "gather",
    "scatter_": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv_": "recv",
    "recv_any_source_": "recv",
}
# The same for functional calls, DTensor's, and one that goes through the store; those that are not
# here have one name.
OPS = C10D | {
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_coalesced_": "all_reduce",
    "all_gather_into_tensor_coalesced": "all_gather_into_tensor",
    "all_gather_into_tensor_out": "all_gather_into_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
    "reduce_scatter_tensor_out": "reduce_scatter_tensor",
    "shard_dim_alltoall": "all_to_all_single",
    "irecv": "recv",
    "isend": "send",
    "monitored_barrier_": "monitored_barrier",
}
PEER = ("root_rank", "src", "dst")  # an operator's names for its root or its other side


def flat(value: Any) -> list[torch.Tensor]:
    """The tensors in a tensor, a list, a list of lists, or None."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for part in value for t in flat(part)] if isinstance(value, list | tuple) else []


def size(tensors: list[torch.Tensor]) -> int:
    """Bytes of the tensors' elements; of a sparse one, of its indices and values."""
    return sum(
        size([t._indices(), t._values()]) if t.is_sparse else t.numel() * t.element_size()
        for t in tensors
    )
