"""Clusters on one machine, for the tests: pretend hosts, and Slurm on them.

`hosts.py` makes hosts out of Linux namespaces, `slurm.py` starts Slurm's own daemons on such hosts.
Tests that use them are marked `cluster`: where `missing` names something, they are deselected, and
the end of the test run says so.
"""

import os
import shutil
from functools import cache

from tests.clusters.hosts import Hosts

# program that the labs start -> the Debian package it comes in
PROGRAMS = {
    "ip": "iproute2",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "qsub": "slurm-wlm-torque",
}


@cache
def missing() -> str:
    """What this machine lacks to start a cluster, in words that follow "needs"; "" if nothing."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:  # not on Windows
        return "root on Linux"
    absent = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if absent:
        return f"the Debian {'package' if len(absent) == 1 else 'packages'} {', '.join(absent)}"
    try:
        with Hosts(2):
            return ""
    except RuntimeError as refusal:  # root in a container may not be allowed to do this
        return f"network namespaces, which are not to be had here ({refusal})"
