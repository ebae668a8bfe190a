"""A script for torchrun, with a command line; nothing in it knows of `launch`."""

import argparse
import os
import sys

import neighbour
import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--fail", action="store_true")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    x = torch.ones(arguments.epochs)
    dist.all_reduce(x)
    print("sum", x.sum().item(), neighbour.NAME, os.path.basename(sys.argv[0]))
    dist.destroy_process_group()
    if arguments.fail:
        raise ValueError("asked to fail")


if __name__ == "__main__":
    main()
    sys.exit(0)
