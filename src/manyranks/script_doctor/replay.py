"""Loaders that yield again what the loaders of all ranks have yielded, joined."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from manyranks.script_doctor.batch_log import set_random_state
from manyranks.script_doctor.batches import CannotJoin, from_plain, join
from manyranks.script_doctor.patches import hide_from_observers

_load = torch.load  # later it is redirected


class Replay:
    """The batches that these folders of a `StepRecorder` hold, one folder for each rank."""

    def __init__(self, folders: list[Path]):
        self.folders = folders

    def steps(self) -> set[str]:
        """The names of the steps that all ranks have recorded."""
        names = [{path.stem for path in folder.glob("step-*.pt")} for folder in self.folders]
        return set.intersection(*names)

    def has(self, loader: int, pass_number: int) -> bool:
        """Whether a rank has yielded anything in this pass, as far as it was kept."""
        return bool(self._files(loader, pass_number, 0)) or self._is_too_large()

    def batches(self, loader: int, pass_number: int, samples: int | None) -> Iterator[Any]:
        """The joined batches of a pass; random numbers go on as on the first of the ranks.

        Raises CannotJoin.
        """
        number = 0
        while files := self._files(loader, pass_number, number):
            yield self._joined(files, samples)
            number += 1
        if self._is_too_large():
            raise CannotJoin("its batches are too large to be kept")

    @hide_from_observers
    def _joined(self, files: list[Path], samples: int | None) -> Any:
        parts = [_load(file, weights_only=True) for file in files]
        batch = from_plain(join([part["batch"] for part in parts], samples))
        set_random_state(parts[0]["random"])
        return batch

    def length(self, loader: int) -> int | None:
        """How many batches the script was told that this loader has, if it asked."""
        path = self.folders[0] / f"length-{loader}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def _is_too_large(self) -> bool:
        return any((folder / "too_large.json").exists() for folder in self.folders)

    def _files(self, loader: int, pass_number: int, number: int) -> list[Path]:
        name = f"batch-{loader}-{pass_number}-{number}.pt"
        return [folder / name for folder in self.folders if (folder / name).exists()]
