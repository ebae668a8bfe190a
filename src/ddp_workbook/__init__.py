"""The Distributed PyTorch Workbook: every name that a notebook uses, but for its own chapter's.

%load_ext ddp_workbook
from ddp_workbook import launch, record_collectives, what_changed

What belongs to one chapter has its stem: ddp_workbook.chapters.<stem> and .experiments.<stem>.
"""

import os
from importlib import import_module
from multiprocessing import current_process, parent_process
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what some of the functions below return, for annotations
    # ruff: noqa: F401
    from ddp_workbook.notebook.display import TextTable
    from ddp_workbook.notebook.play import Play
    from ddp_workbook.recording.timeline import Timeline

# Torch reads it when it is first imported, here and in the fork server. By default a thread of
# torch that waits for the others spins for milliseconds. Where more programs run than there are
# cores, it keeps the others from running: one process trained the digits in 10 s at a load of 12,
# and in 3 s so, as with one thread (torch 2.13).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Imported when first used: a chapter under torchrun must not pay for matplotlib in every rank.
HOMES = {
    "launch": "launcher.launch",
    "record_collectives": "recording.collectives",
    "recorded": "recording.collectives",
    "timeline": "recording.timeline",
    "timeline_of_files": "recording.timeline",
    "Timeline": "recording.timeline",
    "doctor": "checkup.diagnosis",
    "MemoryLedger": "recording.memory",
    "compare": "recording.timing",
    "speed_up": "recording.timing",
    "summary": "recording.timing",
    "time_step": "recording.timing",
    "synchronise": "recording.timing",
    "usable_cores": "launcher.limits",
    "differences": "digits",
    "what_changed": "notebook.code_diff",
    "show_code": "notebook.code_listing",
    "machine_table": "notebook.machine",
    "text_table": "notebook.display",
    "TextTable": "notebook.display",
    "predict": "notebook.predictions",
    "reveal": "notebook.predictions",
    "play": "notebook.play",
    "Play": "notebook.play",
    "slider": "notebook.controls",
    "choice": "notebook.controls",
    "switch": "notebook.controls",
    "plan": "planning.plan",
    "on_a_gpu": "experiments.one_gpu",
    "read_results": "results",
    "stepper": "figures.slider",
    "images_plot": "figures.images",
    "step_time_plot": "figures.timings",
    "speed_up_plot": "figures.timings",
    "hint": "exercises.judging.reader",
    "solution": "exercises.judging.reader",
    "progress": "exercises.judging.reader",
    "yours": "exercises.judging.yours",
    "join": "progress_board.report",
    "join_room": "progress_board.report",
    "leave_room": "progress_board.report",
    "WorkbookError": "errors",
    "LaunchRefused": "errors",
    "LaunchInterrupted": "errors",
    "RankFailed": "errors",
    "RanksHung": "errors",
}
__all__ = list(HOMES)
# Whoever imports these is about to launch: the fork server imports torch while this process does.
LAUNCHING = ("launcher.launch", "recording.collectives", "recording.timeline")

# Compiled and imported in each rank of a check otherwise, which doubles the rank's start.
JUDGING = (f"{__name__}.exercises.judging.in_rank",)


def __getattr__(name: str):
    """Import one of the names above from its module (PEP 562)."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if HOMES[name] in LAUNCHING and not is_started_by_another():
        from ddp_workbook.launcher.fork_server import preload, warm_up

        preload(*JUDGING)
        warm_up()
    # Kept here: `launch` is the function, also once the module of that name is imported.
    globals()[name] = getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    return globals()[name]


def is_started_by_another() -> bool:
    """True in a rank, and in a process of multiprocessing, also while it imports the script."""
    starting = getattr(current_process(), "_inheriting", False)
    return "RANK" in os.environ or parent_process() is not None or starting


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])


def load_ipython_extension(ipython) -> None:
    """What `%load_ext ddp_workbook` does: start the fork server, add `%%ranks` and `%%exercise`.

    Its `%%writefile` is for two kernels in one folder.
    """
    from ddp_workbook.launcher.fork_server import preload, warm_up

    preload(*JUDGING)
    warm_up()  # it imports torch while the lines below do
    from ddp_workbook.exercises.judging.magics import ExerciseMagics, tell_if_unchecked
    from ddp_workbook.notebook import misplaced_magic
    from ddp_workbook.notebook.display import show_frames
    from ddp_workbook.notebook.ranks_magic import RanksMagics
    from ddp_workbook.notebook.this_page import this_page
    from ddp_workbook.notebook.writefile_magic import WritefileMagics
    from ddp_workbook.progress_board.report import Heartbeat

    ipython.register_magics(RanksMagics, ExerciseMagics, WritefileMagics)
    ipython.events.register("post_run_cell", tell_if_unchecked)
    ipython.events.register("post_run_cell", Heartbeat(this_page))
    if (
        misplaced_magic.warn_misplaced_magic not in ipython.input_transformers_cleanup
    ):  # loaded twice
        ipython.input_transformers_cleanup.append(misplaced_magic.warn_misplaced_magic)
    show_frames(ipython.display_formatter)
