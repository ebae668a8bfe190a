"""Workers that need accelerate, lightning or transformers, or fill a model from a file."""

import re
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn

from ddp_workbook.chapters.digits import DigitsDataset, DigitsTransformer
from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.experiments.fully_sharded import libraries, loops, pretrained

STATUS = Path("/proc/self/status")


def ranks_by_library() -> list[int]:
    """How many processes each library sees if it is told nothing."""
    from accelerate import Accelerator
    from lightning.fabric import Fabric
    from transformers import TrainingArguments

    fabric = Fabric()
    fabric.launch()
    arguments = TrainingArguments("unused", report_to="none")
    return [Accelerator().num_processes, fabric.world_size, arguments.world_size]


def steps_of_a_scheduler() -> list[int]:
    """How many steps a prepared scheduler makes in one: by default, and with split_batches."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    found = []
    for split in (False, True):
        config = DataLoaderConfiguration(split_batches=split)
        accelerator = Accelerator(cpu=True, dataloader_config=config)
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        model, optimizer, prepared = accelerator.prepare(model, optimizer, scheduler)
        accelerator.backward(model(torch.ones(1, 1)).sum())
        optimizer.step()
        prepared.step()
        found.append(scheduler.last_epoch)
    return found


def trainer_that_takes_anything(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights without clipping: of the page's model, and of TakesAnything at a lower rate."""
    plain = loops.with_trainer(folder / "plain", max_grad_norm=0.0)
    rate = loops.LEARNING_RATE / loops.ACCUMULATE / dist.get_world_size()
    changed = {"max_grad_norm": 0.0, "learning_rate": rate}
    lower = loops.with_trainer(folder / "lower", libraries.AcceptsAnyKeyword, **changed)
    return plain.weights, lower.weights


def gradients_apart(folder: Path, way: str) -> float:
    """The largest difference of a filled model's gradients from a plain one's, on the same rows."""
    device = setup()
    digits = DigitsDataset()
    plain = DigitsTransformer(pretrained.WIDTH, pretrained.DEPTH).to(device)
    plain.load_state_dict(torch.load(folder / "model.pt", weights_only=True))
    filled = pretrained.on_meta(device)
    pretrained.WAYS[way](folder, filled)
    for model in (plain, filled):
        images, labels = digits.images[:32].to(device), digits.labels[:32].to(device)
        nn.functional.cross_entropy(model(images), labels).backward()
    pairs = zip(plain.parameters(), filled.parameters(), strict=True)
    apart = max((ours.grad - piece.grad.full_tensor()).abs().max().item() for ours, piece in pairs)
    dist.barrier()
    return apart


def peak_memory_gain(folder: Path, way: str, width: int, depth: int) -> int:
    """Bytes of this process that no file backs, gained at the most while a model is filled."""
    device = setup()
    model = pretrained.on_meta(device, width, depth)
    before, most = anonymous(), [0]

    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if any(hasattr(kind, "__tensor_flatten__") for kind in types):
                return NotImplemented
            result = func(*args, **(kwargs or {}))
            most[0] = max(most[0], anonymous() - before)
            return result

    with Watching():
        pretrained.WAYS[way](folder, model)
    dist.barrier()
    return max(most[0], anonymous() - before)


def anonymous() -> int:
    """Bytes in memory of this process that no file backs, as Linux counts them."""
    return 1024 * int(re.search(r"RssAnon:\s+(\d+) kB", STATUS.read_text())[1])


def from_safetensors(folder: Path, model: nn.Module) -> None:
    """Fill the model by DCP's reader of safetensors files."""
    model.to_empty(device=next(model.parameters()).device_mesh.device_type)
    pieces = model.state_dict()
    reader = dcp.HuggingFaceStorageReader(str(folder))
    dcp.load(pieces, storage_reader=reader)
