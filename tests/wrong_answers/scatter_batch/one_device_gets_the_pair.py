# wrong: with one device, returns the pair and not a list of pairs
# told: This is one pair, not a list of pairs
def scatter_batch(images, labels, devices):
    if devices == 1:
        return images, labels
    return list(zip(images.chunk(devices), labels.chunk(devices), strict=True))
