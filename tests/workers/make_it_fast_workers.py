"""Workers for tests/test_make_it_fast.py."""

from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.digits import DigitsDataset, DigitsMLP
from ddp_workbook.experiments.make_it_fast import sharded


def one_sharded_step(shape: tuple[int, ...], way: dict) -> None:
    """One forward and backward of the further page's smaller model on four ranks."""
    setup()
    digits = DigitsDataset()
    step = sharded.fsdp(DigitsMLP(sharded.SMALLER, sharded.DEPTH), shape, **way)
    step(digits.images[:8], digits.labels[:8], 32)
