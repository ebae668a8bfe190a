"""Collectives that keep no graph: which parameters lead into one and get no gradient back.

`dist.all_gather` and its like fill tensors that autograd knows nothing of. Whether that matters is
seen at the step: a parameter of the optimizer that led into the call and not into any loss.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from manyranks.script_doctor.notes import Notes, has_values, lines

MAX_NODES = 20_000  # of a graph, at most
MAX_CALLS = 16  # that wait for a step, at most


@dataclass
class Cut:
    """A call that got a tensor with a graph; `leaves` are the parameters in that graph, by id."""

    op: str
    node: Any
    size: int
    leaves: set[int]
    lines: list[str] = field(default_factory=lines)
    joined: bool = False  # the tensor itself leads to a loss, too


class GraphCuts:
    """Notes for each step what went into collectives that keep no graph."""

    def __init__(self, notes: Notes, names_of: Callable[[], dict[int, str]]):
        self.notes, self.names_of = notes, names_of
        self.cuts: list[Cut] = []
        self.reached: set[int] = set()  # parameters that led to a loss since their last step

    def note_call(self, op: str, tensors: Iterable[torch.Tensor]) -> None:
        """Look at what a call gets; functions with a backward of their own run without grad."""
        if not torch.is_grad_enabled():
            return
        for tensor in tensors:
            if tensor.grad_fn is not None:
                leaves, _ = graph_of(tensor.grad_fn)
                self.cuts = [*self.cuts, Cut(op, tensor.grad_fn, tensor.numel(), leaves)]
        self.cuts = self.cuts[-MAX_CALLS:]

    def note_loss(self, loss: Any) -> None:
        """Look at what leads to a loss; only needed if a call got a tensor with a graph."""
        if not self.cuts or not isinstance(loss, torch.Tensor):
            return
        if loss.grad_fn is None:  # backward will raise
            self._write(self.cuts, {leaf for cut in self.cuts for leaf in cut.leaves})
            return
        leaves, nodes = graph_of(loss.grad_fn)
        self.reached |= leaves
        for cut in self.cuts:
            cut.joined |= cut.node in nodes

    def note_step(self, parameters: Iterable[torch.Tensor]) -> None:
        """Note the calls into which parameters of this optimizer led."""
        if not self.cuts:
            self.reached.clear()
            return
        parameters = list(parameters)
        own = set(map(id, parameters))
        without = {id(p) for p in parameters if p.grad is None or not has_values(p.grad)}
        self._write([cut for cut in self.cuts if cut.leaves & own], without - self.reached)
        self.cuts = [cut for cut in self.cuts if not cut.leaves & own]
        self.reached -= own

    def _write(self, cuts: list[Cut], lost: set[int]) -> None:
        names = self.names_of() if cuts else {}
        for cut in cuts:
            severed = [names.get(leaf, "") for leaf in sorted(cut.leaves & lost)]
            self.notes.write(
                "cut",
                op=cut.op,
                size=cut.size,
                joined=cut.joined,
                severed=sorted(severed),
                lines=cut.lines,
            )


def graph_of(node: Any) -> tuple[set[int], set]:
    """The parameters by id, and the nodes of the graph that leads here."""
    leaves, seen, queue = set(), {node}, [node]
    while queue and len(seen) < MAX_NODES:
        current = queue.pop()
        if hasattr(current, "variable"):
            leaves.add(id(current.variable))
        for before, _ in current.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                queue.append(before)
    return leaves, seen
