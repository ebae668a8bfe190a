"""A script that is observed in a rank while it runs."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from manyranks.cpu_for_gpus.requests import GPU, REQUESTS, SEED
from manyranks.diagnostics.user_code import is_own
from manyranks.script_doctor.batch_log import seed_all
from manyranks.script_doctor.budget import Budget, Extent
from manyranks.script_doctor.cut_models import fit_to_one_rank
from manyranks.script_doctor.data import LoaderObserver
from manyranks.script_doctor.groups import GroupObserver
from manyranks.script_doctor.notes import Notes
from manyranks.script_doctor.patches import Patches
from manyranks.script_doctor.printing import PrintObserver
from manyranks.script_doctor.redirection import Redirection
from manyranks.script_doctor.replay import Replay
from manyranks.script_doctor.step_records import StepRecorder
from manyranks.script_doctor.training import ObservationEnded, TrainingObserver


class ObservedWorker:
    """A worker whose facts are written to a folder, and whose files go to another.

    With `replay`, its loaders yield what other ranks have read.
    """

    def __init__(
        self,
        worker: Callable,
        folder: Path,
        extent: Extent,
        replay: Replay | None = None,
    ):
        self.__wrapped__, self.folder, self.extent = worker, folder, extent
        self.replay = replay
        self.__module__ = getattr(worker, "__module__", "")  # the rank names its program by it

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Run the worker in this rank, observed."""
        rank = int(os.environ["RANK"])
        notes = Notes(self.folder / "facts", rank)
        notes.write("begin")
        wanted = self.replay.steps() if self.replay else ()
        recorder = StepRecorder(steps_folder(self.folder, rank), wanted)
        training = TrainingObserver(notes, recorder, Budget(self.folder, self.extent))
        extent = self.extent
        data = LoaderObserver(notes, training, extent.batches, extent.passes, self.replay)
        seed_all(rank)
        with Patches() as patches:
            Redirection(notes, self.folder / "written").install(patches)
            data.install(patches)
            GroupObserver(notes).install(patches)
            PrintObserver(notes).install(patches)
            training.install(patches)
            recorder.install(patches)
            if self.replay:
                fit_to_one_rank(patches)
            try:
                self.__wrapped__(*args, **kwargs)
                notes.write("finished")
            except ObservationEnded:
                pass
            except SystemExit as leaving:
                if leaving.code not in (None, 0):  # sys.exit(0) counts as a return
                    notes.write("error", type="SystemExit", text=str(leaving.code), lines=[])
                    raise
                notes.write("finished")
            except BaseException as error:
                kind, text = type(error).__name__, str(error)
                notes.write("error", type=kind, text=text, lines=lines_of(error.__traceback__))
                raise
            finally:
                with contextlib.suppress(Exception):  # what the script left may be broken
                    training.note_final_state()
                if place := REQUESTS.places.get(GPU):
                    notes.write("asks_for_gpu", place=place)
                if SEED in REQUESTS.places:
                    notes.write("seeds_a_gpu")


def steps_folder(folder: Path, rank: int) -> Path:
    """Where a rank writes what its first steps use."""
    return folder / "steps" / str(rank)


def lines_of(trace: TracebackType | None) -> list[str]:
    """`file.py:12` of the reader's lines in a traceback, innermost first."""
    lines: list[str] = []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_own(file):
            lines.insert(0, f"{os.path.basename(file)}:{trace.tb_lineno}")
        trace = trace.tb_next
    return lines
