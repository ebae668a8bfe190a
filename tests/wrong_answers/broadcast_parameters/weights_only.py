# wrong: thinks of the weights alone
# told: Something else has come to rank 1, but not this
# right at: 1
import torch.distributed as dist


def broadcast_parameters(model):
    for name, tensor in model.state_dict().items():
        if name.endswith("weight"):
            dist.broadcast(tensor, src=0)
