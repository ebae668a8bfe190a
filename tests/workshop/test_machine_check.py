"""`ddp-workbook check`: each line that it can print, on a machine where that is so."""

import builtins
import math
import socket
import sys
from collections import namedtuple
from types import SimpleNamespace

import pytest
from jupyter_client.kernelspec import NoSuchKernel
from typer.testing import CliRunner

from ddp_workbook import cli
from ddp_workbook.workshop import machine_check
from ddp_workbook.workshop.machine_check import GIB, State, run_trial, trials
from tests.commands import run

Disk = namedtuple("Disk", "total used free")


@pytest.mark.memory
def test_every_trial_has_its_line_and_four_ranks_meet():
    code, output = run("check")
    assert code == 0, output
    for name in trials(4):
        assert f" {name}: " in output
    assert "4 ranks met in" in output and "1,797 digits" in output
    assert output.endswith("Ready. Start the workbook with `make lab`.")


@pytest.mark.memory
def test_every_line_begins_with_its_state(monkeypatch):
    """Also a long one in a narrow terminal: attendees are told to look at the beginnings."""
    monkeypatch.setattr("ddp_workbook.workshop.handshake.time_all_reduce", lambda ranks: 0.1)
    monkeypatch.setattr("manyranks.launcher.limits.usable_cores", lambda: 1)
    monkeypatch.setenv("COLUMNS", "60")
    result = CliRunner().invoke(cli.app, ["check"])
    *lines, last = result.output.splitlines()
    assert len(lines) == len(trials(4))
    assert {line.split()[0] for line in lines} <= {state.value for state in State}
    assert "note cores: 1 usable of" in " ".join(result.output.split())
    assert last.startswith("Ready.") and result.exit_code == 0, "a note is not a failure"


@pytest.mark.memory
def test_what_is_missing_is_named_with_its_mend(monkeypatch):
    monkeypatch.setattr(
        "ddp_workbook.chapters.digits.DigitsDataset", raises(FileNotFoundError("digits"))
    )
    monkeypatch.setattr("ddp_workbook.workshop.handshake.time_all_reduce", lambda ranks: 0.1)
    code, output = run("check")
    assert code == 1
    assert "failed data: digits. The folder data/ is incomplete" in output
    assert output.endswith("Not ready: data.")


def test_no_ranks_are_refused():
    assert run("check", "--ranks", "0")[0] == 2


def raises(error):
    """A function that raises it, whatever it is given."""

    def function(*args, **kwargs):
        raise error

    return function


def without(module):
    """An import statement that does not find this module."""
    original = builtins.__import__

    def find(name, *args, **kwargs):
        if name == module:
            raise ImportError(f"No module named {module!r}")
        return original(name, *args, **kwargs)

    return find


def limits(open_files=math.inf, processes=math.inf):
    """Limits of this process."""
    return lambda name: {"RLIMIT_NOFILE": open_files, "RLIMIT_NPROC": processes}[name]


class OtherKernel:
    """A kernel specification of a Python in another folder."""

    argv = ("/usr/bin/python3", "-m", "ipykernel_launcher")


KERNEL = "jupyter_client.kernelspec.KernelSpecManager.get_kernel_spec"
CORES = "manyranks.launcher.limits.usable_cores"
MEMORY = "manyranks.launcher.limits.free_memory"
LAUNCH = "ddp_workbook.workshop.handshake.launch"
GLOO, NCCL = (f"torch.distributed.is_{name}_available" for name in ("gloo", "nccl"))
DISK, COUNT, IMPORT = "shutil.disk_usage", "torch.cuda.device_count", "builtins.__import__"
READ_ONLY = "os.access", lambda path, mode: False
OK, NOTE, FAILED = State.OK, State.NOTE, State.FAILED
TWO_GPUS = [(COUNT, lambda: 2), ("torch.cuda.get_device_name", lambda number: "H200")]
DRIVER = machine_check.__name__ + ".NVIDIA", machine_check.CHECKOUT  # a folder that is not empty
SELF = machine_check.__name__
SHM, LIMIT = f"{SELF}.SHARED_MEMORY", f"{SELF}.limit_of"
SLURM = [
    ("shutil.which", {"sbatch": "/usr/bin/sbatch"}.get),
    ("os.environ", {}),
]
FAULTS = {  # case -> trial, what is replaced, the state, words of the finding
    "old Python": ("Python", [("sys.version_info", (3, 10, 4))], FAILED, "3.11, 3.12 or"),
    "no torch": ("PyTorch", [(IMPORT, without("torch"))], FAILED, "No module"),
    "old torch": ("PyTorch", [("torch.__version__", "2.10.1+cpu")], FAILED, "2.11 or newer"),
    "CUDA build": ("PyTorch", [("torch.version.cuda", "12.8")], OK, "built with CUDA 12.8"),
    "no gloo": ("backends", [(GLOO, lambda: False)], FAILED, "another build"),
    "few cores": ("cores", [(CORES, lambda: 2)], NOTE, "4 ranks take turns"),
    "no memory": ("memory", [(MEMORY, lambda: GIB)], FAILED, "close other programs"),
    "little memory": ("memory", [(MEMORY, lambda: 2 * GIB)], NOTE, "one notebook open"),
    "no shared memory": (
        "shared memory",
        [(SHM, machine_check.Path("/no/such/folder"))],
        OK,
        "needs none",
    ),
    "shared memory read-only": ("shared memory", [READ_ONLY], FAILED, "cannot be written"),
    "little shared memory": (
        "shared memory",
        [(DISK, lambda path: Disk(64 << 20, 0, 64 << 20))],
        NOTE,
        "--shm-size",
    ),
    "very few files": ("open files", [(LIMIT, limits(open_files=64))], FAILED, "ulimit -n"),
    "few files": (
        "open files",
        [(LIMIT, limits(open_files=256))],
        NOTE,
        "at most 256. Cells with many ranks",
    ),
    "very few processes": ("processes", [(LIMIT, limits(processes=32))], FAILED, "ulimit -u"),
    "few processes": (
        "processes",
        [(f"{SELF}.container_processes", lambda: 100.0)],
        NOTE,
        "pids of Docker",
    ),
    "read-only folder": ("disk", [READ_ONLY], NOTE, "your own"),
    "full disk": ("disk", [(DISK, lambda path: Disk(GIB, GIB, 0))], NOTE, "delete something"),
    "login node": ("node", [*SLURM, (f"{SELF}.users", lambda: 7)], NOTE, "`srun --pty bash`"),
    "node of one's own": ("node", [*SLURM, (f"{SELF}.users", lambda: 1)], OK, "nobody else is"),
    "in a job": ("node", [*SLURM, ("os.environ", {"PBS_JOBID": "1"})], OK, "in a job of PBS"),
    "no batch system": ("node", [("shutil.which", lambda name: None)], OK, "no batch system"),
    "no loopback": (
        "loopback",
        [("socket.create_connection", raises(ConnectionRefusedError("refused")))],
        FAILED,
        "firewall",
    ),
    "nameless host": (
        "host name",
        [("socket.gethostbyname", raises(socket.gaierror(-2, "Name or service not known")))],
        NOTE,
        "/etc/hosts",
    ),
    "GPU and CPU build": ("GPUs", [DRIVER, ("torch.version.cuda", None)], NOTE, "TORCH=cuda"),
    "hidden GPU": (
        "GPUs",
        [DRIVER, ("torch.version.cuda", "12.8"), (COUNT, lambda: 0)],
        NOTE,
        "CUDA_VISIBLE_DEVICES",
    ),
    "one GPU": (
        "GPUs",
        [*TWO_GPUS, (COUNT, lambda: 1)],
        OK,
        "1 x H200; cells with several ranks run on the CPU",
    ),
    "two GPUs": (
        "GPUs",
        [*TWO_GPUS, (NCCL, lambda: True), ("torch.cuda.nccl.version", lambda: (2, 27, 5))],
        OK,
        "2 x H200, NCCL 2.27.5",
    ),
    "two GPUs without NCCL": ("GPUs", [*TWO_GPUS, (NCCL, lambda: False)], FAILED, "without NCCL"),
    "wrong sum": (
        "ranks",
        [(LAUNCH, lambda worker, ranks: [3.0, 4.0])],
        FAILED,
        "an all-reduce of 1 to 4 gave [3.0, 4.0]",
    ),
    "no JupyterLab": ("JupyterLab", [(IMPORT, without("jupyterlab"))], FAILED, "not installed"),
    "no kernel": (
        "JupyterLab",
        [(KERNEL, raises(NoSuchKernel("python3")))],
        FAILED,
        "without a kernel python3",
    ),
    "kernel of another Python": (
        "JupyterLab",
        [(KERNEL, lambda manager, name: OtherKernel)],
        FAILED,
        "/usr/bin/python3",
    ),
    "no data, no git": (
        "data",
        [
            ("ddp_workbook.chapters.digits.DigitsDataset", raises(FileNotFoundError("digits"))),
            (f"{SELF}.CHECKOUT", machine_check.Path("/no/such/folder")),
        ],
        FAILED,
        "copy it from another copy of the workbook",
    ),
    "unforeseen": ("data", [(f"{SELF}.fine", raises(RuntimeError("odd")))], FAILED, "odd"),
}


@pytest.mark.parametrize(("name", "replaced", "state", "words"), FAULTS.values(), ids=FAULTS)
def test_a_broken_machine(monkeypatch, name, replaced, state, words):
    """Each trial, where what it looks at is not as it should be."""
    trial = trials(4)[name]
    for what, value in replaced:
        monkeypatch.setattr(what, value)
    result = run_trial(trial)
    monkeypatch.undo()
    assert result.state is state
    assert words in f"{result.text}. {result.fix}"
    assert bool(result.fix) is (state is not State.OK)


def test_a_limit_of_the_process_and_of_the_container_are_read(tmp_path):
    if sys.platform != "win32":
        assert machine_check.limit_of("RLIMIT_NOFILE") > 64
    (tmp_path / "pids.max").write_text("512\n")
    assert machine_check.container_processes(tmp_path / "pids.max") == 512
    assert machine_check.container_processes(tmp_path / "absent") == math.inf


def test_users_are_counted_once(monkeypatch):
    """One is logged in twice and has processes; the system's own and nobody are no users."""
    ids = namedtuple("Ids", "real")
    owners = [(ids(0), "root"), (ids(1000), "ann"), (ids(1001), "bob"), (ids(65534), "nobody")]
    processes = [
        SimpleNamespace(info={"uids": uids, "username": name})
        for uids, name in [*owners, (None, None)]
    ]
    logged_in = [SimpleNamespace(name="ann"), SimpleNamespace(name="ann")]
    monkeypatch.setattr("psutil.users", lambda: logged_in)
    monkeypatch.setattr("psutil.process_iter", lambda names: processes)
    assert machine_check.users() == 2
