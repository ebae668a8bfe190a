"""Write the torchrun command to type on one node of a job.

`hosts` maps the name of each node of the job to its number of GPUs, and `host` is the name of the
node that this line is typed on. The function is called once for each node, each time in a Python
process of that node and with the same dict, in the same order. Typed on their nodes, the lines must
start one job.

Return the words of the line as a list, such as `["torchrun", "--standalone", "train.py"]`. A text
is fine too; it is split as a shell would split it. Any spelling that torchrun accepts is right.

- Each node starts one rank for each of its GPUs. Nodes may have different numbers of GPUs.
- The nodes meet in a `c10d` rendezvous at `port`, which is free on all of them.
- Other jobs use the same nodes, so the name of the rendezvous contains `job`, the number of this
  job. No other job has this number.
- `program` is what would follow `python`: a file, or `-m` and a module, and then the arguments.
"""

import os
import platform
import shlex
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from unittest.mock import patch

from ddp_workbook.judging import (
    Comparison,
    Observation,
    Pattern,
    SingleProcessCheck,
    edit,
    in_words,
    set_order,
    torchrun,
)
from ddp_workbook.judging.equality import kind

MINUTES = 8
HINTS = [
    "Write down the lines for two nodes, one with 4 GPUs and one with 2. Which words must be the "
    "same on both? Which one may differ?",
    "torchrun needs three things to find the other nodes: how many there are, the address at "
    "which all of them meet, and a name for the job. `torchrun --help` has an option for each.",
    "--nnodes counts nodes; --nproc-per-node counts the ranks of this node only. The endpoint may "
    "be on any node of the job, as long as all lines name the same one: the first, for example.",
]


def torchrun_line(
    host: str, hosts: dict[str, int], port: int, job: str, program: list[str]
) -> list[str]:
    """Return the words of the command for `host`; `hosts` has the number of GPUs of each node."""
    ### BEGIN SOLUTION
    meeting_point = next(iter(hosts))  # any node of the job, but the same one in all lines
    return [
        "torchrun",
        f"--nnodes={len(hosts)}",
        f"--nproc-per-node={hosts[host]}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={meeting_point}:{port}",
        f"--rdzv-id={job}",
        *program,
    ]
    ### END SOLUTION


class Job(NamedTuple):
    """The GPUs of each host, the port, the name of the job, and what its ranks run."""

    hosts: dict[str, int]
    port: int
    job: str
    program: list[str]


@dataclass(frozen=True)
class ParsedLine:
    """What came back for a host, as torchrun reads it."""

    text: str
    form: str | None = "a torchrun command"  # or what came in its place
    line: torchrun.Line | None = None


CASES = [
    Job({"gpu-07": 4, "gpu-11": 2, "gpu-12": 8}, 29431, "4711", ["train.py", "--epochs", "5"]),
    Job({"n1": 1, "n2": 1}, 29600, "17", ["train.py"]),
    Job(
        {"rack-a.cluster.org": 2, "rack-b.cluster.org": 2},
        29500,
        "4712",
        ["/data/my runs/train.py", "--note", "a second try", "--nnodes", "7"],
    ),
    Job({"10.0.0.7": 3, "10.0.0.9": 5}, 31001, "90210", ["-m", "digits.train", "--width", "64"]),
    Job({"gpu-11": 4}, 29431, "4713", ["train.py", "--epochs", "5"]),
]
LOCAL_NAMES = ("localhost", "127.0.0.1", "0.0.0.0", "[::1]")  # each host's own name for itself


def make_args(case: Job, rank: int) -> tuple:
    """The arguments; the dict and the list are this call's own."""
    return [*case.hosts][rank], dict(case.hosts), case.port, case.job, [*case.program]


def call_on_host(function: Callable, host: str, hosts: dict, *rest: Any) -> Any:
    """Call it as on that host, in a process of its own and at another time.

    A set of strings has another order in each process, too.
    """
    set_order.RankOrderedSet.reverse_on_odd_ranks = True
    number = [*hosts].index(host)
    answers = {
        (os, "getpid"): os.getpid() + number,
        (time, "time"): time.time() + 5 * number,
        (socket, "gethostname"): host,
        (socket, "getfqdn"): host,
        (platform, "node"): host,
    }
    with ExitStack() as patches:
        patches.enter_context(patch.dict(os.environ, RANK=str(number)))
        for (module, name), answer in answers.items():
            patches.enter_context(patch.object(module, name, return_value=answer))
        return function(host, hosts, *rest)


def parse(returned: Any, *_: Any) -> ParsedLine:
    """Read what came back."""
    is_list = isinstance(returned, list | tuple)
    words = returned if is_list else []
    if other_kinds := [kind(word) for word in words if not isinstance(word, str)]:
        return ParsedLine(in_words(returned), f"a list with {other_kinds[0]} in it")
    if not is_list and not isinstance(returned, str):
        return ParsedLine(in_words(returned), returned if returned is None else kind(returned))
    text = shlex.join(returned) if is_list else returned
    try:
        line = torchrun.read([*returned] if is_list else torchrun.split_line(returned))
    except torchrun.Unreadable as problem:
        return ParsedLine(f"{text}\n{problem}", problem.reason.value)
    return ParsedLine(text, line=line)


def host_of(obs: Observation) -> str:
    """The host that the line is for."""
    return [*obs.case.hosts][obs.rank]


def terminal_line(obs: Observation) -> str:
    """The line as a terminal shows it, with the node that it is for."""
    return f"{host_of(obs)}$ {obs.actual.text}"


def hosts_agree(obs: Observation, attribute: str) -> bool:
    """Whether all hosts' lines say the same; one line alone does not tell."""
    values = {getattr(rank_obs.actual.line, attribute) for rank_obs in obs.all_ranks}
    return len(values) == 1 and len(obs.all_ranks) == len(obs.case.hosts)


def hosts_differ(obs: Observation) -> bool:
    """Whether the hosts' values differ."""
    return len({rank_obs.value for rank_obs in obs.all_ranks}) > 1


def is_standalone(obs: Observation) -> bool:
    """Whether the line makes a job of this host, although there are others."""
    return obs.actual.line.standalone and len(obs.case.hosts) > 1


def ranks(obs: Observation) -> str:
    """How many ranks the line starts."""
    nproc = obs.actual.line.nproc.strip().lower()
    counts_gpus = nproc in ("gpu", "auto")  # torchrun looks how many GPUs there are
    return f"{obs.case.hosts[host_of(obs)]}" if counts_gpus else nproc


def endpoint(obs: Observation) -> str:
    """Where the hosts meet; every right answer is shown as the first host and the port."""
    line, case = obs.actual.line, obs.case
    allowed = [*case.hosts, *LOCAL_NAMES] if len(case.hosts) == 1 else case.hosts
    right = hosts_agree(obs, "endpoint") and line.host in allowed and line.port == str(case.port)
    return f"{next(iter(case.hosts))}:{case.port}" if right or line.standalone else line.endpoint


def name_of_job(obs: Observation) -> str:
    """The job's name; its number if that is part of a name that all hosts use."""
    line, job = obs.actual.line, obs.case.job
    right = hosts_agree(obs, "run_id") and job in line.run_id
    return job if right or line.standalone else line.run_id


def with_line(label: str, part: Comparison) -> Comparison:
    """A part of the line, whose words begin with the line itself."""
    return replace(
        part,
        actual=lambda obs: f"{terminal_line(obs)}\n{label}: {obs.value}",
        required=part.required or (lambda obs: f"{label}: {obs.expected}"),
    )


PARTS = {
    "the ranks run": Comparison(
        "torchrun takes whatever follows its last option for the program and its arguments.",
        lambda case: case.program,
        lambda obs: [*obs.actual.line.program],
    ),
    "nodes of the job": Comparison(
        "How many nodes does the job have, and which option counts them?",
        lambda case: str(len(case.hosts)),
        lambda obs: "1 (--standalone)" if is_standalone(obs) else obs.actual.line.nnodes,
    ),
    "ranks on this node": Comparison(
        "How many GPUs does this node have, according to `hosts`?",
        lambda case, rank: str([*case.hosts.values()][rank]),
        ranks,
    ),
    "rendezvous": Comparison(
        "Which kind of rendezvous does the task ask for?",
        "c10d",
        lambda obs: obs.actual.line.backend,
    ),
    "endpoint": Comparison(
        "Is this the name of one of the job's nodes, followed by a colon and the port?",
        lambda case: f"{next(iter(case.hosts))}:{case.port}",
        endpoint,
        required=lambda obs: (
            f"one of {[*obs.case.hosts]} and the port {obs.case.port}, the "
            f"same in all {len(obs.case.hosts)} lines"
        ),
    ),
    "name of the job": Comparison(
        "Another job may have this name as well. What belongs to this job only?",
        lambda case: case.job,
        name_of_job,
        required=lambda obs: (
            f"a name with the job's number, {obs.case.job}, in it, the same in all lines"
        ),
    ),
}
CHECK = SingleProcessCheck(
    cases=CASES,
    times=lambda case: len(case.hosts),
    make_args=make_args,
    caller=call_on_host,
    observe=parse,
    compare={
        "command": Comparison(
            "Which of your lines makes the list of words?",
            ParsedLine.form,
            lambda obs: obs.actual.form,
            actual=terminal_line,
            required=lambda obs: f"a torchrun command for ranks that run {obs.case.program}",
        ),
        **{label: with_line(label, part) for label, part in PARTS.items()},
    },
    mistakes={
        "Each entry of the list is one word, a string. Which of yours is a number, or a list?": [
            edit('f"--nnodes={len(hosts)}"', '"--nnodes", len(hosts)'),
            edit("*program", "program"),
        ],
        "Which command starts the ranks, and is it the first word?": [
            edit('"torchrun"', '"srun"'),
            edit('"torchrun"', '"python", "-m", "torch.distributed.launch"'),
        ],
        "The program and its arguments have become one word, so this is the name of a file. What "
        "keeps them apart?": edit("*program", '" ".join(program)'),
        "torchrun says what is wrong. Is each option spelled as in `torchrun --help`, is each "
        "entry of the list one word, and does every option have its value?": edit("nnodes", "n"),
        "torchrun itself starts Python, once for each rank. What is left of the program?": edit(
            "*program", '"python", *program'
        ),
        "The program's arguments are missing. Where do they belong in the line?": edit(
            "*program", '*program[: 1 + (program[0] == "-m")]'
        ),
        "Without -m, torchrun takes the module for a file.": edit(
            "*program", '*program[program[0] == "-m" :]'
        ),
        "One word has become several. What does the shell do at a space, and how do you keep it "
        "from that?": edit("*program", '*" ".join(program).split()'),
        "By default, a job has one node. Which option says how many nodes torchrun waits for?": (
            edit('f"--nnodes={len(hosts)}",', "")
        ),
        "By default, torchrun starts one rank. Which option says how many?": edit(
            'f"--nproc-per-node={hosts[host]}",', ""
        ),
        "Every node starts equally many. How many GPUs does this one have?": [
            edit("hosts[host]", count)
            for count in (
                "hosts[meeting_point]",
                "max(hosts.values())",
                "min(hosts.values())",
                "sum(hosts.values())",
                "sum(hosts.values()) // len(hosts)",
                "len(hosts)",
            )
        ],
        "By default, the backend is `static`: it takes --master-addr, and --node-rank numbers the "
        "nodes by hand. Which option asks for c10d?": edit('"--rdzv-backend=c10d",', ""),
        "No line says where the nodes meet. Which option is for that?": edit(
            'f"--rdzv-endpoint={meeting_point}:{port}",', ""
        ),
        "The lines name different nodes. A set of strings has another order in every process. "
        "Which order is the same everywhere?": edit("iter(hosts)", "iter(set(hosts))"),
        "By default, every job is called `none`, and would join any other job at the same node and "
        "port. Which option names the job?": edit('f"--rdzv-id={job}",', ""),
        "One word of the list is one word of the line: an option and its value are two, or one "
        "with a = between them.": Pattern(
            lambda obs: any(word.startswith("-") and " " in word for word in obs.value),
            "the ranks run",
        ),
        "Everything after the program is passed to the program. Where must torchrun's own "
        "options stand?": Pattern(
            lambda obs: any(
                word.startswith(("--n", "--rdzv")) and word not in obs.expected
                for word in obs.value
            ),
            "the ranks run",
        ),
        "--standalone makes a whole job of one node, which meets no other. What do several "
        "nodes need?": Pattern(is_standalone, "nodes of the job"),
        "With a range, torchrun starts with fewer nodes if others are late. How many must "
        "there be?": Pattern(lambda obs: ":" in obs.value, "nodes of the job"),
        "On every node, this name means that node itself. Which name means the same node "
        "everywhere?": Pattern(lambda obs: obs.actual.line.host in LOCAL_NAMES, "endpoint"),
        "The lines of this job name different endpoints. What must be the same everywhere?": (
            Pattern(hosts_differ, "endpoint")
        ),
        "The node is right. At which port do they meet?": Pattern(
            lambda obs: obs.actual.line.host in obs.case.hosts, "endpoint"
        ),
        "The nodes give the job different names, so these are different jobs. What do all of "
        "them know?": Pattern(hosts_differ, "name of the job"),
    },
    unchanged_hint="Which line changes the caller's dict or list?",
    errors={
        "KeyError": "`hosts` is a dict: host name to number of GPUs. Which key do you look up?",
        "concatenate": "A number is not a string. Which of the words contains one?",
    },
    on_pass="torchrun's own parser reads one job in the lines, for 1 to 3 nodes with 1 to 8 GPUs",
)
