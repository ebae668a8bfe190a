# wrong: divides while the collectives are under way
# told: Which of your lines use that tensor before?
# right at: 1
import torch.distributed as dist


def average_gradients(model):
    works = []
    for parameter in model.parameters():
        if parameter.grad is not None:
            works.append(dist.all_reduce(parameter.grad, async_op=True))
            parameter.grad /= dist.get_world_size() ** 2
    for work in works:
        work.wait()
