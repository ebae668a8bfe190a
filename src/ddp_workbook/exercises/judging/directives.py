"""Reads the #SBATCH and #PBS lines of a job script as sbatch and qsub do.

The behaviour of sbatch was seen on Slurm 22.05; there was no PBS to compare with.
"""

import argparse
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

# sbatch's options in `sbatch --help` of Slurm 22.05: with a value, with an optional one, flags.
SBATCH_VALUED = """account array batch bb bbf begin chdir cluster-constraint clusters comment
constraint container core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline
delay-boot dependency distribution error exclude export export-file extra-node-info gid gpu-bind
gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name
licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile
nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode
output partition power priority profile qos reservation signal sockets-per-node switches thread-spec
threads-per-core time time-min tmp uid wait-all-nodes wckey wrap"""
SBATCH_OPTIONAL = "exclusive get-user-env nice propagate"
SBATCH_FLAGS = """contiguous hold ignore-pbs no-kill no-requeue overcommit oversubscribe parsable
quiet reboot requeue spread-job test-only use-min-nodes verbose wait"""
SBATCH_SHORT = {
    "account": "A", "array": "a", "begin": "b", "chdir": "D", "clusters": "M", "constraint": "C",
    "core-spec": "S", "cpus-per-task": "c", "dependency": "d", "distribution": "m", "error": "e",
    "exclude": "x", "gpus": "G", "hold": "H", "input": "i", "job-name": "J", "licenses": "L",
    "no-kill": "k", "nodefile": "F", "nodelist": "w", "nodes": "N", "ntasks": "n", "output": "o",
    "overcommit": "O", "oversubscribe": "s", "partition": "p", "qos": "q", "quiet": "Q",
    "time": "t", "verbose": "v", "wait": "W",
}  # fmt: skip
QSUB_VALUED, QSUB_FLAGS = "aAcCeJjklmMNopPqrSuvW", "hIVXxz"


class Refused(ValueError):
    """The scheduler would refuse the script; the message is the scheduler's."""


@dataclass
class Asked:
    """What a script asks for."""

    nodes: int = 1
    gpus: float = 0  # on each node
    seconds: int | None = None  # time limit; None: the site's default
    per_node: int | None = None  # tasks on each node; None: not given
    tasks: int | None = None
    scattered: bool = False  # each chunk of PBS gets a node of its own
    output: str = ""  # file of the log, if one is named


class Ignored(NamedTuple):
    """A line that looks like a directive but is not one."""

    line: str
    options: str
    late: bool  # it would be one above the first command


def directives(text: str, mark: str) -> tuple[list[str], list[Ignored]]:
    """The options of the directives, and lines that only look like them; `mark` is "#PBS", say.

    Directives come before the first command. For sbatch they must be at the left margin.
    """
    margin = "" if mark == "#SBATCH" else r"\s*"
    exact = re.compile(rf"{margin}{mark}(\s+(?P<options>.*))?$")
    similar = re.compile(rf"\s*#+\s*{mark[1:]}\s+(?P<options>-.*)", flags=re.I)
    read, ignored, header = [], [], True
    for line in text.splitlines()[1:]:
        header = header and (not line.strip() or line.lstrip().startswith("#"))
        found = exact.match(line)
        if header and found:
            read.append(found["options"] or "")
        elif look_alike := similar.match(line):
            ignored.append(Ignored(line.strip(), look_alike["options"], late=bool(found)))
    return read, ignored


def asked_of_slurm(lines: list[str]) -> Asked:
    """What these options of sbatch ask for. Raises Refused."""
    given = vars(sbatch_parser().parse_args(words_of(lines)))
    asked = Asked(output=given["output"] or "")
    asked.tasks = number(given["ntasks"], "--ntasks")
    asked.per_node = number(given["ntasks_per_node"], "--ntasks-per-node")
    nodes = number((given["nodes"] or "").partition("-")[0], "--nodes")
    if asked.tasks and asked.per_node and not nodes:
        nodes = -(-asked.tasks // asked.per_node)
    asked.nodes = nodes or 1
    if asked.per_node and not asked.tasks:
        asked.tasks = asked.nodes * asked.per_node
    each = number(given["gpus_per_node"], "--gpus-per-node") or gpus_in_gres(given["gres"])
    each = each or (number(given["gpus"], "--gpus") or 0) / asked.nodes
    of_task = number(given["gpus_per_task"], "--gpus-per-task") or 0
    asked.gpus = each or of_task * (asked.tasks or asked.nodes) / asked.nodes
    if given["time"]:
        asked.seconds = slurm_time(given["time"])
    return asked


def words_of(lines: list[str]) -> list[str]:
    """The words of all directives, without comments."""
    try:
        return [word for line in lines for word in shlex.split(line, comments=True)]
    except ValueError as error:
        raise Refused(str(error)) from None


def sbatch_parser() -> argparse.ArgumentParser:
    """A parser of sbatch's options; like sbatch, it accepts abbreviated names."""
    parser = argparse.ArgumentParser("sbatch", add_help=False)
    parser.error = refuse("sbatch")
    for names, how in (
        (SBATCH_VALUED, {}),
        (SBATCH_OPTIONAL, {"nargs": "?"}),
        (SBATCH_FLAGS, {"action": "store_true"}),
    ):
        for name in names.split():
            short = [f"-{SBATCH_SHORT[name]}"] if name in SBATCH_SHORT else []
            parser.add_argument(*short, f"--{name}", **how)
    return parser


def refuse(command: str) -> Callable[[str], NoReturn]:
    """For a parser: raises Refused with its message."""

    def raises(message: str) -> NoReturn:
        raise Refused(f"{command}: {message}")

    return raises


def number(text: str | None, option: str) -> int:
    """The count of an option, such as 4 in `a100:4`; 0 if it is not given. Raises Refused."""
    if not text:
        return 0
    if not re.fullmatch(r"(\w+:)?\d+", text):
        raise Refused(f"{option}: {text!r} is not a number")
    return int(text.rpartition(":")[2])


def gpus_in_gres(text: str | None) -> int:
    """2 for `gpu:2`, for `gpu:a100:2`, and 1 for `gpu`."""
    for one in (text or "").split(","):
        kind, *more = one.split(":")
        if kind == "gpu":
            return number(":".join(more[-1:]) or "1", "--gres")
    return 0


def slurm_time(text: str) -> int:
    """Seconds: of minutes, minutes:seconds, hours:minutes:seconds, or days-hours[:minutes[...]]."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not found:
        raise Refused(f"sbatch: invalid --time specification {text!r}")
    days, *parts = (int(one) if one else None for one in found.groups())
    parts = [one for one in parts if one is not None]
    if days is not None:
        parts += [0] * (3 - len(parts))
    elif len(parts) < 3:  # minutes first
        parts = [0, *parts, 0][:3]
    hours, minutes, seconds = parts
    return ((days or 0) * 24 + hours) * 3600 + minutes * 60 + seconds


def asked_of_pbs(lines: list[str]) -> Asked:
    """What these options of qsub ask for. Raises Refused."""
    parser = argparse.ArgumentParser("qsub", add_help=False)
    parser.error = refuse("qsub")
    for letter in QSUB_VALUED:
        parser.add_argument(f"-{letter}", action="append", default=[])
    for letter in QSUB_FLAGS:
        parser.add_argument(f"-{letter}", action="store_true")
    given = vars(parser.parse_args(words_of(lines)))
    resources = dict(
        one.partition("=")[::2] for text in given["l"] for one in text.split(",") if one
    )
    asked = Asked(output="".join(given["o"][-1:]))
    chunks = [chunk.split(":") for chunk in resources.get("select", "1").split("+")]
    if "select" in resources and (mixed := {"ngpus", "ncpus", "mem"} & set(resources)):
        name = min(mixed)
        raise Refused(f'qsub: "-lresource=" cannot be used with "select", resource is: {name}')
    asked.nodes, each = 0, []
    for count, *parts in chunks:
        has = dict(part.partition("=")[::2] for part in parts)
        if not count.isdigit():
            raise Refused(f"qsub: Illegal attribute or resource value Resource_List.select={count}")
        asked.nodes += int(count)
        each.append(number(has.get("ngpus"), "ngpus"))
        asked.per_node = number(has.get("mpiprocs"), "mpiprocs") or 1
    asked.gpus = sum(each) / len(each) if len(set(each)) > 1 else each[0]
    if "select" not in resources:
        asked.gpus = number(resources.get("ngpus"), "ngpus")
    asked.scattered = bool({"scatter", "vscatter"} & {*resources.get("place", "").split(":")})
    if "walltime" in resources:
        asked.seconds = pbs_time(resources["walltime"])
    return asked


def pbs_time(text: str) -> int:
    """Seconds: of [[hours:]minutes:]seconds. Raises Refused."""
    if not re.fullmatch(r"\d+(:\d+){0,2}(\.\d+)?", text):
        raise Refused("qsub: Illegal attribute or resource value Resource_List.walltime")
    seconds = 0
    for part in text.partition(".")[0].split(":"):
        seconds = seconds * 60 + int(part)
    return seconds
