"""Clusters on one machine, for the tests: pretend hosts, and Slurm on them.

`hosts.py` makes hosts out of Linux namespaces, `slurm.py` starts Slurm's own daemons on such hosts.
Both need root. Tests that use them are marked `cluster`: `missing` says what keeps them from
running on this machine, and the end of a test run repeats it.
"""

import os
import shutil
from functools import cache

from tests.clusters.hosts import Hosts

INSTALLS = "`make system-packages` installs it on Debian and Ubuntu"
# program -> what it is called in words; the labs start each of them
PROGRAMS = {
    "ip": "iproute2",
    "slurmctld": "Slurm's controller",
    "slurmd": "Slurm's node daemon",
    "sbatch": "Slurm's client",
    "munged": "munge",
    "qsub": "qsub for Slurm",
}


@cache
def missing() -> str:
    """What this machine lacks to start a cluster, in words that follow "needs"; "" if nothing."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "root, on Linux"
    for program, words in PROGRAMS.items():
        if shutil.which(program) is None:
            return f"{words}: {INSTALLS}"
    try:
        with Hosts(2):
            return ""
    except RuntimeError as refusal:  # root in a container may not be allowed to do this
        return f"the right to make network namespaces ({refusal})"
