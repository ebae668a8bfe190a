"""One sentence of advice for an error that learners often meet; "" where none would help."""

import ast
import re
from collections.abc import Sequence

from ddp_workbook.diagnostics.mismatches import Kind, Mismatch, ranks_in_words
from ddp_workbook.diagnostics.positions import TWO_SIDED, Position

# (pattern in "Type: message", advice). The first that fits is given.
FOR_ERRORS = [
    (
        r"NameError: name '(rank|world_size|device|dist|torch)'",
        "A worker in a file gets nothing for free: import torch, and ask dist.get_rank() and "
        "dist.get_world_size().",
    ),
    (
        r"NameError",
        "A rank is a new process. It knows what its own file or cell defines and imports, and "
        "nothing of other cells.",
    ),
    (
        r"Default process group has not been initialized",
        "Call dist.init_process_group(...) first, on every rank.",
    ),
    (
        r"trying to initialize the default process group twice",
        "The group is there already. A %%ranks cell makes it (`%%ranks N --bare` does not); for "
        "another one, call dist.destroy_process_group() first.",
    ),
    (
        r"(?i)Expected to have finished reduction in the prior iteration",
        "Some parameters got no gradient in the last step, so their buckets never left. Use every "
        "parameter in the loss, or pass find_unused_parameters=True and pay for one more walk over "
        "the graph in each step.",
    ),
    (
        r"(?i)(no available|not built with|backend|doesn't have).*nccl|ProcessGroupNCCL is only",
        "NCCL moves data between GPUs only; on a CPU the backend is gloo: "
        'init_process_group("gloo"), or no backend, for the one that fits.',
    ),
    (
        r"Cannot access accelerator device|not compiled with CUDA|_cuda_setDevice|No CUDA GPUs"
        r"|no NVIDIA driver|deserialize object on a CUDA|tensor to be on GPU|without ATen_cuda"
        r"|device_ids .* module parameters \{device\(type='cpu'\)",
        "There is no GPU for each rank here, so the ranks run on the CPU. Let the device follow: "
        'torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu"); '
        "on the CPU, DistributedDataParallel gets no device_ids.",
    ),
    (
        r"EADDRINUSE|Address already in use",
        "Another program has this port. `launch` and `torchrun --standalone` find a free one: "
        "do not set MASTER_PORT.",
    ),
    (
        r"^(RuntimeError|Dist\w*Error): .*(?i:timed? ?out)",
        "A rank waited for others that did not come. Did every rank of the group enter the same "
        "collectives in the same order?",
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
        r"out of memory",
        "Do all ranks put their tensors on GPU 0? Call torch.cuda.set_device(local_rank) first.",
    ),
    (
        r"AttributeError: Can't get attribute",
        "The worker's file has changed since this notebook imported it: import it again.",
    ),
    (
        r"attempted relative import",
        "A script is no part of a package: launch a function, imported from the package.",
    ),
    (
        r"ModuleNotFoundError|ImportError",
        "Is it installed? The ranks import from the same folders (sys.path) as whoever launched "
        "them, and a script from its own folder.",
    ),
    (
        r"^SystemExit: 2$",
        "argparse ends a script so if it does not know its arguments. The rank's numbers are not "
        'among them: os.environ["LOCAL_RANK"], not --local_rank.',
    ),
    (
        r"EOFError: EOF when reading a line|^BdbQuit",
        "A rank has no keyboard: input() and breakpoint() cannot work there. Pass the value "
        "instead, or print it.",
    ),
    (
        r"^Unsendable",
        "The worker itself ran to its end; return plain numbers, strings, lists, dicts or tensors.",
    ),
    (
        r"Connection closed by peer|Connection reset by peer|Broken pipe",
        "A collective is a meeting: every rank of the group must come, as often as the others, and "
        "stay until the end.",
    ),
]
REPLACED = (
    "exec leaves nothing of the rank: nobody can say what became of it. Start the program with "
    "subprocess.run, or return before."
)
A_MEETING = "A collective is a meeting: every rank of the group must come."
UNDER_AN_IF = f"{A_MEETING} Is it under an `if`?"
SAME_ORDER = "Every rank must enter the same collectives in the same order."
PAIRS = (
    "Each send needs a recv on the other rank. Write down who sends to whom, in which order, for "
    "each rank: two that both send first, or both receive first, can wait forever."
)
UNLIKE_TENSORS = "The ranks meet in the same call with other shapes or dtypes. Which are they?"
UNLIKE_ARGUMENTS = (
    "All are in the same call. Do they agree on its arguments, such as src and group?"
)
LOOP = "What ends the loop around this line, and does it ever happen?"
NO_LOOP = "What does this line wait for, or how long does it compute?"
OWN_PROCESSES = (
    "This line waits for processes or threads that the worker has started. The launch starts the "
    "ranks: give it the function that they run."
)
TCP_STORE = "A TCPStore waits until world_size clients are there, one of them with is_master=True."
NOBODY_WAITS = "No rank waits for another."
NO_LINE = "What goes on outside of its lines: a thread, a process, a signal?"
TAKE_LONGER = "Work that only takes longer needs a longer timeout."
FOR_SIGNALS = {
    -9: "SIGKILL comes from outside. If nobody sent it, the system ran out of memory: use fewer "
    "ranks or smaller tensors.",
    -11: "A crash in compiled code, not in Python. With TORCH_DISTRIBUTED_DEBUG=DETAIL and DDP on "
    "gloo, torch 2.13 itself crashes: use INFO.",
    -15: "SIGTERM: somebody asked the process to end, such as a job scheduler at its time limit.",
}


def for_error(kind: str, reason: str) -> str:
    """Advice for a Python error of type `kind` whose text is `reason`, which begins with it."""
    text = reason if reason.startswith(kind) else f"{kind}: {reason}"
    return next((sentence for pattern, sentence in FOR_ERRORS if re.search(pattern, text)), "")


def for_death(code: int | None, call: str) -> str:
    """Advice for a rank that ended with exit status `code`, perhaps inside `call`."""
    if code == -6 and call and call != "abort":
        return (
            f"An abort inside {call}: on gloo, tensors of different shape or dtype on the ranks "
            "end the process. Print shape and dtype on each rank before the call."
        )
    return FOR_SIGNALS.get(code, "")


def for_hang(positions: Sequence[Position], found: Sequence[Mismatch]) -> str:
    """Advice for ranks that did not finish; `found` are the calls of theirs that do not match."""
    waiting = [p for p in positions if p.communicates]
    elsewhere = [p for p in positions if p.file and not p.communicates]
    calls, kinds = {p.call for p in waiting if p.call}, {mismatch.kind for mismatch in found}
    if not waiting and not found:
        return for_lines(elsewhere)
    if elsewhere:
        who = ranks_in_words([place.rank for place in elsewhere])
        return f"{who.capitalize()} did not come to it. {for_lines(elsewhere, alone=False)}"
    if calls & set(TWO_SIDED) or not (calls or found):
        return PAIRS  # no call: in `work.wait()`; of a collective the flight records would know
    if Kind.TENSORS in kinds:
        return UNLIKE_TENSORS
    if any(p.ended for p in positions):
        return UNDER_AN_IF
    if found:
        return SAME_ORDER
    return UNLIKE_ARGUMENTS if len(calls) == 1 else A_MEETING


def for_lines(positions: Sequence[Position], alone: bool = True) -> str:
    """Advice for lines that do not end; `alone`: no rank waits for them."""
    if not positions:
        return NO_LINE
    if any(p.call in ("join", "spawn") for p in positions):
        return OWN_PROCESSES
    if any("TCPStore(" in p.text for p in positions):
        return TCP_STORE
    if any(in_loop(p.file, p.line) for p in positions):
        return LOOP
    return f"{NO_LOOP} {NOBODY_WAITS}" if alone else NO_LOOP


def in_loop(path: str, line: int) -> bool:
    """True if this line of the file is in a `for` or `while`, or is its first line."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While))
    return any(loop.lineno <= line <= loop.end_lineno for loop in loops)
