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

from manyranks import figures, rank_colours
from manyranks.figures import palette
from manyranks.figures.style import Picture
from manyranks.recording.timing import speed_up
from tests.picture_text import words

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


def figure():
    picture = Figure((3, 2))
    picture.subplots().barh([0, 1], [3, 4], hatch="///")
    return picture


def matplotlib_rgb(colour):
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


class Image(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


# Colours


@pytest.mark.parametrize("page", rank_colours.PAGES)
@pytest.mark.parametrize("rank", range(8))
def test_every_ranks_colour_stands_out_on_a_light_and_a_dark_page(rank, page):
    assert rank_colours.contrast(rank_colours.rank_colour(rank), page) >= 3


def test_contrast_is_that_of_the_standard():
    assert rank_colours.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert rank_colours.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("eye, least", [(np.eye(3), 10), (PROTANOPIA, 7), (DEUTERANOPIA, 7)])
def test_ranks_colours_are_apart_for_every_kind_of_eye(eye, least):
    colours = oklab(np.array([linear(c) for c in rank_colours.RANK_COLOURS]) @ np.transpose(eye))
    distance = min(np.linalg.norm(a - b) for a, b in itertools.combinations(colours, 2))
    assert len(colours) == 8
    assert distance >= least  # 2 is a difference that can just be seen side by side


def test_series_are_no_ranks_and_stand_out_on_the_white_card():
    assert not set(palette.SERIES_COLOURS) & set(rank_colours.RANK_COLOURS)
    assert all(rank_colours.contrast(colour, "#ffffff") >= 3 for colour in palette.SERIES_COLOURS)


def test_a_rank_keeps_its_colour_and_marker_and_the_eighth_begins_anew():
    for of in (rank_colours.rank_colour, palette.rank_marker):
        assert len({of(rank) for rank in range(8)}) == 8
        assert of(8) == of(0)


def test_ansi_wraps_the_text_and_ends_the_colour():
    assert rank_colours.ansi("#797979", "[rank 1]") == "\x1b[1;38;2;121;121;121m[rank 1]\x1b[0m"


@pytest.mark.parametrize("page", rank_colours.PAGES)
@pytest.mark.parametrize("rank", range(8))
def test_coloured_text_can_be_read_in_both_themes(rank, page):
    """Small text needs more than a line does; both pages together allow no more."""
    assert rank_colours.contrast(rank_colours.for_text(rank_colours.rank_colour(rank)), page) > 4.2


def test_black_text_can_be_read_on_a_tint():
    assert palette.tint("#000000", 0.2) == "#cccccc"
    assert all(
        rank_colours.contrast(palette.tint(c), "#1a1a1a") >= 7 for c in rank_colours.RANK_COLOURS
    )


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


def test_a_part_has_one_look_wherever_it_is_drawn():
    alone = figures.bars(pd.DataFrame({"buckets": [1]}), "kB", "Held")
    among = figures.bars(pd.DataFrame({"gradients": [1], "buckets": [2]}), "kB", "Held")
    looks = [bar.get_facecolor() for bar in among.axes.patches]
    assert looks[1] == alone.axes.patches[0].get_facecolor()
    assert looks[0] != looks[1]
    assert palette.part_look("device 3") == palette.part_look("rank 3") == palette.rank_look(3)
    with pytest.raises(ValueError, match="'parmeters' has no colour"):
        palette.part_look("parmeters")


# Showing and saving


def test_a_picture_is_one_image_with_its_alt_text_and_a_whole_svg():
    picture = Picture(figure(), f" {ALT}\n")
    *_, (tag, image) = Image(picture._repr_html_()).tags
    assert tag == "img"
    assert image["alt"] == ALT
    assert image["width"] == "288"
    kind, data = image["src"].split(",")
    assert kind == "data:image/svg+xml;base64"
    assert ET.fromstring(base64.b64decode(data)).tag == f"{SVG}svg"
    assert repr(picture) == ALT
    assert 'width="640"' in Picture(figure(), ALT, width=640)._repr_html_()


def test_a_picture_without_alt_text_is_refused():
    with pytest.raises(ValueError, match="needs an alt text"):
        Picture(figure(), "  \n")


def test_a_drawn_figure_is_closed_so_that_nothing_shows_it_again():
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    picture, _ = plt.subplots()
    Picture(picture, ALT)._repr_html_()
    assert plt.get_fignums() == before
    figures.step_time_plot(timings())
    assert plt.get_fignums() == before


def test_a_saved_svg_says_what_it_shows(tmp_path):
    path = Picture(figure(), ALT).save(tmp_path / "new" / "a.svg")
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
        "import sys; from tests.manyranks.figures.test_pictures import *; "
        "Picture(figure(), ALT).save(sys.argv[1]); "
        "figures.step_time_plot(timings()).save(sys.argv[2])"
    )
    other = [tmp_path / "other.svg", tmp_path / "other_plot.svg"]
    subprocess.run([sys.executable, "-c", code, *map(str, other)], check=True, timeout=60)
    here = [
        Picture(figure(), ALT).save(tmp_path / "a.svg"),
        figures.step_time_plot(timings()).save(tmp_path / "b.svg"),
    ]
    assert [p.read_bytes() for p in here] == [p.read_bytes() for p in other]
    assert not re.search(rb"<dc:date>|20\d\d-\d\d-\d\d", here[1].read_bytes())


def test_a_failing_save_leaves_the_old_picture(tmp_path, monkeypatch):
    path = Picture(figure(), ALT).save(tmp_path / "a.svg")
    old = path.read_bytes()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(type(path), "replace", full)
    with pytest.raises(OSError, match="No space"):
        figures.step_time_plot(timings()).save(path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["a.svg"]


def test_alt_text_survives_nbconvert():
    nbconvert = pytest.importorskip("nbconvert")
    data = {"text/html": Picture(figure(), ALT)._repr_html_(), "text/plain": ALT}
    cell = nbformat.v4.new_code_cell(
        "drawn", outputs=[nbformat.v4.new_output("display_data", data)]
    )
    book = nbformat.v4.new_notebook(cells=[cell])
    page, _ = nbconvert.HTMLExporter().from_notebook_node(book)
    images = [attributes for tag, attributes in Image(page).tags if tag == "img"]
    assert [image["alt"] for image in images] == [ALT]
    assert images[0]["src"].startswith("data:image/svg+xml;base64,")


# Step times


def test_step_times_name_every_candidate_size_and_the_machine():
    picture = figures.step_time_plot(timings())
    texts = words(picture)
    assert {"width 64, depth 4, batch 64", "width 256, depth 4, batch 64"} <= set(texts)
    assert "measured on 2 cores of a test" in texts
    assert {"7.68", "15.4", "23"} <= set(texts)  # medians in ms of the small model
    widths = [bar.get_width() for bar in picture.axes.patches]
    assert widths == pytest.approx([7.68, 15.36, 23.04])
    assert (
        "width 64, depth 4, batch 64: one process 7.68; DataParallel (stand-in) 15.4" in picture.alt
    )


def test_step_times_of_one_size_need_no_size_columns():
    frame = timings().query("width == 64")[["candidate", "round", "seconds"]]
    assert len(figures.step_time_plot(frame).figure.axes) == 1


def test_speed_up_has_a_point_for_each_candidate_but_the_baseline():
    picture = figures.speed_up_plot(speed_up(timings(), "one process"), "one process")
    axes = picture.axes
    assert "measured on 2 cores of a test" in words(picture)
    points = {line.get_label(): list(line.get_xdata()) for line in axes.lines[1:]}
    assert points == {
        "DataParallel (stand-in)": pytest.approx([0.5, 0.5]),
        "DDP": pytest.approx([1 / 3, 1 / 3]),
    }
    assert list(axes.lines[0].get_xdata()) == [1, 1]
    assert "width 64, depth 4, batch 64: DataParallel (stand-in) 0.50, DDP 0.33" in picture.alt


def test_a_table_without_rows_is_not_drawn():
    with pytest.raises(ValueError, match="nothing to draw"):
        figures.step_time_plot(timings().iloc[:0])


# Shapes

HELD = pd.DataFrame(
    {"parameters": [100.0, 50.0], "buckets": [0.0, 1234.5]}, index=["rank 0", "rank 1"]
)


def test_bars_stack_the_parts_to_the_whole_and_say_so():
    picture = figures.bars({"DDP": HELD, "sharded": HELD / 2}, "kB", "Held", totals=figures.number)
    ends = [bar.get_x() + bar.get_width() for bar in picture.axes.patches]
    assert ends == pytest.approx([100, 100, 50, 1284.5])
    assert {"rank 0", "parameters", "buckets", "sharded", "kB", " 1,284", " 50"} <= set(
        words(picture)
    )
    assert picture.alt == (
        "Held, kB. DDP: rank 0: parameters 100; rank 1: parameters 50, buckets 1,234. "
        "sharded: rank 0: parameters 50; rank 1: parameters 25, buckets 617."
    )


def test_upright_bars_of_ranks_wear_the_ranks_colours():
    picture = figures.bars(HELD[["parameters"]], "kB", "Held", by="rank", upright=True)
    assert [bar.get_height() for bar in picture.axes.patches] == [100, 50]
    colours = [bar.get_facecolor()[:3] for bar in picture.axes.patches]
    assert colours == [matplotlib_rgb(colour) for colour in rank_colours.RANK_COLOURS[:2]]
    assert picture.alt == "Held, kB. rank 0 100; rank 1 50."


def test_a_hundred_ranks_are_drawn_and_a_thousand_refused():
    table = pd.DataFrame({"parameters": range(100)}, index=[f"rank {r}" for r in range(100)])
    for upright in (False, True):
        picture = figures.bars(table, "kB", "Held", by="rank", upright=upright)
        assert len(picture.axes.patches) == 100 and picture.svg
        assert "rank 99 99" in picture.alt
    with pytest.raises(ValueError, match="1000 bars do not fit into a picture: draw 128 or fewer"):
        figures.bars(pd.concat([table] * 10), "kB", "Held")


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.filterwarnings("error")
def test_lanes_and_lines_of_one_rank_and_of_a_hundred(count):
    names = [f"rank {rank}" for rank in range(count)]
    events = pd.DataFrame({"lane": names, "what": "works", "start": 0, "end": 1})
    lanes = figures.lanes(events, "ms", "Ranks", by="rank")
    losses = pd.DataFrame([range(1, count + 1)], columns=names, index=[1])
    lines = figures.lines(losses, "loss", "Ranks", by="rank", log="xy")
    assert len(lanes.axes.patches) == len(lines.axes.lines) == count
    assert lanes.svg and lines.svg and f"rank {count - 1} from {count} to {count}" in lines.alt


def test_nan_is_no_bar_and_is_said():
    picture = figures.bars(HELD.assign(buckets=float("nan")), "kB", "Held")
    assert "rank 1: parameters 50, buckets none" in picture.alt and picture.svg


EVENTS = pd.DataFrame(
    [("rank 0", "works", 0, 3), ("rank 1", "works", 0, 1), ("rank 1", "waits", 1, 3)],
    columns=["lane", "what", "start", "end"],
)


def test_lanes_show_each_event_in_its_lane_and_waiting_as_pale():
    picture = figures.lanes(EVENTS, "milliseconds", "Two ranks", by="rank", pale=["waits"])
    lengths = [(bar.get_x(), bar.get_width(), round(bar.get_y())) for bar in picture.axes.patches]
    assert lengths == [(0, 3, 0), (0, 1, 1), (1, 2, 1)]
    works, waits = picture.axes.patches[1:]
    assert works.get_facecolor() != waits.get_facecolor()
    assert {"works", "waits", "rank 1", "milliseconds"} <= set(words(picture))
    assert picture.alt == (
        "Two ranks, milliseconds. rank 0: works from 0 to 3; rank 1: works from 0 to 1, "
        "waits from 1 to 3."
    )


def test_lanes_have_panels_an_order_and_a_mark_for_what_takes_no_time():
    events = EVENTS.assign(what="compute", end=[3, 1, 1], panel=["a", "a", "b"], text=["", "x", ""])
    picture = figures.lanes(events, "ms", "Two ranks", order=["rank 1", "rank 0"])
    assert [axes.get_title() for axes in picture.figure.axes] == ["a", "b"]
    assert [bar.get_width() > 0 for bar in picture.figure.axes[1].patches] == [True]
    assert [label.get_text() for label in picture.axes.get_yticklabels()] == ["rank 1", "rank 0"]
    assert "x" in words(picture)


def test_lines_of_ranks_wear_the_ranks_colours_and_markers():
    losses = pd.DataFrame({f"rank {rank}": [2.0, 1.0, 0.5] for rank in range(3)})
    picture = figures.lines({"SGD": losses.rename_axis("step")}, "loss", "Training", by="rank")
    assert [line.get_color() for line in picture.axes.lines] == list(rank_colours.RANK_COLOURS[:3])
    assert len({line.get_marker() for line in picture.axes.lines}) == 3
    assert {"step", "loss", "SGD", "rank 2"} <= set(words(picture))
    assert picture.alt.startswith("Training, loss. SGD: rank 0 from 2 to 0.5, rank 1 from 2 to 0.5")


def test_lines_leave_out_what_is_not_known():
    table = pd.DataFrame({"loss": [1.0, 2.0, float("nan")], "never": [float("nan")] * 3})
    picture = figures.lines(table, "loss", "Training", log="y")
    assert picture.axes.get_yscale() == "log" and picture.svg
    assert picture.alt == "Training, loss. loss from 1 to 2."


def test_boxes_and_arrows_stand_where_they_are_put():
    axes = figures.sheet(4, 2)
    figures.box(axes, (1, 0.5), (2, 1), "all_reduce", rank=1)
    figures.arrow(axes, (0, 1), (1, 1), rank=1)
    figures.label_ranks(axes, 2, 0.5, 1)
    (frame,) = axes.patches
    assert frame.get_edgecolor()[:3] == matplotlib_rgb(rank_colours.RANK_COLOURS[1])
    assert [text.get_text() for text in axes.texts] == ["all_reduce", "", "rank 0", "rank 1"]
    assert axes.texts[0].get_position() == (2, 1)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: figures.bars(HELD.iloc[:0], "kB", "Held"),
        lambda: figures.bars({}, "kB", "Held"),
        lambda: figures.lanes(EVENTS.iloc[:0], "ms", "Two ranks"),
        lambda: figures.lines(HELD.iloc[:0], "kB", "Held"),
        lambda: figures.lines(HELD * float("nan"), "kB", "Held"),
    ],
)
def test_a_picture_without_values_is_refused_in_a_sentence(draw):
    with pytest.raises(ValueError, match="There is nothing to draw"):
        draw()


def test_an_event_that_ends_before_it_starts_is_refused():
    with pytest.raises(ValueError, match="waits on rank 1 ends before it starts"):
        figures.lanes(EVENTS.assign(end=[3, 1, 0]), "ms", "Two ranks")
    with pytest.raises(ValueError, match="ends before it starts, or at no known time"):
        figures.lanes(EVENTS.assign(end=[3, 1, float("nan")]), "ms", "Two ranks")


def test_images_are_drawn_side_by_side_with_their_names_and_compared():
    image = np.linspace(0, 1, 64)
    picture = figures.images_plot({"zero": image, "one": 1 - image, "again": image})
    assert [axes.get_title() for axes in picture.figure.axes] == ["zero", "one", "again"]
    pixels = picture.figure.axes[1].images[0].get_array()
    np.testing.assert_array_equal(pixels, (1 - image).reshape(8, 8))
    assert "by 0.51 from the one and by 0.00 from the again" in picture.alt


@pytest.mark.long
def test_ranks_draw_nothing():
    """Whatever a rank imports of the demonstrations, it imports nothing that draws."""
    code = (
        "import sys, pkgutil, importlib, ddp_workbook.experiments as room; "
        "[importlib.import_module(m.name) "
        "for m in pkgutil.walk_packages(room.__path__, room.__name__ + '.')]; "
        "sys.exit(', '.join({'matplotlib', 'IPython', 'ipywidgets'} & set(sys.modules)) or 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert run.stderr == "" and run.returncode == 0
