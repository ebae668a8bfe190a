# wrong: returns the gradient of the batch as one vector, without the way back
# told: Is this a list
import torch


def weighted_gradients(gradients, rows):
    return sum(
        torch.cat([one.flatten() for one in own]) * (count / sum(rows))
        for own, count in zip(gradients, rows, strict=True)
    )
