"""Pickles workers, arguments and results sent between kernel and rank, or says why it cannot."""

import importlib
import io
import pickle
import reprlib
import sys
import types
from pathlib import Path
from typing import Any

import torch

from ddp_workbook.errors import LaunchRefused, Unsendable
from ddp_workbook.launcher import reader_files
from ddp_workbook.launcher.calls import Call, Own

CELL = (
    "{what} `{name}` was defined in a notebook cell. A rank is a new process: it can import files, "
    "but it knows nothing of this notebook's cells.\n"
    "Put it into a file (`%%writefile my_worker.py`, then `from my_worker import {name}`), "
    "or write its lines into a `%%ranks` cell."
)
TYPED_IN = (
    "{what} `{name}` was defined at a prompt, or in a script that is not a file. A rank is a new "
    "process: it can import files, but nothing from this session.\n"
    "Put it into a file, `my_worker.py`, and write `from my_worker import {name}` here."
)
SHORT = reprlib.Repr()  # never goes through all of a long list
SHORT.maxother = 60


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
        elif type(obj) in (torch.Tensor, torch.nn.Parameter) and travels_badly(obj):
            return light(obj).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented


def travels_badly(tensor: torch.Tensor) -> bool:
    """True for a tensor on an accelerator, and for a view of a much larger storage."""
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        return False
    return tensor.device.type != "cpu" or tensor.untyped_storage().nbytes() > tensor.nbytes


def light(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU without the rest of its storage; the kernel must not open a GPU for it."""
    copy = tensor.detach().to("cpu", copy=True)
    if type(tensor) is torch.nn.Parameter:
        return torch.nn.Parameter(copy, tensor.requires_grad)
    return copy.requires_grad_(tensor.requires_grad)


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
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found
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
        words = CELL if in_a_notebook() else TYPED_IN
        raise Unsendable(words.format(what=what, name=obj.__qualname__))


def in_a_notebook() -> bool:
    """True in the process of a Jupyter kernel, which has imported IPython."""
    ipython = sys.modules.get("IPython")
    return hasattr(ipython and ipython.get_ipython(), "kernel")


def main_is_a_script() -> bool:
    """True if `__main__` is a Python file, which a rank can run to find what is defined there."""
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:  # python -m
        return True
    file = Path(getattr(main, "__file__", None) or "")
    return file.suffix in (".py", "") and file.is_file()


def pack(obj: Any) -> bytes:
    """Bytes of `obj`; raises Unsendable with the reason in plain words."""
    return _pack(obj)[0]


def _pack(obj: Any) -> tuple[bytes, set[str]]:
    """Bytes of `obj`, and the modules in which parts of it live."""
    target = io.BytesIO()
    packer = Packer(target, pickle.HIGHEST_PROTOCOL)
    try:
        packer.dump(obj)
    except Unsendable:
        raise
    except RecursionError:
        raise Unsendable(f"{short_repr(obj)} is nested too deeply to be pickled.") from None
    except Exception as error:
        raise Unsendable(
            f"{short_repr(obj)} cannot be pickled ({error}), and only pickled "
            "objects can go from one process to another."
        ) from error
    return target.getvalue(), packer.modules


def unpack(data: bytes) -> Any:
    """The inverse of `pack`. Only for bytes that this workbench's own processes made."""
    return pickle.loads(data)


def pack_call(call: Call) -> tuple[bytes, bool]:
    """The call's bytes for the ranks, and whether they must run the script that is `__main__` here.

    The bytes include the reader's files that the call needs, as they are now. Raises LaunchRefused,
    naming what cannot be pickled.
    """
    try:
        data, modules = _pack(call)
        files = reader_files.as_of_now(call.files(modules), call.cell)
        return pickle.dumps(WithFiles(files, data)), "__main__" in modules
    except Unsendable:
        parts = {"The worker": call.worker}
        given = [value for value in call.args if not isinstance(value, Own)]
        parts |= {f"Argument {n}": value for n, value in enumerate(given, start=1)}
        parts |= {f"Argument `{name}`": value for name, value in call.kwargs.items()}
        for name, value in parts.items():
            try:
                pack(value)
            except Unsendable as error:
                label = "" if name == "The worker" else f"{name} cannot be sent to the ranks. "
                raise LaunchRefused(label + str(error)) from None
        raise LaunchRefused("Worker and arguments cannot be sent together.") from None


class WithFiles:
    """A packed call and the files from which its worker is imported; unpickles to the call."""

    def __init__(self, files: dict[str, bytes], call: bytes):
        self.files, self.call = files, call

    def __reduce__(self):
        return call_with_files, (self.files, self.call)


def call_with_files(files: dict[str, bytes], call: bytes) -> Call:
    """In a rank: the call, with its worker imported from `files` if it is in one of them."""
    reader_files.run_these(files)
    return unpack(call)


def short_repr(obj: Any) -> str:
    """A short name for an object in a message."""
    try:
        text = " ".join(SHORT.repr(obj).split())
    except Exception:
        text = "…"
    return f"{text if len(text) <= 60 else text[:57] + '…'} (type {type(obj).__name__})"
