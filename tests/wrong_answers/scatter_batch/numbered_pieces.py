# wrong: each piece also has the number of its device
# told: A piece is a pair: images, then labels
def scatter_batch(images, labels, devices):
    pieces = zip(images.chunk(devices), labels.chunk(devices), strict=True)
    return [(*piece, device) for device, piece in enumerate(pieces)]
