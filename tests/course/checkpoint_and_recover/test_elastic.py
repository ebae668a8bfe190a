"""Page 08 "Hosts come and go": what it says of torchrun, and what it has recorded."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ddp_workbook.experiments.checkpoint_and_recover import elastic
from tests.leaks import no_rank_left, wait_until  # noqa: F401 (a fixture)

pytestmark = pytest.mark.push("hosts that come and go")


def test_the_recorded_run_is_what_the_page_tells():
    results = elastic.read_results()
    log = elastic.attempts(results["lost and back"])
    assert list(log["world_size"]) == [2, 2, 1, 2, 2]
    assert list(log["torchelastic_restart_count"].iloc[2:]) == [1, 1, 0]
    assert list(log["last"].iloc[:2]) == [elastic.HOST_LOSS_STEP] * 2 and log["first"].iloc[2] == 11
    assert list(log["first"].iloc[3:]) == [log["last"].iloc[2] + 1] * 2, "no step is lost"
    clean = elastic.clean_restarts(results["restarts needed"])
    assert list(clean["failures"]) == [elastic.TRIES] * 2
    assert clean.loc["a new store for each", "1 restart"] == elastic.TRIES
    assert clean.loc["one store for all attempts", "1 restart"] < elastic.TRIES
    assert "RendezvousConnectionError" in results["store lost"]["error"].item()


def test_a_restart_keeps_the_folder_alone(no_rank_left):  # noqa: F811
    run = elastic.run_with_restart()
    table = elastic.state_across_restart(run).T
    assert run.returncode == 0
    assert list(table["A_NOTE at the start"]) == ["not set"] * 2
    assert list(table["steps done, from the folder"]) == [0, 5]
    for new in ("process", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"):
        assert table[new].is_unique


def test_record_names_the_cause():
    assert "shard 7 is empty" not in elastic.report()
    assert "ValueError: shard 7 is empty" in elastic.report("record")


@pytest.mark.release("hosts that are lost and come back, and 20 restarts of torchrun")
def test_told_to_stop(no_rank_left):  # noqa: F811
    """Which step it is depends on when the signal comes; half a file is never taken for a save."""
    table = elastic.signal_outcomes()
    assert list(table["torchrun ends with"]) == [1, 1, -10, 1]
    saved = table["newest save"].str.split().str[-1].astype(int)
    assert saved.iloc[0] in (7, 8) and saved.iloc[3] in (7, 8)
    assert saved.iloc[1] == 5 and table["half a file"].iloc[1]


def test_another_number_of_ranks_goes_on_with_the_same_losses():
    assert elastic.furthest_loss() < 1e-5


@pytest.mark.release("hosts that are lost and come back, and 20 restarts of torchrun")
def test_a_host_is_lost_and_comes_back(no_rank_left):  # noqa: F811
    runs = elastic.lose_a_host()
    assert [run.returncode for run in runs.values()] == [0, -9, 0]
    log = elastic.attempts(elastic.events(runs))
    assert list(log["world_size"]) == [2, 2, 1, 2, 2]
    assert log["first"].iloc[-1] == log["last"].iloc[2] + 1


@pytest.mark.release("hosts that are lost and come back, and 20 restarts of torchrun")
def test_with_a_store_of_its_own_each_restart_is_clean():
    assert [elastic.restarts_needed(elastic.OWN_STORE) for _ in range(20)] == [1] * 20


if find_spec("torchft"):  # an optional package; a skip would fail where nothing may skip

    def test_with_torchft_a_replica_dies_and_nobody_starts_again(tmp_path):
        """The other one goes on alone, and gives a newcomer its weights."""
        from torchft.coordination import LighthouseServer

        lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=1000)
        port = lighthouse.address().rpartition(":")[2]
        own = {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}", "OMP_NUM_THREADS": "1"}
        running = []

        def start(replica: int) -> Path:
            log = tmp_path / str(len(running))
            line = [sys.executable, "tests/workers/with_torchft.py", "1000"]
            with log.open("w") as out:
                running.append(
                    subprocess.Popen(
                        line, env=os.environ | own | {"REPLICA": str(replica)}, stdout=out
                    )
                )
            return log

        try:
            first, second = start(0), start(1)
            assert wait_until(lambda: second.read_text().count("2 replicas") > 3, 120)
            running[1].kill()
            assert wait_until(lambda: first.read_text().count("1 replicas") > 5, 120)
            third = start(1)
            assert wait_until(lambda: third.read_text().count("2 replicas") > 3, 120)
        finally:
            for process in running:
                process.kill()
                process.wait()
            lighthouse.shutdown()
        together = set(first.read_text().splitlines()[-20:]) & {
            line.replace("replica 1", "replica 0") for line in third.read_text().splitlines()
        }
        assert together, "the same weights after the same step"
