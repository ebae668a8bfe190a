"""`play`: controls that real ranks answer; the latest change wins, and nothing stays behind."""

import os
import re
import signal
import textwrap
import threading
import time
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell

from ddp_workbook.page import play as play_module
from ddp_workbook.page.controls import ControlRefused, choice, slider
from ddp_workbook.page.play import RECORD, Play, play
from manyranks import figures
from manyranks.errors import LaunchInterrupted, LaunchRefused, RankFailed
from manyranks.figures import Figure, Picture
from manyranks.figures.player import player
from manyranks.figures.slider import WIDGET
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tests.workers import playing


def draw(results: list, **values: object) -> Picture:
    """A picture whose words are what came back."""
    return Picture(Figure((1, 1)), f"came back: {results}, for {values}")


def set_controls(play_widget: Play, **values: object) -> Play:
    """The player, once it has answered these values."""
    for name, value in values.items():
        play_widget.controls[name].value = value
    play_widget.wait()
    return play_widget


def players() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "play"]


# A change


def test_each_control_reaches_the_ranks_and_the_picture():
    widget = play(playing.total, draw, ranks=slider("ranks", (1, 2, 3)), mine=slider("x", (1, 5)))
    assert widget.answer.words == "came back: [1.0], for {'ranks': 1, 'mine': 1}"
    set_controls(widget, ranks=3, mine=5)
    assert widget.answer.words == "came back: [15.0, 15.0, 15.0], for {'ranks': 3, 'mine': 5}"
    assert (
        widget.answer.picture in widget.display.value
        and "3 ranks answered in" in widget.status.value
    )
    assert players() == []


def test_a_change_stops_the_run_before_it_and_passes_over_what_was_between(tmp_path):
    widget = play(
        playing.write_note,
        draw,
        ranks=1,
        folder=choice("folder", [str(tmp_path)]),
        mine=slider("x", range(31)),
        seconds=slider("s", (0, 300)),
    )
    widget.controls["seconds"].value = 300  # would run for five minutes
    set_controls(widget, seconds=0)
    for number in range(1, 31):
        widget.controls["mine"].value = number
    widget.wait()
    assert "came back: [30]" in widget.answer.words and widget.answer.error is None
    # Each file is a run that began; of thirty changes at once, one or two come to that.
    assert len(list(tmp_path.iterdir())) < 15 and Path(tmp_path, "30-0").exists()


@pytest.fixture
def moments(tmp_path):
    return play(playing.sleeps, draw, ranks=1, seconds=slider("s", (0.0, 300.0)))


def test_a_stopped_run_says_where_its_ranks_stood_above_the_last_picture(moments):
    before = moments.answer.picture
    moments.controls["seconds"].value = 300.0
    time.sleep(0.5)
    moments.stop()
    moments.wait()
    assert isinstance(moments.answer.error, LaunchInterrupted)
    assert "time.sleep(seconds)" in moments.display.value and "<details" in moments.display.value
    assert before in moments.display.value
    assert "one process answered in" in set_controls(moments, seconds=0.0).status.value
    assert "<details" not in moments.display.value


def test_the_kernel_s_interrupt_stops_what_all_players_run(moments, monkeypatch):
    """The kernel ignores one while no cell runs; a handler takes its place, once."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        play_module._listen()
        moments.controls["seconds"].value = 300.0
        signal.raise_signal(signal.SIGINT)
        moments.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    assert isinstance(moments.answer.error, LaunchInterrupted)


def test_an_interrupt_of_the_cell_stops_the_first_run():
    soon = threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT])
    soon.start()
    with pytest.raises(LaunchInterrupted, match=r"time\.sleep\(seconds\)"):
        play(playing.sleeps, draw, ranks=2, seconds=slider("s", (300,)))


# What goes wrong


WRONG = {
    "raises": "ValueError: no such thing",
    "dies": "ended by SIGKILL",
    "hangs": "waits in recv",
}


@pytest.fixture(scope="module")
def mishaps() -> Play:
    hows = ["is well", "nan", "floods", *WRONG]
    return play(playing.goes_wrong, draw, ranks=2, how=choice("how", hows))


@pytest.mark.parametrize("how", WRONG)
def test_a_run_that_fails_is_a_report_beside_the_controls(mishaps, how):
    set_controls(mishaps, how="is well")
    set_controls(mishaps, how=how)
    assert 'role="alert"' in mishaps.display.value and WRONG[how] in mishaps.display.value
    assert mishaps.display.value.count("came back: [1.0, 1.0]") == 1  # the last picture stays
    assert "\x1b" not in mishaps.display.value


def test_a_first_run_that_fails_fails_as_a_launch_does():
    with pytest.raises(RankFailed, match="no such thing"):
        play(playing.goes_wrong, draw, how=choice("how", ["raises"]))
    with pytest.raises(LaunchRefused, match="100000 ranks"):
        play(playing.total, draw, ranks=100_000)


def test_nan_and_a_flood_of_printed_lines(mishaps):
    assert "[nan, nan]" in set_controls(mishaps, how="nan").answer.words
    set_controls(mishaps, how="floods")
    assert mishaps.display.value.count("a line of text") == play_module.MAX_LINES
    assert re.search(r"… and [\d,]+ more lines", mishaps.display.value)
    assert len(mishaps.display.value) < 10_000


def test_a_drawing_that_fails_says_where(mishaps):
    def fails(results: list, **_: object) -> Picture:
        raise KeyError("no such row")

    set_controls(mishaps, how="is well")
    answer = Play(playing.goes_wrong, fails, 1, {"how": ["is well"]}, ()).answer_to(mishaps.values)
    assert "KeyError: &#x27;no such row&#x27;" in answer.report() and "in fails" in answer.report()


# Controls and what draw returns


def test_the_example_in_the_docstring_works(tmp_path, monkeypatch):
    """As it stands there, in a folder of a reader's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    example = re.search(r"( +%%writefile.*\n\n.*?)\n\n    `run`", play.__doc__, re.S)[1]
    file, _, cell = textwrap.dedent(example).partition("import pandas")
    Path("work").mkdir()
    Path("work/waits.py").write_text(file.partition("\n")[2])
    widget = InteractiveShell().run_cell("import pandas" + cell).result
    assert set_controls(widget, late=0.5).answer.error is None
    assert 0.4 < float(re.search(r"; 3 ([\d.]+)\.$", widget.answer.words)[1]) < 5


@pytest.mark.parametrize("given", [5, None, "words"])
def test_what_is_no_control_is_refused(given):
    with pytest.raises(ControlRefused, match=f"late={given!r} is no control"):
        play(playing.total, draw, late=given)


def test_a_control_without_values_or_with_another_start_is_refused():
    with pytest.raises(ControlRefused, match="'x' has no values"):
        slider("x", ())
    with pytest.raises(ControlRefused, match="'x' cannot start at 3: its values are 1, 2,000"):
        choice("x", (1, 2000), 3)


def test_choices_that_do_not_fit_side_by_side_stand_in_a_column():
    """In a row that is too narrow, ipywidgets cuts the words off."""
    few, many = ["nothing", "model"], ["random numbers of ranks 1 to 3"] * 3
    assert choice("the save lacks", few).orientation == "horizontal"
    assert choice("the save lacks", many).orientation == "vertical"


def test_short_forms_of_controls():
    """True or False, a list of numbers, a list of words; the name is the label."""
    widget = Play(
        playing.total, draw, 1, {"drop_last": True, "rows": [1, 2], "how": ["a", "b"]}, ()
    )
    labels = [control.description for control in widget.controls.values()]
    assert labels == ["drop last", "rows", "how"]
    assert widget.values == {"ranks": 1, "drop_last": True, "rows": 1, "how": "a"}


@figures.house_style
def figure(results: list, **_: object) -> matplotlib.figure.Figure:
    widget = Figure((2, 2))
    widget.subplots().set_title("seconds")
    return widget


@pytest.mark.parametrize(
    ("draw", "shows"),
    [
        (figure, 'alt="seconds"'),
        (lambda results, **_: pd.DataFrame({"seconds": results}), "<th>seconds</th>"),
        (lambda results, **_: "3 < 4", "<pre>&#x27;3 &lt; 4&#x27;</pre>"),
    ],
)
def test_draw_may_return_whatever_a_page_can_show(draw, shows):
    widget = play(lambda x: [x], draw, ranks=None, x=[1.5])
    assert shows in widget.display.value


def test_what_is_known_is_shown_while_the_ranks_run(moments):
    known = figures.Figure((1, 1))
    moments.meanwhile = lambda ranks, seconds: Picture(known, f"soon: {seconds}")
    moments.controls["seconds"].value = 300.0
    for _ in range(200):
        if "soon: 300" in moments.display.value:
            break
        time.sleep(0.05)
    else:
        raise AssertionError(moments.display.value)
    moments.stop()
    moments.wait()
    assert "soon" not in moments.display.value


def test_a_formula_needs_no_ranks():
    widget = play(lambda x: x * 2, draw, ranks=None, x=slider("x", (1, 2)))
    assert set_controls(widget, x=2).answer.words == "came back: 4, for {'x': 2}"
    assert "ranks" not in widget.status.value


def test_pictures_are_drawn_in_one_style_whichever_thread_draws():
    """rcParams are one set for a process: a thread that draws must not end another's settings."""
    widget = play(lambda x: x, figure, ranks=None, x=slider("x", range(20)))
    before = dict(matplotlib.rcParams)
    texts = set()
    for number in range(1, 20):
        widget.controls["x"].value = number
        texts.add(Picture(figure([]), "the same").svg)
    widget.wait()
    assert len(texts) == 1 and dict(matplotlib.rcParams) == before


# Where no kernel is


def test_pages_to_read_have_stills_of_real_runs(monkeypatch):
    monkeypatch.setenv(RECORD, "1")
    stills = [{"mine": 5}, {"mine": 7, "ranks": 3}]
    widget = play(playing.total, draw, ranks=[2, 3], mine=[1, 5, 7], stills=stills)
    bundle = widget._repr_mimebundle_()
    match = re.findall(r"came back: (\[.*?\])", bundle["text/html"])
    assert match == ["[2.0, 2.0]", "[10.0, 10.0]", "[21.0, 21.0, 21.0]"]
    assert re.findall(r"<label.*?>(.*?)</label>", bundle["text/html"]) == ["2, 1", "2, 5", "3, 7"]
    assert "<legend>ranks, mine</legend>" in bundle["text/html"]
    assert bundle["text/html"].count("ddp-printed") == 0 and WIDGET in bundle
    assert bundle["text/html"].count('class="ddpw-frame ddpw-printed"') == 2  # the first, the last


def test_a_page_that_is_played_with_runs_no_stills(monkeypatch):
    monkeypatch.delenv(RECORD, raising=False)
    widget = play(playing.total, draw, mine=[1, 5], stills=[{"mine": 5}])
    assert "came back: [2.0, 2.0]" in widget._repr_mimebundle_()["text/html"]
    assert "<input" not in widget._repr_mimebundle_()["text/html"]
    assert repr(widget).startswith("ranks: 2, mine: 1\ncame back: [2.0, 2.0]")


def test_a_player_of_frames_escapes_labels_and_knows_its_limits():
    html = player([("<b>", "<i>one</i>"), ("2", "two")], "a & b", (0,))
    assert "&lt;b&gt;" in html and "<i>one</i>" in html and "a &amp; b" in html
    assert html.count("checked>") == 1 and html.count("ddpw-printed") == 2  # a rule, a frame
    with pytest.raises(ValueError, match="not 0"):
        player([], "x")
    with pytest.raises(ValueError, match="not 41"):
        player([("x", "x")] * 41, "x")
