# wrong: rounds the length down, and needs more pieces for the rest
# told: more pieces than devices
def scatter_batch(images, labels, devices):
    length = max(1, len(images) // devices)
    return list(zip(images.split(length), labels.split(length), strict=True))
