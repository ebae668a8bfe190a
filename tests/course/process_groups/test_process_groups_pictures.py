"""Chapter 03's drawings, and their words, made of the same values."""

import json
from itertools import combinations

import pandas as pd
import pytest
from matplotlib.patches import FancyBboxPatch

from ddp_workbook.experiments.process_groups import meshes, nodes, one_rank, rendezvous
from ddp_workbook.experiments.process_groups.rendezvous import StoreEvent
from manyranks.rank_colours import rank_colour
from tests.picture_text import words


def job(*ranks_of_nodes: int) -> pd.DataFrame:
    """What ranks of such nodes are told."""
    pairs = [(node, local) for node, ranks in enumerate(ranks_of_nodes) for local in range(ranks)]
    table = pd.DataFrame(pairs, columns=["GROUP_RANK", "LOCAL_RANK"])
    return table.assign(RANK=table.index, MASTER_ADDR="127.0.0.1", MASTER_PORT="2950")


def test_agents_plot_puts_every_rank_into_its_node():
    picture = nodes.agents_plot(job(2, 3), store=0)
    texts = words(picture)
    store = "store at 127.0.0.1:2950, kept by the torchrun of node 0"
    assert {"node 0", "node 1", store, *(f"rank {r}\n" for r in range(5))} <= set(texts)
    assert [texts.count(f"local {rank}") for rank in range(3)] == [2, 2, 1]
    assert texts.count("torchrun") == 2
    has = "node 0 has started the ranks 0 (local 0), 1 (local 1) and keeps the store"
    assert has in picture.alt


@pytest.mark.parametrize("ranks", [(2, 3), (1, 1), (8,), (1, 8, 4, 3)])
def test_in_the_agents_plot_no_box_touches_another_and_no_line_goes_through_one(ranks):
    axes = nodes.agents_plot(job(*ranks), store=0).axes
    drawn = [box for box in axes.patches if isinstance(box, FancyBboxPatch)]
    frames = [box for box in drawn if box.get_edgecolor()[3] == 0]  # the nodes' areas
    boxes = [box.get_window_extent() for box in drawn if box not in frames]
    assert len(frames) == len(ranks) and len(boxes) == len(ranks) + sum(ranks) + 1
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    lines = [line.get_window_extent() for line in axes.lines]
    assert len(lines) == (sum(ranks) if len(ranks) < 4 else 0)
    inside = [box.padded(-1) for box in boxes]  # a line ends at the edge of its box
    assert not [(line, box) for line in lines for box in inside if line.overlaps(box)]


def test_agents_plot_has_room_for_64_ranks_of_a_cluster():
    assert "rank 63\n" in words(nodes.agents_plot(job(*[8] * 8), store=0))


@pytest.mark.parametrize(("along", "areas"), [("gpu", 2), ("node", 3)])
def test_mesh_plot_shows_values_in_the_ranks_colours_and_an_area_for_each_group(along, areas):
    of_ranks = [([rank + 1], [6 if rank < 3 else 15]) for rank in range(6)]
    picture = meshes.mesh_plot(of_ranks, "2 x 3", along, "all_reduce")
    assert {"before", f'all_reduce\nalong "{along}"', "1", "15", "rank 5\n"} <= set(words(picture))
    assert len(picture.axes.patches) == 6 + 6 + areas
    fills = {patch.get_facecolor() for patch in picture.axes.patches[6 : 6 + areas]}
    assert len(fills) == areas
    assert picture.axes.patches[5].get_edgecolor()[:3] == pytest.approx(
        [int(rank_colour(5)[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    )


def test_a_mesh_to_play_with_has_a_panel_for_each_step():
    play = meshes.play_mesh()
    found = play.answer.words
    assert "before: 1; 2; 3; 4. " in found and "each column a group: 10; 10; 10; 10." in found
    play.controls["shape"].value, play.controls["along"].value = "1 x 4", "node"
    play.wait()
    assert "as a mesh of 1 by 4" in play.answer.words
    assert '. all_reduce along "node", each' in play.answer.words and "10" not in play.answer.words


def test_the_steps_of_a_wide_mesh_stand_one_below_the_other():
    of_ranks = [([rank], [6]) for rank in range(4)]
    wide, square = (
        meshes.mesh_plot(of_ranks, shape, "gpu", "all_reduce") for shape in ("1 x 4", "2 x 2")
    )
    assert len(wide.axes.patches) == 2 * 4 + 1
    (width, height), (other, lower) = (one.figure.get_size_inches() for one in (wide, square))
    assert height > lower and width < other


def test_slices_plot_marks_the_rank_in_every_panel():
    slices = {"one": [2, 6], "two": [[0, 2], [4, 6]]}
    picture = meshes.slices_plot(6, (2, 2, 2), slices)
    heavy = [text.get_text() for text in picture.axes.texts if text.get_weight() == "bold"]
    assert heavy.count("6") == words(picture).count("7") == 2 and len(heavy) == 4
    assert "two: [0, 2, 4, 6]" in picture.alt


def events() -> list[StoreEvent]:
    """Rank 0 writes at 1.0 and waits for rank 1, which begins to write at 1.02."""
    return [
        StoreEvent(0, "set", 0, 1.0, 1.001),
        StoreEvent(1, "set", 1, 1.02, 1.021),
        StoreEvent(0, "wait", 1, 1.002, 1.03),
        StoreEvent(1, "get", 0, 1.022, 1.023),
    ]


def test_store_plot_tells_waiting_for_a_rank_from_waiting_for_the_store():
    picture = rendezvous.store_plot(events())
    assert {"rank 0", "rank 1", "rank 1 has not written yet"} <= set(words(picture))
    assert "rank 0 has not written yet" not in words(picture)
    widths = sorted(bar.get_width() for bar in picture.axes.patches)
    assert widths == pytest.approx([1.0, 10.0, 18.0])  # milliseconds


def test_the_words_of_the_store_say_who_waited_for_whom():
    assert "rank 0 for rank 1, 18 ms; rank 1 for nobody" in rendezvous.store_plot(events()).alt


def test_connections_plot_draws_each_pair_once():
    pairs = [(0, 1), (1, 0), (0, 2), (1, 2)]
    picture = rendezvous.connections_plot(pairs, 3)
    assert len(picture.axes.lines) == 3 + 3
    assert "3 lines, between the ranks 0 and 1, 0 and 2, 1 and 2" in picture.alt
    alone = rendezvous.connections_plot([], 1)  # only the dotted line to the store
    assert len(alone.axes.lines) == 1 and "rank 0" in words(alone)


def test_lanes_plot_has_a_bar_for_each_span():
    lanes = [
        [(one_rank.COMPUTES, 0, 5), (one_rank.REDUCES, 5, 6), (one_rank.WRITES, 6, 11)],
        [(one_rank.COMPUTES, 0, 5), (one_rank.REDUCES, 5, 10)],
    ]
    picture = one_rank.lanes_plot(lanes)
    assert len(picture.axes.patches) == 5
    assert {"rank 0", "rank 1", one_rank.WRITES} <= set(words(picture))
    assert "in the all-reduce from 5 to 6, writes an event (a sleep) from 6 to 11" in picture.alt
    assert "rank 1 waits in its all-reduces for 5 ms altogether" in picture.alt


def test_the_words_of_the_loss_say_where_it_begins_and_ends(tmp_path):
    events = [
        {"step": n, "name": "loss", "value": loss} for n, loss in enumerate((2.34, 2.5, 0.81))
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, events)))
    assert "read from the file, loss. loss from 2.34 to 0.81" in one_rank.loss_plot(path).alt
