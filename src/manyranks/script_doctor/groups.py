"""Observes how a script makes process groups: which members, in which order, from which line."""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from manyranks.script_doctor.notes import Notes, lines
from manyranks.script_doctor.patches import Patches


class GroupObserver:
    """Notes each call of new_group of one rank before it runs: it may wait for others in vain."""

    def __init__(self, notes: Notes):
        self.notes = notes

    def install(self, patches: Patches) -> None:
        """Put the observer in place."""
        patches.replace(dist, "new_group", self._make)

    def _make(self, make: Callable, ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        members = sorted(map(int, ranks)) if ranks is not None else None
        by_members = bool(kwargs.get("use_local_synchronization", False))
        self.notes.write("group", members=members, by_members=by_members, lines=lines())
        return make(ranks, *args, **kwargs)
