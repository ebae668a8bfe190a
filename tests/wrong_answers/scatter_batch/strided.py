# wrong: row 0 for device 0, row 1 for device 1, and so on, as a sampler does it
# told: dealt out like cards
def scatter_batch(images, labels, devices):
    return [(images[device::devices], labels[device::devices]) for device in range(devices)]
