"""One sentence of advice for an error that learners often meet; "" where none would help."""

import re

from ddp_workbook.diagnostics.positions import AT_ITS_LINE, TWO_SIDED, Position

# (pattern in "Type: message", advice). The first that fits is given.
FOR_ERRORS = [
    (
        r"NameError: name '(rank|world_size|device|dist|torch)'",
        "A worker in a file gets nothing for free: import torch, and ask dist.get_rank() and "
        "dist.get_world_size().",
    ),
    (
        r"NameError",
        "The ranks are new processes: what another cell defined or imported does not exist there. "
        "Define or import it here.",
    ),
    (
        r"Default process group has not been initialized",
        "Call dist.init_process_group(...) first, on every rank.",
    ),
    (
        r"trying to initialize the default process group twice",
        "The group is there already: a %%ranks cell makes it (`%%ranks N --bare` does not).",
    ),
    (
        r"(?i)Expected to have finished reduction in the prior iteration",
        "Some parameters got no gradient in the last step, so their buckets never left. Use every "
        "parameter in the loss, or pass find_unused_parameters=True and pay for one more walk over "
        "the graph in each step.",
    ),
    (
        r"(?i)(no available|not built with|backend|doesn't have).*nccl|ProcessGroupNCCL is only",
        "NCCL moves data between GPUs only; on a CPU the backend is gloo.",
    ),
    (
        r"EADDRINUSE|Address already in use",
        "Another program has this port. `launch` and `torchrun --standalone` find a free one: "
        "do not set MASTER_PORT.",
    ),
    (
        r"(?i)timed? ?out",
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
        r"ModuleNotFoundError|ImportError",
        "The ranks import from the same folders as this notebook (sys.path).",
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
NO_GUARD = (
    'Has the script that launches an `if __name__ == "__main__":` around its work? '
    "Without it, each rank runs the whole script again."
)
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


def for_death(code: int | None, call: str, started: bool = True) -> str:
    """Advice for a rank that ended with exit status `code`, perhaps inside `call`.

    `started` is False if it ended before the worker was reached.
    """
    if code == -6 and call and call != "abort":
        return (
            f"An abort inside {call}: on gloo, tensors of different shape or dtype on the ranks "
            "end the process. Print shape and dtype on each rank before the call."
        )
    if code == 1 and not started:
        return NO_GUARD
    return FOR_SIGNALS.get(code, "")


def for_hang(positions: list[Position], explained: bool) -> str:
    """Advice for ranks that did not finish; `explained` if a missed call has been named already."""
    if any(p.call for p in positions) and any(p.doing == "has returned" for p in positions):
        return "A collective is a meeting: every rank of the group must come. Is it under an `if`?"
    if positions and all(p.call in TWO_SIDED for p in positions):
        return ""  # the sentence on sends and receives has said it
    if explained:
        return "Every rank must enter the same collectives in the same order."
    if positions and all(p.doing == AT_ITS_LINE for p in positions):
        return (
            "No rank waits in a collective: an endless loop, or work that needs a longer timeout?"
        )
    return ""
