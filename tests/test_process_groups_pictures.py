"""Chapter 03's drawings, and their words, made of the same values."""

import json

import pytest
from matplotlib.text import Text

from ddp_workbook.experiments.process_groups import meeting, meshes, nodes, one_rank, store
from ddp_workbook.experiments.process_groups.nodes import Agents, Node
from ddp_workbook.experiments.process_groups.store import StoreEvent
from ddp_workbook.rank_colours import rank_colour

JOB = Agents([Node([(0, 0), (1, 1)], True), Node([(2, 0), (3, 1), (4, 2)], False)], "host:2950")


def words(picture) -> list[str]:
    """All texts in the picture, in a layout that can be drawn."""
    picture.figure.draw_without_rendering()
    return [text.get_text() for text in picture.figure.findobj(Text)]


def test_agents_plot_puts_every_rank_into_its_node():
    picture = nodes.agents_plot(JOB)
    said = words(picture)
    assert {"node 0", "node 1", "store", "port 2950", *(f"rank {r}" for r in range(5))} <= set(said)
    assert [said.count(f"local {rank}") for rank in range(3)] == [2, 2, 1]
    assert said.count("torchrun") == 2
    has = "node 0 has started the ranks 0 (local 0), 1 (local 1) and keeps the store"
    assert has in picture.alt


def test_agents_plot_has_room_for_64_ranks_of_a_cluster():
    eight = [Node([(8 * n + k, k) for k in range(8)], n == 0) for n in range(8)]
    assert "rank 63" in words(nodes.agents_plot(Agents(eight, "host:1")))


def test_two_stores_or_a_rank_in_two_places_are_refused():
    for wrong in ([Node([(0, 0)], True)] * 2, [Node([(0, 0), (0, 1)], True)]):
        with pytest.raises(ValueError, match="Each rank is on one node"):
            nodes.agents_plot(Agents(wrong, "host:1"))


def test_mesh_plot_shows_values_in_the_ranks_colours_and_frames_the_groups():
    steps = {"before": [[1, 2, 3], [4, 5, 6]], "rows": [[6] * 3, [15] * 3]}
    figure = meshes.mesh_figure(steps, {"rows": "rows"})
    assert [axes.get_title() for axes in figure.axes] == ["before", "rows"]
    said = {text.get_text() for text in figure.findobj(Text)}
    assert {"1", "6", "15", "rank 5"} <= said
    before, rows = (axes.patches for axes in figure.axes)
    assert (len(before), len(rows)) == (6, 6 + 2)
    assert before[5].get_edgecolor()[:3] == pytest.approx(
        [int(rank_colour(5)[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    )
    assert len(meshes.mesh_figure(steps, {"rows": "columns"}).axes[1].patches) == 6 + 3


def test_rows_of_a_mesh_have_one_length():
    with pytest.raises(ValueError, match="inhomogeneous"):
        meshes.mesh_figure({"a": [[1, 2], [3]]})


def test_a_mesh_to_play_with_has_a_panel_for_each_step():
    made = meshes.play_mesh()
    found = made.answer.words
    assert "before: 1; 2; 3; 4. " in found and "the columns: 10; 10; 10; 10." in found
    made.controls["shape"].value, made.controls["along"].value = "1 x 4", "node"
    made.wait()
    assert "as a mesh of 1 by 4" in made.answer.words
    assert '. all_reduce along "node", with' in made.answer.words and "10" not in made.answer.words


def test_the_steps_of_a_wide_mesh_stand_one_below_the_other():
    figure = meshes.mesh_figure({"before": [[1, 2, 3, 4]], "after": [[1, 2, 3, 4]]})
    assert figure.axes[0].get_gridspec().nrows == 2


def test_slices_plot_marks_the_rank_in_every_panel():
    slices = {"one": [2, 6], "two": [[0, 2], [4, 6]]}
    picture = meshes.slices_plot(6, (2, 2, 2), slices)
    heavy = [
        [text.get_text() for text in axes.texts if text.get_weight() == "bold"]
        for axes in picture.figure.axes[:2]
    ]
    assert heavy == [["6"], ["6"]]
    assert words(picture).count("7") == 2
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
    picture = store.store_plot(events())
    assert {"rank 0", "rank 1", "rank 1 has not written yet"} <= set(words(picture))
    assert "rank 0 has not written yet" not in words(picture)
    widths = sorted(bar.get_width() for bar in picture.axes.patches)
    assert widths == pytest.approx([1.0, 10.0, 18.0])  # milliseconds


def test_the_words_of_the_store_say_who_waited_for_whom():
    assert "rank 0 for rank 1, 18 ms; rank 1 for nobody" in store.store_plot(events()).alt


def test_connections_plot_draws_each_pair_once():
    pairs = [(0, 1), (1, 0), (0, 2), (1, 2)]
    picture = meeting.connections_plot(pairs, 3)
    assert len(picture.axes.lines) == 3 + 3
    assert "3 lines, between the ranks 0 and 1, 0 and 2, 1 and 2" in picture.alt
    alone = meeting.connections_plot([], 1)  # only the dotted line to the store
    assert len(alone.axes.lines) == 1 and "rank 0" in words(alone)


def test_lanes_plot_has_a_bar_for_each_span():
    lanes = [
        [("compute", 0.0, 5.0), ("all-reduce", 5.0, 6.0), ("write", 6.0, 11.0)],
        [("compute", 0.0, 5.0), ("all-reduce", 5.0, 6.0)],
    ]
    picture = one_rank.lanes_plot(lanes)
    assert len(picture.axes.patches) == 5
    assert {"rank 0", "rank 1", "writes an event"} <= set(words(picture))
    assert "it writes for 5 ms altogether" in picture.alt and "it writes nothing" in picture.alt


def test_the_words_of_the_loss_say_where_it_begins_and_ends(tmp_path):
    events = [
        {"step": n, "name": "loss", "value": loss} for n, loss in enumerate((2.34, 2.5, 0.81))
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, events)))
    assert "read from the file, loss. loss from 2.34 to 0.81" in one_rank.loss_plot(path).alt
