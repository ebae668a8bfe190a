# wrong: 2, 2, 2, 4 instead of 3, 3, 3, 1
# told: The last piece is the longest
def scatter_batch(images, labels, devices):
    devices = min(devices, len(images))
    length = len(images) // devices
    pieces = []
    for device in range(devices):
        first = device * length
        last = len(images) if device == devices - 1 else first + length
        pieces.append((images[first:last], labels[first:last]))
    return pieces
