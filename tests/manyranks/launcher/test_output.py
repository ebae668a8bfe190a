"""What the ranks print: whole lines with their rank, at once, and never more than a page holds."""

import io
import re
import sys
import threading
import time

import psutil
import pytest

from manyranks.launcher import output
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import run_ranks
from manyranks.launcher.output import Printer, RankOutput
from tests.leaks import no_rank_left  # noqa: F401
from tests.workers import printing


@pytest.fixture
def printed(capsys):
    def run(worker, *args, ranks=1, timeout=60) -> list[str]:
        run_ranks(Call(worker, args), ranks, timeout, quiet=True)
        return capsys.readouterr().out.splitlines()

    return run


def test_lines_of_both_streams_and_of_subprocesses_carry_the_rank(printed):
    lines = printed(printing.both_streams, ranks=2)
    said = ["to stdout", "to stderr", "from a subprocess"]
    assert sorted(lines) == sorted(f"[rank {rank}] {text}" for rank in range(2) for text in said)


def test_lines_of_two_ranks_never_mix(printed, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    lines = printed(printing.half_lines, ranks=4)
    assert len(lines) == 800
    assert all(re.fullmatch(r"\[rank (\d)\] rank \1 begins and ends", line) for line in lines)


def test_lines_show_as_they_come(tmp_path, monkeypatch):
    """Rank 1 continues when rank 0's line is shown, and would never if that came at the end."""
    seen, shown = tmp_path / "seen", []

    class Page(io.StringIO):
        def write(self, text):
            shown.append(text)
            if "now" in text:
                seen.touch()

    monkeypatch.setattr(sys, "stdout", Page())
    run_ranks(Call(printing.in_turns, (str(seen),)), 2, 20, quiet=True)
    assert "".join(shown) == "[rank 0] now\n[rank 1] now\n"


def test_200_megabytes_are_counted_not_shown(printed):
    before = psutil.Process().memory_info().rss
    start = time.monotonic()
    lines = printed(printing.flood, 200)
    assert time.monotonic() - start < 20  # seen: 0.7
    assert psutil.Process().memory_info().rss - before < 50e6
    assert len(lines) == 2000 + 1 + output.TAIL_LINES and lines[-1] == "[rank 0] the last line"
    assert "1,997,981 lines not shown (199.8 MB printed after the first 2,000 lines)" in lines[2000]
    assert lines[-2].startswith("[rank 0] 00009999 ")


def test_a_flood_of_all_ranks_is_one_page(printed):
    lines = printed(printing.flood, 5, ranks=4)
    assert len(lines) == 2000 + 4 * (1 + output.TAIL_LINES)
    assert sum("the last line" in line for line in lines) == 4


def test_few_lines_too_many_are_all_counted(printed):
    lines = printed(printing.lines, 2025)
    assert "… 5 lines not shown" in lines[2000] and lines[-1].startswith("[rank 0] 2024 ")
    assert len(printed(printing.lines, 2010)) == 2010  # what is left out must be worth a line


@pytest.mark.parametrize("at_once", [7, 4_000, 65_536])
def test_what_is_hidden_is_counted_alike_however_it_arrives(at_once):
    """A large piece is counted without being decoded."""
    lines = [f"line {number}" for number in range(20_000)]
    data, shown = "".join(f"{line}\n" for line in lines).encode(), []
    taken = RankOutput(0, lambda rank, text: shown.append(text), max_lines=100)
    for start in range(0, len(data), at_once):
        taken.feed(data[start : start + at_once])
    assert (shown, list(taken.tail)) == (lines[:100], lines[-output.TAIL_LINES :])
    assert taken.hidden_lines == len(lines) - 100
    assert taken.hidden_bytes == sum(len(line) + 1 for line in lines[100:])


def test_a_line_without_end_is_cut(printed):
    before = psutil.Process().memory_info().rss
    (line,) = printed(printing.endless_line, 100)
    assert len(line) < 2100 and line.endswith("… (100,000,000 bytes in this line)")
    assert psutil.Process().memory_info().rss - before < 50e6


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"caf\xe9 \xff\n", r"caf\xe9 \xff"),
        ("Zürich, 日本\n".encode(), "Zürich, 日本"),
        (b"\x00\x01\n", "\x00\x01"),
        (b"windows\r\n", "windows"),
        (b"\n", ""),
        (b"no newline", "no newline"),
    ],
)
def test_bytes_of_any_kind(printed, data, shown):
    assert "\n".join(printed(printing.raw, data)) == f"[rank 0] {shown}"


def test_a_last_line_without_newline_is_shown(printed):
    assert printed(printing.ends_without_newline)[1] == "[rank 0] no newline at the end"


def test_a_progress_bar_shows_its_end(printed):
    assert printed(printing.progress) == ["[rank 0] 2000 of 2000", "[rank 0] done"]


def test_output_after_the_end_holds_nothing_up(printed):
    start = time.monotonic()
    printed(printing.floods_after_its_end, ranks=2)
    assert time.monotonic() - start < 30  # else 60, the time limit


def test_a_worker_may_replace_its_streams(printed):
    assert printed(printing.replaces_stdout) == ["[rank 0] half a line"]


def test_a_terminal_with_few_characters_is_no_obstacle(monkeypatch):
    page = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", page)
    run_ranks(Call(printing.raw, ("Zürich\n".encode(),)), 1, 10, quiet=True)
    assert page.buffer.getvalue() == b"[rank 0] Z\\xfcrich\n"


def test_colours_are_for_terminals_and_notebooks_unless_refused(monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def mark() -> str:
        page = Terminal()
        monkeypatch.setattr(sys, "stdout", page)
        printer = Printer(2)
        printer.line(1, "text")
        printer.flush()
        return page.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert re.fullmatch(r"\x1b\[[0-9;]+m\[rank 1\]\x1b\[0?m text\n", mark())
    monkeypatch.setenv("NO_COLOR", "1")
    assert mark() == "[rank 1] text\n"


def test_pieces_may_be_cut_anywhere():
    """Every way to cut this in two gives the same lines."""
    data = "a\r\nb\r1\r2\nZürich\n\nlast".encode()
    expected = ["a", "2", "Zürich", "", "last"]
    for cut in range(len(data) + 1):
        lines = []
        text = RankOutput(0, lambda _, line, lines=lines: lines.append(line), 100)
        text.feed(data[:cut])
        text.feed(data[cut:])
        text.close()
        assert lines == expected, cut


def test_two_launches_at_once_print_whole_lines(capsys):
    threads = [
        threading.Thread(
            target=run_ranks, args=(Call(printing.half_lines), 2), kwargs={"quiet": True}
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = capsys.readouterr().out.splitlines()
    whole = [re.fullmatch(r"\[rank (\d)\] rank \1 begins and ends", line) for line in lines]
    assert len(lines) == 800 and all(whole)
