"""An all-reduce on links whose bandwidth was chosen: what the host costs, and what the wire."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from manyranks.planning.scaling import Ring, least_squares


@dataclass(frozen=True)
class Links:
    """The cost of an all-reduce if the link can be chosen: host and wire separately.

    `alpha`: seconds a message. `host`: seconds a byte for copies and sums, whatever the link.
    `overhead`: how many bytes the wire carries for each byte of data, so a little above 1.
    """

    alpha: float
    host: float
    overhead: float

    def at(self, bytes_per_second: float) -> Ring:
        """The ring with links of this bandwidth."""
        return Ring(self.alpha, self.host + self.overhead / bytes_per_second)


def fit_links(timings: pd.DataFrame) -> tuple[Links, np.ndarray]:
    """From all-reduces (columns ranks, bytes, seconds, bytes_per_second); with the residuals."""
    ranks, size = timings["ranks"].to_numpy(float), timings["bytes"].to_numpy(float)
    bytes_sent = 2 * (ranks - 1) / ranks * size
    wire = bytes_sent / timings["bytes_per_second"].to_numpy(float)
    terms = {"alpha": 2 * (ranks - 1), "host": bytes_sent, "overhead": wire}
    fit = least_squares(terms, timings["seconds"])
    return Links(**fit.coefficients), fit.residuals
