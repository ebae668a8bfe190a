"""The ring all-reduce, in the ranks: what each holds after every round is recorded there.

Runs in ranks, so it imports no more than they need; `ring_plots.py` draws what it returns.
"""

import torch
import torch.distributed as dist

from ddp_workbook.notebook.cells import start


def ring(vector: torch.Tensor, note=lambda *_: None) -> None:
    """Replace `vector` by its sum over the ranks; each sends to the next one alone. In place.

    `note(sent)` is called before the first round and after each one, with the piece just sent.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    pieces = vector.tensor_split(ranks)  # views; they may differ by one in length
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    note(None)
    for number in range(2 * (ranks - 1)):
        adds = number < ranks - 1
        sent = (rank - number if adds else rank + 1 - (number - (ranks - 1))) % ranks
        arrives = (sent - 1) % ranks
        leaving = dist.isend(pieces[sent].clone(), after)  # first, or all would wait to receive
        arrived = torch.empty_like(pieces[arrives])
        dist.recv(arrived, before)
        leaving.wait()
        pieces[arrives].copy_(pieces[arrives] + arrived if adds else arrived)
        note(sent)


def ring_worker(numbers: int) -> float:
    """In a rank: one ring all-reduce of so many float32, all 1; returns the first sum."""
    vector = torch.ones(numbers, device=start(bare=False))
    ring(vector)
    return vector[0].item()


def frames_worker() -> list[tuple[int | None, list[float]]]:
    """In a rank: (piece just sent, what is held) at the start and after each round.

    Rank r starts with 1, 2, 3, ... times 10 ** r, so that a sum shows whose numbers are in it.
    """
    device, seen = start(bare=False), []
    ranks = dist.get_world_size()
    vector = torch.arange(1, ranks + 1, device=device) * 10 ** dist.get_rank()
    ring(vector, lambda sent: seen.append((sent, vector.tolist())))
    return seen
