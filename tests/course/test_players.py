"""What the pages have to play with: every control, at its ends, is answered by real ranks."""

import pytest

from benchmarks.players import PLAY_CALL, Player, players
from ddp_workbook.judging.pipeline_schedules import ScheduleRefused
from ddp_workbook.page import pages
from ddp_workbook.page.play import Play
from manyranks.errors import RankFailed, RanksHung
from manyranks.planning.sizes import PlanRefused
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)

pytestmark = pytest.mark.push("players")

TO_BE_SEEN = {  # what a control shows on purpose
    "play_sum": (RankFailed, RanksHung),  # rank 3 is killed, or makes the others wait
    "play_stop": (RankFailed,),  # a rank leaves alone
    "play_plan": (PlanRefused,),  # a strategy that the GPUs do not divide
    "play_schedule": (ScheduleRefused,),  # empty lines
    "play_all_schedules": (ScheduleRefused,),  # the same
}


@pytest.fixture(scope="module", params=players(), ids=lambda one: f"{one.page}-{one.function}")
def player(request) -> Player:
    return request.param


@pytest.fixture(scope="module")
def player_play(player) -> Play:
    return player.make()


def test_every_core_page_has_something_to_play_with():
    found = [player.page for player in players()]
    core = [path.stem for path in pages.all_pages() if "further" not in path.stem]
    assert [stem for stem in core if found.count(stem) < 1 + stem.startswith("02")] == []


def test_a_page_tells_its_readers_what_to_try():
    for path in pages.all_pages():
        text = path.read_text(encoding="utf-8")
        assert len(PLAY_CALL.findall(text)) == text.count("**Play.**"), path.stem


OTHER_END = pytest.param(False, id="near", marks=pytest.mark.release("a control's other end"))


@pytest.mark.parametrize("far", [pytest.param(True, id="far"), OTHER_END])
def test_every_control_is_answered_at_an_end(player_play, player, far):
    """Of each control the end that is farther from its first value, or the other; on 00 all."""
    for control in player_play.controls.values():
        start = control.value
        values = [False, True] if isinstance(start, bool) else [one for _, one in control.options]
        last_is_far = values.index(start) < len(values) / 2
        end = values[-1 if last_is_far is far else 0]
        for value in values if far and player.page.startswith("00") else [end]:
            control.value = value
            player_play.wait()
            error = player_play.answer.error
            assert error is None or isinstance(error, TO_BE_SEEN.get(player.function, ())), error
            assert player_play.answer.picture and player_play.answer.output == "", (
                player_play.answer.output
            )
        control.value = start
        player_play.wait()
        assert player_play.answer.error is None


def test_its_labels_are_there_and_its_stills_are_values_of_its_controls(player_play):
    assert all(control.description for control in player_play.controls.values())
    assert 3 <= len(player_play.stills) <= 6
    for still in player_play.stills:
        for name, value in still.items():
            options = getattr(player_play.controls[name], "options", [("off", False), ("on", True)])
            assert value in [one for _, one in options]
