"""One training in four forms: by hand, with Accelerate, with Lightning Fabric, by the Trainer.

Each is a worker: it trains for two epochs, tests, and saves the weights into a folder. A library is
imported in its function: ranks need seconds for that, and the notebook does not.
"""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP, weights_on_cpu
from ddp_workbook.chapters.distributed_data_parallel import pick_device, setup

BATCH, ACCUMULATE, EPOCHS = 64, 2, 2  # rows a step, of all ranks; micro-batches a step
TRAIN_ROWS, TEST_ROWS = range(768), range(1536, 1797)  # 12 steps an epoch; 261 rows: an odd number
SEED, LEARNING_RATE, MAX_NORM = 0, 0.5, 1.0


class Rows(Dataset):
    """Some of the digits; `row_order` has the rows that this process has read, in order."""

    def __init__(self, rows: range) -> None:
        self.digits, self.rows, self.row_order = DigitsDataset(), rows, list[int]()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.row_order.append(index)
        return self.digits[self.rows[index]]


class Outcome(NamedTuple):
    """What a form of the loop did in this rank."""

    row_order: list[int]  # rows of TRAINED, in order
    test_count: int  # rows that the metric has counted, on all ranks
    accuracy: float  # on these, 0 to 1
    weights: dict[str, Tensor]


def by_hand(folder: Path) -> Outcome:
    """Train for two epochs, test, and save the weights into `folder`."""
    device = setup()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(SEED)
    train_set, test_set = Rows(TRAIN_ROWS), Rows(TEST_ROWS)
    sampler: DistributedSampler = DistributedSampler(train_set, seed=SEED)
    loader = DataLoader(train_set, BATCH // ACCUMULATE // ranks, sampler=sampler)
    model = DistributedDataParallel(DigitsMLP().to(device))
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for number, (images, labels) in enumerate(loader, start=1):
            images, labels = images.to(device), labels.to(device)
            last = number % ACCUMULATE == 0
            with nullcontext() if last else model.no_sync():
                loss = F.cross_entropy(model(images), labels)
                (loss / ACCUMULATE).backward()
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
                optimizer.step()
                optimizer.zero_grad()
    model.eval()
    right = torch.zeros((), device=device)
    mine = range(rank, len(test_set), ranks)  # no row twice, unlike a DistributedSampler
    for images, labels in DataLoader(test_set, BATCH, sampler=mine):
        guesses = model.module(images.to(device)).argmax(dim=1)
        right += (guesses == labels.to(device)).sum()
    dist.all_reduce(right)
    if rank == 0:
        torch.save(model.module.state_dict(), folder / "model.pt")
    dist.barrier()
    share = right.item() / len(test_set)
    return Outcome(train_set.row_order, len(test_set), share, weights_on_cpu(model.module))


def with_accelerate(folder: Path, sampler: type | None = None, **options: Any) -> Outcome:
    """Train for two epochs, test, and save the weights into `folder`."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    defaults = {"split_batches": True, "use_seedable_sampler": True, "data_seed": SEED}
    accelerator = Accelerator(
        cpu=pick_device().type == "cpu",
        gradient_accumulation_steps=ACCUMULATE,
        dataloader_config=DataLoaderConfiguration(**defaults | options),
    )
    torch.manual_seed(SEED)
    train_set, test_set = Rows(TRAIN_ROWS), Rows(TEST_ROWS)
    model = DigitsMLP()
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    order = {"sampler": sampler(train_set)} if sampler else {"shuffle": True}
    loader = DataLoader(train_set, BATCH // ACCUMULATE, **order)
    tests = DataLoader(test_set, BATCH)
    model, optimizer, loader, tests = accelerator.prepare(model, optimizer, loader, tests)
    for _ in range(EPOCHS):
        for images, labels in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), MAX_NORM)
                optimizer.step()
                optimizer.zero_grad()
    model.eval()
    right = []
    for images, labels in tests:
        guesses = model(images).argmax(dim=1)
        right.append(accelerator.gather_for_metrics(guesses == labels))
    accelerator.save_model(model, folder)
    rights = torch.cat(right)
    weights = weights_on_cpu(accelerator.unwrap_model(model))
    return Outcome(train_set.row_order, len(rights), rights.float().mean().item(), weights)


def with_fabric(folder: Path, seed: int = SEED, replace_sampler: bool = True) -> Outcome:
    """Train for two epochs, test, and save the weights into `folder`."""
    from lightning.fabric import Fabric

    ranks = int(os.environ["LOCAL_WORLD_SIZE"])
    fabric = Fabric(accelerator=pick_device().type, strategy="ddp", devices=ranks)
    fabric.launch()
    fabric.seed_everything(seed, verbose=False)
    torch.manual_seed(SEED)
    train_set, test_set = Rows(TRAIN_ROWS), Rows(TEST_ROWS)
    rows = BATCH // ACCUMULATE // fabric.world_size
    loader = fabric.setup_dataloaders(
        DataLoader(train_set, rows, shuffle=True), use_distributed_sampler=replace_sampler
    )
    tests = fabric.setup_dataloaders(DataLoader(test_set, BATCH))
    model = DigitsMLP()
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    model, optimizer = fabric.setup(model, optimizer)
    for _ in range(EPOCHS):
        for number, (images, labels) in enumerate(loader, start=1):
            last = number % ACCUMULATE == 0
            with fabric.no_backward_sync(model, enabled=not last):
                loss = F.cross_entropy(model(images), labels)
                fabric.backward(loss / ACCUMULATE)
            if last:
                fabric.clip_gradients(model, optimizer, max_norm=MAX_NORM)
                optimizer.step()
                optimizer.zero_grad()
    model.eval()
    right = []
    for images, labels in tests:
        guesses = model(images).argmax(dim=1)
        right.append(fabric.all_gather(guesses == labels).flatten())
    fabric.save(folder / "model.pt", {"model": model})
    rights = torch.cat(right)
    weights = weights_on_cpu(model)
    return Outcome(train_set.row_order, len(rights), rights.float().mean().item(), weights)


class WithLoss(DigitsMLP):
    """Returns the loss beside the scores: the Trainer calls `forward` with a batch, by name."""

    def forward(  # type: ignore[override]
        self, images: Tensor, labels: Tensor
    ) -> dict[str, Tensor]:
        scores = super().forward(images)
        return {"loss": F.cross_entropy(scores, labels), "logits": scores}


def batch_of(rows: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    images, labels = zip(*rows, strict=True)
    return {"images": torch.stack(images), "labels": torch.stack(labels)}


def with_trainer(folder: Path, model: type = WithLoss, **options: Any) -> Outcome:
    """Train for two epochs, test, and save the weights into `folder`."""
    from transformers import Trainer, TrainingArguments

    ours = {"optim": "sgd", "learning_rate": LEARNING_RATE, "lr_scheduler_type": "constant"}
    ours |= {"max_grad_norm": MAX_NORM, "seed": SEED, "num_train_epochs": EPOCHS}
    arguments = TrainingArguments(
        str(folder),
        use_cpu=pick_device().type == "cpu",
        per_device_train_batch_size=BATCH // ACCUMULATE // int(os.environ["WORLD_SIZE"]),
        gradient_accumulation_steps=ACCUMULATE,
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
        save_strategy="epoch",
        report_to="none",
        **ours | options,
    )
    torch.manual_seed(SEED)
    train_set, test_set = Rows(TRAIN_ROWS), Rows(TEST_ROWS)
    trainer = Trainer(model(), arguments, batch_of, train_set)
    trainer.train()
    scores, labels, _ = trainer.predict(test_set)
    right = scores.argmax(1) == labels
    return Outcome(
        train_set.row_order, len(right), right.mean().item(), weights_on_cpu(trainer.model)
    )
