# wrong: computes the length of a piece once, for all batches
# told: What does your function keep from one call to the next?
LENGTHS = {}


def scatter_batch(images, labels, devices):
    length = LENGTHS.setdefault(devices, -(-len(images) // devices))
    return list(zip(images.split(length), labels.split(length), strict=True))
