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

from ddp_workbook.judging import (
    Comparison,
    Edit,
    Observation,
    Pattern,
    SingleProcessCheck,
    body,
    edit,
    in_words,
)

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


Batch = tuple[int, int]  # rows of the batch, devices
FIRST_CASES = [(10, 4), (7, 2), (13, 3), (3, 1), (8, 4), (5, 4), (1, 2), (4, 8)]  # these tell most
ROWS_BEFORE = 3  # rows that a larger tensor has before the batch, where that is a slice of one
DEVICES_HINT = "devices is a number here: how many there are."
HALF_ROW_HINT = "Half a row cannot be cut off. What does / return?"
FEWER_HINT = "There can be fewer rows than devices. How long is a piece then?"


def is_slice(rows: int) -> bool:
    """Whether a batch of so many rows is a slice of a larger tensor; 10 rows are not."""
    return rows % 3 != 1


def batch(rows: int) -> tuple[Tensor, Tensor]:
    """Images and labels in which no number comes twice; images of several layouts."""
    before = ROWS_BEFORE * is_slice(rows)
    numbers = torch.arange(-before, rows + before)
    images = (numbers * 12)[:, None] + torch.arange(12) + 0.5
    images = [
        images,
        images.reshape(-1, 3, 2, 2),
        images.reshape(-1, 2, 6).mT.contiguous().mT,  # not contiguous
    ][rows % 3]
    return images[before : before + rows], (numbers + 100)[before : before + rows]


def expected(case: Batch) -> list[tuple[Tensor, Tensor]]:
    """The pieces."""
    images, labels = batch(case[0])
    length = -(-case[0] // case[1])
    firsts = range(0, case[0], length)
    return [(images[first:][:length], labels[first:][:length]) for first in firsts]


def address_range(tensor: Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first number and of its last one."""
    steps = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + steps * tensor.element_size()


def is_inside(part: Tensor, whole: Tensor) -> bool:
    """Whether the memory of a tensor is part of another one's, whoever has made its storage."""
    (first, last), (begin, end) = address_range(part), address_range(whole)
    return begin <= first and last <= end


def observe(pieces: Any, images: Tensor, labels: Tensor, _: int) -> dict:
    """The pieces, as pairs, and the number of the first one in memory of its own, or -1."""
    if not in_pairs(pieces):
        return {"pieces": pieces, "copy": -1}
    inside = [
        is_inside(part_images, images) and is_inside(part_labels, labels)
        for part_images, part_labels in pieces
    ]
    return {
        "pieces": [tuple(piece) for piece in pieces],
        "copy": inside.index(False) if False in inside else -1,
    }


def in_pairs(pieces: Any) -> bool:
    """Whether these are pairs of tensors, as far as types and dimensions tell."""
    try:
        is_list = isinstance(pieces, list | tuple)
        return is_list and all(images.dim() > 1 == labels.dim() for images, labels in pieces)
    except (AttributeError, TypeError, ValueError):
        return False


def rows_of(images: Tensor) -> list[int | str]:
    """Which rows of a batch these are; "?" for what is none."""
    flat = images.flatten(1)
    rows = [int(image[0]) // 12 for image in flat]
    row_images = [row * 12 + torch.arange(12) + 0.5 for row in rows]
    pairs = zip(rows, map(torch.equal, flat, row_images), strict=True)
    return [row if equal else "?" for row, equal in pairs]


def rows_pattern(holds: Callable[[list[list], Batch], bool]) -> Pattern:
    """Fits pairs of which that holds, asked with the rows of each piece's images."""
    return Pattern(
        lambda obs: (
            in_pairs(obs.value) and holds([rows_of(images) for images, _ in obs.value], obs.case)
        ),
        "pieces",
    )


def in_text(pieces: Any) -> str:
    """rows [0, 1, 2] [3, 4, 5] [6]; dtypes and shapes where these are no pairs."""
    if isinstance(pieces, Tensor):
        return f"{str(pieces.dtype).removeprefix('torch.')} {tuple(pieces.shape)}"
    if not isinstance(pieces, list | tuple):
        return in_words(pieces)
    if not pieces or not in_pairs(pieces):
        return f"[{', '.join(map(in_text, pieces))}]"
    images = " ".join(str(rows_of(part)) for part, _ in pieces)
    labels = " ".join(str((part - 100).tolist()) for _, part in pieces)
    return f"rows {images}" if images == labels else f"images {images}, labels {labels}"


def in_text_with_kinds(pieces: Any, obs: Observation) -> str:
    """The pieces; with dtypes and shapes of the first one where the rows are not what is wrong."""
    if not in_pairs(pieces) or in_text(obs.value) != in_text(obs.expected):
        return in_text(pieces)
    images, labels = map(in_text, pieces[0])
    return f"{in_text(pieces)}; the first piece: images {images}, labels {labels}"


def call_text(case: Batch) -> str:
    """The arguments, with the rows and their kind, as the verdict says it."""
    of = ", which are a slice of a larger tensor" if is_slice(case[0]) else ""
    return f"scatter_batch(images, labels, {case[1]}), with {case[0]} row{'s' * (case[0] > 1)}{of}"


PAIRS = "list(zip(images.chunk(devices), labels.chunk(devices), strict=True))"


def split(length: str) -> Edit:
    """Pieces of another length."""
    return body(f"return list(zip(images.split({length}), labels.split({length}), strict=True))")


CHECK = SingleProcessCheck(
    cases=FIRST_CASES + [(rows, devices) for devices in (4, 3, 2, 1) for rows in range(1, 14)],
    call_text=call_text,
    make_args=lambda case: (*batch(case[0]), case[1]),
    observe=observe,
    compare={
        "pieces": Comparison(
            "A piece is a pair for one device. Which pieces have the same length, and "
            "would shorter ones be enough?",
            expected,
            actual=lambda obs: in_text_with_kinds(obs.value, obs),
            required=lambda obs: (
                f"[(images, labels), …] with {in_text_with_kinds(obs.expected, obs)}"
            ),
        ),
        "copy": Comparison(
            "Which operation of yours makes a new tensor in new memory?",
            -1,
            actual="the right rows, but piece {value} is a copy",
            required="views of the batch's own memory",
        ),
    },
    mistakes={
        "Each device gets a pair, images and labels of the same rows; the result is a list of such "
        "pairs. What is yours?": [
            edit(PAIRS, "list(images.chunk(devices))"),
            edit(PAIRS, "[images.chunk(devices), labels.chunk(devices)]"),
            edit(PAIRS, f"{PAIRS}[0]"),
            edit("return", "return (images, labels) if devices == 1 else"),
            edit(PAIRS, "list(zip(labels.chunk(devices), images.chunk(devices), strict=True))"),
        ],
        "The rows are right, but not their shape or their dtype. Which line changes that, and do "
        "you need it?": [
            edit("images.chunk", f"images.{conversion}.chunk")
            for conversion in ("flatten(1)", "double()")
        ],
        "A piece of one row is a slice, too: it has as many dimensions as the batch.": [
            edit(PAIRS, f"[(i[0], l[0]) if len(i) == 1 else (i, l) for i, l in {PAIRS}]"),
            edit(
                "return",
                "if len(images) <= devices:\n        return list(zip(images, labels))\n    return",
            ),
        ],
        "The rows are dealt out like cards. A piece is a block of consecutive rows.": [
            body(f"return [(images[d::devices], labels[d::devices]) for d in range({count})]")
            for count in ("devices", "min(len(images), devices)")
        ],
        "The pieces have as many rows as there are devices. Is devices the length of a piece, or "
        "the number of pieces?": split("devices"),
        "There are fewer rows than devices, and one device gets all of them. How short can the "
        "pieces be?": edit("return", "return [(images, labels)] if len(images) < devices else"),
        "The last piece is the longest. It may be shorter than the others, not longer.": body("""
            count = min(len(images), devices)
            firsts = [d * (len(images) // count) for d in range(count)]
            ends = [*firsts[1:], len(images)]
            return [(images[a:b], labels[a:b]) for a, b in zip(firsts, ends, strict=True)]
        """),
        "The rows are spread as evenly as possible. Which pieces must have the same length?": [
            body(f"return list(zip(images.tensor_split({count}), labels.tensor_split({count})))")
            for count in ("devices", "min(len(images), devices)")
        ],
        "Are the rows divided evenly here? Pieces one row shorter would be enough.": (
            split("len(images) // devices + 1")
        ),
        "A ? stands for something that is not a row of the batch. Which line changes "
        "values, or adds some?": rows_pattern(
            lambda pieces, case: any("?" in rows for rows in pieces)
        ),
        "A piece has no rows. A slice past the last row is empty: for how many devices "
        "are there rows?": rows_pattern(lambda pieces, case: [] in pieces),
        "Each row is in exactly one piece. Where does a piece end, and where does the "
        "next one begin?": rows_pattern(
            lambda pieces, case: sorted(row for rows in pieces for row in rows) != [*range(case[0])]
        ),
        "There are more pieces than devices. Which way was a length rounded?": rows_pattern(
            lambda pieces, case: len(pieces) > case[1]
        ),
    },
    unchanged_hint="Which line writes into the batch?",
    errors={
        "'int' object is not iterable": DEVICES_HINT,
        "object of type 'int' has no len()": DEVICES_HINT,
        "indices must be integers": HALF_ROW_HINT,
        "interpreted as an integer": HALF_ROW_HINT,
        "not float": HALF_ROW_HINT,
        "must not be zero": FEWER_HINT,
        "can only be 0": FEWER_HINT,
        "Dimension out of range": "Labels have only one dimension. Which dimension counts the "
        "rows?",
        "zip() argument": "You zip lists of different lengths. Are images and labels cut alike?",
    },
    on_pass="batches of 1 to 13 rows are cut as DataParallel cuts them, for 1 to 8 devices, images "
    "and labels alike, and nothing is copied",
)
