"""A rank's large result, and the same bytes through a bare pipe."""

from multiprocessing.connection import Connection

import torch


def ones(size: int) -> torch.Tensor:
    """`size` bytes."""
    return torch.ones(size, dtype=torch.uint8)


def send_ones(pipe: Connection, size: int) -> None:
    """Write the same bytes to a pipe, straight from the tensor's memory."""
    pipe.send_bytes(ones(size).numpy())
    pipe.close()
