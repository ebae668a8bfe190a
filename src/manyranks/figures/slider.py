"""A slider over pictures: one frame at a time, each with its own alt text.

A widget needs a running kernel. A page exported from the notebook has none; it shows the frames as
a player in plain HTML. `make book` prints all of them, one below the other.
"""

from collections.abc import Sequence

import ipywidgets

from manyranks.figures.player import player
from manyranks.figures.style import Picture

WIDGET = "application/vnd.jupyter.widget-view+json"


class Stepper:
    """What `stepper` returns: a widget in JupyterLab, a player of its frames everywhere else."""

    def __init__(self, pictures: list[Picture], name: str, first: int, start: int):
        self.pictures = pictures
        self.first = first
        self.start = start
        # Continuous: the arrow keys and a dragged handle show every frame on the way.
        self.slider = ipywidgets.IntSlider(
            start, first, first + len(pictures) - 1, description=name, continuous_update=True
        )
        self.frame = ipywidgets.HTML()
        self.slider.observe(self._show, names="value")
        self._show()

    def _show(self, _change: object = None) -> None:
        self.frame.value = self.pictures[self.slider.value - self.first]._repr_html_()

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        box = ipywidgets.VBox([self.slider, self.frame])
        frames = [(str(n), p._repr_html_()) for n, p in enumerate(self.pictures, self.first)]
        shown = self.start - self.first
        html = player(frames, self.slider.description, shown=shown)
        fallback = {"text/html": html, "text/plain": repr(self)}
        return dict(box._repr_mimebundle_()) | fallback

    def __repr__(self) -> str:
        return "\n".join(repr(picture) for picture in self.pictures)


def stepper(
    pictures: Sequence[Picture], name: str = "step", first: int = 0, start: int | None = None
) -> Stepper:
    """A slider called `name` over pictures; the last line of a cell.

    Its numbers begin with `first`, and it opens at the picture with number `start`, by default the
    first one. The left and right arrow keys move it.
    """
    return Stepper(list(pictures), name, first, first if start is None else start)
