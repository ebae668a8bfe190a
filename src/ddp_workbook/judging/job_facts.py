"""What a job script does, as facts with a name each: what it asks for, starts, and ends with.

A list is what is wrong in one respect, and is empty if nothing is.
"""

import re
from collections.abc import Iterator
from typing import Any

from ddp_workbook.judging import job_scripts
from ddp_workbook.judging.directives import InvalidScript, JobRequest, parse_request
from ddp_workbook.judging.job_scripts import PROGRAM, Run
from ddp_workbook.judging.torchrun import Reason

JOBS = (4711, 4712)  # the same script, submitted twice; in the second one training fails
WITHOUT_VALUE = re.compile(r"=$|(^|=):|:$")  # --nnodes=, and host:port without one of them
Facts = Iterator[tuple[str, Any]]


def facts(scheduler: str, text: str) -> Facts:
    """Names and values, as far as the script gets; a name comes more than once."""
    try:
        job_scripts.refuse_bad_syntax(text)
        request = parse_request(scheduler, text)
    except InvalidScript as error:
        yield "error message", [f"{error}"]
        return
    yield from request_facts(scheduler, request)
    runs = []
    for job in JOBS:
        runs.append(job_scripts.run_script(scheduler, text, request, job, fails=job == JOBS[1]))
        if runs[-1].status is None:
            yield "the script", "does not end, although torchrun ends at once here"
            return
    for run in runs:
        yield from start_facts(run, request)
        yield from rendezvous_facts(run)
    yield from port_facts(*runs)
    stderr = f" {runs[0].errors}" if runs[0].status else ""
    yield "status if nothing fails", f"{runs[0].status}{stderr}"
    if scheduler == "slurm" and runs[1].starts:  # pbsdsh of OpenPBS always returns 0
        yield "status if training fails on one node", "not 0" if runs[1].status else "0"


def request_facts(scheduler: str, request: JobRequest) -> Facts:
    """What the job gets."""
    yield "directives that the scheduler does not read", request.unread_lines
    yield "nodes", request.nodes
    yield "nodes asked for by name", request.node_names
    apart = scheduler == "slurm" or request.nodes == 1 or request.scattered
    yield "chunks that may share a node", 0 if apart else request.nodes
    yield "GPUs on each node", request.gpus
    yield "minutes until the job is ended", request.seconds / 60 or "as many as the site allows"
    folder, slash, _ = request.output.rpartition("/")
    there = not slash or folder.startswith(("/", "~", "$"))
    yield "missing folders of the log", [] if there else [folder]


def start_facts(run: Run, request: JobRequest) -> Facts:
    """What starts where, in one run."""
    on = [start.node for start in run.starts]
    why = [f"bash: {run.errors}"] if run.errors else []
    missing = [node for node in run.nodes if node not in on]
    yield "nodes without a torchrun", missing and missing + why
    yield "torchruns on a node", max(map(on.count, on), default=1)
    for start in run.starts:
        if start.problem or not start.line:
            is_other_command = start.problem and start.problem.reason is Reason.ANOTHER_COMMAND
            text = " ".join(start.words) if is_other_command else f"{start.problem}"
            yield (
                "started in the place of torchrun" if is_other_command else "error message",
                [text],
            )
            continue
        line, (name, *arguments) = start.line, start.line.program
        empty = [word or "''" for word in start.words if not word or WITHOUT_VALUE.search(word)]
        yield "options without a value", empty and empty + why
        if line.standalone or line.nnodes:
            yield "torchruns that meet", "1, alone" if line.standalone else line.nnodes
        own_count = line.nproc.lower() in ("gpu", "auto")  # torchrun looks how many GPUs there are
        if line.nproc:
            yield "ranks of a torchrun", f"{request.gpus:g}" if own_count else line.nproc
        there = name.startswith("/") or start.folder == "submitted"
        missing_on = [] if there else [f"{start.node}, in the home folder"]
        yield f"nodes that do not find {PROGRAM}", missing_on
        name = re.sub(r"^\./|^/.*/submitted/", "", name)
        yield "the ranks run", " ".join([name, *arguments])


def rendezvous_facts(run: Run) -> Facts:
    """Whether the torchruns of a run meet, at a node of the job."""
    if not run.rendezvous:
        return
    first, *_ = run.rendezvous
    endpoints, ids, backends = (
        sorted({getattr(line, what) for line in run.rendezvous})
        for what in ("endpoint", "run_id", "backend")
    )
    yield "endpoints that differ", endpoints if endpoints[1:] else []
    yield "values of --rdzv-id that differ", ids if ids[1:] and backends == ["c10d"] else []
    node = run.addresses.get(first.host, first.host)
    if not endpoints[1:] and node not in run.nodes and not WITHOUT_VALUE.search(first.endpoint):
        yield "endpoint on none of the job's nodes", [first.endpoint or "no endpoint"]
    numbers = {start.node: start.line.node_rank for start in run.starts if start.line}
    by_hand = sorted(numbers.values()) == [*range(len(run.nodes))] and numbers.get(node) == 0
    if not (by_hand and backends == ["static"]):
        yield "rendezvous", ", ".join(backends)


def port_facts(*runs: Run) -> Facts:
    """Whether each job has a port of its own."""
    first_ports, second_ports = (
        {line.port or "29400" for line in run.rendezvous if not WITHOUT_VALUE.search(line.endpoint)}
        for run in runs
    )
    yield "port that both jobs take", sorted(first_ports & second_ports)
    forbidden = [port for port in first_ports | second_ports if int(port) not in range(1024, 65536)]
    yield "port that no user may choose", sorted(forbidden)
