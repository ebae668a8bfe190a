# wrong: returns each image as one row of pixels
# told: The rows are right, but not their shape or their dtype
import math


def scatter_batch(images, labels, devices):
    length = math.ceil(len(images) / devices)
    flat = images.flatten(1)
    starts = range(0, len(images), length)
    return [(flat[i : i + length], labels[i : i + length]) for i in starts]
