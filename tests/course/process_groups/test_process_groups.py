"""Chapter 03: its worker against one process, and what its pages say."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
import torch
import torch.distributed as dist
from torch.distributed.run import get_args_parser

from ddp_workbook import launch
from ddp_workbook.chapters import process_groups, single_process
from ddp_workbook.experiments.process_groups import groups, meshes, nodes, one_rank, rendezvous
from ddp_workbook.page.pages import all_pages
from manyranks.diagnostics.evidence import State
from manyranks.diagnostics.mismatches import mismatches
from manyranks.diagnostics.positions import Position
from manyranks.errors import RanksHung, WorkbookError
from manyranks.launcher.rendezvous import free_port
from manyranks.recording.collectives import record_collectives
from tests.hang_proofs import hang_of
from tests.workers import process_groups_workers as workers
from tools.set_up import ROOT

PAGES = [path for path in all_pages() if path.stem.startswith("03_")]


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


@pytest.mark.push("torchrun again")
def test_two_torchruns_are_two_nodes_and_train_the_same():
    """As on a cluster: one torchrun a node, one report in all."""
    port = free_port()
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    command += ["--master-addr=127.0.0.1"]
    agents = [
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
        said = [agent.communicate(timeout=100)[0].splitlines() for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    assert said == [single_process.train().report(process_groups.EPOCHS).splitlines(), []]


def test_a_step_sends_every_gradient_along_its_row_and_its_column():
    wire = record_collectives(process_groups.train, ranks=4, epochs=1, batch_size=1797)
    sums = wire[wire["op"] == "all_reduce"].groupby(["rank", "group"])["bytes"].sum()
    for rank, own in enumerate([("0,1", "0,2"), ("0,1", "1,3"), ("2,3", "0,2"), ("2,3", "1,3")]):
        assert [sums[rank, f"ranks {group}"] for group in own] == [19_240, 19_240]
        assert sums[rank, "default"] == 4  # the one loss


# What the page says of stores and meeting places


@pytest.mark.parametrize("ranks", [1, 4])
def test_gloo_connects_every_rank_with_every_other(ranks):
    traces = launch(rendezvous.record_rendezvous, ranks=ranks)
    every = {(one, other) for other in range(ranks) for one in range(other)}
    assert rendezvous.connected_pairs(traces) == every
    assert [len(one.before) for one in traces] == [1] * ranks  # to the store
    assert [len(one.after) for one in traces] == [ranks] * ranks  # rank 0 has no more


def test_gloo_writes_one_address_a_rank_and_reads_all():
    events = list(rendezvous.events(launch(rendezvous.record_rendezvous, ranks=4)))
    written = [(event.rank, event.owner) for event in events if event.what == "set"]
    read = {(event.rank, event.owner) for event in events if event.what != "set"}
    assert sorted(written) == [(rank, rank) for rank in range(4)]
    assert read == {(rank, owner) for rank in range(4) for owner in range(4)}
    write_times = {event.owner: event.start for event in events if event.what == "set"}
    for event in events:  # nobody gets a value before its rank has begun to write it
        assert event.end >= write_times[event.owner]


def test_rank_0_has_the_stores_connections_with_tcp_alone():
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "meeting").as_uri()
        ways = ["env://", f"tcp://127.0.0.1:{free_port()}", place]
        found = rendezvous.init_methods_table(ways).set_index("init_method")
    assert set(found.pop("sum of the ranks")) == {6}
    assert found.loc["env://"].tolist() == [4, 4, 4, 4]
    assert found.loc["tcp://"].tolist() == [8, 4, 4, 4]
    assert found.loc["file://"].tolist() == [3, 3, 3, 3]


def test_gloo_listens_on_a_port_even_with_a_file(tmp_path):
    assert launch(workers.listens, (tmp_path / "meeting").as_uri(), ranks=2) == [1, 1]


def test_a_backend_that_exchanges_nothing_does_not_wait_for_the_others():
    """The barrier after init_process_group is off by default (torch 2.13)."""
    waited, _ = launch(workers.meet_fakes, 3.0, ranks=2)
    assert waited < 2.5


def test_gloo_listens_where_the_interface_is_and_says_if_there_is_none():
    lo = next(name for name in rendezvous.interfaces()["interface"] if name.startswith("lo"))
    listens, unable = rendezvous.gloo_interfaces_table([lo, "eth9"])["rank 0"]
    assert listens == "listens at 127.0.0.1"
    assert "Unable to find" in unable and "eth9" in unable


@pytest.mark.release("two more torchruns for what their ports are")
def test_torchrun_takes_a_port_that_is_free_on_one_node_and_29500_on_several():
    """The second half is what its own help says: two jobs of a test could collide there."""
    ports = nodes.ports_by_default()["MASTER_PORT"].astype(int)
    assert 29500 not in set(ports) and len(set(ports)) == 2
    help_text = next(
        action.help for action in get_args_parser()._actions if action.dest == "master_port"
    )
    assert "29500" in help_text


def test_no_two_calls_of_add_get_the_same_number():
    taken = launch(workers.tickets, 100, ranks=4)
    assert sorted(number for one in taken for number in one) == list(range(1, 401))


def test_a_get_that_nobody_answers_ends_at_the_stores_limit():
    (error, seconds), *_ = launch(workers.get_missing_key, ranks=1)
    assert "timeout" in error and 0.2 < seconds < 30


def test_a_meeting_file_that_was_left_behind_holds_what_the_dead_wrote(tmp_path):
    """A job that meets in it fails, hangs, or gets through: all three were seen on torch 2.13."""
    place = (tmp_path / "meeting").as_uri()
    assert launch(workers.is_in_store, place, ranks=2) == [False, False]
    assert launch(workers.is_in_store, place, ranks=2) == [True, True]


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
    ("worker", "ranks", "counts", "first"),
    [
        (
            workers.in_another_order,
            3,
            "2 calls by rank 2, 1 call by ranks 0 and 1",
            "[0, 1] on ranks 0 and 2, [1, 2] on rank 1",
        ),
        (
            workers.make_groups_unevenly,
            4,
            "2 calls by ranks 0 and 3, 1 call by ranks 1 and 2",
            "[0, 3] on ranks 0 and 3, [0, 1, 2, 3] on ranks 1 and 2",
        ),
    ],
)
def test_the_report_shows_where_the_ranks_groups_differ(worker, ranks, counts, first, turn):
    hung = str(hang_of(worker, ranks=ranks))
    assert f"new_group (init_device_mesh calls it too): {counts}. Call 1: {first}. " in hung
    assert hung.count("waits in new_group") == ranks


def test_the_report_shows_groups_that_differ_although_all_ranks_made_equally_many():
    """Gloo may connect some of the ranks all the same, so who waits is a matter of moments."""
    wanted = {1: [1, 2], 2: [0, 1, 2]}
    record = {"entries": [], "groups": {}, "group_count": 3}
    records = {rank: record | {"group_calls": wanted} for rank in range(3)}
    records[1] |= {"group_calls": wanted | {2: [0, 1]}}
    (found,) = mismatches(records, [Position(2, State.WAITING, call="new_group")])
    first = "Call 2: [0, 1, 2] on ranks 0 and 2, [0, 1] on rank 1."
    assert f"new_group (init_device_mesh calls it too): {first} " in found.sentence


def test_groups_of_their_own_are_a_difference_only_where_a_rank_waits_for_one():
    """On gloo, a group that each rank makes of itself alone works; a hang has another cause."""
    record = {"entries": [], "groups": {}, "group_count": 2}
    records = {rank: record | {"group_calls": {1: [rank]}} for rank in range(2)}
    assert mismatches(records, []) == []
    (found,) = mismatches(records, [Position(0, State.WAITING, call="new_group")])
    assert "Call 1: [0] on rank 0, [1] on rank 1." in found.sentence


def test_a_group_of_its_members_alone_hangs_if_they_are_in_unequally_many_groups():
    """Its name holds how many groups a member is in (torch 2.13)."""
    hung = str(hang_of(workers.members_of_unequally_many_groups, ranks=3))
    assert hung.count("waits in new_group") == 2


def test_a_mesh_adds_along_its_rows_then_down_its_columns():
    rows = [[1, 6, 21], [2, 6, 21], [3, 6, 21], [4, 15, 21], [5, 15, 21], [6, 15, 21]]
    of_ranks = launch(meshes.run_on_mesh, "2 x 3", "gpu, node", meshes.SUM, ranks=6)
    assert [[value for (value,) in of_rank] for of_rank in of_ranks] == rows


@pytest.mark.parametrize(
    ("shape", "along", "collective", "after"),
    [
        ("2 x 2", "node", meshes.GATHER, [[1, 3], [2, 4], [1, 3], [2, 4]]),
        ("2 x 2", "gpu", meshes.BROADCAST, [[1], [1], [3], [3]]),
        ("4 x 1", "gpu", meshes.SUM, [[1], [2], [3], [4]]),
        ("1 x 4", "gpu, node", meshes.GATHER, [[1, 2, 3, 4]] * 4),
    ],
)
def test_a_group_of_a_mesh_hears_only_its_own(shape, along, collective, after):
    of_ranks = launch(meshes.run_on_mesh, shape, along, collective, ranks=4)
    assert [of_rank[-1] for of_rank in of_ranks] == after


def test_a_slice_holds_the_ranks_that_differ_in_its_dimensions():
    found = launch(meshes.slices, ranks=8)[6]
    assert found == {
        '["replicate"]': [2, 6],
        '["shard"]': [4, 6],
        '["tensor"]': [6, 7],
        '["replicate", "shard"]': [[0, 2], [4, 6]],
        '["shard", "tensor"]': [[4, 5], [6, 7]],
    }


def test_a_rank_is_in_four_groups_of_a_mesh_of_three_dimensions():
    found = meshes.count_groups(launch(meshes.slices, ranks=8))
    assert found == {"of each rank": [4] * 8, "altogether": 13}


def test_names_of_a_slice_stand_in_the_order_of_the_mesh():
    assert "Invalid mesh_dim_names" in launch(workers.group_error, "gpu", "node", ranks=4)[0]


def test_a_slice_with_two_names_has_no_group_of_its_own():
    assert "2 dimensions" in launch(workers.group_error, "node", "gpu", ranks=4)[0]


def test_two_sums_are_timed_in_milliseconds():
    table = groups.compare_stages(ranks=2, rounds=1)
    assert list(table["size"]) == ["19 kB", "19 kB", "4 MiB", "4 MiB"]
    assert all(float(median) > 0 for median in table["median (ms)"])
    assert list(table["ratio"])[::2] == ["1.00", "1.00"]


def test_group_src_is_the_number_inside_the_group():
    assert launch(workers.group_source, ranks=3) == [0, 1, 1]


def test_a_backend_for_gpus_refuses_a_tensor_on_the_cpu():
    said, *_ = launch(groups.first_refusal, "cuda:gloo", ranks=1)
    assert "No backend type associated with device type cpu" in said


def test_gloo_can_do_on_a_cpu_what_the_documentation_says():
    tried = launch(groups.try_operations, "gloo", "cpu", ranks=2)[0]
    assert tried == groups.DOCUMENTED_SUPPORT["gloo", "cpu"]


def test_the_table_of_backends_says_what_was_tried():
    table = groups.backend_support_table()
    assert "gloo, cpu: tried here" in table and "mpi, cpu: documented" in table
    if not torch.cuda.is_available():
        assert "nccl, cuda: documented" in table
    assert not table.isna().any(axis=None)


def test_a_backend_that_is_missing_says_so():
    said = groups.refusals().set_index("backend")["here"]
    assert "MPI" in said["mpi"]
    if not dist.is_nccl_available():
        assert "NCCL" in said["nccl"]


# What it says of one rank's work


def test_a_rank_reads_too_early_without_a_barrier():
    found = one_rank.read_with_and_without_barrier()
    assert list(found["without a barrier"]) == ["learning rate 0.05", "no file"]
    assert list(found["with a barrier"]) == ["learning rate 0.05"] * 2


def test_lanes_show_that_only_rank_0_writes():
    lanes = one_rank.lanes_with_events(steps=10)
    both = [one_rank.COMPUTES, one_rank.REDUCES]
    assert [[what for what, *_ in lane] for lane in lanes] == [
        [*both, one_rank.WRITES] * 10,
        both * 10,
    ]
    waits = [end - start for what, start, end in lanes[1] if what == one_rank.REDUCES]
    assert max(waits[1:]) > 3  # of the 5 ms that rank 0 writes


def test_rank_0_alone_writes_the_events(tmp_path):
    path = tmp_path / "events.jsonl"
    launch(one_rank.train_and_write, path, ranks=2)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["step"] for event in events] == list(range(29))
    assert events[-1]["value"] < events[0]["value"]
    curve = one_rank.loss_curve(path)
    assert list(curve) == pytest.approx([event["value"] for event in events])


def test_the_message_of_a_meeting_ends_with_the_missing_rank():
    zero, one, two = launch(workers.two_of_three, ranks=3)
    assert zero.endswith("/2") and one.endswith("/2") and two == "did not come"


def test_every_kernel_has_folders_of_its_own():
    first, second = one_rank.new_folder(), one_rank.new_folder()
    assert first != second and first.parent == second.parent
    assert Path("work").resolve() not in first.resolve().parents


@pytest.mark.parametrize("all_ranks", [False, True])
def test_monitored_barrier_names_who_is_missing(all_ranks):
    zero, one, two, three = launch(workers.two_are_late, all_ranks, ranks=4)
    assert ("Ranks 1, 2" if all_ranks else "Rank 1") in zero
    assert "check rank 0 logs" in three
    assert one and two  # a rank that comes later fails as well


# What it says of nodes


@pytest.fixture(scope="module")
def agent_runs():
    """Two torchruns with 2 and 3 ranks, as the page starts them."""
    return nodes.on_nodes([2, 3])


@pytest.mark.push("torchrun again")
def test_ranks_count_through_the_nodes_and_local_ranks_start_again(agent_runs):
    who = nodes.environment(agent_runs)
    assert list(who["RANK"]) == [0, 1, 2, 3, 4] and set(who["WORLD_SIZE"]) == {5}
    assert list(who["GROUP_RANK"]) == [0, 0, 1, 1, 1]
    assert list(who["LOCAL_RANK"]) == [0, 1, 0, 1, 2]
    formula = who["GROUP_RANK"] * who["LOCAL_WORLD_SIZE"] + who["LOCAL_RANK"]
    assert list(formula == who["RANK"]) == [True, True, False, False, False]


@pytest.mark.push("torchrun again")
def test_node_0_keeps_the_store_that_all_ranks_know(agent_runs):
    assert nodes.store_node(agent_runs) == 0
    assert nodes.environment(agent_runs)["MASTER_PORT"].nunique() == 1


@pytest.mark.long
def test_the_local_rank_finds_a_gpu_and_the_rank_does_not(agent_runs):
    table = nodes.devices(nodes.environment(agent_runs))
    missing = table["cuda:RANK"].str.contains("does not exist")
    assert list(missing) == [False, False, False, True, True]
    assert table["cuda:RANK"][2] == "cuda:2: the GPU of rank 4"
    assert not table["cuda:LOCAL_RANK"].str.contains("not").any()


@pytest.mark.gpu
def test_visible_gpus_are_numbered_anew():
    def visible_devices(visible: str | None) -> list[str]:
        chosen = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        command = [sys.executable, "-m", "tests.workers.process_groups_workers"]
        root = ROOT
        result = subprocess.run(
            command, env=os.environ | chosen, cwd=root, capture_output=True, text=True, check=True
        )
        return result.stdout.split()

    every = visible_devices(None)
    assert visible_devices("1,0") == [every[1], every[0]]


# The pages themselves


@pytest.fixture(scope="module")
def pages() -> dict[str, nbformat.NotebookNode]:
    """The notebooks as shipped, by their stem."""
    return {path.stem: nbformat.read(path, as_version=4) for path in PAGES}


def test_cells_that_fail_on_purpose_are_these(pages):
    tagged = {
        stem: [c.id for c in page.cells if "raises-exception" in c.metadata.get("tags", [])]
        for stem, page in pages.items()
    }
    assert tagged == {
        "03_process_groups": ["order-hang"],
        "03_further_stores": ["port-taken"],
        "03_further_groups_and_meshes": ["members-hang"],
        "03_further_waiting": [],
    }


def test_cells_that_hang_on_purpose_are_stopped_soon(pages):
    cells = [cell for page in pages.values() for cell in page.cells if cell.id.endswith("-hang")]
    assert len(cells) == 2
    assert all(re.search(r"--timeout 1\.5( |$)", cell.source.splitlines()[0]) for cell in cells)


def test_no_cell_writes_where_another_kernel_of_the_folder_reads(pages):
    code = [c.source for page in pages.values() for c in page.cells if c.cell_type == "code"]
    assert [source for source in code if "work/" in source] == []
