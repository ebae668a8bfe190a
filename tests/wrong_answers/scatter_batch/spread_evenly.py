# wrong: 3, 3, 2, 2 instead of 3, 3, 3, 1
# told: spread as evenly as possible
def scatter_batch(images, labels, devices):
    return list(zip(images.tensor_split(devices), labels.tensor_split(devices), strict=True))
