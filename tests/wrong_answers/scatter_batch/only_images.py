# wrong: forgets the labels
# told: A device needs both
def scatter_batch(images, labels, devices):
    return list(images.chunk(devices))
