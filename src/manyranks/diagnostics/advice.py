"""One sentence of advice for an error that learners often meet; "" if none would help."""

import ast
import linecache
import os
import re
from collections.abc import Sequence

from manyranks.diagnostics.evidence import State
from manyranks.diagnostics.mismatches import Kind, Mismatch, present_ranks, ranks_in_words
from manyranks.diagnostics.parsing import parse_source
from manyranks.diagnostics.positions import RESULT_STATES, Position
from manyranks.diagnostics.user_code import is_cell

LACKS_GPU = re.compile(
    "Cannot access accelerator device|not compiled with CUDA|No CUDA GPUs|no NVIDIA driver"
    "|NVTX functions not installed|deserialize object on a CUDA|without ATen_cuda"
    "|have NCCL built in|ProcessGroupNCCL is only|SyncBatchNorm layers only work with GPU"
    "|not linked with support for cuda"
)
RETURN_LESS = "Return less, such as a mean or a part, or save it to a file and return the path."
# (pattern in "Type: message", advice). The first that matches is given.
FOR_ERRORS: list[tuple[str | re.Pattern[str], str]] = [
    (
        r"NameError: name '(rank|world_size|device|dist|torch)'",
        "A worker in a file starts with no names: import torch, and ask dist.get_rank() and "
        "dist.get_world_size().",
    ),
    (
        r"Default process group has not been initialized",
        "Call dist.init_process_group(...) first, on every rank.",
    ),
    (
        r"trying to initialize the default process group twice",
        "The group exists already. A %%ranks cell makes it (`%%ranks N --bare` does not); to make "
        "another one, call dist.destroy_process_group() first.",
    ),
    (
        r"(?i)Expected to have finished reduction in the prior iteration",
        "Some parameters got no gradient in the last step, so their buckets were never sent. Use "
        "every parameter in the loss, or pass find_unused_parameters=True, which walks the graph "
        "once more in each step.",
    ),
    (
        r"have NCCL built in|ProcessGroupNCCL is only",
        "NCCL moves data between GPUs only; on a CPU the backend is gloo: call "
        'init_process_group("gloo").',
    ),
    (
        r"No backend type associated with device type cpu",
        "This group carries tensors of GPUs only. Move the tensor to the rank's GPU, or make the "
        'group with init_process_group("cpu:gloo,cuda:nccl"), which carries both.',
    ),
    (
        LACKS_GPU,
        "There is no GPU for each rank here, so the ranks run on the CPU. Choose the device by "
        'torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu"); '
        "on the CPU, pass no device_ids to DistributedDataParallel.",
    ),
    (
        r"EADDRINUSE|Address already in use",
        "Another program has this port. `launch` and `torchrun --standalone` find a free one: "
        "do not set MASTER_PORT.",
    ),
    (
        r"^(RuntimeError|Dist\w*Error): .*(?i:timed? ?out)",
        "A rank waited for others in vain. Did every rank of the group call the same collectives "
        "in the same order?",
    ),
    (
        r"Global rank \d+ is not part of group",
        "`src` and `dst` are global ranks, and this one is not in the group. Its first rank is "
        "dist.get_global_rank(group, 0).",
    ),
    (
        r"Invalid process group specified|is not part of group|not (?:a )?(?:part|member) of",
        "A rank may only use a group that it belongs to.",
    ),
    (
        r"Invalid device id|invalid device ordinal",
        "Use LOCAL_RANK, the number within the node, to choose the GPU, not RANK.",
    ),
    (
        r"^MemoryError|DefaultCPUAllocator",
        "All ranks share this machine's memory, and each holds its own copy of the model and its "
        "data. Use fewer ranks, a smaller model or smaller batches.",
    ),
    (
        r"out of memory",
        "Do all ranks put their tensors on GPU 0? Call torch.cuda.set_device(local_rank) first.",
    ),
    (
        r"AttributeError: Can't get attribute",
        "The worker's file has changed since this notebook imported it: import it again.",
    ),
    (
        r"'DistributedDataParallel' object has no attribute",
        "DDP wraps the model: its own attributes are those of ddp_model.module.",
    ),
    (
        r"key\(s\) in state_dict.*\bmodule\.",
        "The state was saved from a wrapped model, or is loaded into one: its names begin with "
        "`module.`. Save and load ddp_model.module.state_dict().",
    ),
    (
        r"FileNotFoundError.*: '(?![/\\]|[A-Za-z]:)",
        "Relative paths start at the folder of the notebook or the terminal that launched.",
    ),
    (
        r"attempted relative import",
        'A file that runs by its path is in no package. launch("-m", "package.module") runs it as '
        "`python -m` does.",
    ),
    (
        r"ModuleNotFoundError|ImportError",
        "Is it installed? The ranks import from the same folders (sys.path) as the process that "
        "launched them, and a script also from its own folder.",
    ),
    (
        r"EOFError: EOF when reading a line|^BdbQuit",
        "A rank has no keyboard: input() and breakpoint() cannot work there. Pass the value "
        "instead, or print it.",
    ),
    (
        r"^TooLargeToSend",
        f"The worker itself finished. {RETURN_LESS}",
    ),
    (
        r"^Unsendable",
        "The worker itself finished; return plain numbers, strings, lists, dicts or tensors.",
    ),
    (
        r"PicklingError|[Cc]an(?:no|')t (?:pickle|get local object)",
        "Objects travel between processes as pickles: numbers, strings, lists, dicts, tensors, and "
        "functions or classes by their name in a module. A lambda, a function inside another one, "
        "a generator, a lock or an open file cannot travel: send what it is made of.",
    ),
    (
        r"Connection closed by peer|Connection reset by peer|Broken pipe",
        "A collective needs every rank of its group: all must call it equally often, and none may "
        "leave before it ends.",
    ),
]
LOCAL_RANK = (
    'Neither torchrun nor launch passes --local_rank: read int(os.environ["LOCAL_RANK"]) instead.'
)
COMMAND_LINE = (
    'Pass a script\'s arguments as launch("train.py", "--epochs", "3"), a cell\'s as '
    "`%%ranks 2 -- --epochs 3`. A worker function has no command line."
)
USE_SUBPROCESS = (
    "exec replaces the whole rank, so nothing can report how it ended. Start the program with "
    "subprocess.run instead."
)
USAGE = re.compile(r"^\s*usage:", flags=re.I | re.M)  # of argparse, click and typer
NAMES_OF_A_CELL = (
    "A rank is a new process. It knows what its own file or cell defines and imports, but "
    "nothing from other cells."
)
EARLY_EXIT = (
    "The process exited before the worker had returned: os._exit does that, or exit in compiled "
    "code. Return from the worker instead, or raise an error that says what is wrong."
)
UNKNOWN_LOCAL_RANK = re.compile(r"error\W.*--local[-_]rank\b", flags=re.I | re.S)
TWO_CALLS = (
    "gloo aborts a process that receives a message of the wrong size. These ranks stand at "
    "different lines, so two different calls met. Does one rank run more steps, leave the loop "
    "early, or evaluate alone?"
)
ALL_RANKS = "A collective needs every rank of its group: each must call it."
UNDER_AN_IF = f"{ALL_RANKS} Is it under an `if`, or after a `return`?"
SAME_ORDER = "Every rank must call the same collectives in the same order."
PAIRS = (
    "Each send needs a recv on the other rank. Write down for each rank what it sends and "
    "receives, in order: two ranks that both send first, or both receive first, can wait forever."
)
UNLIKE_TENSORS = "The ranks make the same call with different shapes or dtypes. Which are they?"
UNLIKE_ARGUMENTS = (
    "All ranks are in the same call. Do they agree on its arguments, such as src and group?"
)
WHILE_HANDLING = (
    "{who} waited for other ranks while handling an error that they do not know of. An `except`, a "
    "`finally` and the end of a `with` must not wait for ranks that do not get there."
)
LOOP = "What ends the loop around this line, and does it ever happen?"
NO_LOOP = "What does this line wait for, or how long does it compute?"
COMPILES = (
    "torch.compile is still compiling this line, as it does on the first call and again for new "
    "shapes. That can take a minute."
)
OWN_PROCESSES = (
    "This line waits for processes that the worker started. The launch itself starts "
    "the ranks: give it the function that they run."
)
OF_PROCESSES = tuple(
    os.sep + file.replace("/", os.sep)
    for file in ("multiprocessing/process.py", "torch/multiprocessing/spawn.py")
)
NO_LINE = "What runs outside of the worker's own lines: a thread, a process, a signal?"
NOT_YET_WORKING = frozenset({State.STARTING, State.IMPORTING})
TAKE_LONGER = (
    "Work that only takes longer needs a longer timeout: timeout=300, in a cell --timeout 300."
)
FOR_SIGNALS = {
    -9: "SIGKILL comes from outside. If nobody sent it, the system ran out of memory: use fewer "
    "ranks or smaller tensors.",
    -11: "A crash in compiled code, not in Python. If TORCH_DISTRIBUTED_DEBUG is DETAIL, torch "
    "2.13 itself crashes with DDP on gloo: use INFO.",
    -15: "SIGTERM: something asked the process to end, such as a job scheduler at its time limit.",
}


def for_error(kind: str, reason: str, file: str = "") -> str:
    """Advice for a Python error of type `kind`, whose text `reason` may begin with the type.

    `file` is where the reader's line stands that raised it.
    """
    text = reason if reason.startswith(kind) else f"{kind}: {reason}"
    known = next((sentence for pattern, sentence in FOR_ERRORS if re.search(pattern, text)), "")
    if known:
        return known
    return NAMES_OF_A_CELL if kind == "NameError" and is_cell(file) else ""


def for_exit(lines: Sequence[str]) -> str:
    """Advice for a worker that left by SystemExit after it had printed these lines."""
    text = "\n".join(lines)
    if not USAGE.search(text):
        return ""
    return LOCAL_RANK if UNKNOWN_LOCAL_RANK.search(text) else COMMAND_LINE


def for_death(code: int | None, call: str) -> str:
    """Advice for a rank that ended with exit status `code`, perhaps inside `call`."""
    if code == -6 and call and call != "abort":
        return (
            f"An abort during {call}: gloo ends a process that receives a message of the wrong "
            "size. Either the ranks pass tensors of different shape or dtype, or two different "
            "calls met. Print shape, dtype and the call on each rank before it."
        )
    if code is None:
        return ""
    return EARLY_EXIT if code >= 0 else FOR_SIGNALS.get(code, "")


def for_hang(positions: Sequence[Position], mismatches: Sequence[Mismatch]) -> str:
    """Advice for ranks that did not finish; `mismatches` are their calls that do not match."""
    if sentence := for_handled(positions):
        return sentence
    waiting = [p for p in positions if p.communicates]
    present = present_ranks(mismatches)
    elsewhere = [p for p in positions if p.file and not p.communicates and p.rank not in present]
    calls, kinds = {p.call for p in waiting if p.call}, {mismatch.kind for mismatch in mismatches}
    if not waiting and not mismatches:
        on_their_way = any(p.state in RESULT_STATES for p in positions)
        if not elsewhere:
            if on_their_way:
                return RETURN_LESS
            working = [p for p in positions if not p.ended and p.state not in NOT_YET_WORKING]
            return NO_LINE if working else ""
        return for_lines(elsewhere)
    if elsewhere:
        who = ranks_in_words([p.rank for p in elsewhere]).capitalize()
        absent = PAIRS if only_transfers(waiting, mismatches) else f"{who} did not reach it."
        if all(p.handled_error for p in elsewhere) and not all(p.handled_error for p in waiting):
            absent += f" {'It is' if len(elsewhere) == 1 else 'They are'} handling an error."
        return f"{absent} {for_lines(elsewhere)}"
    if any(p.is_point_to_point for p in waiting) or not (calls or mismatches):
        return PAIRS  # no call: `work.wait()`; the flight records would show a collective
    if Kind.TENSORS in kinds:
        return UNLIKE_TENSORS
    if any(p.ended for p in positions):
        return UNDER_AN_IF
    if mismatches:
        return SAME_ORDER
    return UNLIKE_ARGUMENTS if len(calls) == 1 else ALL_RANKS


def for_handled(positions: Sequence[Position]) -> str:
    """Advice if a rank waited for others while it handled an error that not all have; else "".

    Whether a rank that has returned had the same error, and caught it, is not known.
    """
    failed = [p for p in positions if p.handled_error and not p.handled_error.succeeds]
    handling = [p.rank for p in failed if p.communicates or p.ended]
    shared = all(p.handled_error or p.state is State.RETURNED for p in positions)
    if not handling or shared:
        return ""
    return WHILE_HANDLING.format(who=ranks_in_words(handling).capitalize())


def only_transfers(waiting: Sequence[Position], mismatches: Sequence[Mismatch]) -> bool:
    """True if these ranks wait for a send or a recv of another one, and for nothing else.

    A call without a name is `work.wait()`; if it were a collective's, there would be a mismatch.
    """
    there = [p for p in waiting if p.communicates]
    return bool(there) and all(p.is_point_to_point or not (p.call or mismatches) for p in there)


def for_lines(positions: Sequence[Position]) -> str:
    """Advice for lines that do not end."""
    if any(p.call in ("join", "spawn") and p.source.endswith(OF_PROCESSES) for p in positions):
        return OWN_PROCESSES
    if any(p.state is State.COMPILING for p in positions):
        return COMPILES
    return LOOP if any(in_loop(p.file, p.line) for p in positions) else NO_LOOP


def in_loop(path: str, line: int) -> bool:
    """True if this line of the file is in a `for` or `while`, or is its first line."""
    linecache.checkcache(path)
    try:
        tree = parse_source("".join(linecache.getlines(path)))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While))
    return any(loop.lineno <= line <= (loop.end_lineno or 0) for loop in loops)
