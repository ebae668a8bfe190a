"""Workers that are scripts: found, read and checked before anything starts, run as `__main__`."""

import builtins
import contextlib
import difflib
import importlib
import importlib.util
import json
import linecache
import os
import re
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from manyranks.errors import LaunchRefused

RANKS_NAMES = (
    *("nproc_per_node", "nproc", "nprocs", "n_procs", "np", "num_procs", "num_processes"),
    *("world_size", "nranks", "n_ranks", "num_ranks", "rank"),
)
RUN_MODULES = {"torch.distributed.run", "torch.distributed.launch"}
RANK_COUNT_OPTION = re.compile(
    r"(?:-np?|--ntasks|--num[-_]processes|--nproc[-_]per[-_]node)[ =](\d+)"
)


@dataclass(frozen=True)
class Script:
    """A worker that is a file; it runs as `python path arguments` would, or `python -m module`.

    `source` is the file's text at the launch: the script may delete or rewrite itself meanwhile.
    """

    path: str
    source: bytes
    module: str = ""

    @property
    def text(self) -> str:
        """The source, decoded as Python does."""
        return importlib.util.decode_source(self.source)

    def __call__(self, *words: str) -> None:
        """In a rank: run the file as `__main__`."""
        sys.argv = [self.path, *words]
        cache_lines(self.path, self.text)
        main = new_main(self.path)
        if self.module:
            main.__spec__ = spec = importlib.util.find_spec(self.module)  # imports its packages
            main.__package__ = spec.parent if spec else None
        else:
            sys.path.insert(0, os.path.dirname(self.path))
        with contain_os_exit():
            exec(compile(self.source, self.path, "exec", dont_inherit=True), main.__dict__)


def cache_lines(path: str, text: str) -> None:
    """Make errors of this process show these lines for `path`, whatever the file holds later."""
    # Without a modification time, linecache does not read the file again.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)


def new_main(path: str) -> ModuleType:
    """In a rank: an empty module that is `__main__` from now on, as if Python ran this file.

    It stays until the rank ends: freeing what it holds may run code that waits for other ranks.
    """
    main = ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main  # as multiprocessing has it
    return main


@contextlib.contextmanager
def contain_os_exit() -> Iterator[None]:
    """In a rank: make os._exit end the script, not the process; scripts avoid crashes with it."""
    rank, exit_process = os.getpid(), os._exit

    def exit_script(status: int) -> NoReturn:
        if os.getpid() != rank or threading.current_thread() is not threading.main_thread():
            exit_process(status)
        raise SystemExit(status)

    os._exit = exit_script
    try:
        yield
    finally:
        os._exit = exit_process


def resolve_script(
    target: str | os.PathLike, words: Sequence[Any], kwargs: dict[str, Any], ranks: int
) -> tuple[Script, tuple[str, ...]]:
    """The script that `launch` was asked for, and its command line.

    Raises LaunchRefused, with the right call if one can be told.
    """
    module = ""
    if target == "-m" and words:
        module, *words = words
        path = _file_of_module(str(module))
    else:
        path = Path(target).expanduser()
        _refuse_if_missing(path, os.fspath(target), words, ranks)
    if path.suffix == ".ipynb":
        raise LaunchRefused(f"{path} is a notebook: ranks run functions and Python scripts.")
    if kwargs:
        raise LaunchRefused(_explain_keyword(target, *next(iter(kwargs.items()))))
    for word in words:
        if isinstance(word, list | tuple):
            raise LaunchRefused(f"{word!r}: give each word of its own: {as_call(target, word)}.")
        if not isinstance(word, str | int | float | os.PathLike) or isinstance(word, bool):
            raise LaunchRefused(f"{word!r}: a script's arguments must be strings or numbers.")
    script = Script(str(path.absolute()), path.read_bytes(), module)
    try:
        compile(script.source, script.path, "exec")
    except (SyntaxError, ValueError, UnicodeError) as error:
        line, problem = getattr(error, "lineno", None), getattr(error, "msg", None) or error
        where = f", line {line}" if line else ""
        raise LaunchRefused(f"{path}{where} is not valid Python: {problem}.") from None
    cache_lines(script.path, script.text)
    return script, tuple(map(str, words))


def _explain_keyword(target: str | os.PathLike, name: str, value: Any) -> str:
    """Why a script cannot get `name=value`, and what was probably meant."""
    if name in ("args", "argv") and isinstance(value, list | tuple | str):
        words = shlex.split(value) if isinstance(value, str) else value
        return f"{name}={value!r}: give each word of its own: {as_call(target, words)}."
    option = f'"--{name.replace("_", "-")}", "{value}"'
    if hint := ranks_hint(name, value):
        return f"{name}={value!r}:{hint} (An option of the script is given as {option}.)"
    return f"{name}={value!r}: a script takes command-line arguments, such as {option}."


def ranks_hint(name: str, value: Any) -> str:
    """A sentence about an argument that names the number of ranks as torchrun and others do."""
    if name not in RANKS_NAMES:
        return ""
    return f" launch takes the number of ranks as ranks={value!r}."


# What is no file


def _refuse_if_missing(path: Path, text: str, words: Sequence[Any], ranks: int) -> None:
    """Raise LaunchRefused for what is no file, with the call that was meant if it can be told."""
    if path.is_dir():
        inside = " `python -m` would run it: " + as_call("-m", [path.name], ranks)
        inside = inside if (path / "__main__.py").is_file() else ""
        raise LaunchRefused(f"{path} is a folder: give the path of a script in it.{inside}")
    if path.is_file():
        return
    call = _suggest_call(" ".join([text, *map(str, words)]), ranks)
    hint = f" Write {call}." if call else _suggest_file(path)
    raise LaunchRefused(f"There is no script {path} (seen from {Path.cwd()}).{hint}")


def as_call(script: str | os.PathLike, words: Sequence[Any], ranks: int | None = None) -> str:
    """A call of `launch`, as Python writes it."""
    arguments = [json.dumps(str(word), ensure_ascii=False) for word in (script, *words)]
    return f"launch({', '.join(arguments + ([] if ranks is None else [f'ranks={ranks}']))})"


def _suggest_call(text: str, ranks: int) -> str:
    """The call that a command line, or a name without its end, stands for; "" if unknown.

    What stands before the script starts it: torchrun, srun, mpirun, python, a variable.
    """
    if Path(f"{text}.py").is_file():
        return as_call(f"{text}.py", [], ranks)
    try:
        words = shlex.split(text.removeprefix("!"))
    except ValueError:
        return ""
    for place, word in enumerate(words):
        names_module = word == "-m" and not {*words[place + 1 :][:1]} <= RUN_MODULES
        if names_module or (word.endswith(".py") and Path(word).is_file()):
            counts = RANK_COUNT_OPTION.findall(" ".join(words[:place]))
            return as_call(word, words[place + 1 :], int(counts[-1]) if counts else ranks)
    with contextlib.suppress(LaunchRefused):
        if all(map(str.isidentifier, text.split("."))) and _file_of_module(text):
            return as_call("-m", [text], ranks)
    return ""


def _suggest_file(path: Path) -> str:
    """A file of a similar name in the same folder."""
    with contextlib.suppress(OSError):
        names = [file.name for file in path.parent.iterdir() if file.suffix == ".py"]
        for near in difflib.get_close_matches(path.name, names, 1):
            return f" Did you mean {path.with_name(near)}?"
    return ""


# Modules


def _file_of_module(name: str) -> Path:
    """The file that `python -m name` runs, found without importing anything of it."""
    importlib.invalidate_caches()  # the file may have been written just now
    folders, origin, is_package = [os.getcwd(), *sys.path], "", False
    for part in name.split("."):
        spec = PathFinder.find_spec(part, folders)
        if spec is None:
            raise LaunchRefused(
                f"There is no module {name} in {os.getcwd()} or in the folders of sys.path."
            )
        origin, is_package = str(spec.origin), spec.submodule_search_locations is not None
        folders = list(spec.submodule_search_locations or [])
    if is_package:
        spec = PathFinder.find_spec("__main__", folders)
        if spec is None:
            raise LaunchRefused(f"{name} is a package without a __main__.py: name a module in it.")
        origin = str(spec.origin)
    if not origin.endswith(".py"):
        raise LaunchRefused(f"{name} is not a Python file: {origin}.")
    return Path(origin)
