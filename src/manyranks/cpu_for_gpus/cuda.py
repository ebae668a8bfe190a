"""`torch.cuda` and `torch.accelerator` where there is no GPU."""

import os
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ContextDecorator
from types import ModuleType
from typing import Any

import psutil
import torch

from manyranks.cpu_for_gpus.devices import CPU, on_cpu
from manyranks.cpu_for_gpus.patching import (
    called_by_torch,
    class_in_place_of,
    replace,
    replace_arguments,
)
from manyranks.cpu_for_gpus.questions import asked_by
from manyranks.cpu_for_gpus.requests import COUNT, MEMORY, REQUESTS, SEED

NAME = "a CPU in place of a GPU"
NEEDS_GPU = "{what} needs an NVIDIA GPU, and there is none here: run the step without it."
ORDERS = (  # calls that only tell a GPU what to do
    *("set_device", "synchronize", "init", "ipc_collect", "set_stream"),
    *("set_sync_debug_mode", "set_per_process_memory_fraction"),
    *("seed", "seed_all", "empty_cache", "_sleep", "_set_stream_by_id"),
)
NO_REQUESTS = {"seed", "seed_all", "empty_cache"}
MEMORY_ORDERS = (
    *("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"),
    *("reset_accumulated_memory_stats",),
)
MEMORY_SIZES = (
    *("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"),
    *("memory_cached", "max_memory_cached"),
)
SENSORS = ("utilization", "temperature", "power_draw", "clock_rate", "memory_usage")


class Nothing(ContextDecorator):
    """A context, and a decorator, that does nothing."""

    def __init__(self, *args: Any, **kwargs: Any):
        REQUESTS.note()

    def __enter__(self) -> Any:
        return None

    def __exit__(self, *error: Any) -> None:
        pass


class StreamContext(Nothing):
    """`with torch.cuda.stream(stream) as stream:`"""

    def __init__(self, stream: "Stream | None" = None):
        super().__init__()
        self.stream = stream

    def __enter__(self) -> "Stream | None":
        return self.stream


class Stream:
    """A queue of work for the CPU, which has done all of it when the call returns."""

    priority, device, cuda_stream = 0, CPU, 0

    def __init__(self, *args: Any, **kwargs: Any):
        REQUESTS.note()

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the greatest priority."""
        return 0, 0

    def record_event(self, event: "Event | None" = None) -> "Event":
        """An event, recorded now."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""

    wait_stream = wait_event

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """All is done."""
        return True

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: Any) -> None:
        pass


class Event:
    """A mark in a queue; on the CPU, the moment of `record`."""

    def __init__(self, *args: Any, **kwargs: Any):
        REQUESTS.note()
        self.time = 0.0  # seconds

    def record(self, stream: Any = None) -> None:
        """Note the time."""
        self.time = time.perf_counter()

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds from this event to `end`."""
        return 1e3 * (end.time - self.time)

    def query(self) -> bool:
        """It has happened."""
        return True

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""

    synchronize = wait


AT_START: list[str | None] = [None]  # CUDA_VISIBLE_DEVICES


def install_cuda(gpus: list[int]) -> None:
    """Make the functions of `torch.cuda` and `torch.accelerator` answer for `gpus[0]` GPUs."""
    AT_START[0] = os.environ.get("CUDA_VISIBLE_DEVICES")
    _install_orders(torch.cuda)
    _install_properties(gpus)
    _install_streams()
    _install_memory(torch.cuda)
    _install_random_numbers()
    _install_precision()
    _install_refusals()
    if not torch.accelerator.is_available():
        _install_accelerator(gpus)
    replace(torch, "compile", _compile)


class CudaRuntime:
    """`torch.cuda.cudart()`: every call succeeds, and does nothing."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *args: 0


def _put(owner: Any, names: Any, value: Callable, kind: str = "") -> None:
    """Make these functions of `owner`, those that it has, return what `value` returns."""

    def function(*args: Any, **kwargs: Any) -> Any:
        REQUESTS.note(*filter(None, [kind]))
        return value(*args, **kwargs)

    for name in names:
        if hasattr(owner, name):
            setattr(owner, name, function)


def _answer(owner: Any, name: str, value: Callable) -> None:
    """Make a function return what `value` returns, unless PyTorch asks what compilers need."""
    original = getattr(owner, name)

    def function(*args: Any, **kwargs: Any) -> Any:
        if called_by_torch():
            return original(*args, **kwargs)
        REQUESTS.note()
        return value(*args, **kwargs)

    setattr(owner, name, function)


def _install_orders(cuda: ModuleType) -> None:
    _put(cuda, set(ORDERS) - NO_REQUESTS, lambda *_, **__: None)
    for name in NO_REQUESTS:
        setattr(cuda, name, lambda *_, **__: None)
    names = ("range_push", "range_pop", "range_start", "range_end", "mark")
    _put(torch.cuda.nvtx, names, lambda *_, **__: None)
    _put(torch.cuda.profiler, ("start", "stop", "init"), lambda *_, **__: None)
    torch.cuda.nvtx.range = Nothing  # type: ignore[assignment]
    torch.cuda.profiler.profile = Nothing  # type: ignore[assignment]
    torch.autograd.profiler.emit_nvtx = Nothing  # type: ignore[misc,assignment]


def _install_properties(gpus: list[int]) -> None:
    current = [0]

    def set_device(device: Any) -> None:
        current[0] = _index(device)

    class Device(Nothing):
        """`with torch.cuda.device(1):`"""

        def __init__(self, device: Any = None):
            super().__init__()
            self.index, self.before = _index(device), current[0]

        def __enter__(self) -> None:
            self.before, current[0] = current[0], self.index

        def __exit__(self, *error: Any) -> None:
            current[0] = self.before

    cuda = torch.cuda
    _put(cuda, ("set_device",), set_device)
    _put(cuda, ("cudart",), CudaRuntime)
    _answer(cuda, "current_device", lambda: current[0])
    cuda.device = Device  # type: ignore[misc,assignment]
    cuda.device_of = Nothing  # type: ignore[misc,assignment]
    _put(cuda, ("get_allocator_backend",), lambda: "native")
    _put(cuda, ("is_current_stream_capturing",), lambda: False)
    for name, value in (
        ("get_device_properties", lambda *_: Properties()),
        ("get_device_name", lambda *_: NAME),
        ("get_device_capability", lambda *_: (0, 0)),
    ):
        _answer(cuda, name, value)
    _put(cuda, SENSORS, lambda *_: 0)
    _put(cuda, ("can_device_access_peer",), lambda *_: True)
    _put(cuda.nccl, ("version",), lambda: (0, 0, 0))
    replace(cuda, "is_available", _is_available)
    replace(cuda, "is_bf16_supported", _is_available)
    replace(cuda, "device_count", lambda call: _device_count(call, gpus))


class Properties:
    """What is known of a GPU: a name, and the memory of this machine; 0 for all else."""

    name = NAME

    @property
    def total_memory(self) -> int:
        """Bytes."""
        return psutil.virtual_memory().total

    def __getattr__(self, name: str) -> int:
        if name.startswith("__"):
            raise AttributeError(name)
        return 0


def _index(device: Any) -> int:
    """Which GPU is meant; a device of this process has lost its number, and is the rank's own."""
    if type(device) is int:
        return device
    number = str(device).partition(":")[2]
    return int(number) if number.isdigit() else int(os.environ.get("LOCAL_RANK", "0"))


def _is_available(is_available: Callable, *args: Any, **kwargs: Any) -> bool:
    """The truth, unless the program is made for GPUs."""
    if is_available(*args, **kwargs):
        return True
    question = asked_by()
    if question is None or not question.expects_a_gpu or _hides_gpus():
        return False
    REQUESTS.note()
    return True


def _device_count(count: Callable, gpus: list[int]) -> int:
    """As many as ranks, or as the program wants at least; the truth for what works without."""
    question = asked_by()
    if question is None or _hides_gpus():
        return count()
    if not question.expects_a_gpu and not question.needs_a_number:
        return count()
    REQUESTS.note()
    wanted = max([0, *(question.demands if question.leads_to_an_end else ())])
    if os.environ.get("WORLD_SIZE", "1") == "1":  # it may start as many itself
        return max(wanted, _visible(gpus[0]))
    if wanted > gpus[0]:
        REQUESTS.note(COUNT)
    return _visible(gpus[0])


def _visible(gpus: int) -> int:
    """How many of the GPUs a program leaves to itself by CUDA_VISIBLE_DEVICES."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return len(names.split(",")) if names and names != AT_START[0] else gpus


def _hides_gpus() -> bool:
    """True for a program that has hidden all GPUs from itself."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return names != AT_START[0] and names in ("", "-1")


def _install_streams() -> None:
    cuda = torch.cuda
    cuda.Stream = cuda.ExternalStream = Stream  # type: ignore[misc,assignment]
    cuda.Event = Event  # type: ignore[misc,assignment]
    _put(cuda, ("current_stream", "default_stream"), lambda *_: Stream())
    cuda.stream = cuda.StreamContext = StreamContext  # type: ignore[misc,assignment]
    for name in ("synchronize", "wait_stream", "wait_event", "record_event", "query"):
        if not hasattr(torch.cpu.Stream, name):  # FSDP1's offloading calls them
            setattr(torch.cpu.Stream, name, vars(Stream)[name])
    for name, own in (("Stream", Stream), ("Event", Event)):
        real = getattr(torch, name)

        def make(device: Any = None, *args: Any, real: Any = real, own: Any = own, **kwargs: Any):
            is_gpu = device is None or on_cpu(device) is CPU
            return own() if is_gpu else real(device, *args, **kwargs)

        setattr(torch, name, class_in_place_of(real, make))


def _install_memory(cuda: ModuleType) -> None:
    def free_and_total(*_: Any) -> tuple[int, int]:
        return (psutil.virtual_memory().total,) * 2

    for owner in (cuda, torch.cuda.memory):
        _put(owner, MEMORY_SIZES, lambda *_, **__: 0, MEMORY)
        _put(owner, MEMORY_ORDERS, lambda *_, **__: None, MEMORY)
        _put(owner, ("memory_stats",), lambda *_, **__: defaultdict(int), MEMORY)
        _put(owner, ("memory_snapshot",), lambda *_, **__: [], MEMORY)
        _put(owner, ("memory_summary", "list_gpu_processes"), lambda *_, **__: "", MEMORY)
        _put(owner, ("mem_get_info",), free_and_total)
    recording = ("_record_memory_history", "_dump_snapshot", "_snapshot")
    _put(torch.cuda.memory, recording, lambda *_, **__: {}, MEMORY)


def _install_random_numbers() -> None:
    """One generator for all devices: the CPU's. Seeds of a GPU's generator change nothing."""

    def manual_seed(seed: int) -> None:
        if asked_by() and REQUESTS.of_a_gpu and seed != torch.initial_seed():
            REQUESTS.note(SEED)

    torch.cuda.manual_seed = torch.cuda.manual_seed_all = manual_seed
    _put(torch.cuda, ("get_rng_state",), lambda *_: torch.get_rng_state())
    _put(torch.cuda, ("get_rng_state_all",), lambda: [torch.get_rng_state()])
    _put(torch.cuda, ("set_rng_state",), lambda state, *_: torch.set_rng_state(state))
    torch.cuda.set_rng_state_all = lambda states: [torch.set_rng_state(s) for s in states[:1]]
    _put(torch.cuda, ("initial_seed",), torch.initial_seed)


def _install_precision() -> None:
    """Mixed precision of a GPU: float16, unless the program names another type."""
    gpu_dtype = torch.get_autocast_dtype

    def autocast(arguments: dict[str, Any]) -> None:
        if arguments["device_type"] == "cuda" and arguments.get("dtype") is None:
            arguments["dtype"] = gpu_dtype("cuda")
        _on_cpu("device_type")(arguments)

    replace_arguments(torch.amp.autocast_mode.autocast, "__init__", autocast)
    replace_arguments(torch.amp.grad_scaler.GradScaler, "__init__", _on_cpu("device"))
    torch.cuda.amp.autocast = CudaAutocast  # type: ignore[misc]
    for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled"):
        replace(torch, name, lambda call, *a: call(*("cpu" if x == "cuda" else x for x in a)))


def _on_cpu(name: str) -> Callable[[dict[str, Any]], None]:
    def change(arguments: dict[str, Any]) -> None:
        if arguments.setdefault(name, "cuda") == "cuda":
            if arguments.get("enabled", True):
                REQUESTS.note()
            arguments[name] = "cpu"

    return change


class CudaAutocast(torch.autocast):
    """`torch.cuda.amp.autocast()`, without its own warning that it is deprecated."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool = True
    ):
        super().__init__("cuda", dtype, enabled, cache_enabled)


def _install_accelerator(gpus: list[int]) -> None:
    accelerator, cuda = torch.accelerator, torch.cuda
    _put(accelerator, ("synchronize", "empty_cache", "set_stream"), lambda *_, **__: None)
    _put(accelerator, ("set_device_index", "set_device_idx"), cuda.set_device)
    _put(accelerator, ("current_device_index", "current_device_idx"), cuda.current_device)
    _put(accelerator, ("current_stream",), lambda *_: Stream())
    accelerator.device_index = cuda.device  # type: ignore[misc,assignment]
    _install_memory(accelerator)
    if hasattr(accelerator, "get_memory_info"):
        _put(accelerator, ("get_memory_info",), torch.cuda.mem_get_info)
    replace(accelerator, "is_available", _is_available)
    replace(accelerator, "device_count", lambda call: _device_count(call, gpus))
    replace(accelerator, "current_accelerator", _current_accelerator)


def _current_accelerator(current: Callable, *args: Any, **kwargs: Any) -> Any:
    """The CPU, unless a condition asks whether there is an accelerator."""
    question = asked_by()
    if question is None or not question.wants_a_gpu:
        return current(*args, **kwargs)
    if question.fails_with_none:
        REQUESTS.note()
    return CPU


# What a CPU cannot do


def _install_refusals() -> None:
    replace(torch.optim.Optimizer, "add_param_group", _not_capturable)
    for name in ("CUDAGraph", "graph", "make_graphed_callables"):
        setattr(torch.cuda, name, CUDAGraph)


def _not_capturable(add: Callable, optimizer: Any, group: dict[str, Any]) -> None:
    """`capturable=True` is for CUDA graphs, and refused on a CPU; it changes no number."""
    add(optimizer, group)
    if optimizer.param_groups[-1].get("capturable"):
        REQUESTS.note()
        optimizer.param_groups[-1]["capturable"] = False


class CUDAGraph:
    """Cannot be."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise RuntimeError(NEEDS_GPU.format(what="A CUDA graph"))


def _compile(compile: Callable, *args: Any, **kwargs: Any) -> Any:
    """Without the modes that record CUDA graphs or try kernels of Triton."""
    if str(kwargs.get("mode")).startswith(("reduce-overhead", "max-autotune")):
        REQUESTS.note()
        del kwargs["mode"]
    if options := kwargs.get("options"):
        kwargs["options"] = {k: v for k, v in options.items() if not k.startswith("triton")}
    return compile(*args, **kwargs)
