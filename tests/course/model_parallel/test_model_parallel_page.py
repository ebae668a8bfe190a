"""Chapter 11's demonstrations: what a block sends, the walls, and a mesh of two dimensions."""

import pytest

from ddp_workbook.experiments.model_parallel import dimensions, published, tensor_parallel, walls


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.push("blocks on ranks"))])
def test_a_block_equals_one_process_and_sends_what_the_page_says(ranks):
    """Four all-reduces; with sequence parallel their halves, and tokens divided by the ranks."""
    counted = tensor_parallel.count(ranks=ranks)
    calls = counted[["all_reduce", "all_gather", "reduce_scatter"]].to_numpy().tolist()
    assert calls == [[4, 0, 0], [4, 0, 0], [0, 4, 4]]
    assert (counted["furthest from one process"] < 1e-5).all()
    assert counted["kB sent by a rank in a ring"].nunique() == 1
    between = counted["kB of tokens from block to block"]
    assert between["with sequence parallel"] == pytest.approx(between["by hand"] / ranks, abs=0.1)


def test_masks_agree_where_the_seed_does():
    agree = tensor_parallel.dropout().set_index(["dropout", "seed of a rank"])["masks that agree"]
    assert agree[:, "the same"].eq("100%").all() and agree[:, "its own"].eq("82%").all()


@pytest.mark.parametrize(
    ("settings", "beyond", "remedy"),
    [
        (("405B", 16384, 8192, "InfiniBand NDR"), ["memory of a GPU", "the batch"], "cut each"),
        (("8B", 8, 131072, "InfiniBand NDR"), ["memory of a GPU"], "cut each layer"),
        (("70B", 8, 4096, "InfiniBand NDR"), ["memory of a GPU"], "more GPUs"),
        (("70B", 64, 4096, "Ethernet 100G"), ["the bytes of a step"], "pipeline stages"),
        (("8B", 64, 8192, "InfiniBand NDR"), [], "No wall"),
    ],
    ids=str,
)
def test_a_wall_and_its_remedy(settings, beyond, remedy):
    found = walls.walls(*settings)
    assert [wall.name for wall in found if wall.share > 1] == beyond
    words = walls.walls_plot(found).alt
    assert remedy in words and all(f"Wall: {name}. Remedy:" in words for name in beyond)


@pytest.mark.parametrize("gpus", [gpus for gpus in walls.GPUS if gpus < max(walls.GPUS)])
def test_more_gpus_are_no_advice_where_they_would_not_help(gpus):
    for size in walls.SIZES:
        for sequence in walls.SEQUENCES:
            memory, *_ = walls.walls(size, gpus, sequence, walls.LINKS[0])
            if memory.share > 1 and memory.remedy.startswith("more GPUs"):
                more = [g for g in walls.GPUS if g > gpus]
                assert any(
                    walls.walls(size, g, sequence, walls.LINKS[0])[0].share <= 1 for g in more
                )


@pytest.mark.push("a mesh of four ranks")
@pytest.mark.parametrize("order", dimensions.ORDERS)
def test_the_last_dimension_stays_in_the_node(order):
    """Whatever the order, each dimension sends the same, and the gradients are those of one."""
    found = dimensions.run(order, 128)
    last = order.split(", ")[1]
    inside = found.traffic.set_index("ranks")["dimension"][["0,1", "2,3"]]
    assert (inside == last).all() and found.difference < 1e-6
    sent = found.traffic.groupby("dimension")["kB sent by a rank in a ring"].first().round()
    assert sent.to_dict() == {"data": 309, "tensor": 1049}
    alone = 1049e3 / (100e6 / 8 / 2)  # two ranks share the port of a node
    assert found.seconds["tensor, data"] > alone
    words = dimensions.mesh_plot(found, order).alt
    assert f"Mesh ({order})" in words and "a step with tensor in a node" in words


def test_published_degrees_multiply_to_the_gpus_and_are_planned_nearly_as_published():
    for _, row in published.trainings().iterrows():
        product = row["tensor"] * row["context"] * row["pipeline"] * row["data"]
        assert f"{product:,}" == row["GPUs"]
        length = int(row["sequence length"].replace(",", ""))
        assert length * row["sequences of a data group"] * row["data"] == 2**24  # 16 M
        mfu, by_plan = (float(row[name].rstrip("%")) for name in ("MFU", "MFU by plan"))
        assert by_plan == pytest.approx(mfu, rel=0.15)
