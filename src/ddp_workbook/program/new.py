"""`ddp-workbook new`: write a small training project that needs nothing of this workbook."""

import inspect
from pathlib import Path

from ddp_workbook.chapters import checkpointing, locking, stopping
from ddp_workbook.program import checkpoints_sharded, sharded, task
from manyranks.errors import WorkbookError
from manyranks.files import write_atomically

HERE = Path(__file__).parent
STRATEGIES = {"ddp": "DistributedDataParallel", "fsdp": "fully_shard"}
CLUSTERS = {"slurm": "sbatch", "pbs": "qsub"}
FILES = {"train.py": "train.py", "test_train.py": "train_test.py", "README.md": "README.md"}
MODULES = {  # of the program, by the names that they have in the project
    "task": task,
    "stopping": stopping,
    "locking": locking,
    "checkpoints": checkpointing,
}

# What fully_shard changes of train.py beside the functions of sharded.py: old, new.
WRAP = """\
    model = make_model().to(device)
    ddp = DistributedDataParallel(model)
"""
SHARDED_WRAP = """\
    model = shard(make_model(), device, args.bf16)
"""
BACKWARD = """\
                last = micro == args.accumulate - 1
                with nullcontext() if last else ddp.no_sync():  # one all-reduce a step
                    with torch.autocast(device.type, torch.bfloat16, enabled=args.bf16):
                        loss = loss_of(ddp, next(batches), device) / args.accumulate
                    loss.backward()
"""
SHARDED_BACKWARD = """\
                loss = loss_of(model, next(batches), device) / args.accumulate
                loss.backward()
"""
IMPORTS = "".join(
    line
    for line in inspect.getsource(sharded).splitlines(keepends=True)
    if line.startswith("from torch.distributed.")
)
SHARDED = (
    ("with DistributedDataParallel;", "with fully_shard;"),
    ("from contextlib import nullcontext\n", ""),
    ("from torch.nn.parallel import DistributedDataParallel\n", IMPORTS),
    ("import loss_of", "import Block, loss_of"),
    (WRAP, SHARDED_WRAP),
    (BACKWARD, SHARDED_BACKWARD),
)


BLOCK = """\
`Block` is the class of the layers that `fully_shard` gathers one by one, as in a transformer. \
"""


LOAD = """\
The trained model is in its newest file: `torch.load(file, weights_only=True)["model"]`."""
LOAD_SHARDED = """\
The trained model is in its newest folder of shards: `python -m \
torch.distributed.checkpoint.format_utils dcp_to_torch saved/step_000192 model.pt` makes a file of \
it, with the weights under "model"."""


class NewProjectError(WorkbookError, ValueError):
    """A project that cannot be written as asked."""


def files(strategy: str, cluster: str) -> dict[str, str]:
    """The project's files by name, as text. Raises NewProjectError for words that are not known."""
    for what, choice, choices in (
        ("strategy", strategy, STRATEGIES),
        ("cluster", cluster, CLUSTERS),
    ):
        if choice not in choices:
            raise NewProjectError(f"--{what} {choice!r} is not known: take {' or '.join(choices)}.")
    job = f"job.{cluster}"
    texts = {name: (HERE / own).read_text("utf-8") for name, own in (FILES | {job: job}).items()}
    modules = MODULES | ({"checkpoints": checkpoints_sharded} if strategy == "fsdp" else {})
    texts |= {f"{name}.py": inspect.getsource(module) for name, module in modules.items()}
    if strategy == "fsdp":
        texts["train.py"] = with_fully_shard(texts["train.py"])
    for name, module in MODULES.items():
        for file in ("train.py", "checkpoints.py"):
            texts[file] = texts[file].replace(f"from {module.__name__} ", f"from {name} ")
    words = {"STRATEGY": STRATEGIES[strategy], "SUBMIT": f"{CLUSTERS[cluster]} {job}".ljust(57)}
    words["BLOCK"] = {"ddp": "", "fsdp": BLOCK}[strategy]
    words["KEPT"] = {"ddp": LOAD, "fsdp": LOAD_SHARDED}[strategy]
    for word, text in words.items():
        texts["README.md"] = texts["README.md"].replace(f"@{word}@", text)
    return texts


def with_fully_shard(program: str) -> str:
    """train.py with fully_shard in the place of DistributedDataParallel."""
    start = program.index("def main(")
    program = program[:start] + inspect.getsource(sharded.shard) + "\n\n" + program[start:]
    for old, new in SHARDED:
        assert program.count(old) == 1, old
        program = program.replace(old, new)
    return program


def write(folder: Path, strategy: str = "ddp", cluster: str = "slurm") -> list[Path]:
    """Write the project into a new or empty folder; the files.

    Raises NewProjectError if the folder has files, or cannot be written.
    """
    texts = files(strategy, cluster)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise NewProjectError(
                f"{folder} is there already, and not empty. Give the name of a new folder."
            )
        folder.mkdir(parents=True, exist_ok=True)
        return [write_atomically(folder / name, text) for name, text in texts.items()]
    except OSError as error:
        raise NewProjectError(
            f"{folder} cannot be written: {error.strerror}. Give another folder."
        ) from None
