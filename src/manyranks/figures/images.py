"""Small images, large and side by side."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from manyranks.figures import house_style
from manyranks.figures.style import Picture

SIDE_PIXELS = 8


@house_style
def images_plot(images: Mapping[str, Sequence]) -> Picture:
    """Images of 8 x 8 pixels between 0 and 1 under their names.

    The alt text says how far the first one is from each of the others, on average a pixel.
    """
    pixels = {
        name: np.asarray(image, float).reshape(SIDE_PIXELS, SIDE_PIXELS)
        for name, image in images.items()
    }
    figure = Figure((6.6, 2.4), layout="constrained")
    panels = figure.subplots(1, len(pixels), squeeze=False)[0]
    for axes, (name, image) in zip(panels, pixels.items(), strict=True):
        axes.imshow(image, cmap="gray_r", vmin=0, vmax=1)
        axes.set_axis_off()
        axes.set_title(name, loc="center")
    (name, first), *others = pixels.items()
    apart = [f"{abs(first - other).mean():.2f} from the {key}" for key, other in others]
    return Picture(
        figure,
        f"{len(pixels)} images of 8 by 8 pixels: {', '.join(pixels)}. The pixels of the {name}, "
        f"between 0 and 1, differ on average by {' and by '.join(apart)}.",
    )
