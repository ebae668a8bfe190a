"""Chapter 03's drawings, and their words, made of the same values."""

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from ddp_workbook.figures.palette import rank_colour
from ddp_workbook.figures.process_groups import agents, meshes, store, waiting
from ddp_workbook.figures.process_groups.agents import Agents, Node
from ddp_workbook.figures.process_groups.store import StoreEvent

JOB = Agents([Node([(0, 0), (1, 1)], True), Node([(2, 0), (3, 1), (4, 2)], False)], "host:2950")


def words(figure: Figure) -> list[str]:
    """All texts in the figure, in a layout that can be drawn."""
    figure.draw_without_rendering()
    return [text.get_text() for text in figure.findobj(Text)]


def test_agents_plot_puts_every_rank_into_its_node():
    said = words(agents.agents_plot(JOB))
    assert {"node 0", "node 1", "store", "port 2950", *(f"rank {r}" for r in range(5))} <= set(said)
    assert [said.count(f"local {rank}") for rank in range(3)] == [2, 2, 1]
    assert said.count("torchrun") == 2
    alt = agents.alt_text_of_agents(JOB)
    assert "node 0 has started the ranks 0 (local 0), 1 (local 1) and keeps the store" in alt


def test_agents_plot_has_room_for_64_ranks_of_a_cluster():
    nodes = [Node([(8 * n + k, k) for k in range(8)], n == 0) for n in range(8)]
    assert "rank 63" in words(agents.agents_plot(Agents(nodes, "host:1")))


def test_two_stores_or_a_rank_in_two_places_are_refused():
    for nodes in ([Node([(0, 0)], True)] * 2, [Node([(0, 0), (0, 1)], True)]):
        with pytest.raises(ValueError, match="Each rank is on one node"):
            agents.agents_plot(Agents(nodes, "host:1"))


def test_mesh_plot_shows_values_in_the_ranks_colours_and_frames_the_groups():
    steps = {"before": [[1, 2, 3], [4, 5, 6]], "rows": [[6] * 3, [15] * 3]}
    figure = meshes.mesh_plot(steps, {"rows": "rows"})
    assert [axes.get_title() for axes in figure.axes] == ["before", "rows"]
    assert {"1", "6", "15", "rank 5"} <= set(words(figure))
    before, rows = (axes.patches for axes in figure.axes)
    assert (len(before), len(rows)) == (6, 6 + 2)
    assert before[5].get_edgecolor()[:3] == pytest.approx(
        [int(rank_colour(5)[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    )
    assert len(meshes.mesh_plot(steps, {"rows": "columns"}).axes[1].patches) == 6 + 3


def test_rows_of_a_mesh_have_one_length():
    with pytest.raises(ValueError, match="inhomogeneous"):
        meshes.mesh_plot({"a": [[1, 2], [3]]})


def test_two_sums_are_three_panels():
    held = [[1, 3, 10], [2, 3, 10], [3, 7, 10], [4, 7, 10]]
    figure = meshes.two_sums_plot(held, columns=2)
    assert [axes.get_title() for axes in figure.axes] == list(meshes.SUMS)
    assert words(figure).count("7") == 2 and words(figure).count("10") == 4
    assert "before: 1, 2, 3, 4" in meshes.alt_text_of_two_sums(held, columns=2)


def test_slices_plot_marks_the_rank_in_every_panel():
    slices = {"one": [2, 6], "two": [[0, 2], [4, 6]]}
    figure = meshes.slices_plot(6, (2, 2, 2), slices)
    heavy = [
        [text.get_text() for text in axes.texts if text.get_weight() == "bold"]
        for axes in figure.axes[:2]
    ]
    assert heavy == [["6"], ["6"]]
    assert words(figure).count("7") == 2
    assert "two: [0, 2, 4, 6]" in meshes.alt_text_of_slices(6, slices)


def events() -> list[StoreEvent]:
    """Rank 0 writes at 1.0 and waits for rank 1, which begins to write at 1.02."""
    return [
        StoreEvent(0, "set", 0, 1.0, 1.001),
        StoreEvent(1, "set", 1, 1.02, 1.021),
        StoreEvent(0, "wait", 1, 1.002, 1.03),
        StoreEvent(1, "get", 0, 1.022, 1.023),
    ]


def test_store_plot_tells_waiting_for_a_rank_from_waiting_for_the_store():
    figure = store.store_plot(events())
    assert {"rank 0", "rank 1", "rank 1 has not written yet"} <= set(words(figure))
    assert "rank 0 has not written yet" not in words(figure)
    widths = sorted(bar.get_width() for bar in figure.axes[0].patches)
    assert widths == pytest.approx([1.0, 10.0, 18.0])  # milliseconds


def test_the_words_of_the_store_say_who_waited_for_whom():
    alt = store.alt_text_of_store(events())
    assert "rank 0 for rank 1, 18 ms; rank 1 for nobody" in alt


def test_connections_plot_draws_each_pair_once():
    pairs = [(0, 1), (1, 0), (0, 2), (1, 2)]
    assert len(store.connections_plot(pairs, 3).axes[0].lines) == 3 + 3
    alone = store.connections_plot([], 1)  # only the dotted line to the store
    assert len(alone.axes[0].lines) == 1 and "rank 0" in words(alone)
    assert "3 lines, between the ranks 0 and 1, 0 and 2, 1 and 2" in (
        store.alt_text_of_connections(pairs, 3)
    )


def test_lanes_plot_has_a_bar_for_each_span():
    lanes = [
        [("compute", 0.0, 5.0), ("all-reduce", 5.0, 6.0), ("write", 6.0, 11.0)],
        [("compute", 0.0, 5.0), ("all-reduce", 5.0, 6.0)],
    ]
    figure = waiting.lanes_plot(lanes)
    assert len(figure.axes[0].patches) == 5
    assert {"rank 0", "rank 1", "writes an event"} <= set(words(figure))
    alt = waiting.alt_text_of_lanes(lanes)
    assert "it writes for 5 ms altogether" in alt and "it writes nothing" in alt


def test_the_words_of_the_loss_say_where_it_begins_and_ends():
    curve = pd.DataFrame({"step": [0, 1, 2], "loss": [2.34, 2.5, 0.81]})
    assert "3 steps, read from the file: from 2.3 to 0.8" in waiting.alt_text_of_loss(curve)
