"""Print what a launcher has told this process, as one line of JSON.

    torchrun --standalone --nproc-per-node 2 src/ddp_workbook/experiments/print_environment.py

It imports no torch, which would take longer than all the rest of the run.
"""

import json
import os
import sys

VARIABLES = (
    *("RANK", "WORLD_SIZE", "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "CUDA_VISIBLE_DEVICES"),
)

if __name__ == "__main__":
    variables = {name: os.environ.get(name, "") for name in VARIABLES}
    # One write: two processes that share a terminal cannot mix their lines then.
    os.write(
        1, (json.dumps(variables | {"argv": sys.argv[1:], "path": sys.path[0]}) + "\n").encode()
    )
