# wrong: one row more also where the rows divide evenly
# told: With shorter pieces
# right at: 1
def scatter_batch(images, labels, devices):
    length = len(images) // devices + 1
    return list(zip(images.split(length), labels.split(length), strict=True))
