"""A slider over pictures: one frame at a time, each with its own alt text.

A widget needs a running kernel. A page exported from the notebook has none; it shows one frame and
scrolls sideways to the others. `make book` prints all of them, one below the other.
"""

from collections.abc import Sequence

import ipywidgets

from ddp_workbook.figures.style import Picture

# A click or an arrow key moves by a frame; no script is needed.
STRIP = "display:flex; overflow-x:auto; scroll-snap-type:x mandatory; border-bottom:1px solid"
FRAME = "flex:0 0 100%; scroll-snap-align:start"
# Some systems hide scroll bars. On paper, `make book` prints the frames one below the other.
HOW = (
    "<style>@media print {{ .how-to-scroll {{ display: none }} }}</style>"
    '<div class="how-to-scroll" aria-hidden="true" style="font-size:90%">{words}</div>'
)
WIDGET = "application/vnd.jupyter.widget-view+json"


class Stepper:
    """What `stepper` returns: a widget in JupyterLab, a strip of its frames everywhere else."""

    def __init__(self, pictures: list[Picture], name: str, first: int):
        self.pictures = pictures
        self.first = first
        # Continuous: the arrow keys and a dragged handle show every frame on the way.
        self.slider = ipywidgets.IntSlider(
            first, first, first + len(pictures) - 1, description=name, continuous_update=True
        )
        self.frame = ipywidgets.HTML()
        self.slider.observe(self._show, names="value")
        self._show()

    def _show(self, _change: object = None) -> None:
        self.frame.value = self.pictures[self.slider.value - self.first]._repr_html_()

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        box = ipywidgets.VBox([self.slider, self.frame])
        bundle = dict(box._repr_mimebundle_())
        frames = "".join(f'<div style="{FRAME}">{p._repr_html_()}</div>' for p in self.pictures)
        words = f"{len(self.pictures)} pictures in a row, to scroll sideways"
        about = f'class="frames" tabindex="0" role="group" aria-label="{words}"'
        strip = f'{HOW.format(words=words)}<div {about} style="{STRIP}">{frames}</div>'
        return bundle | {"text/html": strip, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return "\n".join(repr(picture) for picture in self.pictures)


def stepper(pictures: Sequence[Picture], name: str = "step", first: int = 0) -> Stepper:
    """A slider called `name` over pictures; the last line of a cell.

    Its numbers begin with `first`. The left and right arrow keys move it.
    """
    return Stepper(list(pictures), name, first)
