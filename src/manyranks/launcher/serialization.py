"""Pickles workers, arguments and results sent between kernel and rank, or says why it cannot.

The memory of large tensors and arrays stays out of a pickled result (pickle protocol 5): a rank
sends it from where it lies, and in the kernel a tensor keeps the memory that it was read into.
"""

import importlib
import io
import pickle
import reprlib
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.storage import TypedStorage, UntypedStorage

from manyranks.errors import LaunchRefused, TooLargeToSend, Unsendable
from manyranks.launcher.calls import Call, RankPlaceholder

DEFINED_IN_CELL = (
    "{what} `{name}` was defined in a notebook cell. A rank is a new process: it can import files, "
    "but it knows nothing of this notebook's cells.\n"
    "Put it into a file (`%%writefile my_worker.py`, then `from my_worker import {name}`), "
    "or write its lines into a `%%ranks` cell."
)
DEFINED_AT_PROMPT = (
    "{what} `{name}` was defined at a prompt, or in a script that is not a file. A rank is a new "
    "process: it can import files, but nothing from this session.\n"
    "Put it into a file, `my_worker.py`, and write `from my_worker import {name}` here."
)
SHORT = reprlib.Repr()  # never goes through all of a long list
SHORT.maxother = 60
OUT_OF_BAND_BYTES = 1 << 16  # bytes of memory from which a part of its own beats a copy


class Packer(pickle.Pickler):
    """Pickles functions by name, moves tensors off the GPU, refuses what only this process knows.

    Afterwards `modules` names the modules that must be imported to unpickle.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any):
        """How to rebuild an object, or NotImplemented for pickle's own way; called for each one."""
        if isinstance(obj, (types.FunctionType, type)):
            refuse_if_unreachable(obj)
            self.modules.add(str(obj.__module__))
            if isinstance(obj, types.FunctionType) and is_stale(obj):
                return import_by_name, (obj.__module__, obj.__qualname__)
        elif type(obj) is torch.Tensor and needs_cpu_copy(obj):
            return compact_cpu_copy(obj).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        elif type(obj) in (TypedStorage, UntypedStorage):  # a tensor's own, on its way in torch
            storage = getattr(obj, "_untyped_storage", obj)
            if storage.device.type == "cpu":
                dtype = getattr(obj, "dtype", torch.uint8)
                return storage_on, (pickle.PickleBuffer(memory_of(storage)), dtype)
        return NotImplemented


def memory_of(storage: UntypedStorage) -> memoryview:
    """The storage's own bytes, not a copy."""
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy().data


def storage_on(memory: numpy.ndarray | bytearray, dtype: torch.dtype) -> TypedStorage:
    """A storage on memory that was received; small memory, inside the pickle, is copied."""
    tensor = torch.from_numpy(numpy.frombuffer(memory, numpy.uint8))
    tensor = tensor if isinstance(memory, numpy.ndarray) else tensor.clone()
    return TypedStorage(wrap_storage=tensor.untyped_storage(), dtype=dtype, _internal=True)


def needs_cpu_copy(tensor: torch.Tensor) -> bool:
    """True for a tensor on an accelerator, and for a view of a much larger storage."""
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        return False
    return tensor.device.type != "cpu" or tensor.untyped_storage().nbytes() > tensor.nbytes


def compact_cpu_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU without the rest of its storage; the kernel must not open a GPU for it."""
    return tensor.detach().to("cpu", copy=True).requires_grad_(tensor.requires_grad)


def is_stale(function: types.FunctionType) -> bool:
    """True if the module was reloaded since, so that its function of that name is newer."""
    current = import_by_name(function.__module__, function.__qualname__, missing=None)
    return (
        current is not function
        and isinstance(current, types.FunctionType)
        and current.__code__.co_filename == function.__code__.co_filename
    )


def import_by_name(module: str, name: str, **default):
    """The object called `name` in `module`, imported if need be."""
    try:
        value = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
        return value
    except (ImportError, AttributeError):
        if default:
            return default["missing"]
        raise


def refuse_if_unreachable(obj: types.FunctionType | type) -> None:
    """Raise Unsendable for a function or class that another process cannot import by name."""
    what = "The class" if isinstance(obj, type) else "The function"
    if "<lambda>" in obj.__qualname__:
        raise Unsendable(
            "A lambda has no name that another process could import. "
            "Write it as a function with `def` in a file."
        )
    if "<locals>" in obj.__qualname__:
        raise Unsendable(
            f"{what} `{obj.__name__}` was defined inside a function "
            f"({obj.__qualname__.split('.<locals>')[0]}), where another process cannot find it. "
            "Move it to the top level of its file; if it is there already, its decorator needs "
            "@functools.wraps."
        )
    if obj.__module__ == "__main__" and not main_is_a_script():
        ipython = sys.modules.get("IPython")  # a Jupyter kernel has imported it
        in_a_notebook = hasattr(ipython and ipython.get_ipython(), "kernel")
        words = DEFINED_IN_CELL if in_a_notebook else DEFINED_AT_PROMPT
        raise Unsendable(words.format(what=what, name=obj.__qualname__))


def main_is_a_script() -> bool:
    """True if `__main__` is a Python file, which a rank can run to find what is defined there."""
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:  # python -m
        return True
    file = Path(getattr(main, "__file__", None) or "")
    return file.suffix in (".py", "") and file.is_file()


def pack(obj: Any) -> bytes:
    """Bytes of `obj`; raises Unsendable with the reason in plain words."""
    return _pack(obj)[0].getvalue()


def pack_result(result: Any) -> list[memoryview]:
    """Parts that make up `result`: the pickle, then memory that it shares with `result`.

    Raises Unsendable as `pack` does.
    """
    buffers: list[pickle.PickleBuffer] = []

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        large = buffer.raw().nbytes >= OUT_OF_BAND_BYTES
        if large:
            buffers.append(buffer)
        return not large

    stream, _ = _pack(result, in_band)
    return [stream.getbuffer(), *(buffer.raw() for buffer in buffers)]


def _pack(obj: Any, in_band: Callable | None = None) -> tuple[io.BytesIO, set[str]]:
    """The pickled `obj`, and the modules in which parts of it live.

    `in_band` says for each buffer whether it becomes a part of the pickle; without it, all do.
    """
    target = io.BytesIO()
    packer = Packer(target, pickle.HIGHEST_PROTOCOL, buffer_callback=in_band)
    try:
        packer.dump(obj)
    except Unsendable:
        raise
    except RecursionError:
        raise Unsendable(f"{short_repr(obj)} is nested too deeply to be pickled.") from None
    except MemoryError:
        raise TooLargeToSend("There is not enough memory to pickle it.") from None
    except Exception as error:
        raise Unsendable(
            f"{short_repr(obj)} cannot be pickled ({error}), and only pickled "
            "objects can go from one process to another."
        ) from error
    return target, packer.modules


def unpack(pickled: bytes | numpy.ndarray, buffers: Sequence[numpy.ndarray] = ()) -> Any:
    """The inverse of `pack` and `pack_result`, for what a process of this launch has packed."""
    data = pickled if isinstance(pickled, bytes) else pickled.data
    return pickle.loads(data, buffers=buffers)


def pack_call(call: Call) -> tuple[bytes, bool]:
    """The call's bytes for the ranks, and whether they must run the script that is `__main__` here.

    Raises LaunchRefused, naming what cannot be pickled.
    """
    try:
        data, modules = _pack(call)
    except Unsendable:
        parts = {"The worker": call.worker}
        arguments = [value for value in call.args if not isinstance(value, RankPlaceholder)]
        parts |= {f"Argument {n}": value for n, value in enumerate(arguments, start=1)}
        parts |= {f"Argument `{name}`": value for name, value in call.kwargs.items()}
        for name, value in parts.items():
            try:
                pack(value)
            except Unsendable as error:
                label = "" if name == "The worker" else f"{name} cannot be sent to the ranks. "
                raise LaunchRefused(label + str(error)) from None
        raise LaunchRefused("Worker and arguments cannot be sent together.") from None
    return data.getvalue(), "__main__" in modules


def short_repr(obj: Any) -> str:
    """A short name for an object in a message."""
    try:
        text = " ".join(SHORT.repr(obj).split())
    except Exception:
        text = "…"
    return f"{text if len(text) <= 60 else text[:57] + '…'} (type {type(obj).__name__})"
