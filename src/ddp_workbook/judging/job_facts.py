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
        asked = parse_request(scheduler, text)
    except InvalidScript as error:
        yield "error message", [f"{error}"]
        return
    yield from request_facts(scheduler, asked)
    runs = []
    for job in JOBS:
        runs.append(job_scripts.run_script(scheduler, text, asked, job, fails=job == JOBS[1]))
        if runs[-1].status is None:
            yield "the script", "does not end, although torchrun ends at once here"
            return
    for run in runs:
        yield from start_facts(run, asked)
        yield from rendezvous_facts(run)
    yield from port_facts(*runs)
    said = f" {runs[0].errors}" if runs[0].status else ""
    yield "status if nothing fails", f"{runs[0].status}{said}"
    if scheduler == "slurm" and runs[1].starts:  # pbsdsh of OpenPBS always returns 0
        yield "status if training fails on one node", "not 0" if runs[1].status else "0"


def request_facts(scheduler: str, asked: JobRequest) -> Facts:
    """What the job gets."""
    yield "directives that the scheduler does not read", asked.unread_lines
    yield "nodes", asked.nodes
    yield "nodes asked for by name", asked.node_names
    apart = scheduler == "slurm" or asked.nodes == 1 or asked.scattered
    yield "chunks that may share a node", 0 if apart else asked.nodes
    yield "GPUs on each node", asked.gpus
    yield "minutes until the job is ended", asked.seconds / 60 or "as many as the site allows"
    folder, slash, _ = asked.output.rpartition("/")
    there = not slash or folder.startswith(("/", "~", "$"))
    yield "missing folders of the log", [] if there else [folder]


def start_facts(run: Run, asked: JobRequest) -> Facts:
    """What starts where, in one run."""
    on = [one.node for one in run.starts]
    why = [f"bash: {run.errors}"] if run.errors else []
    missing = [node for node in run.nodes if node not in on]
    yield "nodes without a torchrun", missing and missing + why
    yield "torchruns on a node", max(map(on.count, on), default=1)
    for one in run.starts:
        if one.problem or not one.line:
            other = one.problem and one.problem.reason is Reason.ANOTHER_COMMAND
            said = " ".join(one.words) if other else f"{one.problem}"
            yield "started in the place of torchrun" if other else "error message", [said]
            continue
        line, (name, *arguments) = one.line, one.line.program
        empty = [word or "''" for word in one.words if not word or WITHOUT_VALUE.search(word)]
        yield "options without a value", empty and empty + why
        if line.standalone or line.nnodes:
            yield "torchruns that meet", "1, alone" if line.standalone else line.nnodes
        own_count = line.nproc.lower() in ("gpu", "auto")  # torchrun looks how many GPUs there are
        if line.nproc:
            yield "ranks of a torchrun", f"{asked.gpus:g}" if own_count else line.nproc
        lost = not name.startswith("/") and one.folder != "submitted"
        yield f"nodes that do not find {PROGRAM}", [f"{one.node}, in the home folder"] * lost
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
    numbers = {one.node: one.line.node_rank for one in run.starts if one.line}
    by_hand = sorted(numbers.values()) == [*range(len(run.nodes))] and numbers.get(node) == 0
    if not (by_hand and backends == ["static"]):
        yield "rendezvous", ", ".join(backends)


def port_facts(*runs: Run) -> Facts:
    """Whether each job has a port of its own."""
    one, other = (
        {line.port or "29400" for line in run.rendezvous if not WITHOUT_VALUE.search(line.endpoint)}
        for run in runs
    )
    yield "port that both jobs take", sorted(one & other)
    forbidden = [port for port in one | other if int(port) not in range(1024, 65536)]
    yield "port that no user may choose", sorted(forbidden)
