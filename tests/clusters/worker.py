"""A worker for pretend hosts: the ranks meet, and all-reduce in every step.

    torchrun ... worker.py --steps 100 --pause 0.2 --timeout 5 --fail-rank 1

Its group has the time limit --timeout (s); --fail-rank raises an error in its second step.
"""

import argparse
import os
import socket
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main() -> None:
    """Meet, step, leave; rank 0 prints each step, every rank where it is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--fail-rank", type=int, default=-1)
    options = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.timeout))
    rank, ones = dist.get_rank(), torch.ones(1)
    print(f"rank {rank} of {dist.get_world_size()} on {socket.gethostname()}", flush=True)
    for step in range(options.steps):
        if rank == options.fail_rank and step == 1:
            raise ValueError("this rank has no rows left")
        dist.all_reduce(ones.fill_(1))
        if rank == 0:
            print(f"step {step}: {ones.item():.0f} ranks", flush=True)
        time.sleep(options.pause)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo can abort while the interpreter shuts down


if __name__ == "__main__":
    main()
