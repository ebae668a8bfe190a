# wrong: an index that is a list makes a new tensor
# told: makes a new tensor in new memory
import math


def scatter_batch(images, labels, devices):
    length = math.ceil(len(images) / devices)
    pieces = []
    for first in range(0, len(images), length):
        rows = list(range(first, min(first + length, len(images))))
        pieces.append((images[rows], labels[rows]))
    return pieces
