"""Cut a batch for several devices, as DataParallel does.

The first piece is for the first device, the second for the second, and each is a block of rows that
follow each other. All pieces are equally long, only the last may be shorter; and they are as short
as that allows without more pieces than devices. So 10 rows for 4 devices are 3, 3, 3, 1. There can
be fewer pieces than devices, as with 5 rows, which are 2, 2, 1: no piece is empty.

A piece is a pair of images and labels of the same rows; only the first dimension is cut. The pieces
are windows on the batch's own memory: nothing is copied. A batch has at least one row.
"""

from typing import Any

import torch
from torch import Tensor

from ddp_workbook.exercises import Attempt, NotYet, attempt_alone, in_words

HINTS = [
    "Ten rows for four devices: pieces of two rows would be five pieces, one too many. So which "
    "way is 10 / 4 rounded? And where do the pieces begin?",
    "A slice of a tensor is a window on it, and one that reaches over the end stops there.",
    "Tensor.chunk cuts in this way, and wants to know how many pieces. zip pairs what comes first "
    "with what comes first.",
]

A_NUMBER = "devices is a number here: how many there are."
HALF_A_ROW = "Half a row cannot be cut off. What does / give?"
FEWER = "There can be fewer rows than devices. How long is a piece then?"
NO_ROW = "What is shown as -1 is no row of the batch. Which line changes values?"
FOR_ERRORS = {
    "'int' object is not iterable": A_NUMBER,
    "object of type 'int' has no len()": A_NUMBER,
    "indices must be integers": HALF_A_ROW,
    "interpreted as an integer": HALF_A_ROW,
    "not float": HALF_A_ROW,
    "process group": "There are no ranks here: one process holds the batch and cuts all of it.",
    "must not be zero": FEWER,
    "can only be 0": FEWER,
    "Dimension out of range": "Labels have one dimension only. Along which one do rows lie?",
    "zip() argument": "There are not as many pieces of images as of labels, or as devices.",
}
SIZES = (1, 2, 3, 4)  # devices
UNEVEN, EVEN = {1: 3, 2: 7, 3: 13, 4: 10}, {1: 2, 2: 4, 3: 9, 4: 8}  # rows, by devices
FEW = {1: 1, 2: 1, 3: 4, 4: 5}  # too few for a piece on each of the devices, but for one device

Rows = list[int]  # numbers of rows of the batch
Problem = tuple[str, str] | None  # what came back, and where to look


def scatter_batch(images: Tensor, labels: Tensor, devices: int) -> list[tuple[Tensor, Tensor]]:
    """Cut images (rows, ...) and labels (rows,) into at most `devices` pairs of such tensors."""
    ### BEGIN SOLUTION
    # chunk rounds rows / devices up: hence the short last piece, and devices that get none
    return list(zip(images.chunk(devices), labels.chunk(devices), strict=True))
    ### END SOLUTION


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Cut batches of 1 to 13 rows for each number of devices; first those that tell most."""
    down = sorted(sizes, reverse=True)
    cases = [(rows[devices], devices) for rows in (UNEVEN, EVEN, FEW) for devices in down]
    cases += [(rows, devices) for devices in down for rows in range(1, 14)]
    attempt_alone(attempt, cut_and_compare, case=cases)
    return (
        "batches of 1 to 13 rows are cut as DataParallel cuts them, for 1 to 4 devices, images and "
        "labels alike, and nothing is copied"
    )


def cut_and_compare(scatter_batch: Any, cases: list[tuple[int, int]]) -> None:
    """In the process of the attempt: call it for each case, of rows and devices."""
    for rows, devices in cases:
        whole = batch(rows)
        before = [one.clone() for one in whole]
        pieces = scatter_batch(*whole, devices)
        wanted = blocks(rows, -(-rows // devices))
        problem = another_form(pieces, whole) or another_cut(pieces, whole, wanted, devices)
        if not all(map(torch.equal, whole, before)):
            problem = "the batch itself has changed", "Which line writes into it?"
        if problem := problem or copied(pieces, whole):
            raise NotYet(
                f"scatter_batch(images, labels, {devices}), rows in the batch: {rows}",
                problem[0],
                f"a list of (images, labels), of {in_text(wanted)}",
                problem[1],
            )


def batch(rows: int) -> list[Tensor]:
    """Images in which no number comes twice, with one dimension or with three, and labels."""
    shape = (rows, 1, 2, 2) if rows % 2 else (rows, 4)
    return [torch.arange(rows * 4.0).reshape(shape), torch.arange(100, 100 + rows)]


def blocks(rows: int, length: int) -> list[Rows]:
    """The rows in blocks of `length`; the last is what is left."""
    return [list(range(first, min(first + length, rows))) for first in range(0, rows, length)]


def rows_of(part: Tensor, whole: Tensor) -> Rows:
    """Which rows of the batch a piece holds; -1 for what is none of them."""
    places = {tuple(row.flatten().tolist()): number for number, row in enumerate(whole)}
    return [places.get(tuple(row.flatten().tolist()), -1) for row in part]


def in_text(pieces: list[Rows]) -> str:
    """rows [0, 1, 2] [3, 4, 5] [6]"""
    return f"rows {' '.join(map(str, pieces))}" if pieces else "no rows"


def kind_of(piece: Any) -> str:
    """A tensor as its dtype and shape, tuples and lists as what is in them."""
    if isinstance(piece, Tensor):
        return f"{str(piece.dtype).removeprefix('torch.')} {tuple(piece.shape)}"
    if isinstance(piece, list | tuple):
        inside = ", ".join(map(kind_of, piece[:6]))
        return f"[{inside}]" if isinstance(piece, list) else f"({inside})"
    return in_words(piece)


def is_all(piece: Any, dtype: torch.dtype | None = None) -> bool:
    """True for tensors in a list or tuple, of this dtype if one is named."""
    return isinstance(piece, list | tuple) and all(
        isinstance(part, Tensor) and dtype in (None, part.dtype) for part in piece
    )


def another_form(pieces: Any, whole: list[Tensor]) -> Problem:
    """If it is no list of pairs of tensors."""
    if pieces is None:
        return "None", "Does the function return the pieces that it has cut?"
    if not isinstance(pieces, list | tuple):
        look = "Is this a list? One has a length, and can be gone through more than once."
        return f"an object of type {type(pieces).__name__}", look
    if len(pieces) == 2 and all(map(is_all, pieces, (one.dtype for one in whole))):
        look = "All images are in the first, all labels in the second. What does device 0 get?"
        return f"two: {kind_of(pieces[0])} and {kind_of(pieces[1])}", look
    for number, piece in enumerate(pieces):
        came_back = f"as piece {number}: {kind_of(piece)}"
        if isinstance(piece, Tensor):
            return came_back, "A device needs both, images and the labels of the same rows."
        if not (is_all(piece) and len(piece) == 2):
            return came_back, "A piece is for one device: a tensor of images, one of labels."
        if [part.dtype for part in piece] != [all_.dtype for all_ in whole]:
            return came_back, "Are these images (float32) and labels (int64), in this order?"
        if [(a.dim(), a.shape[1:]) for a in piece] != [(a.dim(), a.shape[1:]) for a in whole]:
            return came_back, f"The batch is {kind_of(whole)}. What is cut but its rows?"
    return None


def another_cut(pieces: list, whole: list[Tensor], wanted: list[Rows], devices: int) -> Problem:
    """If the pieces hold other rows than they should."""
    images, labels = ([rows_of(own[i], whole[i]) for own in pieces] for i in (0, 1))
    if any(-1 in rows for rows in images + labels):
        return f"images of {in_text(images)}, labels of {in_text(labels)}", NO_ROW
    if images != labels:
        came_back = f"images of {in_text(images)}, labels of {in_text(labels)}"
        return came_back, "Are the labels cut at the same places as the images?"
    if images != wanted:
        return in_text(images), thought(images, len(whole[0]), devices)
    return None


def thought(pieces: list[Rows], rows: int, devices: int) -> str:
    """The thought behind pieces of other rows."""
    lengths, in_order = [len(own) for own in pieces], [row for own in pieces for row in own]
    evenly = [len(one) for one in torch.arange(rows).tensor_split(devices)]
    dealt = [list(range(device, rows, devices)) for device in range(devices)]
    if pieces == dealt and rows > devices:
        return "The rows are dealt out like cards. A piece is a block of rows, one after another."
    if missing := sorted(set(range(rows)) - set(in_order)):
        return f"No piece holds rows {missing}. In which ones should they be?"
    if len(in_order) > rows:
        return "Some rows are in more than one piece. Where does a piece end?"
    if in_order != sorted(in_order):
        return "The rows have lost their order: device 0 has the first ones, and so on."
    empty = "A replica can do nothing with a piece without rows. Should there be one?"
    even = "The rows are spread as evenly as can be. Which pieces must be equally long?"
    if said := [empty] * (0 in lengths) + [even] * (lengths == evenly):
        return " ".join(said)
    if pieces == blocks(rows, devices):
        return f"Of {devices}, the number of devices, you have made the length of a piece."
    if len(pieces) > devices:
        return f"More pieces than devices: {len(pieces)}. Which way was a length rounded?"
    if lengths[-1] > lengths[0]:
        return "The last piece is the longest. It may be shorter than the others, not longer."
    if pieces == blocks(rows, lengths[0]):
        return "With shorter pieces, would there be more of them than devices?"
    return "Which pieces are equally long, and which may be shorter?"


def copied(pieces: list, whole: list[Tensor]) -> Problem:
    """If a piece has memory of its own."""
    for number, piece in enumerate(pieces):
        for name, part, all_ in zip(("images", "labels"), piece, whole, strict=True):
            if part.untyped_storage().data_ptr() != all_.untyped_storage().data_ptr():
                came_back = f"the right rows, but the {name} of piece {number} are a copy"
                return came_back, "Which operation of yours makes a new tensor in new memory?"
    return None
