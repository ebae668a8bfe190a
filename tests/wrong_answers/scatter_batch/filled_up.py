# wrong: fills the last piece up with zeros, to the length of the others
# told: not a row of the batch
import math

import torch


def scatter_batch(images, labels, devices):
    length = math.ceil(len(images) / devices)
    pieces = []
    for first in range(0, len(images), length):
        rows, of_rows = images[first : first + length], labels[first : first + length]
        missing = length - len(rows)
        rows = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])
        pieces.append((rows, torch.cat([of_rows, of_rows.new_zeros(missing)])))
    return pieces
