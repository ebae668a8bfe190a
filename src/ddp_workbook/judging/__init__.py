"""Judges exercises: from the reader's cell to a verdict.

The names below are what an exercise's file imports.
"""

from typing import TYPE_CHECKING

from manyranks.lazy_names import lazy_names

if TYPE_CHECKING:  # imported when first used: the ranks need one of them
    # ruff: noqa: F401
    from ddp_workbook.judging.check import (
        CheckFailed,
        DistributedCheck,
        Edit,
        SingleProcessCheck,
        body,
        edit,
    )
    from ddp_workbook.judging.comparison import Comparison, Observation, Pattern, at_most
    from ddp_workbook.judging.equality import ANY
    from ddp_workbook.judging.values import in_words

__getattr__, __dir__, __all__ = lazy_names(__name__)
