"""Reads the #SBATCH and #PBS lines of a job script as sbatch and qsub do.

The behaviour of sbatch was seen on Slurm 22.05; there was no PBS to compare with.
"""

import argparse
import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

# The options that ask for something that counts here; sbatch and qsub know many more.
SBATCH = {
    "nodes": "N", "ntasks": "n", "ntasks-per-node": "", "gpus-per-node": "", "gpus": "G",
    "gpus-per-task": "", "gres": "", "time": "t", "nodelist": "w", "output": "o",
}  # fmt: skip


class InvalidScript(ValueError):
    """The scheduler would refuse the script; the message is the scheduler's."""


@dataclass
class JobRequest:
    """What a script asks for; 0 and "" stand for what it does not say."""

    nodes: int = 1
    gpus: float = 0  # on each node
    seconds: int = 0  # time limit
    tasks: int = 0
    per_node: int = 0  # tasks on each node
    node_names: list[str] = field(default_factory=list)  # nodes that it insists on
    scattered: bool = False  # each chunk of PBS gets a node of its own
    output: str = ""  # file of the log
    unread_lines: list[str] = field(
        default_factory=list
    )  # would ask for what is not asked for else


def parse_request(scheduler: str, text: str) -> JobRequest:
    """What the directives of a script ask for. Raises InvalidScript.

    They come before the first command. For sbatch they must be at the left margin.
    """
    slurm = scheduler == "slurm"
    if slurm and not text.startswith("#!"):
        raise InvalidScript("sbatch: this does not look like a batch script: where is its #! line?")
    mark, parse = ("SBATCH", parse_sbatch) if slurm else ("PBS", parse_qsub)
    margin = "" if slurm else r"\s*"
    exact = re.compile(rf"{margin}#{mark}(\s+(?P<options>.*))?$")
    similar = re.compile(rf"\s*#+\s*{mark}\s+(?P<options>-.*)", flags=re.I)
    directives, ignored, header = [], [], True
    for line in text.splitlines()[1:]:
        header = header and (not line.strip() or line.lstrip().startswith("#"))
        if header and (match := exact.match(line)):
            directives.append(match["options"] or "")
        elif match := similar.match(line):
            ignored.append((line.strip(), match["options"]))
    request = parse(directives)
    for line, options in ignored:
        with suppress(InvalidScript):
            more, nothing = parse([*directives, options]), JobRequest()
            if any(
                getattr(request, what) == getattr(nothing, what) != getattr(more, what)
                for what in ("nodes", "gpus", "seconds")
            ):
                request.unread_lines.append(line)
    return request


def parse_options(
    command: str, options: Iterable[tuple[list[str], dict]], lines: list[str]
) -> dict:
    """The values of these options in the lines, which may have comments. Raises InvalidScript."""

    def refuse(message: str) -> NoReturn:
        raise InvalidScript(f"{command}: {message}")

    parser = argparse.ArgumentParser(command, add_help=False)
    vars(parser)["error"] = refuse  # in the place of a method that exits
    for names, how in options:
        parser.add_argument(*names, **how)
    try:
        words = [word for line in lines for word in shlex.split(line, comments=True)]
    except ValueError as error:
        refuse(str(error))
    return vars(parser.parse_known_args(words)[0])


def parse_sbatch(lines: list[str]) -> JobRequest:
    """What these options of sbatch ask for; names may be abbreviated. Raises InvalidScript."""
    options: list[tuple[list[str], dict]] = [
        ([f"-{letter}", f"--{name}"] if letter else [f"--{name}"], {})
        for name, letter in SBATCH.items()
    ]
    values = parse_options("sbatch", options, lines)
    tasks, per_node = parse_count(values, "ntasks"), parse_count(values, "ntasks_per_node")
    values["nodes"] = (values["nodes"] or "").partition("-")[0]  # the least of a range
    nodes = parse_count(values, "nodes") or (-(-tasks // per_node) if tasks and per_node else 1)
    tasks = tasks or nodes * per_node
    gres = (values["gres"] or "").split(",")
    gpus = next((resource for resource in gres if re.match(r"gpu\b", resource)), "")
    values["gres"] = gpus.removeprefix("gpu").lstrip(":") or ("1" if gpus else "")
    return JobRequest(
        nodes=nodes,
        gpus=parse_count(values, "gpus_per_node")
        or parse_count(values, "gres")
        or parse_count(values, "gpus") / nodes
        or parse_count(values, "gpus_per_task") * (tasks or nodes) / nodes,
        seconds=parse_slurm_time(values["time"]) if values["time"] else 0,
        tasks=tasks,
        per_node=per_node,
        node_names=[values["nodelist"]] if values["nodelist"] else [],
        output=values["output"] or "",
    )


def parse_count(values: dict, option: str) -> int:
    """The count of an option, such as 4 in `a100:4`; 0 if it is not given. Raises InvalidScript."""
    text = values.get(option) or "0"
    if not re.fullmatch(r"(\w+:)?\d+", text):
        raise InvalidScript(f"{option.replace('_', '-')}: {text!r} is not a number")
    return int(text.rpartition(":")[2])


def parse_slurm_time(text: str) -> int:
    """Seconds: of minutes, minutes:seconds, hours:minutes:seconds, or days-hours[:minutes[...]]."""
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        raise InvalidScript(f"sbatch: invalid --time specification {text!r}")
    days, _, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if not days and len(parts) < 3:
        parts = [0, *parts]  # minutes first
    hours, minutes, seconds = [*parts, 0, 0][:3]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_qsub(lines: list[str]) -> JobRequest:
    """What these options of qsub ask for. Raises InvalidScript."""
    repeatable = {"action": "append", "default": []}
    values = parse_options("qsub", [(["-l"], repeatable), (["-o"], repeatable)], lines)
    whole = parse_resources(",".join(values["l"]).split(","))
    if "select" in whole and (mixed := {"ngpus", "ncpus", "mem"} & set(whole)):
        name = min(mixed)
        raise InvalidScript(
            f'qsub: "-lresource=" cannot be used with "select", resource is: {name}'
        )
    chunks = [chunk.split(":") for chunk in whole.get("select", "1").split("+")]
    if wrong := [count for count, *_ in chunks if not count.isdigit()]:
        raise InvalidScript(
            f"qsub: Illegal attribute or resource value Resource_List.select={wrong[0]}"
        )
    each = [parse_resources(more) for _, *more in chunks] if "select" in whole else [whole]
    gpus = [parse_count(chunk, "ngpus") for chunk in each]
    return JobRequest(
        nodes=sum(int(count) for count, *_ in chunks),
        gpus=sum(gpus) / len(gpus),
        seconds=parse_pbs_time(whole.get("walltime", "0")),
        per_node=parse_count(each[-1], "mpiprocs"),
        node_names=[
            requested[key]
            for requested in [*each, whole]
            for key in ("host", "vnode")
            if key in requested
        ],
        scattered=bool({"scatter", "vscatter"} & {*whole.get("place", "").split(":")}),
        output="".join(values["o"][-1:]),
    )


def parse_resources(parts: list[str]) -> dict[str, str]:
    """{"ncpus": "8"} of `ncpus=8`."""
    return dict(part.partition("=")[::2] for part in parts)


def parse_pbs_time(text: str) -> int:
    """Seconds: of [[hours:]minutes:]seconds. Raises InvalidScript."""
    if not re.fullmatch(r"\d+(:\d+){0,2}(\.\d+)?", text):
        raise InvalidScript("qsub: Illegal attribute or resource value Resource_List.walltime")
    hours, minutes, seconds = [0, 0, *map(int, text.partition(".")[0].split(":"))][-3:]
    return (hours * 60 + minutes) * 60 + seconds
