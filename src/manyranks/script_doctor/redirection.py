"""Files that a script opens for writing go to a folder that is thrown away; it reads them there.

What Python opens is redirected: `open`, `io.FileIO`, `os.open`, pathlib, `torch.save`, and with it
nearly all libraries; sqlite3, safetensors and PyTorch's own writers in C++, too. What others open
in C or Rust, and what a program does that the script starts, is not: such programs are noted.
"""

import builtins
import io
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from manyranks.script_doctor.notes import Notes, lines
from manyranks.script_doctor.patches import Patches

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NOT_REDIRECTED = ("/dev/", "/proc/", "/sys/")


class Redirection:
    """Sends what one rank writes to the folder that all ranks share for it."""

    def __init__(self, notes: Notes, folder: Path):
        self.notes, self.root = notes, str(folder)
        self.noted_paths: set[str] = set()

    def install(self, patches: Patches) -> None:
        """Put it in place."""
        temporary = os.path.join(self.root, "tmp")
        os.makedirs(temporary, exist_ok=True)
        patches.put(tempfile, "tempdir", temporary)
        os.environ["TMPDIR"] = temporary
        patches.replace(os, "open", self._os_open)
        patches.replace(builtins, "open", self._open)
        patches.put(io, "open", builtins.open)
        patches.put(io, "FileIO", file_class(self))
        patches.replace(torch, "save", self._save)
        patches.replace(torch, "from_file", self._map)
        patches.replace(torch._C, "PyTorchFileWriter", self._write)
        patches.replace(torch.jit, "save", self._save)
        patches.replace(torch.jit.RecursiveScriptModule, "save", self._save)
        if find_spec("sqlite3"):
            patches.replace(import_module("sqlite3"), "connect", self._connect)
        patches.replace(torch, "load", self._load)
        if find_spec("safetensors"):  # it opens files in Rust
            module = import_module("safetensors.torch")
            patches.replace(module, "serialize_file", self._serialize)
            patches.replace(module, "load_file", self._load_file)
            for owner in (module, import_module("safetensors")):
                patches.replace(owner, "safe_open", self._reading)
        for name in ("stat", "lstat", "listdir", "scandir", "chdir", "access"):
            patches.replace(os, name, self._reading)
        patches.replace(shutil, "rmtree", self._rmtree)
        for name in ("mkdir", "rmdir", "remove", "unlink", "truncate"):
            patches.replace(os, name, self._changing)
        for name in ("rename", "replace", "link"):
            patches.replace(os, name, self._moving)
        patches.replace(os, "symlink", self._symlink)
        for name in ("chmod", "lchmod", "chown", "lchown", "utime", "setxattr", "removexattr"):
            if hasattr(os, name):  # not on all systems
                patches.replace(os, name, self._of_file)
        for name in ("mkfifo", "mknod"):
            patches.replace(os, name, self._write)
        patches.replace(subprocess.Popen, "__init__", self._start)
        patches.replace(os, "system", self._run)

    # Paths

    def absolute(self, path: Any) -> str | None:
        """The absolute path; None for what is no path, or is not redirected."""
        if isinstance(path, int) or path is None:
            return None
        absolute = os.path.abspath(os.fsdecode(path))
        inside = absolute.startswith((self.root + os.sep, *NOT_REDIRECTED)) or absolute == self.root
        return None if inside else absolute

    def redirected(self, absolute: str) -> str:
        """Where a file of this path is written."""
        return os.path.join(self.root, "files", absolute.lstrip(os.sep))

    def path_to_read(self, path: Any) -> Any:
        """Where to read: what was written here, if it was."""
        absolute = self.absolute(path)
        if absolute is None or not exists(self.redirected(absolute)):
            return path
        target = self.redirected(absolute)
        if os.path.isdir(target) and true_stat(absolute, quiet=True):
            return path  # a folder of the reader's, in which something was written
        return target

    def path_to_write(self, path: Any, *, keep: bool, what: str) -> Any:
        """Where to write; `keep` says whether what the file holds now is needed.

        `what` writes it; "" if it is not to be noted as written.
        """
        absolute = self.absolute(path)
        if absolute is None:
            if isinstance(path, str | os.PathLike):
                self.note(os.path.abspath(os.fsdecode(path)), what)
            return path
        self.note(absolute, what)
        target, above = self.redirected(absolute), os.path.dirname(absolute)
        if os.path.islink(target) and self.absolute(os.path.realpath(target)) is not None:
            return self.path_to_write(os.path.realpath(target), keep=keep, what=what)
        if exists(target):
            return target
        if not exists(above) and not exists(self.redirected(above)):
            return path  # the error of a folder that is not there
        make_folder(os.path.dirname(target))
        if keep and exists(absolute):
            shutil.copyfile(absolute, target)
        return target

    def note(self, path: str, what: str) -> None:
        """Note that this rank writes the file, once."""
        script_lines = lines()
        is_noted = (
            not what
            or path in self.noted_paths
            or path.startswith(NOT_REDIRECTED)
            or os.path.isdir(path)
        )
        if script_lines and not is_noted:
            self.noted_paths.add(path)
            self.notes.write(
                "file", path=path.removeprefix(self.root + os.sep), by=what, lines=script_lines
            )

    # Functions

    def _open(self, call: Callable, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if set(mode) & set("wax+"):
            file = self.path_to_write(file, keep="w" not in mode, what="open")
        else:
            file = self.path_to_read(file)
        return call(file, mode, *args, **kwargs)

    def _os_open(self, call: Callable, path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
        if flags & WRITE_FLAGS:
            path = path_in_folder(path, kwargs)
        if kwargs.get("dir_fd") is None:
            if flags & WRITE_FLAGS:
                path = self.path_to_write(path, keep=not flags & os.O_TRUNC, what="os.open")
            else:
                path = self.path_to_read(path)
        return call(path, flags, *args, **kwargs)

    def _save(self, call: Callable, obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, str | os.PathLike):
            f = self.path_to_write(f, keep=False, what="torch.save")
        return call(obj, f, *args, **kwargs)

    def _write(self, call: Callable, path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, str | os.PathLike) and self.absolute(path) is not None:
            path = self.path_to_write(path, keep=False, what=call.__name__)
        return call(path, *args, **kwargs)

    def _map(self, call: Callable, path: Any, shared: Any = None, *args: Any, **kw: Any) -> Any:
        redirect = self.path_to_write(path, keep=True, what="from_file") if shared else None
        return call(redirect or self.path_to_read(path), shared, *args, **kw)

    def _connect(self, call: Callable, database: Any, *args: Any, **kwargs: Any) -> Any:
        if database not in ("", ":memory:") and not kwargs.get("uri"):
            database = self.path_to_write(database, keep=True, what="sqlite3")
        return call(database, *args, **kwargs)

    def _serialize(self, call: Callable, tensors: Any, path: Any, *args: Any, **kw: Any) -> Any:
        return call(tensors, self.path_to_write(path, keep=False, what="save_file"), *args, **kw)

    def _load(self, call: Callable, f: Any, map_location: Any = None, *args, **kwargs) -> Any:
        if isinstance(f, str | os.PathLike):
            self._note_load(f, map_location)
            f = self.path_to_read(f)
        return call(f, map_location, *args, **kwargs)

    def _load_file(self, call: Callable, path: Any, device: Any = "cpu", *args, **kwargs) -> Any:
        # "cuda" is GPU 0 for safetensors, whatever the current one is (lerobot #4042).
        number = 0 if str(device) == "cuda" else device
        self._note_load(path, f"cuda:{number}" if type(number) is int else device)
        return call(path, device, *args, **kwargs)

    def _note_load(self, path: Any, device: Any) -> None:
        if isinstance(device, torch.device):
            device = str(device)
        where = device if isinstance(device, str | None) else "chosen"
        self.notes.write("load", path=os.path.abspath(path), to=where, lines=lines())

    def _reading(self, call: Callable, path: Any = ".", *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dir_fd") is None:
            path = self.path_to_read(path)
        return call(path, *args, **kwargs)

    def _rmtree(self, call: Callable, path: Any, *args: Any, **kwargs: Any) -> Any:
        absolute = self.absolute(path)
        if absolute is None:
            return call(path, *args, **kwargs)
        target = self.redirected(absolute)
        return call(target, *args, **kwargs) if exists(target) else None

    def _changing(self, call: Callable, path: Any, *args: Any, **kwargs: Any) -> Any:
        if (folder := kwargs.get("dir_fd")) is not None:
            inside = os.readlink(f"/proc/self/fd/{folder}").startswith(self.root)
            return call(path, *args, **kwargs) if inside else None
        if call.__name__ in ("remove", "unlink") and exists(self.path_to_read(path)):
            self.notes.write("removed", path=os.path.abspath(os.fsdecode(path)), lines=lines())
        absolute = self.absolute(path)
        if absolute is None:
            return call(path, *args, **kwargs)
        target = self.redirected(absolute)
        if call.__name__ == "mkdir":
            if true_stat(absolute, quiet=True) is not None:
                raise FileExistsError(17, "File exists", str(path))
            self.notes.write("folder", path=absolute, lines=lines())
            make_folder(os.path.dirname(target))
            return call(target, *args, **kwargs)
        if exists(target):
            return call(target, *args, **kwargs)
        true_stat(absolute)  # raises what the call would raise if there is nothing
        return None  # the reader's own file stays

    def _of_file(self, call: Callable, path: Any, *args: Any, **kwargs: Any) -> Any:
        """Modes, owners and times of a copy; those of the reader's own folders stay."""
        path = path_in_folder(path, kwargs)
        if self.absolute(path) is not None:
            path = self.path_to_write(path, keep=True, what="")
            if self.absolute(path) is not None:  # a folder, or there is no such file
                true_stat(path)
                return None
        return call(path, *args, **kwargs)

    def _symlink(self, call: Callable, source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        target = path_in_folder(target, kwargs)
        above = os.path.dirname(os.path.abspath(os.fsdecode(target)))
        source = self.path_to_read(os.path.join(above, os.fsdecode(source)))
        return call(source, self.path_to_write(target, keep=False, what="symlink"), *args, **kwargs)

    def _start(self, init: Callable, process: Any, args: Any, *others: Any, **kwargs: Any) -> None:
        self.note_program(args)
        init(process, args, *others, **kwargs)

    def _run(self, call: Callable, command: Any) -> int:
        self.note_program(command)
        return call(command)

    def note_program(self, command: Any) -> None:
        """Note the name of a program that the script starts: what it does is not redirected."""
        words = shlex.split(command) if isinstance(command, str) else [command]
        words = [*words[0]] if words and isinstance(words[0], list | tuple) else words
        if words and lines():
            name = os.path.basename(os.fsdecode(words[0]))
            self.notes.write("program", name=name, lines=lines())

    def _moving(self, call: Callable, source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        what = "" if call.__name__ == "link" else "rename"
        source = self.path_to_write(source, keep=True, what=what)
        return call(source, self.path_to_write(target, keep=False, what="rename"), *args, **kwargs)


def path_in_folder(path: Any, options: dict[str, Any]) -> Any:
    """The path below the folder that `dir_fd` stands for, which is taken out of the options."""
    folder = options.get("dir_fd")
    if folder is None or isinstance(path, int) or not os.path.isdir("/proc/self/fd"):
        return path
    options["dir_fd"] = None
    return os.path.join(_readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))


def file_class(redirection: Redirection) -> type:
    """`io.FileIO`, redirected; a file that was opened otherwise is an instance as well."""

    class Instances(type(_FileIO)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, _FileIO)

    class FileIO(_FileIO, metaclass=Instances):  # type: ignore[misc, valid-type]
        def __init__(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
            if set(mode) & set("wax+"):
                file = redirection.path_to_write(file, keep="w" not in mode, what="FileIO")
            else:
                file = redirection.path_to_read(file)
            super().__init__(file, mode, *args, **kwargs)

    return FileIO


_stat, _makedirs, _readlink, _FileIO = os.stat, os.makedirs, os.readlink, io.FileIO


def true_stat(path: str, *, quiet: bool = False) -> os.stat_result | None:
    """What the system says of a path, whatever is redirected."""
    try:
        return _stat(path)
    except OSError:
        if quiet:
            return None
        raise


def make_folder(folder: str) -> None:
    """Make a folder for what is redirected, with those above it."""
    _makedirs(folder, exist_ok=True)


def exists(path: str) -> bool:
    """True if the path exists."""
    return true_stat(path, quiet=True) is not None
