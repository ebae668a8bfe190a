"""The digits, the model and the batches that every chapter shares."""

import gzip
import runpy
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch.utils.data import DistributedSampler

from ddp_workbook.chapters.digits import (
    COLUMNS,
    DATA,
    DigitsDataset,
    DigitsError,
    DigitsMLP,
    Result,
    accuracy,
    batches,
)
from tools.set_up import ROOT

MAKE_DIGITS = ROOT / "data" / "make_digits.py"
HEADER = ",".join(COLUMNS)
THREE = ",".join(["1"] * 64 + ["3"])  # a row, labelled 3


def row_with(column: str, cell: str) -> str:
    cells = THREE.split(",")
    cells[COLUMNS.index(column)] = cell
    return ",".join(cells)


@pytest.fixture(scope="module")
def digits() -> DigitsDataset:
    return DigitsDataset()


@pytest.fixture
def table(tmp_path):
    """Writes lines to a file and returns its path."""

    def write(*lines: str, name: str = "table.csv") -> Path:
        path = tmp_path / name
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return path

    return write


def complaint(path) -> str:
    with pytest.raises(DigitsError) as caught:
        DigitsDataset(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


# The table that ships


def test_the_script_writes_the_table_that_ships(tmp_path):
    write = runpy.run_path(str(MAKE_DIGITS))["write"]
    for name in ("one.csv.gz", "two.csv.gz"):
        write(tmp_path / name)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.csv.gz", "two.csv.gz"))
    assert one == two
    assert one[4:8] == bytes(4), "the gzip header must not hold the time of day"
    # Not the packed bytes: another version of zlib may pack the same text in another way.
    assert gzip.decompress(one) == gzip.decompress(DATA.read_bytes())


def test_the_digits_are_all_there(digits):
    assert digits.images.shape == (1797, 64)
    assert digits.images.dtype == torch.float32
    assert digits.images.is_contiguous()
    assert (digits.images.min(), digits.images.max()) == (0, 1)
    assert digits.labels.dtype == torch.int64
    assert digits.labels.unique().tolist() == list(range(10))


# Other tables


@pytest.mark.parametrize("name", ["mine.csv", "mine.csv.xz"])
def test_any_table_with_these_columns_works(tmp_path, name):
    rows = pd.DataFrame([[float(i)] * 64 + [i] for i in range(10)], columns=COLUMNS)
    rows = rows[reversed(COLUMNS)].assign(writer="someone")
    rows.to_csv(tmp_path / name, index=False)
    mine = DigitsDataset(str(tmp_path / name))
    assert mine.labels.tolist() == list(range(10))
    assert torch.equal(mine.images[:, 7], torch.arange(10) / 16)


@pytest.mark.parametrize(
    "lines",
    [
        (HEADER, THREE, "", ""),
        (HEADER + "\r", THREE + "\r"),
        ("\ufeff" + HEADER, THREE),
        (HEADER, row_with("pixel_63", " 0.5 ")),
        (HEADER, row_with("label", "3.0")),
    ],
    ids=["blank lines", "Windows line ends", "byte order mark", "blanks around", "label as float"],
)
def test_harmless_differences_are_accepted(table, lines):
    assert DigitsDataset(table(*lines)).labels.tolist() == [3]


# What is refused, and in which words


@pytest.mark.parametrize("cell", ["abc", "nan", "NA", "-inf", "1e39", "0x10", "True", "  "])
@pytest.mark.parametrize("column", ["pixel_0", "pixel_63"])
def test_a_pixel_that_is_no_number_is_named_with_line_and_column(table, column, cell):
    message = complaint(table(HEADER, THREE, "", row_with(column, cell), row_with("label", "x")))
    assert f"line 4 (the header is line 1), column {column}: {cell!r} is not a finite" in message


@pytest.mark.parametrize("cell", ["10", "-1", "2.5", "x", "nan", "1e300"])
def test_a_label_that_is_no_digit_is_named_with_line_and_column(table, cell):
    message = complaint(table(HEADER, THREE, THREE, row_with("label", cell)))
    assert f"line 4 (the header is line 1), column label: {cell!r} is not a label" in message


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((HEADER, row_with("pixel_5", "")), "line 2 (the header is line 1), column pixel_5: the"),
        ((HEADER, THREE, "1,2,3"), "line 3 (the header is line 1), column pixel_3: the cell is e"),
        ((HEADER, THREE, "," * 64), "a row of commas only"),
        ((HEADER, THREE, THREE + ",9"), "Expected 65 fields in line 3, saw 66"),
        ((HEADER, THREE + ",9", THREE + ",9"), "line 2: more values than the header has columns"),
        ((HEADER.removesuffix(",label"), "1," * 63 + "1"), "has no column label."),
        (("name;age", "a;1"), "has no column pixel_0 and 64 more."),
        ((HEADER,), "has no row under its header"),
        ((HEADER, "", ""), "has no row under its header"),
        (("",), "is empty"),
    ],
)
def test_a_table_of_another_form_is_refused(table, lines, words):
    message = complaint(table(*lines))
    assert words in message
    assert "The table needs the columns pixel_0 to pixel_63" in message


def test_a_file_that_is_not_there_or_a_folder_is_refused(tmp_path):
    assert "does not exist. Give the path" in complaint(tmp_path / "nothing.csv")
    assert "is a folder" in complaint(tmp_path)


PACKED = gzip.compress(f"{HEADER}\n{THREE}\n".encode(), mtime=0)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.csv.gz", PACKED[:-20]),
        ("damaged.csv.gz", PACKED[:30] + b"damage" + PACKED[36:]),
        ("plain.csv.gz", HEADER.encode()),
        ("packed.csv", PACKED),
        ("plain.zip", HEADER.encode()),
        ("latin.csv", f"{HEADER}\n{THREE}\xe9\n".encode("latin-1")),
        ("noise.csv", bytes(range(256)) * 20),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert "cannot be read as a CSV table" in complaint(tmp_path / name)


# The batches


def test_batches_hold_every_row_once_and_the_last_what_is_left(digits):
    sizes = [len(labels) for _, labels in batches(digits, 64, epoch=0)]
    assert sizes == [64] * 28 + [5]
    images = torch.cat([images for images, _ in batches(digits, 64, epoch=0)])
    assert torch.equal(images.sum(0), digits.images.sum(0))


@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_slices_of_the_batches_are_what_distributed_sampler_deals(digits, world_size, epoch):
    """Rows rank::world_size of each batch: the same rows for each rank, in the same order."""
    for rank in range(world_size):
        sampler = DistributedSampler(digits, world_size, rank, shuffle=True, seed=7)
        sampler.set_epoch(epoch)
        dealt = digits.labels[list(sampler)]
        taken = [labels[rank::world_size] for _, labels in batches(digits, 64, epoch, seed=7)]
        mine = torch.cat(taken)
        assert torch.equal(dealt[: len(mine)], mine)
        assert len(dealt) - len(mine) in (0, 1)  # the sampler pads, the batches do not


# The model and what a run leaves behind


@pytest.mark.parametrize(("width", "depth"), [(64, 1), (16, 3), (8, 0)])
def test_the_model_has_depth_hidden_layers_of_width(width, depth):
    model = DigitsMLP(width, depth)
    assert [layer.out_features for layer in model.hidden] == [width] * depth
    assert model(torch.rand(5, 64)).shape == (5, 10)
    assert model(torch.rand(0, 64)).shape == (0, 10)


def test_accuracy_is_the_share_of_right_names_and_leaves_the_mode_alone(digits):
    class Always3(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = torch.nn.Parameter(torch.eye(10)[3])

        def forward(self, images):
            assert not self.training
            return self.scores.expand(len(images), 10)

    model = Always3()
    assert accuracy(model, digits) == pytest.approx((digits.labels == 3).float().mean().item())
    assert model.training


def test_a_run_tells_its_story_in_a_line_or_in_one_an_epoch():
    result = Result([2.0, 1.0, 0.75, 0.25], 0.9, {"big": torch.zeros(1000)})
    assert repr(result) == "Result(4 steps, loss 2.0000 to 0.2500, 90.0% right)"
    assert result.report(epochs=2).splitlines() == [
        "epoch 1: loss 1.5000, the mean of 2 steps",
        "epoch 2: loss 0.5000, the mean of 2 steps",
        "90.0% of the digits right",
    ]
    assert "no steps" in repr(Result([], 0.1, {}))
