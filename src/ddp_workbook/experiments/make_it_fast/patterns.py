"""Eight things that a trace of a training shows, each made on purpose on two ranks."""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from manyranks import figures

WIDTH, DEPTH, ROWS = 512, 4, 512  # 10 tensors, 3.3 MB of gradients; rows of each rank
STEPS = 3  # that are looked at; the one before them is left out
SLOW, DISK_WRITE_S = 0.06, 0.1  # seconds: of a loader for a batch, and of a disk for a checkpoint
FAST = "Ethernet 10G"


class Batches(Dataset):
    """The same batch again and again; reading it takes so many seconds."""

    def __init__(self, rows: int, seconds: float):
        digits = DigitsDataset()
        self.batch = digits.images[:rows], digits.labels[:rows]
        self.seconds = seconds

    def __len__(self) -> int:
        return STEPS + 1

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        time.sleep(self.seconds)
        return self.batch


def save(model: nn.Module) -> None:
    """A checkpoint on a disk that takes its time."""
    torch.save(model.state_dict(), io.BytesIO())
    time.sleep(DISK_WRITE_S)


def train(
    rows: Sequence[int] = (ROWS, ROWS),  # a number for each rank, here and in the next line
    loading: Sequence[float] = (0, 0),
    bucket: float = 1,  # MiB
    numbers: int = 0,  # that are averaged in each step, to be logged
    save_after: int | None = None,
) -> None:
    """A few steps with DDP."""
    device, rank = setup(), dist.get_rank()
    torch.manual_seed(0)
    model = DigitsMLP(WIDTH, DEPTH).to(device)
    ddp = DistributedDataParallel(
        model, device_ids=[device] if device.type == "cuda" else None, bucket_cap_mb=bucket
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Batches(rows[rank], loading[rank]), batch_size=None)
    for step, (images, labels) in enumerate(loader):
        loss = F.cross_entropy(ddp(images.to(device)), labels.to(device))
        for _ in range(numbers):
            mean = loss.detach() / dist.get_world_size()
            dist.all_reduce(mean)
            mean.item()  # the logger wants a number, now
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == save_after and rank == 0:
            save(model)
    del ddp
    cleanup()


class Pattern(NamedTuple):
    """What makes it: the network, and the arguments of `train`."""

    name: str
    network: str
    arguments: dict
    steps: tuple[int, int] = (2, 2)  # that the picture shows


PATTERNS = (
    Pattern("all compute", FAST, {}),
    Pattern("one bucket at the end", "500 Mbit/s, 0.5 ms", {"bucket": 1000}),
    Pattern("many small calls", "10 Gbit/s, 5 ms", {"bucket": 1e-5}),
    Pattern("a late rank", FAST, {"loading": (0, SLOW)}),
    Pattern("more work on one rank", FAST, {"rows": (ROWS // 4, 2 * ROWS)}),
    Pattern("a loader that does not keep up", FAST, {"loading": (SLOW, SLOW)}),
    Pattern("a number that is wanted now", "10 Gbit/s, 5 ms", {"numbers": 4, "bucket": 1000}),
    Pattern("once in a while", FAST, {"save_after": 1}, (1, STEPS)),
)


def pattern_timeline(pattern: int) -> ddp_workbook.Timeline:
    """The timeline of pattern 1 to 8."""
    spec = PATTERNS[pattern - 1]
    return ddp_workbook.timeline(
        train, ranks=2, steps=STEPS, network=spec.network, **spec.arguments
    )


def unlabelled_plot(pattern: int) -> figures.Picture:
    """Its picture, for the reader to name."""
    return pattern_timeline(pattern).lanes(*PATTERNS[pattern - 1].steps)


def pattern_plot(timeline: ddp_workbook.Timeline, pattern: int) -> figures.Picture:
    """Its picture, with its name and the sentence of its timeline."""
    spec = PATTERNS[pattern - 1]
    picture = timeline.lanes(*spec.steps)
    sentence = summary(timeline)
    picture.axes.set_title(f"{pattern}. {spec.name}\n{sentence}", loc="left", size=10)
    picture.alt += f" {pattern}. {spec.name}: {sentence}"
    return picture


def summary(timeline: ddp_workbook.Timeline) -> str:
    """The timeline's own, and the share of loading if that is much."""
    mean = timeline.parts.mean(numeric_only=True)
    share = mean["loading"] / mean["seconds"]
    loading = f"{share:.0%} is loading; " if share > 0.1 else ""
    return loading + timeline.describe()


def rows(timeline: ddp_workbook.Timeline) -> pd.DataFrame:
    """The rows that Perfetto shows for rank 0: what they are called, and what is in them most."""
    spans = [event for event in timeline.traces[0].events if event.get("ph") == "X"]
    names = {
        event["tid"]: event["args"]["name"]
        for event in timeline.traces[0].events
        if event.get("name") == "thread_name"
    }
    of_rows: dict[object, Counter[str]] = {}
    for event in spans:
        of_rows.setdefault(event["tid"], Counter())[event["name"]] += 1
    table_rows = [
        (names.get(row, row), count.total(), ", ".join(name for name, _ in count.most_common(3)))
        for row, count in sorted(of_rows.items(), key=lambda row: -row[1].total())
    ]
    return pd.DataFrame(table_rows, columns=["row", "spans", "most of them"])


def play_pattern() -> ddp_workbook.Play:
    """A slider over the eight."""
    return ddp_workbook.play(
        pattern_timeline,
        pattern_plot,
        ranks=None,
        stills=[{"pattern": number} for number in (2, 3, 4, 5, 6, 8)],
        pattern=ddp_workbook.slider("pattern", range(1, len(PATTERNS) + 1), 7),
    )
