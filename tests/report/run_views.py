"""Small runs to show: made once, with devices whose names mean harm."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch

from ebbflow.analysis.views.run_view import RunView, view_of
from ebbflow.experiment import run
from tests.configs import digits, with_settings

HOSTILE = (
    r"\input{/etc/passwd}",
    "$x_1$ & 50 % #1",
    "=cmd|' /C calc'!A0",
    "-2+3",
    "Łódź naïve ~^{}",
    "病房 <b>7</b>",
    "a|b*c_d_ `e`",
    "\x1b[31mred\nline",
)
SMALL = ("rounds=3", "sessions=5", "engine.workers=1", "window=[2]")


@cache
def comparison() -> RunView:
    """Return four methods under two seeds on the digits."""
    config = with_settings(*SMALL, "seeds=[1,2]", "partition.devices=4", "data.limit_train=300")
    return replace(view_of(run(config)), name="digits")


@cache
def two_algorithms() -> RunView:
    config = with_settings(
        *SMALL,
        "seeds=[1]",
        "partition.devices=4",
        "data.limit_train=200",
        "algorithm=['fedavg','fedprox']",
        "partition.alpha=1.0",
        "methods=['learned','previous']",
    )
    return replace(view_of(run(config)), name="two")


@cache
def wards() -> RunView:
    """Return a run whose devices have names and test samples of their own."""
    data = digits()
    train = replace(data.train, device=torch.arange(len(data.train)) % len(HOSTILE))
    test = replace(data.test, device=torch.arange(len(data.test)) % len(HOSTILE))
    config = with_settings(
        *SMALL, "seeds=[1]", "partition.kind=natural", "methods=['learned','previous']"
    )
    named = replace(data, train=train, test=test, devices=HOSTILE)
    return replace(view_of(run(config, dataset=named)), name="wards & 'beds' _50%")


@cache
def lower_is_better() -> RunView:
    """Return the comparison as if it had been judged by an error."""
    view = comparison()
    config = view.config.model_copy(update={"task": "regression"})
    return replace(view, config=config, name="errors")


def under_way() -> RunView:
    """Return the comparison as it was in the middle of its second seed."""
    view = comparison()
    rounds = [r for r in view.rounds if r.seed == 1 or (r.session, r.round) < (4, 2)]
    events = [e for e in view.events if e.get("seed") != 2 or e["session"] <= 4]
    return replace(view, rounds=rounds, events=events, finished=False)
