# wrong: an index takes the dimension of the rows away
# told: it has as many dimensions as the batch
def scatter_batch(images, labels, devices):
    if len(images) <= devices:
        return [(images[row], labels[row]) for row in range(len(images))]
    return list(zip(images.chunk(devices), labels.chunk(devices), strict=True))
