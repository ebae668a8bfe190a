"""The process of one part:  python -m tools.gpu.work measure memory

python -m tools.gpu.work page 04_samplers
"""

import sys
import tempfile
from pathlib import Path

import torch

from ddp_workbook.experiments import one_gpu
from ddp_workbook.page.pages import place_of

# All ranks of these pages see the one GPU, as they see theirs on a node with a GPU for each.
RANKS_SEE_IT = ("00_start_here",)
SHOW_IT = """from manyranks.launcher import rank_environment
rank_environment.has_gpu_per_rank = lambda ranks: True"""


def measure(name: str, device: torch.device, folder: Path = one_gpu.FOLDER, **smaller) -> str:
    """Measure and record; return what failed in words, or "".

    Cases that succeed are recorded even if others fail. `smaller` goes to the measurement.
    """
    rows, failed = one_gpu.run_cases(one_gpu.MEASUREMENTS[name](device, **smaller))
    if rows:
        print(one_gpu.record(name, rows, one_gpu.name_of(device), folder))
    for case, text in failed.items():
        print(f"\n{case}\n{text}")
    errors = [f"{case}: {text.splitlines()[-1]}" for case, text in failed.items()]
    suffix = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    return errors[0] + suffix if errors else ""


def page(stem: str) -> str:
    """Run a notebook as shipped, in a copy; return the cells that failed, or ""."""
    from tools import book

    with tempfile.TemporaryDirectory() as folder:
        path = book.copy_layout(Path(folder)) / place_of(stem)
        if stem in RANKS_SEE_IT:
            book.begin_with(path, SHOW_IT)
        return "; ".join(book.errors(book.execute(path)))


def main(kind: str, name: str = "") -> None:
    """Run the part; end with exit code 1 and one line if something failed."""
    device = torch.device("cuda", 0)
    if kind == "page":
        failed = page(name)
    elif kind == "measure":
        torch.cuda.set_device(device)
        failed = measure(name, device)
    else:
        failed = print(one_gpu.name_of(device))
    if failed:
        print(failed)
        sys.exit(failed.splitlines()[0])  # the last line of the log is the part's reason


if __name__ == "__main__":
    main(*sys.argv[1:])
