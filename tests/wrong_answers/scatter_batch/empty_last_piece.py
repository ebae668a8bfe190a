# wrong: a piece for every device, even if no row is left for it
# told: A piece has no rows
import math


def scatter_batch(images, labels, devices):
    length = math.ceil(len(images) / devices)
    pieces = []
    for device in range(devices):
        first, last = device * length, (device + 1) * length
        pieces.append((images[first:last], labels[first:last]))
    return pieces
