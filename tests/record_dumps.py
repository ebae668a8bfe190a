"""Records what the flight recorder of four ranks holds in seven jobs, for `who_is_missing`.

    python -m tests.record_dumps

Writes data/when_it_hangs/dumps.json: real hangs of gloo, each read by a thread of the hanging rank.
Of an entry those fields are kept that the exercise names; `frames` without the folders.
"""

import contextlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from tools.set_up import ROOT

FILE = ROOT / "data" / "when_it_hangs" / "dumps.json"
PAIRS = {"0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3]}  # a group's name -> its ranks
ENTRY_FIELDS = (
    *("collective_seq_id", "process_group", "profiling_name"),
    *("input_sizes", "retired", "state", "frames"),
)
HANG_S = 1.5  # seconds after which nothing moves any more


def average(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
    """The mean over the ranks, in place."""
    dist.all_reduce(tensor, group=group)
    tensor /= dist.get_world_size(group)


def leaves_early(rank: int, pair: dist.ProcessGroup) -> None:
    """Rank 2 has one batch less."""
    for _ in range(4 - (rank == 2)):
        dist.all_reduce(torch.ones(8))


def ahead(rank: int, pair: dist.ProcessGroup) -> None:
    """Rank 3 still loads data; the source of a broadcast does not wait for those that receive."""
    for step in range(3):
        if rank == 3 and step == 2:
            time.sleep(3600)
        dist.broadcast(torch.ones(4), src=0)
        average(torch.ones(16))


def another_call(rank: int, pair: dist.ProcessGroup) -> None:
    """Rank 0 takes the other branch."""
    for step in range(3):
        if rank == 0 and step == 1:
            dist.broadcast(torch.ones(8), src=1)
        dist.all_reduce(torch.ones(8))


def one_alone(rank: int, pair: dist.ProcessGroup) -> None:
    """A barrier for rank 1."""
    average(torch.ones(8))
    if rank == 1:
        dist.barrier()


def in_a_pair(rank: int, pair: dist.ProcessGroup) -> None:
    """Rank 1 never comes to its pair's second mean; the other pair is done with it."""
    for step in range(2):
        average(torch.ones(2))
        if rank == 1 and step == 1:
            time.sleep(3600)
        average(torch.ones(4, 4), pair)
    parts = [torch.empty(2) for _ in range(4)]
    dist.all_gather(parts, torch.ones(2))


def in_the_other_pair(rank: int, pair: dist.ProcessGroup) -> None:
    """Rank 3 never comes to its pair's broadcast, and ranks 0 and 1 wait for both in a barrier."""
    average(torch.ones(2))
    if rank == 3:
        time.sleep(3600)
    dist.broadcast(torch.ones(4), src=rank // 2 * 2 + 1, group=pair)
    dist.barrier()


def complete(rank: int, pair: dist.ProcessGroup) -> None:
    """Nobody is missing."""
    for _ in range(2):
        average(torch.ones(8))
        average(torch.ones(2), pair)


JOBS: list[Callable] = [
    *(leaves_early, ahead, another_call, one_alone, in_a_pair, in_the_other_pair, complete),
]


def main() -> None:
    """One rank of the job named on the command line: hang, read the recorder, end."""
    _, name, folder = sys.argv
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pairs = [dist.new_group(PAIRS["1"]), dist.new_group(PAIRS["2"])]
    threading.Thread(target=note, args=(Path(folder) / f"{rank}.json",), daemon=True).start()
    with contextlib.suppress(RuntimeError):  # another call may end in an error of gloo's
        next(job for job in JOBS if job.__name__ == name)(rank, pairs[rank // 2])
    time.sleep(3600)


def note(file: Path) -> None:
    """Write the entries of this rank, once nothing moves any more, and end the process."""
    time.sleep(HANG_S)
    dump = pickle.loads(torch._C._distributed_c10d._dump_fr_trace())
    entries = [{key: entry[key] for key in ENTRY_FIELDS} for entry in dump["entries"]]
    for entry in entries:
        entry["frames"] = [frame | {"filename": short(frame["filename"])} for frame in own(entry)]
    file.write_text(json.dumps(entries), encoding="utf-8")
    time.sleep(HANG_S)  # the other ranks write as well, and an end of this one would wake them
    os._exit(0)


def own(entry: dict) -> list[dict]:
    """The frames down to the job's function."""
    names = {job.__name__ for job in JOBS}
    last = next(n for n, frame in enumerate(entry["frames"]) if frame["name"] in names)
    return entry["frames"][: last + 1]


def short(file: str) -> str:
    """A file's name as the exercise shows it."""
    return "train.py" if Path(file).name == Path(__file__).name else file[file.rfind("torch/") :]


def record() -> None:
    """Run all jobs under torchrun, and write what their ranks have noted."""
    jobs = []
    for job in JOBS:
        with tempfile.TemporaryDirectory() as folder:
            command = ["torchrun", "--standalone", "--nproc-per-node=4", "--module"]
            command += ["tests.record_dumps", job.__name__, folder]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
            dumps = [json.loads((Path(folder) / f"{r}.json").read_text()) for r in range(4)]
        jobs.append({"job": job.__name__, "groups": PAIRS, "dumps": dumps})
    lines = ",\n".join(json.dumps(job) for job in jobs)
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main() if sys.argv[1:] else record()
