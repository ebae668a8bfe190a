"""Page 00: its picture has the values of real ranks."""

from ddp_workbook import launch
from ddp_workbook.experiments.start_here import Held, one_sum
from ddp_workbook.figures.start_here import alt_text_of_one_sum, one_sum_plot


def test_four_processes_have_one_sum():
    of_ranks = launch(one_sum, ranks=4)
    assert [held.before for held in of_ranks] == [1, 2, 3, 4]
    assert [held.after for held in of_ranks] == [10] * 4
    assert len({held.process for held in of_ranks}) == 4


def test_picture_and_words_have_the_values_that_they_are_given():
    of_ranks = [Held(71, 1.5, 4.0), Held(72, 2.5, 4.0)]
    shown = [text.get_text() for text in one_sum_plot(of_ranks).axes[0].texts]
    assert "rank 1, process 72: x = 2.5" in shown and shown.count("x = 4") == 2
    words = alt_text_of_one_sum(of_ranks)
    assert "numbered 71, 72" in words and "begin with 1.5, 2.5" in words
