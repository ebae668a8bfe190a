"""Write the torchrun command to type on one host of a job.

`hosts` maps the name of each host of the job to its number of GPUs, and `host` is the host that
this line is typed on. The function is called once for each host, each time in a Python process of
that host and with the same dict, in the same order. Typed on their hosts, the lines must start one
job.

Return the words of the line as a list, such as `["torchrun", "--standalone", "train.py"]`. A text
is fine too; it is split as a shell would split it. Any spelling that torchrun accepts is right.

- Each host starts one rank for each of its GPUs. Hosts may have different numbers of GPUs.
- The hosts meet in a `c10d` rendezvous at `port`, which is free on all of them.
- Other jobs use the same hosts, so the name of the rendezvous contains `job`, the number of this
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
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

from ddp_workbook.exercises import Alone, Look, Seen, When
from ddp_workbook.exercises.judging import torchrun, unordered
from ddp_workbook.exercises.judging.same import kind
from ddp_workbook.exercises.judging.torchrun import Reason
from ddp_workbook.exercises.judging.values import in_words

MINUTES = 8
HINTS = [
    "Write down the lines for two hosts, one with 4 GPUs and one with 2. Which words must be the "
    "same on both? Which one may differ?",
    "torchrun needs three things to find the other hosts: how many there are, the address at "
    "which all of them meet, and a name for the job. `torchrun --help` has an option for each.",
    "--nnodes counts hosts; --nproc-per-node counts the ranks of this host only. The endpoint may "
    "be on any host of the job, as long as all lines name the same one: the first, for example.",
]


def torchrun_line(
    host: str, hosts: dict[str, int], port: int, job: str, program: list[str]
) -> list[str]:
    """Return the words of the command for `host`; `hosts` has the number of GPUs of each host."""
    ### BEGIN SOLUTION
    meeting_point = next(iter(hosts))  # any host of the job, but the same one in all lines
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


class Case(NamedTuple):
    """A job."""

    hosts: dict[str, int]
    port: int
    job: str
    program: list[str]

    @property
    def head(self) -> str:
        """The first host."""
        return next(iter(self.hosts))


@dataclass(frozen=True)
class Typed:
    """What came back for a host, as torchrun reads it."""

    form: str  # A_LINE, or what came in its place
    shown: str
    line: torchrun.Line | None = None
    met: Any = None  # of the job that is played, on its last host: who met
    by_set: bool = False  # whether the order of a set of texts was used


A_LINE = "a torchrun command"
ONE_WORD = "a program in one word"
LAUNCH = "torch.distributed.launch"
PLAYED = Case({"gpu-07": 4, "gpu-11": 2, "gpu-12": 8}, 29431, "4711", ["train.py", "--epochs", "5"])
CASES = [
    PLAYED,
    Case({"n1": 1, "n2": 1}, 29600, "17", ["train.py"]),
    Case(
        {"rack-a.cluster.org": 2, "rack-b.cluster.org": 2},
        29500,
        "4712",
        ["/data/my runs/train.py", "--note", "a second try", "--nnodes", "7"],
    ),
    Case({"10.0.0.7": 3, "10.0.0.9": 5}, 31001, "90210", ["-m", "digits.train", "--width", "64"]),
    Case({"gpu-11": 4}, 29431, "4713", ["train.py", "--epochs", "5"]),
]
HERE = ("localhost", "127.0.0.1", "0.0.0.0", "[::1]")  # each host's own name for itself
OWN_COUNT = ("gpu", "auto")  # torchrun looks how many GPUs there are
TYPED: list[list[str]] = []  # in the rank: the words for the hosts of the job that is played


def given(case: Case, rank: int) -> tuple:
    """The arguments; the dict and the list are this call's own."""
    return [*case.hosts][rank], dict(case.hosts), case.port, case.job, [*case.program]


def on_host_of_its_own(function: Callable, host: str, hosts: dict, *rest: Any) -> Any:
    """Call it as on that host, in a process of its own and at another time.

    A set of strings has another order in each process, too.
    """
    unordered.Unordered.mixed = True
    unordered.GONE_THROUGH.clear()
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


def typed(returned: Any, host: str, hosts: dict, port: int, job: str, program: list) -> Typed:
    """Read what came back. Once all hosts of the first job have their lines, let these meet."""
    by_set = bool(unordered.GONE_THROUGH)
    words, shown = words_of(returned)
    if words is None:
        return Typed(shown, in_words(returned))
    try:
        words = torchrun.split(words) if isinstance(words, str) else words
        line = torchrun.read(words)
    except torchrun.Unreadable as problem:
        if in_one_word(words, program):
            return Typed(ONE_WORD, shown)
        old = LAUNCH in returned
        return Typed(LAUNCH if old else problem.reason.value, f"{shown}\n{problem}")
    if in_one_word(words, program):
        return Typed(ONE_WORD, shown)
    if job != PLAYED.job:
        return Typed(A_LINE, shown, line, by_set=by_set)
    TYPED.append(words)
    met = torchrun.meeting(TYPED) if len(TYPED) == len(hosts) and alike(TYPED) else None
    return Typed(A_LINE, shown, line, met, by_set)


def in_one_word(words: list[str] | str, program: list[str]) -> bool:
    """Whether the program and its arguments have come as one word of the line."""
    return isinstance(words, list) and len(program) > 1 and " ".join(program) in words


def words_of(returned: Any) -> tuple[list[str] | str | None, str]:
    """The words or the text, and how to show them; None, and the kind of what else came."""
    if isinstance(returned, str):
        return returned, returned
    if not isinstance(returned, list | tuple):
        return None, kind(returned)
    if odd := [kind(word) for word in returned if not isinstance(word, str)]:
        return None, f"a list with {odd[0]} in it"
    return [*returned], shlex.join(returned)


def alike(lines: list[list[str]]) -> bool:
    """Whether the lines name one meeting, so that it is worth trying."""
    read = [torchrun.read(words) for words in lines]
    named = {(line.nnodes, line.backend, line.endpoint, line.run_id) for line in read}
    if all(line.is_host is False for line in read):
        return False  # all of them would wait for a store
    return len(named) == 1 and read[0].nnodes == str(len(lines)) and not read[0].standalone


def agreed(seen: Seen, what: str) -> bool:
    """Whether all hosts' lines say the same; one line alone does not tell."""
    said = {getattr(one.came.line, what) for one in seen.everyone}
    return len(said) == 1 and len(seen.everyone) == len(seen.case.hosts)


def endpoint(seen: Seen) -> str:
    """Where the hosts meet; every right answer is shown as the first host and the port."""
    line, case = seen.came.line, seen.case
    same = agreed(seen, "endpoint")
    may_ask = [*case.hosts, *HERE] if len(case.hosts) == 1 else case.hosts
    right = same and line.host in may_ask and line.port == str(case.port)
    return f"{case.head}:{case.port}" if right or line.standalone else line.endpoint


def refuses_the_store(seen: Seen) -> bool:
    """Whether this host is the endpoint's, and its line says that it does not open the store."""
    line = seen.came.line
    here = line.standalone or line.host in (*HERE, called_host(seen))
    return here and line.is_host is False


def job_name(seen: Seen) -> str:
    """The name of the job; its number if that is part of a name that all hosts use."""
    line, job = seen.came.line, seen.case.job
    right = agreed(seen, "run_id") and job in line.run_id
    return job if right or line.standalone else line.run_id


def meeting(seen: Seen) -> str:
    """The outcome of the meeting: "met", or torchrun's error; "" until all lines are there."""
    if len(seen.everyone) < len(seen.case.hosts):
        return ""
    return seen.came.met if isinstance(seen.came.met, str) else "met"


def program_of(seen: Seen) -> list[str]:
    """What the ranks run."""
    return [*seen.came.line.program]


def count(seen: Seen) -> str:
    """How many ranks the line starts."""
    asked = seen.came.line.nproc.strip().lower()
    return str([*seen.case.hosts.values()][seen.rank]) if asked in OWN_COUNT else asked


def on(case: Case, rank: int) -> int:
    """GPUs of the host that the line is for."""
    return [*case.hosts.values()][rank]


def module_or_file(case: Case) -> list[str]:
    """The program without its arguments."""
    return case.program[: 1 + (case.program[0] == "-m")]


def options_behind(seen: Seen) -> bool:
    """Whether one of torchrun's options stands behind the program."""
    more = seen.value[len(seen.right) :] or seen.value
    return any(word.startswith(("--n", "--rdzv")) for word in more if word not in seen.right)


def spaced_option(seen: Seen) -> bool:
    """Whether an option and its value are one word: torchrun takes it for the program."""
    return any(word.startswith("-") and " " in word for word in seen.value)


def line_and(words: Callable[[Seen], str]) -> Callable[[Seen], str]:
    """What came: the line with its host, and what it says."""
    return lambda seen: f"{on_host(seen)}\n{words(seen)}"


def on_host(seen: Seen) -> str:
    """The line as a terminal shows it, with the host that it is for."""
    return f"{called_host(seen)}$ {seen.came.shown}"


FORM = Look(
    of=lambda seen: seen.came.form,
    right=A_LINE,
    mistakes={
        "Does the function return the line, on every path?": "None",
        "Each word is a string. Which of yours is a number?": "a list with an int in it",
        "Are these the words, one after the other? A list in the list is not a word.": (
            "a list with a list in it"
        ),
        "torch.distributed.launch is the old way: it knows no rendezvous. Which command has "
        "replaced it?": LAUNCH,
        "Which command starts the ranks, and is it the first word?": Reason.ANOTHER_COMMAND.value,
        "The program and its arguments have become one word, so this is the name of a file. What "
        "keeps them apart?": ONE_WORD,
        "Which quote is opened but not closed?": Reason.OPEN_QUOTE.value,
        "torchrun says what is wrong. Is each option spelled as in `torchrun --help`, is each "
        "entry of the list one word, and does every option have its value?": Reason.REFUSED.value,
    },
    otherwise="Which of your lines makes the list of words?",
    came=on_host,
    required=lambda seen: (
        f"ranks that run {in_words(seen.case.program)}"
        if seen.value == ONE_WORD
        else "the words of a torchrun command"
    ),
)
PROGRAM = Look(
    of=program_of,
    right=lambda case: case.program,
    mistakes={
        "torchrun itself starts Python, once for each rank. What is left of the program?": (
            lambda case: ["python", *case.program]
        ),
        "The program's arguments are missing. Where do they belong in the line?": module_or_file,
        "Without -m, torchrun takes the module for a file.": (
            lambda case: case.program[case.program[0] == "-m" :]
        ),
        "One word of the list is one word of the line: an option and its value are two, or one "
        "with a = between them.": When(lambda seen: spaced_option(seen)),
        "Everything after the program is passed to the program. Where must torchrun's own options "
        "stand?": When(options_behind),
        "One word has become several. What does the shell do at a space, and how do you keep it "
        "from that?": When(lambda seen: " ".join(seen.value) == " ".join(seen.right)),
    },
    otherwise="torchrun takes whatever follows its last option for the program and its arguments.",
    came=line_and(lambda seen: f"The ranks run {in_words(seen.value)}."),
    required="ranks that run {right}",
)
STANDALONE = Look(
    of=lambda seen: seen.came.line.standalone and len(seen.case.hosts) > 1,
    right=False,
    otherwise="--standalone makes a whole job of one host, which meets no other. What do several "
    "hosts need?",
    came=on_host,
    required=lambda seen: f"a job of {len(seen.case.hosts)} hosts",
)
NNODES = Look(
    of=lambda seen: seen.came.line.nnodes,
    right=lambda case: str(len(case.hosts)),
    mistakes={
        "By default, a job has one host. Which option says how many hosts torchrun waits for?": "1",
        "This is the number of ranks. What does --nnodes count?": (
            lambda case: str(sum(case.hosts.values()))
        ),
        "This is a number of GPUs. What does --nnodes count?": lambda case, rank: str(
            on(case, rank)
        ),
        "With a range, torchrun starts with fewer hosts if others are late. How many must there "
        "be?": When(lambda seen: ":" in seen.value),
    },
    otherwise="How many hosts does the job have, and which option counts them?",
    came=line_and(
        lambda seen: f"This is a job of {plural(seen.value.replace(':', ' to '), 'host')}."
    ),
    required=lambda seen: f"a job of {plural(seen.right, 'host')}",
)
NPROC = Look(
    of=count,
    right=lambda case, rank: str(on(case, rank)),
    mistakes={
        "By default, torchrun starts one rank. Which option says how many?": "1",
        "These are the ranks of all hosts. How many start on this one?": (
            lambda case: str(sum(case.hosts.values()))
        ),
        "Each host starts as many as the first one. How many GPUs does this one have?": (
            lambda case: str(on(case, 0))
        ),
        "Each host starts as many as the largest one. How many GPUs does this one have?": (
            lambda case: str(max(case.hosts.values()))
        ),
        "Each host starts as many as the smallest one. Which GPUs are left without a rank?": (
            lambda case: str(min(case.hosts.values()))
        ),
        "This is the number of hosts. What does --nproc-per-node count?": (
            lambda case: str(len(case.hosts))
        ),
        "This is right only if all hosts have equally many GPUs. How many does this one have?": (
            lambda case: str(sum(case.hosts.values()) // len(case.hosts))
        ),
    },
    otherwise="How many GPUs does this host have, according to `hosts`?",
    came=line_and(lambda seen: f"It starts {plural(seen.value, 'rank')} on {called_host(seen)}."),
    required=lambda seen: f"{plural(seen.right, 'rank')} on {called_host(seen)}",
)
BACKEND = Look(
    of=lambda seen: seen.came.line.backend,
    right="c10d",
    mistakes={
        "By default, the backend is `static`: it takes --master-addr, and --node-rank numbers the "
        "hosts by hand. Which option asks for c10d?": "static",
    },
    otherwise="Which kind of rendezvous does the task ask for?",
    came=line_and(lambda seen: f"The rendezvous is {seen.value!r}."),
    required="a rendezvous by 'c10d'",
)
ENDPOINT = Look(
    of=endpoint,
    right=lambda case: f"{case.head}:{case.port}",
    mistakes={
        "No line says where the hosts meet. Which option is for that?": "",
        "Each host waits at its own address. At which one can all of them meet?": (
            lambda case, rank: f"{[*case.hosts][rank]}:{case.port}"
        ),
        "On every host, this name means that host itself. Which name means the same host "
        "everywhere?": When(lambda seen: seen.came.line.host in HERE),
        "The host is right, but the port is missing. Without one, torchrun takes 29400.": (
            lambda case: case.head
        ),
        "The lines name different hosts. A set of strings has another order in every process. "
        "Which order is the same everywhere?": When(
            lambda seen: (
                any(one.came.by_set for one in seen.everyone)
                and len({one.value for one in seen.everyone}) > 1
            )
        ),
        "The lines of this job name different endpoints. What must be the same everywhere?": When(
            lambda seen: len({one.value for one in seen.everyone}) > 1
        ),
        "The host is right. At which port do they meet?": When(
            lambda seen: seen.came.line.host in seen.case.hosts
        ),
    },
    otherwise="Is this the name of one of the job's hosts, followed by a colon and the port?",
    came=line_and(lambda seen: f"It meets the others at {seen.value!r}."),
    required=lambda seen: (
        f"an endpoint on one of {in_words([*seen.case.hosts])}, at port "
        f"{seen.case.port}, the same in all {len(seen.case.hosts)} lines"
    ),
)
STORE = Look(
    of=refuses_the_store,
    right=False,
    otherwise="With is_host=false, a host does not open the store. If the host of the endpoint "
    "does not, which one does?",
    came=line_and(lambda seen: "Nobody opens the store, so all hosts wait for it."),
    required=lambda seen: f"a store on {called_host(seen)}, which the endpoint names",
)
NAME = Look(
    of=job_name,
    right=lambda case: case.job,
    mistakes={
        "By default, every job is called `none`, and would join any other job at the same host and "
        "port. Which option names the job?": "none",
        "The hosts give the job different names, so these are different jobs. What do all of "
        "them know?": When(lambda seen: len({one.value for one in seen.everyone}) > 1),
    },
    otherwise="Another job may have this name as well. What belongs to this job only?",
    came=line_and(lambda seen: f"The job is called {seen.value!r}."),
    required=lambda seen: (
        f"a name with the job's number, {seen.case.job}, in it, the same in all lines"
    ),
)
MET = Look(
    of=meeting,
    right="met",
    otherwise="The lines were tried over loopback, and torchrun stopped with this error. Which of "
    "your options caused it?",
    came=line_and(lambda seen: seen.value),
    required=lambda seen: f"a meeting of {len(seen.case.hosts)} hosts",
    same=lambda came, right: came in (right, torchrun.UNKNOWN),
)


def plural(count: str, what: str) -> str:
    """ "1 host", "3 hosts" """
    return f"{count} {what}{'s' * (count != '1')}"


def called_host(seen: Seen) -> str:
    """The host that the line is for."""
    return [*seen.case.hosts][seen.rank]


def called(case: Case) -> str:
    """The job in words."""
    return f"hosts={case.hosts}, port={case.port}, job={case.job!r}, program={case.program}"


CHECK = Alone(
    cases=CASES,
    times=lambda case: len(case.hosts),
    given=given,
    called=called,
    caller=on_host_of_its_own,
    observe=typed,
    looks=[FORM, PROGRAM, STANDALONE, NNODES, NPROC, BACKEND, ENDPOINT, STORE, NAME, MET],
    keeps="Which line changes the caller's dict or list?",
    errors={
        "KeyError": "`hosts` is a dict: host name to number of GPUs. Which key do you look up?",
        "concatenate": "A number is not a string. Which of the words contains one?",
    },
    proves="torchrun's parser reads one job in them, for 1 to 3 hosts with 1 to 8 GPUs, and the "
    "lines of 3 hosts met here",
)
