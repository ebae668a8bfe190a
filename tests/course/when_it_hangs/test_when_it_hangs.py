"""Chapter 09: what its comparisons of the ranks notice, and what its programs show."""

import json

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook import RanksHung
from ddp_workbook.chapters import when_it_hangs
from ddp_workbook.experiments.when_it_hangs import (
    assertion_costs,
    late_rank,
    one_process,
    stacks_and_dumps,
    symptoms,
)
from ddp_workbook.experiments.when_it_hangs.faulty_programs import FAULTY_PROGRAMS
from manyranks.launcher.calls import call_of
from manyranks.launcher.hang_detection import HangLimits
from manyranks.launcher.launch import run_ranks
from manyranks.testing import on_ranks
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tools.set_up import ROOT

HANGS = "BCDEFG"


def compare_ranks(mistake: str) -> list[str]:
    """The error that this rank gets from each of the three comparisons, "" if none."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    ddp = DistributedDataParallel(model)
    if mistake == "weights" and rank == 2:
        with torch.no_grad():
            model.weight[0, 0] += 1e-6
    batch = torch.randn(3, 4) + rank * (mistake != "rows" or rank == 1)
    called = model if mistake == "gradient" else ddp
    checks = [
        lambda: when_it_hangs.assert_same_on_all_ranks(model),
        lambda: when_it_hangs.assert_own_rows(batch),
        lambda: when_it_hangs.assert_gradient_is_the_mean(
            ddp, lambda: called(batch + rank).sum().backward()
        ),
    ]
    return [error_of(check) for check in checks]


def error_of(check) -> str:
    """The words of an assertion that fails."""
    try:
        check()
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("none", ["", "", ""]),
        ("weights", ["The replicas of ranks [2] are not that of rank 0.", "", ""]),
        ("rows", ["", "Pairs of ranks with the same rows: [(0, 2)].", ""]),
        ("gradient", ["", "", "On ranks [0, 2] .grad is not the mean over the ranks."]),
    ],
)
def test_each_comparison_raises_on_all_ranks_or_on_none(mistake, words):
    found = on_ranks(3)(compare_ranks, mistake)
    assert found == [words] * 3


class SometimesUnused(nn.Module):
    """A frozen layer, and one that rank 0 alone uses."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.always, self.sometimes = (nn.Linear(4, 4) for _ in range(3))
        self.frozen.requires_grad_(False)

    def forward(self, batch):
        x = self.always(self.frozen(batch))
        return self.sometimes(x) if dist.get_rank() == 0 else x


def gradient_checked(past_the_wrapper: bool) -> str:
    """What the comparison of the gradients says of a model that has not all gradients."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = SometimesUnused()
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    called, batch = model if past_the_wrapper else ddp, torch.randn(3, 4)

    def backward():
        called(batch).sum().backward()

    return error_of(lambda: when_it_hangs.assert_gradient_is_the_mean(ddp, backward))


def test_parameters_without_a_gradient_are_compared_too():
    wrong = "On ranks [0, 1] .grad is not the mean over the ranks."
    assert on_ranks(2)(gradient_checked, False) == ["", ""]
    assert on_ranks(2)(gradient_checked, True) == [wrong, wrong]


@pytest.mark.parametrize("program", FAULTY_PROGRAMS)
def test_each_program_is_as_the_page_says(program):
    """Six hang, with the rank that differs named; five are told from the correct one."""
    call, limits = call_of(symptoms.run_program, (program,), {}, 4), HangLimits(patience=60)
    if program in HANGS:
        with pytest.raises(RanksHung) as hung:
            run_ranks(call, 4, quiet=True, hang_limits=limits)
        assert hung.value.mismatches
        return
    text = str(symptoms.symptoms_table(run_ranks(call, 4, quiet=True, hang_limits=limits)))
    assert ("no" in [line.split()[-1] for line in text.splitlines()] or "no, from" in text) == (
        program != symptoms.CORRECT
    )


def test_the_picture_of_a_hang_has_a_lane_and_a_line_for_each_rank():
    """Program B: three ranks stand in one line, rank 0 in another."""
    hung = symptoms.run_or_hang("B")
    assert len(hung.last_call_s) == 4 and min(hung.last_call_s) > 0
    view = symptoms.symptoms_view(hung)
    assert "rank 0 waits in all_reduce" in view.picture.alt
    assert view.picture.alt.count("waits in forward") == 3
    bold = [text.get_text() for text in view.picture.axes.texts if text.get_weight() == "bold"]
    assert len(bold) == 1 and bold[0].startswith("waits in all_reduce")
    assert "Call " in view._repr_html_() and "src/" not in repr(view)


@pytest.fixture(scope="module")
def hang():
    """Of the program in `absent_rank.py`."""
    return stacks_and_dumps.Hang(on_ranks(4)(stacks_and_dumps.stack_and_error))


def test_the_error_of_a_hang_comes_from_those_that_waited(hang):
    errors = [error for _, error in hang.of_ranks]
    assert [bool(error) for error in errors] == [True, True, False, True]
    # who gives up first closes its connections, which the next one notices
    assert any("Timed out waiting 1000ms" in error for error in errors)


def test_the_stacks_name_the_lines_that_the_page_names(hang):
    """Innermost first; three are the same, and lead through the program's own lines."""
    stacks = [stack for stack, _ in hang.of_ranks]
    assert stacks[0] == stacks[1] == stacks[3] != stacks[2]
    inside, *_, average, step = stacks[0].splitlines()
    assert inside.endswith("in all_reduce") and step.endswith("in step")
    evaluate = stacks[2].splitlines()[0]
    text = page_text("stacks-of-two-look")
    for frame in (average, evaluate):
        line = frame.split(", ")[1].split(" in ")[0]
        assert f"{line} " in text or f"{line}," in text
    assert "/" not in average


def page_text(cell: str) -> str:
    """The text of a cell of page 09."""
    page = json.loads((ROOT / "notebooks" / "09_when_it_hangs.ipynb").read_text())
    (text,) = ["".join(one["source"]) for one in page["cells"] if one["id"] == cell]
    return text


def test_a_comparison_of_the_ranks_sends_as_little_for_a_large_model():
    sent = [on_ranks(2)(assertion_costs.assertion_costs, width)[0][1] for width in (64, 256)]
    assert sent == [8, 8]


def test_the_only_losses_that_give_a_silent_program_away_are_those_of_i():
    """The page says so: its ranks log the same ones."""
    alike = []
    for program in "HIJKL":
        runs = symptoms.run_or_hang(program)
        if len({tuple(faulty.log.losses) for _, faulty in runs}) == 1:
            alike.append(program)
    assert alike == ["I"]


def test_threads_are_links_and_backticks_are_code():
    html = symptoms.programs_table()._repr_html_()
    assert html.count('<a href="https://github.com/') == 8
    assert "<code>if rank == 0</code>" in html and "`" not in html


def test_the_recorder_shows_the_call_that_a_rank_never_made():
    rows = str(stacks_and_dumps.calls_by_rank("leaves_early")).splitlines()
    assert "-" in rows[-2].split() or "-" in rows[-1].split()


@pytest.mark.push("claims of the pages that take long")
def test_the_official_analyser_names_the_missing_rank_once_the_dump_is_mended():
    assert "missing ranks: {2}" in stacks_and_dumps.fr_trace_report()
    assert "KeyError" in stacks_and_dumps.fr_trace_report(fix_group_name=False)


@pytest.mark.parametrize("when", late_rank.LATE_STEPS)
def test_the_late_rank_waits_least(when):
    times = on_ranks(3)(late_rank.all_reduce_times, 1, when)
    waits = [[left - entered for entered, left in own] for own in times]
    for step in late_rank.LATE_STEPS[when]:
        assert min(range(3), key=lambda rank: waits[rank][step]) == 1


def test_the_gradients_of_the_sum_are_four_times_those_of_one_process():
    """And those of A the same; H's ranks have each their own, which the picture says in words."""
    alt = one_process.gradients_plot().alt
    assert "A, correct: 1.00, 1.00, 1.00, 1.00 times" in alt
    assert "L, summed: 4.00, 4.00, 4.00, 4.00 times" in alt
    of_h = alt.partition("H, past the wrapper: ")[2].partition(" times")[0].split(", ")
    assert len(set(of_h)) == 4 and "1.00" not in of_h
