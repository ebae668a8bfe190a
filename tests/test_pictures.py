"""Pictures have alt text, the same bytes on every run, and colours that everyone can tell apart."""

import base64
import itertools
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import nbformat
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from ddp_workbook.figures import palette
from ddp_workbook.figures.data_parallel.digits import digits_plot, images_plot
from ddp_workbook.figures.data_parallel.memory import device_memory_plot
from ddp_workbook.figures.data_parallel.step import step_timeline_plot
from ddp_workbook.figures.distributed_data_parallel.step_times import (
    breakdown_plot,
    loss_plot,
    speed_up_plot,
    step_time_plot,
    timeline_plot,
)
from ddp_workbook.figures.style import save, show
from ddp_workbook.recording.timing import speed_up

ALT = 'Two bars: "one" takes 3 ms & <two> 4 ms. Nothing else is to be seen.'
SVG = "{http://www.w3.org/2000/svg}"
# What a reader without red or green cones sees, in linear RGB: Machado, Oliveira, Fernandes 2009.
PROTANOPIA = [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
]
DEUTERANOPIA = [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
]


def timings(machine="2 cores of a test"):
    rows = [
        (width, 4, 64, name, n, width * (1 + index) * (1 + n / 10) / 1e4)
        for width in (64, 256)
        for n in (1, 2, 3)
        for index, name in enumerate(["one process", "DataParallel (stand-in)", "DDP"])
    ]
    frame = pd.DataFrame(rows, columns=["width", "depth", "batch", "candidate", "round", "seconds"])
    return frame.assign(machine=machine)


def parts():
    rows = [
        (64, name, part, 0.001)
        for name in ("DataParallel", "DDP")
        for part in ("replicate", "compute", "rest")
    ]
    return pd.DataFrame(rows, columns=["width", "candidate", "part", "seconds"])


def losses(lines="rank"):
    rows = [(step, one, 1 / (1 + step)) for one in (0, 1, 2) for step in range(5)]
    return pd.DataFrame(rows, columns=["step", lines, "loss"])


def figure():
    made = Figure((3, 2))
    made.subplots().barh([0, 1], [3, 4], hatch="///")
    return made


def words(made):
    made.draw_without_rendering()
    return [text.get_text() for text in made.findobj(Text)]


def bars(made):
    """(start, length, lane) of each bar."""
    return [(one.get_x(), one.get_width(), one.get_y() + 0.4) for one in made.axes[0].patches]


class Image(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


# Colours


@pytest.mark.parametrize("page", palette.PAGES)
@pytest.mark.parametrize("rank", range(8))
def test_every_ranks_colour_stands_out_on_a_light_and_a_dark_page(rank, page):
    assert palette.contrast(palette.rank_colour(rank), page) >= 3


def test_contrast_is_that_of_the_standard():
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert palette.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("eye, least", [(np.eye(3), 10), (PROTANOPIA, 7), (DEUTERANOPIA, 7)])
def test_ranks_colours_are_apart_for_every_kind_of_eye(eye, least):
    seen = oklab(np.array([linear(c) for c in palette.RANK_COLOURS]) @ np.transpose(eye))
    apart = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
    assert len(seen) == 8
    assert apart >= least  # 2 is a difference that can just be seen side by side


def test_series_are_no_ranks_and_stand_out_on_the_white_card():
    assert not set(palette.SERIES_COLOURS) & set(palette.RANK_COLOURS)
    assert all(palette.contrast(colour, "#ffffff") >= 3 for colour in palette.SERIES_COLOURS)


def test_a_rank_keeps_its_colour_marker_and_hatch_and_the_eighth_begins_anew():
    for of in (palette.rank_colour, palette.rank_marker, palette.rank_hatch):
        assert len({of(rank) for rank in range(8)}) == 8
        assert of(8) == of(0)


def test_ansi_wraps_the_text_and_ends_the_colour():
    assert palette.ansi("#797979", "[rank 1]") == "\x1b[1;38;2;121;121;121m[rank 1]\x1b[0m"


@pytest.mark.parametrize("page", palette.PAGES)
@pytest.mark.parametrize("rank", range(8))
def test_coloured_text_can_be_read_in_both_themes(rank, page):
    """Small text needs more than a line does; both pages together allow no more."""
    assert palette.contrast(palette.for_text(palette.rank_colour(rank)), page) > 4.2


def test_black_text_can_be_read_on_a_tint():
    assert palette.tint("#000000", 0.2) == "#cccccc"
    assert all(palette.contrast(palette.tint(c), "#1a1a1a") >= 7 for c in palette.RANK_COLOURS)


def linear(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def oklab(rgb):
    """Linear RGB to Oklab, times 100; the constants are Ottosson's, 2020."""
    cones = np.cbrt(
        np.clip(rgb, 0, 1)
        @ np.transpose(
            [
                [0.4122214708, 0.5363325363, 0.0514459929],
                [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005],
            ]
        )
    )
    return (
        100
        * cones
        @ np.transpose(
            [
                [0.2104542553, 0.7936177850, -0.0040720468],
                [1.9779984951, -2.4285922050, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.8086757660],
            ]
        )
    )


# Showing and saving


def test_show_is_one_image_with_its_alt_text_and_a_whole_svg():
    picture = show(figure(), ALT)
    ((tag, image),) = Image(picture._repr_html_()).tags
    assert tag == "img"
    assert image["alt"] == ALT
    assert image["width"] == "288"
    kind, data = image["src"].split(",")
    assert kind == "data:image/svg+xml;base64"
    assert ET.fromstring(base64.b64decode(data)).tag == f"{SVG}svg"
    assert repr(picture) == ALT
    assert 'width="640"' in show(figure(), ALT, width=640)._repr_html_()


def test_a_picture_without_alt_text_is_refused(tmp_path):
    with pytest.raises(ValueError, match="needs an alt text"):
        show(figure(), "  \n")
    with pytest.raises(ValueError, match="needs an alt text"):
        save(figure(), tmp_path / "a.svg", "")
    assert not list(tmp_path.iterdir())


def test_show_closes_the_figure_so_that_nothing_shows_it_again():
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    made, _ = plt.subplots()
    show(made, ALT)
    assert plt.get_fignums() == before
    step_time_plot(timings())
    assert plt.get_fignums() == before


def test_a_saved_svg_says_what_it_shows(tmp_path):
    path = save(figure(), tmp_path / "new" / "a.svg", ALT)
    root = ET.parse(path).getroot()
    assert root.get("role") == "img"
    ids = root.get("aria-labelledby").split()
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert [title.get("id"), description.get("id")] == ids
    assert title.text == 'Two bars: "one" takes 3 ms & <two> 4 ms'
    assert description.text == ALT
    assert os.listdir(path.parent) == ["a.svg"]
    assert path.stat().st_mode & 0o044, "others cannot read the picture"


def test_equal_figures_give_equal_bytes_in_another_process(tmp_path):
    code = (
        "import sys; from tests.test_pictures import *; "
        "save(figure(), sys.argv[1], ALT); save(step_time_plot(timings()), sys.argv[2], ALT)"
    )
    other = [tmp_path / "other.svg", tmp_path / "other_plot.svg"]
    subprocess.run([sys.executable, "-c", code, *map(str, other)], check=True, timeout=60)
    here = [
        save(figure(), tmp_path / "a.svg", ALT),
        save(step_time_plot(timings()), tmp_path / "b.svg", ALT),
    ]
    assert [p.read_bytes() for p in here] == [p.read_bytes() for p in other]
    assert not re.search(rb"<dc:date>|20\d\d-\d\d-\d\d", here[1].read_bytes())


def test_a_failing_save_leaves_the_old_picture(tmp_path, monkeypatch):
    path = save(figure(), tmp_path / "a.svg", ALT)
    old = path.read_bytes()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(type(path), "replace", full)
    with pytest.raises(OSError, match="No space"):
        save(step_time_plot(timings()), path, ALT)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["a.svg"]


def test_alt_text_survives_nbconvert():
    nbconvert = pytest.importorskip("nbconvert")
    data = {"text/html": show(figure(), ALT)._repr_html_(), "text/plain": ALT}
    cell = nbformat.v4.new_code_cell(
        "show()", outputs=[nbformat.v4.new_output("display_data", data)]
    )
    book = nbformat.v4.new_notebook(cells=[cell])
    page, _ = nbconvert.HTMLExporter().from_notebook_node(book)
    images = [attributes for tag, attributes in Image(page).tags if tag == "img"]
    assert [image["alt"] for image in images] == [ALT]
    assert images[0]["src"].startswith("data:image/svg+xml;base64,")


# Drawings


def test_step_times_name_every_candidate_size_and_the_machine():
    made = step_time_plot(timings())
    said = words(made)
    assert {"width 64, depth 4, batch 64", "width 256, depth 4, batch 64"} <= set(said)
    assert "measured on 2 cores of a test" in said
    assert {"7.68", "15.4", "23"} <= set(said)  # medians in ms of the small model
    widths = [bar.get_width() for bar in made.axes[0].patches]
    assert widths == pytest.approx([7.68, 15.36, 23.04])


def test_step_times_of_one_size_need_no_size_columns():
    frame = timings().query("width == 64")[["candidate", "round", "seconds"]]
    assert len(step_time_plot(frame).axes) == 1


def test_speed_up_has_a_point_for_each_candidate_but_the_baseline():
    made = speed_up_plot(speed_up(timings(), "one process"), "one process")
    axes = made.axes[0]
    assert "measured on 2 cores of a test" in words(made)
    points = {line.get_label(): list(line.get_xdata()) for line in axes.lines[1:]}
    assert points == {
        "DataParallel (stand-in)": pytest.approx([0.5, 0.5]),
        "DDP": pytest.approx([1 / 3, 1 / 3]),
    }
    assert list(axes.lines[0].get_xdata()) == [1, 1]


def test_breakdown_stacks_the_parts_to_the_whole():
    made = breakdown_plot(parts())
    ends = [bar.get_x() + bar.get_width() for bar in made.axes[0].patches]
    assert ends == pytest.approx([1, 2, 3, 1, 2, 3])
    assert len({bar.get_hatch() for bar in made.axes[0].patches}) == 3
    assert [text.get_text() for text in made.legends[0].get_texts()] == [
        "replicate",
        "compute",
        "rest",
    ]


def test_losses_of_ranks_wear_the_ranks_colours_and_markers():
    lines = loss_plot(losses()).axes[0].lines
    assert [line.get_color() for line in lines] == list(palette.RANK_COLOURS[:3])
    assert len({line.get_marker() for line in lines}) == 3
    assert [line.get_label() for line in lines] == ["rank 0", "rank 1", "rank 2"]
    assert loss_plot(losses("candidate")).axes[0].lines[0].get_color() == palette.SERIES_COLOURS[0]


def test_digits_are_drawn_with_labels_and_devices():
    images = np.arange(3 * 64).reshape(3, 64)
    made = digits_plot(images, [7, 8, 9], ranks=[0, 0, 1], names="device")
    assert [axes.get_title() for axes in made.axes] == ["7", "8", "9"]
    assert [axes.get_xlabel() for axes in made.axes] == ["device 0", "device 0", "device 1"]
    np.testing.assert_array_equal(made.axes[1].images[0].get_array(), images[1].reshape(8, 8))
    assert len(digits_plot(np.zeros((12, 64)), range(12)).axes) == 12


def test_images_are_drawn_side_by_side_with_their_names():
    image = np.linspace(0, 1, 64)
    made = images_plot({"zero": image, "one": 1 - image})
    assert [axes.get_title() for axes in made.axes] == ["zero", "one"]
    np.testing.assert_array_equal(made.axes[1].images[0].get_array(), (1 - image).reshape(8, 8))


def test_a_step_has_a_lane_for_each_thread():
    rows = [("main thread", "scatter", 0, 1), ("thread 1", "run", 1, 5), ("thread 0", "run", 1, 4)]
    made = step_timeline_plot(pd.DataFrame(rows, columns=["thread", "operation", "start", "end"]))
    np.testing.assert_allclose(bars(made), [(0, 1, 0), (1, 4, 2), (1, 3, 1)])
    assert {"scatter", "run", "thread 0", "stand-in: CPU threads"} <= set(words(made))


def test_what_devices_hold_is_stacked():
    held = pd.DataFrame({"weights": [1024, 2048], "rows": [1024, 1024]})
    made = device_memory_plot(held.rename_axis("device"))
    ends = [bar.get_x() + bar.get_width() for bar in made.axes[0].patches]
    assert ends == pytest.approx([1, 2, 2, 3])
    assert {"device 1", "weights", "rows"} <= set(words(made))


def test_a_timeline_has_a_lane_for_each_name_and_a_mark_for_what_takes_no_time():
    rows = [("forward", "rank 0", 0, 3), ("forward", "rank 1", 1, 6), ("ready", "rank 1", 2, 2)]
    events = pd.DataFrame(rows, columns=["what", "lane", "start", "end"])
    made = timeline_plot(events, ["rank 0", "rank 1"], "milliseconds")
    np.testing.assert_allclose(bars(made), [(0, 3, 0), (1, 5, 1), (2, 6 / 150, 1)])
    assert {"rank 0", "rank 1", "forward", "ready", "milliseconds"} <= set(words(made))


def test_ranks_draw_nothing():
    """No worker of an experiment makes a rank import matplotlib."""
    code = (
        "import sys, pkgutil, importlib, ddp_workbook.experiments as room; "
        "[importlib.import_module(f'{room.__name__}.{m.name}') "
        "for m in pkgutil.iter_modules(room.__path__)]; "
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_table_without_rows_is_not_drawn():
    with pytest.raises(ValueError, match="no rows to draw"):
        step_time_plot(timings().iloc[:0])
