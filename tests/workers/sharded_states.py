"""Workers that save, load and misuse sharded models; test_sharded_*.py launch them."""

import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from ddp_workbook.chapters.digits import DigitsDataset, DigitsTransformer, accuracy
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.fully_sharded import SEED, shard_by_block, whole_weights
from ddp_workbook.experiments.checkpoint_and_recover import sharded as checkpoints
from ddp_workbook.experiments.fully_sharded import mistakes

SMALL = mistakes.SMALL
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def small_sharded(model: nn.Module | None = None) -> DigitsTransformer:
    """The small model in shards, the same on all ranks."""
    device = setup()
    torch.manual_seed(SEED)
    model = model or DigitsTransformer(**SMALL)
    return shard_by_block(model.to(device), device)


def images_on(model: nn.Module, rows: int = 8) -> Tensor:
    """Some digits on the model's device."""
    return DigitsDataset().images[:rows].to(next(model.parameters()).device)


# Checkpoints


def full_state_shares_memory() -> bool:
    """Whether a step after asking for the full state dict changes what it holds."""
    model = small_sharded()
    state = get_model_state_dict(model, options=WHOLE)
    before = {name: value.clone() for name, value in state.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    changed = any(not torch.equal(state[name], before[name]) for name in state)
    cleanup()
    return changed


def types_in_dict_after_load() -> list[str]:
    """The types in a dict of whole weights after it was handed to set_model_state_dict."""
    model = small_sharded()
    weights = DigitsTransformer(**SMALL).state_dict() if dist.get_rank() == 0 else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, weights, options=options)
    cleanup()
    return sorted({type(value).__name__ for value in weights.values()})


def save_shards(folder: Path) -> None:
    """The shards of the small model, also into a folder that others have used."""
    model = small_sharded()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is a checkpoint already
        dcp.save(model.state_dict(), checkpoint_id=folder)
    cleanup()


def load_unsafely(folder: Path) -> set[bool]:
    """Save a checkpoint; the values of weights_only with which dcp.load then calls torch.load."""
    model = small_sharded()
    values, load = set(), torch.load

    def record_load(*args, **kwargs):
        values.add(kwargs.get("weights_only"))
        return load(*args, **kwargs)

    torch.load = record_load
    state = {"model": model.state_dict(), "step": 0}
    dcp.save(state, checkpoint_id=folder)
    dcp.load(state, checkpoint_id=folder)
    torch.load = load
    cleanup()
    return values


def without_the_optimizer(folder: Path, steps: int, **sizes: int) -> list[float]:
    """The losses after loading only the weights of a checkpoint."""
    both = checkpoints.load

    def weights_alone(folder, model, _):
        state = {"model": model.state_dict(), "step": 0}
        dcp.load(state, checkpoint_id=folder)
        return state["step"]

    checkpoints.load = weights_alone
    run = checkpoints.train(steps, resume_from=folder, **sizes)
    checkpoints.load = both
    return run.losses


def load_into_plain_model() -> str:
    """What a model without shards says to a sharded state dict."""
    state, words = small_sharded().state_dict(), ""
    try:
        DigitsTransformer(**SMALL).load_state_dict(state)
    except RuntimeError as error:
        words = str(error)
    cleanup()
    return words


# Mistakes


def names_changed_when_frozen(when: str) -> list[str]:
    """Names that two steps change with the first block frozen "before" or "after" sharding."""
    device = setup()
    torch.manual_seed(SEED)
    model = DigitsTransformer(**SMALL).to(device)
    if when == "before":
        model.blocks[0].requires_grad_(False)
    shard_by_block(model, device)
    if when == "in between":
        mistakes.train_steps(model, torch.optim.AdamW(model.parameters()), steps=1)
    if when != "before":
        model.blocks[0].requires_grad_(False)
    before = whole_weights(model)
    mistakes.train_steps(model, torch.optim.AdamW(model.parameters()), steps=2)
    after = whole_weights(model)
    cleanup()
    return [name for name in before if not torch.equal(before[name], after[name])]


def step_without_prefetch() -> None:
    """One step with all up to the first block frozen; the second block fetches nothing ahead."""
    model = small_sharded()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(("embedding", "position", "blocks.0.")))
    model.blocks[1].set_modules_to_backward_prefetch([model])  # whole already: nothing to fetch
    model(images_on(model)).logsumexp(dim=1).mean().backward()
    dist.barrier()


def weights_sent_from_rank_0() -> bool:
    """Whether every rank's shards come from rank 0's weights."""
    device = setup()
    torch.manual_seed(dist.get_rank())
    model = shard_by_block(DigitsTransformer(**SMALL).to(device), device)
    torch.manual_seed(7)
    weights = DigitsTransformer(**SMALL).state_dict()
    mistakes.send_from_rank_0(model, weights)
    whole = whole_weights(model)
    cleanup()
    return all(torch.equal(whole[name], weights[name]) for name in weights)


class WithFeatures(DigitsTransformer):
    """Has a method of its own that needs weights."""

    def features(self, images: Tensor) -> Tensor:
        """The tokens before the first block."""
        return self.embedding(images.unflatten(1, (8, 8))) + self.position


def bypass_forward(way: str) -> str:
    """What is said to a call that goes past a unit's forward; "" if nothing."""
    model, words = small_sharded(WithFeatures(**SMALL)), ""
    images = images_on(model)
    model(images).sum().backward()
    tokens = torch.rand(8, 8, SMALL["width"], device=images.device)
    if way == "a declared method":
        register_fsdp_forward_method(model, "features")
    calls = {
        "a part": lambda: model.blocks[0].mlp(tokens),
        "forward": lambda: model.forward(images),
        "a method": lambda: model.features(images),
        "a declared method": lambda: model.features(images),
        "the unit": lambda: model.blocks[0](tokens),
    }
    try:
        calls[way]()
    except RuntimeError as error:
        words = str(error)
    cleanup()
    return words


def call_block_first() -> tuple[bool, str]:
    """Whether a block that runs before the model stays whole, and what the model says then."""
    model, words = small_sharded(), ""
    images = images_on(model)
    model.blocks[0](torch.rand(8, 8, SMALL["width"], device=images.device))
    whole = not isinstance(model.blocks[0].mlp[0].weight, DTensor)
    try:
        model(images)
    except RuntimeError as error:
        words = str(error)
    cleanup()
    return whole, words


def tied_model() -> DigitsTransformer:
    """Two blocks share the first weight of their MLP."""
    torch.manual_seed(SEED)
    model = DigitsTransformer(**SMALL)
    model.blocks[1].mlp[0].weight = model.blocks[0].mlp[0].weight
    return model


def run_tied_model(units: str) -> tuple[int, list[float] | str]:
    """Parameters after sharding, and the losses of some steps or what is said to the first.

    `units` is "two", "one" (both blocks together) or "none": the loop of one process.
    """
    device, model = setup(), tied_model()
    if units == "two":
        shard_by_block(model.to(device), device)
    if units == "one":
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        fully_shard(list(model.to(device).blocks), mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
    try:
        losses = mistakes.train_steps(model, optimizer, steps=5)
    except ValueError as error:
        losses = str(error)
    cleanup()
    return len(list(model.parameters())), losses


def rank_0_alone(does: str) -> None:
    """Rank 0 saves or evaluates; the others continue to a barrier."""
    model = small_sharded()
    if dist.get_rank() == 0 and does == "saves":
        whole_weights(model)
    if dist.get_rank() == 0 and does == "evaluates":
        accuracy(model, DigitsDataset())
    dist.barrier()
