"""Run a page as shipped on a machine with a GPU:  python -m benchmarks.gpu.page 04_samplers"""

import sys
import tempfile
from pathlib import Path

from ddp_workbook.page.pages import place_of
from ddp_workbook.workshop.execution import begin_with, copy_layout, errors, execute

# All ranks of these pages see the one GPU, as they see theirs on a node with a GPU for each.
RANKS_SEE_IT = ("00_start_here",)
SHOW_IT = """from manyranks.launcher import rank_environment
rank_environment.has_gpu_per_rank = lambda ranks: True"""


def failures(stem: str) -> list[str]:
    """Run the notebook in a copy; return the cells that failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = copy_layout(Path(folder)) / place_of(stem)
        if stem in RANKS_SEE_IT:
            begin_with(path, SHOW_IT)
        return errors(execute(path))


if __name__ == "__main__":
    sys.exit("; ".join(failures(sys.argv[1])) or None)
