"""How evenly a router learns to use its experts, what helps, and routers that differ by rank.

A small model with four experts learns the digits; an image is a token. What balances the load does
not depend on ranks, so that is tried in one process.
"""

from __future__ import annotations

from functools import partial

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import ddp_workbook
from ddp_workbook.chapters.digits import CLASSES, PIXELS, DigitsDataset
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.make_it_fast import flat
from ddp_workbook.experiments.model_parallel.experts import (
    RANKS,
    ExpertParallel,
    Router,
    make_expert,
    one_process,
)
from manyranks import figures
from manyranks.launcher.launch import launch

WIDTH, BATCH_SIZE, RATE, SEED = 32, 128, 3e-3, 0
STEPS, STEPS_ON_RANKS = 200, 20
LAST = 10  # steps of which a number is the mean, because that of one batch is mostly chance
NOTHING, LOSS, BIAS = "nothing", "auxiliary loss", "bias for each expert"
STRENGTHS = (0.001, 0.01, 0.1, 1.0)
AVERAGED, NOT_AVERAGED, OWN_SEED = "gradient averaged", "gradient not averaged", "own seed"


def auxiliary_loss(probabilities: Tensor, counts: Tensor) -> Tensor:
    """1 if all experts get the same; more if what is chosen often is also likely."""
    shares = counts / counts.sum()  # a count has no gradient; a probability has one
    return len(shares) * (shares * probabilities.mean(0)).sum()


def move_bias(bias: Tensor, counts: Tensor, step: float) -> None:
    """Up for each expert with fewer tokens than the mean, down for those with more."""
    bias += step * (counts.float().mean() - counts).sign()


class Classifier(nn.Module):
    """Images to scores, with all experts, or with that of a rank.

    Tokens pass the experts by as well, as in a transformer's block.
    """

    def __init__(self, rank: int | None = None) -> None:
        super().__init__()
        self.embedding = nn.Linear(len(PIXELS), WIDTH)
        self.output = nn.Linear(WIDTH, CLASSES)
        self.router = Router(WIDTH, RANKS)
        experts = nn.ModuleList(make_expert(WIDTH) for _ in range(RANKS))
        self.experts = experts if rank is None else experts[rank]
        self.layer = (
            partial(one_process, router=self.router, experts=experts)
            if rank is None
            else ExpertParallel(self.router, experts[rank])
        )

    def forward(self, images: Tensor) -> Tensor:
        """Scores before the softmax."""
        tokens = self.embedding(images).tanh()
        return self.output(tokens + self.layer(tokens))


def train(remedy: str = NOTHING, strength: float = 0.0) -> pd.DataFrame:
    """For each step every expert's share of the tokens, and the loss without the auxiliary one."""
    torch.set_num_threads(1)  # the matrices are too small to be shared between cores
    torch.manual_seed(SEED)
    model, digits = Classifier(), DigitsDataset()
    router, optimizer = model.router, torch.optim.Adam(model.parameters(), lr=RATE)
    log = []
    for rows in torch.randint(len(digits), (STEPS, BATCH_SIZE)):
        loss = F.cross_entropy(model(digits.images[rows]), digits.labels[rows])
        log.append([*(router.counts / BATCH_SIZE).tolist(), loss.item()])
        if remedy == LOSS:
            loss = loss + strength * auxiliary_loss(router.probabilities, router.counts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if remedy == BIAS:
            move_bias(router.bias, router.counts, strength)
    columns = [f"rank {rank}" for rank in range(RANKS)]
    return pd.DataFrame(log, columns=[*columns, "loss"]).rename_axis("steps")


def end_of(log: pd.DataFrame) -> tuple[float, float]:
    """The share of the busiest expert in a step, and the loss, at the end."""
    last = log.tail(LAST)
    return last.filter(like="rank").max(axis=1).mean(), last["loss"].mean()


def with_and_without(remedy: str, strength: float) -> dict[str, pd.DataFrame]:
    """Both trainings, each in a process of its own."""
    ways = {NOTHING: (), f"{remedy}, {strength:g}": (remedy, strength)}
    return {name: launch(train, *way, ranks=1)[0] for name, way in ways.items()}


@figures.house_style
def shares_plot(logs: dict[str, pd.DataFrame], **_: object) -> figures.Picture:
    """The share of the tokens of each expert, in the colour of its rank."""
    panels = {}
    for name, log in logs.items():
        most, loss = end_of(log)
        title = f"{name}\nat the end: busiest {most:.0%}, loss {loss:.2f}"
        panels[title] = log.filter(like="rank").rolling(5, min_periods=1).mean()
    about = "What each rank's expert gets"
    picture = figures.lines(panels, "share of the tokens", about, by="rank")
    return figures.Picture(picture.figure, picture.alt.replace("\n", ", "))


def play_balance() -> ddp_workbook.Play:
    """A training with a remedy beside the one without."""
    return ddp_workbook.play(
        with_and_without,
        shares_plot,
        ranks=None,
        stills=[{"strength": 1.0}, {"remedy": BIAS, "strength": 0.01}, {"remedy": BIAS}],
        remedy=ddp_workbook.choice("remedy", (LOSS, BIAS), LOSS),
        strength=ddp_workbook.slider("strength", STRENGTHS, 0.1),
    )


# A router on each rank that disagrees


def train_on_ranks(router: str) -> tuple[list[float], Classifier]:
    """The losses of this rank's rows, and its model: all but its expert is a copy, or should be."""
    device = setup()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(SEED)
    model, digits = Classifier(rank).to(device), DigitsDataset()
    steps = torch.randint(len(digits), (STEPS_ON_RANKS, BATCH_SIZE))
    if router == OWN_SEED:
        torch.manual_seed(SEED + rank)
        model.router.score.reset_parameters()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    copies = [*model.embedding.parameters(), *model.output.parameters()]
    if router != NOT_AVERAGED:
        copies += model.router.parameters()
    losses = []
    for rows in steps.chunk(ranks, 1)[rank]:
        images, labels = digits.images[rows].to(device), digits.labels[rows].to(device)
        loss = F.cross_entropy(model(images), labels)
        losses.append(loss.item())
        counts = model.router.counts.clone()
        dist.all_reduce(counts)  # what is uneven on each rank may be even on all of them
        optimizer.zero_grad()
        (loss + 0.1 * auxiliary_loss(model.router.probabilities, counts)).backward()
        for parameter in model.parameters():
            parameter.grad /= ranks
        flat([parameter.grad for parameter in copies])  # adds them up over the ranks
        optimizer.step()
    cleanup()
    return losses, model.cpu()


def compare_routers() -> pd.DataFrame:
    """For each treatment of the router: what the loss shows, and what a comparison shows."""
    images, rows = DigitsDataset().images, []
    for router in (AVERAGED, NOT_AVERAGED, OWN_SEED):
        losses, models = zip(*launch(train_on_ranks, router, ranks=RANKS), strict=True)
        with torch.no_grad():
            tokens = models[0].embedding(images).tanh()
            chosen = torch.cat([model.router(tokens)[1] for model in models], dim=1)
        same = (chosen == chosen[:, :1]).all(dim=1)
        of_step = torch.tensor(losses).mean(0)
        loss = f"{of_step[0]:.2f} to {of_step[-LAST:].mean():.2f}"
        rows.append((router, loss, f"{same.float().mean():.0%}"))
    columns = ["router", "loss", "images that all ranks send to the same expert"]
    return pd.DataFrame(rows, columns=columns)
