"""The Distributed PyTorch Workbook: the few names that a notebook uses.

%load_ext ddp_workbook
from ddp_workbook import launch, record_collectives, what_changed, show
"""

from importlib import import_module

# Imported when first used: a chapter under torchrun must not pay for matplotlib in every rank.
HOMES = {
    "launch": "workbench.launch",
    "record_collectives": "workbench.recorder",
    "what_changed": "workbench.compare",
    "machine_table": "workbench.machine",
    "show": "workbench.pictures",
    "text_table": "workbench.tables",
    "WorkbookError": "workbench.errors",
    "LaunchRefused": "workbench.errors",
    "LaunchInterrupted": "workbench.errors",
    "RankFailed": "workbench.errors",
    "RanksHung": "workbench.errors",
    "hint": "exercises.checking.reader",
    "solution": "exercises.checking.reader",
    "progress": "exercises.checking.reader",
    "yours": "exercises.checking.yours",
    "predict": "exercises.checking.predictions",
    "reveal": "exercises.checking.predictions",
    "reveal_plot": "exercises.checking.predictions",
}
__all__ = list(HOMES)


def __getattr__(name: str):
    """Import one of the names above from its module (PEP 562)."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Kept here: `launch` is the function, also once the module of that name is imported.
    globals()[name] = getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])


def load_ipython_extension(ipython) -> None:
    """What `%load_ext ddp_workbook` does: add `%%ranks` and `%%exercise`, start the fork server."""
    from ddp_workbook.exercises.checking.magics import ExerciseMagics
    from ddp_workbook.workbench.handle import warm_up
    from ddp_workbook.workbench.magics import RanksMagics

    ipython.register_magics(RanksMagics, ExerciseMagics)
    warm_up()
