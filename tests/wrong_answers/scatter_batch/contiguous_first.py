# wrong: contiguous() copies a batch that is not contiguous
# told: These images are not contiguous
def scatter_batch(images, labels, devices):
    images, labels = images.contiguous(), labels.contiguous()
    return list(zip(images.chunk(devices), labels.chunk(devices), strict=True))
