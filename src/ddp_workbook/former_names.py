"""Names of the edition before, which cells, scripts and attempts of readers still import."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

LIBRARY = (
    *("launcher", "network", "recording", "diagnostics", "planning", "figures"),
    *("errors", "files", "testing", "rank_colours"),
)
MODULES = {  # as pages, README and guide have shown them -> what they are called now
    **{f"ddp_workbook.{name}": f"manyranks.{name}" for name in LIBRARY},
    "ddp_workbook.checkup": "manyranks.script_doctor",
    "ddp_workbook.digits": "ddp_workbook.chapters.digits",
    "ddp_workbook.results": "ddp_workbook.chapters.results",
    "ddp_workbook.training_run": "ddp_workbook.chapters.training_run",
    "ddp_workbook.notebook": "ddp_workbook.page",
}
NAMES = {  # of the package itself
    "on_a_gpu": "recorded_gpu_table",
    "recorded": "run_and_record",
    "yours": "own_solution",
}
SUBJECTS = {  # of a chapter's demonstrations, as in demos.ward
    "apart": "local_sgd",
    "breaks": "rendezvous_faults",
    "cause": "failing_program",
    "dealing": "index_sharding",
    "does_it_pay": "break_even_batch",
    "half_speed": "half_precision_speed",
    "half_written": "interrupted_save",
    "kill": "killed_ranks",
    "late": "late_rank",
    "lock": "gil",
    "meeting": "rendezvous",
    "moves": "before_and_after",
    "often": "save_interval",
    "orders": "shuffling",
    "patients": "faulty_programs",
    "samples": "assignments",
    "signals": "assertion_costs",
    "state": "what_to_save",
    "to_1024": "projection",
    "told": "graceful_stop",
    "torn": "torn_files",
    "triage": "stacks_and_dumps",
    "uneven": "uneven_inputs",
    "waits": "completion",
    "ward": "symptoms",
    "watched": "traced_training",
    "when": "network_crossover",
    "where": "step_breakdown",
    "workers": "loader_workers",
}


class FormerModules(MetaPathFinder, Loader):
    """Imports the module that is meant, once, under both names."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for a name of MODULES, or of a module below it."""
        return ModuleSpec(name, self) if name_now(name) != name else None

    def exec_module(self, module: ModuleType) -> None:
        """Put the module that is meant into its place. Raises what its own import raises."""
        sys.modules[module.__name__] = import_module(name_now(module.__name__))


def name_now(name: str) -> str:
    """What the module is called now."""
    for former, now in MODULES.items():
        if name == former or name.startswith(f"{former}."):
            return now + name.removeprefix(former)
    return name


def install() -> None:
    """Make the former names importable in this process."""
    if not any(isinstance(finder, FormerModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerModules())
