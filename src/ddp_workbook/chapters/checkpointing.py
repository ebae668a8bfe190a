"""Saves that survive their own death."""

import hashlib
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ddp_workbook.chapters.locking import lock

MAX_SAVES = 2  # newest saves that stay
FORMAT = 1  # of a save; one more whenever an older program could not read what is new


class Checkpointer:
    """The saves of one training in a folder that all nodes see; without a folder, none.

    A save is complete or does not count: rank 0 writes it under another name, waits until the disk
    has it, and renames it. The name says after which step, and has the file's check sum.
    """

    def __init__(
        self, folder: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        self.folder = Path(folder) if folder else None
        self.parts: dict[str, Any] = {"model": model, "optimizer": optimizer}

    def save(self, step: int, **more: Any) -> None:
        """Save after this many steps, and `more`; all ranks call it, and return once it is there.

        If the disk is full, rank 0 says so, and training goes on with the older saves.
        """
        if not self.folder:
            return
        random: list = [None] * dist.get_world_size()
        dist.all_gather_object(random, random_state())  # each rank has numbers of its own
        if dist.get_rank() == 0:
            state = {name: part.state_dict() for name, part in self.parts.items()}
            state |= {"format": FORMAT, "step": step, "random": random}
            new = self.folder / "unfinished"
            try:
                with new.open("wb") as file:
                    torch.save(state | more, file)
                    file.flush()
                    os.fsync(file.fileno())
                path = new.rename(self.folder / f"step_{step:06}_{checksum(new)}.pt")
                # A newer one is damaged, so it is not counted.
                older = [save for save in self.saves() if save != path and step_of(save) <= step]
                for old in older[MAX_SAVES - 1 :]:
                    old.unlink()
            except (OSError, RuntimeError) as error:  # torch's zip writer raises the second
                new.unlink(missing_ok=True)
                print(f"{self.folder}: not saved after step {step}: {error}", flush=True)
        dist.barrier()  # a rank that leaves earlier may end the job, and this save with it

    def load(self) -> dict[str, Any]:
        """Load the newest save that is whole, the same on all ranks: its step, and what was more.

        Without a save it is {"step": 0}. From now on no other run can use the folder.
        """
        if not self.folder:
            return {"step": 0}
        decision: list = [self.lock_and_find_newest(self.folder) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(decision)  # rank 0 decides: a node may not see the files
        newest, refusal = decision[0]
        if refusal:
            raise SystemExit(refusal)
        if not newest:
            return {"step": 0}
        state = torch.load(newest, map_location="cpu", weights_only=True)
        if state.pop("format", 1) > FORMAT:
            raise SystemExit(f"{newest} is from a newer version of this program: resume with that.")
        try:
            for name, part in self.parts.items():
                part.load_state_dict(state.pop(name))
        except (RuntimeError, ValueError) as error:
            error.add_note(f"{newest} is of another model or optimizer: take another folder.")
            raise
        random, ranks = state.pop("random"), dist.get_world_size()
        if len(random) == ranks:
            set_random_state(random[dist.get_rank()])
        elif dist.get_rank() == 0:
            print(f"{newest} is of {len(random)} ranks, not {ranks}: random numbers start anew")
        return state

    def lock_and_find_newest(self, folder: Path) -> tuple[Path | None, str]:
        """Lock the folder: its newest save that is whole, and why this run cannot have it."""
        try:
            self.lock = lock(folder)  # kept: closing the file would unlock the folder
            newest = next(filter(is_whole, self.saves()), None)
        except BlockingIOError as other:
            return None, f"{folder} is in use by {other}: end that run, or take another folder."
        except OSError as error:
            return None, f"{folder}: {error.strerror}. A training must save: take another folder."
        if not newest and self.saves():
            return None, f"{folder}: no save is whole. To begin again, delete it."
        return newest, ""

    def saves(self) -> list[Path]:
        """The files of all saves, newest first, whatever the clock said when they were written."""
        files = self.folder.glob("step_*.pt") if self.folder else []
        return sorted(files, key=step_of, reverse=True)


def step_of(save: Path) -> int:
    """After how many steps it was written."""
    return int(save.name.split("_")[1])


def is_whole(save: Path) -> bool:
    """True if the file is what was written; says so if it is not."""
    whole = save.stem.endswith(checksum(save))
    if not whole:
        print(f"{save} is damaged: taking the save before it", flush=True)
    return whole


def checksum(file: Path) -> str:
    """Of what the disk has, 16 hexadecimal digits."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:16]


def random_state() -> list[Tensor]:
    """Where this rank's random numbers stand: the CPU's, and its GPU's if it uses one."""
    of_gpu = [torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *of_gpu]


def set_random_state(state: list[Tensor]) -> None:
    """Go on with these."""
    torch.set_rng_state(state[0])
    for of_gpu in state[1:]:
        torch.cuda.set_rng_state(of_gpu)
