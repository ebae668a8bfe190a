# wrong: asks a buffer for its whole tensor
# told: Not every entry is cut into pieces
import torch.distributed as dist


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        whole = value.full_tensor()
        if dist.get_rank() == 0:
            state[name] = whole.cpu()
    return state
