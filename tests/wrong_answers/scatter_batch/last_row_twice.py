# wrong: takes the end of a slice for its last row
# told: in more than one piece
import math


def scatter_batch(images, labels, devices):
    length = math.ceil(len(images) / devices)
    return [
        (images[first : first + length + 1], labels[first : first + length + 1])
        for first in range(0, len(images), length)
    ]
