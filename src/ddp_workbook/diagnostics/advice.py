"""One sentence of advice for an error that learners often meet; "" if none would help."""

import ast
import re
from collections.abc import Sequence

from ddp_workbook.diagnostics.mismatches import Kind, Mismatch, ranks_in_words
from ddp_workbook.diagnostics.positions import TWO_SIDED, WITH_ITS_RESULT, Position

RETURN_LESS = (
    "Return less: a mean, or a part. Or save it to a file on the rank, and return the file's path."
)
# (pattern in "Type: message", advice). The first that matches is given.
FOR_ERRORS = [
    (
        r"NameError: name '(rank|world_size|device|dist|torch)'",
        "A worker in a file starts with no names: import torch, and ask dist.get_rank() and "
        "dist.get_world_size().",
    ),
    (
        r"NameError",
        "A rank is a new process. It knows what its own file or cell defines and imports, but "
        "nothing from other cells.",
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
        r"(?i)(no available|not built with|backend|doesn't have).*nccl|ProcessGroupNCCL is only",
        "NCCL moves data between GPUs only; on a CPU the backend is gloo: call "
        'init_process_group("gloo"), or leave out the backend and let PyTorch choose.',
    ),
    (
        r"Cannot access accelerator device|not compiled with CUDA|_cuda_setDevice|No CUDA GPUs"
        r"|no NVIDIA driver|deserialize object on a CUDA|tensor to be on GPU|without ATen_cuda"
        r"|device_ids .* module parameters \{device\(type='cpu'\)",
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
        r"out of memory",
        "Do all ranks put their tensors on GPU 0? Call torch.cuda.set_device(local_rank) first.",
    ),
    (
        r"AttributeError: Can't get attribute",
        "The worker's file has changed since this notebook imported it: import it again.",
    ),
    (
        r"attempted relative import",
        "A script is not part of a package: launch a function that you import from the package.",
    ),
    (
        r"ModuleNotFoundError|ImportError",
        "Is it installed? The ranks import from the same folders (sys.path) as the process that "
        "launched them, and a script also from its own folder.",
    ),
    (
        r"^SystemExit: 2$",
        "argparse ends a script like this if it does not know the arguments. The rank is not one "
        'of them: read os.environ["LOCAL_RANK"], not --local_rank.',
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
        r"Connection closed by peer|Connection reset by peer|Broken pipe",
        "A collective needs every rank of its group: all must call it equally often, and none may "
        "leave before it ends.",
    ),
]
REPLACED = (
    "exec replaces the whole rank, so nothing can report how it ended. Start the program with "
    "subprocess.run instead."
)
ALL_RANKS = "A collective needs every rank of its group: each must call it."
UNDER_AN_IF = f"{ALL_RANKS} Is it under an `if`?"
SAME_ORDER = "Every rank must call the same collectives in the same order."
PAIRS = (
    "Each send needs a recv on the other rank. Write down for each rank what it sends and "
    "receives, in order: two ranks that both send first, or both receive first, can wait forever."
)
UNLIKE_TENSORS = "The ranks make the same call with different shapes or dtypes. Which are they?"
UNLIKE_ARGUMENTS = (
    "All ranks are in the same call. Do they agree on its arguments, such as src and group?"
)
LOOP = "What ends the loop around this line, and does it ever happen?"
NO_LOOP = "What does this line wait for, or how long does it compute?"
OWN_PROCESSES = (
    "This line waits for processes or threads that the worker started. The launch itself starts "
    "the ranks: give it the function that they run."
)
TCP_STORE = "A TCPStore waits until world_size clients are there, one of them with is_master=True."
NOBODY_WAITS = "No rank waits for another."
NO_LINE = "What runs outside of the worker's own lines: a thread, a process, a signal?"
TAKE_LONGER = "Work that only takes longer needs a longer timeout."
FOR_SIGNALS = {
    -9: "SIGKILL comes from outside. If nobody sent it, the system ran out of memory: use fewer "
    "ranks or smaller tensors.",
    -11: "A crash in compiled code, not in Python. With TORCH_DISTRIBUTED_DEBUG=DETAIL and DDP on "
    "gloo, torch 2.13 itself crashes: use INFO.",
    -15: "SIGTERM: something asked the process to end, such as a job scheduler at its time limit.",
}


def for_error(kind: str, reason: str) -> str:
    """Advice for a Python error of type `kind`; its text `reason` may begin with the type."""
    text = reason if reason.startswith(kind) else f"{kind}: {reason}"
    return next((sentence for pattern, sentence in FOR_ERRORS if re.search(pattern, text)), "")


def for_death(code: int | None, call: str) -> str:
    """Advice for a rank that ended with exit status `code`, perhaps inside `call`."""
    if code == -6 and call and call != "abort":
        return (
            f"An abort inside {call}: gloo ends the process for tensors of different shape or "
            "dtype on the ranks. Print both on each rank before the call."
        )
    return FOR_SIGNALS.get(code, "")


def for_hang(positions: Sequence[Position], found: Sequence[Mismatch]) -> str:
    """Advice for ranks that did not finish; `found` are their calls that do not match."""
    waiting = [p for p in positions if p.communicates]
    elsewhere = [p for p in positions if p.file and not p.communicates]
    calls, kinds = {p.call for p in waiting if p.call}, {mismatch.kind for mismatch in found}
    if not waiting and not found:
        on_their_way = any(p.state in WITH_ITS_RESULT for p in positions)
        return RETURN_LESS if on_their_way and not elsewhere else for_lines(elsewhere)
    if elsewhere:
        who = ranks_in_words([place.rank for place in elsewhere])
        return f"{who.capitalize()} did not reach it. {for_lines(elsewhere, alone=False)}"
    if calls & set(TWO_SIDED) or not (calls or found):
        return PAIRS  # no call: `work.wait()`; the flight records would show a collective
    if Kind.TENSORS in kinds:
        return UNLIKE_TENSORS
    if any(p.ended for p in positions):
        return UNDER_AN_IF
    if found:
        return SAME_ORDER
    return UNLIKE_ARGUMENTS if len(calls) == 1 else ALL_RANKS


def for_lines(positions: Sequence[Position], alone: bool = True) -> str:
    """Advice for lines that do not end; `alone` means that no rank waits for them."""
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
