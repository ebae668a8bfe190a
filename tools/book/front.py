"""The first page: what the book is, a recorded run, two commands, the chapters and the tools."""

import html
import re
from itertools import groupby

from ddp_workbook.page import pages
from tools import animation
from tools.book.frame import About, chapters, document, in_code, link, run_notes
from tools.book.site import NAME, Site
from tools.set_up import ROOT

CLAIM = "Learn distributed PyTorch by running it"
ABOUT = (
    "Notebooks whose cells start real processes, on a laptop without a GPU or on a node with "
    "eight: you predict what the ranks do, run them, and look at what they sent each other."
)
SCENES = {"sum": "four ranks add up", "hang": "rank 3 never comes"}
SUM_S, HANG_S = 5.0, 8.0  # seconds of the player for each scene
TOOLS = {  # name -> its heading in TOOLS.md, and what it does
    "doctor": (
        "What is wrong with my script?",
        "Runs your script on two CPU ranks, and once more on one rank with the same rows. Then it "
        "says what differs, in which line, and what was in order.",
    ),
    "profile": (
        "Where does a step go?",
        "Splits each rank's steps into compute, loading, exposed communication and waiting.",
    ),
    "plan": (
        "Will my model fit?",
        "Says what each GPU holds and sends, whether that fits, and whether compute or the network "
        "is the limit.",
    ),
    "network": (
        "A network that you do not have",
        "Lets the ranks of one machine wait as long as the links that you order would take.",
    ),
    "tests": (
        "Tests on ranks",
        "A pytest fixture that starts ranks, and a comparison of 1, 2, 3 and 4 of them.",
    ),
    "new": (
        "A program to start from",
        "Writes a small training program with a test and a job script. It needs nothing of this "
        "workbook.",
    ),
}
BLOCK = re.compile(r"(?ms)^```(console|python|text)\n(.*?)^```$")


def front(known: dict[str, About], pictures: set[str], site: Site) -> str:
    """The page as HTML; `pictures` are the pages that have a small picture."""
    body = (
        f'<main id="page" class="front">\n<section class="hero">\n<div class="claim">\n'
        f'<h1>{CLAIM}</h1>\n<p class="lead">{ABOUT}</p>\n{start(known)}'
        f"{commands(site)}\n{facts()}</div>\n"
        f"{player(animation.read_record())}</section>\n"
        f'{old_pages(known)}<section><h2 id="chapters">The chapters</h2>\n'
        '<p class="quiet">Minutes are those for reading and running a page, plus those for its '
        f'exercises.</p>\n<ul class="cards">\n{cards(known, pictures)}</ul></section>\n'
        f"{tools('tools' in known)}</main>"
    )
    notes = run_notes([known[stem] for stem in chapters(known)])
    return document(f"{NAME} · {CLAIM}", ABOUT, "index.html", body, notes, site)


def start(known: dict[str, About]) -> str:
    """Where to begin to read."""
    stem = chapters(known)[0]
    return (
        f'<p class="start"><a href="{stem}.html">Read chapter {stem[:2]}</a> '
        '<a href="#chapters">All chapters</a> <a href="#tools">The tools</a></p>\n'
    )


def commands(site: Site) -> str:
    """README's two commands; how to get their folder only if the repository is known."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"(?s)## Two commands\n.*?```\n(.*?)```", text)[1]
    rows = ""
    for line in block.strip().splitlines():
        command, _, words = (html.escape(part.strip()) for part in line.partition("# "))
        if "ADDRESS" not in command:
            rows += f"<li><code>{command}</code><small>{words}</small></li>\n"
        elif site.repository:
            rows += (
                f"<li><code>{command.replace('ADDRESS', html.escape(site.repository))}</code></li>"
            )
    return f'<ul class="commands">\n{rows}</ul>'


def facts() -> str:
    """How much there is: counted in the notebooks."""
    notebooks = [pages.load(path) for path in pages.all_pages()]
    further = sum(pages.FURTHER in path.stem for path in pages.all_pages())
    minutes = [re.findall(r"\d+", pages.minutes(notebook)) for notebook in notebooks]
    hours = sum(int(number) for both in minutes for number in both) / 60
    counts = (
        (len(notebooks) - further, "chapters"),
        (further, "further pages"),
        (sum(len(pages.exercises(notebook)) for notebook in notebooks), "exercises"),
        (round(hours), "hours of work"),
    )
    items = "".join(f"<li><b>{count}</b> {words}</li>" for count, words in counts)
    return f'<ul class="facts">{items}</ul>\n'


# The recorded run. Without JavaScript both scenes stand there, complete; with it, book.js shows one
# of them at a time, as it was at the moment of the player: `data-at` is when something appears, and
# a bar grows from `data-from` to `data-to`, in seconds of its scene.


def player(run: dict) -> str:
    """The two cells of README's picture, with the outputs that they had."""
    ranks = range(animation.RANKS)
    met = "".join(
        lane(rank, 0.6, 2.4, f"x = {run['values'][rank]}", 2.8, "meets") for rank in ranks
    )
    states = {rank: "sleeps" if rank == animation.RANKS - 1 else "waits" for rank in ranks}
    waits = "".join(lane(rank, 0.6, 4.6, state, 1.2) for rank, state in states.items())
    caption = (
        "Four processes started, met in <code>all_reduce</code> and ended in "
        f"{run['seconds']:g} s; the picture is slower."
    )
    report = "".join(
        f'<span class="{"detail" if line.startswith(" ") else "line"}">'
        f"{html.escape(re.sub(r' {2,}', '  ', line.strip()))}</span>"
        for line in run["report"]
    )
    return (
        '<figure class="run" aria-label="Two cells on four ranks, as they were recorded">\n'
        f'<div class="scenes">\n'
        f"{scene('sum', SUM_S, met, f'<p data-at=3.2>{caption}</p>')}"
        f"{scene('hang', HANG_S, waits, f'<pre data-at=4.8>{report}</pre>')}</div>\n"
        '<div class="controls" hidden><button type="button">Play</button>'
        f'<input type="range" min="0" max="{SUM_S + HANG_S:g}" step="0.1" value="0" '
        'aria-label="Moment of the recorded run"></div>\n'
        f"<figcaption>Recorded on {html.escape(run['machine'])}. The second cell was stopped after "
        f"{animation.TIMEOUT_S} s, and its report is what you see.</figcaption>\n"
        "</figure>\n"
    )


def scene(name: str, seconds: float, lanes: str, outcome: str) -> str:
    """One cell, the lanes of its ranks, and what came of it."""
    header, code = animation.CELLS[name]
    return (
        f'<div class="scene" data-seconds="{seconds:g}" data-name="{SCENES[name]}">\n'
        f'<pre class="cell"><b>{html.escape(header)}</b>\n{html.escape(code)}</pre>\n'
        f'<ul class="lanes">\n{lanes}</ul>\n<div class="outcome">{outcome}</div>\n</div>\n'
    )


def lane(rank: int, begin: float, end: float, words: str, at: float, look: str = "") -> str:
    """A rank's bar, and what is said of it; the bar looks as these words say, or `look`."""
    return (
        f'<li class="rank{rank}"><span class="name">rank {rank}</span><span class="track">'
        f'<span class="bar {look or words}" data-from="{begin}" data-to="{end}"></span></span>'
        f'<span class="value" data-at="{at}">{html.escape(words)}</span></li>\n'
    )


# Chapters


def cards(known: dict[str, About], pictures: set[str]) -> str:
    """A card for each chapter, with its further pages; one without its chapter has its own."""
    text = ""
    for _, stems in groupby(chapters(known), key=lambda stem: stem[:2]):
        first, *further = stems
        about = known[first]
        number, _, name = about.title.partition(" ")
        image = (
            f'<img class="thumb" src="pictures/{first}.svg" alt="" width="360" height="200" '
            'loading="lazy">'
            if first in pictures
            else '<span class="thumb"></span>'
        )
        text += (
            f'<li class="card"><div class="picture">{image}</div>\n'
            f'<p class="number"><span>{html.escape(number)}</span> {html.escape(about.minutes)}'
            f"{' · earlier edition' if about.old else ''}</p>\n"
            f'<h3><a href="{first}.html">{html.escape(name)}</a></h3>\n'
            f"<p>{in_code(about.question)}</p>\n{further_list(further, known)}</li>\n"
        )
    return text


def further_list(stems: list[str], known: dict[str, About]) -> str:
    """The further pages below a chapter's card, folded."""
    if not stems:
        return ""
    items = "".join(
        f"<li>{link(stem, known[stem].title)} <small>{html.escape(known[stem].minutes)}</small>"
        "</li>\n"
        for stem in stems
    )
    words = f"{len(stems)} further page{'s' * (len(stems) > 1)}"
    return f"<details><summary>{words}</summary>\n<ul>\n{items}</ul></details>\n"


def old_pages(known: dict[str, About]) -> str:
    """Which pages are those of an earlier edition, because the present ones failed."""
    items = "".join(
        f"<li>{link(stem, known[stem].title)}: edition {html.escape(known[stem].edition)} of "
        f"{known[stem].day}</li>\n"
        for stem in chapters(known)
        if known[stem].old
    )
    words = "These pages are of an earlier edition: the present ones did not run without errors."
    return f'<section class="old"><p>{words}</p>\n<ul>\n{items}</ul></section>\n' if items else ""


# Tools


def shown(heading: str) -> str:
    """What a section of TOOLS.md shows first: a command with its output, or a program with its.

    tests/tree/test_documents.py runs them all.
    """
    text = (ROOT / "TOOLS.md").read_text(encoding="utf-8")
    part = re.search(rf"(?ms)^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text)[1]
    (kind, first), *others = BLOCK.findall(part)
    is_output = kind == "python" and others and others[0][0] == "text"
    return f"{first}\n{others[0][1]}".rstrip() if is_output else first.rstrip()


def tools(has_page: bool) -> str:
    """A row of tools for a reader's own programs, each with a real output."""
    items = ""
    for name, (heading, sentence) in TOOLS.items():
        place = re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-"))
        words = html.escape(heading)
        linked = f'<a href="tools.html#{place}">{words}</a>' if has_page else words
        items += (
            f'<li class="tool"><div><p class="number"><span>{name}</span></p>\n<h3>{linked}</h3>\n'
            f'<p>{sentence}</p></div>\n<pre tabindex="0" aria-label="An output of {name}">'
            f"{html.escape(shown(heading))}</pre></li>\n"
        )
    return (
        '<section><h2 id="tools">The tools, for your own programs</h2>\n'
        '<p class="quiet">They work on any training script, without the course. What stands here '
        f'is what they print.</p>\n<ul class="tools">\n{items}</ul></section>\n'
    )
