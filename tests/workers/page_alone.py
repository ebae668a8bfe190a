"""The measurements of the page on what it will cost, with nothing else on the machine's cores.

Prints JSON: what the model says, as a multiple of what was measured.
"""

import contextlib
import json
import os

from ddp_workbook.experiments.many_machines import costs

if __name__ == "__main__":
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))  # all that is started inherits it
    measured = costs.measure(budget=1.0)
    model = costs.fit(measured)
    six = costs.measure([6], costs.Workload(rows=(64,)), parts=["step"], budget=1.0)
    ratios = costs.compare_steps(measured, model)["ratio"].tolist()
    predicted = costs.milliseconds(model, ranks=6, rows=64) / 1e3 / six["seconds"].item()
    print(json.dumps({"whole steps": ratios, "six ranks": predicted}))
