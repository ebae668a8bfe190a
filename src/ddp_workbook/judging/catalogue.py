"""The exercises by page and by name."""

import difflib
from functools import cached_property
from types import ModuleType

from ddp_workbook.judging import source
from ddp_workbook.judging.attempts import FORMER_NAMES
from ddp_workbook.judging.check import DistributedCheck, exercise_module, load
from ddp_workbook.page.pages import no_such
from manyranks.errors import WorkbookError

# page, by what follows its number -> its exercises, in the order of the pages
CHAPTERS = {
    "start_here": ["mean_over_ranks"],
    "data_parallel": ["weighted_gradients"],
    "further_inside_data_parallel": ["parallel_apply"],
    "further_what_a_replica_keeps": ["scatter_batch"],
    "distributed_data_parallel": ["average_gradients"],
    "further_constructor": ["broadcast_parameters"],
    "further_inside_ddp": ["bucketed_average"],
    "further_mixed_precision": ["which_dtype", "mixed_step"],
    "further_the_batch": ["accumulate", "global_loss"],
    "process_groups": ["where_is", "row_and_column_groups"],
    "further_groups_and_meshes": ["hierarchical_all_reduce"],
    "further_waiting": ["once_per_run"],
    "samplers": ["my_indices", "shuffled_every_epoch"],
    "further_loading_data": ["iterable_shard"],
    "further_resuming": ["resume_indices"],
    "further_uneven_work": ["exact_accuracy", "even_work"],
    "further_your_own_program": ["to_ddp"],
    "collectives": ["name_the_collective"],
    "further_cost_of_messages": ["metrics_in_one"],
    "further_objects_and_mistakes": ["gather_uneven"],
    "further_point_to_point": ["tree_broadcast"],
    "further_ring": ["ring_all_reduce"],
    "fully_sharded": ["shard_and_pad", "unshard", "choose_wraps"],
    "further_by_hand": ["fsdp_step"],
    "further_strategies": ["memory_per_rank"],
    "many_machines": ["torchrun_line", "fix_job_script"],
    "further_what_it_costs": ["predict_scaling"],
    "checkpoint_and_recover": ["save_atomically"],
    "further_elastic": ["stop_together", "resume_exactly"],
    "further_goodput": ["checkpoint_interval"],
    "further_sharded_checkpoints": ["full_state", "load_resharded"],
    "when_it_hangs": ["who_is_missing", "find_the_straggler"],
    "further_silently_wrong": ["same_on_all_ranks", "fix_uneven_batches", "fix_sharded_training"],
    "make_it_fast": ["mfu", "overlap_with_hooks"],
    "further_fewer_bytes": ["compress_gradients"],
    "further_fewer_messages": ["choose_bucket", "every_h_steps"],
    "further_profiler": ["read_the_timeline"],
    "model_parallel": ["column_then_row", "fill_the_schedule"],
    "further_long_sequences": ["ring_attention", "which_dimension"],
}


class UnknownExercise(WorkbookError, LookupError):
    """There is no exercise, or no chapter, of that name."""


class Exercise:
    """One file of `exercises`: its texts, and its module once something must run."""

    def __init__(self, name: str):
        self.name = name
        self.text = source.path_of(name).read_text(encoding="utf-8")

    @cached_property
    def module(self) -> ModuleType:
        """The exercise's file, imported."""
        return exercise_module(self.name)

    @cached_property
    def stub(self) -> str:
        """What the reader's cell holds at first."""
        return source.stub(self.text, self.name)

    @cached_property
    def solution(self) -> str:
        """The same cell, solved."""
        return source.solution(self.text, self.name)

    @cached_property
    def check(self) -> DistributedCheck:
        """What is called, looked at, and required."""
        return load(self.name)

    @property
    def hints(self) -> list[str]:
        """The hints, from a nudge to nearly there."""
        return list(self.module.HINTS)


def names() -> list[str]:
    """All exercises, in the order of the notebooks."""
    return [name for exercises in CHAPTERS.values() for name in exercises]


def find(name: str) -> Exercise:
    """The exercise called `name`; raises UnknownExercise with the nearest one, or all."""
    if name not in names():
        raise UnknownExercise(_unknown("exercise", name, names()))
    return Exercise(name)


def of_chapter(stem: str) -> list[str]:
    """The names of a chapter's exercises; raises UnknownExercise."""
    if stem not in CHAPTERS:
        raise UnknownExercise(_unknown("chapter with exercises", stem, list(CHAPTERS)))
    return CHAPTERS[stem]


def _unknown(what: str, name: str, known: list[str]) -> str:
    now = {former: name for name, former in FORMER_NAMES.items()}
    near = [now[name]] if name in now else difflib.get_close_matches(str(name), known, 1)
    return no_such(what, str(name), near, known)
