"""Write the tables and the picture of docs/costs.md, and leave its text as it is.

Tables stand between `<!-- NAME -->` and `<!-- /NAME -->`; the picture is PAGE with the ending .png.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from chang2025.published_costs import PAPER_ROUND, published, published_rounds
from ebbflow.analysis.cost import MODELS, device_costs, draw_fleet, round_task, together
from ebbflow.analysis.run_costs import RoundEstimate, estimate, sweep
from ebbflow.config.merge import Layers
from ebbflow.config.presets import preset
from ebbflow.config.schema import Wireless
from ebbflow.core.files import write_atomically
from ebbflow.report.cost_tables import sweep_picture
from ebbflow.report.markdown import filled, table

DEVICES = 100
DRAWS = 3000
SLOW_DRAWS = 300  # of shares that finish together, which take longer to find and vary little
EXACT_DRAWS = 5

READINGS: dict[str, dict[str, Any]] = {
    "**default**: 100 MHz shared equally": {},
    "default without shadowing": {"shadowing": 0.0},
    "default, the mean device's latency": {"latency": "mean"},
    "default, shares that finish together": {"allocation": "finish_together"},
    "default, backward pass counted (`passes = 3`)": {"passes": 3.0},
    "`per-device`: 100 MHz each": preset("per-device")["wireless"],
    "1.39 MHz each, with shadowing": {"allocation": "per_device", "bandwidth": 1.39e6},
    "**`fitted`**: 1.39 MHz each, no shadowing": preset("fitted")["wireless"],
}


def off(found: float, theirs: float) -> str:
    """Return by how much we differ."""
    return f"{100 * (found / theirs - 1):+.1f} %"


@cache
def one_round(reading: str, model: str, algorithm: str = "fedavg") -> RoundEstimate:
    """Return what a round costs in a reading, at mean rates."""
    wireless = Wireless(**(READINGS[reading] | {"fading": "ergodic"}))
    task = round_task(wireless, MODELS[model], algorithm=algorithm)
    draws = SLOW_DRAWS if wireless.allocation == "finish_together" else DRAWS
    return estimate(wireless, task, DEVICES, draws=draws)


DEFAULT, *_, FITTED = READINGS


def latency(found: RoundEstimate) -> str:
    """Return the mean latency with its standard error, unless that is below the digits shown."""
    error = "" if found.error < 1e-4 * found.cost.latency else f" ± {found.error:.1g}"
    return f"{found.cost.latency:.4g}{error} s"


def readings() -> str:
    """Return one round of each reading beside the paper's."""
    rows = []
    for reading in READINGS:
        cells = [reading]
        for model, (seconds, joules) in PAPER_ROUND.items():
            found = one_round(reading, model)
            cost = found.cost
            cells += [
                f"{latency(found)} ({off(cost.latency, seconds)})",
                f"{cost.energy / 1e3:.4g} kJ ({off(cost.energy, joules)})",
            ]
        rows.append(cells)
    paper = ["**the paper**"]
    for seconds, joules in PAPER_ROUND.values():
        paper += [f"{seconds:.4g} s", f"{joules / 1e3:.4g} kJ"]
    head = ["reading", "TinyImageNet, latency", "energy", "SVHN, latency", "energy"]
    return table(head, [paper, *rows])


def time_to_accuracy() -> str:
    """Return the paper's latency and energy columns, computed from its rounds."""
    rows = []
    for row in published():
        cells = [f"{row.dataset}, {row.algorithm}", row.method, str(row.rounds)]
        for name in ("latency", "energy"):
            theirs = getattr(row, name)
            unit, digits = (1, 1) if name == "latency" else (1e3, 2)
            cells.append(f"{theirs / unit:.{digits}f}")
            for reading in (FITTED, DEFAULT):
                cost = one_round(reading, row.dataset).cost.times(row.rounds)
                found = getattr(cost, name)
                cells.append(f"{found / unit:.{digits}f} ({off(found, precise(row, name))})")
        rows.append(cells)
    head = ["setting", "method", "rounds"]
    head += ["latency (s): paper", "`fitted`", "default"]
    head += ["energy (kJ): paper", "`fitted`", "default"]
    return table(head, rows)


def precise(row: Any, name: str) -> float:
    """Return the paper's value before it was rounded to 0.1 s or 0.01 kJ: rounds times a round."""
    seconds, joules = PAPER_ROUND[row.dataset]
    return float(row.rounds * (seconds if name == "latency" else joules))


def charged() -> str:
    """Return what the paper's comparison becomes when everything is charged, in our default."""
    rows = []
    for model, algorithm, rounds in (("tinyimagenet", "scaffold", 200), ("svhn", "moon", 200)):
        found = {
            r.method: r.rounds
            for r in published()
            if (r.dataset, r.algorithm) == (model, algorithm)
        }
        for charge, extra in (
            ("training alone, as in the paper", 0.0),
            ("and V = 1 probe round", 1.0),
            ("and a sixth of the pilot's 200 rounds", 1 + rounds / 6),
        ):
            ours = found["warm_start"] + extra
            theirs = found["previous"]
            cost = one_round(DEFAULT, model, algorithm).cost
            rows.append(
                [
                    f"{model}, {algorithm}",
                    charge,
                    f"{ours:.3g}",
                    f"{cost.times(ours).latency:.4g}",
                    f"{cost.times(ours).energy / 1e3:.3g}",
                    f"{theirs / ours:.2g}",
                ]
            )
    head = ["setting", "charged to `warm_start`", "rounds", "latency (s)", "energy (kJ)"]
    return table([*head, "speed-up over `previous`"], rows)


def exactness() -> str:
    """Return the slot-exact cost of a round beside that at mean rates, and how long each takes."""
    rows = []
    for model in MODELS:
        if model == "fmnist":  # the same numbers as MNIST
            continue
        errors: dict[str, list[float]] = {"latency": [], "energy": [], "device": []}
        seconds = {"slots": 0.0, "ergodic": 0.0}
        slots = 0.0
        for t in range(1, EXACT_DRAWS + 1):
            costs = {}
            for way in ("slots", "ergodic"):
                wireless = Wireless(fading=way)
                task = round_task(wireless, MODELS[model])
                fleet = draw_fleet(wireless, range(DEVICES), 100, 1, t)
                began = time.process_time()
                found = device_costs(wireless, fleet, task)
                seconds[way] += (time.process_time() - began) / EXACT_DRAWS
                costs[way] = found, together(wireless, task, found)
            (exact, exact_round), (mean, mean_round) = costs["slots"], costs["ergodic"]
            slots += float((exact.up / wireless.slot).mean()) / EXACT_DRAWS
            for name in ("latency", "energy"):
                errors[name].append(getattr(mean_round, name) / getattr(exact_round, name) - 1)
            moved = exact.down + exact.up
            errors["device"].append(float(abs((mean.down + mean.up) / moved - 1).max()))
        rows.append(
            [
                model,
                f"{slots:,.0f}",
                *(f"{100 * sum(errors[n]) / EXACT_DRAWS:+.2f} %" for n in ("latency", "energy")),
                f"{100 * max(errors['device']):.1f} %",
                f"{seconds['slots']:.2g} s",
                f"{1e3 * seconds['ergodic']:.1g} ms",
            ]
        )
    head = ["model", "slots of an upload", "latency", "energy", "worst device's air time"]
    return table([*head, "exact takes", "closed takes"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "readings": readings,
    "time to accuracy": time_to_accuracy,
    "charged": charged,
    "exactness": exactness,
}


def written(page: str, names: list[str]) -> str:
    """Return the page with some of its tables made anew."""
    for name in names:
        page = filled(page, name, TABLES[name]())
    return page


def picture(path: Path) -> None:
    """Draw the sweep over bandwidth that the paper has for SVHN."""
    layers = Layers()
    layers.add_key("dataset", "svhn", "costs")
    label, rounds = published_rounds("svhn")
    config = layers.config()
    task = round_task(config.wireless, MODELS["svhn"])
    points = sweep(config, task, "bandwidth", rounds, devices=DEVICES)
    title = f"SVHN: latency and energy to the target, by the paper's rounds ({label})"
    sweep_picture(points, "bandwidth", path, title)


def write_costs(path: Path) -> list[Path]:
    """Write the tables into the page and draw its picture; return what was written."""
    text = written(path.read_text(encoding="utf-8"), list(TABLES))
    write_atomically(path, text.encode())
    drawn = path.with_suffix(".png")
    picture(drawn)
    return [path, drawn]
