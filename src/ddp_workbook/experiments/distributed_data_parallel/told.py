"""A program that prints what its launcher told it, as JSON; it needs no torch and no group."""

import json
import os
import sys

NAMES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "CUDA_VISIBLE_DEVICES",
)

if __name__ == "__main__":
    told = {name: os.environ.get(name, "") for name in NAMES}
    # One write: the lines of two ranks must not mix.
    os.write(1, (json.dumps(told | {"argv": sys.argv[1:], "path": sys.path[0]}) + "\n").encode())
