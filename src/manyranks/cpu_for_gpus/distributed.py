"""Process groups, wrappers and meshes that are asked for GPUs: over gloo, on the CPU."""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import device_mesh
from torch.nn.parallel import DistributedDataParallel

from manyranks.cpu_for_gpus.devices import CPU, on_cpu
from manyranks.cpu_for_gpus.patching import replace, replace_arguments
from manyranks.cpu_for_gpus.questions import asked_by
from manyranks.cpu_for_gpus.requests import REQUESTS
from manyranks.cpu_for_gpus.synchronised_norm import install_synchronised_norm

NEED_OTHERS = ("nccl", "mpi", "ucc", "xccl")  # backends for GPUs, or for another launcher


class NoOptions:
    """`ProcessGroupNCCL.Options()`: takes any setting; gloo has none of them."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.config = self

    def __getattr__(self, name: str) -> Any:
        return None


def install_distributed() -> None:
    """Make what belongs to a group take gloo and the CPU."""
    for owner in (dist, dist.distributed_c10d):
        for name in ("init_process_group", "new_group"):
            replace_arguments(owner, name, _over_gloo)
        replace_arguments(owner, "barrier", _without("device_ids"))
        for name in ("broadcast_object_list", "scatter_object_list", "send_object_list"):
            if hasattr(owner, name):
                replace_arguments(owner, name, _place("device"))
        for name in ("is_nccl_available", "is_backend_available"):
            replace(owner, name, _is_available)
        replace(owner, "get_default_backend_for_device", _default_backend)
    if not hasattr(dist, "ProcessGroupNCCL"):
        dist.ProcessGroupNCCL = dist.distributed_c10d.ProcessGroupNCCL = _NCCL  # type: ignore
    replace_arguments(DistributedDataParallel, "__init__", _without("device_ids", "output_device"))
    for owner in (device_mesh, dist):
        replace_arguments(owner, "init_device_mesh", _mesh)
    replace_arguments(device_mesh.DeviceMesh, "__init__", _mesh)
    install_synchronised_norm()
    _install_fsdp1()


class _NCCL:
    Options = NoOptions


def _install_fsdp1() -> None:
    """FullyShardedDataParallel looks for a GPU unless it is told a device."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    def on_the_cpu(arguments: dict[str, Any]) -> None:
        if arguments.get("device_id") is not None:
            REQUESTS.note()
        arguments["device_id"] = CPU

    replace_arguments(FullyShardedDataParallel, "__init__", on_the_cpu)


def _over_gloo(arguments: dict[str, Any]) -> None:
    backend = arguments.get("backend")
    if isinstance(backend, str) and any(name in backend.lower() for name in NEED_OTHERS):
        REQUESTS.note()
        arguments["backend"] = "gloo"
    if isinstance(arguments.get("pg_options"), NoOptions):
        del arguments["pg_options"]
    _without("device_id")(arguments)


def _without(*names: str) -> Callable[[dict[str, Any]], None]:
    """Drop these arguments, where they are given."""

    def change(arguments: dict[str, Any]) -> None:
        for name in names:
            if arguments.pop(name, None) is not None:
                REQUESTS.note()

    return change


def _place(name: str) -> Callable[[dict[str, Any]], None]:
    def change(arguments: dict[str, Any]) -> None:
        if arguments.get(name) is not None:
            arguments[name] = on_cpu(arguments[name])

    return change


def _mesh(arguments: dict[str, Any]) -> None:
    kind = arguments.get("device_type")
    if str(kind).partition(":")[0] == "cuda":
        REQUESTS.note()
        arguments["device_type"] = "cpu"


def _is_available(is_available: Callable, *args: Any) -> bool:
    question = asked_by()
    return is_available(*args) or (question is not None and question.expects_a_gpu)


def _default_backend(default: Callable, device: Any) -> str:
    return default(on_cpu(device))
