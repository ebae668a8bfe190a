"""The model of a step against real DDP steps, on hosts whose links are made as slow as we like.

The model is fitted on some bandwidths and predicts the step on others, in two forms.

On `SLOW` links a step is nearly all communication, which waits for the link and hardly for a core.
Other programs may run: they can only add time, and the fastest of a few steps counts.

`FAST` links show the overlap as well, and for that the compute must be undisturbed: the ranks have
real-time priority. It would starve other tests, so this form is for a release. What it predicts is
measured twice. A run in which a rank waited for a core, or which disagrees with the other, counts
for nothing and is made again.
"""

import json
import subprocess
import sys

import pandas as pd
import pytest

from ddp_workbook.experiments.many_machines.costs import Workload, slowest_ranks, timings_of_rank
from manyranks.launcher.calls import call_of
from manyranks.launcher.launch import run_ranks
from manyranks.network.links import Network
from manyranks.planning.scaling import Job, predict_step
from tests.clusters.hosts import Hosts
from tests.clusters.shaped_ranks import CHECKOUT, MBIT, Form, Ranks
from tests.shaped_links import Links, fit_links

pytestmark = pytest.mark.cluster

SLOW = Form(
    Workload(width=256, depth=4, bucket_cap_mb=0.25, rows=(16,), sizes=(524_288, 1_048_576)),
    fitted=(15, 60),
    predicted=(10, 30),
    rounds=4,
    alone=False,
)
FAST = Form(  # compute and communication take about as long at 300 Mbit/s, so overlap matters there
    Workload(width=256, depth=4, bucket_cap_mb=0.25, rows=(512,), sizes=(1024, 2_097_152)),
    fitted=(60, 150, 600),
    predicted=(40, 300),
    rounds=5,
    alone=True,
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(SLOW, id="slow"),
        pytest.param(FAST, id="fast", marks=pytest.mark.release("ranks with real-time priority")),
    ],
)
def form(request) -> Form:
    """One form after the other."""
    return request.param


@pytest.fixture(scope="module")
def measurements(form) -> pd.DataFrame:
    """Everything at `form.fitted`, whole steps at `form.predicted`."""
    with Hosts(2) as hosts, Ranks(hosts, form) as ranks:
        steps = ranks.measure_without_disturbance if form.alone else ranks.measure
        tables = [ranks.measure(mbit) for mbit in form.fitted]
        return pd.concat([*tables, *(steps(mbit, "step") for mbit in form.predicted)])


@pytest.fixture(scope="module")
def links(form, measurements) -> Links:
    """Fitted to all-reduces at `form.fitted`."""
    alone = measurements[measurements["part"] == "all-reduce"].rename(columns={"amount": "bytes"})
    assert set(alone["bytes_per_second"]) == {mbit * MBIT for mbit in form.fitted}
    found, residuals = fit_links(alone)
    print(alone.assign(off=residuals), measurements)
    if form.alone:
        assert abs(residuals[alone["bytes"] > 1024]).max() < 0.1
    return found


def seconds_of(measurements: pd.DataFrame, part: str, mbit: float) -> float:
    """Measured at this bandwidth."""
    there = measurements["bytes_per_second"] == mbit * MBIT
    (found,) = measurements[there & (measurements["part"] == part)]["seconds"]
    return found


def test_the_wire_carries_a_little_more_than_the_data(form, links):
    """TCP and IP headers take 4 %; the rest is acknowledgements. A burst leaves at full speed."""
    assert links.overhead == pytest.approx(1.05, abs=0.1 if form.alone else 0.25)
    assert links.alpha < 0.01


@pytest.mark.parametrize("which", [0, 1], ids=["slower", "between"])
def test_a_step_is_predicted_at_a_bandwidth_that_was_not_fitted(form, measurements, links, which):
    """Within 20 % of a real DDP step, its overlap included."""
    mbit = form.predicted[which]
    compute = min(seconds_of(measurements, "compute", fitted) for fitted in form.fitted)
    job = Job(fixed=compute, per_row=0.0, buckets=form.work.buckets())
    predicted = predict_step(job, links.at(mbit * MBIT), 2, form.work.rows[0])
    step = seconds_of(measurements, "step", mbit)
    print(f"{mbit} Mbit/s: predicted {predicted.seconds:.4f}, measured {step:.4f} s; {links}")
    assert predicted.seconds == pytest.approx(step, rel=0.2)
    assert step > 1.2 * compute  # the network was worth predicting


@pytest.mark.parametrize("which", [0, 1], ids=["slower", "between"])
def test_an_ordered_network_is_as_slow_as_that_one(form, measurements, links, which):
    """A whole DDP step on ranks of one host, within 20 %; headers take a share of a real link."""
    mbit = form.predicted[which]
    ordered = Network(mbit * MBIT / links.overhead, links.alpha)
    step = ordered_step(form, ordered)
    print(
        f"{mbit} Mbit/s: ordered {step:.4f}, shaped {seconds_of(measurements, 'step', mbit):.4f} s"
    )
    assert step == pytest.approx(seconds_of(measurements, "step", mbit), rel=0.2)


def ordered_step(form: Form, ordered: Network) -> float:
    """Seconds of a step of two ranks on this network, as `Ranks.measure` takes them."""
    call = call_of(timings_of_rank, (form.work, form.rounds, ("step",)), {}, 2)
    found = run_ranks(call, 2, 240, quiet=True, threads=1, network=ordered)
    seconds = slowest_ranks(found)["seconds"]
    return seconds.median() if form.alone else seconds.min()


@pytest.mark.release("the page's model where nothing else runs")
def test_the_page_predicts_a_size_that_it_has_not_measured():
    """The same on this machine, as the page does it: 1 to 4 ranks are fitted, 6 predicted.

    Nothing else runs meanwhile: the ranks have real-time priority on all cores for some seconds.
    """
    line = [sys.executable, "-m", "tests.workers.page_alone"]
    result = subprocess.run(line, cwd=CHECKOUT, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["whole steps"] == pytest.approx([1.0] * 8, rel=0.35)  # measured: 0.86 to 1.00
    assert found["six ranks"] == pytest.approx(1.0, rel=0.35)  # measured: 1.00
