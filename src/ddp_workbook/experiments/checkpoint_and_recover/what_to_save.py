"""What the next step depends on: a training that goes on without one part of its state."""

from __future__ import annotations

import copy
import io
import textwrap
from contextlib import nullcontext
from typing import Any, NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import ddp_workbook
from ddp_workbook.chapters.checkpoint_and_recover import rebuild_buckets
from ddp_workbook.chapters.checkpointing import random_state, set_random_state
from ddp_workbook.chapters.digits import DigitsDataset, batches, furthest
from ddp_workbook.chapters.distributed_data_parallel import setup
from manyranks import figures
from manyranks.launcher.launch import launch

RANKS, STEPS = 4, 14
PARTS, ROWS = 2, 64  # of a batch, which are accumulated; rows of a part on all ranks together
PARTS_BEFORE_SAVE = (
    6 * PARTS + 1
)  # parts that are done when the training is interrupted: half a batch more
NOTHING, MODEL, OPTIMIZER, SCHEDULER = "nothing", "model", "optimizer", "scheduler"
DATA_POSITION, RANDOM, RANDOM_0 = (
    "place in the data",
    "random numbers",
    "random numbers of ranks 1 to 3",
)
STATISTICS, GRADIENTS = "BatchNorm's statistics", "accumulated gradients"
EQUAL, NONE = "equal", "none"
OMISSIONS = (
    NOTHING, MODEL, OPTIMIZER, SCHEDULER, DATA_POSITION, RANDOM, RANDOM_0, STATISTICS, GRADIENTS
)  # fmt: skip


class TrainingOutcome(NamedTuple):
    """A training on one rank: the loss of each part, the parameters, the loss of an evaluation."""

    losses: list[float]
    parameters: dict[str, Tensor]
    evaluation: float


# In a rank


class Training:
    """A model with BatchNorm and dropout, AdamW, a scheduler, and batches in two parts."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.digits = device, DigitsDataset()
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.3), nn.Linear(32, 10)
        ).to(device)
        self.ddp = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, STEPS)
        self.parts = list(batches(self.digits, ROWS, epoch=0))
        self.parts_done = self.place = 0  # parts that are trained; the next one to take
        rebuild_buckets(self.ddp, self.digits, device)
        torch.manual_seed(dist.get_rank())  # each rank drops units of its own

    def train_until(self, parts: int) -> list[float]:
        """Train until so many parts are done; this rank's loss of each that was not."""
        losses = []
        while self.parts_done < parts:
            images, labels = self.parts[self.place]
            last = self.parts_done % PARTS == PARTS - 1
            with nullcontext() if last else self.ddp.no_sync():
                mine = slice(dist.get_rank(), None, dist.get_world_size())
                scores = self.ddp(images[mine].to(self.device))
                loss = F.cross_entropy(scores, labels[mine].to(self.device)) / PARTS
                loss.backward()
            if last:
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
            self.parts_done, self.place = self.parts_done + 1, self.place + 1
            losses.append(PARTS * loss.item())
        return losses

    def state(self) -> dict[str, Any]:
        """All that the next part depends on, by its name."""
        weights = self.model.state_dict()
        parameters = dict(self.model.named_parameters())
        return {
            MODEL: {name: weights[name] for name in parameters},
            OPTIMIZER: self.optimizer.state_dict(),
            SCHEDULER: self.scheduler.state_dict(),
            DATA_POSITION: self.place,
            RANDOM: random_state(),
            STATISTICS: {name: weights[name] for name in weights if name not in parameters},
            GRADIENTS: [parameter.grad for parameter in parameters.values()],
        }

    def load(self, state: dict[str, Any], without: str) -> None:
        """Restore everything but `without`, which stays as it is at a new start."""
        state = {name: part for name, part in state.items() if name != without}
        self.model.load_state_dict(state.get(MODEL, {}) | state.get(STATISTICS, {}), strict=False)
        if OPTIMIZER in state:
            self.optimizer.load_state_dict(state[OPTIMIZER])
        if SCHEDULER in state:
            self.scheduler.load_state_dict(state[SCHEDULER])
        for parameter, gradient in zip(
            self.model.parameters(), state.get(GRADIENTS, []), strict=False
        ):
            parameter.grad = gradient
        self.parts_done, self.place = PARTS_BEFORE_SAVE, state.get(DATA_POSITION, 0)
        if RANDOM in state:
            set_random_state(state[RANDOM])

    def end(self) -> TrainingOutcome:
        """Train to the end and look at the model."""
        losses = self.train_until(STEPS * PARTS)
        parameters = {name: value.detach().clone() for name, value in self.model.named_parameters()}
        with torch.no_grad():
            scores = self.model.eval()(self.digits.images.to(self.device))
        return TrainingOutcome(
            losses, parameters, F.cross_entropy(scores, self.digits.labels.to(self.device)).item()
        )


def runs_without(*omissions: str) -> tuple[TrainingOutcome, list[TrainingOutcome], dict[str, bool]]:
    """The uninterrupted training, one that goes on without each of these, and what ranks share."""
    device = setup()
    whole = Training(device).end()
    first = Training(device)
    before = first.train_until(PARTS_BEFORE_SAVE)
    saved_state = first.state()  # `first` trains no more
    of_ranks: list[dict] = [{}] * RANKS
    content = {name: as_bytes(part) for name, part in saved_state.items()}
    dist.all_gather_object(of_ranks, content)
    alike = {name: all(other[name] == content[name] for other in of_ranks) for name in content}
    random_of_0 = [saved_state[RANDOM]]
    dist.broadcast_object_list(random_of_0)
    outcomes = []
    for name in omissions:
        again = Training(device)
        state = saved_state | ({RANDOM: random_of_0[0]} if name == RANDOM_0 else {})
        again.load(copy.deepcopy(state), name)  # training changes it in place
        outcome = again.end()
        outcomes.append(outcome._replace(losses=before + outcome.losses))
    return whole, outcomes, alike


def as_bytes(part: Any) -> bytes:
    """What a file of this part would hold."""
    file = io.BytesIO()
    torch.save(part, file)
    return file.getvalue()


# In the kernel


def play_omission() -> ddp_workbook.Play:
    """An interrupted training, with a control for what its save lacks."""
    return ddp_workbook.play(
        run_without,
        divergence_plot,
        ranks=RANKS,
        stills=[
            {"left_out": name} for name in (NOTHING, SCHEDULER, DATA_POSITION, STATISTICS, RANDOM_0)
        ],
        left_out=ddp_workbook.choice("the save lacks", OMISSIONS, MODEL),
    )


def run_without(left_out: str) -> tuple[TrainingOutcome, TrainingOutcome]:
    """In a rank: the uninterrupted training, and the one whose save lacks this."""
    whole, outcomes, _ = runs_without(left_out)
    return whole, outcomes[0]


@figures.house_style
def divergence_plot(
    of_ranks: list[tuple[TrainingOutcome, TrainingOutcome]], left_out: str, **_: object
) -> figures.Picture:
    """The loss of each step, averaged over the ranks; and how far the interrupted run departs."""
    table = pd.DataFrame(
        {
            "uninterrupted": mean_losses([whole for whole, _ in of_ranks]),
            "interrupted": mean_losses([interrupted for _, interrupted in of_ranks]),
        },
        index=pd.RangeIndex(1, STEPS * PARTS + 1, name="half batch"),
    )
    picture = figures.lines(table, "loss", "Loss of each half batch")
    picture.axes.axvline(PARTS_BEFORE_SAVE + 0.5, color="black", linestyle="dashed", linewidth=1.2)
    row = divergence(of_ranks)
    words = "; ".join(f"{name}: {value}" for name, value in row.items())
    title = f"The save lacks {left_out}.\n{textwrap.fill(words, 80)}"
    picture.axes.set_title(title, loc="left", size=10)
    picture.alt += f" Saved after half batch {PARTS_BEFORE_SAVE}, without {left_out}. {words}."
    return picture


def mean_losses(of_ranks: list[TrainingOutcome]) -> list[float]:
    """Over the ranks, of each part."""
    return torch.tensor([outcome.losses for outcome in of_ranks]).mean(dim=0).tolist()


def divergence(of_ranks: list[tuple[TrainingOutcome, TrainingOutcome]]) -> dict[str, str]:
    """Where a training departs from the uninterrupted one, and how far it is at the end."""
    first = [first_difference(whole.losses, interrupted.losses) for whole, interrupted in of_ranks]
    weights = max(
        furthest(interrupted.parameters, whole.parameters) for whole, interrupted in of_ranks
    )
    evaluation = max(
        abs(interrupted.evaluation - whole.evaluation) for whole, interrupted in of_ranks
    )
    return {
        "first different loss on rank 0": first[0],
        "on any rank": min(first, key=lambda words: (words == NONE, len(words), words)),
        "weights": format_difference(weights),
        "evaluation": format_difference(evaluation),
    }


def first_difference(losses: list[float], other_losses: list[float]) -> str:
    """The first half batch whose losses are not equal in every bit."""
    pairs = zip(losses, other_losses, strict=True)
    places = [
        place for place, (loss, other_loss) in enumerate(pairs, start=1) if loss != other_loss
    ]
    return f"half batch {places[0]}" if places else NONE


def format_difference(difference: float) -> str:
    """A difference between numbers, in words."""
    return f"{difference:.1e} off" if difference else EQUAL


def omission_table() -> pd.DataFrame:
    """A row for each part of the state: what a save without it does, and who has it."""
    of_ranks = launch(runs_without, *OMISSIONS, ranks=RANKS)
    alike = of_ranks[0][2]
    rows = []
    for place, name in enumerate(OMISSIONS):
        pairs = [(whole, pairs[place]) for whole, pairs, _ in of_ranks]
        same = {True: "yes", False: "no"}.get(alike.get(name), "")
        rows.append({"the save lacks": name} | divergence(pairs) | {"equal on all ranks": same})
    return pd.DataFrame(rows)
