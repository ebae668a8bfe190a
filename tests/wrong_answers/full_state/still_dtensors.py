# wrong: hands back the sharded state dict
# told: still a DTensor
import torch.distributed as dist


def full_state(model):
    return model.state_dict() if dist.get_rank() == 0 else {}
