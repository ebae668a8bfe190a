"""An evaluation that counts the padding."""

import pandas as pd
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.samplers import accuracy_over_ranks
from manyranks.launcher.launch import launch

TEST_DIGITS = 21  # digits: a multiple of 1 and of 3, not of 2 or 4


def digits_with_errors_first(weights: dict) -> DigitsDataset:
    """21 digits in a row, of which the model with these weights gets the first two wrong."""
    model, digits = DigitsMLP(), DigitsDataset()
    model.load_state_dict(weights)
    with torch.no_grad():
        right = model(digits.images).argmax(dim=1) == digits.labels
    start = next(i for i in range(len(right)) if not right[i] and not right[i + 1])
    digits.images = digits.images[start:][:TEST_DIGITS]
    digits.labels = digits.labels[start:][:TEST_DIGITS]
    return digits


def count_over_loader(
    model: nn.Module, loader: DataLoader, device: torch.device
) -> tuple[int, int]:
    """How many samples all ranks together have counted, and how many of them are right."""
    counts = torch.zeros(2, device=device)
    for images, labels in loader:
        right = model(images.to(device)).argmax(dim=1) == labels.to(device)
        counts += torch.tensor([len(right), right.sum()], device=device)
    dist.all_reduce(counts)
    return int(counts[0]), int(counts[1])


def evaluate(weights: dict, digits: DigitsDataset) -> dict:
    """Both evaluations on this rank's share of the samples."""
    device = setup()
    model = DigitsMLP()
    model.load_state_dict(weights)
    model.to(device).eval()
    loader = DataLoader(digits, batch_size=4, sampler=DistributedSampler(digits, shuffle=False))
    with torch.no_grad():
        count, right = count_over_loader(model, loader, device)
    exact = accuracy_over_ranks(model, loader, device)
    cleanup()
    accuracy = right / count
    return {"counted": count, "right": right, "accuracy": accuracy, "exact accuracy": exact}


def evaluations(weights: dict, digits: DigitsDataset, ranks: list[int]) -> pd.DataFrame:
    """A row for each number of ranks: both accuracies, and the counts that give the first one."""
    rows = {n: launch(evaluate, weights, digits, ranks=n)[0] for n in ranks}
    table = pd.DataFrame(rows).T.rename_axis("ranks")
    return table.astype({"counted": int, "right": int})
