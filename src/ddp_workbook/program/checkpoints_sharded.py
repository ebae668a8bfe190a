"""Saves that survive their own death, for a model that is sharded over the ranks."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from ddp_workbook.chapters.locking import lock

KEEP = 2  # newest saves that stay
SUMS = "check_sums.json"  # of a save's other files, by their names


class Checkpointer:
    """The saves of one training in a folder that all nodes see, a folder of shards each.

    A save is complete or does not count: all ranks write into a folder of another name, which is
    renamed when the last one is done. So a save never touches an older one.
    """

    def __init__(self, folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.folder, self.model, self.optimizer = folder, model, optimizer

    def save(self, step: int) -> None:
        """Save after this many steps; all ranks call it, and return once it is there.

        If the disk is full, rank 0 says so, and training goes on with the older saves.
        """
        self.tidy()
        dist.barrier()
        new, problem = self.folder / "unfinished", ""
        weights, state = get_state_dict(self.model, self.optimizer)
        try:
            dcp.save({"model": weights, "optimizer": state}, checkpoint_id=new)  # ends on all ranks
        except dcp.CheckpointException as error:  # which is no Exception; all ranks get it
            problem = ", ".join(f"rank {rank}: {one[0]}" for rank, one in error.failures.items())
        files = [] if problem else new.glob(f"__{dist.get_rank()}_*")
        sums: list = [None] * dist.get_world_size()
        dist.all_gather_object(sums, {file.name: checksum(file) for file in files})
        if dist.get_rank() == 0:
            try:
                if not problem:
                    sums.append({".metadata": checksum(new / ".metadata")})
                    with (new / SUMS).open("w") as file:
                        json.dump({name: one for some in sums for name, one in some.items()}, file)
                        file.flush()
                        os.fsync(file.fileno())
                    new.rename(self.folder / f"step_{step:06}")
            except OSError as error:
                problem = str(error)
            if problem:
                print(f"{self.folder}: not saved after step {step}: {problem}", flush=True)
        self.tidy()
        dist.barrier()  # a rank that leaves earlier may end the job, and this save with it

    def load(self) -> dict[str, int]:
        """Load the newest save that is whole, the same on all ranks: its step; 0 without a save.

        From now on no other run can use the folder.
        """
        decision = [self.take() if dist.get_rank() == 0 else ([], "")]
        dist.broadcast_object_list(decision)  # rank 0 decides: a node may not see the files
        saves, refusal = decision[0]
        if refusal:
            raise SystemExit(refusal)
        newest = next(filter(is_whole, saves), None)
        if newest is None:
            if saves:
                raise SystemExit(f"{self.folder}: no save is whole. To begin again, delete it.")
            return {"step": 0}
        weights, state = get_state_dict(self.model, self.optimizer)
        try:
            entries = dcp.FileSystemReader(newest).read_metadata().state_dict_metadata
            own = {f"model.{name}" for name in weights}
            more = [name for name in entries if name.startswith("model.") and name not in own]
            if more:  # dcp.load would ignore them
                raise ValueError(f"It has {', '.join(more)}, which this model has not.")
            dcp.load({"model": weights, "optimizer": state}, checkpoint_id=newest)
        except (ValueError, dcp.CheckpointException) as error:  # the second is no Exception
            error.add_note(f"{newest} is of another model or optimizer: take another folder.")
            raise
        set_state_dict(self.model, self.optimizer, model_state_dict=weights, optim_state_dict=state)
        if dist.get_rank() == 0:
            for damaged in saves[: saves.index(newest)]:  # else they would count as newer
                damaged.rename(damaged.with_name(f"damaged_{damaged.name}"))
        return {"step": int(newest.name.removeprefix("step_"))}

    def take(self) -> tuple[list[Path], str]:
        """Lock the folder: its saves, and why this run cannot have it."""
        try:
            self.lock = lock(self.folder)  # kept: closing the file would unlock the folder
        except BlockingIOError as other:
            return [], f"{self.folder} is in use by {other}: end that run, or take another folder."
        except OSError as error:
            return (
                [],
                f"{self.folder}: {error.strerror}. A training must save: take another folder.",
            )
        self.tidy()
        return self.saves(), ""

    def saves(self) -> list[Path]:
        """The folders of all saves, newest first."""
        folders = self.folder.glob("step_*")
        return sorted(folders, key=lambda save: int(save.name.split("_")[1]), reverse=True)

    def tidy(self) -> None:
        """Rank 0 deletes old saves, and the unfinished one of a run that was killed."""
        if dist.get_rank() == 0:
            for old in [self.folder / "unfinished", *self.saves()[KEEP:]]:
                shutil.rmtree(old, ignore_errors=True)


def is_whole(save: Path) -> bool:
    """True on all ranks if its files are what was written; rank 0 says so if they are not.

    Each rank reads a share of the files.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    try:
        sums = sorted(json.loads((save / SUMS).read_text()).items())
        wrong = [name for name, right in sums[rank::ranks] if checksum(save / name) != right]
    except (OSError, ValueError) as error:
        wrong = [str(error)]
    wrong_files: list = [None] * ranks
    dist.all_gather_object(wrong_files, wrong)
    if any(wrong_files) and rank == 0:
        words = ", ".join(dict.fromkeys(one for some in wrong_files for one in some))
        print(f"{save} is damaged ({words}): taking the save before it", flush=True)
    return not any(wrong_files)


def checksum(file: Path) -> str:
    """Of what the disk has, 16 hexadecimal digits."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:16]
