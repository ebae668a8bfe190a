# %% goes through the parameters and all buffers, one of which is not persistent
# told: not saved by model.state_dict()
edit(
    "model.state_dict().items()",
    "[*model.named_parameters(remove_duplicate=False), *model.named_buffers()]",
)


# %% casts everything to float32
# told: The dtype has changed
edit("value.cpu()", "value.cpu().float()")


# %% makes arrays of NumPy, as for a plot
# told: Which line makes something else of this one
edit("value.cpu()", "value.cpu().float().numpy()")


# %% takes the buffers of another rank
# told: The buffers are not rank 0's own
# right at: 1
edit(
    "  # an all-gather: on every rank",
    """
        else:
            dist.broadcast(value := value.clone(), src=dist.get_world_size() - 1)
    """,
)


# %% flattens every parameter
# told: Which line flattens the tensor
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            everyone = [None] * dist.get_world_size()
            dist.all_gather_object(everyone, value.to_local().flatten())
            value = torch.cat(everyone)
        if dist.get_rank() == 0:
            state[name] = value
    return state


# %% asks a buffer for its whole tensor
# told: Not every entry is cut into pieces
edit("isinstance(value, DTensor)", "True")


# %% puts the pieces together in the wrong order
# told: In which order must the pieces be joined
# right at: 1
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            everyone = [None] * dist.get_world_size()
            dist.all_gather_object(everyone, value.to_local())
            value = torch.cat(everyone[::-1])
        if dist.get_rank() == 0:
            state[name] = value
    return state


# %% unshards the units and does not shard them again
# told: What shards them again
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


def full_state(model):
    buffers = {name: v for name, v in model.state_dict().items() if not isinstance(v, DTensor)}
    for unit in model.modules():
        if isinstance(unit, FSDPModule):
            unit.unshard()
    state = dict(model.named_parameters(remove_duplicate=False)) | buffers
    return {name: v.detach().clone() for name, v in state.items()} if dist.get_rank() == 0 else {}


# %% takes it that all pieces are equally long
# told: Follow one parameter
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            own = value.to_local()
            everyone = [None] * dist.get_world_size()
            dist.all_gather_object(everyone, own)
            value = torch.cat([piece[: len(own) // 2 + 1] for piece in everyone])
        if dist.get_rank() == 0:
            state[name] = value
    return state


# %% puts the name of a wrapper before each name
# told: Under which name would a model look
edit("state[name]", 'state[f"module.{name}"]')


# %% goes through the parameters, each of them once
# told: One weight has two names
edit(
    "model.state_dict().items()",
    "[*model.named_parameters(), *model.named_buffers()]",
    "== 0:",
    '== 0 and name != "scratch":',
)


# %% the other ranks leave before the collectives
# told: Which of your calls needs the other ranks
# right at: 1
edit("    for name", "    if dist.get_rank() != 0:\n        return state\n    for name")


# %% saves rank 0's rows alone
# told: own rows
# right at: 1
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    if dist.get_rank() != 0:
        return {}
    return {
        name: value.to_local() if isinstance(value, DTensor) else value
        for name, value in model.state_dict().items()
    }


# %% gathers padded pieces and leaves the padding in
# told: which line removes the padding
# right at: 1
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            own, ranks = value.to_local(), dist.get_world_size()
            padded = own.new_zeros(-(-value.shape[0] // ranks), *value.shape[1:])
            padded[: len(own)] = own
            everyone = [torch.empty_like(padded) for _ in range(ranks)]
            dist.all_gather(everyone, padded)
            value = torch.cat(everyone)
        if dist.get_rank() == 0:
            state[name] = value
    return state


# %% goes through a set of names, whose order is another one in each process
# told: do all ranks go through the entries in the same order
# right at: 1
edit(
    "for name, value in model.state_dict().items():",
    "entries = model.state_dict()\n    for name in set(entries):\n        value = entries[name]",
)


# %% hands back the sharded state dict
# told: still a DTensor, which holds only its piece
# right at: 1
edit("value.full_tensor()", "value.full_tensor() if dist.get_world_size() == 1 else value")


# %% makes each DTensor a replicated one
# told: This is whole, but a DTensor
from torch.distributed.tensor import DTensor, Replicate
import torch.distributed as dist


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            value = value.redistribute(placements=[Replicate()])
        if dist.get_rank() == 0:
            state[name] = value
    return state


# %% makes rank 0's buffers those of all ranks
# told: changed model.units.8.running_mean on rank
# right at: 1
edit(
    "  # an all-gather: on every rank",
    """
        else:
            dist.broadcast(value, src=0)
    """,
)


# %% leaves the model in eval mode
# told: .training on rank
edit("    state = {}", "    model.eval()\n    state = {}")


# %% freezes the parameters, so that they can be saved
# told: .requires_grad on rank
edit("    state = {}", "    model.requires_grad_(False)\n    state = {}")


# %% every rank keeps everything until the end
# told: at least as much as the whole model
# right at: 1
edit("dist.get_rank() == 0", "True", "return state", "return state if dist.get_rank() == 0 else {}")


# %% every rank keeps half of the entries until the end
# told: How many whole tensors does this rank have
# right at: 1
edit(
    "dist.get_rank() == 0",
    'dist.get_rank() == 0 or name < "units.3"',
    "return state",
    "return state if dist.get_rank() == 0 else {}",
)


# %% the other ranks return None
# told: What do the other ranks return
# right at: 1
edit("return state", "return state or None")


# %% every rank returns everything
# told: which one writes the file
# right at: 1
edit("dist.get_rank() == 0", "True")


# %% the last rank has the result
# told: On which rank is the result
# right at: 1
edit("dist.get_rank() == 0", "dist.get_rank() == dist.get_world_size() - 1")


# %% leaves out the buffers
# told: Which entries of a state dict are not parameters
edit(
    "dist.get_rank() == 0",
    "dist.get_rank() == 0 and name in dict(model.named_parameters(remove_duplicate=False))",
)


# %% leaves out the frozen parameter
# told: A frozen parameter is part of the model
edit("dist.get_rank() == 0", 'dist.get_rank() == 0 and name != "frozen"')
