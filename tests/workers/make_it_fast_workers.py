"""Workers for tests/course/make_it_fast/test_make_it_fast.py."""

from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import forward_and_backward, setup
from ddp_workbook.experiments.make_it_fast import network_crossover, sharded


def one_sharded_step(shape: tuple[int, ...], way: dict) -> None:
    """One forward and backward of the further page's smaller model on four ranks."""
    setup()
    digits = DigitsDataset()
    step = sharded.fsdp(DigitsMLP(sharded.HSDP_WIDTH, sharded.DEPTH), shape, **way)
    step(digits.images[:8], digits.labels[:8], 32)


def steps_of_ddp() -> None:
    """Two steps of DDP as `network_crossover` has it; the second has the buckets that remain."""
    setup()
    digits = DigitsDataset()
    model = DistributedDataParallel(
        DigitsMLP(network_crossover.WIDTH, network_crossover.DEPTH),
        bucket_cap_mb=network_crossover.CAP,
    )
    for _ in range(2):
        forward_and_backward(model, digits.images[:8], digits.labels[:8], 16)
