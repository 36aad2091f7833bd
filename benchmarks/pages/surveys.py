"""Fills the tables of surveys in docs/costs.md and leaves its text unchanged.

    python -m benchmarks.pages surveys

A survey of the learned start beside a round of training: its share of the air time for several
numbers of models, and its latency with the computing. Nothing is run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ebbflow.analysis.accounting import (
    VALUES,
    Compression,
    basis_bytes,
    expansion_question,
    label_question,
    loss_question,
    surveying,
)
from ebbflow.analysis.cost import MODELS, draw_fleet, round_cost, round_task, total
from ebbflow.analysis.survey_costs import Survey, survey_cost, survey_share
from ebbflow.config.schema import Wireless
from ebbflow.core.files import write_atomically
from ebbflow.report.markdown import filled, table
from ebbflow.starts import STARTS
from ebbflow.starts.mixing import RIDGES

SHOWN = {"mnist": 10, "svhn": 10, "cifar10": 10, "agnews": 4}
"""The data sets, and the number of their labels."""
LINEAR = frozenset({"mnist"})
SIZES = (4, 6, 8)
DEVICES = 100
QUESTIONS = 12
DRAWS = 20
USUAL: dict[str, Any] = STARTS["learned"].defaults


def survey(name: str, models: int, compression: Compression) -> Survey:
    """Return a survey of K models and twelve questions, to as many devices as are asked by default.

    One question is for the labels, one for the losses of simple starts, one for the losses of all
    candidates, and the others are for expansions.
    """
    asked, groups = USUAL["devices"], USUAL["groups"]
    half = asked * USUAL["samples"]
    once, samples = (2 * half, 0) if name in LINEAR else (0, half)
    simple = models + 1
    candidates = simple + len(RIDGES) * (1 + groups)
    questions = [
        label_question(SHOWN[name], asked, models=models, samples=once),
        loss_question(simple, models, asked, samples),
        loss_question(candidates, models, asked, samples),
    ]
    for _ in range(len(questions), QUESTIONS):
        questions.append(expansion_question(models, asked, samples))
    basis = basis_bytes(MODELS[name].parameters, models, compression)
    cost = surveying(basis, questions)
    return Survey(
        tuple(range(asked)),
        (float(sum(basis)),) * asked,
        cost.questions,
        cost.bytes_down - sum(basis),
        cost.bytes_up / asked,
        cost.passes / asked,
    )


def shares() -> str:
    """Return the part of a round's air time that a survey takes."""
    rows = []
    for name in SHOWN:
        for models in SIZES:
            cells = [name, str(models)]
            for downlink in ("unicast", "multicast"):
                wireless = Wireless(downlink=downlink)
                task = round_task(wireless, MODELS[name])
                for compression in VALUES:
                    asked = survey(name, models, compression)
                    share = survey_share(wireless, MODELS[name], asked, task, DEVICES, draws=DRAWS)
                    usual = (USUAL["models"], USUAL["compression"]) == (models, compression)
                    cells.append(f"**{share:.3f}**" if usual else f"{share:.3f}")
            rows.append(cells)
    head = ["model", "K", "unicast, fp32", "bf16", "int8", "multicast, fp32", "bf16", "int8"]
    return table(head, rows)


def latencies() -> str:
    """Return the latency of a survey in rounds, with the computing of both."""
    rows = []
    for name in SHOWN:
        asked = survey(name, USUAL["models"], USUAL["compression"])
        cells = [name, f"{asked.passes:,.0f}"]
        for passes in (1.0, 3.0):
            wireless = Wireless(passes=passes)
            task = round_task(wireless, MODELS[name])
            asking, training = [], []
            for t in range(1, DRAWS + 1):
                asking.append(survey_cost(wireless, MODELS[name], asked, 100, 1, t))
                fleet = draw_fleet(wireless, range(DEVICES), 100, 1, t)
                training.append(round_cost(wireless, fleet, task))
            mine, theirs = (total(costs).times(1 / DRAWS) for costs in (asking, training))
            if passes == 1.0:
                cells.append(f"{mine.latency:.3g} s")
            cells += [f"{theirs.latency:.3g} s", f"{mine.latency / theirs.latency:.2f}"]
        rows.append(cells)
    head = ["model", "a device's forward passes", "a survey", "a round", "survey / round"]
    return table([*head, "a round, `passes = 3`", "survey / round"], rows)


TABLES = {"survey air time": shares, "survey latency": latencies}


def written(page: str) -> str:
    """Return the page with its tables of surveys made anew."""
    for name, made in TABLES.items():
        page = filled(page, name, made())
    return page


def write_tables(page: Path) -> None:
    """Fill the tables of the page."""
    write_atomically(page, written(page.read_text(encoding="utf-8")).encode())
