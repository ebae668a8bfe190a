"""The parts of `make gpu`: what each runs, its time limit, and the packages it needs."""

from dataclasses import dataclass

from ddp_workbook.experiments.one_gpu import MEASUREMENTS
from ddp_workbook.page.pages import all_pages
from tools.set_up import ROOT

# Seconds. Measurements end long before; a part that hangs must not take the others' time.
LIMITS = {
    "memory": 90,
    "activations": 60,
    "precision": 90,
    "one_rank": 60,
    "real_run": 120,
    "copies": 40,
}
TESTS, PAGE = 180, 150
FOR_TESTS = ("pytest", "psutil")
FOR_PAGES = (
    "nbclient", "nbformat", "nbconvert", "ipykernel", "ipywidgets", "jupyterlab_pygments",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Name, time limit in seconds, Python's arguments, and the packages that it needs.

    `alone`: nothing else runs beside it, because it measures.
    """

    name: str
    limit: float
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()
    alone: bool = True


def parts() -> list[Part]:
    """All parts, the measurements first, because they are worth most."""
    work = ("-m", "tools.gpu.work")
    measurements = [Part(name, LIMITS[name], (*work, "measure", name)) for name in MEASUREMENTS]
    stems = sorted(path.stem for path in all_pages())
    pages = [Part(stem, PAGE, (*work, "page", stem), FOR_PAGES, alone=False) for stem in stems]
    return [*measurements, tests(), *pages]


def tests() -> Part:
    """The tests marked `gpu1`, without plugins: a site's own may warn, and a warning is an error.

    Only files that have such tests are collected, because others import what a site may lack.
    """
    files = [
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.glob("tests/**/test_*.py"))
        if "mark.gpu1" in path.read_text(encoding="utf-8")
    ]
    options = ("-q", "-m", "gpu1", "-p", "no:cacheprovider")
    return Part("tests", TESTS, ("-m", "pytest", *options, *files), FOR_TESTS, alone=False)
