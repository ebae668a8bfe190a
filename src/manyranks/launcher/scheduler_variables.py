"""Variables of Slurm and MPI, for scripts that read their rank there instead of torchrun's.

Those that a script mentions are set as the launcher of such a system would set them for a job of
one node with as many tasks as ranks.
"""

import os
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

HOST = "localhost"
JOB = "1"
TOOLS = os.path.join(os.path.dirname(__file__), "slurm_tools")  # scontrol, and a module hostlist
MAX_FILES = 50  # of a script and what it imports from beside it
MAX_FILE_BYTES = 200_000
RANK = (
    *("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK"),
    "PALS_RANKID",
)
LOCAL_RANK = (
    *("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK"),
    *("PMI_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "MV2_COMM_WORLD_LOCAL_RANK"),
    *("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"),
)
WORLD_SIZE = (
    *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"),
    *("PMI_SIZE", "MV2_COMM_WORLD_SIZE"),
    # All ranks are on one node, with a GPU each.
    *("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"),
    *("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_GPUS", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    *("PMI_LOCAL_SIZE", "MPI_LOCALNRANKS", "PALS_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
)
OF_THE_JOB = {
    **dict.fromkeys(("SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID"), JOB),
    **dict.fromkeys(("SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST"), HOST),
    **dict.fromkeys(("SLURM_SUBMIT_HOST", "SLURMD_NODENAME", "SLURM_TOPOLOGY_ADDR"), HOST),
    **dict.fromkeys(("SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST"), "127.0.0.1"),
    "SLURM_JOB_NAME": "train",
}
ONE_NODE = {
    **dict.fromkeys(("SLURM_NODEID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"), "0"),
    **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES"), "1"),
}
NAMES = {*RANK, *LOCAL_RANK, *WORLD_SIZE, *OF_THE_JOB, *ONE_NODE}
NAMES |= {"SLURM_CPUS_PER_TASK", "SLURM_SUBMIT_DIR"}
WORD = re.compile(r"\b(?:SLURMD?|OMPI|PMIX?|MV2|MPI|PALS|PBS)_[A-Z_]+\b|\bCUDA_VISIBLE_DEVICES\b")
IMPORT = re.compile(r"^\s*(?:from\s+\.?([\w.]+)\s+import|import\s+([\w., ]+))", re.M)


class SchedulerVariables:
    """The variables that a script and the modules beside it mention."""

    def __init__(self, script: str | None):
        self.texts = dict(_texts(script)) if script else {}
        words = {word for text in self.texts.values() for word in WORD.findall(text)}
        # In a job, whose own numbers are those of one task, its id and its hosts stay.
        self.names = sorted(words & NAMES - (OF_THE_JOB.keys() & os.environ.keys()))
        self.wants_gpu_numbers = "CUDA_VISIBLE_DEVICES" in words

    def of(self, rank: int, ranks: int, threads: int) -> dict[str, str]:
        """Their values on this rank."""
        values = (
            OF_THE_JOB
            | ONE_NODE
            | {
                **dict.fromkeys(RANK + LOCAL_RANK, str(rank)),
                **dict.fromkeys(WORLD_SIZE, str(ranks)),
                "SLURM_CPUS_PER_TASK": str(threads),
                "SLURM_SUBMIT_DIR": os.getcwd(),
            }
        )
        variables = {name: values[name] for name in self.names}
        in_a_job = "SLURM_JOB_ID" in os.environ
        if not in_a_job and any("scontrol" in text for text in self.texts.values()):
            variables["PATH"] = os.pathsep.join([TOOLS, os.environ.get("PATH", os.defpath)])
            variables["SLURM_JOB_NODELIST"] = HOST
        return variables

    def sentence(self) -> str:
        """Which of them are set; "" if none is."""
        if not self.names:
            return ""
        more = f" and {len(self.names) - 3} more" if len(self.names) > 3 else ""
        names = ", ".join(self.names[:3]) + more
        return f"{names}: set for each rank, as the scheduler would for one node."


def offer_hostlist() -> None:
    """In a rank: let `import hostlist` find a module that knows the one host, if none is there."""
    if find_spec("hostlist") is None:
        sys.path.append(TOOLS)


def _texts(script: str) -> Iterator[tuple[Path, str]]:
    """The script and the modules that it imports from its own folder, with their texts."""
    pending = [Path(script)]
    seen: set[Path] = set()
    while pending and len(seen) < MAX_FILES:
        path = pending.pop()
        if path in seen or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            continue
        seen.add(path)
        text = path.read_text(encoding="utf-8", errors="replace")
        yield path, text
        for groups in IMPORT.findall(text):
            for name in ",".join(groups).split(","):
                module = name.split(" as ")[0].strip().replace(".", os.sep)
                if module:
                    pending.append(path.parent / f"{module}.py")
