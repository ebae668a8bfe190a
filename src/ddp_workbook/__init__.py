"""The Distributed PyTorch Workbook: every name that a notebook uses, but for its own chapter's.

%load_ext ddp_workbook
from ddp_workbook import launch, record_collectives, what_changed

What belongs to one chapter has its stem: ddp_workbook.chapters.<stem> and .experiments.<stem>.
"""

import os
from typing import TYPE_CHECKING, Any

import manyranks
from ddp_workbook import former_names
from manyranks.diagnostics import user_code
from manyranks.lazy_names import lazy_names

if TYPE_CHECKING:  # imported when first used: a chapter under torchrun must not pay for matplotlib
    # ruff: noqa: F401
    from ddp_workbook.chapters.digits import differences
    from ddp_workbook.chapters.results import read_results
    from ddp_workbook.experiments.gpu_tables import recorded_gpu_table
    from ddp_workbook.judging.own_solution import own_solution
    from ddp_workbook.judging.reader import hint, progress, solution
    from ddp_workbook.page.code_diff import what_changed
    from ddp_workbook.page.code_listing import show_code
    from ddp_workbook.page.controls import choice, slider, switch
    from ddp_workbook.page.display import TextTable, text_table
    from ddp_workbook.page.machine import machine_table
    from ddp_workbook.page.play import Play, play
    from ddp_workbook.page.predictions import predict, reveal
    from ddp_workbook.page.room_client.report import join, join_room, leave_room
    from manyranks.errors import (
        LaunchInterrupted,
        LaunchRefused,
        RankFailed,
        RanksHung,
        WorkbookError,
    )
    from manyranks.figures.images import images_plot
    from manyranks.figures.slider import stepper
    from manyranks.figures.timings import speed_up_plot, step_time_plot
    from manyranks.launcher.launch import launch
    from manyranks.launcher.limits import usable_cores
    from manyranks.planning.plan import plan
    from manyranks.planning.search import best_splits
    from manyranks.recording.collectives import record_collectives, run_and_record
    from manyranks.recording.memory import MemoryLedger
    from manyranks.recording.timeline import Timeline, timeline, timeline_of_files
    from manyranks.recording.timing import compare, speed_up, summary, synchronise, time_step
    from manyranks.script_doctor.diagnosis import doctor

HERE = os.path.dirname(__file__)
PACKAGES, OTHERS = os.path.dirname(HERE), os.path.dirname(os.path.dirname(manyranks.__file__))
if not os.path.samefile(PACKAGES, OTHERS):
    raise ImportError(
        f"ddp_workbook comes from {PACKAGES}, and manyranks from {OTHERS}: two copies of the "
        "workbook are on Python's path (sys.path), and parts of two editions need not fit. Leave "
        "one of them there: take the other folder out of PYTHONPATH, or uninstall that copy."
    )

# What the readers of a page read is theirs, wherever it is installed; what makes the page is not.
user_code.count_as_own(HERE)
user_code.hide(os.path.join(HERE, "page"))
former_names.install()

# Compiled and imported in each rank of a check otherwise, which doubles the rank's start.
JUDGING = (f"{__name__}.judging.in_rank",)


def start_fork_server(name: str) -> None:
    """Start the fork server, ready to judge, if `name` is one with which somebody launches."""
    if name in manyranks.LAUNCHING and not manyranks.is_started_by_another():
        from manyranks.launcher.fork_server import preload

        preload(*JUDGING)
        manyranks.start_fork_server(name)


find, __dir__, __all__ = lazy_names(__name__, start_fork_server, former_names.NAMES)


def __getattr__(name: str) -> Any:
    """The name from its module, or which package of the course that module lacks."""
    try:
        return find(name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"ddp_workbook.{name} needs {error.name}, which is not installed here. `make setup` in "
            "a checkout of the workbook installs all that the course needs.",
            name=error.name,
        ) from error


def load_ipython_extension(ipython) -> None:
    """What `%load_ext ddp_workbook` does: start the fork server, add `%%ranks` and `%%exercise`.

    Its `%%writefile` is for two kernels in one folder.
    """
    from ddp_workbook.page.loading import show_loading
    from ddp_workbook.page.pages import work_in_the_folder_of_all_pages
    from manyranks.launcher.fork_server import preload, warm_up

    show_loading(ipython)
    work_in_the_folder_of_all_pages()
    preload(*JUDGING)
    warm_up()  # it imports torch while the lines below do
    from ddp_workbook.judging.magics import ExerciseMagics, warn_if_unchecked
    from ddp_workbook.page import misplaced_magic
    from ddp_workbook.page.display import show_frames
    from ddp_workbook.page.ranks_magic import RanksMagics
    from ddp_workbook.page.room_client.report import Heartbeat
    from ddp_workbook.page.this_page import this_page
    from ddp_workbook.page.writefile_magic import WritefileMagics

    ipython.register_magics(RanksMagics, ExerciseMagics, WritefileMagics)
    ipython.events.register("post_run_cell", warn_if_unchecked)
    ipython.events.register("post_run_cell", Heartbeat(this_page))
    transformers = ipython.input_transformers_cleanup
    if misplaced_magic.warn_misplaced_magic not in transformers:  # else loaded twice
        transformers.append(misplaced_magic.warn_misplaced_magic)
    show_frames(ipython.display_formatter)
