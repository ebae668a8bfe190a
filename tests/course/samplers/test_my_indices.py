"""The solutions of my_indices and resume_indices, on thousands of generated cases."""

from collections.abc import Callable
from itertools import chain, product
from types import SimpleNamespace

import pytest
from torch.utils.data import DistributedSampler

from ddp_workbook.exercises.samplers.my_indices import my_indices
from ddp_workbook.exercises.samplers.resume_indices import resume_indices
from ddp_workbook.judging import in_rank

FEW = 500  # generated cases
FLAGS = list(product((True, False), repeat=2))


@pytest.fixture(scope="module")
def draws() -> SimpleNamespace:
    """What hypothesis draws from; a package for developers, imported only here."""
    some = pytest.importorskip("hypothesis").strategies
    ranks = [(rank, size) for size in range(1, 13) for rank in range(size)]
    return SimpleNamespace(
        lengths=some.integers(1, 200),
        lengths_or_0=some.integers(0, 200),
        worlds=some.integers(1, 12),
        ranks=some.sampled_from(ranks),
        flags=some.sampled_from(FLAGS),
        epochs=some.integers(0, 1_000),
        seeds=some.integers(0, 2**32),
        more=some.data(),
        integers=some.integers,
    )


def for_all(count: int, test: Callable, *strategies: object) -> None:
    """Call `test` with so many generated cases; a busy machine is no fault."""
    from hypothesis import HealthCheck, given, settings

    slow = [HealthCheck.too_slow]
    how = settings(max_examples=count, deadline=None, database=None, suppress_health_check=slow)
    how(given(*strategies)(test))()


def by_sampler(n: int, rank: int, world_size: int, epoch: int, **options) -> list[int]:
    """What DistributedSampler gives to a rank."""
    sampler = DistributedSampler(range(n), world_size, rank, **options)
    sampler.set_epoch(epoch)
    return list(sampler)


@pytest.mark.parametrize(
    "cases", [1_000, pytest.param(10_000, marks=pytest.mark.release("thousands of cases more"))]
)
def test_my_indices_are_the_samplers_own(draws, cases):
    """With and without shuffle and drop_last, for any seed and epoch."""
    seen = set()

    def agree(n, rank, epoch, flags, seed):
        options = {"shuffle": flags[0], "drop_last": flags[1], "seed": seed}
        assert my_indices(n, *rank, epoch, **options) == by_sampler(n, *rank, epoch, **options)
        seen.add((n, rank, epoch, flags, seed))

    for_all(cases, agree, draws.lengths, draws.ranks, draws.epochs, draws.flags, draws.seeds)
    assert len(seen) >= cases


def test_of_no_samples_the_sampler_gives_none():
    """Nor do the solutions."""
    for world_size, drop_last in product(range(1, 13), (False, True)):
        for rank in range(world_size):
            assert by_sampler(0, rank, world_size, 1, drop_last=drop_last) == []
            assert my_indices(0, rank, world_size, 1, drop_last=drop_last) == []


def test_each_sample_comes_once_however_often_the_job_was_stopped(draws):
    """At up to four world sizes, one after the other."""

    def once(n, epoch, seed, data):
        trained = []
        for _ in range(data.draw(draws.integers(1, 4), "stops")):
            size = data.draw(draws.worlds, "world_size")
            left = [resume_indices(n, epoch, seed, len(trained), r, size) for r in range(size)]
            assert max(map(len, left)) - min(map(len, left)) <= 1
            steps = data.draw(draws.integers(0, max(map(len, left))), "steps")
            trained += [own[step] for step in range(steps) for own in left if step < len(own)]
        rest = [resume_indices(n, epoch, seed, len(trained), rank, 3) for rank in range(3)]
        assert sorted(chain(trained, *rest)) == list(range(n))

    for_all(FEW, once, draws.lengths_or_0, draws.epochs, draws.seeds, draws.more)


def test_it_goes_on_where_the_sampler_was_stopped(draws):
    """Whatever the batch size: after as many samples on each rank, these are the first ones."""

    def goes_on(n, before, after, epoch, seed, data):
        each = data.draw(draws.integers(0, n // before), "samples of each rank")
        samples = [by_sampler(n, rank, before, epoch, seed=seed) for rank in range(before)]
        trained = [sample for own in samples for sample in own[:each]]
        rest = [resume_indices(n, epoch, seed, each * before, rank, after) for rank in range(after)]
        assert sorted(chain(trained, *rest)) == list(range(n))

    lists = (draws.lengths, draws.worlds, draws.worlds, draws.epochs, draws.seeds, draws.more)
    for_all(FEW, goes_on, *lists)


def test_without_a_stop_a_single_rank_has_the_samplers_order(draws):
    """Nothing trained yet, one rank: the whole order."""

    def same(n, epoch, seed):
        assert resume_indices(n, epoch, seed, 0, 0, 1) == my_indices(n, 0, 1, epoch, seed=seed)

    for_all(FEW, same, draws.lengths, draws.epochs, draws.seeds)


def test_the_hash_of_a_text_is_another_one_in_each_call_of_an_attempt(monkeypatch):
    """As in processes that were started one by one; ranks here are forks of one process."""
    monkeypatch.setenv("RANK", "0")
    one = [in_rank.process_dependent_hash(value) for value in ("text", ("text", 1), 5, (5, 1))]
    monkeypatch.setattr(in_rank.GuardedFunction, "calls", in_rank.GuardedFunction.calls + 1)
    other = [in_rank.process_dependent_hash(value) for value in ("text", ("text", 1), 5, (5, 1))]
    assert one[0] != other[0] and one[1] != other[1] and one[2:] == other[2:]
