"""For your own tests, with pytest: a function on real ranks, in tenths of a second.

    from manyranks.testing import equals_one_process, ranks

    def test_every_rank_gets_the_sum(ranks):
        assert ranks(4)(my_sum, 10) == [40, 40, 40, 40]

    def test_a_step_is_that_of_one_process():
        equals_one_process(one_step)

`my_sum` and `one_step` are functions in a file, the test's own or another; they are written as for
torchrun and call `init_process_group` themselves. Where a test fails because a rank did, its text
is the report: which rank, its own lines, and where the others stood.
"""

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from manyranks.errors import WorkbookError
from manyranks.launcher.calls import Call, call_of
from manyranks.launcher.launch import run_ranks
from manyranks.script_doctor.loaders import WithLoaders, rank_folder
from manyranks.script_doctor.replay import Replay

try:
    import pytest
except ImportError as missing:
    raise WorkbookError("manyranks.testing needs pytest: pip install pytest") from missing


def on_ranks(number: int, timeout: float = 60, **environment: str) -> Callable[..., list]:
    """Call a worker on `number` ranks: `on_ranks(4)(worker, *args, **kwargs)`, results in order.

    The ranks run on the CPU or GPUs as under `launch`, and print what the worker prints, and the
    line for one that asks for a GPU that is not here. `environment` holds further environment
    variables for all of them.

    Raises LaunchRefused, RankFailed and RanksHung as `launch` does; a frame of this package is in
    none of the tracebacks.
    """

    def call(worker: Callable, *args: Any, **kwargs: Any) -> list:
        __tracebackhide__ = True  # pytest's word for: not in the traceback
        try:
            return run_ranks(
                call_of(worker, args, kwargs, number),
                number,
                timeout,
                quiet=True,
                environment=environment,
                as_if_gpus=True,
            )
        except WorkbookError as error:
            raise error.with_traceback(None) from None

    return call


@pytest.fixture
def ranks() -> Callable[..., Callable[..., list]]:
    """`ranks(4)(worker, *args)`: `on_ranks` as a fixture."""
    return on_ranks


def equals_one_process(
    step: Callable,
    *args: Any,
    ranks: Sequence[int] = (2, 3, 4),
    rtol: float = 1e-5,
    atol: float = 1e-6,
    timeout: float = 60,
    same_batches: bool = False,
    **kwargs: Any,
) -> None:
    """Assert that every rank returns what one process returns, for each of these numbers of ranks.

    `step(*args, **kwargs)` returns tensors, numbers, or dicts and lists of them, such as the
    `state_dict` after a step; the batch that all ranks share must not depend on how many they are.
    With `same_batches` it may: then the process's DataLoaders yield what those of the ranks have
    yielded, joined. Floating-point numbers may differ by `atol + rtol · |expected|`: ranks sum in
    another order.

    Raises AssertionError naming the ranks, the rank and the value, and what `launch` raises.
    """
    __tracebackhide__ = True
    expected = None if same_batches else on_ranks(1, timeout)(step, *args, **kwargs)[0]
    for number in ranks:
        if same_batches:
            results, expected = with_same_batches(
                call_of(step, args, kwargs, number), number, timeout
            )
        else:
            results = on_ranks(number, timeout)(step, *args, **kwargs)
        for rank, actual in enumerate(results):
            if words := first_difference(actual, expected, functools.partial(close, rtol, atol)):
                raise AssertionError(f"rank {rank} of {number}, against one process: {words}")


def with_same_batches(call: Call, ranks: int, timeout: float) -> tuple[list, Any]:
    """What the ranks return, and what one process does with the batches that they have read."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        replay = Replay([rank_folder(folder, rank) for rank in range(ranks)])
        of_runs = []
        for worker, number in (
            (WithLoaders(call.worker, folder), ranks),
            (WithLoaders(call.worker, folder / "one process", replay), 1),
        ):
            try:
                same = Call(worker, call.args, call.kwargs)
                of_runs.append(run_ranks(same, number, timeout, quiet=True, as_if_gpus=ranks))
            except WorkbookError as error:
                raise error.with_traceback(None) from None
        return of_runs[0], of_runs[1][0]


def close(rtol: float, atol: float, actual: torch.Tensor, expected: torch.Tensor) -> str:
    """In words how far two tensors are apart; empty if they are close enough."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        kinds = [f"{tensor.dtype} {list(tensor.shape)}" for tensor in (actual, expected)]
        return f"is {kinds[0]} instead of {kinds[1]}"
    if torch.allclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    apart = (actual.double() - expected.double()).abs().max().item()
    return f"differs by up to {apart:.2g}"


def first_difference(actual: Any, expected: Any, compare: Callable, name: str = "result") -> str:
    """The first part that is not the same, by its name and how; empty if there is none."""
    if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
        words = compare(actual.cpu(), expected.cpu())
        return f"{name} {words}" if words else ""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if actual.keys() != expected.keys():
            return f"{name} has other keys: {sorted(map(str, actual.keys() ^ expected.keys()))}"
        pairs = [(f"{name}[{key!r}]", actual[key], expected[key]) for key in expected]
    elif isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        if len(actual) != len(expected):
            return f"{name} has {len(actual)} entries instead of {len(expected)}"
        pairs = [
            (f"{name}[{n}]", *pair) for n, pair in enumerate(zip(actual, expected, strict=True))
        ]
    elif isinstance(expected, float) and isinstance(actual, float):
        words = compare(torch.tensor(actual).double(), torch.tensor(expected).double())
        return f"{name} {words}" if words else ""
    else:
        return "" if actual == expected else f"{name} is {actual!r} instead of {expected!r}"
    for part, value, reference in pairs:
        if words := first_difference(value, reference, compare, part):
            return words
    return ""
