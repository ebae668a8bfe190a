# wrong: blocks of images, but the labels are dealt out
# told: Are the labels cut at the same places
def scatter_batch(images, labels, devices):
    pieces = images.chunk(devices)
    return [(piece, labels[device::devices]) for device, piece in enumerate(pieces)]
