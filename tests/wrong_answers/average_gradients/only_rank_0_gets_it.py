# wrong: reduce gives the result to rank 0 alone
# told: How does every rank get the result
# right at: 1
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            mean = parameter.grad.clone()
            dist.reduce(mean, dst=0)
            if dist.get_rank() == 0:
                parameter.grad = mean / dist.get_world_size()
