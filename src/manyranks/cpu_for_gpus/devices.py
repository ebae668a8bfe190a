"""Devices of tensors, modules and files: each is the CPU."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch.utils import _device

from manyranks.cpu_for_gpus.patching import called_by_torch, class_in_place_of, replace
from manyranks.cpu_for_gpus.requests import REQUESTS
from manyranks.diagnostics.user_code import is_own

DEVICE, GENERATOR = torch.device, torch.Generator
CPU = torch.device("cpu")
LIKE = ("empty", "full", "ones", "rand", "randint", "randn", "zeros")
NEW_TENSORS = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")


def on_cpu(device: Any) -> Any:
    """The CPU for a GPU, which a number names, too; anything else as it is."""
    if isinstance(device, str):
        is_gpu = device.partition(":")[0] == "cuda"
    elif isinstance(device, DEVICE):
        is_gpu = device.type == "cuda"
    else:
        is_gpu = type(device) is int
    if is_gpu:
        REQUESTS.note()
    return CPU if is_gpu else device


def install_devices() -> None:
    """Make calls that take a device take the CPU in place of a GPU."""
    torch.device = class_in_place_of(DEVICE, _device_of)  # type: ignore[misc]
    torch.Generator = class_in_place_of(GENERATOR, _generator)  # type: ignore[misc]
    replace(torch, "set_default_device", lambda call, device: call(on_cpu(device)))
    replace(torch, "set_default_tensor_type", lambda call, kind: call(_type_on_cpu(kind)))
    _install_factories()
    tensor = torch.Tensor
    for name in NEW_TENSORS:
        replace(tensor, name, _with_keywords)
    replace(tensor, "to", _move_tensor)
    replace(tensor, "cpu", _copy_to_cpu)
    replace(tensor, "type", _tensor_type)
    for owner in (tensor, torch.UntypedStorage, torch.TypedStorage):
        owner.cuda = _cuda  # type: ignore[method-assign, assignment]
        owner.pin_memory = _pin_memory  # type: ignore[method-assign, assignment]
    tensor.record_stream = lambda tensor, stream: None  # type: ignore[method-assign]
    tensor.is_pinned = lambda tensor, device=None: False  # type: ignore[method-assign]
    module = torch.nn.Module
    replace(module, "to", _move)
    module.cuda = _cuda  # type: ignore[method-assign, assignment]
    replace(module, "to_empty", _move)
    replace(torch, "load", _load)
    replace(torch.jit, "load", _load)
    if safetensors := sys.modules.get("safetensors.torch"):  # the fork server has imported it
        replace(safetensors, "load_file", _load_file)
    replace(torch.utils.data.DataLoader, "__init__", _without_pinning)
    for name in vars(torch.cuda).copy():
        if name.endswith("Tensor") and hasattr(torch, name):
            setattr(torch.cuda, name, getattr(torch, name))


def _install_factories() -> None:
    """All functions of PyTorch that make a tensor on a device."""
    originals: dict[Any, Any] = {}
    owners: list[Any] = [torch, torch.fft, torch.nested]
    likes = {getattr(torch, f"{name}_like") for name in LIKE}
    constructors: Any = _device._device_constructors()
    for function in likes | constructors:
        name = getattr(function, "__name__", "")
        for owner in owners:
            if getattr(owner, name, None) is function:
                originals[replace(owner, name, _with_keywords)] = function
    # TorchScript knows functions by their identity.
    builtins: Any = import_module("torch.jit._builtins")
    replace(builtins, "_find_builtin", lambda find, f: find(_of(originals, f)))


def _of(originals: dict[Any, Any], function: Any) -> Any:
    try:
        return originals.get(function, function)
    except TypeError:  # it cannot be hashed
        return function


def _device_of(*args: Any, **kwargs: Any) -> Any:
    """`torch.device(...)`; PyTorch itself, which keeps lists of all devices, gets what it says."""
    if called_by_torch(2):
        return DEVICE(*args, **kwargs)
    device = kwargs.get("device", kwargs.get("type", args[0] if args else None))
    if type(device) is int or (isinstance(device, str) and device.partition(":")[0] == "cuda"):
        return on_cpu(device)
    return DEVICE(*args, **kwargs)


def _generator(device: Any = "cpu") -> torch.Generator:
    return GENERATOR(on_cpu(device))


def _keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a factory, without a GPU and without pinned memory."""
    if "device" in kwargs:
        kwargs["device"] = on_cpu(kwargs["device"])
    if kwargs.get("pin_memory"):
        REQUESTS.note()
        kwargs["pin_memory"] = False
    return kwargs


def _with_keywords(call: Callable, *args: Any, **kwargs: Any) -> Any:
    return call(*args, **_keywords(kwargs) if kwargs else kwargs)


def _move(call: Callable, owner: Any, *args: Any, **kwargs: Any) -> Any:
    return call(owner, *map(on_cpu, args[:1]), *args[1:], **_keywords(kwargs))


def _move_tensor(call: Callable, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    target = kwargs.get("device", args[0] if args else None)
    moved = _move(call, tensor, *args, **kwargs)
    # A device that a program has made of "cuda" is the CPU, too, and x is there already.
    is_cpu = isinstance(target, str) and target == "cpu"
    return _copied(tensor, moved) if is_cpu or _called_by_fsdp(3) else moved


def _copy_to_cpu(call: Callable, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    return _copied(tensor, call(tensor, *args, **kwargs))


def _copied(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """From a GPU to the CPU goes a copy, which does not change with the tensor there."""
    if after is not before or not REQUESTS.of_a_gpu:
        return after
    moves = is_own(sys._getframe(3).f_code.co_filename) or _called_by_fsdp(4)
    return after.clone() if moves else after


def _called_by_fsdp(depth: int) -> bool:
    """True if the frame so far up is of FSDP, which frees what it has copied to the CPU."""
    name = sys._getframe(depth).f_globals.get("__name__", "")
    return name.startswith("torch.distributed.fsdp.")


def _cuda(
    self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> Any:
    """The tensor or the module: it is there already."""
    REQUESTS.note()
    return self


def _pin_memory(self: Any, device: Any = None) -> Any:
    """The tensor: there is nothing to copy it to."""
    REQUESTS.note()
    return self


def _tensor_type(call: Callable, tensor: torch.Tensor, kind: Any = None, *args: Any, **kw: Any):
    return call(tensor, *(() if kind is None else (_type_on_cpu(kind),)), *args, **kw)


def _type_on_cpu(kind: Any) -> Any:
    if isinstance(kind, str) and kind.startswith("torch.cuda."):
        REQUESTS.note()
        return kind.replace("torch.cuda.", "torch.")
    return kind


# Files


def _load(load: Callable, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A file that a GPU has written is read to the CPU, wherever it is to go."""
    if isinstance(map_location, dict):
        map_location = {key: _location(value) for key, value in map_location.items()}
    elif map_location is None or not callable(map_location):
        map_location = CPU if map_location is None else on_cpu(map_location)
    return load(f, map_location, *args, **kwargs)


def _location(value: Any) -> Any:
    device = on_cpu(value)
    return "cpu" if device is CPU else device


def _load_file(load: Callable, path: Any, device: Any = "cpu", *args: Any, **kwargs: Any) -> Any:
    return load(path, _location(device), *args, **kwargs)


def _without_pinning(init: Callable, loader: Any, *args: Any, **kwargs: Any) -> None:
    """PyTorch would warn of pinned memory on each pass; nothing else depends on it."""
    kwargs.pop("pin_memory_device", None)
    init(loader, *args, **kwargs | ({"pin_memory": False} if kwargs.get("pin_memory") else {}))
