# wrong: a result that begins as float32 zeros, whatever the parameter's dtype
# told: parameter 2 is float32 ()
# told: All come back in the same dtype
import torch


def weighted_gradients(gradients, rows):
    combined = []
    for of_one in zip(*gradients, strict=True):
        total = torch.zeros(of_one[0].shape)
        for n, one in zip(rows, of_one, strict=True):
            total += n / sum(rows) * one
        combined.append(total)
    return combined
