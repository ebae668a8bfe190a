"""Judges attempts that arrive as lines on stdin, in a process that `sandbox` has put apart."""

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from ddp_workbook.workshop.sandbox import limit_this_process
from manyranks.launcher import fork_server

IN_RANK = "ddp_workbook.judging.in_rank"


def main() -> None:
    """Answer each line with a verdict as JSON, after the line "ready"."""
    limit_this_process()
    requests, answers = own_pipes()
    fork_server.preload(IN_RANK)
    fork_server.warm_up()  # it imports torch while the next line does
    from ddp_workbook.judging import judge  # noqa: F401

    print("ready", file=answers, flush=True)
    for line in requests:
        print(json.dumps(judge_attempt(**json.loads(line))), file=answers, flush=True)


def own_pipes() -> tuple[TextIO, TextIO]:
    """stdin and stdout, which nothing that this process starts can read or write any more."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    return requests, answers


def judge_attempt(name: str, code: str) -> dict:
    """The verdict on an attempt, which this runs."""
    from ddp_workbook.judging import attempts
    from ddp_workbook.judging.catalogue import find
    from ddp_workbook.judging.judge import judge_saved
    from ddp_workbook.judging.verdict import UNDECIDED, Verdict
    from manyranks.diagnostics import user_code
    from manyranks.errors import WorkbookError

    with tempfile.TemporaryDirectory(prefix="ddp-workbook-grade-") as own:
        path = Path(own, f"{name}.py")
        path.write_text(attempts.saved_text(name, code), encoding="utf-8")
        user_code.set_display_name(str(path), attempts.YOUR_CELL)
        try:
            verdict = judge_saved(find(name), attempts.Attempt(name, path), code)
        except WorkbookError as error:
            words = f"{name}: the attempt cannot be judged: {error}"
            verdict = Verdict(UNDECIDED, words)
        return asdict(verdict)


if __name__ == "__main__":
    main()
