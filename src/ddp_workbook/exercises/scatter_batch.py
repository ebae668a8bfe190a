"""Cut a batch for several devices, as DataParallel does.

Return a list of pieces: the first is for device 0, the second for device 1, and so on. A piece is a
pair of tensors, images and labels of the same rows.

- A piece is a block of consecutive rows. Only the first dimension is cut.
- All pieces have the same length, except that the last one may be shorter.
- There are at most as many pieces as devices, and the pieces are as short as that allows: 10 rows
  for 4 devices become 3, 3, 3 and 1.
- No piece is empty, so there can be fewer pieces than devices: 5 rows become 2, 2 and 1.
- Nothing is copied: the pieces are views of the batch. A batch has at least one row.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ddp_workbook.exercises import Alone, Look, Seen, When, in_words

MINUTES = 10
HINTS = [
    "Ten rows for four devices: pieces of two rows would be five pieces, one too many. So which "
    "way is 10 / 4 rounded? And where do the pieces begin?",
    "A slice of a tensor is a view of it. A slice that reaches past the end stops at the end.",
    "Look up Tensor.chunk: does it cut as the task asks, and what does it return for 5 rows and "
    "4 devices? It cuts one tensor, and you need pairs.",
]


def scatter_batch(images: Tensor, labels: Tensor, devices: int) -> list[tuple[Tensor, Tensor]]:
    """Cut images (rows, ...) and labels (rows,) into at most `devices` pairs of such tensors."""
    ### BEGIN SOLUTION
    # chunk rounds rows / devices up: hence the short last piece, and devices that get none
    return list(zip(images.chunk(devices), labels.chunk(devices), strict=True))
    ### END SOLUTION


Case = tuple[int, int]  # rows of the batch, devices
FIRST = [(10, 4), (7, 2), (13, 3), (3, 1), (8, 4), (5, 4), (1, 2), (4, 8)]  # these tell most
BEFORE = 3  # rows that a larger tensor has before the batch, where that is a slice of one
A_NUMBER = "devices is a number here: how many there are."
HALF_A_ROW = "Half a row cannot be cut off. What does / return?"
FEWER = "There can be fewer rows than devices. How long is a piece then?"


def is_slice(rows: int) -> bool:
    """Whether a batch of so many rows is a slice of a larger tensor; 10 rows are not."""
    return rows % 3 != 1


def batch(rows: int) -> tuple[Tensor, Tensor]:
    """Images and labels in which no number comes twice; images of several layouts."""
    before = BEFORE * is_slice(rows)
    every = torch.arange(-before, rows + before)
    images = (every * 12)[:, None] + torch.arange(12) + 0.5
    images = [
        images,
        images.reshape(-1, 3, 2, 2),
        images.reshape(-1, 2, 6).mT.contiguous().mT,  # not contiguous
    ][rows % 3]
    return images[before : before + rows], (every + 100)[before : before + rows]


def cut(case: Case, blocks: list) -> list[tuple[Tensor, Tensor]]:
    """Pieces with these rows, of images and labels."""
    images, labels = batch(case[0])
    return [(images[list(rows)], labels[list(rows)]) for rows in blocks]


def blocks(rows: int, length: int) -> list[range]:
    """The rows in blocks of `length`; the last is what is left."""
    return [range(first, min(first + length, rows)) for first in range(0, rows, length)]


def blocks_of(case: Case) -> list[range]:
    """Which rows each piece must have."""
    return blocks(case[0], -(-case[0] // case[1]))


def right(case: Case) -> list[tuple[Tensor, Tensor]]:
    """The pieces."""
    return cut(case, blocks_of(case))


def last_takes_the_rest(case: Case) -> list[range]:
    """Lengths rounded down, and all that is left in the last piece."""
    rows, count = case[0], min(case)
    return [*blocks(rows, rows // count)[: count - 1], range(rows // count * (count - 1), rows)]


def a_small_batch_stays_whole(case: Case) -> list[tuple[Tensor, Tensor]]:
    """One piece for fewer rows than devices; otherwise the right pieces."""
    return cut(case, [range(case[0])]) if case[0] < case[1] else right(case)


def evenly(rows: int, devices: int) -> list[list[int]]:
    """As tensor_split cuts."""
    return [one.tolist() for one in torch.arange(rows).tensor_split(min(rows, devices))]


def pieces_and_copies(pieces: Any, images: Tensor, labels: Tensor, devices: int) -> dict:
    """What has come back, and the number of the first piece that has memory of its own, or -1."""
    batch = {one.untyped_storage().data_ptr() for one in (images, labels)}
    memory = (
        [{one.untyped_storage().data_ptr() for one in p} for p in pieces]
        if in_pairs(pieces)
        else []
    )
    copies = [number for number, own in enumerate(memory) if not own <= batch]
    return {"pieces": pieces, "copy": next(iter(copies), -1)}


def in_pairs(pieces: Any) -> bool:
    """Whether these are pairs of tensors, as far as types and dimensions tell."""
    try:
        listed = isinstance(pieces, list | tuple)
        return listed and all(images.dim() > 1 == labels.dim() for images, labels in pieces)
    except (AttributeError, TypeError, ValueError):
        return False


def rows_of(images: Tensor) -> list[int | str]:
    """Which rows of a batch these are; "?" for what is none."""
    flat = images.flatten(1)
    rows = [int(one[0]) // 12 for one in flat]
    known = [row * 12 + torch.arange(12) + 0.5 for row in rows]
    pairs = zip(rows, map(torch.equal, flat, known), strict=True)
    return [row if equal else "?" for row, equal in pairs]


def where(holds: Callable[[list[list], Case], bool]) -> When:
    """Fits pairs of which that holds, asked with the rows of each piece's images."""
    return When(
        lambda seen: (
            in_pairs(seen.value) and holds([rows_of(images) for images, _ in seen.value], seen.case)
        )
    )


def right_numbers(pieces: Any, right: list[tuple[Tensor, Tensor]]) -> bool:
    """Whether these are pairs with the right numbers, whatever their shapes and dtypes."""
    if not in_pairs(pieces) or len(pieces) != len(right):
        return False
    flat, wanted = (
        [one.flatten().double() for piece in both for one in piece] for both in (pieces, right)
    )
    return all(map(torch.equal, flat, wanted))


def kinds_too(seen: Seen, pieces: Any) -> str:
    """Dtypes and shapes of the first pair of `pieces`, if they are all that is wrong."""
    if not right_numbers(seen.value, seen.right):
        return ""
    images, labels = map(in_text, pieces[0])
    return f"; the first piece: images {images}, labels {labels}"


def in_text(pieces: Any) -> str:
    """rows [0, 1, 2] [3, 4, 5] [6]; dtypes and shapes where these are no pairs."""
    if isinstance(pieces, Tensor):
        return f"{str(pieces.dtype).removeprefix('torch.')} {tuple(pieces.shape)}"
    if not isinstance(pieces, list | tuple):
        return in_words(pieces)
    if not pieces or not in_pairs(pieces):
        return f"[{', '.join(map(in_text, pieces))}]"
    images = " ".join(str(rows_of(one)) for one, _ in pieces)
    labels = " ".join(str((one - 100).tolist()) for _, one in pieces)
    return f"rows {images}" if images == labels else f"images {images}, labels {labels}"


def called(case: Case) -> str:
    """The call in words."""
    of = ", which are a slice of a larger tensor" * is_slice(case[0])
    return f"scatter_batch(images, labels, {case[1]}), with {case[0]} row{'s' * (case[0] > 1)}{of}"


CHECK = Alone(
    cases=FIRST + [(rows, devices) for devices in (4, 3, 2, 1) for rows in range(1, 14)],
    called=called,
    given=lambda case: (*batch(case[0]), case[1]),
    observe=pieces_and_copies,
    looks=[
        Look(
            of=lambda seen: seen.came["pieces"],
            right=right,
            mistakes={
                "A device needs both, images and the labels of the same rows.": (
                    lambda case: [images for images, _ in right(case)]
                ),
                "All images are in the first, all labels in the second. What does device 0 get?": (
                    lambda case: list(zip(*right(case), strict=True))
                ),
                "This is one pair, not a list of pairs. What does a loop over the pieces get?": (
                    lambda case: right(case)[0]
                ),
                "A pair begins with the images. Which order has yours?": (
                    lambda case: [piece[::-1] for piece in right(case)]
                ),
                "A piece of one row is a slice, too: it has as many dimensions as the batch.": (
                    lambda case: [(images[0], labels[0]) for images, labels in right(case)]
                ),
                "The rows are dealt out like cards. A piece is a block of consecutive rows.": (
                    lambda case: cut(case, [range(d, *case) for d in range(min(case))])
                ),
                "The pieces have as many rows as there are devices. Is devices the length of a "
                "piece, or the number of pieces?": lambda case: cut(case, blocks(*case)),
                "There are fewer rows than devices, and one device gets all of them. How short "
                "can the pieces be?": a_small_batch_stays_whole,
                "The last piece is the longest. It may be shorter than the others, not longer.": (
                    lambda case: cut(case, last_takes_the_rest(case))
                ),
                "The rows are spread as evenly as possible. Which pieces must have the same "
                "length?": lambda case: cut(case, evenly(*case)),
                "Are the rows divided evenly here? Pieces one row shorter would be enough.": (
                    lambda case: cut(case, blocks(case[0], case[0] // case[1] + 1))
                ),
                "A ? stands for something that is not a row of the batch. Which line changes "
                "values, or adds some?": where(
                    lambda pieces, case: any("?" in rows for rows in pieces)
                ),
                "Rows below 0 lie in memory before the batch, which is a slice of a larger tensor. "
                "Where does your line begin to count?": where(
                    lambda pieces, case: any(row < 0 for rows in pieces for row in rows)
                ),
                "A piece has no rows. A slice past the last row is empty: for how many devices "
                "are there rows?": where(lambda pieces, case: [] in pieces),
                "Some rows are in no piece. In which one should they be?": where(
                    lambda pieces, case: len({row for rows in pieces for row in rows}) < case[0]
                ),
                "Some rows are in more than one piece. Where does a piece end?": where(
                    lambda pieces, case: sum(map(len, pieces)) > case[0]
                ),
                "There are more pieces than devices. Which way was a length rounded?": where(
                    lambda pieces, case: len(pieces) > case[1]
                ),
                "The rows are right, but not their shape or their dtype. Which line changes that, "
                "and do you need it?": When(lambda seen: right_numbers(seen.value, seen.right)),
                "Are the labels cut at the same places as the images?": where(
                    lambda pieces, case: pieces == [[*rows] for rows in blocks_of(case)]
                ),
                "A piece is a pair: images, then labels. How many things are in yours?": When(
                    lambda seen: (
                        isinstance(seen.value, list | tuple)
                        and any(isinstance(p, list | tuple) and len(p) != 2 for p in seen.value)
                    )
                ),
            },
            otherwise="A piece is a pair for one device. Which pieces have the same length, and "
            "would shorter ones be enough?",
            came=lambda seen: in_text(seen.value) + kinds_too(seen, seen.value),
            required=lambda seen: (
                f"[(images, labels), …] with {in_text(seen.right)}" + kinds_too(seen, seen.right)
            ),
        ),
        Look(
            of=lambda seen: seen.came["copy"],
            right=-1,
            mistakes={
                "These images are not contiguous. Which operation of yours copies such a tensor, "
                "and do you need it?": When(lambda seen: not batch(seen.case[0])[0].is_contiguous())
            },
            otherwise="Which operation of yours makes a new tensor in new memory?",
            came="the right rows, but piece {value} is a copy",
            required="views of the batch's own memory",
        ),
    ],
    keeps="Which line writes into the batch?",
    errors={
        "'int' object is not iterable": A_NUMBER,
        "object of type 'int' has no len()": A_NUMBER,
        "indices must be integers": HALF_A_ROW,
        "interpreted as an integer": HALF_A_ROW,
        "not float": HALF_A_ROW,
        "process group": "There are no ranks here: one process holds the batch and cuts all of it.",
        "must not be zero": FEWER,
        "can only be 0": FEWER,
        "Dimension out of range": "Labels have only one dimension. Which dimension counts the "
        "rows?",
        "zip() argument": "You zip lists of different lengths. Are images and labels cut alike?",
    },
    proves="batches of 1 to 13 rows are cut as DataParallel cuts them, for 1 to 8 devices, images "
    "and labels alike, and nothing is copied",
)
