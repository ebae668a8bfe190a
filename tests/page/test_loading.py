"""A page's first cell says that PyTorch is being loaded, and then that it is there."""

import sys
from types import SimpleNamespace

import pytest
from IPython.core.events import EventManager, available_events

from ddp_workbook.page import loading


@pytest.fixture
def lines(monkeypatch):
    """What the line has shown, one text after the other."""
    texts = []
    handle = SimpleNamespace(display=lambda data, raw: texts.append(data["text/plain"]))
    handle.update = handle.display
    monkeypatch.setattr(loading, "DisplayHandle", lambda: handle)
    return texts


def shell(**more) -> SimpleNamespace:
    one = SimpleNamespace(**more)
    one.events = EventManager(one, available_events)
    return one


def test_the_line_changes_once_when_the_cell_has_run(lines, monkeypatch):
    torch = sys.modules.get("torch", SimpleNamespace(__version__="9.9"))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    kernel = shell(kernel=True)
    loading.show_loading(kernel)
    assert lines == ["Loading PyTorch: this takes a few seconds."]
    monkeypatch.setitem(sys.modules, "torch", torch)
    kernel.events.trigger("post_run_cell", None)
    kernel.events.trigger("post_run_cell", None)
    assert lines[1:] == [f"PyTorch {torch.__version__} is ready."]


def test_nothing_is_said_if_it_is_there_or_where_no_line_can_change(lines, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="9.9"))
    loading.show_loading(shell(kernel=True))
    monkeypatch.delitem(sys.modules, "torch")
    loading.show_loading(shell())
    assert lines == []
