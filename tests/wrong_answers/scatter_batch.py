# %% an index that is a list makes a new tensor
# told: makes a new tensor in new memory
body("""
    length = -(-len(images) // devices)
    rows = torch.arange(len(images)).split(length)
    return [(images[some], labels[some]) for some in rows]
""")

# %% a piece for every device, even if no row is left for it
# told: A piece has no rows
body("""
    length = -(-len(images) // devices)
    firsts = range(0, devices * length, length)
    return [(images[first:][:length], labels[first:][:length]) for first in firsts]
""")

# %% fills the last piece up with zeros, to the length of the others
# told: not a row of the batch
body("""
    missing = -len(images) % -(-len(images) // devices)
    images = torch.cat([images, images.new_zeros(missing, *images.shape[1:])])
    labels = torch.cat([labels, labels.new_zeros(missing)])
    return list(zip(images.chunk(devices), labels.chunk(devices), strict=True))
""")

# %% the rows that are left over after equal pieces go to nobody
# told: Each row is in exactly one piece
body("""
    length = max(1, len(images) // devices)
    firsts = range(0, min(len(images), devices * length), length)
    return [(images[first:][:length], labels[first:][:length]) for first in firsts]
""")


# %% rounds the length down, and needs more pieces for the rest
# told: more pieces than devices
def scatter_batch(images, labels, devices):
    length = max(1, len(images) // devices)
    return list(zip(images.split(length), labels.split(length), strict=True))
