"""Observes models, gradients and optimizers: which calls, with what values, from which line."""

import contextlib
import itertools
import os
import signal
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from manyranks.diagnostics.user_code import is_own
from manyranks.recording.dispatch_mode import Recorder
from manyranks.script_doctor.budget import Budget
from manyranks.script_doctor.cut_models import has_unsent_gradients, place_of, stage_of_caller
from manyranks.script_doctor.graph_cuts import GraphCuts
from manyranks.script_doctor.losses import loss_divisor
from manyranks.script_doctor.notes import (
    Notes,
    digest,
    has_values,
    hash_of,
    hashes,
    is_sharded,
    lines,
    row_hashes,
    sizes,
    tensors_in,
    words_of_caller,
)
from manyranks.script_doctor.patches import ActiveCalls, Patches, hide_from_observers
from manyranks.script_doctor.step_records import StepRecorder, parameters_of, rates

MAX_WRITES = 40  # writes to parameters that are noted, at most
ZERO = 1e-9  # of a factor of the learning rate


class ObservationEnded(BaseException):
    """Ends the script after the steps that were to be seen."""


class TrainingObserver:
    """Notes calls of models, backward passes and steps of one rank."""

    def __init__(self, notes: Notes, recorder: StepRecorder, budget: Budget):
        self.notes, self.recorder = notes, recorder
        self.budget, self.active_calls = budget, ActiveCalls()
        self.numbers: dict[int, int] = {}  # id of a model or optimizer -> its number here
        self.models: list[nn.Module] = []  # those that were called, or wrapped
        self.wrappers: list[DistributedDataParallel] = []
        self.optimizers: list[Optimizer] = []
        self.creation_lines: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self.trainable: dict[int, set[int]] = {}  # of each wrapper: ids when it was made
        self.wrapped: dict[int, dict[int, nn.Parameter]] = {}  # the same of all, kept alive
        # Names that got a gradient, where DDP looks for others.
        self.used_names: dict[int, set[str]] = {}
        # Parameters that a module got after an optimizer was made, by id, and the lines.
        self.late: dict[int, tuple[weakref.ref, list[str]]] = {}
        self.schedules: dict[LRScheduler, list[str]] = {}  # and the lines that made them
        self.left: dict[int, int | None] = {}  # id of a parameter -> check sum of what DDP averaged
        self.cuts = GraphCuts(notes, self._parameter_names)
        self.step_count = self.write_count = 0
        self.ended = False

    def install(self, patches: Patches) -> None:
        """Put the observers in place."""
        patches.replace(nn.Module, "__call__", self._call)
        patches.replace(DistributedDataParallel, "__init__", self._wrap)
        patches.replace(torch.autograd, "backward", self._backward)
        patches.replace(Optimizer, "__init__", self._make_optimizer)
        patches.replace(nn.utils, "clip_grad_norm_", self._clip)
        patches.put(nn.utils.clip_grad, "clip_grad_norm_", nn.utils.clip_grad_norm_)
        patches.replace(nn.functional, "cross_entropy", self._cross_entropy)
        patches.replace(nn.Module, "load_state_dict", self._load)
        patches.replace(LRScheduler, "step", self._schedule)
        patches.replace(DistributedDataParallel, "join", self._join)
        patches.replace(DistributedDataParallel, "register_comm_hook", self._hook)
        patches.replace(nn.Module, "register_parameter", self._add_parameter)
        patches.replace(nn.Module, "requires_grad_", self._requires_grad)
        patches.replace(torch.Tensor, "requires_grad_", self._requires_grad)
        patches.put(nn.Parameter, "requires_grad", property(_flag, self._set_flag))
        patches.replace(torch, "set_num_threads", self._threads)
        patches.callback(register_optimizer_step_pre_hook(self._before_step).remove)
        patches.callback(register_optimizer_step_post_hook(self._after_step).remove)
        patches.enter_context(CallObserver(self))

    # Models

    def _call(self, call: Callable, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if (
            self.active_calls
            or torch.compiler.is_compiling()
            or next(module.parameters(), None) is None
        ):
            return call(module, *args, **kwargs)
        draws = self._before_forward(module, args, kwargs)
        self.recorder.drops = False
        with self.active_calls("forward"):
            result = call(module, *args, **kwargs)
        self.recorder.note_result(result)
        if draws is not None and (self.recorder.drops or torch_state() != draws):
            self.notes.write("drew", state=draws, lines=lines())
        return result

    @hide_from_observers
    def _before_forward(self, module: nn.Module, args: tuple, kwargs: dict) -> int | None:
        """Note a call of a model from outside all models; the random state if it may draw."""
        self._register(module)
        grad = torch.is_grad_enabled()
        parameters = list(module.parameters())
        own_ids = set(map(id, parameters))
        trains = grad and any(p.requires_grad for p in parameters)
        wrapper = module if isinstance(module, DistributedDataParallel) else None
        inside = [w for w in self.wrappers if w is not module and own_ids <= ids(w)]
        arguments = [*args, *kwargs.values()]
        tensors = tensors_in(arguments)
        fact = {
            "model": self._number(module),
            "type": type(wrapper.module if wrapper else module).__name__,
            "ddp": self._number(wrapper) if wrapper else None,
            "past": self._number(inside[0]) if inside else None,
            "trains": trains and module.training,
            "grad": grad,
            "sync": getattr(wrapper, "require_backward_grad_sync", None),
            "sharded": any(map(is_sharded, parameters)),
            "input": digest(repr(hashes(tensors)).encode()) if tensors else None,
            "rows": row_hashes(arguments) if trains else [],
            "size": tensors[0].shape[0] if tensors and tensors[0].dim() else None,
            "changed": self._changed(wrapper) if wrapper else [],
            "new": self._new(wrapper) if wrapper else [],
        }
        if fact["trains"]:
            self.recorder.note_rows(arguments)
            self.recorder.watch(module)
        self.notes.write("forward", **fact, lines=lines())
        return torch_state() if trains and module.training else None

    def _changed(self, wrapper: DistributedDataParallel) -> list[str]:
        """Names of parameters that were frozen or unfrozen since the wrapper was made."""
        before = self.trainable[id(wrapper)]
        return [
            name
            for name, parameter in wrapper.module.named_parameters()
            if parameter.requires_grad != (id(parameter) in before)
            and id(parameter) in self.wrapped[id(wrapper)]
        ]

    def _new(self, wrapper: DistributedDataParallel) -> list[str]:
        """Names of parameters that the model got after the wrapper was made."""
        known = self.wrapped[id(wrapper)]
        return [name for name, p in wrapper.module.named_parameters() if id(p) not in known]

    def _wrap(self, init: Callable, wrapper: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        with self.active_calls("DDP"):
            init(wrapper, module, *args, **kwargs)
        self._note_wrapper(wrapper)

    @hide_from_observers
    def _note_wrapper(self, wrapper: DistributedDataParallel) -> None:
        self._register(wrapper)
        self.wrappers.append(wrapper)
        parameters = dict(wrapper.module.named_parameters())
        self.trainable[id(wrapper)] = {id(p) for p in parameters.values() if p.requires_grad}
        self.wrapped[id(wrapper)] = {id(p): p for p in parameters.values()}
        if wrapper.find_unused_parameters:
            for name, parameter in parameters.items():
                if parameter.requires_grad:
                    parameter.register_hook(self._user_of(self._number(wrapper), name))
        norms = [name for name, m in wrapper.module.named_modules() if is_local_norm(m)]
        self.notes.write(
            "ddp",
            ddp=self._number(wrapper),
            find_unused=wrapper.find_unused_parameters,
            buffers=wrapper.broadcast_buffers,
            trainable=len(self.trainable[id(wrapper)]),
            bytes=sum(p.numel() * p.element_size() for p in parameters.values()),
            ranks=dist.get_process_group_ranks(wrapper.process_group),
            norms=norms,
            lines=lines(),
        )

    def _join(self, join: Callable, *args: Any, **kwargs: Any) -> Any:
        self.notes.write("join")
        return join(*args, **kwargs)

    def _hook(self, register: Callable, *args: Any, **kwargs: Any) -> Any:
        self.recorder.is_rounded = True
        self.notes.write("comm_hook", lines=lines())
        return register(*args, **kwargs)

    def _user_of(self, ddp: int, name: str) -> Callable:
        return lambda _: self.used_names.setdefault(ddp, set()).add(name)

    def _requires_grad(self, change: Callable, owner: Any, flag: bool = True) -> Any:
        with self.active_calls("requires_grad_"):
            result = change(owner, flag)
        self._note_flag(owner, flag)
        return result

    def _set_flag(self, parameter: nn.Parameter, flag: bool) -> None:
        torch._C.TensorBase.requires_grad.__set__(parameter, flag)
        self._note_flag(parameter, flag)

    def _note_flag(self, owner: Any, flag: bool) -> None:
        if not self.wrappers or self.active_calls:
            return
        changed_ids = (
            {id(p) for p in owner.parameters()} if isinstance(owner, nn.Module) else {id(owner)}
        )
        for wrapper in self.wrappers:
            if changed_ids & ids(wrapper):
                number = self._number(wrapper)
                self.notes.write("flag", ddp=number, on=bool(flag), lines=lines())

    def _add_parameter(
        self, register: Callable, module: nn.Module, name: str, parameter: nn.Parameter | None
    ) -> None:
        register(module, name, parameter)
        if self.creation_lines and parameter is not None and not self.active_calls:
            self.late[id(parameter)] = weakref.ref(parameter), lines()

    def _threads(self, set_number: Callable, number: int) -> None:
        set_number(number)
        self.notes.write("threads", number=number, lines=lines())

    def _load(self, load: Callable, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with self.active_calls("load"):
            keys = load(module, *args, **kwargs)
        missing, whole = len(getattr(keys, "missing_keys", ())), len(module.state_dict())
        self.notes.write("loaded", missing=missing, of=whole, lines=lines())
        if self.optimizers and any(ids(module) & ids(model) for model in self.models):
            self.notes.write("write", lines=lines())
        return keys

    def _schedule(self, step: Callable, scheduler: LRScheduler, *args: Any, **kwargs: Any) -> None:
        step(scheduler, *args, **kwargs)
        self.schedules.setdefault(scheduler, lines())  # its __init__ makes a step
        number = list(self.schedules).index(scheduler)  # of its own: not all ranks need have it
        self.notes.write("scheduled", of=number, lines=lines())

    # Losses and gradients

    def _backward(self, run: Callable, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if self.active_calls:
            return run(tensors, *args, **kwargs)
        self._before_backward(tensors)
        with self.active_calls("backward"):
            result = run(tensors, *args, **kwargs)
        self._note_left()
        for ddp, names in self.used_names.items():
            self.notes.write("used", ddp=ddp, number=len(names))
        self.used_names.clear()
        return result

    @hide_from_observers
    def _before_backward(self, tensors: Any) -> None:
        first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        divisor, means = loss_divisor(first)
        self.cuts.note_loss(first)
        sync = {str(self._number(w)): w.require_backward_grad_sync for w in self.wrappers}
        # Zero and None alike: what was cleared, in whichever way, is not accumulated.
        adds = any(p.grad is not None and has_values(p.grad) for p in self._parameters()) or any(
            map(has_unsent_gradients, self.models)
        )
        loss = None
        if isinstance(first, torch.Tensor) and first.numel() == 1 and not is_sharded(first):
            loss = float(first)
        facts = {"divisor": divisor, "means": means, "loss": loss, "sync": sync, "adds": adds}
        self.notes.write("backward", **facts, weights=self._state_of_weights(), lines=lines())

    @hide_from_observers
    def _note_left(self) -> None:
        """Note the gradients that a backward pass has left, before the script changes them."""
        for model in self.models:
            if any(map(is_sharded, model.parameters())):
                self.recorder.note_reduced(model)
        for wrapper in self.wrappers:
            if wrapper.require_backward_grad_sync:
                parameters = list(wrapper.parameters())
                own = hashes(p.grad for p in parameters)
                self.left |= dict(zip(map(id, parameters), own, strict=True))

    def _state_of_weights(self) -> int:
        """A number that changes when something writes to the weights: counters, and a sample."""
        parameters = list(self._parameters())
        return digest(repr(([p._version for p in parameters], sizes(parameters[:1]))).encode())

    @hide_from_observers
    def _note_targets(self, target: torch.Tensor, reduction: str, ignored: int) -> None:
        if target.is_floating_point() or not target.numel():
            return
        counted = int((target != ignored).sum())
        facts = {"counted": counted, "of": target.numel(), "reduction": reduction}
        self.notes.write("targets", **facts, grad=torch.is_grad_enabled(), lines=lines())

    def _cross_entropy(self, compute: Callable, input: Any, target: Any, *args, **kwargs) -> Any:
        ignored = kwargs.get("ignore_index", args[2] if len(args) > 2 else -100)
        self._note_targets(target, kwargs.get("reduction", "mean"), ignored)
        return compute(input, target, *args, **kwargs)

    def _clip(self, clip: Callable, *args: Any, **kwargs: Any) -> Any:
        with self.active_calls("clip"):
            norm = clip(*args, **kwargs)
        self.notes.write("clip", lines=lines())
        return norm

    # Steps

    def _make_optimizer(self, init: Callable, optimizer: Optimizer, *args, **kwargs) -> None:
        init(optimizer, *args, **kwargs)
        if optimizer not in self.creation_lines:
            self.creation_lines[optimizer] = lines()

    @hide_from_observers
    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if self.active_calls or not is_called_by_script():
            return
        if id(optimizer) not in self.numbers:
            self._number(optimizer)
            self.optimizers.append(optimizer)
        parameters = parameters_of(optimizer)
        names = self._parameter_names()
        self.cuts.note_step(parameters)
        wrappers = [self._number(w) for w in self.wrappers if set(map(id, parameters)) & ids(w)]
        self.active_calls.calls.append("step")
        self.notes.write(
            "step",
            optimizer=self._number(optimizer),
            ddp=wrappers,
            rates=rates(optimizer),
            names=[names.get(id(p), "") for p in parameters],
            gradients=hashes(p.grad for p in parameters),
            left=[self.left.get(id(p)) for p in parameters],
            weights=hashes(parameters),
            sizes=sizes(parameters),
            empty=sum(p.grad is None for p in parameters),
            buffers=self._own_buffers(),
            left_out=self._left_out(),
            spread=[
                place for place, p in enumerate(parameters) if p.grad is not None and is_spread(p)
            ],
            sharded=any(is_sharded(p) for m in self.models for p in m.parameters()),
            made=self.creation_lines.get(optimizer, []),
            lines=lines(),
        )
        own_names = [names.get(id(p), "").removeprefix("module.") for p in parameters]
        made = self.creation_lines.get(optimizer, [])
        self.recorder.note_step(optimizer, made, own_names, lines())
        for parameter in parameters:
            self.left.pop(id(parameter), None)

    def _left_out(self) -> dict[str, tuple[int | None, list[str]]]:
        """Parameters with a gradient that came after an optimizer, and that none has.

        Only of models that are trained. With the name a check sum, and the line that made it.
        """
        if not self.late:
            return {}
        held = {id(p) for optimizer in self.creation_lines for p in parameters_of(optimizer)}
        return {
            name.removeprefix("module."): (hashes([parameter])[0], self.late[id(parameter)][1])
            for model in self.models
            if ids(model) & held
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
            and id(parameter) not in held
            and id(parameter) in self.late
            and self.late[id(parameter)][0]() is parameter
        }

    def _own_buffers(self) -> dict[str, int | None]:
        """What models keep in buffers of their own kind, without those of PyTorch's norms."""
        return {
            name.removeprefix("module."): hash_of(buffer)
            for model in self.wrappers
            for prefix, module in model.named_modules()
            if not isinstance(module, _NormBase)
            for name, buffer in module.named_buffers(prefix, recurse=False)
        }

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        if self.active_calls.calls[-1:] != ["step"]:
            return
        self.active_calls.calls.pop()
        self._note_weights(optimizer)
        self.step_count += 1
        if self.recorder.stop_when_done() and self.recorder.wanted:
            self.leave()
        if self.budget.is_used_up(self.step_count, len(self.optimizers)):
            self.leave()

    @hide_from_observers
    def _note_weights(self, optimizer: Optimizer) -> None:
        facts = {
            "optimizer": self._number(optimizer),
            "weights": hashes(parameters_of(optimizer)),
        }
        self.notes.write("stepped", **facts)

    def leave(self) -> None:
        """End the script; a script that catches everything is ended with its process."""
        self.notes.write("enough")
        if self.ended:
            os.kill(os.getpid(), signal.SIGKILL)
        self.ended = True
        raise ObservationEnded

    @hide_from_observers
    def note_final_state(self) -> None:
        """Note what the models hold at last."""
        for model in [m for m in self.models if m not in [w.module for w in self.wrappers]]:
            is_ddp = isinstance(model, DistributedDataParallel)
            buffers = dict(model.named_buffers())
            self.notes.write(
                "end",
                model=self._number(model),
                ddp=self._number(model) if is_ddp else None,
                weights=hashes(model.parameters()),
                buffers=dict(zip(buffers, hashes(buffers.values()), strict=True)),
                attributes=attributes_of(model),
            )
        for optimizer in self.optimizers:
            number = self._number(optimizer)
            self.notes.write("rates", optimizer=number, rates=rates(optimizer))
        for number, (schedule, own_lines) in enumerate(self.schedules.items()):
            taken, ranks = schedule.last_epoch, int(os.environ["WORLD_SIZE"])
            self.notes.write(
                "schedule",
                of=number,
                optimizer=self.numbers.get(id(schedule.optimizer)),
                length=length_of(schedule, (ranks + 1) * taken),
                taken=taken,
                rates=rates(schedule.optimizer),
                lines=own_lines,
            )

    # Which is which

    def _register(self, module: nn.Module) -> None:
        if id(module) not in self.numbers:
            self.models.append(module)  # kept: its id must stay its own
            self._number(module)
            self.notes.write(
                "start",
                model=self._number(module),
                weights=hashes(module.parameters()),
                attributes=attributes_of(module),
            )
            self._note_place(module)

    def _note_place(self, module: nn.Module) -> None:
        """Note with which ranks this one computes the model; of a stage, see its gradients."""
        stage = stage_of_caller(module)
        with contextlib.suppress(AttributeError):  # private names of PyTorch's may change
            if (place := place_of(module, stage)) is not None:
                self.notes.write("place", model=self._number(module), **asdict(place))
        if hasattr(stage, "perform_reduce_grad"):
            reduce = stage.perform_reduce_grad  # after the backward passes of all micro-batches

            def reduce_and_note(*args: Any, **kwargs: Any) -> None:
                reduce(*args, **kwargs)
                self.recorder.note_reduced(module)

            stage.perform_reduce_grad = reduce_and_note

    def _number(self, thing: Any) -> int:
        return self.numbers.setdefault(id(thing), len(self.numbers))

    def _parameter_names(self) -> dict[int, str]:
        return {id(p): name for m in self.models for name, p in m.named_parameters()}

    def _parameters(self) -> Iterator[nn.Parameter]:
        return itertools.chain(*(model.parameters() for model in self.models))

    def role_of(self, tensor: torch.Tensor) -> str:
        """What a tensor is to the models that are known: gradient, parameter, buffer or other."""
        address = data_address(tensor)
        for model in self.models:
            for parameter in model.parameters():
                if data_address(parameter) == address:
                    return "parameter"
                if parameter.grad is not None and data_address(parameter.grad) == address:
                    return "gradient"
            if any(data_address(buffer) == address for buffer in model.buffers()):
                return "buffer"
        sizes = [sum(p.numel() for p in m.parameters() if p.grad is not None) for m in self.models]
        return "gradient" if tensor.numel() > 1 and tensor.numel() in sizes else "other"


class CallObserver(Recorder):
    """Notes every call that communicates, and writes to parameters outside of steps."""

    def __init__(self, training: TrainingObserver):
        super().__init__([])
        self.training = training

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run every operator as it is."""
        if not self.training.active_calls and args and func._schema.is_mutable:
            self._note_write(args[0])
        return super().__torch_dispatch__(func, types, args, kwargs)

    @hide_from_observers
    def _note_write(self, tensor: Any) -> None:
        training = self.training
        if training.write_count >= MAX_WRITES:
            return
        if not (training.optimizers or training.wrappers):  # the script still makes its model
            return
        if isinstance(tensor, torch.Tensor) and training.role_of(tensor) == "parameter":
            training.write_count += 1
            training.notes.write("write", lines=lines())

    def note(self, func: Any, name: str, args: tuple, kwargs: dict) -> list[dict]:
        """Note the call before it runs, with what it sends if the reader's code calls it."""
        rows = super().note(func, name, args, kwargs)
        self._note(rows, func, args)
        return rows

    @hide_from_observers
    def _note(self, rows: list[dict], func: Any, args: tuple) -> None:
        training = self.training
        training.recorder.communicated = True
        by = next(iter(training.active_calls.calls), "hand")
        tensors: Sequence = tensors_in(list(args)) if by == "hand" else ()
        if by in ("hand", "forward") and func.namespace == "c10d":
            training.cuts.note_call(rows[0]["op"], tensors_in(list(args)))
        numbers = [float(t) for t in tensors if t.numel() == 1 and not t.is_complex()]
        for row in rows:
            training.notes.write(
                "comm",
                **{key: row[key] for key in ("group", "op", "bytes", "dtype", "shape")},
                by=by,
                of=training.role_of(tensors[0]) if tensors else "",
                root=row["peer"],
                value=numbers[0] if len(numbers) == 1 and row["dtype"] else None,
                names=words_of_caller() if by == "hand" else {},
                lines=lines(),
            )


def torch_state() -> int:
    """A check sum of torch's random state on the CPU."""
    return digest(torch.get_rng_state().numpy().data)


def attributes_of(model: nn.Module) -> dict[str, int | None]:
    """Check sums of the tensors that a model keeps as plain attributes."""
    return {
        f"{prefix}.{name}".removeprefix("module.").removeprefix("."): hashes([value])[0]
        for prefix, module in model.named_modules()
        if not type(module).__module__.startswith("torch.")
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter)
    }


def is_called_by_script() -> bool:
    """False for a step that torch.distributed makes by itself, as get_state_dict does.

    It has a learning rate of 0, and only fills the optimizer's state.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_own(frame.f_code.co_filename):
        if frame.f_globals.get("__name__") == "torch.distributed.checkpoint.state_dict":
            return False
        frame = frame.f_back
    return True


def _flag(parameter: nn.Parameter) -> bool:
    return torch._C.TensorBase.requires_grad.__get__(parameter)


def ids(module: nn.Module) -> set[int]:
    """The ids of a module's parameters."""
    return {id(parameter) for parameter in module.parameters()}


def length_of(schedule: LRScheduler, most: int) -> int | None:
    """After how many steps a schedule ends, or comes to zero; None if that is not seen."""
    for name in ("T_max", "total_steps", "total_iters"):
        if hasattr(schedule, name):
            return int(getattr(schedule, name))
    if not isinstance(schedule, LambdaLR):
        return None
    factors = schedule.lr_lambdas
    numbers = range(1, most)
    return next((n for n in numbers if all(abs(factor(n)) < ZERO for factor in factors)), None)


def is_local_norm(module: nn.Module) -> bool:
    """True for BatchNorm whose statistics are those of its own rank's rows."""
    return isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm)


def is_spread(parameter: torch.Tensor) -> bool:
    """True for a parameter of which all ranks of the world hold a part, or the whole."""
    mesh = getattr(parameter, "device_mesh", None)
    return is_sharded(parameter) and mesh is not None and mesh.size() == dist.get_world_size()


def data_address(tensor: torch.Tensor) -> int:
    """Where the values of a tensor begin."""
    return 0 if is_sharded(tensor) or tensor.is_meta else tensor.data_ptr()
