# wrong: one row more also where the rows divide evenly
# told: one row shorter would be enough
def scatter_batch(images, labels, devices):
    length = len(images) // devices + 1
    return list(zip(images.split(length), labels.split(length), strict=True))
