"""torch.distributed.elastic's @record around main, arguments of its own, no explicit end."""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--fail", action="store_true")
    return parser.parse_args()


@record
def main():
    args = parse()
    dist.init_process_group("gloo")
    x = torch.tensor(float(args.epochs))
    for _ in range(args.epochs):
        dist.all_reduce(x)
    print(f"sum {x.item():g}")


@record
def failing():
    raise ValueError("seen through @record")


if __name__ == "__main__":
    main()
