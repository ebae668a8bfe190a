"""Every collective once: what each rank holds before the call, and what it holds afterwards.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/experiments/collectives/every_call.py

With N ranks, rank r starts with the numbers 1 2 ... N times 10 ** r, so the digits of every number
show which ranks are in it. Each function makes one call and returns (before, after). Only barrier
moves no numbers. The root is rank 0 here; it can be any rank.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup

Buffers: TypeAlias = Tensor | list[Tensor] | None  # None: this rank has nothing there
ROOT = 0
# torch 2.13 has new names for two calls, and warns of the old ones
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


# One rank gives


def broadcast(mine: Tensor) -> tuple[Buffers, Buffers]:
    """The root's tensor replaces everybody's."""
    before = mine.clone()
    dist.broadcast(mine, src=ROOT)
    return before, mine


def scatter(mine: Tensor) -> tuple[Buffers, Buffers]:
    """The root has a piece for each rank; only the root passes a list."""
    pieces = list(mine.chunk(len(mine))) if dist.get_rank() == ROOT else None
    own = torch.empty_like(mine[:1])
    dist.scatter(own, pieces, src=ROOT)
    return pieces, own


# One rank gets


def reduce(mine: Tensor) -> tuple[Buffers, Buffers]:
    """The root gets the sum."""
    before = mine.clone()
    dist.reduce(mine, dst=ROOT)
    return before, mine


def gather(mine: Tensor) -> tuple[Buffers, Buffers]:
    """The root gets a piece from each rank; only the root passes a list."""
    piece = mine[:1]
    everyone = [torch.empty_like(piece) for _ in mine] if dist.get_rank() == ROOT else None
    dist.gather(piece, everyone, dst=ROOT)
    return piece, everyone


# All ranks get


def all_reduce(mine: Tensor) -> tuple[Buffers, Buffers]:
    """Every rank gets the sum."""
    before = mine.clone()
    dist.all_reduce(mine)
    return before, mine


def all_gather(mine: Tensor) -> tuple[Buffers, Buffers]:
    """Every rank gets a piece from each rank."""
    piece = mine[:1]
    everyone = [torch.empty_like(piece) for _ in mine]
    dist.all_gather(everyone, piece)
    return piece, everyone


def reduce_scatter(mine: Tensor) -> tuple[Buffers, Buffers]:
    """Every rank gets one piece of the sum."""
    pieces = list(mine.chunk(len(mine)))
    own = torch.empty_like(pieces[0])
    dist.reduce_scatter(own, pieces)
    return mine, own


def all_to_all(mine: Tensor) -> tuple[Buffers, Buffers]:
    """Every rank sends a different piece to each rank."""
    pieces = list(mine.chunk(len(mine)))
    outputs = [torch.empty_like(piece) for piece in pieces]
    dist.all_to_all(outputs, pieces)
    return pieces, outputs


def all_to_all_before_torch_2_13(mine: Tensor) -> tuple[Buffers, Buffers]:
    """The same on gloo, which exchanged single tensors only."""
    received = torch.empty_like(mine)
    dist.all_to_all_single(received, mine)
    return list(mine.chunk(len(mine))), list(received.chunk(len(mine)))


def barrier(mine: Tensor) -> tuple[Buffers, Buffers]:
    """No rank leaves before all have come."""
    dist.barrier()
    return mine, mine


COLLECTIVES: dict[str, Callable[[Tensor], tuple[Buffers, Buffers]]] = {
    call.__name__: call
    for call in (
        broadcast,
        scatter,
        reduce,
        gather,
        all_reduce,
        all_gather,
        reduce_scatter,
        all_to_all,
        barrier,
    )
}
if torch.__version__ < "2.13":
    COLLECTIVES["all_to_all"] = all_to_all_before_torch_2_13


def numbers(device: torch.device) -> Tensor:
    """This rank's numbers, float32 of shape [N]."""
    count = torch.arange(1.0, dist.get_world_size() + 1, device=device)
    return count * 10 ** dist.get_rank()


def run(name: str) -> tuple[Buffers, Buffers]:
    """One collective: what this rank held before and after it."""
    device = setup()
    before_and_after = COLLECTIVES[name](numbers(device))
    cleanup()
    return before_and_after


def main() -> None:
    """All collectives; rank 0 prints a table of what every rank held."""
    device = setup()
    for name, call in COLLECTIVES.items():
        before, after = (in_words(value) for value in call(numbers(device)))
        rows: list = [None] * dist.get_world_size()
        dist.all_gather_object(rows, f"{before:24} -> {after}")
        if dist.get_rank() == 0:
            print(name, *(f"  rank {rank}  {row}" for rank, row in enumerate(rows)), sep="\n")
    cleanup()


def in_words(value: Buffers) -> str:
    """The numbers, a bar between tensors: "1 2 | 10 20"; "-" for nothing."""
    if value is None:
        return "-"
    tensors = value if isinstance(value, list) else [value]
    return " | ".join(" ".join(f"{number:g}" for number in tensor.tolist()) for tensor in tensors)


if __name__ == "__main__":
    main()
