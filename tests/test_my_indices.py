"""The solutions of my_indices and resume_indices, on thousands of generated cases."""

from itertools import chain, product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from ddp_workbook.exercises.my_indices import my_indices
from ddp_workbook.exercises.resume_indices import resume_indices

CASES = 10_000  # different ones
LENGTHS, WORLDS = st.integers(1, 200), st.integers(1, 12)
RANKS = st.sampled_from([(rank, size) for size in range(1, 13) for rank in range(size)])
FLAGS = st.sampled_from(list(product((True, False), repeat=2)))
EPOCHS, SEEDS = st.integers(0, 1_000), st.integers(0, 2**32)
slow = [HealthCheck.too_slow]  # is no fault where the machine is busy
generated = settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=slow)
fewer = settings(generated, max_examples=500)


def by_sampler(n: int, rank: int, world_size: int, epoch: int, **options) -> list[int]:
    """What DistributedSampler gives to a rank."""
    sampler = DistributedSampler(range(n), world_size, rank, **options)
    sampler.set_epoch(epoch)
    return list(sampler)


def test_my_indices_are_the_samplers_own():
    seen = set()

    @generated
    @given(LENGTHS, RANKS, EPOCHS, FLAGS, SEEDS)
    def agree(n, rank, epoch, flags, seed):
        options = {"shuffle": flags[0], "drop_last": flags[1], "seed": seed}
        assert my_indices(n, *rank, epoch, **options) == by_sampler(n, *rank, epoch, **options)
        seen.add((n, rank, epoch, flags, seed))

    agree()
    assert len(seen) >= CASES


def test_of_no_samples_the_sampler_gives_none():
    for world_size, drop_last in product(range(1, 13), (False, True)):
        for rank in range(world_size):
            assert by_sampler(0, rank, world_size, 1, drop_last=drop_last) == []
            assert my_indices(0, rank, world_size, 1, drop_last=drop_last) == []


@fewer
@given(st.integers(0, 200), EPOCHS, SEEDS, st.data())
def test_each_sample_comes_once_however_often_the_job_was_stopped(n, epoch, seed, data):
    trained = []
    for _ in range(data.draw(st.integers(1, 4), "stops")):
        world_size = data.draw(WORLDS, "world_size")
        ranks = range(world_size)
        left = [resume_indices(n, epoch, seed, len(trained), rank, world_size) for rank in ranks]
        assert max(map(len, left)) - min(map(len, left)) <= 1
        steps = data.draw(st.integers(0, max(map(len, left))), "steps")
        trained += [own[step] for step in range(steps) for own in left if step < len(own)]
    rest = [resume_indices(n, epoch, seed, len(trained), rank, 3) for rank in range(3)]
    assert sorted(chain(trained, *rest)) == list(range(n))


@fewer
@given(LENGTHS, WORLDS, WORLDS, EPOCHS, SEEDS, st.data())
def test_it_goes_on_where_the_sampler_was_stopped(n, before, after, epoch, seed, data):
    """Whatever the batch size: after as many samples on each rank, these are the first ones."""
    each = data.draw(st.integers(0, n // before), "samples of each rank")
    samples = [by_sampler(n, rank, before, epoch, seed=seed) for rank in range(before)]
    trained = [sample for own in samples for sample in own[:each]]
    rest = [resume_indices(n, epoch, seed, each * before, rank, after) for rank in range(after)]
    assert sorted(chain(trained, *rest)) == list(range(n))


@fewer
@given(LENGTHS, EPOCHS, SEEDS)
def test_without_a_stop_a_single_rank_has_the_samplers_order(n, epoch, seed):
    assert resume_indices(n, epoch, seed, 0, 0, 1) == my_indices(n, 0, 1, epoch, seed=seed)
