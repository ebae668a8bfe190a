"""A layer of experts, one on each rank: the router, tokens to experts and back, messages, capacity.

Tokens are rows of pixels of real digits. What a page shows is compared with one process, in which
every expert computes every token, and a weight of zero takes out what the router did not choose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd

import ddp_workbook
from ddp_workbook.chapters.digits import SIDE, DigitsDataset
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from manyranks import figures
from manyranks.figures.palette import rank_colour, tint
from manyranks.launcher.launch import launch
from manyranks.recording.collectives import run_and_record

RANKS, TOKENS, WIDTH = 4, 128, 16  # tokens of each rank
SEED = 4  # whose untrained router sends some tokens from every rank to every expert
EQUAL = 1e-5  # a difference that is rounding
AS_INITIALIZED, NONE, ALL = "as initialized", "expert 2 gets none", "expert 2 gets all"
ROUTERS = {AS_INITIALIZED: 0.0, NONE: -1.0, ALL: 1.0}  # added to the probability of expert 2
FEWEST_WITH_NAME = 8  # rows of a piece that has room for a number
CAPACITIES = {"none": None, "2": 2.0, "1.25": 1.25, "1": 1.0}


class Router(nn.Module):
    """Chooses `top` experts for each token, and says how much each of them counts."""

    def __init__(self, width: int, experts: int, top: int = 1) -> None:
        super().__init__()
        self.score = nn.Linear(width, experts, bias=False)
        self.register_buffer("bias", torch.zeros(experts))  # to change the choice from outside
        self.top = top

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and numbers of the chosen experts, each [tokens, top]."""
        probabilities = self.score(tokens).softmax(-1)
        chosen = (probabilities + self.bias).topk(self.top).indices  # numbers have no gradient
        weights = probabilities.gather(-1, chosen)  # so the router learns through these alone
        if self.top > 1:
            weights = weights / weights.sum(-1, keepdim=True)
        self.probabilities = probabilities  # what balances the load looks at these two
        self.counts = chosen.flatten().bincount(minlength=len(self.bias))
        return weights, chosen


class Exchange(torch.autograd.Function):
    """`sent[r]` rows go to rank r, in the order of the ranks; `received[r]` come from it."""

    @staticmethod
    def forward(ctx, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        ctx.sent, ctx.received = sent, received
        arrived = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(arrived, rows.contiguous(), received, sent)
        return arrived

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:
        back = gradient.new_empty(sum(ctx.sent), gradient.shape[1])
        # The gradient of a row goes to where the row came from: the counts change places.
        dist.all_to_all_single(back, gradient.contiguous(), ctx.sent, ctx.received)
        return back, None, None


class ExpertParallel(nn.Module):
    """The same router on every rank, and one expert of its own."""

    exchange = Exchange.apply

    def __init__(self, router: Router, expert: nn.Module, capacity: int | None = None) -> None:
        super().__init__()
        self.router, self.expert, self.capacity = router, expert, capacity

    def forward(self, tokens: Tensor) -> Tensor:
        """What the chosen experts make of this rank's tokens, weighted, in the tokens' order."""
        weights, chosen = self.router(tokens)
        expert, weight = chosen.flatten(), weights.flatten()
        token = torch.arange(len(expert), device=tokens.device) // self.router.top
        order = expert.argsort(stable=True)  # what goes to one rank must stand together
        if self.capacity is not None:
            order = order[within_capacity(expert[order], self.capacity)]
        token, weight = token[order], weight[order].unsqueeze(-1)
        sent = expert[order].bincount(minlength=dist.get_world_size())
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)  # only the sender knows how many rows will come
        self.sent, self.received = sent.tolist(), received.tolist()
        arrived = self.exchange(tokens[token], self.sent, self.received)
        outputs = self.exchange(self.expert(arrived), self.received, self.sent)
        return torch.zeros_like(tokens).index_add(0, token, outputs * weight)


def within_capacity(expert: Tensor, capacity: int) -> Tensor:
    """Which of these rows, sorted by expert, are among the first `capacity` of their expert."""
    first = torch.searchsorted(expert, expert)  # where the rows of the same expert begin
    return torch.arange(len(expert), device=expert.device) - first < capacity


def one_process(tokens: Tensor, router: Router, experts: Sequence[nn.Module]) -> Tensor:
    """The same layer without ranks: every expert computes every token."""
    weights, chosen = router(tokens)
    return sum(
        (weights * (chosen == number)).sum(-1, keepdim=True) * expert(tokens)
        for number, expert in enumerate(experts)
    )


def make_expert(width: int) -> nn.Sequential:
    """A small MLP."""
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


def make_parts(ranks: int, top: int, shift: float = 0.0) -> tuple[Tensor, Router, nn.ModuleList]:
    """The tokens of all ranks, the router and all experts, the same on every rank."""
    torch.manual_seed(SEED)
    router = Router(WIDTH, ranks, top)
    experts = nn.ModuleList(make_expert(WIDTH) for _ in range(ranks))
    router.bias[2:3] = shift
    pixels = DigitsDataset().images[: ranks * TOKENS // SIDE].unflatten(1, (SIDE, SIDE))
    tokens = F.layer_norm(nn.Linear(SIDE, WIDTH)(pixels), (WIDTH,)).flatten(0, 1).detach()
    return tokens, router, experts


# What comes of forward and backward, beside one process


def plain(rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
    """The collective alone: autograd does not see it."""
    arrived = rows.new_empty(sum(received), rows.shape[1])
    dist.all_to_all_single(arrived, rows, received, sent)
    return arrived


def of_torch(rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
    """PyTorch's own with a backward; an underscore begins the name of its module."""
    return all_to_all_single_autograd(rows, received, sent, dist.group.WORLD)


EXCHANGES = {
    "Exchange": Exchange.apply,
    "all_to_all_single_autograd": of_torch,
    "all_to_all_single alone": plain,
}
LEFT, AVERAGED, DIVIDED = "left as it is", "averaged over the ranks", "divided by their number"
TREATMENTS = (LEFT, AVERAGED, DIVIDED)  # of the gradient of a rank's expert


class Step(NamedTuple):
    """A rank's messages, and how far its numbers are from those of one process."""

    sent: list[int]
    dropped: int  # choices for which an expert had no room
    differences: dict[str, float | None]  # None where there is no gradient


def step(
    router: str = AS_INITIALIZED,
    top: int = 1,
    factor: float | None = None,
    exchange: str = "Exchange",
    expert_gradient: str = DIVIDED,
) -> Step:
    """Forward and backward of this rank's own tokens; its loss is the mean over them."""
    device = setup()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tokens, its_router, experts = make_parts(ranks, top, ROUTERS[router])
    whole = partial(one_process, router=its_router, experts=experts)
    expected = forward_and_backward(tokens, whole, its_router, experts[rank])
    for name in ("output", "tokens"):
        expected[name] = expected[name].chunk(ranks)[rank]

    tokens, its_router, experts = make_parts(ranks, top, ROUTERS[router])
    capacity = None if factor is None else capacity_of(factor, top, ranks)
    layer = ExpertParallel(its_router, experts[rank], capacity).to(device)
    layer.exchange = EXCHANGES[exchange]
    own = tokens.chunk(ranks)[rank].to(device)
    found = forward_and_backward(own, layer, layer.router, layer.expert)
    found["tokens"] /= ranks  # the mean is over the tokens of all ranks
    dist.all_reduce(found["router"], dist.ReduceOp.AVG)
    if found["expert"] is not None and expert_gradient == AVERAGED:
        dist.all_reduce(found["expert"], dist.ReduceOp.AVG)
    elif found["expert"] is not None and expert_gradient == DIVIDED:
        found["expert"] /= ranks
    cleanup()
    differences = {name: relative(found[name], value) for name, value in expected.items()}
    return Step(layer.sent, len(own) * top - sum(layer.sent), differences)


def forward_and_backward(
    tokens: Tensor, layer: Callable[[Tensor], Tensor], router: Router, expert: nn.Module
) -> dict[str, Tensor]:
    """The output, and the gradients of tokens, router, and an expert's first matrix."""
    tokens.requires_grad_()
    output = layer(tokens)
    output.square().mean().backward()
    matrix = expert[0].weight
    gradients = {"tokens": tokens.grad, "router": router.score.weight.grad, "expert": matrix.grad}
    return {"output": output.detach()} | gradients


def relative(found: Tensor | None, expected: Tensor) -> float | None:
    """The largest difference, in parts of the largest number."""
    if found is None:
        return None
    return ((found.cpu() - expected).abs().max() / expected.abs().max().clamp_min(1e-30)).item()


def furthest(steps: Sequence[Step]) -> dict[str, float | None]:
    """For output and gradients the largest difference on any rank; None if a rank has none."""
    rows = pd.DataFrame([one.differences for one in steps], dtype=object)
    return {name: None if values.isna().any() else values.max() for name, values in rows.items()}


def compare(argument: str, values: Iterable[str]) -> pd.DataFrame:
    """How far output and gradients are from one process, with each of these values in `step`."""
    ways: dict[str, dict[str, Any]] = {value: {argument: value} for value in values}
    rows = {value: furthest(launch(step, ranks=RANKS, **way)) for value, way in ways.items()}
    names = {name: f"gradient of {name}" for name in ("tokens", "router", "expert")}
    table = pd.DataFrame.from_dict(rows, orient="index", dtype=object)
    return table.map(lambda value: "none" if pd.isna(value) else f"{value:.0e}").rename(
        columns=names
    )


def count() -> pd.DataFrame:
    """Rank 0's calls in forward and backward of one layer, in order."""
    _, wire = run_and_record(step, ranks=RANKS)
    calls = wire[(wire["rank"] == 0) & wire["op"].str.startswith("all_to_all")]
    return calls[["op", "shape", "dtype", "bytes", "line"]].reset_index(drop=True)


class DividedRouter(Router):
    """Divides the weights by their sum for one expert as well, which makes that weight 1."""

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """As Router's."""
        weights, chosen = super().forward(tokens)
        return weights / weights.sum(-1, keepdim=True), chosen


def router_gradients() -> pd.DataFrame:
    """How large the router's gradient is, by what an expert's output is multiplied with."""
    rows = []
    for name, kind, top in [
        ("top-1: by its probability", Router, 1),
        ("top-1: by 1, the probability divided by itself", DividedRouter, 1),
        ("top-2: by the two probabilities, divided by their sum", Router, 2),
    ]:
        tokens, _, experts = make_parts(RANKS, top)
        router = kind(WIDTH, RANKS, top)
        one_process(tokens, router, experts).square().mean().backward()
        rows.append((name, f"{router.score.weight.grad.norm():.0e}"))
    return pd.DataFrame(
        rows, columns=["an output is multiplied", "length of the router's gradient"]
    )


# Messages


def capacity_of(factor: float, top: int, ranks: int) -> int:
    """Rows that a rank may send to one expert: this many times its even share."""
    return math.ceil(factor * TOKENS * top / ranks)


def run(router: str, top: int, capacity: str) -> list[Step]:
    """The step on real ranks, as a player asks for it."""
    return launch(step, router, top, CAPACITIES[capacity], ranks=RANKS)


@figures.house_style
def messages_plot(steps: list[Step], **_: object) -> figures.Picture:
    """Rows before and after the exchange, in the colour of the rank that has the tokens."""
    counts = [one.sent for one in steps]
    figure = figures.Figure((figures.WIDTH, 3.7), layout="constrained")
    before, after = figure.subplots(1, 2, sharey=True, sharex=True)
    panels: list[tuple[Any, list, str, str]] = [
        (before, counts, "sent", "rows; inside: to which expert"),
        (after, [*zip(*counts, strict=True)], "arrived", "rows; inside: from which rank"),
    ]
    for axes, table, title, label in panels:
        for row, pieces in enumerate(table):
            left = 0
            for other, rows in enumerate(pieces):
                colour = rank_colour(row if axes is before else other)
                axes.barh(row, rows, 0.62, left, color=tint(colour, 0.35), edgecolor=colour)
                if rows >= FEWEST_WITH_NAME:
                    axes.text(left + rows / 2, row, f"{other}", ha="center", va="center", size=9.5)
                left += rows
            axes.text(left, row, f" {left}", va="center", size=10)
        axes.set(title=title, xlabel=label)
        axes.margins(x=0.14)
    figures.label_rows(before, [f"rank {rank}" for rank in range(len(counts))])
    words = describe(steps)
    figure.suptitle("\n".join(words), x=0.01, ha="left", size=10.5, weight="bold")
    lists = "; ".join(
        f"rank {rank} sends {', '.join(map(str, c))}" for rank, c in enumerate(counts)
    )
    return figures.Picture(figure, f"{' '.join(words)} Rows to experts 0 to 3: {lists}.")


def describe(steps: list[Step]) -> list[str]:
    """How uneven it is, and whether it equals one process."""
    arrived = [sum(column) for column in zip(*(one.sent for one in steps), strict=True)]
    mean = sum(arrived) / len(arrived)
    busiest = arrived.index(max(arrived))
    words = [f"Expert {busiest} computes {max(arrived) / mean:.1f} times as many rows as the mean."]
    dropped = sum(one.dropped for one in steps)
    if dropped:
        everything = dropped + sum(arrived)
        words.append(f"{dropped} of {everything} choices are dropped: their experts were full.")
    elif all(far is not None and far < EQUAL for far in furthest(steps).values()):
        words.append("Output and all gradients equal those of one process.")
    else:
        words.append("It differs from one process.")
    return words


def show_messages() -> figures.Picture:
    """The router as it is, and one expert for each token."""
    return messages_plot(run(AS_INITIALIZED, 1, "none"))


def play_messages() -> ddp_workbook.Play:
    """The router as it is, without a capacity, to begin with."""
    return ddp_workbook.play(
        run,
        messages_plot,
        ranks=None,
        stills=[{"router": NONE}, {"router": ALL}, {"top": 2}, {"capacity": "1.25"}],
        router=ddp_workbook.choice("router", ROUTERS, AS_INITIALIZED),
        top=ddp_workbook.choice("experts of a token", (1, 2), 1),
        capacity=ddp_workbook.choice("capacity factor", CAPACITIES, "none"),
    )
