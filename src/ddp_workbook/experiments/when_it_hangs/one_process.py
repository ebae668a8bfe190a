"""Is the gradient that of one process? Of three programs, each parameter's number beside it."""

from __future__ import annotations

from ddp_workbook.experiments.when_it_hangs.symptoms import run_for_doctor
from manyranks import figures
from manyranks.figures.palette import INK
from manyranks.rank_colours import rank_colour
from manyranks.script_doctor.diagnosis import first_gradients

PROGRAMS = {"A": "correct", "H": "past the wrapper", "L": "summed"}
RANKS = 4


@figures.house_style
def gradients_plot() -> figures.Picture:
    """A panel a program: a dot for each number of the gradient and each rank."""
    figure = figures.Figure((figures.WIDTH, 3.4), layout="constrained")
    words = []
    for axes, (program, what) in zip(figure.subplots(1, 3), PROGRAMS.items(), strict=True):
        of_ranks, one = first_gradients(run_for_doctor, program, ranks=RANKS)
        for rank, own in enumerate(of_ranks):
            axes.plot(
                one, own, "o", color=rank_colour(rank), ms=9 - 1.6 * rank, label=f"rank {rank}"
            )
        axes.axline((0, 0), slope=1, color=INK, linewidth=1, linestyle="dashed", zorder=0)
        axes.set_title(f"{program}: {what}")
        axes.set_xlabel("in one process")
        axes.grid(visible=True)
        lengths = ", ".join(f"{float(own @ one / (one @ one)):.2f}" for own in of_ranks)
        words.append(f"{program}, {what}: {lengths} times as long in that direction")
    figure.axes[0].set_ylabel("on a rank")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=RANKS)
    return figures.Picture(
        figure,
        "Each number of the gradient of the first step, on ranks 0 to 3 against one process with "
        f"the rows of all. {'; '.join(words)}.",
    )
