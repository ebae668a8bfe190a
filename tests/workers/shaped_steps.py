"""A rank on a pretend host: times the parts of its steps whenever a line of input asks for it.

python -m tests.workers.shaped_steps WORK     WORK is JSON, and so is a line: [rounds, parts]

REAL_TIME=1 in the environment gives it priority over all other programs of the machine.
"""

import contextlib
import json
import os
import sys

import torch

from ddp_workbook.experiments.many_machines.costs import Timer, Workload
from manyranks.launcher.process_group import set_up

if __name__ == "__main__":
    if os.environ.get("REAL_TIME") == "1":
        # Whatever else runs here would be measured as well. It waits for some milliseconds instead:
        # threads that are started from here on inherit the priority.
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    torch.set_num_threads(1)
    set_up(bare=False)
    timer = Timer(Workload(**json.loads(sys.argv[1])))
    for line in sys.stdin:
        print(json.dumps(timer.timings(*json.loads(line))), flush=True)
    os._exit(0)  # gloo can abort while the interpreter shuts down (torch 2.13)
