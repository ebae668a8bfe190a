# wrong: broadcasts copies, and does not put them back
# told: not into its model
# right at: 1
import torch.distributed as dist


def broadcast_parameters(model):
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for tensor in state.values():
        dist.broadcast(tensor, src=0)
