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
| A command starts | with `srun`, once for each task | with `pbsdsh`, once for each line of it |
| in which folder | that of the script | the home folder |
| with which variables | Slurm's and the script's exported ones | PBS's only |
"""

import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from ddp_workbook.exercises import Alone, Look, NotYet, Seen, When
from ddp_workbook.exercises.judging import directives, job_scripts, torchrun
from ddp_workbook.exercises.judging.directives import Asked, Refused
from ddp_workbook.exercises.judging.job_scripts import BASH, PROGRAM, Run
from ddp_workbook.exercises.judging.same import kind
from ddp_workbook.exercises.judging.values import in_words

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


def mend_the_job_script() -> tuple[str, str]:
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


NODES, GPUS, SECONDS = 2, 4, 30 * 60
ARGUMENTS = ("--epochs", "5")
JOBS = (4711, 4712)  # the same script, submitted twice; in the second one training fails
MARKS = {"slurm": "#SBATCH", "pbs": "#PBS"}
EMPTY = re.compile(r"=$|(^|=):|:$")  # --nnodes=, and host:port without one of them
NAMES_NODES = {  # options with which a script asks for certain nodes
    "slurm": re.compile(r"(?<!\S)(-w|--nodelist)"),
    "pbs": re.compile(r"\b(host|vnode)="),
}
OWN_COUNT = ("gpu", "auto")  # torchrun looks how many GPUs there are


class Fault(Enum):
    """What may be wrong with a script, in the order in which a user would run into it."""

    SYNTAX = "the shell's syntax"
    REFUSED = "a directive"
    NO_DIRECTIVE = "a comment"
    LATE = "a line that comes too late"
    NODES = "the nodes"
    CHOSEN = "the choice of the nodes"
    GPUS = "the GPUs"
    PLACE = "the placement"
    TIME = "the time limit"
    LOG = "the log"
    ENDLESS = "the end"
    NOTHING = "the start"
    NO_TORCHRUN = "torchrun"
    ELSEWHERE = "the other node"
    MANY = "processes on a node"
    OPTIONS = "torchrun's options"
    EMPTY = "variables on the nodes"
    NNODES = "--nnodes"
    NPROC = "--nproc-per-node"
    BACKEND = "the rendezvous"
    DIFFERENT = "the endpoint"
    NO_NODE = "the endpoint's host"
    PORT = "the port"
    SAME_PORT = "the port of another job"
    ID = "--rdzv-id"
    FOLDER = "the folder"
    PROGRAM = "the program's arguments"
    EARLY = "the script's own end"
    STATUS = "the exit status"


Found = Iterator[tuple[Fault, str]]  # each with what happens, in words


def faults(scheduler: str, text: str) -> list[tuple[Fault, str]]:
    """Every fault of a script, each once, in the order of `Fault`."""
    text = without_margin(text)
    found = dict(reversed([*all_faults(scheduler, text)]))
    return sorted(found.items(), key=lambda one: [*Fault].index(one[0]))


def without_margin(text: str) -> str:
    """The text without the margin of its first line, as it stands in a file."""
    text = text.strip("\n")
    margin = len(text) - len(text.lstrip(" "))
    lines = [line[min(margin, len(line) - len(line.lstrip(" "))) :] for line in text.split("\n")]
    return "\n".join(lines).rstrip() + "\n"


def all_faults(scheduler: str, text: str) -> Found:
    """Every fault, in the order in which it is found."""
    if said := job_scripts.syntax_error(text):
        yield Fault.SYNTAX, f"bash: {said}"
        return
    read, ignored = directives.directives(text, MARKS[scheduler])
    try:
        if scheduler == "slurm" and not text.startswith("#!"):
            raise Refused("sbatch: this does not look like a batch script: where is its #! line?")
        asked = asked_of(scheduler, read)
    except Refused as error:
        yield Fault.REFUSED, f"{error}"
        return
    yield from wrongly_asked(scheduler, asked, ignored)
    if named := [options for options in read if NAMES_NODES[scheduler].search(options)]:
        yield Fault.CHOSEN, f"The job waits until certain nodes are free: {named[0]}"
    runs = []
    for job in JOBS:
        runs.append(job_scripts.play(scheduler, text, asked, job, fails=job == JOBS[1]))
        if runs[-1].status is None:
            yield Fault.ENDLESS, "The script does not end, although torchrun ends at once here."
            return
    for run in runs:
        yield from wrongly_started(run)
    yield from wrong_between(*runs)
    if scheduler == "slurm":  # OpenPBS's pbsdsh returns 0 whatever its commands return
        yield from hidden_failure(runs[1])


def asked_of(scheduler: str, lines: list[str]) -> Asked:
    """What these directives ask for. Raises Refused."""
    read = directives.asked_of_slurm if scheduler == "slurm" else directives.asked_of_pbs
    return read(lines)


def wrongly_asked(scheduler: str, asked: Asked, ignored: list[directives.Ignored]) -> Found:
    """Where the job gets something else than it should."""
    got = {
        "nodes": (
            Fault.NODES,
            asked.nodes == NODES,
            f"The job gets {plural(asked.nodes, 'node')}.",
        ),
        "gpus": (Fault.GPUS, asked.gpus == GPUS, gpus_in_words(asked.gpus)),
        "seconds": (Fault.TIME, asked.seconds == SECONDS, time_in_words(asked.seconds)),
    }
    for what, (fault, right, words) in got.items():
        if right:
            continue
        unread = [one for one in ignored if would_set(scheduler, one.options, what)]
        if unread:
            fault = Fault.LATE if unread[0].late else Fault.NO_DIRECTIVE
            words += f" The line `{unread[0].line}` is not read."
        yield fault, words
    if scheduler == "pbs" and asked.nodes > 1 and not asked.scattered:
        yield Fault.PLACE, "PBS may put the chunks of the job on one node."
    folder, slash, _ = asked.output.rpartition("/")
    if slash and not folder.startswith(("/", "~", "$")):
        yield Fault.LOG, f"The log goes into the folder {folder!r}, which is not there."


def would_set(scheduler: str, options: str, what: str) -> bool:
    """Whether a line that is not read would have set the nodes, the GPUs or the time."""
    try:
        return getattr(asked_of(scheduler, [options]), what) != getattr(Asked(), what)
    except Refused:
        return False


def plural(count: float, what: str) -> str:
    """ "1 node", "2 nodes", "no node" """
    return f"{count:g} {what}{'s' * (count != 1)}" if count else f"no {what}"


def gpus_in_words(count: float) -> str:
    """What each node has."""
    return f"The job gets {plural(count, 'GPU')}{' on each node' * (count > 0)}."


def time_in_words(seconds: int | None) -> str:
    """The limit."""
    if seconds is None:
        return "The job has no time limit of its own, only the site's."
    minutes = seconds / 60
    words = plural(seconds, "second") if seconds < 60 else plural(minutes, "minute")
    return f"The job is ended after {words}."


def wrongly_started(run: Run) -> Found:
    """What starts where, in one run."""
    if not run.starts:
        said = f" bash: {run.errors}" if run.errors else ""
        yield Fault.NOTHING, f"No torchrun starts on any node.{said}"
        return
    nodes = [one.node for one in run.starts]
    if missing := [node for node in run.nodes if node not in nodes]:
        yield Fault.ELSEWHERE, f"torchrun starts on {nodes[0]}, but not on {missing[0]}."
    most = max(nodes, key=nodes.count)
    if nodes.count(most) > 1:
        words = f"{nodes.count(most)} commands start on {most}, each with its own ranks."
        yield Fault.MANY, words
    lines = []
    for one in run.starts:
        try:
            lines.append((one, torchrun.read(one.words)))
        except torchrun.Unreadable as problem:
            another = problem.reason is torchrun.Reason.ANOTHER_COMMAND
            words = (
                f"On {one.node}, this starts instead:\n{' '.join(one.words)}"
                if another
                else problem
            )
            yield Fault.NO_TORCHRUN if another else Fault.OPTIONS, f"{words}"
            return
    yield from wrongly_called(run, lines)


def wrongly_called(run: Run, lines: list[tuple[job_scripts.Start, torchrun.Line]]) -> Found:
    """What the options say, on each node."""
    for one, line in lines:
        if empty := [word for word in one.words if EMPTY.search(word)]:
            words = f"On {one.node} torchrun gets {' and '.join(empty)}"
            yield Fault.EMPTY, f"{words}\nbash: {run.errors}" if run.errors else words
        if line.standalone or line.nnodes not in ("", str(NODES)):
            said = "--standalone" if line.standalone else f"--nnodes={line.nnodes}"
            yield Fault.NNODES, f"torchrun gets {said} on each of {plural(NODES, 'node')}."
        if line.nproc.lower() not in ("", str(GPUS), *OWN_COUNT):
            yield Fault.NPROC, f"torchrun gets --nproc-per-node={line.nproc} on {one.node}."
        program = line.program[0].removeprefix("./")
        absolute = program.endswith(f"/submitted/{PROGRAM}")
        if program == PROGRAM and one.folder != "submitted":
            words = f"On {one.node} torchrun starts in the home folder, which has no {PROGRAM}."
            yield Fault.FOLDER, words
        elif line.program[1:] != ARGUMENTS or not (program == PROGRAM or absolute):
            yield Fault.PROGRAM, f"The ranks run {' '.join(line.program)}"
    if not any(line.standalone for _, line in lines):
        yield from wrong_meeting(run, lines)


def wrong_meeting(run: Run, lines: list[tuple[job_scripts.Start, torchrun.Line]]) -> Found:
    """Whether the lines meet, at a node of the job."""
    endpoints = {one.node: line.endpoint for one, line in lines}
    backends = {line.backend for _, line in lines}
    ranks = {one.node: line.node_rank for one, line in lines}
    by_hand = backends == {"static"} and sorted(ranks.values()) == [*range(len(run.nodes))]
    if backends != {"c10d"} and not by_hand:
        yield Fault.BACKEND, f"The rendezvous is {' and '.join(sorted(backends))}."
    host, port = lines[0][1].host, lines[0][1].port
    if len({*endpoints.values()}) > 1:
        each = ", ".join(f"{endpoint} on {node}" for node, endpoint in endpoints.items())
        yield Fault.DIFFERENT, f"The endpoint is {each}."
    elif host and run.addresses.get(host, host) not in run.nodes:
        words = f"The endpoint is {lines[0][1].endpoint}, and the nodes are {', '.join(run.nodes)}."
        yield Fault.NO_NODE, words
    elif by_hand and ranks.get(run.addresses.get(host, host)) != 0:
        yield Fault.BACKEND, f"--node-rank 0 is not on {host}, where the others look for it."
    if port and not 1024 <= int(port) <= 65535:
        yield Fault.PORT, f"The port is {port}."
    ids = {one.node: line.run_id for one, line in lines}
    if len({*ids.values()}) > 1 and backends == {"c10d"}:
        each = ", ".join(f"{name} on {node}" for node, name in ids.items())
        yield Fault.ID, f"--rdzv-id is {each}."


def wrong_between(one: Run, other: Run) -> Found:
    """Faults that need both jobs: a shared port, and a status other than 0 where nothing failed."""
    ports = [port_of(run) for run in (one, other)]
    if ports[0] and ports[0] == ports[1]:
        yield Fault.SAME_PORT, f"The jobs {JOBS[0]} and {JOBS[1]} both take port {ports[0]}."
    if one.status:
        said = f": {one.errors}" if one.errors else "."
        yield Fault.EARLY, f"Nothing fails, but the script ends with status {one.status}{said}"


def hidden_failure(run: Run) -> Found:
    """Whether the script ends with status 0 although training has failed."""
    if run.starts and run.status == 0:
        words = f"Training fails on {run.nodes[-1]}, but the script ends with status 0."
        yield Fault.STATUS, words


def port_of(run: Run) -> str:
    """The port of the first line; torchrun's default if none is given; "" if it is unknown."""
    try:
        line = torchrun.read(run.starts[0].words)
    except (torchrun.Unreadable, IndexError):
        return ""
    return line.port or ("" if line.standalone or EMPTY.search(line.endpoint) else "29400")


TO_DO: dict[Fault, tuple[str, str]] = {  # what is required, and where to look
    Fault.SYNTAX: (
        "a script that bash can read",
        "Is each quote closed, and each bracket? A \\ ends a line only if nothing follows it.",
    ),
    Fault.REFUSED: (
        "a script that the scheduler accepts",
        "The scheduler says what it refuses. Is the option spelled as in its manual?",
    ),
    Fault.NO_DIRECTIVE: (
        "2 nodes with 4 GPUs each, for 30 minutes",
        "To bash, each of these lines is a comment. What must such a line begin with, letter for "
        "letter, for the scheduler to read it?",
    ),
    Fault.LATE: (
        "2 nodes with 4 GPUs each, for 30 minutes",
        "The scheduler reads directives at the top. At which line does it stop?",
    ),
    Fault.NODES: ("2 nodes", "Which directive says how many nodes the job gets?"),
    Fault.CHOSEN: (
        "any 2 nodes, chosen by the scheduler",
        "Which directive names nodes? Tomorrow, others may be free.",
    ),
    Fault.GPUS: (
        "4 GPUs on each of 2 nodes",
        "A job gets no GPU that it has not asked for. Which directive asks this scheduler for "
        "GPUs, and for how many?",
    ),
    Fault.PLACE: (
        "2 chunks on 2 nodes",
        "Which resource of the whole job, besides select, keeps its chunks apart?",
    ),
    Fault.TIME: (
        "30 minutes",
        "Which unit does this scheduler read? A bare number means minutes to one of them and "
        "seconds to the other.",
    ),
    Fault.LOG: (
        "a log in a folder that exists before the job begins",
        "The scheduler opens the log before the first command runs. What makes its folder?",
    ),
    Fault.ENDLESS: (
        "a script that ends when torchrun has ended",
        "Which loop or which waiting command of the script never ends?",
    ),
    Fault.NOTHING: (
        "one torchrun on each node",
        "Which command should start torchrun on the nodes, and does the script reach it?",
    ),
    Fault.NO_TORCHRUN: (
        "one torchrun on each node",
        "What starts the four ranks of a node, and tells each its number?",
    ),
    Fault.ELSEWHERE: (
        "one torchrun on each node",
        "A job script runs on the first node only. Which command starts something on all nodes?",
    ),
    Fault.MANY: (
        "one torchrun on each node, with 4 ranks",
        "torchrun starts the ranks of a node. How often must torchrun itself be started there, and "
        "which option says so?",
    ),
    Fault.OPTIONS: ("a line that torchrun accepts", "torchrun says what it refuses."),
    Fault.EMPTY: (
        "values for all options, on both nodes",
        "Which shell replaces $name by its value: the script's, or the one on the node? Does that "
        "shell know the name? The kind of quotes decides.",
    ),
    Fault.NNODES: (
        "a torchrun that waits for 2 nodes",
        "--nnodes counts the torchruns that meet; with --standalone a torchrun meets no other. "
        "What was counted here?",
    ),
    Fault.NPROC: ("4 ranks on each node", "How many GPUs does a node have, and how many ranks?"),
    Fault.BACKEND: (
        "two torchruns that meet",
        "With --rdzv-backend=c10d the nodes agree on their numbers. Without it, each node needs "
        "the right --node-rank.",
    ),
    Fault.DIFFERENT: (
        "one endpoint, the same on both nodes",
        "What works out the endpoint: the job script, once, or each node for itself?",
    ),
    Fault.NO_NODE: (
        "an endpoint on one of the job's nodes",
        "Which variable or file names the job's nodes, and how do you get one name out of it?",
    ),
    Fault.PORT: (
        "a port from 1024 to 65535",
        "What is the largest port number, and from which number on may any user take a port? 0 "
        "means any free port, and the other node does not know which one.",
    ),
    Fault.SAME_PORT: (
        "a port of its own for each job",
        "Two jobs may share a node. Which number belongs to one job only, and how do you make a "
        "port of it?",
    ),
    Fault.ID: (
        "one id, the same on both nodes",
        "Nodes with different ids never meet. Which value is the same on both?",
    ),
    Fault.FOLDER: (
        f"a torchrun that finds {PROGRAM}, on both nodes",
        "In which folder does a PBS job begin, and in which one does a command of pbsdsh? Which "
        "variable holds the folder where qsub was typed?",
    ),
    Fault.PROGRAM: (
        f"{PROGRAM} {' '.join(ARGUMENTS)}",
        "The program is followed by its own arguments. Where do torchrun's options belong?",
    ),
    Fault.EARLY: ("status 0 if nothing fails", "Which command ends the script, or comes last?"),
    Fault.STATUS: (
        "a status other than 0, so that the scheduler knows",
        "A script has the status of its last command, and a pipe that of its last part. Which "
        "command's status is it here?",
    ),
}


def call(function: Callable, scheduler: str) -> Any:
    """Call it: it takes no arguments, because only the check chooses which script it reads."""
    return function()


def looked_at(returned: Any, scheduler: str) -> dict[str, Any]:
    """The kind of what came back, and the faults of one of the scripts."""
    if BASH is None:
        look = "Install bash. On Windows, it comes with WSL."
        raise NotYet("both scripts", "no bash on this machine to run them", "bash", look)
    form = form_of(returned)
    found = []
    if form == TWO:
        script = returned[scheduler == "pbs"]
        found = [(fault.name, words) for fault, words in faults(scheduler, script)]
    return {"form": form, "shown": in_words(returned), "faults": found}


TWO = "two scripts"


def form_of(returned: Any) -> str:
    """TWO, or what came back instead of two texts."""
    if not isinstance(returned, list | tuple):
        return kind(returned)
    if len(returned) != 2 or not all(isinstance(one, str) for one in returned):
        return "not two texts"
    if "#PBS" in returned[0] and "#SBATCH" in returned[1]:
        return "PBS first"
    return TWO


def first(seen: Seen) -> tuple[Fault, str]:
    """The fault that a user would run into first."""
    name, words = seen.came["faults"][0]
    return Fault[name], words


def first_is(fault: Fault) -> When:
    """Fits where this is the first fault."""
    return When(lambda seen: first(seen)[0] is fault)


def what_happens(seen: Seen) -> str:
    """The first fault in full, and the topics of the others."""
    (_, words), *others = seen.came["faults"]
    topics = ", ".join(Fault[name].value for name, _ in others)
    return words + (f"\n{len(others)} more in this script: {topics}" if others else "")


CHECK = Alone(
    cases=["slurm", "pbs"],
    given=lambda case: (case,),
    caller=call,
    called=lambda case: {"slurm": "sbatch, with the first script", "pbs": "qsub, with the second"}[
        case
    ],
    observe=looked_at,
    looks=[
        Look(
            of=lambda seen: seen.came["form"],
            right=TWO,
            mistakes={
                "In the cell you were given, the last line returned both scripts. Is it still "
                "there?": "None",
                "Which of the two scripts comes first?": "PBS first",
                "Is one of the two missing?": "a str",
            },
            otherwise="The given function returned both scripts as strings. What does yours "
            "return?",
            came=lambda seen: seen.came["shown"],
            required="two texts: the script for Slurm, the script for PBS",
        ),
        Look(
            of=lambda seen: [name for name, _ in seen.came["faults"]],
            right=[],
            mistakes={look: first_is(fault) for fault, (_, look) in TO_DO.items()},
            came=what_happens,
            required=lambda seen: TO_DO[first(seen)[0]][0],
        ),
    ],
    errors={  # both scripts
        "does not end": "Which loop or which waiting command of a script never ends?",
    },
    proves="both start 2 torchruns with 4 ranks each on 2 nodes with 4 GPUs, in each of 2 jobs; "
    "the one for Slurm fails if one of its nodes fails",
)
