"""Chapter 03: its worker against one process, its drawings, and what its page says."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch
import torch.distributed as dist
from matplotlib.figure import Figure
from matplotlib.text import Text

from ddp_workbook import launch
from ddp_workbook.chapters import process_groups
from ddp_workbook.errors import RanksHung, WorkbookError
from ddp_workbook.figures.palette import rank_colour
from ddp_workbook.figures.process_groups import (
    StoreEvent,
    connections_plot,
    mesh_plot,
    nodes_plot,
    store_plot,
)
from ddp_workbook.recording.collectives import record_collectives
from tests.test_chapters import one_process
from tests.workers import process_groups_workers as workers

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "03_process_groups.ipynb"


@pytest.fixture(autouse=True)
def one_thread():
    """The small steps here gain nothing from more threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def free_port() -> int:
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


# The worker


@pytest.mark.parametrize(
    ("ranks", "in_a_node", "mesh"),
    [
        (1, None, [[0]]),
        (2, None, [[0], [1]]),
        (3, None, [[0, 1, 2]]),
        (4, None, [[0, 1], [2, 3]]),
        (6, None, [[0, 1, 2], [3, 4, 5]]),
        (4, 2, [[0, 1], [2, 3]]),  # two real nodes
        (4, 1, [[0], [1], [2], [3]]),  # four nodes with a GPU each
        (6, 2, [[0, 1], [2, 3], [4, 5]]),
    ],
)
def test_a_row_of_the_mesh_is_a_node(ranks, in_a_node, mesh):
    for rank, (found, row, column) in enumerate(launch(workers.mesh_of, in_a_node, ranks=ranks)):
        assert found == mesh
        mine = next(one for one in mesh if rank in one)
        assert len(row) == len(mine) and len(column) == len(mesh)


def test_two_torchruns_are_two_nodes_and_train_the_same():
    """As on a cluster: one torchrun a node, one report in all."""
    port = free_port()
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    command += ["--master-addr=127.0.0.1"]
    nodes = [
        subprocess.Popen(
            [*command, f"--node-rank={node}", f"--master-port={port}", process_groups.__file__],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={name: value for name, value in os.environ.items() if "RANK" not in name},
        )
        for node in (0, 1)
    ]
    try:
        said = [node.communicate(timeout=100)[0].splitlines() for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    assert said == [one_process().report(process_groups.EPOCHS).splitlines(), []]


def test_a_step_sends_every_gradient_along_its_row_and_its_column():
    wire = record_collectives(process_groups.train, ranks=4, epochs=1, batch_size=1797)
    sums = wire[wire["op"] == "all_reduce"].groupby(["rank", "group"])["bytes"].sum()
    for rank, groups in enumerate([("0,1", "0,2"), ("0,1", "1,3"), ("2,3", "0,2"), ("2,3", "1,3")]):
        assert [sums[rank, f"ranks {group}"] for group in groups] == [19_240, 19_240]
        assert sums[rank, "default"] == 4  # the one loss


# What the page says of stores and meeting places


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_gloo_connects_every_rank_with_every_other(ranks):
    found = launch(workers.open_connections, ranks=ranks)
    owner = {own: rank for rank, ports in enumerate(found) for own, _ in ports}
    pairs = [
        (rank, owner[other])
        for rank, ports in enumerate(found)
        for _, other in ports
        if other in owner
    ]
    everyone = {(one, other) for one in range(ranks) for other in range(ranks) if one != other}
    assert len(pairs) == len(everyone) and set(pairs) == everyone


def test_no_two_calls_of_add_get_the_same_number():
    taken = launch(workers.tickets, 100, ranks=4)
    assert sorted(number for one in taken for number in one) == list(range(1, 401))


def test_a_get_that_nobody_answers_ends_at_the_stores_limit():
    (error, seconds), *_ = launch(workers.never_written, ranks=1)
    assert "timeout" in error and 0.2 < seconds < 30


def test_a_meeting_file_that_was_left_behind_holds_what_the_dead_wrote(tmp_path):
    """A job that meets in it fails, hangs, or gets through: all three were seen on torch 2.13."""
    place = (tmp_path / "meeting").as_uri()
    assert launch(workers.found_in, place, ranks=2) == [False, False]
    assert launch(workers.found_in, place, ranks=2) == [True, True]


def test_two_ranks_with_one_number_never_meet(tmp_path):
    with pytest.raises(WorkbookError):
        place = (tmp_path / "meeting").as_uri()
        launch(workers.meet_at, place, rank=0, ranks=2, seconds=1, timeout=20)


def test_a_rank_that_reaches_a_strangers_program_waits_past_its_own_limit():
    """Its limit is half a second (torch 2.13)."""
    with socket.create_server(("127.0.0.1", 0)) as stranger, pytest.raises(RanksHung) as hung:
        launch(workers.knock, stranger.getsockname()[1], ranks=1, timeout=5)
    assert "waits in init_process_group" in str(hung.value)


def test_the_limit_is_30_minutes_and_10_with_nccl():
    constants = dist.constants
    assert constants.default_pg_timeout.total_seconds() == 30 * 60
    of_nccl = constants.default_pg_nccl_timeout  # None without nccl
    assert of_nccl is None or of_nccl.total_seconds() == 10 * 60


# What it says of groups


def test_a_rank_has_a_second_number_inside_its_group():
    assert launch(workers.two_pairs, ranks=4) == [(1001, 0), (110, 0), (110, 1), (1001, 1)]


def test_on_gloo_a_group_made_by_its_members_alone_works_at_first():
    assert launch(workers.members_only, ranks=4) == [3, 1, 2, 3]


@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize(
    ("worker", "ranks", "counts"),
    [
        (workers.in_another_order, 3, "2 calls by rank 2, 1 call by ranks 0 and 1"),
        (workers.counted_apart, 4, "2 calls by ranks 0 and 3, 1 call by ranks 1 and 2"),
    ],
)
def test_groups_that_are_made_unlike_hang_and_the_report_counts_them(worker, ranks, counts, turn):
    with pytest.raises(RanksHung) as hung:
        launch(worker, ranks=ranks, timeout=2)
    assert f"new_group (init_device_mesh calls it too): {counts}." in str(hung.value)
    assert str(hung.value).count("waits in new_group") == ranks


def test_group_src_is_the_number_inside_the_group():
    assert launch(workers.group_source, ranks=3) == [0, 1, 1]


def test_a_backend_for_gpus_refuses_a_tensor_on_the_cpu():
    said, *_ = launch(workers.wrong_device, ranks=1)
    assert "No backend type associated with device type cpu" in said


@pytest.mark.gpu
def test_visible_gpus_are_numbered_anew():
    def seen(visible: str | None) -> list[str]:
        chosen = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        command = [sys.executable, "-m", "tests.workers.process_groups_workers"]
        root = Path(__file__).parents[1]
        done = subprocess.run(
            command, env=os.environ | chosen, cwd=root, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    every = seen(None)
    assert seen("1,0") == [every[1], every[0]]


# The page itself


@pytest.fixture(scope="module")
def page() -> nbformat.NotebookNode:
    """The notebook as shipped."""
    return nbformat.read(NOTEBOOK, as_version=4)


def test_cells_that_fail_on_purpose_are_these(page):
    tagged = [c.id for c in page.cells if "raises-exception" in c.metadata.get("tags", [])]
    assert tagged == ["port-taken", "order-hang", "members-hang", "folder-all", "early-read"]


def test_cells_that_hang_on_purpose_are_stopped_soon(page):
    hanging = [c.source.splitlines()[0] for c in page.cells if c.id.endswith("-hang")]
    assert len(hanging) == 2
    assert all(re.search(r"--timeout 1\.5$", line) for line in hanging)


def test_two_guesses_are_kept_and_revealed(page):
    text = "\n".join(c.source for c in page.cells if c.cell_type == "code")
    guessed = re.findall(r'\bpredict\("(\w+)"', text)
    assert guessed == re.findall(r'\breveal\("(\w+)"', text)
    assert len(guessed) == 2


# The drawings


def words(figure: Figure) -> list[str]:
    """All texts in the figure, in a layout that can be drawn."""
    figure.draw_without_rendering()
    return [text.get_text() for text in figure.findobj(Text)]


def test_nodes_plot_puts_every_rank_into_its_node():
    said = words(nodes_plot([(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]))
    assert {"node 0", "node 1", *(f"rank {rank}" for rank in range(5))} <= set(said)
    assert [said.count(f"local {rank}") for rank in range(3)] == [2, 2, 1]
    assert "GPU 6" in words(nodes_plot([(0, 0)], labels=["GPU 6"]))


def test_nodes_plot_has_room_for_64_ranks_of_a_cluster():
    assert "rank 63" in words(nodes_plot([(rank // 8, rank % 8) for rank in range(64)]))
    assert "local 15" in words(nodes_plot([(0, rank) for rank in range(16)]))


def test_mesh_plot_shows_values_in_the_ranks_colours_and_frames_the_groups():
    steps = {"before": [[1, 2, 3], [4, 5, 6]], "rows": [[6] * 3, [15] * 3]}
    figure = mesh_plot(steps, {"rows": "rows"})
    assert [axes.get_title() for axes in figure.axes] == ["before", "rows"]
    assert {"1", "6", "15", "rank 5"} <= set(words(figure))
    before, rows = (axes.patches for axes in figure.axes)
    assert (len(before), len(rows)) == (6, 6 + 2)
    assert before[5].get_edgecolor()[:3] == pytest.approx(
        [int(rank_colour(5)[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    )
    assert len(mesh_plot(steps, {"rows": "columns"}).axes[1].patches) == 6 + 3


def test_store_plot_has_a_lane_for_each_rank_and_a_bar_for_each_wait():
    events = [StoreEvent(0, "set", 0, 1.0, 1.001), StoreEvent(1, "set", 1, 1.02, 1.021)]
    events += [StoreEvent(0, "wait", 1, 1.002, 1.03), StoreEvent(1, "get", 0, 1.022, 1.023)]
    figure = store_plot(events)
    assert {"rank 0", "rank 1", "1"} <= set(words(figure))
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert sorted(widths) == pytest.approx([1.0, 28.0])


def test_connections_plot_draws_each_pair_once():
    pairs = [(0, 1), (1, 0), (0, 2), (1, 2)]
    assert len(connections_plot(pairs, 3).axes[0].lines) == 3 + 3
    alone = connections_plot([], 1, store=False)
    assert len(alone.axes[0].lines) == 0 and "rank 0" in words(alone)


def test_two_ranks_in_one_place_are_refused():
    with pytest.raises(ValueError, match="same place"):
        nodes_plot([(0, 1), (0, 1)])


def test_rows_of_a_mesh_have_one_length():
    with pytest.raises(ValueError, match="inhomogeneous"):
        mesh_plot({"a": [[1, 2], [3]]})
