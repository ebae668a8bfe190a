"""Which expressions of a file need Slurm or MPI, and which variable of torchrun to read instead."""

import ast
import re
from collections.abc import Iterator

from manyranks.diagnostics.gpu_needs import Need
from manyranks.diagnostics.source import DELETION, Edit, Source, span_of

RANK, LOCAL_RANK, WORLD_SIZE = "RANK", "LOCAL_RANK", "WORLD_SIZE"
LOCAL_WORLD_SIZE, NODE, NODES = "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"
MASTER = "MASTER_ADDR"
# What torchrun calls the same number, and `launch` too.
OF_TORCHRUN = {
    **dict.fromkeys(("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"), RANK),
    **dict.fromkeys(("MV2_COMM_WORLD_RANK", "PBS_TASKNUM"), RANK),
    **dict.fromkeys(("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"), LOCAL_RANK),
    **dict.fromkeys(("PMI_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID"), LOCAL_RANK),
    **dict.fromkeys(("MV2_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK"), LOCAL_RANK),
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "OMPI_COMM_WORLD_SIZE"), WORLD_SIZE),
    **dict.fromkeys(("PMI_SIZE", "MV2_COMM_WORLD_SIZE"), WORLD_SIZE),
    **dict.fromkeys(("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"), LOCAL_WORLD_SIZE),
    **dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"), LOCAL_WORLD_SIZE),
    **dict.fromkeys(("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"), LOCAL_WORLD_SIZE),
    **dict.fromkeys(("PMI_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"), LOCAL_WORLD_SIZE),
    **dict.fromkeys(("PALS_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE"), LOCAL_WORLD_SIZE),
    "SLURM_NODEID": NODE,
    "SLURM_CPUS_PER_TASK": "OMP_NUM_THREADS",
    **dict.fromkeys(("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"), LOCAL_RANK),
    **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES"), NODES),
    **dict.fromkeys(("SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST"), MASTER),
    **dict.fromkeys(("SLURM_LAUNCH_NODE_IPADDR", "SLURM_SUBMIT_HOST", "SLURMD_NODENAME"), MASTER),
}
FOREIGN = re.compile(r"SLURMD?_|OMPI_|PMIX?_|MV2_|MPI_LOCAL|PALS_|PBS_")
NO_SUCH_VARIABLE = "write a value of your own: torchrun sets no such variable"
DELETE_MASTER = 'delete it: os.environ["MASTER_ADDR"] and "MASTER_PORT" are set'
NUMBERS = {"int", "float"}
STARTS_PROGRAMS = {"subprocess." + name for name in ("getoutput", "check_output", "run")}
BACKENDS = {"mpi", "ucc"}


def launcher_needs(source: Source) -> list[Need]:
    """All that fails in this file unless Slurm or MPI started it, except what is guarded."""
    return [
        need
        for node in source.nodes
        for need in _needs(source, node)
        if source.guard(need.node, _asks_for_launcher) is None
    ]


def _needs(source: Source, node: ast.AST) -> Iterator[Need]:
    match node:
        case ast.Import(names=[ast.alias(name="hostlist")]):
            yield Need(node, (Edit(span_of(node), DELETION),))
        case ast.Subscript(value=of, slice=ast.Constant(value=str(name)) as text):
            if source.qualified_name(of) == "os.environ" and FOREIGN.match(name):
                yield Need(node, (_edit(source, node, text),))
        case ast.Subscript(value=of) if "scontrol" in source.text:
            # A shell does not fail without scontrol: it prints nothing.
            if source.mentions(of, lambda part: _starts_scontrol(source, part)):
                yield Need(node, _without_scontrol(source, node), re.compile("IndexError"))
        case ast.Call(func=function, args=[value, *_]):
            yield from _call(source, node, source.qualified_name(function), value)


def _call(source: Source, call: ast.Call, name: str, value: ast.expr) -> Iterator[Need]:
    if name in NUMBERS:
        edits = tuple(_unset(source, value))
        if edits:
            yield Need(call, edits)
    elif name == "hostlist.expand_hostlist":
        yield Need(call, (Edit(span_of(call), '[os.environ["MASTER_ADDR"]]'),))
    elif _starts_scontrol(source, call):
        yield Need(call, _without_scontrol(source, call))
    elif name == "torch.distributed.init_process_group":
        for text in (value, *source.values(value)):
            if isinstance(text, ast.Constant) and str(text.value).lower() in BACKENDS:
                yield Need(
                    call,
                    (Edit(span_of(text), source.quoted(text, "gloo")),),
                    re.compile("(?i)mpi|ucc"),
                )


def _unset(source: Source, value: ast.expr) -> Iterator[Edit]:
    """The edits of `os.environ.get("SLURM_PROCID")`, which gives None, perhaps in a variable."""
    for node in (value, *source.values(value)):
        match node:
            case ast.Call(func=function, args=[ast.Constant(value=str(name)) as text], keywords=[]):
                is_read = source.qualified_name(function) in ("os.environ.get", "os.getenv")
                if is_read and FOREIGN.match(name) and not source.guard(node, _asks_for_launcher):
                    yield _edit(source, node, text)


def _edit(source: Source, node: ast.AST, text: ast.Constant) -> Edit:
    name = OF_TORCHRUN.get(str(text.value))
    if name is None:
        return Edit(span_of(node), "", NO_SUCH_VARIABLE)
    return Edit(span_of(text), source.quoted(text, name))


def _without_scontrol(source: Source, node: ast.AST) -> tuple[Edit]:
    return (Edit(span_of(source.statement_of(node)), DELETION, DELETE_MASTER),)


def _starts_scontrol(source: Source, node: ast.AST) -> bool:
    match node:
        case ast.Call(func=function, args=[command, *_]):
            starts = source.qualified_name(function) in STARTS_PROGRAMS
            return starts and "scontrol" in ast.unparse(command)
    return False


def _asks_for_launcher(node: ast.AST) -> bool:
    """`"SLURM_PROCID" in os.environ`, or `os.environ.get("SLURM_PROCID")`."""
    match node:
        case ast.Compare(left=ast.Constant(value=str(name)), ops=[ast.In() | ast.NotIn()]):
            return FOREIGN.match(name) is not None or name in (RANK, LOCAL_RANK, WORLD_SIZE)
        case ast.Call(func=ast.Attribute(attr="get" | "getenv"), args=[variable, *_]):
            return (
                isinstance(variable, ast.Constant)
                and FOREIGN.match(str(variable.value)) is not None
            )
    return False
