"""The exercise which_dimension: what its file states is what `plan` finds, for every split."""

from functools import cache
from itertools import product
from math import prod

import pytest

from ddp_workbook.exercises.model_parallel import which_dimension
from ddp_workbook.exercises.model_parallel.which_dimension import HINTS_BY_KIND, TRAININGS, fault_of
from manyranks.planning.plan import Plan
from manyranks.planning.search import best_splits

DEGREES = ("tensor", "pipeline", "context", "data")
each_training = pytest.mark.parametrize("name", TRAININGS)


@cache
def plans(name: str) -> dict[tuple, Plan]:
    """The fastest plan of each split that fits."""
    model, gpus, sequences, options, _ = TRAININGS[name]
    how = {**options, "checkpoint": "full", "global_batch": sequences, "expert": 1}
    found = best_splits(model, gpus, most=100, **how).plans
    return {tuple(getattr(one.settings, degree) for degree in DEGREES): one for one in found}


@each_training
def test_the_fastest_split_and_the_table_are_those_of_plan(name):
    best, (_, gpus, sequences, _, fastest) = next(iter(plans(name).values())), TRAININGS[name]
    assert best.seconds == pytest.approx(fastest, rel=1e-3)
    lines = [line.split("|") for line in which_dimension.__doc__.splitlines() if "|" in line]
    column = 2 + list(TRAININGS).index(name)
    table = {line[1].strip(): line[column].strip() for line in lines if "---" not in line[1]}
    shape, settings, cluster = best.shape, best.settings, best.settings.cluster
    sold = round(settings.gpu.memory / 1e9)
    assert table == {
        "training": f"`{name}`",
        "model": shape.name,
        "blocks": f"{shape.layers}",
        "heads": f"{shape.heads}",
        "heads of keys and values": f"{shape.kv_heads}",
        "GPUs": f"{gpus:,} {settings.gpu.name.split()[0]}",
        "memory of a GPU": f"{settings.memory / 1e9:.1f} GB (sold as {sold})",
        "GPUs of a node": f"{cluster.gpus_per_node}, {cluster.inside.name}",
        "between nodes, for each GPU": f"{cluster.between.bytes_per_second * 8 / 1e9:.0f} Gbit/s",
        "tokens of a sequence": f"{settings.sequence:,}",
        "sequences of a step": f"{sequences:,}",
    }


@each_training
def test_a_split_passes_if_it_fits_and_is_within_a_tenth(name):
    """And what is said of all others has a hint."""
    gpus, longest = TRAININGS[name].gpus, 1.1 * TRAININGS[name].fastest
    node = TRAININGS[name].options.get("gpus_per_node", 8)
    degrees = product((1, 2, 4, 8), (1, 2, 8, 32, 128), (1, 2, 4))
    for tensor, pipeline, context in [d for d in degrees if d[0] <= node and prod(d) <= gpus]:
        data = gpus // (tensor * pipeline * context)
        split = (tensor, pipeline, context, data)
        kind, words = fault_of(name, dict(zip(DEGREES, split, strict=True)))
        found = plans(name).get(split)
        assert bool(found and found.seconds <= longest) is (words == "")
        assert bool(found and found.seconds > longest) is words.startswith("fits, but")
        assert (kind in HINTS_BY_KIND) is (words != "")
