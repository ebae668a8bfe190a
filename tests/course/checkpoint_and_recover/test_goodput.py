"""Page 08 "Where the time goes": one interruption in parts, and shares of all time."""

import pytest

from ddp_workbook.experiments.checkpoint_and_recover import goodput
from ddp_workbook.experiments.checkpoint_and_recover.save_interval import mtbf_s

pytestmark = pytest.mark.push("claims of further pages")


def test_the_parts_of_an_interruption():
    """Saving more often leaves fewer steps to compute again: one in place of seven."""
    often, seldom = goodput.by_launch(2), goodput.by_launch(10)
    assert list(often) == list(seldom) == list(goodput.PARTS)
    assert all(seconds >= 0 for seconds in (*often.values(), *seldom.values()))
    assert seldom["computed again"] >= 7 * goodput.PACE > goodput.PACE <= often["computed again"]


def test_torchrun_spends_most_of_it_on_the_start():
    parts = goodput.by_torchrun(10)
    assert max(parts, key=parts.get) == "restart"


def test_shares_add_up_to_all_time():
    table = goodput.shares_of_sizes(600, 600, 60, 60, 60)
    assert table.sum(axis=1).to_numpy() == pytest.approx(100)
    assert (table.loc["16,384 GPUs"].round(1) == [71.0, 1.2, 5.5, 5.5, 0.5, 16.4]).all()


def test_without_interruptions_only_the_saves_are_lost():
    found = goodput.shares(1, 0, 0, 0, every=600, saving=60)
    assert found["saving"] / found["training"] == pytest.approx(0.1)
    assert found["training"] == pytest.approx(10 / 11, abs=1e-4)


def test_where_interruptions_take_all_time_nothing_is_left():
    seconds = mtbf_s(16_384)
    found = goodput.shares(16_384, 0, seconds, 0, every=600, saving=60)
    assert found["training"] == 0


def test_the_moves_that_the_page_names():
    def on_all(*given):
        return goodput.shares_of_sizes(*given).loc["16,384 GPUs", "training"]

    start = on_all(600, 600, 60, 60, 60)
    save, notice = on_all(600, 600, 60, 20, 60), on_all(10, 600, 60, 60, 60)
    restart = on_all(600, 60, 60, 60, 60)
    assert save == max(start, save, notice, restart) and round(save) == 79
    assert on_all(600, 600, 60, 5, 60) < save < on_all(600, 600, 60, 5, 1)
    assert on_all(60, 60, 60, 5, 1) > 95
