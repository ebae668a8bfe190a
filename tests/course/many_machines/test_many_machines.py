"""Chapter 07's page: pretend hosts, when they meet, what breaks, submitting, speed-up."""

import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousTimeout

from ddp_workbook import show_code
from ddp_workbook.chapters import many_machines
from ddp_workbook.chapters.results import COLUMNS, read_results
from ddp_workbook.experiments.many_machines import jobs, launchers, rendezvous_faults, scaling
from ddp_workbook.judging.catalogue import find
from manyranks.errors import LaunchRefused, WorkbookError
from manyranks.launcher.agents import AgentRun, Line, error_of, parse_line, run_agents
from manyranks.launcher.launch import launch
from manyranks.launcher.rendezvous import free_port
from tests.leaks import no_rank_left, wait_until  # noqa: F401 (a fixture)

WAIT = """
import sys, time
print("here", flush=True)
time.sleep(600)
"""
CORES = 2  # of the machine that the recorded ranks shared
LONG = 300  # seconds; a quiet machine needs ten
ANY_ADDRESS = {"::", "0.0.0.0"}


def running(path: Path) -> list[int]:
    """The processes whose command line names `path`."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if str(path) in " ".join(process.info["cmdline"] or []):
            found.append(process.pid)
    return found


# Pretend hosts


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """The table of results that the runs of this file share."""
    return tmp_path_factory.mktemp("results") / "results.csv"


@pytest.fixture(scope="module")
def hosts(results) -> dict[str, AgentRun]:
    """The run of the page: two torchruns with two ranks each, the second a second late."""
    return launchers.run_on_hosts("--epochs", "1", "--results", results, quiet=True, timeout=LONG)


@pytest.mark.push("hosts and Slurm")
def test_two_torchruns_give_four_ranks_their_places(hosts):
    assert [run.returncode for run in hosts.values()] == [0, 0]
    table = launchers.environment_table(hosts)
    places = table[["RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE"]].to_numpy().tolist()
    assert places == [[r, local, g, "4"] for r, local, g in ("000", "110", "201", "311")]
    assert table["node"].nunique() == 2 and table["MASTER_PORT"].nunique() == 1


@pytest.mark.push("torchrun again")
def test_the_program_on_two_hosts_ends_as_on_one_process(hosts, results):
    """The same file, the same words, another launcher."""
    alone = launch(many_machines.train, epochs=1, ranks=1)[0]
    (row,) = read_results(results).to_dict("records")
    assert row["ranks"] == 4 and row["program"] == "many_machines"
    assert row["loss"] == pytest.approx(sum(alone.losses) / len(alone.losses), abs=1e-4)
    assert row["accuracy"] == pytest.approx(alone.accuracy, abs=1e-4)


@pytest.mark.push("torchrun again")
def test_recorded_jobs_ended_alike(hosts, results):
    """Slurm and PBS have started the program that this machine has started by torchrun."""
    table = launchers.every_launcher(results, ["torchrun"])
    assert list(table["started by"]) == ["torchrun", *launchers.JOB_LABELS.values()]
    assert table["loss"].max() - table["loss"].min() < 1e-4
    environment = launchers.read_environment("Slurm")
    assert list(environment["RANK"]) == ["0", "1", "2", "3"]
    assert list(environment["SLURM_PROCID"]) == ["0", "0", "1", "1"]
    assert set(environment["SLURM_NTASKS"]) == {"2"}, "Slurm's tasks are the torchruns"


@pytest.mark.push("torchrun again")
def test_the_transcript_shows_command_lines_and_roll_call(hosts):
    text = launchers.transcript(hosts)
    assert text.count("$ torchrun --nnodes 2 --nproc-per-node 2 ") == 2
    assert len(re.findall(r"\[node[12]\] rank \d: host ", text)) == 4
    assert text.count(" \\\n    --rdzv-backend c10d --rdzv-id run1 ") == 2
    assert "--local-addr" not in text and "--tee" not in text
    assert "frame #" not in text and "torch/distributed" not in text


@pytest.mark.push("torchrun again")
def test_the_picture_has_the_order_of_a_meeting(hosts):
    """Ranks start when the ranks are given, and meet when the last one has reached the store."""
    times = launchers.rendezvous(hosts)
    assert len(times.intervals) == 3 * (2 + 4)
    starts = times.intervals[times.intervals["what"] == launchers.STARTS]
    agents, ranks = starts[starts["rank"].isna()], starts.dropna()
    waits = times.intervals[times.intervals["what"] == launchers.WAITS]
    tick = 0.5  # workers are looked at, and --tee reads what they print, ten times a second
    assert agents["end"].max() <= times.assignment_time + tick
    assert ranks["start"].min() >= waits["end"].min() - tick
    assert ranks["end"].max() <= times.meeting_time + tick
    assert (times.intervals["start"] <= times.intervals["end"] + tick).all()
    picture = launchers.rendezvous_plot(times)
    assert f"{times.store_host} keeps the store" in picture.alt
    assert len(picture.axes.patches) == 3 * (2 + 4)


@pytest.mark.push("torchrun again")
def test_torchruns_store_listens_on_every_network(hosts):
    """Although the endpoint is loopback: the page and the README warn of it."""
    assert launchers.store_addresses(hosts) <= ANY_ADDRESS and launchers.store_addresses(hosts)


def test_a_run_that_failed_has_no_picture():
    """The error of the torchrun is told instead."""
    lines = [Line(1.0, None, "RendezvousTimeoutError", log=False)]
    run = AgentRun("node a", "torchrun", 1, 0.0, 1.0, lines)
    with pytest.raises(WorkbookError, match="node a: RendezvousTimeoutError"):
        launchers.rendezvous({"node a": run})


@pytest.mark.release("hosts are numbered by name")
def test_hosts_are_numbered_by_name_as_text_not_by_arrival():
    """The first to come is 127.0.0.2, and gets the second place: as text, 127.0.0.10 is less."""
    if sys.platform != "linux":
        pytest.skip("only Linux has all of 127.0.0.0/8")
    line = ["--nnodes", "2", "--rdzv-backend", "c10d"]
    line += ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--no-python", "true"]
    lines = {
        "first": ["--local-addr", "127.0.0.2", *line],
        "second": ["--local-addr", "127.0.0.10", *line],
    }
    told = {"LOGLEVEL": "INFO"}
    runs = run_agents(lines, delays={"second": 1}, environment=told, timeout=LONG, quiet=True)
    ranks = {
        host: next(x.text for x in run.lines if x.text.strip().startswith("group_rank"))
        for host, run in runs.items()
    }
    assert ranks["first"].strip() == "group_rank=1" and ranks["second"].strip() == "group_rank=0"


# They end with the cell


@pytest.mark.long
def test_a_torchrun_is_stopped_at_the_time_limit(tmp_path, capsys):
    """A cell cannot hang: what ran is gone, and the page says what happened."""
    program = tmp_path / "wait.py"
    program.write_text(WAIT)
    run = run_agents({"node a": ["--standalone", str(program)]}, timeout=5)["node a"]
    assert run.returncode is None
    assert "was still running at the time limit, and was stopped" in capsys.readouterr().out
    assert running(program) == []


@pytest.mark.push("hosts and Slurm")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_no_torchrun_outlives_the_page(tmp_path, end):
    """After an interrupt, and after the end of the kernel, neither torchruns nor ranks are left."""
    program = tmp_path / "wait.py"
    program.write_text(WAIT)
    command = [sys.executable, "-m", "tests.workers.pretend_host", str(program)]
    # What a killed page leaves behind is removed with this folder; its sockets need a short path.
    folder = tempfile.mkdtemp(prefix="page-")
    page = subprocess.Popen(
        command,
        env=os.environ | {"TMPDIR": folder},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = threading.Timer(LONG, page.kill)
    limit.start()
    try:
        here = 0
        while here < 4:  # two ranks on two hosts
            line = page.stdout.readline()
            assert line, page.stderr.read()
            here += "] here" in line
        assert len(running(program)) >= 1 + 2 + 4
        page.send_signal(end)
        _, said = page.communicate(timeout=LONG)
        assert (end == signal.SIGKILL) or "All hosts and their ranks have ended." in said
        assert wait_until(lambda: running(program) == [])
    finally:
        limit.cancel()
        page.kill()
        for pid in running(program):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def test_no_host_and_no_time_are_refused():
    with pytest.raises(LaunchRefused, match="give at least one host"):
        run_agents({})
    with pytest.raises(LaunchRefused, match="timeout"):
        run_agents({"node a": ["program.py"]}, timeout=0)


# What torchrun prints


def test_a_line_is_taken_apart():
    """Which worker wrote a line, when, and whether it is torch's log: Python's and C++'s."""
    began = time.mktime((2026, 11, 22, 23, 59, 58, 0, 0, -1))
    prefix = "I1123 00:00:01.500000 77 .venv/lib/python3.11/site-packages/torch/run.py:7] "
    assert parse_line(prefix + "Using", 9.0, began) == Line(3.5, None, "Using", log=True)
    told = parse_line("[default1]:[rank3]:[W1122 23:59:59.250000123 socket.cpp:7] no", 9.0, began)
    assert told == Line(9.0, 1, "no", log=True), "the log of C++ does not know the fraction"
    assert parse_line("[default0]:epoch 1", 9.0, began) == Line(9.0, 0, "epoch 1", log=False)
    assert parse_line("frame #3: main", 9.0, began).log


def test_the_last_error_is_the_one_to_tell():
    texts = ["OSError: first", "torch.distributed.DistStoreError: second", "see above: Error"]
    assert error_of([Line(0.0, None, text, log=False) for text in texts]).endswith("second")
    assert error_of([Line(0.0, 0, "ValueError: a rank's own", log=False)]) == ""


# What breaks


@pytest.fixture(scope="module")
def hosts_to_play_with():
    return rendezvous_faults.play_hosts()


@pytest.mark.push("breakages between hosts")
@pytest.mark.parametrize(
    ("how", "words"),
    [
        (rendezvous_faults.SLOW, r"node2: rank 2: all ranks have met after 0\.\d s"),
        (
            rendezvous_faults.ABSENT,
            r"node1: after \S+ s: RendezvousTimeoutError\. node2: \(torchrun was not",
        ),
        (
            rendezvous_faults.NAME,
            r"node1: after \S+ s: RendezvousTimeoutError\. node2: .*gai error: -?\d",
        ),
        (
            rendezvous_faults.PORT,
            r"node2: after \S+ s: RendezvousConnectionError: timed out after \d+ms",
        ),
        # node1 takes its store along: the other sees that, or its own time is up
        (
            rendezvous_faults.JOB,
            r"node1: .*RendezvousTimeoutError.* node2: .*Rendezvous(Timeout|Connection)Error",
        ),
        (
            rendezvous_faults.INTERFACE,
            r"node2: .*RuntimeError: Unable to find (address|interface).*eth9",
        ),
    ],
)
def test_each_fault_between_hosts_has_its_own_words(how, words, hosts_to_play_with):
    play = hosts_to_play_with
    answer = play.answer_to(play.values | {"fault": how})
    assert answer.error is None and re.search(words, answer.words), answer.words
    assert ("What to do" in answer.words) == bool(rendezvous_faults.ADVICE[how])
    assert answer.output == ""


@pytest.mark.push("breakages between hosts")
def test_hosts_meet_and_number_their_ranks(hosts_to_play_with):
    """The player begins with the node that never comes, which its question is about."""
    play = hosts_to_play_with
    assert play.values["fault"] == rendezvous_faults.ABSENT
    for name, value in {"fault": rendezvous_faults.NOTHING, "hosts": 3, "each": 1}.items():
        play.controls[name].value = value
    play.wait()
    assert "node3: rank 2: all ranks have met" in play.answer.words
    assert "3 ranks answered" in play.status.value


def test_the_default_patience_is_what_the_page_says():
    """Ten minutes for another host, one for the endpoint's; only then the error names a host."""
    assert RendezvousTimeout().join.total_seconds() == 600
    source = inspect.getsource(c10d_rendezvous_backend)
    assert 'params.get_as_int("read_timeout", 60)' in source
    by_name = {fault["name"]: fault for fault in rendezvous_faults.records()}
    assert "node2" not in rendezvous_faults.key_sentence(by_name["host_never_comes"])
    assert "(node1, 29400)" in rendezvous_faults.key_sentence(by_name["head_never_comes"])


def test_the_error_of_a_public_address_is_recorded():
    """Both hosts time out at an endpoint that no host takes for its own."""
    (fault,) = [
        each for each in rendezvous_faults.records() if each["name"] == "head_does_not_know_itself"
    ]
    assert fault["exit_code"] == {"node1": 1, "node2": 1}
    assert all("timed out" in message for message in fault["message"].values())


def test_recorded_faults_hold_their_key_sentences():
    """Each with its advice; three raise no error, which the page says as well."""
    table = rendezvous_faults.read_faults()
    assert len(table) == len(rendezvous_faults.FAULT_ADVICE) and table["message"].all()
    assert table["message"].str.startswith("none").sum() == 3
    assert table["message"].iloc[0] == "Connection refused, remote=[127.0.0.1]"


# From the notebook to the scheduler


@pytest.fixture
def scheduler(tmp_path, monkeypatch):
    """A folder that is the only one on PATH; `make(name, script)` puts a command there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(jobs, "JOB_SCRIPTS", tmp_path)
    for ending in jobs.ENDINGS.values():
        (tmp_path / f"my_job{ending}").write_text("#!/bin/bash\n")

    def make(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return make


def test_without_a_scheduler_nothing_is_submitted(scheduler):
    for really in (False, True):
        words = jobs.submit("my_job", really)
        assert "neither sbatch nor qsub" in words
        assert "sbatch my_job.slurm" in words and "qsub my_job.pbs" in words


@pytest.mark.parametrize("command, ending", jobs.ENDINGS.items())
def test_a_job_is_submitted_only_if_the_reader_says_so(scheduler, tmp_path, command, ending):
    scheduler(command, 'echo "took $1 in $PWD"; echo "$1" >> submitted')
    assert f"{command} my_job{ending}" in jobs.submit("my_job")
    assert not (tmp_path / "submitted").exists()
    assert f"took my_job{ending} in {tmp_path}" in jobs.submit("my_job", confirm=True)
    assert jobs.WATCH[command] in jobs.submit("my_job", confirm=True)


def test_what_the_scheduler_refuses_is_told_in_its_words(scheduler):
    scheduler("sbatch", 'echo "sbatch: error: invalid partition" >&2; exit 1')
    with pytest.raises(WorkbookError, match="invalid partition"):
        jobs.submit("my_job", confirm=True)
    with pytest.raises(WorkbookError, match=r"There is no other_job\.slurm"):
        jobs.submit("other_job", confirm=True)


def test_the_stub_is_what_a_cell_of_the_page_holds():
    """IPython strips white space at the ends of lines, also of the scripts in a string."""
    lines = find("fix_job_script").stub.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_job_script_is_shown_as_it_is():
    script = jobs.job_script("distributed_data_parallel_nodes.slurm")
    listing = show_code(script)
    assert script.read_text().rstrip() in repr(listing)
    assert repr(listing).startswith("job_scripts/distributed_data_parallel_nodes.slurm")
    assert "#SBATCH" in listing._repr_html_()


# Speed-up and efficiency


def study(*runs: tuple[int, int, float], **same) -> pd.DataFrame:
    """A table of results with these ranks, batch sizes and samples a second."""
    rows = [
        dict.fromkeys(COLUMNS, "") | {"program": "p", "device": "cpu", "width": 8, "depth": 1}
        | {"ranks": ranks, "batch_size": batch, "samples_per_second": rate} | same
        for ranks, batch, rate in runs
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_strong_and_weak_scaling_are_told_apart():
    """512 rows for 1, 2 and 4 ranks; 128 rows a rank; the run that is in both counts in both."""
    tables = scaling.scaling(
        study((1, 512, 100), (2, 512, 180), (4, 512, 200), (1, 128, 90), (2, 256, 171))
    )
    assert tables["strong"]["speed-up"].tolist() == [1, 1.8, 2]
    assert tables["strong"]["efficiency"].tolist() == [1, 0.9, 0.5]
    assert tables["weak"]["batch_size"].tolist() == [128, 256, 512]
    assert tables["weak"]["efficiency"].tolist() == pytest.approx([1, 0.95, 200 / 360])


def test_repeated_runs_count_by_their_median_and_another_model_not_at_all():
    mixed = pd.concat([
        study((1, 64, 100), (1, 64, 10), (1, 64, 110), (2, 64, 150)),
        study((1, 64, 7), width=1024),
    ])  # fmt: skip
    assert scaling.scaling(mixed)["strong"]["speed-up"].tolist() == [1, 1.5]


def test_a_study_may_begin_with_more_ranks_than_one():
    """Then perfect means in proportion to these."""
    table = scaling.scaling(study((4, 64, 100), (8, 64, 150)))["strong"]
    assert table["speed-up"].tolist() == [1, 1.5]
    assert table["efficiency"].tolist() == [1, 0.75]


def test_one_number_of_ranks_is_no_study(tmp_path):
    with pytest.raises(WorkbookError, match="two different numbers of ranks"):
        scaling.scaling(study((2, 64, 100), (2, 128, 100)))
    assert scaling.own_study(tmp_path / "none.csv") == {}


def test_the_recorded_study_is_complete_and_drawn():
    """Strong and weak, each at 1, 2, 4 and 8 ranks, all of one model."""
    tables = scaling.read_study()
    assert {kind: list(table["ranks"]) for kind, table in tables.items()} == {
        "strong": [1, 2, 4, 8],
        "weak": [1, 2, 4, 8],
    }
    at_eight = {kind: table["efficiency"].iloc[-1] for kind, table in tables.items()}
    assert at_eight["strong"] < at_eight["weak"], "as the page says"
    assert tables["strong"]["speed-up"].iloc[1] > 1.2, "two ranks, with a core each, gain"
    assert tables["strong"]["speed-up"].iloc[-1] < 1, "eight are slower than one"
    for table in tables.values():
        most = (CORES / table["ranks"]).clip(upper=1)
        assert (table["efficiency"] <= most).all(), "two cores do no more than the work of two"
    assert tables["strong"].iloc[-1]["samples_per_second"] == pytest.approx(
        tables["weak"].iloc[-1]["samples_per_second"]
    )
    picture = scaling.scaling_plot(tables)
    assert "strong: 1 rank 100%, 2 ranks" in picture.alt
    assert len(picture.figure.axes) == 2
    assert len(scaling.joined_table(tables)) == 8


def test_two_schedulers_side_by_side_and_all_other_lines_are_the_same():
    table = jobs.directives_table("distributed_data_parallel_nodes")
    assert list(table.loc["nodes"]) == ["--nodes=2", "select=2"]
    assert table.notna().all(axis=None) and (table["Slurm"] != table["PBS"]).all()
    code = [
        [line for line in jobs.job_script(name).read_text().splitlines() if line[:1] not in "#"]
        for name in (f"distributed_data_parallel_nodes{end}" for end in jobs.ENDINGS.values())
    ]
    assert [pair for pair in zip(*code, strict=True) if pair[0] != pair[1]] == [
        (code[0][0], code[1][0]),
        ("source ./start_ranks.sh slurm", "source ./start_ranks.sh pbs"),
    ]
