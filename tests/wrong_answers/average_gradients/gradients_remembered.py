# wrong: keeps the gradients of the first step
# told: What does your function keep from one call to the next?
# told: (call 2; the calls before it were right)
# right at: 1
import torch.distributed as dist

GRADIENTS = []


def average_gradients(model):
    if not GRADIENTS:
        GRADIENTS.extend(p.grad for p in model.parameters() if p.grad is not None)
    for gradient in GRADIENTS:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
