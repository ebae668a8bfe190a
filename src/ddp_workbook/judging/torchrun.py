"""Reads a torchrun command with torchrun's own parser.

Every spelling that torchrun accepts is right: `--nnodes=2`, `--nnodes 2`, dashes or underscores,
any order.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from unittest.mock import patch

PYTHON = re.compile(r"(.*/)?python[\d.]*")
ASSIGNMENT = re.compile(r"\w+=.*", flags=re.S)
PREFIX_WORDS = ("env", "exec", "uv", "run")  # words that may precede the command


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

    @property
    def host(self) -> str:
        """The endpoint without its port."""
        return self.endpoint.rpartition(":")[0] if self.port else self.endpoint.rstrip(":")

    @property
    def port(self) -> str:
        """The endpoint's port; "" if none is given."""
        match = re.search(r":(\d+)$", self.endpoint)
        return match[1] if match else ""


def read(words: Sequence[str]) -> Line:
    """The command with these words. Raises Unreadable."""
    options = parse(words)
    program = (options.training_script, *options.training_script_args)
    if options.module:
        program = ("-m", *program)
    if options.no_python and PYTHON.fullmatch(program[0]):
        program = program[1:]
    endpoint = options.rdzv_endpoint.strip()
    if options.rdzv_backend == "static" and not endpoint:
        endpoint = f"{options.master_addr}:{options.master_port}"
    return Line(
        nnodes=host_count(options.nnodes),
        nproc=options.nproc_per_node,
        backend="c10d" if options.standalone else options.rdzv_backend,
        endpoint=endpoint,
        run_id=options.rdzv_id,
        standalone=options.standalone,
        node_rank=options.node_rank,
        program=program,
    )


def variables(words: Sequence[str]) -> dict[str, str]:
    """The assignments in front of the command; torchrun's parser takes defaults from `PET_*`."""
    return dict(word.split("=", 1) for word in words[: count_prefix(words)] if "=" in word)


def count_prefix(words: Sequence[str]) -> int:
    """How many words precede the command."""
    others = (
        number
        for number, word in enumerate(words)
        if word not in PREFIX_WORDS and not ASSIGNMENT.fullmatch(word)
    )
    return next(others, len(words))


def arguments(words: Sequence[str]) -> list[str]:
    """The words after `torchrun`, or after `python -m torch.distributed.run`."""
    rest = list(words[count_prefix(words) :])
    if rest and os.path.basename(rest[0]) == "torchrun":
        return rest[1:]
    if len(rest) > 2 and PYTHON.fullmatch(rest[0]):
        module_words = [word for word in rest[1:] if word not in ("-u", "-m")]
        if module_words[:1] == ["torch.distributed.run"] and "-m" in rest:
            return rest[rest.index("torch.distributed.run") + 1 :]
    raise Unreadable(
        Reason.ANOTHER_COMMAND, f"It begins with {rest[0]!r}." if rest else "It is empty."
    )


def parse(words: Sequence[str]) -> argparse.Namespace:
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


def host_count(nnodes: str) -> str:
    """The number of hosts: "2" for "2" and for "2:2"."""
    least, _, most = nnodes.strip().partition(":")
    return least if most in ("", least) else nnodes


def split_line(text: str) -> list[str]:
    """The words of a line, split as in a shell. Raises Unreadable for an unclosed quote."""
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise Unreadable(Reason.OPEN_QUOTE, f"The shell says: {str(error).lower()}.") from None
