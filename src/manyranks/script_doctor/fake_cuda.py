"""A CPU in place of GPUs, so that a script written for CUDA and NCCL can be looked at without one.

What the ranks send and which rows they read is the same; times, memory and rounding are not.
"""

from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

from manyranks.script_doctor.patches import Patches

NO_OPS = (
    *("set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all"),
    *("reset_peak_memory_stats", "init"),
)
MEMORY_FUNCTIONS = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
)


def cpu_for_gpus(patches: Patches) -> None:
    """Make calls that name a GPU do their work on the CPU."""
    patches.replace(dist, "init_process_group", _on_gloo)
    patches.replace(DistributedDataParallel, "__init__", _without_devices)
    patches.replace(torch.nn.Module, "cuda", lambda _call, module, *_: module)
    patches.replace(torch.nn.Module, "to", _move)
    patches.replace(torch, "load", _load)
    patches.replace(torch.utils.data.DataLoader, "__init__", _unpinned)
    if find_spec("safetensors"):
        patches.replace(import_module("safetensors.torch"), "load_file", _load_file)
    for name in NO_OPS:
        patches.put(torch.cuda, name, lambda *_, **__: None)
    for name in MEMORY_FUNCTIONS:
        patches.put(torch.cuda, name, lambda *_, **__: 0)
    patches.put(torch.cuda, "is_available", lambda: True)
    patches.put(torch.cuda, "is_bf16_supported", lambda *_, **__: True)
    patches.put(
        torch.cuda, "device_count", lambda: dist.get_world_size() if _is_initialized() else 8
    )
    patches.put(torch.cuda, "current_device", lambda: 0)
    patches.put(torch.cuda, "device", lambda *_: nullcontext())
    patches.put(torch.cuda, "get_device_name", lambda *_: "a CPU in place of a GPU")
    patches.replace(torch, "autocast", lambda call, kind, *a, **kw: call(_kind(kind), *a, **kw))
    patches.enter_context(OnCPU())


class OnCPU(TorchFunctionMode):
    """Takes the CPU wherever a call of torch names a GPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call with the CPU for each device."""
        name = getattr(func, "__name__", "")
        if name == "cuda" and args:
            return args[0]
        if name in ("pin_memory", "record_stream"):
            return args[0]
        args = _place(args) if name == "to" else tuple(map(_device, args))
        return func(*args, **_named(kwargs or {}))


def _place(args: tuple) -> tuple:
    """Arguments of `to`, where a number is a GPU's."""
    return tuple("cpu" if type(value) is int else _device(value) for value in args)


def _move(move: Callable, *args: Any, **kwargs: Any) -> Any:
    return move(*_place(args), **_named(kwargs))


def _load(load: Callable, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    if isinstance(map_location, torch.device):
        map_location = "cpu"  # torch.device("cuda", 1) has become cpu:1, which no storage has
    return load(f, _device(map_location), *args, **kwargs)


def _load_file(load: Callable, path: Any, device: Any = "cpu", *args: Any, **kwargs: Any) -> Any:
    return load(path, "cpu" if type(device) is int else _device(device), *args, **kwargs)


def _named(kwargs: dict) -> dict:
    return kwargs | ({"device": _device(kwargs["device"])} if "device" in kwargs else {})


def _device(value: Any) -> Any:
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    is_gpu = isinstance(value, torch.device) and value.type == "cuda"
    return torch.device("cpu") if is_gpu else value


def _kind(value: str) -> str:
    return "cpu" if value == "cuda" else value


def _is_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


def _on_gloo(init: Callable, backend: str | None = None, *args: Any, **kwargs: Any) -> None:
    kwargs.pop("device_id", None)
    init("gloo" if backend and "nccl" in backend else backend, *args, **kwargs)


def _without_devices(init: Callable, wrapper: Any, module: Any, *args: Any, **kwargs: Any) -> None:
    for name in ("device_ids", "output_device"):
        kwargs.pop(name, None)
    init(wrapper, module, *args[2:], **kwargs)


def _unpinned(init: Callable, loader: Any, *args: Any, **kwargs: Any) -> None:
    init(loader, *args, **kwargs | {"pin_memory": False})
