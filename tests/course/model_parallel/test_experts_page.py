"""Page 11 further, Experts: equal to one process, what is dropped, balance, routers that differ."""

import pytest
import torch
import torch.distributed as dist

from ddp_workbook import RankFailed, RanksHung, launch
from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.experiments.model_parallel import balance, experts


@pytest.mark.parametrize(
    ("router", "top", "ranks"),
    [
        (experts.AS_INITIALIZED, 2, 4),
        (experts.NONE, 1, 3),
        pytest.param(experts.ALL, 1, 4, marks=pytest.mark.push("layers on ranks")),
        pytest.param(experts.AS_INITIALIZED, 1, 1, marks=pytest.mark.push("layers on ranks")),
    ],
)
def test_a_layer_equals_one_process(router, top, ranks):
    """Also if an expert gets no token, and if one gets all."""
    steps = launch(experts.step, router, top, ranks=ranks)
    assert max(experts.furthest(steps).values()) < experts.EQUAL
    if ranks > 2:
        to_2 = [step.sent[2] for step in steps]
        assert (sum(to_2) == 0) is (router == experts.NONE)
        assert (sum(to_2) == ranks * experts.TOKENS) is (router == experts.ALL)
    assert "all gradients equal those of one process" in experts.messages_plot(steps).alt


def test_a_capacity_drops_what_comes_last():
    steps = experts.run(experts.AS_INITIALIZED, 1, "1.25")
    whole = experts.run(experts.AS_INITIALIZED, 1, "none")
    most = experts.capacity_of(1.25, 1, experts.RANKS)
    assert most == 40  # as the page's question has it
    for step, all_rows in zip(steps, whole, strict=True):
        assert step.sent == [min(rows, most) for rows in all_rows.sent]
        assert step.dropped == sum(all_rows.sent) - sum(step.sent)
    assert "43 of 512 choices are dropped" in experts.messages_plot(steps).alt
    kept = experts.within_capacity(torch.tensor([0, 0, 0, 2, 2, 3]), 2)
    assert kept.tolist() == [True, True, False, True, True, True]


@pytest.mark.push("layers on ranks")
def test_what_the_page_says_of_gradients():
    ways = experts.compare("exchange", experts.EXCHANGES)
    assert (ways.drop("all_to_all_single alone").astype(float) < experts.EQUAL).all(axis=None)
    alone = ways.loc["all_to_all_single alone"]
    assert alone["gradient of expert"] == "none" and float(alone["gradient of tokens"]) > 0.1
    assert float(alone["output"]) == 0 and float(alone["gradient of router"]) < experts.EQUAL
    of_expert = experts.compare("expert_gradient", experts.TREATMENTS)["gradient of expert"]
    left, averaged, divided = of_expert.astype(float)
    assert left == pytest.approx(3, abs=0.01) and averaged > 1 and divided < experts.EQUAL
    lengths = experts.router_gradients()["length of the router's gradient"].astype(float)
    assert lengths[1] < 1e-8 and min(lengths[0], lengths[2]) > 1e-3


def test_five_all_to_alls():
    counted = experts.count()
    assert counted["dtype"].tolist() == ["int64", *["float32"] * 4]
    assert counted["bytes"].tolist()[1:3] == counted["bytes"].tolist()[3:]


@pytest.mark.push("waits for a time limit")
def test_a_rank_that_skips_its_expert_is_missing_in_backward():
    with pytest.raises((RankFailed, RanksHung), match="entered by rank 0, never by rank 1"):
        launch(skip_idle_expert, ranks=2, timeout=10)


def skip_idle_expert():
    """Rank 1's expert gets no token, and what it makes of them has no history."""
    setup()
    router = experts.Router(experts.WIDTH, 2)
    router.bias[0] = 1.0
    layer = experts.ExpertParallel(router, experts.make_expert(experts.WIDTH))
    if dist.get_rank() == 1:
        layer.expert.forward = torch.zeros_like
    layer(torch.randn(8, experts.WIDTH, requires_grad=True)).sum().backward()


@pytest.mark.parametrize(
    ("remedy", "strength", "least", "most"),
    [
        (balance.NOTHING, 0.0, 0.9, 1),
        pytest.param(balance.LOSS, 0.01, 0.6, 0.9, marks=pytest.mark.push("trainings")),
        (balance.LOSS, 0.1, 0, 0.4),
        pytest.param(balance.LOSS, 1.0, 0, 0.4, marks=pytest.mark.push("trainings")),
        pytest.param(balance.BIAS, 0.001, 0.9, 1, marks=pytest.mark.push("trainings")),
        (balance.BIAS, 0.01, 0, 0.4),
    ],
)
def test_the_load_is_lost_and_found(remedy, strength, least, most):
    """The loss falls in any case."""
    log = launch(balance.train, remedy, strength, ranks=1)[0]
    busiest, loss = balance.end_of(log)
    assert least <= busiest <= most and loss < 0.1 < log["loss"][0] / 10
    words = balance.shares_plot({"one": log}).alt
    assert f"busiest {busiest:.0%}" in words


def test_an_auxiliary_loss_is_1_for_equal_shares():
    even, counts = torch.full((8, 4), 0.25), torch.tensor([2, 2, 2, 2])
    assert balance.auxiliary_loss(even, counts) == 1
    sharp = torch.tensor([[0.7, 0.1, 0.1, 0.1]])
    assert balance.auxiliary_loss(sharp, torch.tensor([8, 0, 0, 0])) == pytest.approx(2.8)


@pytest.mark.push("trainings on ranks")
def test_only_a_comparison_shows_that_routers_disagree():
    table = balance.compare_routers().set_index("router")
    first, last = (table["loss"].str.split(" to ").str[place].astype(float) for place in (0, 1))
    assert (last < first - 0.2).all() and last.max() - last.min() < 0.1
    agree = table["images that all ranks send to the same expert"].str.rstrip("%").astype(float)
    assert agree[balance.AVERAGED] == 100
    assert agree[balance.NOT_AVERAGED] < 95 and agree[balance.OWN_SEED] < 50
