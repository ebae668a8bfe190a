# wrong: a tensor of weights is float32, and makes float32 of a single float16 number
# told: A tensor of weights has a dtype, too
# told: parameter 2 is float32 ()
import torch


def weighted_gradients(gradients, rows):
    shares = torch.tensor(rows) / sum(rows)
    return [
        sum(share * one for share, one in zip(shares, of_one, strict=True))
        for of_one in zip(*gradients, strict=True)
    ]
