"""What the first steps of a rank used: its batches, its rows, its weights and its gradients.

The script then runs once more on one rank with the same batches, and `comparison` sets the two
beside each other. All files are written with `torch.save` and read with `weights_only=True`.
"""

import functools
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from manyranks.script_doctor.batch_log import BatchLog, random_check_sum
from manyranks.script_doctor.cut_models import factor_between, piece_of
from manyranks.script_doctor.notes import digest, is_sharded, local, row_hashes, tensors_in
from manyranks.script_doctor.patches import Patches, hide_from_observers

STEPS = 2  # of each optimizer
MAX_STEPS = 24  # of all, until one communicates
MAX_ROWS = 1 << 14  # of a step
MAX_STEP_BYTES = 1 << 26  # of weights that are compared, and of gradients
FEW_BITS = (torch.bfloat16, torch.float16)
DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")


def guarded(method: Callable) -> Callable:
    """Hide a method from observers; what it cannot record ends the recording, not the script."""

    @functools.wraps(method)
    def wrapper(recorder: "StepRecorder", *args: Any) -> None:
        try:
            hide_from_observers(method)(recorder, *args)
        except Exception as error:
            recorder.log.note(
                "cannot_join", f"it cannot be recorded ({type(error).__name__}: {error})"
            )
            recorder.stop()

    return wrapper


class StepRecorder:
    """Writes what the first steps of each optimizer of this rank use, to a folder of its own.

    While it is active, dropout drops nothing and BatchNorm takes its running statistics: both
    differ between ranks on purpose.
    """

    def __init__(self, folder: Path, wanted: Iterable[str] = ()):
        self.log, self.active = BatchLog(folder), True
        self.wanted = set(wanted)  # names of the steps to record; else the first that communicate
        self.row_hashes: list[int] = []
        self.is_new_step = True
        self.step_counts: dict[str, int] = {}
        self.optimizers: dict[str, list[int]] = {}  # ids of those that one line has made
        self.communicated = False  # since the step before
        self.with_others: set[str] = set()  # optimizers that have not stepped alone
        self.last_state = 0  # of what draws random numbers, at the first forward pass of a step
        self.drops = False  # whether dropout was called
        self.is_rounded = False  # whether something is computed with 16 bits
        self.own_gradients: dict[int, torch.Tensor] = {}  # id of a parameter -> before averaging
        self.reduced: dict[int, torch.Tensor] = {}  # of a model that is cut: as backward leaves it
        self.hooks: dict[int, Any] = {}

    def install(self, patches: Patches) -> None:
        """Switch off what differs between ranks on purpose."""
        for owner, name in [(nn.functional, name) for name in DROPOUTS] + [(torch, "dropout")]:
            patches.replace(owner, name, self._dropout)
        patches.replace(nn.functional, "scaled_dot_product_attention", self._attention)
        patches.replace(_BatchNorm, "forward", self._batch_norm)
        patches.replace(torch.amp.autocast_mode.autocast, "__enter__", self._autocast)

    def _dropout(self, drop: Callable, values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not self.active:
            return drop(values, *args, **kwargs)
        self.drops = True
        return values

    def _attention(self, attend: Callable, *args: Any, **kwargs: Any) -> Any:
        named = dict(
            zip(
                ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False
            )
        )
        if self.active and (named | kwargs).get("dropout_p"):
            self.drops = True
            args, kwargs = (), named | kwargs | {"dropout_p": 0.0}
        return attend(*args, **kwargs)

    def _batch_norm(self, forward: Callable, module: _BatchNorm, values: torch.Tensor) -> Any:
        if not self.active or module.running_mean is None:
            return forward(module, values)
        of_module = (module.running_mean, module.running_var, module.weight, module.bias)
        return nn.functional.batch_norm(values, *of_module, False, 0.0, module.eps)

    def _autocast(self, enter: Callable, context: Any) -> Any:
        self.is_rounded |= context._enabled
        return enter(context)

    # What a step uses

    def note_result(self, result: Any) -> None:
        """Note what a model returns: fewer bits make larger rounding errors."""
        self.is_rounded |= any(t.dtype in FEW_BITS for t in tensors_in([result]))

    def watch(self, module: nn.Module) -> None:
        """Keep what backward passes on this rank add to the gradients, before anything averages."""
        if self.active:
            for parameter in module.parameters():
                if parameter.requires_grad and id(parameter) not in self.hooks:
                    self.hooks[id(parameter)] = parameter.register_hook(self._adder(parameter))

    def _adder(self, parameter: nn.Parameter) -> Callable:
        @hide_from_observers
        def add(gradient: torch.Tensor | None) -> None:
            if not self.active or gradient is None or is_sharded(gradient) or gradient.is_sparse:
                return
            before = self.own_gradients.get(id(parameter))
            if parameter.grad is None or before is None or not parameter.grad.any():
                self.own_gradients[id(parameter)] = gradient.detach().clone()
            else:
                before.add_(gradient.detach())

        return add

    @guarded
    def keep_batch(self, key: tuple[int, int, int], batch: Any) -> None:
        """Keep the batch of (loader, pass, number), and the random state behind it."""
        if not self.active:
            return
        self.log.keep(key, batch)

    @guarded
    def note_rows(self, arguments: Iterable[Any]) -> None:
        """Note the rows with which a model is called to be trained."""
        if not self.active:
            return
        if self.is_new_step:
            self.row_hashes, self.is_new_step = [], False
            self.last_state = random_check_sum()
        self.row_hashes += row_hashes(list(arguments), MAX_ROWS - len(self.row_hashes))

    @guarded
    def note_step(
        self, optimizer: Optimizer, made: list[str], names: list[str], lines: list[str]
    ) -> None:
        """Note the weights and gradients that a step is about to use.

        The line in which an optimizer was made tells on each rank which one it is, and where the
        line makes several, their order.
        """
        of_line = self.optimizers.setdefault(repr(made), [])
        if id(optimizer) not in of_line:
            of_line.append(id(optimizer))
        key = f"{digest(repr((made, of_line.index(id(optimizer)))).encode()):08x}"
        count = self.step_counts[key] = self.step_counts.get(key, 0) + 1
        if self.communicated:
            self.with_others.add(key)
        self.communicated = False
        if self.active and count <= STEPS:
            self.log.write(f"step-{key}-{count}", self._record(optimizer, names, lines))
        self.is_new_step = True
        for parameter in parameters_of(optimizer):
            self.own_gradients.pop(id(parameter), None)
            self.reduced.pop(id(parameter), None)

    @guarded
    def note_reduced(self, module: nn.Module) -> None:
        """Keep the gradients that a backward pass has left in this rank's part of a model."""
        for parameter in module.parameters() if self.active else ():
            if parameter.grad is not None and not parameter.grad.is_sparse:
                self.reduced[id(parameter)] = local(parameter.grad).clone()

    def _record(self, optimizer: Optimizer, names: list[str], lines: list[str]) -> dict[str, Any]:
        all_names = [name or f"parameter {n}" for n, name in enumerate(names)]
        kept, room = [], MAX_STEP_BYTES
        for name, parameter in zip(all_names, parameters_of(optimizer), strict=True):
            size = parameter.numel() * parameter.element_size()  # of the whole, in every process
            if size <= room:
                kept.append((name, parameter))
                room -= size
        parameters = [parameter for _, parameter in kept]
        return {
            "names": [name for name, _ in kept],
            "parameters": len(all_names),
            "weights": [piece_of(parameter) for parameter in parameters],
            "gradients": [piece_of(parameter.grad) for parameter in parameters],
            "own": [piece_of(self.own_gradients.get(id(p))) for p in parameters],
            "factors": [self._factor(parameter) for parameter in parameters],
            "norm": self._norm_of_parts(parameters),
            "rates": rates(optimizer),
            "rows": self.row_hashes,
            "rounded": self.is_rounded or any(p.dtype in FEW_BITS for p in parameters),
            "drew": random_check_sum() != self.last_state,
            "lines": lines,
        }

    def _factor(self, parameter: torch.Tensor) -> float | None:
        """By what the script has multiplied this rank's part of a gradient after backward."""
        before = self.reduced.get(id(parameter))
        if before is None or parameter.grad is None:
            return None
        return factor_between(local(parameter.grad), before)

    def _norm_of_parts(self, parameters: list[torch.Tensor]) -> float:
        """The norm of what backward left in this rank's parts of the gradients."""
        kept = [self.reduced[id(p)] for p in parameters if id(p) in self.reduced]
        return float(sum(part.double().square().sum() for part in kept)) ** 0.5

    def stop_when_done(self) -> bool:
        """Whether the steps have been made; then nothing is recorded any more."""
        counts = self.step_counts
        if self.wanted:
            done = all((self.log.folder / f"{name}.pt").exists() for name in self.wanted)
        else:
            others = self.with_others
            done = bool(others) and all(counts[key] >= STEPS for key in others)
        if done or sum(counts.values()) >= MAX_STEPS:
            self.stop()
        return not self.active

    def stop(self) -> None:
        """Record nothing any more."""
        self.active = False
        for hook in self.hooks.values():
            hook.remove()
        self.hooks.clear()


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """The parameters of an optimizer."""
    return list(itertools.chain(*(group["params"] for group in optimizer.param_groups)))


def rates(optimizer: Optimizer) -> list[float]:
    """The learning rate of each group of parameters."""
    return [float(group.get("lr", 0)) for group in optimizer.param_groups]
