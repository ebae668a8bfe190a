"""The Distributed PyTorch Workbook: the few names that a notebook uses.

%load_ext ddp_workbook
from ddp_workbook import launch, record_collectives, what_changed, show
"""

from importlib import import_module

# Imported when first used: a chapter under torchrun must not pay for matplotlib in every rank.
HOMES = {
    "launch": "launch",
    "record_collectives": "recorder",
    "what_changed": "compare",
    "machine_table": "machine",
    "show": "pictures",
    "text_table": "tables",
    "WorkbookError": "errors",
    "LaunchRefused": "errors",
    "LaunchInterrupted": "errors",
    "RankFailed": "errors",
    "RanksHung": "errors",
}
__all__ = list(HOMES)


def __getattr__(name: str):
    """Import one of the names above from its module (PEP 562)."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Kept here: `launch` is the function, also once the module of that name is imported.
    globals()[name] = getattr(import_module(f"{__name__}.workbench.{HOMES[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])


def load_ipython_extension(ipython) -> None:
    """What `%load_ext ddp_workbook` does: add `%%ranks`, start the fork server behind it."""
    from ddp_workbook.workbench.handle import warm_up
    from ddp_workbook.workbench.magics import RanksMagics

    ipython.register_magics(RanksMagics)
    warm_up()
