# %% as_strided counts from where the storage begins, not from where the batch does
# told: Where does your line begin to count?
def scatter_batch(images, labels, devices):
    length = -(-len(images) // devices)

    def piece(whole, first):
        shape = (min(length, len(whole) - first), *whole.shape[1:])
        return whole.as_strided(shape, whole.stride(), first * whole.stride(0))

    firsts = range(0, len(images), length)
    return [(piece(images, first), piece(labels, first)) for first in firsts]


# %% contiguous() copies a batch that is not contiguous
# told: These images are not contiguous
def scatter_batch(images, labels, devices):
    images, labels = images.contiguous(), labels.contiguous()
    return list(zip(images.chunk(devices), labels.chunk(devices), strict=True))


# %% an index that is a list makes a new tensor
# told: makes a new tensor in new memory
import math


def scatter_batch(images, labels, devices):
    length = math.ceil(len(images) / devices)
    pieces = []
    for first in range(0, len(images), length):
        rows = list(range(first, min(first + length, len(images))))
        pieces.append((images[rows], labels[rows]))
    return pieces


# %% a piece for every device, even if no row is left for it
# told: A piece has no rows
import math


def scatter_batch(images, labels, devices):
    length = math.ceil(len(images) / devices)
    pieces = []
    for device in range(devices):
        first, last = device * length, (device + 1) * length
        pieces.append((images[first:last], labels[first:last]))
    return pieces


# %% fills the last piece up with zeros, to the length of the others
# told: not a row of the batch
import math

import torch


def scatter_batch(images, labels, devices):
    length = math.ceil(len(images) / devices)
    pieces = []
    for first in range(0, len(images), length):
        rows, of_rows = images[first : first + length], labels[first : first + length]
        missing = length - len(rows)
        rows = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])
        pieces.append((rows, torch.cat([of_rows, of_rows.new_zeros(missing)])))
    return pieces


# %% returns each image as one row of pixels
# told: The rows are right, but not their shape or their dtype
import math


def scatter_batch(images, labels, devices):
    length = math.ceil(len(images) / devices)
    flat = images.flatten(1)
    starts = range(0, len(images), length)
    return [(flat[i : i + length], labels[i : i + length]) for i in starts]


# %% blocks of images, but the labels are dealt out
# told: Are the labels cut at the same places
def scatter_batch(images, labels, devices):
    pieces = images.chunk(devices)
    return [(piece, labels[device::devices]) for device, piece in enumerate(pieces)]


# %% takes the end of a slice for its last row
# told: in more than one piece
import math


def scatter_batch(images, labels, devices):
    length = math.ceil(len(images) / devices)
    return [
        (images[first : first + length + 1], labels[first : first + length + 1])
        for first in range(0, len(images), length)
    ]


# %% computes the length of a piece once, for all batches
# told: What does your function keep from one call to the next?
LENGTHS = {}


def scatter_batch(images, labels, devices):
    length = LENGTHS.setdefault(devices, -(-len(images) // devices))
    return list(zip(images.split(length), labels.split(length), strict=True))


# %% each piece also has the number of its device
# told: A piece is a pair: images, then labels
def scatter_batch(images, labels, devices):
    pieces = zip(images.chunk(devices), labels.chunk(devices), strict=True)
    return [(*piece, device) for device, piece in enumerate(pieces)]


# %% the rows that are left over after equal pieces go to nobody
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


# %% rounds the length down, and needs more pieces for the rest
# told: more pieces than devices
def scatter_batch(images, labels, devices):
    length = max(1, len(images) // devices)
    return list(zip(images.split(length), labels.split(length), strict=True))
