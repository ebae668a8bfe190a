# wrong: as_strided counts from where the storage begins, not from where the batch does
# told: Where does your line begin to count?
def scatter_batch(images, labels, devices):
    length = -(-len(images) // devices)

    def piece(whole, first):
        shape = (min(length, len(whole) - first), *whole.shape[1:])
        return whole.as_strided(shape, whole.stride(), first * whole.stride(0))

    firsts = range(0, len(images), length)
    return [(piece(images, first), piece(labels, first)) for first in firsts]
