"""The digits, the models that learn them, and the helpers that every chapter's loop needs.

Every chapter trains on the same batches, so that a loss which differs from the loss of one process
means a mistake, not chance.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

DATA = Path(__file__).parents[3] / "data" / "digits.csv.gz"
PIXELS = [f"pixel_{i}" for i in range(64)]
COLUMNS = [*PIXELS, "label"]
INK = 16.0  # the value of a black pixel
CLASSES = 10
SIDE = 8  # pixels of an image, in each direction
HEADS = 4
FORMAT = "The table needs the columns pixel_0 to pixel_63 (numbers, 0 to 16) and label (0 to 9)."


class DigitsError(ValueError):
    """A table that cannot be used; the message names file, line, column, and what to do."""


class DigitsDataset(Dataset):
    """Handwritten digits from a CSV table with the columns pixel_0 … pixel_63 and label.

    `images` is float32 [n, 64], 0 for paper to 1 for ink (the table's 0 to 16, divided by 16);
    `labels` is int64 [n], 0 to 9. Item i is the pair (image [64], label []). Columns may come in
    any order, others are ignored; pandas unpacks .gz and the like. A table that is missing, broken,
    empty, or holds anything but numbers raises DigitsError.
    """

    def __init__(self, path: str | Path = DATA) -> None:
        table = _read(Path(path).expanduser())
        images = torch.tensor(table[PIXELS].to_numpy(), dtype=torch.float32) / INK
        self.images = images.contiguous()  # pandas keeps columns together; a batch is made of rows
        self.labels = torch.tensor(table["label"].to_numpy(), dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]


class DigitsMLP(nn.Module):
    """`depth` hidden layers of `width` units: images [rows, 64] to scores [rows, 10].

    tanh instead of ReLU, because it has no kink: ranks add in another order than one process, and a
    ReLU whose input this pushes across 0 would show as an error far above rounding.
    """

    def __init__(self, width: int = 64, depth: int = 1) -> None:
        super().__init__()
        sizes = [len(PIXELS)] + [width] * depth
        self.hidden = nn.ModuleList(
            nn.Linear(inputs, outputs) for inputs, outputs in pairwise(sizes)
        )
        self.output = nn.Linear(sizes[-1], CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Scores before the softmax, as `cross_entropy` expects them."""
        for layer in self.hidden:
            images = layer(images).tanh()
        return self.output(images)


class DigitsTransformer(nn.Module):
    """`depth` transformer blocks of `width`: images [rows, 64] to scores [rows, 10].

    An image is eight tokens, its rows of pixels from top to bottom. `width` is a multiple of the
    number of heads, 4. Nearly all parameters are in the blocks: 12 · width² + 11 · width each.
    """

    heads = HEADS

    def __init__(self, width: int = 64, depth: int = 3) -> None:
        super().__init__()
        if depth < 0:
            raise ValueError(f"depth must be a number of blocks, not {depth}")
        self.embedding = nn.Linear(SIDE, width)
        self.position = nn.Parameter(torch.randn(SIDE, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Scores before the softmax, as `cross_entropy` expects them."""
        tokens = self.embedding(images.unflatten(1, (SIDE, SIDE))) + self.position
        for block in self.blocks:
            tokens = block(tokens)
        return self.output(self.norm(tokens).mean(dim=1))


class Block(nn.Module):
    """Attention between the tokens of an image, then an MLP on each: [rows, tokens, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        if width < 1 or width % HEADS:
            raise ValueError(f"width must be a positive multiple of {HEADS} heads, not {width}")
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.head_width = width // HEADS
        # No bias: the gradient of the keys' bias is only rounding, which Adam would amplify.
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.attention_output = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """The tokens, plus what attention and the MLP add to them."""
        # Head after head, so that a rank with some of the columns has all of some heads.
        parts = self.query_key_value(self.norm_1(tokens)).unflatten(-1, (-1, 3, self.head_width))
        query, key, value = parts.permute(3, 0, 2, 1, 4)  # each [rows, heads, tokens, head_width]
        attention = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        tokens = tokens + self.attention_output(attention)
        return tokens + self.mlp(self.norm_2(tokens))


class Result(NamedTuple):
    """The result of a training run; the same fields in every chapter."""

    losses: list[float]  # one a step: the mean over the rows of the whole batch
    accuracy: float  # share of the training digits that the model classifies correctly
    weights: dict[str, Tensor]  # final state_dict on the CPU

    def __repr__(self) -> str:
        if not self.losses:
            return f"Result(no steps, {self.accuracy:.1%} right)"
        first, last = self.losses[0], self.losses[-1]
        steps = f"{len(self.losses)} steps, loss {first:.4f} to {last:.4f}"
        return f"Result({steps}, {self.accuracy:.1%} right)"

    def report(self, epochs: int) -> str:
        """A line for each epoch with the mean of its steps' losses, then the accuracy."""
        of_epochs = torch.tensor(self.losses).chunk(epochs) if self.losses else []
        lines = [
            f"epoch {epoch}: loss {losses.mean():.4f}, the mean of {len(losses)} steps"
            for epoch, losses in enumerate(of_epochs, start=1)
        ]
        return "\n".join([*lines, f"{self.accuracy:.1%} of the digits right"])


def batches(
    dataset: DigitsDataset, batch_size: int, epoch: int, seed: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """The shuffled batches of one epoch, (images, labels), the same in every process.

    The order is DistributedSampler's: seeded by `seed + epoch`, it changes from epoch to epoch and
    needs no message between the ranks. The last batch holds the remaining rows.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, but a batch has at least one row")
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed + epoch))
    for rows in order.split(batch_size):
        yield dataset.images[rows], dataset.labels[rows]


@torch.no_grad()
def accuracy(model: nn.Module, dataset: DigitsDataset) -> float:
    """Share of `dataset`, 0 to 1, that `model` classifies correctly, on the model's device."""
    device, training = next(model.parameters()).device, model.training
    guesses = model.eval()(dataset.images.to(device)).argmax(dim=1)
    model.train(training)
    return (guesses.cpu() == dataset.labels).float().mean().item()


def weights_on_cpu(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the model's parameters and buffers that any process can read."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def furthest(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest difference between tensors of the same names."""
    if ours.keys() != theirs.keys():
        raise ValueError(f"not the same names: {sorted(ours.keys() ^ theirs.keys())[:3]}")
    return max((ours[name] - theirs[name]).abs().max().item() for name in theirs)


def differences(runs: Mapping[int, Result | list[Result]], alone: Result) -> pd.DataFrame:
    """How far runs are from one process, at most: a row for each number of ranks.

    `runs` has for each number of ranks one result, or a list with that of each rank. Columns:
    losses, weights, and of a list how far its weights are from rank 0's, between the ranks.
    """
    rows: dict[int, dict[str, float]] = {}
    for ranks, result in runs.items():
        of_ranks = [result] if isinstance(result, Result) else result
        losses = torch.tensor([run.losses for run in of_ranks]) - torch.tensor(alone.losses)
        rows[ranks] = {
            "losses": losses.abs().max().item(),
            "weights": max(furthest(run.weights, alone.weights) for run in of_ranks),
        }
        if result is of_ranks:
            first = of_ranks[0].weights
            rows[ranks]["between the ranks"] = max(furthest(r.weights, first) for r in of_ranks)
    return pd.DataFrame(rows).T.rename_axis("ranks")


def _read(path: Path) -> pd.DataFrame:
    """Read the table, after checking that every needed cell is a valid number."""
    table, cause = None, None
    try:
        table = pd.read_csv(path, dtype=dict.fromkeys(COLUMNS, float))
        rows_fit = isinstance(table.index, pd.RangeIndex)  # else pandas took a column as the index
        if rows_fit and len(table) and not _unusable(table[COLUMNS]).any(axis=None):
            return table
    except Exception as error:  # pandas, gzip, zlib, zipfile: each has its own
        cause = error
    raise DigitsError(_complaint(path)) from cause


def _unusable(table: pd.DataFrame) -> pd.DataFrame:
    """True where a cell is not a finite float32, or not a label."""
    unusable = ~(table.abs() <= torch.finfo(torch.float32).max)  # also true for NaN
    unusable["label"] |= ~table["label"].isin(range(CLASSES))
    return unusable


def _complaint(path: Path) -> str:
    """Why the table at `path` cannot be used, and where; reads it again as text to quote it."""
    if path == DATA and not path.exists():
        return (
            f"{path} does not exist. It is a file of the workbook's checkout, which `git clone` "
            "makes; the package by itself has no data."
        )
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        return f"{path} {what}. Give the path of a CSV table, or no path for the workbook's own."
    try:
        text = pd.read_csv(path, dtype=str, keep_default_na=False, skip_blank_lines=False)
    except pd.errors.EmptyDataError:
        return f"{path} is empty. {FORMAT}"
    except Exception as error:
        return f"{path} cannot be read as a CSV table: {str(error).strip()}. {FORMAT}"
    missing = [column for column in COLUMNS if column not in text]
    if missing:
        rest = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return f"{path} has no column {missing[0]}{rest}. {FORMAT}"
    if not isinstance(text.index, pd.RangeIndex):
        return f"{path}, line 2: more values than the header has columns. {FORMAT}"
    text = text[COLUMNS][(text != "").any(axis=1)]  # blank lines count as lines, not as rows
    if text.empty:
        return f"{path} has no row under its header. {FORMAT}"
    return _first_bad_cell(path, text)


def _first_bad_cell(path: Path, text: pd.DataFrame) -> str:
    """The line, the column and the text of the first cell that is not a valid number."""
    unusable = _unusable(text.apply(pd.to_numeric, errors="coerce"))
    if not unusable.any(axis=None):
        return f"{path} has a row of commas only. {FORMAT}"
    row = unusable.any(axis=1).idxmax()
    column = unusable.loc[row].idxmax()
    cell = text.loc[row, column]
    kind = "label from 0 to 9" if column == "label" else "finite number"
    what = f"{cell!r} is not a {kind}" if cell else "the cell is empty"
    return f"{path}, line {row + 2} (the header is line 1), column {column}: {what}. {FORMAT}"
