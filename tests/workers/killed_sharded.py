"""The program of `new --strategy fsdp`, killed, or with a full disk, at a moment of the choice."""

import os
import runpy
import sys

import torch.distributed as dist

from tests.workers import killed


def train(project: str, *options: str) -> None:
    """Run train.py in this rank with these options."""
    sys.path.insert(0, project)
    sys.argv = ["train.py", *options]
    runpy.run_path(f"{project}/train.py")["main"]()


def killed_at(moment: float, victim: int, project: str, *options: str) -> None:
    """Train; `moment` seconds after all ranks have met, rank `victim` gets SIGKILL."""
    sys.path.insert(0, project)
    import checkpoints  # the project's

    if int(os.environ["RANK"]) == victim:
        killed.send_after_load(checkpoints.Checkpointer, moment)
    train(project, *options)


def with_a_full_disk(after: int, project: str, *options: str) -> None:
    """Train; from the save after this many steps on, rank 1 can write no file beyond 1 kB."""
    sys.path.insert(0, project)
    import checkpoints

    if os.environ["RANK"] == "1":
        killed.fill_disk(checkpoints.Checkpointer, after)
    train(project, *options)


def without_rights(after: int, project: str, *options: str) -> None:
    """Train; before the save after this many steps, the folder becomes read-only, also to root."""
    sys.path.insert(0, project)
    import checkpoints

    save = checkpoints.Checkpointer.save

    def save_or_not(self, step):
        if step < after:
            return save(self, step)
        os.chmod(self.folder, 0o555)
        user = os.geteuid()
        dist.barrier()
        if user == 0:
            os.seteuid(65534)  # nobody
        try:
            return save(self, step)
        finally:
            os.seteuid(user)

    checkpoints.Checkpointer.save = save_or_not
    train(project, *options)


def without_patience(project: str, *options: str) -> None:
    """Train, or fail at once if another run uses the folder."""
    sys.path.insert(0, project)
    import locking

    locking.PATIENCE = 0
    train(project, *options)
