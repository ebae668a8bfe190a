"""`ddp-workbook check`: what every page needs of a machine, tried one by one.

Each trial returns a finding: that it is fine, that something will be different here, or that the
workbook cannot run, with what to do about it.
"""

import math
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]

GIB = 2**30
PYTHONS = (3, 11), (3, 14)  # from, and below
TORCH = (2, 11)
SHARED_MEMORY = Path("/dev/shm")  # where the workers of a DataLoader put batches
NVIDIA = Path("/proc/driver/nvidia/gpus")  # one folder a GPU, written by the driver
LEAST_MEMORY, LEAST_DISK, LEAST_SHARED = GIB, GIB // 2, 256 << 20  # bytes that are free
# of a batch system: its name, a program, a variable of its jobs, how to get a node
SCHEDULERS = (
    ("Slurm", "sbatch", "SLURM_JOB_ID", "`salloc`, then `srun --pty bash`"),
    ("PBS", "qsub", "PBS_JOBID", "`qsub -I`"),
    ("LSF", "bsub", "LSB_JOBID", "`bsub -Is bash`"),
)
FIRST_USER = 1000  # user ids below belong to the system
LEAST_FILES, LEAST_PROCESSES = 512, 512  # limits below which a room-sized cell may be refused


class State(Enum):
    """How a trial ended."""

    OK = "ok"
    NOTE = "note"  # the workbook runs, and something is different here
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """What a trial found, and what to do about it; `fix` is empty if all is well."""

    state: State
    text: str
    fix: str = ""


def fine(text: str) -> Finding:
    """All is well."""
    return Finding(State.OK, text)


def note(text: str, fix: str) -> Finding:
    """The workbook runs here, with a difference."""
    return Finding(State.NOTE, text, fix)


def failed(text: str, fix: str) -> Finding:
    """The workbook does not run here."""
    return Finding(State.FAILED, text, fix)


def trials(ranks: int) -> dict[str, Callable[[], Finding]]:
    """The trials by name, in the order in which one failure explains the next."""
    return {
        "Python": python,
        "PyTorch": pytorch,
        "backends": backends,
        "cores": lambda: cores(ranks),
        "memory": lambda: memory(ranks),
        "shared memory": shared_memory,
        "open files": lambda: open_files(ranks),
        "processes": lambda: processes(ranks),
        "disk": disk,
        "node": node,
        "loopback": loopback,
        "host name": host_name,
        "GPUs": gpus,
        "data": data,
        "ranks": lambda: all_reduce(ranks),
        "JupyterLab": jupyterlab,
    }


def run_trial(trial: Callable[[], Finding]) -> Finding:
    """Run a trial; an error that it did not foresee is a failure with the error's text."""
    try:
        return trial()
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        return failed(words, "This was not foreseen: run `make setup`, and send this line to us.")


def python() -> Finding:
    """Its version, and that it belongs to the workbook's own environment."""
    words = f"{platform.python_version()} in {sys.prefix}"
    if not PYTHONS[0] <= sys.version_info[:2] < PYTHONS[1]:
        return failed(words, "The workbook needs Python 3.11, 3.12 or 3.13: run `make setup`.")
    return fine(words)


def pytorch() -> Finding:
    """Its version and build."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return failed(f"cannot be imported: {error}", "Run `make setup`.")
    build = f"with CUDA {torch.version.cuda}" if torch.version.cuda else "for CPUs"
    words = f"{torch.__version__}, built {build}"
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < TORCH:
        return failed(words, "The workbook needs PyTorch 2.11 or newer: run `make setup`.")
    return fine(words)


def backends() -> Finding:
    """gloo, which every page uses on a CPU."""
    from ddp_workbook.page.machine import machine

    names = machine()["backends"]
    if "gloo" not in names:
        fix = "This PyTorch cannot connect processes on a CPU: install another build of it."
        return failed(", ".join(names) or "none", fix)
    return fine(", ".join(names))


def cores(ranks: int) -> Finding:
    """Whether the ranks compute at the same time."""
    from manyranks.launcher.limits import usable_cores

    count = usable_cores()
    words = f"{count} usable of {os.cpu_count()}"
    if count < 2:
        return note(words, "Every page runs, but ranks take turns: no timing shows a speed-up.")
    if count < ranks:
        return note(words, f"{ranks} ranks take turns. Compare timings at {count} ranks or fewer.")
    return fine(words)


def memory(ranks: int) -> Finding:
    """Free memory for JupyterLab, a kernel and the ranks."""
    from manyranks.launcher.limits import free_memory, usable_memory
    from manyranks.launcher.preconditions import RANK_MEMORY_BYTES

    free, total = free_memory(), usable_memory()
    words = f"{free / GIB:.1f} GiB free of {total / GIB:.1f}"
    if free < LEAST_MEMORY + ranks * RANK_MEMORY_BYTES:
        return failed(words, f"{ranks} ranks and JupyterLab need 1.5 GiB: close other programs.")
    if free < 2 * LEAST_MEMORY + ranks * RANK_MEMORY_BYTES:
        return note(words, "Keep one notebook open at a time, and close other programs.")
    return fine(words)


def shared_memory() -> Finding:
    """/dev/shm, through which the workers of a DataLoader hand over batches."""
    if not SHARED_MEMORY.is_dir():
        return fine(f"this system has no {SHARED_MEMORY}, and needs none")
    if not os.access(SHARED_MEMORY, os.W_OK):
        return failed(f"{SHARED_MEMORY} cannot be written", "Ask for it to be mounted writable.")
    free = shutil.disk_usage(SHARED_MEMORY).free
    words = f"{free / GIB:.2f} GiB free in {SHARED_MEMORY}"
    if free < LEAST_SHARED:
        return note(
            words,
            "Workers of a DataLoader may run out of it: start a container with --shm-size=1g.",
        )
    return fine(words)


def open_files(ranks: int) -> Finding:
    """How many files a process may open."""
    from manyranks.launcher.preconditions import DESCRIPTORS_PER_RANK, SPARE_DESCRIPTORS

    limit = limit_of("RLIMIT_NOFILE")
    words = f"at most {limit:,.0f}" if math.isfinite(limit) else "no limit"
    if limit < ranks * DESCRIPTORS_PER_RANK + SPARE_DESCRIPTORS:
        return failed(words, "Too few for the pipes of the ranks: `ulimit -n 4096` raises it.")
    if limit < LEAST_FILES:
        return note(words, "Cells with many ranks may be refused: `ulimit -n 4096` raises it.")
    return fine(words)


def processes(ranks: int) -> Finding:
    """How many processes and threads this user, or this container, may have at once."""
    limit = min(limit_of("RLIMIT_NPROC"), container_processes())
    words = f"at most {limit:,.0f}" if math.isfinite(limit) else "no limit"
    if limit < 16 * ranks:  # a rank has about ten threads
        return failed(words, "Too few for the threads of the ranks: `ulimit -u 4096` raises it.")
    if limit < LEAST_PROCESSES:
        return note(words, "Cells with many ranks may fail. Raise `ulimit -u`, or pids of Docker.")
    return fine(words)


def limit_of(name: str) -> float:
    """This process's soft limit; infinity if there is none."""
    try:
        import resource
    except ImportError:  # Windows
        return math.inf
    soft = resource.getrlimit(getattr(resource, name))[0]
    return math.inf if soft == resource.RLIM_INFINITY else soft


def container_processes(file: Path = Path("/sys/fs/cgroup/pids.max")) -> float:
    """The limit of the container; infinity if there is none."""
    from manyranks.launcher.limits import read_text

    text = read_text(file)
    return float(text) if text.isdigit() else math.inf


def disk() -> Finding:
    """Whether cells and attempts can be saved beside the notebooks."""
    folder = CHECKOUT / "notebooks"
    if not os.access(folder, os.W_OK):
        return note(
            f"{folder} cannot be written",
            "Attempts are lost when the kernel ends: copy the workbook to a folder of your own.",
        )
    free = shutil.disk_usage(folder).free
    words = f"{free / GIB:,.1f} GiB free"
    if free < LEAST_DISK:
        return note(words, "Cells and checkpoints need up to 0.5 GiB: delete something.")
    return fine(words)


def node() -> Finding:
    """Whether this is a login node, where ranks do not belong."""
    here = [scheduler for scheduler in SCHEDULERS if shutil.which(scheduler[1])]
    if jobs := [name for name, _, variable, _ in SCHEDULERS if variable in os.environ]:
        return fine(f"in a job of {jobs[0]}")
    if not here:
        return fine("no batch system here")
    (name, program, _, ask), *_ = here
    user_count = users()
    if user_count < 2:
        return fine(f"{name} is here, and nobody else is")
    return note(
        f"{user_count} users, {name}'s {program} and no job: this looks like a login node",
        f"Ask for a compute node of your own ({ask}); do not run ranks on a login node. Neither "
        "torch's store nor gloo asks who connects, and all users of a node share its loopback.",
    )


def users() -> int:
    """How many people use this machine: logged in, or with a process."""
    import psutil

    names = {user.name for user in psutil.users()}
    for process in psutil.process_iter(["uids", "username"]):
        uids = process.info["uids"]  # None: it may not be seen
        if uids and uids.real >= FIRST_USER and uids.real != 65534:  # nobody
            names.add(process.info["username"])
    return len(names)


def loopback() -> Finding:
    """A connection from this machine to itself, as ranks make it."""
    fix = "Ranks meet at 127.0.0.1: is it blocked by a firewall, or by a VPN or sandbox?"
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(5)
            with socket.create_connection(server.getsockname(), timeout=5) as client:
                server.accept()[0].close()
                address, port = client.getpeername()
    except OSError as error:
        return failed(str(error), fix)
    return fine(f"{address}, port {port} answered")


def host_name() -> Finding:
    """Whether the machine's own name has an address: gloo and torchrun ask for it by default."""
    name = socket.gethostname()
    try:
        return fine(f"it has an address, {socket.gethostbyname(name)}")
    except OSError as error:
        return note(
            f"it has no address: {error}",
            f'The pages do not need it. For torchrun, add "127.0.1.1 {name}" to /etc/hosts, or set '
            "GLOO_SOCKET_IFNAME=lo.",
        )


def gpus() -> Finding:
    """What the ranks run on."""
    import torch

    present = NVIDIA.is_dir() and any(NVIDIA.iterdir())
    count = torch.cuda.device_count()
    if count == 0 and present and not torch.version.cuda:
        fix = "This PyTorch cannot use it: `make setup TORCH=cuda` installs one that can."
        return note("an NVIDIA GPU is here", fix)
    if count == 0 and present:
        fix = "PyTorch does not see it: is CUDA_VISIBLE_DEVICES empty, or the driver too old?"
        return note("an NVIDIA GPU is here", fix)
    if count == 0:
        return fine("none: ranks run on the CPU, over gloo")
    names = f"{count} x {torch.cuda.get_device_name(0)}"
    if count == 1:
        return fine(f"{names}; cells with several ranks run on the CPU, over gloo")
    if not torch.distributed.is_nccl_available():
        return failed(f"{names}, without NCCL", "Install a PyTorch with NCCL: `make setup`.")
    version = ".".join(map(str, torch.cuda.nccl.version()))
    return fine(f"{names}, NCCL {version}; cells with more than {count} ranks run on the CPU")


def data() -> Finding:
    """The digits that all chapters train on."""
    from ddp_workbook.chapters.digits import DigitsDataset

    try:
        return fine(f"{len(DigitsDataset()):,} digits")
    except (OSError, ValueError) as error:
        mend = "copy it from another copy of the workbook, for this one is no git repository."
        if (CHECKOUT / ".git").exists():
            mend = "`git checkout data` restores it."
        words = str(error).rstrip(".")  # the line goes on after it
        return failed(words, f"The folder data/ is incomplete: {mend}")


def all_reduce(ranks: int) -> Finding:
    """`ranks` processes meet twice, because the first launch also starts the fork server."""
    from ddp_workbook.workshop.handshake import time_all_reduce
    from manyranks.errors import WorkbookError

    try:
        first, warm = time_all_reduce(ranks), time_all_reduce(ranks)
    except (WorkbookError, ArithmeticError, OSError) as error:
        return failed(str(error), "The lines above may say why: fix the first of them.")
    return fine(f"{ranks} ranks met in {warm:.2f} s (the first time in {first:.2f} s)")


def jupyterlab() -> Finding:
    """JupyterLab, and a kernel that is this Python."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        import jupyterlab
    except ImportError:
        return failed("not installed", "Run `make setup`.")
    fix = "Run `.venv/bin/python -m ipykernel install --sys-prefix`."
    try:
        starts = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return failed(f"version {jupyterlab.__version__}, without a kernel python3", fix)
    own = shutil.which(starts) or starts
    if os.path.isabs(starts) and not Path(own).parent.samefile(Path(sys.executable).parent):
        return failed(f"its kernel python3 is another Python, {starts}", fix)
    return fine(f"version {jupyterlab.__version__}, with a kernel")
