"""`ddp-workbook new`: write a small training project that needs nothing of this workbook."""

from pathlib import Path

from ddp_workbook.errors import WorkbookError
from ddp_workbook.files import write_whole

HERE = Path(__file__).parent
STRATEGIES, CLUSTERS = ("ddp", "fsdp"), ("slurm", "pbs")
FILES = {"train.py": "train.py", "test_train.py": "train_test.py", "README.md": "README.md"}

SAVE_SHARDED = '''\
def save(path: Path, epoch: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """All ranks, a folder an epoch; its .metadata is written last, when it is complete."""
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=path / f"epoch_{epoch:04}")


def resume(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest complete checkpoint, if there is one; the epoch to begin with."""
    complete = sorted(path.glob("epoch_*/.metadata"))
    if not complete:
        return 0
    weights, state = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": state}, checkpoint_id=complete[-1].parent)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    return int(complete[-1].parent.name.removeprefix("epoch_")) + 1


def shard(model: nn.Sequential, bf16: bool) -> nn.Sequential:
    """Each block is a unit of its own; what is left over is one more."""
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bf16 else MixedPrecisionPolicy()
    mesh = init_device_mesh(next(model.parameters()).device.type, (dist.get_world_size(),))
    for block in list(model)[1:-1]:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


'''
# What fully_shard changes of train.py: old, new. The rest of the program is the same.
DIST = "import torch.distributed as dist\n"
WRAP = """\
    ddp = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
"""
BACKWARD = """\
            with nullcontext() if last else ddp.no_sync():
                with torch.autocast(device.type, torch.bfloat16, enabled=args.bf16):
                    loss = F.cross_entropy(ddp(inputs), labels) / args.accumulate
                loss.backward()
"""
SHARDED_BACKWARD = """\
            assert isinstance(model, FSDPModule)  # since fully_shard
            model.set_requires_gradient_sync(last)
            loss = F.cross_entropy(model(inputs).float(), labels) / args.accumulate
            loss.backward()
"""
IMPORTS = """\
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
"""
SHARDED = (
    ("with DistributedDataParallel:", "with fully_shard:"),
    ("from contextlib import nullcontext\n", ""),
    (DIST, DIST + "import torch.distributed.checkpoint as dcp\n"),
    ("from torch.nn.parallel import DistributedDataParallel\n", ""),
    ("from torch.utils.data", IMPORTS + "from torch.utils.data"),
    ("checkpoint.pt", "checkpoints"),
    (
        "    model = make_model().to(device)\n",
        "    model = shard(make_model().to(device), args.bf16)\n",
    ),
    (WRAP, ""),
    (BACKWARD, SHARDED_BACKWARD),
)


class NewRefused(WorkbookError, ValueError):
    """A project that cannot be written as asked."""


def files(strategy: str, cluster: str) -> dict[str, str]:
    """The project's files by name, as text. Raises NewRefused for words that are not known."""
    for what, given, known in (
        ("strategy", strategy, STRATEGIES),
        ("cluster", cluster, CLUSTERS),
    ):
        if given not in known:
            raise NewRefused(f"--{what} {given!r} is not known: take {' or '.join(known)}.")
    found = {name: (HERE / own).read_text(encoding="utf-8") for name, own in FILES.items()}
    if strategy == "fsdp":
        found["train.py"] = sharded(found["train.py"])
    job = f"job.{cluster}"
    found[job] = (HERE / job).read_text(encoding="utf-8")
    words = {"STRATEGY": {"ddp": "DistributedDataParallel", "fsdp": "fully_shard"}[strategy]}
    words |= {"JOB": job, "SUBMIT": {"slurm": "sbatch", "pbs": "qsub"}[cluster]}
    words |= {"CHECKPOINT": {"ddp": "checkpoint.pt", "fsdp": "checkpoints"}[strategy]}
    for word, text in words.items():
        found["README.md"] = found["README.md"].replace(f"@{word}@", text)
    return found


def sharded(program: str) -> str:
    """train.py with fully_shard in the place of DistributedDataParallel."""
    start, end = program.index("def save("), program.index("def rate(")
    program = program[:start] + SAVE_SHARDED + program[end:]
    for old, new in SHARDED:
        assert program.count(old) == 1, old
        program = program.replace(old, new)
    return program


def write(folder: Path, strategy: str = "ddp", cluster: str = "slurm") -> list[Path]:
    """Write the project into a new or empty folder; the files.

    Raises NewRefused if the folder has files, or cannot be written.
    """
    texts = files(strategy, cluster)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise NewRefused(
                f"{folder} is there already, and not empty. Give the name of a new folder."
            )
        folder.mkdir(parents=True, exist_ok=True)
        return [write_whole(folder / name, text) for name, text in texts.items()]
    except OSError as error:
        raise NewRefused(
            f"{folder} cannot be written: {error.strerror}. Give another folder."
        ) from None
