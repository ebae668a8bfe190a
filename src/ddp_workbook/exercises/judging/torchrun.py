"""Reads a torchrun command with torchrun's own parser, and plays the rendezvous.

Every spelling that torchrun accepts is right: `--nnodes=2`, `--nnodes 2`, dashes or underscores,
any order.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from unittest.mock import patch

PYTHON = re.compile(r"(.*/)?python[\d.]*")
ASSIGNMENT = re.compile(r"\w+=.*", flags=re.S)
BEFORE = ("env", "exec", "uv", "run")  # words that may precede the command
PATIENCE = 10.0  # seconds for a meeting over loopback, which takes a few tenths
LOOPBACK = "127.0.0.1"
UNKNOWN = "unknown"  # the result on a machine that is too busy to tell
ERRORS: dict[str, str] = {}  # of meetings, by the lines' options


class Reason(Enum):
    """Why a line starts no ranks."""

    OPEN_QUOTE = "an unclosed quote"
    ANOTHER_COMMAND = "another command than torchrun"
    REFUSED = "torchrun's parser refuses it"


class Unreadable(ValueError):
    """Not a torchrun command, or one that torchrun would refuse; the message says why."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Line:
    """The options of a torchrun command; those not given have torchrun's default."""

    nnodes: str  # "2"; "1:2" for one or two
    nproc: str  # ranks on this host: a number, "gpu", "cpu" or "auto"
    backend: str  # "static" by default
    endpoint: str
    run_id: str  # "none" by default
    standalone: bool
    node_rank: int
    program: tuple[str, ...]  # ("train.py", "--epochs", "5") or ("-m", "module", ...)
    is_host: bool | None = None  # whether this host opens the store; None: torchrun decides

    @property
    def host(self) -> str:
        """The endpoint without its port."""
        return self.endpoint.rpartition(":")[0] if self.port else self.endpoint.rstrip(":")

    @property
    def port(self) -> str:
        """The endpoint's port; "" if none is given."""
        found = re.search(r":(\d+)$", self.endpoint)
        return found[1] if found else ""


def read(words: Sequence[str]) -> Line:
    """The command with these words. Raises Unreadable."""
    given = parsed(words)
    program = (*["-m"] * given.module, given.training_script, *given.training_script_args)
    if given.no_python and PYTHON.fullmatch(program[0]):
        program = program[1:]
    endpoint = given.rdzv_endpoint.strip()
    if given.rdzv_backend == "static" and not endpoint:
        endpoint = f"{given.master_addr}:{given.master_port}"
    return Line(
        nnodes=exact(given.nnodes),
        nproc=given.nproc_per_node,
        backend="c10d" if given.standalone else given.rdzv_backend,
        endpoint=endpoint,
        run_id=given.rdzv_id,
        standalone=given.standalone,
        node_rank=given.node_rank,
        is_host=is_host(given.rdzv_conf),
        program=program,
    )


def is_host(conf: str) -> bool | None:
    """The value of is_host in `--rdzv-conf`; None if it is not given, or not as torchrun wants it.

    torchrun names the error of a value that it cannot read when the hosts meet.
    """
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.utils import _parse_rendezvous_config

    try:
        given = _parse_rendezvous_config(conf)
        return RendezvousParameters("c10d", "here", "job", 1, 1, **given).get_as_bool("is_host")
    except (TypeError, ValueError):
        return None


def variables(words: Sequence[str]) -> dict[str, str]:
    """The assignments in front of the command; torchrun's parser takes defaults from `PET_*`."""
    return dict(word.split("=", 1) for word in words[: before(words)] if "=" in word)


def before(words: Sequence[str]) -> int:
    """How many words precede the command."""
    others = (
        number
        for number, word in enumerate(words)
        if word not in BEFORE and not ASSIGNMENT.fullmatch(word)
    )
    return next(others, len(words))


def arguments(words: Sequence[str]) -> list[str]:
    """The words after `torchrun`, or after `python -m torch.distributed.run`."""
    rest = list(words[before(words) :])
    if rest and os.path.basename(rest[0]) == "torchrun":
        return rest[1:]
    if len(rest) > 2 and PYTHON.fullmatch(rest[0]):
        named = [word for word in rest[1:] if word not in ("-u", "-m")]
        if named[:1] == ["torch.distributed.run"] and "-m" in rest:
            return rest[rest.index("torch.distributed.run") + 1 :]
    raise Unreadable(
        Reason.ANOTHER_COMMAND, f"It begins with {rest[0]!r}." if rest else "It is empty."
    )


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """The options, by torchrun's own parser. Raises Unreadable with the parser's message."""
    from torch.distributed.run import (
        get_args_parser,
    )  # 0.1 s that no other rank needs

    options = arguments(words)
    try:
        with patch.dict(os.environ, variables(words)):  # read while the parser is built
            parser = get_args_parser()
    except ValueError as error:  # such as PET_STANDALONE=yes
        refuse(str(error))
    parser.prog = "torchrun"
    parser.error = parser.exit = refuse
    with contextlib.redirect_stdout(io.StringIO()):  # of --help
        return parser.parse_args(options)


def refuse(*message: Any) -> None:
    """What the parser calls for an error, and after --help."""
    text = f"torchrun: {message[-1]}" if message else "It asks torchrun for help."
    raise Unreadable(Reason.REFUSED, text)


def exact(nnodes: str) -> str:
    """The number of hosts: "2" for "2" and for "2:2"."""
    least, _, most = nnodes.strip().partition(":")
    return least if most in ("", least) else nnodes


def split(text: str) -> list[str]:
    """The words of a line, split as in a shell. Raises Unreadable for an unclosed quote."""
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise Unreadable(Reason.OPEN_QUOTE, f"The shell says: {str(error).lower()}.") from None


def error_of_meeting(lines: Sequence[Sequence[str]]) -> str:
    """torchrun's error if these lines are typed, one on each host; "" if there is none, or UNKNOWN.

    Lines that differ from earlier ones only in ports and in what the ranks run are not tried again.
    """
    several = [parsed(words) for words in lines]
    for options in several:
        options.rdzv_endpoint = options.nproc_per_node = ""
        options.training_script, options.training_script_args = "", []
    key = repr(several)
    if key not in ERRORS:
        met = meeting(several)
        ERRORS[key] = met if isinstance(met, str) and met != UNKNOWN else ""
    return ERRORS[key]


def meeting(several: Sequence[argparse.Namespace]) -> list[tuple[int, int]] | str:
    """The meeting of hosts with these options: (host's number, number of hosts) of each.

    The rendezvous is torchrun's own. It runs in threads, over loopback instead of the hosts'
    network, at a free port; no ranks are started. A string is torchrun's error, or UNKNOWN.
    """
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous

    # Whoever has arrived looks once a second whether the others are there: it waits 1 s here.
    dynamic_rendezvous._delay = lambda seconds: time.sleep(0.02)
    dynamic_rendezvous._BackendRendezvousStateHolder.__init__.__defaults__ = (0,)  # for a cache
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        endpoint = f"{LOOPBACK}:{free.getsockname()[1]}"
    met: list[tuple[int, int]] = []
    errors: list[str] = []
    handlers: list[Any] = []  # one of them may own the store, which the others use until the end
    threads = [
        threading.Thread(
            target=attend, args=(options, endpoint, handlers, met, errors), daemon=True
        )
        for options in several
    ]
    with without_stderr():
        for thread in threads:
            thread.start()
        until = time.monotonic() + PATIENCE
        while len(met) < len(threads) and not errors and time.monotonic() < until:
            time.sleep(0.01)
        for thread in threads if errors else ():
            thread.join(2.0)  # the others' stores fail soon after, and print that as well
        handlers.clear()
    return errors[0] if errors else sorted(met) if len(met) == len(threads) else UNKNOWN


@contextlib.contextmanager
def without_stderr() -> Iterator[None]:
    """Silence stderr: a store that fails prints a page of C++ frames."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def attend(
    options: argparse.Namespace, endpoint: str, handlers: list, met: list, errors: list
) -> None:
    """Join the rendezvous of a line, and note the result or the error."""
    from torch.distributed.elastic.rendezvous import RendezvousParameters, registry
    from torch.distributed.run import config_from_args

    try:
        options.rdzv_endpoint, options.nproc_per_node, options.log_dir = endpoint, "1", None
        config, _, _ = config_from_args(options)
        handler = registry.get_rendezvous_handler(
            RendezvousParameters(
                backend=config.rdzv_backend,
                endpoint=config.rdzv_endpoint,
                run_id=config.run_id,
                min_nodes=config.min_nodes,
                max_nodes=config.max_nodes,
                local_addr=LOOPBACK,
                **config.rdzv_configs,
            )
        )
        handlers.append(handler)
        found = handler.next_rendezvous()
        met.append((found.rank, found.world_size))
    except Exception as error:  # odd options may raise anything
        errors.append(f"{type(error).__name__}: {error}")
