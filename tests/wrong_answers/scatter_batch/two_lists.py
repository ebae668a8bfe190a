# wrong: all images, then all labels, instead of a pair for each device
# told: All images are in the first
def scatter_batch(images, labels, devices):
    return [images.chunk(devices), labels.chunk(devices)]
