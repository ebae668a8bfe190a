"""Images of digits: a batch on its devices, and a few large ones."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_colour
from ddp_workbook.figures.style import WIDTH, style


@style()
def digits_plot(
    images: Sequence, labels: Sequence, ranks: Sequence[int] | None = None, names: str = "rank"
) -> Figure:
    """Images of 8 x 8 pixels with their labels; `ranks` frames each in the colour of its rank.

    `images` is [n, 64] or [n, 8, 8]; `names` is the word for a rank, such as device.
    """
    pixels = np.asarray(images, dtype=float).reshape(-1, 8, 8)
    across = min(len(pixels), 10)
    down = math.ceil(len(pixels) / across)
    figure = Figure((WIDTH * across / 10, 1.3 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flat
    for index, axes in enumerate(panels):
        if index >= len(pixels):
            axes.remove()
            continue
        axes.imshow(pixels[index], cmap="gray_r")
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"{int(labels[index])}", loc="center")
        axes.spines[:].set_visible(True)
        if ranks is not None:
            axes.set_xlabel(f"{names} {ranks[index]}", fontsize=10)
            axes.spines[:].set(color=rank_colour(ranks[index]), linewidth=4)
    return figure


@style()
def images_plot(images: Mapping[str, Sequence]) -> Figure:
    """A few images of 8 x 8 pixels between 0 and 1, large and side by side, under their names."""
    figure = Figure((6.6, 2.4), layout="constrained")
    for axes, (name, image) in zip(figure.subplots(1, len(images)), images.items(), strict=True):
        axes.imshow(np.asarray(image, dtype=float).reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        axes.set_axis_off()
        axes.set_title(name, loc="center")
    return figure


def alt_text_of_images(images: Mapping[str, Sequence]) -> str:
    """How far the first image is from each of the others, in words."""
    (name, first), *others = (
        (key, np.asarray(value, float).ravel()) for key, value in images.items()
    )
    said = [f"{abs(first - other).mean():.2f} from the {key}" for key, other in others]
    return (
        f"{len(images)} images of 8 by 8 pixels: {', '.join(images)}. The pixels of the {name}, "
        f"between 0 and 1, differ on average by {' and by '.join(said)}."
    )
