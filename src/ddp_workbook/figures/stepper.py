"""A slider over pictures: one frame at a time, with the frame's own alt text.

Widgets live where a kernel runs. A page that was made from the notebook has no slider and shows all
frames, one below the other.
"""

from collections.abc import Sequence

import ipywidgets

from ddp_workbook.figures.style import Picture, PictureError

WIDGET = "application/vnd.jupyter.widget-view+json"


class Stepper:
    """What `stepper` returns: a widget in JupyterLab, the frames themselves everywhere else."""

    def __init__(self, pictures: list[Picture], name: str):
        self.pictures = pictures
        # Continuous, so that the arrow keys and a dragged handle show every frame on the way.
        self.slider = ipywidgets.IntSlider(
            0, 0, len(pictures) - 1, description=name, continuous_update=True
        )
        self.frame = ipywidgets.HTML()
        self.slider.observe(self._show, names="value")
        self._show()

    def _show(self, _change: object = None) -> None:
        self.frame.value = self.pictures[self.slider.value]._repr_html_()

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        box = ipywidgets.VBox([self.slider, self.frame])
        bundle = dict(box._repr_mimebundle_())
        stills = "".join(f"<p>{picture._repr_html_()}</p>" for picture in self.pictures)
        return bundle | {"text/html": stills, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return "\n".join(repr(picture) for picture in self.pictures)


def stepper(pictures: Sequence[Picture], name: str = "step") -> Stepper:
    """A slider, called `name`, over what `show` made; as the last line of a cell.

    Left and right arrow keys move it. Raises PictureError where there is no picture, or something
    else than pictures.
    """
    listed = list(pictures)
    if not listed:
        raise PictureError("There are no pictures to step through.")
    strange = next((one for one in listed if not isinstance(one, Picture)), None)
    if strange is not None:
        raise PictureError(
            f"A stepper steps through pictures, and this is a {type(strange).__name__}: "
            "make one with show(figure, alt=...)."
        )
    return Stepper(listed, name)
