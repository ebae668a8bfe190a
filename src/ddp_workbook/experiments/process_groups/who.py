"""Print what torchrun has told this process, as one line of JSON.

    torchrun --standalone --nproc-per-node 2 src/ddp_workbook/experiments/process_groups/who.py

It imports no torch, which would take longer than all the rest of the run.
"""

import json
import os
import sys

TOLD = (
    *("RANK", "WORLD_SIZE", "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT"),
)

if __name__ == "__main__":
    # One write: two processes that share a terminal cannot mix their lines then.
    sys.stdout.write(json.dumps({name: os.environ[name] for name in TOLD}) + "\n")
