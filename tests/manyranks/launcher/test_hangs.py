"""A launch that does not end: the page says where each rank stands and which call it missed."""

import re
import time
from pathlib import Path

import pytest
from torch import nn

from manyranks.diagnostics import advice, failure_report
from manyranks.diagnostics.evidence import Evidence, State
from manyranks.diagnostics.mismatches import Kind, mismatches
from manyranks.diagnostics.positions import position_from_stack
from manyranks.errors import Proof, RanksHung
from manyranks.launcher import launch as launch_module
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import run_ranks
from tests.hang_proofs import hang_of, warm  # noqa: F401 (warm is a fixture)
from tests.leaks import no_rank_left  # noqa: F401
from tests.workers import hanging_import, hangs, launching

LINES = Path(hangs.__file__).read_text().splitlines()


def hang(worker, *args, ranks=2, timeout=1.0) -> RanksHung:
    """The error, which comes soon after the time limit: what does not end would take a minute.

    Where the machine is busy, the ranks get longer to come to their lines, and to answer.
    """
    start = time.monotonic()
    run_ranks(Call(launching.all_reduce), 2, quiet=True)
    pace = time.monotonic() - start  # 0.1 s on a quiet machine
    limit = max(1.0, 8 * pace) if timeout == 1 else timeout
    start = time.monotonic()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RanksHung) as caught:
        answer = max(launch_module.POSITION_TIMEOUT_S, pace)
        patch.setattr(launch_module._ask, "__defaults__", (answer,))  # its `patience`
        run_ranks(Call(worker, args), ranks, limit, quiet=True)
    assert time.monotonic() - start < limit + 30  # seen: 0.1 to 1 s more
    return caught.value


def stands(error: RanksHung, rank: int, doing: str, line: str) -> bool:
    """True if the page has a row for the rank that names this line of hangs.py, by number too."""
    row = next(r for r in str(error).splitlines() if re.match(rf" +rank {rank} ", r))
    number = re.search(r"hangs\.py:(\d+)", row)
    return doing in row and bool(number) and line in LINES[int(number[1]) - 1]


def test_a_skipped_collective():
    error = hang(hangs.skipped_collective, ranks=4)
    assert stands(error, 0, "waits in broadcast", "dist.broadcast(x, src=0)")
    assert stands(error, 1, "waits in all_reduce", "# rank 1 is one call ahead")
    assert "Call 2 of the default group differs between the ranks" in str(error)
    assert re.search(r"rank 1 called all_reduce of float \[4\] \(.*hangs.py:\d+\)", str(error))
    assert re.match(r"4 of 4 ranks did not finish within \S+ s and were stopped\.", str(error))


def test_a_collective_under_if_rank_0():
    error = hang(hangs.under_if_rank_0, ranks=3)
    assert stands(error, 0, "waits in all_reduce", "dist.all_reduce(x)")
    assert stands(error, 2, "is at", "time.sleep(0.01)")
    assert re.search(
        r"Call 2 of the default group, all_reduce of float \[4\] \(.*hangs.py:\d+\): "
        r"entered by rank 0, never by ranks 1 and 2\.",
        str(error),
    )


def test_two_ranks_in_different_collectives():
    error = hang(hangs.two_collectives)
    assert stands(error, 0, "waits in all_reduce", "dist.all_reduce(x)")
    assert re.search(
        r"Call 1 of .* differs .*rank 0 called all_reduce.*rank 1 called broadcast",
        str(error),
    )


def test_the_same_operation_from_two_lines_is_a_matter_of_order():
    """Such as a backward pass that one rank leaves out: its next all_reduce meets DDP's."""
    call = {"group": "0", "seq": 1, "op": "all_reduce", "dtypes": ["float"], "finished": False}
    records = {
        rank: {"entries": [call | place], "groups": {"0": [0, 1]}, "group_count": 1}
        for rank, place in enumerate(
            ({"shapes": [[10]], "file": "t.py", "line": 8}, {"shapes": [[]], "file": "t.py"})
        )
    }
    for line, kind in ((9, Kind.OPERATIONS), (8, Kind.TENSORS)):
        records[1]["entries"][0]["line"] = line
        (found,) = mismatches(records, [])
        assert found.kind is kind, found


def test_a_rank_that_compiles_waits_for_nobody():
    """DDP's forward is around it, and torch's compiler innermost."""
    torch = str(Path(nn.__file__).parents[1])
    stack = [
        (f"{torch}/_inductor/compile_fx.py", 1, "compile_fx"),
        (f"{torch}/_dynamo/convert_frame.py", 1, "_compile"),
        (f"{torch}/nn/parallel/distributed.py", 1, "forward"),
        (hangs.__file__, 3, "main"),
    ]
    place = position_from_stack(Evidence(0, State.WORKING, stack=stack))
    assert place.state is State.COMPILING and place.line == 3 and not place.communicates
    assert advice.for_hang([place], []) == advice.COMPILES
    waits = position_from_stack(Evidence(0, State.WORKING, stack=stack[2:]))
    assert waits.state is State.WAITING


def test_new_group_by_members_only():
    error = hang(hangs.new_group_by_members, ranks=3)
    calls = "2 calls by ranks 0 and 1, 1 call by rank 2"
    assert stands(error, 0, "waits in new_group", "dist.new_group([0, 1")
    assert f"new_group (init_device_mesh calls it too): {calls}." in str(error)
    assert "Every rank of the world must call it in the same order, even those" in str(error)


def test_a_mesh_that_one_rank_does_not_make():
    error = hang(hangs.mesh_by_some, ranks=4)
    assert stands(error, 0, "waits in init_device_mesh", "init_device_mesh(")
    assert "no calls by rank 1." in str(error)


@pytest.mark.parametrize(
    ("worker", "rank", "doing", "line"),
    [
        (hangs.both_receive, 1, "waits in recv", "dist.recv(x"),
        (hangs.send_without_recv, 0, "waits in send", "dist.send(x"),
    ],
)
def test_send_and_recv_that_do_not_match(worker, rank, doing, line):
    error = hang(worker)
    assert stands(error, rank, doing, line)
    assert "Each send needs a recv on the other rank." in str(error)


@pytest.mark.parametrize("call", ["send", "recv", "isend", "wait", "batch_isend_irecv"])
def test_a_send_or_recv_whose_peer_is_busy(call):
    text = str(hang(hangs.one_sided, call))
    assert f"look at   {advice.PAIRS}" in text and "did not reach it" not in text


@pytest.mark.parametrize("how", ["pool", "thread"])
def test_a_rank_that_entered_in_a_thread_did_reach_it(how):
    text = str(hang(hangs.collectives_in_a_thread, how))
    assert re.search(r"rank 0 called all_reduce .*; rank 1 called barrier", text)
    assert text.endswith(f"look at   {advice.SAME_ORDER}")


def test_a_rank_that_entered_and_went_on_did_reach_it():
    text = str(hang(hangs.asynchronous_and_busy))
    assert "entered by rank 0, never by rank 1." in text
    assert "look at   Rank 1 did not reach it." in text


@pytest.mark.parametrize(
    ("what", "doing", "line", "look"),
    [
        ("event", "is in wait", "threading.Event().wait()", advice.NO_LOOP),
        ("condition", "is in wait", "changed.wait()", advice.NO_LOOP),
        ("program", "is in wait", 'subprocess.Popen(["sleep", "60"]).wait()', advice.NO_LOOP),
        ("process", "is in join", "process.join()", advice.OWN_PROCESSES),
        ("thread", "is in join", "receives.join()", advice.NO_LOOP),
    ],
)
def test_a_wait_for_something_of_the_ranks_own_is_no_communication(what, doing, line, look):
    error = hang(hangs.waits_for_its_own, what)
    assert stands(error, 0, doing, line)
    assert not any(place.communicates for place in error.positions)
    assert str(error).endswith(f"look at   {look} {advice.TAKE_LONGER}")


def test_the_error_that_ended_a_thread():
    error = hang(hangs.waits_for_a_thread_that_failed)
    line = 1 + next(n for n, text in enumerate(LINES) if text.startswith("        raise OSError(2"))
    said = "A thread of rank 0 ended by FileNotFoundError: [Errno 2] no such file: 'weights.pt'"
    assert f"\n  {said}\n    raised at tests/workers/hangs.py:{line}  raise OSError" in str(error)
    assert "look at   Rank 0 did not reach it." in str(error)


def test_a_rank_that_has_not_begun_to_work_has_no_line_to_look_at():
    for phase, state in ((State.STARTING, "starting"), (State.IMPORTING, "importing the worker's")):
        rank = Evidence(0, phase, stack=[("<frozen importlib._bootstrap>", 1, "_load")])
        page = failure_report.positions_page([rank], "Interrupted.")
        assert f"rank 0  is {state}" in page and "look at" not in page
    error = failure_report.hang([rank], 1.0)
    assert str(error).endswith(f"\n  look at   {advice.TAKE_LONGER}")


# What rank 1 waits in -> the error that it handles there
AFTER_AN_ERROR = {
    "finally": "ValueError: rank 1 is broken",
    "with": "ValueError: rank 1 is broken",
    "generator": "FileNotFoundError: [Errno 2] no such file: 'weights.pt'",
    "except": "KeyError: 'weights'",
    "group": "ExceptionGroup: two things (1 sub-exception)",
    "blocks": "Blocks('weights', 3, <module>)",
}


@pytest.mark.parametrize("how", AFTER_AN_ERROR)
def test_the_error_that_a_waiting_rank_is_handling(how):
    error = hang(hangs.waits_after_an_error, how)
    assert stands(error, 1, "waits in barrier", "dist.barrier()")
    line = 1 + next(n for n, text in enumerate(LINES) if text.endswith("raise error"))
    said = (
        f"\n  Rank 1 is handling {AFTER_AN_ERROR[how]}\n    raised at tests/workers/hangs.py:{line}"
    )
    assert said in str(error)
    assert f"look at   {advice.WHILE_HANDLING.format(who='Rank 1')}" in str(error)


def test_the_error_is_told_of_a_hang_that_is_proven():
    error = hang_of(hangs.waits_after_an_error, "finally")
    assert error.proof is not Proof.TIME
    assert "Rank 1 is handling ValueError: rank 1 is broken" in str(error)


@pytest.mark.parametrize(
    ("worker", "error", "look"),
    [
        (
            hangs.sleeps_after_an_error,
            "Rank 1 is handling ValueError: rank 1 is broken",
            "Rank 1 did not reach it. It is handling an error.",
        ),
        (
            hangs.hangs_without_a_package,
            "Ranks 0 and 1 are handling ModuleNotFoundError: No module named",
            f"Rank 1 did not reach it. {advice.NO_LOOP}",
        ),
    ],
)
def test_an_error_that_is_handled_is_a_fact_and_not_the_cause(worker, error, look):
    text = str(hang(worker))
    assert f"\n  {error}" in text and f"look at   {look}" in text


def test_a_subgroups_collective():
    error = hang(hangs.subgroup, ranks=3)
    assert "Call 1 of the group of ranks 0 and 2, all_reduce of float [3]" in str(error)
    assert "entered by rank 0, never by rank 2." in str(error)
    assert re.search(r"rank 1 +has returned", str(error))


@pytest.mark.parametrize(
    ("worker", "call"),
    [
        (hangs.monitored_barrier, "monitored_barrier"),
        (hangs.without_a_rank, "init_process_group"),
    ],
)
def test_calls_that_meet_in_the_store(worker, call):
    error = hang(worker)
    assert stands(error, 0, f"waits in {call}", f"dist.{call}(")
    assert f"{call}: entered by rank 0, never by rank 1." in str(error)


def test_ddp_with_unequal_numbers_of_batches():
    error = hang(hangs.uneven_batches)
    assert stands(error, 1, "waits in backward", ".sum().backward()")
    assert re.search(r"all_reduce of float \[10\] .*entered by rank 1, never by rank 0", str(error))


@pytest.mark.parametrize(
    ("worker", "says"),
    [
        (hangs.rank_0_evaluates, r"rank 0 called barrier .*rank 1 called all_reduce"),
        (hangs.objects, r"all_gather of long \[1\].*entered by rank 0, never by rank 1"),
    ],
)
def test_rank_0_does_more_than_the_others(worker, says):
    assert re.search(says, str(hang(worker)))


@pytest.mark.parametrize(
    ("worker", "line", "look"),
    [
        (hangs.before_init, r"time.sleep\(0.01\)", advice.LOOP),
        (hangs.python_loop, "while True:|n += 1", advice.LOOP),
        # holds the GIL: no thread can answer
        (hangs.c_loop, r"sum\(range\(10\*\*12\)\)", advice.NO_LOOP),
        (hangs.own_signal_handler, r"time.sleep\(60\)", advice.NO_LOOP),
        (hangs.packs_for_ever, r"time.sleep\(0.01\)", advice.LOOP),
    ],
)
def test_work_that_does_not_end(worker, line, look):
    error = hang(worker)
    rows = re.findall(r"rank [01] +is at +.*hangs.py:(\d+)", str(error))
    assert len(rows) == 2
    assert all(re.search(line, LINES[int(number) - 1]) for number in rows)
    assert look in str(error) and str(error).endswith(advice.TAKE_LONGER)


def test_one_rank_in_a_loop_that_holds_the_gil():
    error = hang(hangs.one_c_loop)
    assert stands(error, 1, "is at", "sum(range(10**12))")
    assert "entered by rank 0, never by rank 1" in str(error)


def test_a_rank_that_is_stopped():
    assert re.search(r"rank 1 +does not answer", str(hang(hangs.stopped)))


def test_one_rank_of_two_has_returned():
    error = hang(hangs.one_returned)
    assert re.match(r"1 of 2 ranks did not finish within \S+ s and was stopped\.", str(error))
    assert re.search(r"rank 0 +has returned", str(error))
    assert stands(error, 1, "is at", "time.sleep(0.01)")
    assert f"look at   {advice.LOOP}" in str(error)


def test_the_import_of_the_workers_file_never_ends():
    assert re.search(r"rank 0 +is at +.*hanging_import.py:\d+", str(hang(hanging_import.worker)))


def test_no_time_at_all():
    text = str(hang(hangs.before_init, timeout=0.001))
    assert "2 of 2 ranks did not finish within 0.001 s" in text


def test_one_rank_alone():
    assert str(hang(hangs.before_init, ranks=1)).startswith("The rank did not finish within")


@pytest.mark.memory
def test_16_rows_are_enough():
    text = str(hang(hangs.before_init, ranks=18, timeout=2))
    assert "… and 2 more ranks" in text and len(text.splitlines()) == 19


def test_the_places_are_there_as_data():
    error = hang(hangs.under_if_rank_0)
    assert isinstance(error, TimeoutError)
    assert [(p.rank, p.call) for p in error.positions] == [(0, "all_reduce"), (1, "")]
    assert all(Path(p.file) == Path(hangs.__file__) and p.line for p in error.positions)
