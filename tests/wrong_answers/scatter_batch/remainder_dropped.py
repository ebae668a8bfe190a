# wrong: the rows that are left over after equal pieces go to nobody
# told: Some rows are in no piece
def scatter_batch(images, labels, devices):
    length = max(1, len(images) // devices)
    pieces = []
    for device in range(devices):
        first = device * length
        if first < len(images):
            rows = slice(first, first + length)
            pieces.append((images[rows], labels[rows]))
    return pieces
