# wrong: split wants the length of a piece, not the number of pieces
# told: Is devices the length of a piece
def scatter_batch(images, labels, devices):
    return list(zip(images.split(devices), labels.split(devices), strict=True))
