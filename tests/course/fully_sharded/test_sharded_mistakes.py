"""Chapter 06, mistakes: what the page says of them and does not assert in its own cells."""

from datetime import timedelta

import pandas as pd
import pytest
from torch.distributed.distributed_c10d import default_pg_nccl_timeout, default_pg_timeout

from ddp_workbook import launch, record_collectives
from ddp_workbook.experiments.fully_sharded import mistakes
from tests.hang_proofs import hang_of
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tests.workers import sharded_states

pytestmark = pytest.mark.push("claims of further pages")

MIXED = "mixed torch.Tensor and DTensor"


def test_the_picture_of_the_losses_has_a_line_for_each_optimizer():
    losses = pd.DataFrame({"after": [2.4, 1.6], "before": [2.4, 2.5]}).rename_axis("step")
    picture = mistakes.losses_plot(losses)
    lines = picture.axes.lines
    assert [line.get_label() for line in lines] == [
        "optimizer made after sharding",
        "optimizer made before sharding",
    ]
    assert [list(line.get_ydata()) for line in lines] == [[2.4, 1.6], [2.4, 2.5]]
    assert "before sharding, it is 2.40 in the first step and 2.50" in picture.alt


@pytest.mark.parametrize("when", ["before", "after", "in between"])
def test_a_part_can_be_frozen_at_any_time_through_the_model(when):
    """In a unit with nothing else, beside units that are trained."""
    changed = launch(sharded_states.names_changed_when_frozen, when, ranks=2)[0]
    assert len(changed) == 29 - 11
    assert not [name for name in changed if name.startswith("blocks.0.")]


def test_a_frozen_block_is_gathered_in_backward_because_the_next_one_fetches_it():
    wire = record_collectives(sharded_states.step_without_prefetch, ranks=2)
    counts = wire[wire["rank"] == 0]["op"].value_counts()
    assert counts["all_gather_into_tensor"] == 4


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_rank_0s_weights_reach_all_shards(ranks):
    assert all(launch(sharded_states.weights_sent_from_rank_0, ranks=ranks))


@pytest.mark.parametrize("way", ["a part", "forward", "a method"])
def test_a_call_past_a_unit_meets_a_dtensor(way):
    assert MIXED in launch(sharded_states.bypass_forward, way, ranks=2)[0]


@pytest.mark.parametrize("way", ["the unit", "a declared method"])
def test_a_call_of_a_unit_gathers(way):
    assert launch(sharded_states.bypass_forward, way, ranks=2)[0] == ""


def test_a_block_that_runs_before_the_model_takes_itself_for_the_root():
    whole, words = launch(sharded_states.call_block_first, ranks=2)[0]
    assert whole
    assert "running forward through the root module first" in words


def test_a_tied_weight_belongs_in_one_unit():
    """In two it becomes two parameters, which the first forward refuses."""
    count, words = launch(sharded_states.run_tied_model, "two", ranks=2)[0]
    assert count == 29
    assert "shared with a parameter already managed" in words
    alone, expected = launch(sharded_states.run_tied_model, "none", ranks=1)[0]
    count, losses = launch(sharded_states.run_tied_model, "one", ranks=2)[0]
    assert count == alone == 28
    assert losses == pytest.approx(expected, abs=5e-6)


@pytest.mark.parametrize(
    ("does", "waits"), [("saves", "full_tensor"), ("evaluates", "guesses = model")]
)
def test_rank_0_alone_hangs_and_the_report_says_who_waits_where(does, waits):
    page = str(hang_of(sharded_states.rank_0_alone, does))
    assert waits in page
    assert "rank 0 called all_gather" in page
    assert "rank 1 called barrier" in page


def test_the_timeouts_that_the_page_names():
    assert default_pg_timeout == timedelta(minutes=30)
    assert default_pg_nccl_timeout in (None, timedelta(minutes=10))
