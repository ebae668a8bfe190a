"""Fix two job scripts: the one for Slurm has three faults, the one for PBS has two.

Both should train on two nodes with four GPUs each, and neither does. Your function returns their
texts. The check reads the directives as sbatch and qsub do, and has bash run the rest, with
stand-ins for srun, pbsdsh, torchrun and other commands; nothing is submitted. It shows you one
fault after another. A correct script does this:

- It asks for 2 nodes with 4 GPUs each, for half an hour. The scheduler chooses the nodes.
- It starts one torchrun on each node, with one rank for each of the 4 GPUs.
- The two meet at one of the nodes, at a port that no other job uses: jobs may share nodes.
- The ranks run `train.py --epochs 5`, which is in the folder where the script was submitted.
- Under Slurm, if training fails on any node, the script ends with a status other than 0. (PBS's
  pbsdsh always returns 0, so the PBS script need not do this here; `start_ranks.sh` shows how.)

The two schedulers differ. (`$PBS_O_WORKDIR` is the folder where qsub was typed.)

| what | Slurm | PBS |
|---|---|---|
| The script runs on | the first node | the first node |
| in which folder | where it was submitted | the home folder |
| The names of the nodes, one a line | `scontrol show hostnames` | the file `$PBS_NODEFILE` |
| A command starts | with `srun`, once for each task | with `pbsdsh`, once a line of that file |
| and runs in | that of the script | the home folder |
| with which variables | Slurm's and the script's exported ones | PBS's only |
"""

import re
from operator import eq
from typing import Any

from ddp_workbook.judging import CheckFailed, Comparison, SingleProcessCheck, in_words
from ddp_workbook.judging.job_facts import facts
from ddp_workbook.judging.job_scripts import BASH, PROGRAM

MINUTES = 12
HINTS = [
    "Play the scheduler: which of the lines at the top do you read, and what do you give the job? "
    "Then play the shell: which command starts how often, on which node, in which folder?",
    "Each script is right where the other one is wrong. How does the PBS script find the first "
    "node? Which of the two has all its directives above the first command?",
    "`scontrol show hostnames` lists the nodes of a job; export the result, so that the commands "
    "of srun see it. Inside '...' the shell leaves $names alone, for the shell on the node to fill "
    'in; inside "..." it fills them in itself. One of the two commands should start with `cd`.',
]


def fix_job_script() -> tuple[str, str]:
    """Return the texts of both fixed scripts: first Slurm, then PBS."""
    ### BEGIN SOLUTION
    slurm = r"""
    #!/bin/bash
    #SBATCH --job-name=digits
    #SBATCH --nodes=2
    #SBATCH --ntasks-per-node=1
    #SBATCH --cpus-per-task=32
    #SBATCH --gpus-per-node=4
    #SBATCH --time=00:30:00
    module load pytorch

    head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    port=$((20000 + SLURM_JOB_ID % 10000))
    export head port
    srun --cpus-per-task=32 bash -c 'torchrun --nnodes=$SLURM_NNODES --nproc-per-node=4 \
        --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=$head:$port \
        train.py --epochs 5'
    """
    pbs = r"""
    #!/bin/bash
    #PBS -N digits
    #PBS -l select=2:ncpus=32:ngpus=4
    #PBS -l place=scatter
    #PBS -l walltime=00:30:00
    #PBS -j oe

    head=$(head -n 1 "$PBS_NODEFILE")
    nodes=$(sort -u "$PBS_NODEFILE" | wc -l)
    port=$((20000 + ${PBS_JOBID%%.*} % 10000))
    pbsdsh -- bash -lc "cd '$PBS_O_WORKDIR' && torchrun --nnodes=$nodes --nproc-per-node=4 \
        --rdzv-backend=c10d --rdzv-id=$PBS_JOBID --rdzv-endpoint=$head:$port \
        train.py --epochs 5"
    """
    ### GIVEN
    # slurm = r"""
    # #!/bin/bash
    # #SBATCH --job-name=digits
    # #SBATCH --nodes=2
    # #SBATCH --ntasks-per-node=4
    # #SBATCH --cpus-per-task=32
    # #SBATCH --time=00:30:00
    # module load pytorch
    # #SBATCH --gpus-per-node=4
    #
    # port=$((20000 + SLURM_JOB_ID % 10000))
    # export port
    # srun --cpus-per-task=32 bash -c 'torchrun --nnodes=$SLURM_NNODES --nproc-per-node=4 \
    #     --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=$(hostname):$port \
    #     train.py --epochs 5'
    # """  # TODO: three faults above, two below
    # pbs = r"""
    # #!/bin/bash
    # #PBS -N digits
    # #PBS -l select=2:ncpus=32:ngpus=4
    # #PBS -l place=scatter
    # #PBS -l walltime=00:30:00
    # #PBS -j oe
    #
    # head=$(head -n 1 "$PBS_NODEFILE")
    # nodes=$(sort -u "$PBS_NODEFILE" | wc -l)
    # port=$((20000 + ${PBS_JOBID%%.*} % 10000))
    # pbsdsh -- bash -lc 'torchrun --nnodes=$nodes --nproc-per-node=4 \
    #     --rdzv-backend=c10d --rdzv-id=$PBS_JOBID --rdzv-endpoint=$head:$port \
    #     train.py --epochs 5'
    # """
    ### END SOLUTION
    return slurm, pbs


# Where to look -> facts about a script, each with the value that is required.
FACTS_BY_HINT: dict[str, dict[str, Any]] = {
    "Whose message is it? Is every option spelled as in that command's manual, and every quote and "
    "bracket closed? A \\ joins two lines only if nothing follows it.": {"error message": []},
    "To bash, every directive is a comment. What must such a line begin with, letter for letter, "
    "for the scheduler to read it, and at which line does it stop reading?": {
        "directives that the scheduler does not read": [],
    },
    "Which directives say how many nodes the job gets, and that no two chunks share one? Which "
    "nodes will be free, only the scheduler knows.": {
        "nodes": 2,
        "nodes asked for by name": [],
        "chunks that may share a node": 0,
    },
    "A job gets no GPU that it has not asked for. Which directive asks this scheduler for GPUs, "
    "and does it count those of a node, or of the whole job?": {"GPUs on each node": 4},
    "Which directive limits the time, and which unit does this scheduler read? A bare number means "
    "minutes to one of them and seconds to the other.": {"minutes until the job is ended": 30},
    "The scheduler opens the log before the first command runs. What makes its folder?": {
        "missing folders of the log": [],
    },
    "Which loop or which waiting command of the script never ends?": {"the script": "ends"},
    "A job script runs on the first node only. Which command starts something on every node, and "
    "does the script reach it and wait for it? What starts the four ranks there, and tells each "
    "its number?": {
        "nodes without a torchrun": [],
        "started in the place of torchrun": [],
    },
    "torchrun starts the ranks of a node: how often must torchrun itself be started there? "
    "--nnodes counts the torchruns that meet (with --standalone, one), --nproc-per-node the ranks "
    "of each. What was counted here?": {
        "torchruns on a node": 1,
        "torchruns that meet": "2",
        "ranks of a torchrun": "4",
    },
    "Which shell puts the value in: the script's, once, or the one on each node? Does that shell "
    "know the name? The kind of quotes decides.": {
        "options without a value": [],
        "endpoints that differ": [],
        "values of --rdzv-id that differ": [],
    },
    "With --rdzv-backend=c10d the nodes agree on their numbers. Without it, each node needs the "
    "right --node-rank, and the node of the endpoint is 0.": {"rendezvous": "c10d"},
    "Which variable or file names the job's nodes, and how do you get one name out of it?": {
        "endpoint on none of the job's nodes": [],
    },
    "Two jobs may share a node. Which number belongs to one job only, and how do you make a port "
    "of it, from 1024 to 65535? (0 means any free port: the other node does not know which.)": {
        "port that no user may choose": [],
        "port that both jobs take": [],
    },
    "In which folder does a PBS job begin, and in which one does a command of pbsdsh? Which "
    "variable holds the folder where qsub was typed?": {f"nodes that do not find {PROGRAM}": []},
    "The program is followed by its own arguments. Where do torchrun's options belong?": {
        "the ranks run": f"{PROGRAM} --epochs 5"
    },
    "A script has the status of its last command, and a pipe that of its last part. Which "
    "command's status is it here?": {
        "status if nothing fails": "0",
        "status if training fails on one node": "not 0",
    },
}
REQUIRED = {fact: value for facts in FACTS_BY_HINT.values() for fact, value in facts.items()}


def observe(returned: Any, scheduler: str) -> dict[str, Any]:
    """Whether two scripts came back, and which facts about one of them are not as required."""
    if not BASH:
        actual, look = "no bash on this machine to run them", "Install bash; on Windows, with WSL."
        raise CheckFailed("both scripts", actual, "bash", look)
    is_pair = isinstance(returned, list | tuple) and [type(script) for script in returned] == [
        str,
        str,
    ]
    is_pair = is_pair and not ("#PBS" in returned[0] and "#SBATCH" in returned[1])
    known = facts_of(scheduler, returned[scheduler == "pbs"]) if is_pair else {}
    return {"is_pair": is_pair, "text": in_words(returned), "facts": known}


def facts_of(scheduler: str, text: str) -> dict[str, Any]:
    """The facts as required, or as they were first seen to be otherwise."""
    known = dict(REQUIRED)
    for fact, value in facts(scheduler, without_margin(text)):
        if known[fact] == REQUIRED[fact]:
            known[fact] = value
    return known


def without_margin(text: str) -> str:
    """The text without the margin of its first line, as it stands in a file."""
    text = text.strip("\n")
    margin = len(text) - len(text.lstrip(" "))
    return re.sub(rf"^ {{0,{margin}}}", "", text, flags=re.M).rstrip() + "\n"


CHECK = SingleProcessCheck(
    cases=["slurm", "pbs"],
    caller=lambda function, scheduler: function(),  # it is not told which script will be read
    call_text=lambda case: (
        "sbatch, with the first script" if case == "slurm" else "qsub, with the second"
    ),
    observe=observe,
    compare={
        "is_pair": Comparison(
            "The given function returned both scripts as strings, the one for Slurm "
            "first. Does its last line still do that?",
            True,
            actual=lambda obs: obs.actual["text"],
            required="two texts: the script for Slurm, the script for PBS",
        ),
        "facts": Comparison(
            {fact: hint for hint, facts in FACTS_BY_HINT.items() for fact in facts},
            REQUIRED,
            actual="{part}: {value}{also_wrong}",
            required="{part}: {expected}",
            equal=eq,
        ),
    },
    errors={"does not end": "Which loop or which waiting command of both scripts never ends?"},
    on_pass="both start 2 torchruns with 4 ranks each on 2 nodes with 4 GPUs, in each of 2 jobs; "
    "the one for Slurm fails if one of its nodes fails",
)
