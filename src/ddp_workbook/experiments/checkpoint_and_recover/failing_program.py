"""A program that fails on rank 1; with `once`, in its first attempt only."""

import os
import sys

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def main() -> None:
    dist.init_process_group("gloo")
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if dist.get_rank() == 1 and (attempt == 0 or "once" not in sys.argv):
        raise ValueError("shard 7 is empty")
    dist.barrier()
    print(f"all ranks have met in attempt {attempt}", flush=True)


if __name__ == "__main__":
    record(main)() if "record" in sys.argv else main()
