"""cost: seconds, joules and bytes on the air."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ebbflow.cli import completion
from ebbflow.cli.options import Devices, Presets, Settings, preset_list
from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.cli.states import tell_state
from ebbflow.cli.values import FLOAT, INTEGER, number, whole
from ebbflow.core.errors import EbbflowError

if TYPE_CHECKING:
    from ebbflow.analysis.cost import Errand, ModelSize
    from ebbflow.analysis.metrics import Target
    from ebbflow.config.resolved import Config

app = typer.Typer()

DRAWS = 20
"""Draws of positions and fading over which the cost of a round is averaged."""


@app.command(
    "cost",
    short_help="Print a run's or a round's latency, energy and bytes.",
    epilog=examples(
        "ebbflow cost runs/demo --target 0.9",
        "ebbflow cost --model svhn --devices 100 --bandwidth 20e6",
        "ebbflow cost runs/demo --sweep bandwidth --json",
    ),
)
def cost(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="A run folder.",
            show_default=False,
            autocompletion=completion.run_folders,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Cost one round of this data set's model, without a run.",
            autocompletion=completion.dataset_names,
        ),
    ] = None,
    devices: Devices = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm",
            metavar="NAME",
            help="The FL algorithm.",
            autocompletion=completion.algorithm_names,
        ),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(
            "--bandwidth",
            metavar=FLOAT,
            parser=number("--bandwidth", 100e6),
            help="W in Hz, as in 100e6.",
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed", metavar=FLOAT, parser=number("--speed", 1.5), help="Device speed in m/s."
        ),
    ] = None,
    preset: Presets = None,
    settings: Settings = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar=FLOAT,
            help="To reach: up to 1 a fraction of the warm start's peak, else percent.",
        ),
    ] = "0.95",
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Simulate every slot, and show the error of the closed form."),
    ] = False,
    draws: Annotated[
        int,
        typer.Option(
            "--draws",
            metavar=INTEGER,
            parser=whole("--draws", DRAWS, least=1),
            help="Draws to average over, without a run.",
        ),
    ] = DRAWS,
    sweep: Annotated[
        str | None,
        typer.Option("--sweep", metavar="bandwidth|devices|speed", help="What to vary."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="PNG", help="Draw the sweep.")
    ] = None,
    as_json: Annotated[bool, json_option("all costs")] = False,
) -> None:
    """Show what a run, or one round of a model, costs on the air: latency, energy, bytes."""
    from ebbflow.analysis.metrics import parse_target

    goal = parse_target(target)
    if (folder is None) == (model is None):
        raise EbbflowError(
            "name what to cost, a run folder or --model, and not both: as in `ebbflow cost "
            "runs/demo`, or `ebbflow cost --model svhn`"
        )
    if picture is not None and sweep is None:
        raise EbbflowError(f"--picture {picture} draws a sweep: add --sweep bandwidth")
    if picture is not None and not picture.parent.is_dir():
        raise EbbflowError(
            f"--picture {picture}: there is no folder {picture.parent}; make it first"
        )
    if folder is not None:
        for name, value in (("devices", devices), ("algorithm", algorithm)):
            if value is not None:
                raise EbbflowError(
                    f"--{name} {value}: a run says that itself; leave it out, or use --model"
                )
    options: dict[str, tuple[str, str | float | None]] = {
        "dataset": ("--model", model),
        "partition.devices": ("--devices", devices),
        "wireless.bandwidth": ("--bandwidth", bandwidth),
        "wireless.speed": ("--speed", speed),
        "wireless.fading": ("--exact", "slots" if exact else None),
    }
    config = _configured(folder, preset_list(preset), options, settings or [])
    from ebbflow.analysis.cost import within_numbers

    with within_numbers(config.wireless):
        if folder is not None:
            _of_run(folder, config, goal, sweep, picture, as_json)
        else:
            from ebbflow.algorithms import ALGORITHMS

            sending = ALGORITHMS.find(algorithm or config.algorithm[0], "--algorithm").name
            _of_model(config, sending, draws, sweep, picture, as_json, exact=exact)


def _configured(
    folder: Path | None,
    presets: list[str],
    options: dict[str, tuple[str, str | float | None]],
    settings: list[str],
) -> Config:
    """Return a run's configuration, or the default, with presets, options and settings on top."""
    from ebbflow.config.merge import Layers
    from ebbflow.plugins import warn_of_lacking
    from ebbflow.runs.configuration import run_layers

    layers = Layers() if folder is None else run_layers(folder)
    warn_of_lacking(layers.plugins())
    for name in presets:
        layers.add_preset(name)
    for key, (option, value) in options.items():
        if value is not None:
            shown = f"{value:g}" if isinstance(value, float) else value
            layers.add_key(key, value, f"{option} {shown}")
    for setting in settings:
        layers.add_setting(setting)
    return layers.config()


def _of_run(
    folder: Path,
    config: Config,
    target: Target,
    sweep: str | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    from rich.console import Console

    from ebbflow.analysis.run_costs import mean_tasks, model_size, reached, run_costs
    from ebbflow.report.cost_tables import target_rows, target_tables, usage_rows, usage_tables

    size = model_size(config)
    spent = run_costs(config, size, folder)
    results = reached(config, spent, target)
    tell_state(folder)
    if sweep is not None:
        rounds: dict[str, list[int]] = {}
        algorithm = config.algorithm[0]
        for r in results:
            if r.algorithm == algorithm and r.transition is not None and r.rounds is not None:
                rounds.setdefault(r.method, []).append(r.rounds)
        means = {method: sum(counts) / len(counts) for method, counts in rounds.items()}
        if not means:
            raise EbbflowError(f"{folder}: no method reached the target; lower --target")
        devices = max(usage.participants for usage in spent)
        tasks = mean_tasks(config, size, folder, algorithm)
        what = f"to {target}, {algorithm}"
        _sweep(config, size, tasks, sweep, means, what, devices, DRAWS, picture, as_json)
        return
    if as_json:
        _print_json(config, size, {"methods": usage_rows(spent), "targets": target_rows(results)})
        return
    console = Console()
    typer.echo(
        f"{size.parameters:,} parameters, {size.complexity:.4g} operations each; "
        f"{_spectrum(config)}"
    )
    tables = target_tables(results, target)
    for table in [*usage_tables(spent), *tables]:
        console.print(table)
    if not tables:
        first = config.pilot.sessions + 3
        typer.echo(f"no transition yet: the first with a choice is session {first}")


def _of_model(
    config: Config,
    algorithm: str,
    draws: int,
    sweep: str | None,
    picture: Path | None,
    as_json: bool,
    *,
    exact: bool,
) -> None:
    from rich.console import Console

    from ebbflow.analysis.cost import MODELS
    from ebbflow.analysis.run_costs import estimate, model_size, task_of
    from ebbflow.core.errors import unknown
    from ebbflow.report.cost_tables import estimate_table

    names, wireless = (*MODELS, "digits"), config.wireless
    not_known = config.dataset not in names and not config.dataset.endswith(".npz")
    if not_known and (wireless.parameters is None or wireless.complexity is None):
        raise unknown(config.dataset, names, "model", "--model")
    size = model_size(config)
    devices = config.partition.devices
    if devices is None:
        raise EbbflowError(
            'schedule.kind = "trace" does not say how many devices a round has: leave it out, and '
            "name their number by --devices"
        )
    task = task_of(config, size, algorithm)
    if sweep is not None:
        name, what = "a round", "of one round"
        tasks, once = {name: task}, {name: 1.0}
        _sweep(config, size, tasks, sweep, once, what, devices, draws, picture, as_json)
        return
    estimates = {}
    ways = ("slots", "ergodic") if exact else (wireless.fading,)
    for way in ways:
        faded = wireless.model_copy(update={"fading": way})
        estimates[way] = estimate(faded, task, devices, seed=config.seeds[0], draws=draws)
    if as_json:
        _print_json(
            config,
            size,
            {
                "devices": devices,
                "algorithm": algorithm,
                "draws": draws,
                "round": {
                    way: {
                        **e.cost._asdict(),
                        "deviation": e.deviation if draws > 1 else None,
                        "error": e.error if draws > 1 else None,
                    }
                    for way, e in estimates.items()
                },
            },
        )
        return
    title = (
        f"{config.dataset}, {algorithm}: {size.parameters:,} parameters, {devices} devices, "
        f"{_spectrum(config)}; mean of {draws} draws"
    )
    Console().print(estimate_table(estimates, title))
    if exact:
        parts = [
            f"{name} {100 * (getattr(estimates['ergodic'].cost, name) / truth - 1):+.3f} %"
            for name in ("latency", "energy")
            for truth in [getattr(estimates["slots"].cost, name)]
        ]
        typer.echo(f"the closed form differs by {', '.join(parts)}")


def _sweep(
    config: Config,
    size: ModelSize,
    tasks: dict[str, Errand],
    variable: str,
    rounds: dict[str, float],
    what: str,
    devices: int,
    draws: int,
    picture: Path | None,
    as_json: bool,
) -> None:
    from rich.console import Console

    from ebbflow.analysis.run_costs import SWEEPS, sweep
    from ebbflow.core.errors import unknown
    from ebbflow.report.cost_tables import sweep_picture, sweep_table

    if variable not in SWEEPS:
        raise unknown(variable, SWEEPS, "sweep", "--sweep")
    points = [
        point
        for task in dict.fromkeys(tasks[method] for method in rounds)
        for point in sweep(
            config,
            task,
            variable,
            {method: count for method, count in rounds.items() if tasks[method] == task},
            devices=devices,
            draws=draws,
        )
    ]
    title = f"{Path(config.dataset).stem}: latency and energy {what}"
    if as_json:
        rows = [{variable: p.value, "method": p.method, **p.cost._asdict()} for p in points]
        _print_json(config, size, {"rounds": rounds, "sweep": rows})
    else:
        Console().print(sweep_table(points, variable, title))
    if picture is not None:
        sweep_picture(points, variable, picture, title)
        typer.echo(f"picture  {picture}", err=as_json)


def _spectrum(config: Config) -> str:
    width = f"{config.wireless.bandwidth / 1e6:g} MHz"
    shared = {
        "equal": f"{width} shared equally",
        "finish_together": f"{width} shared so that all finish together",
        "per_device": f"{width} a device",
    }[config.wireless.allocation]
    return f"{shared}, downlink multicast" if config.wireless.downlink == "multicast" else shared


def _print_json(config: Config, size: ModelSize, content: dict[str, Any]) -> None:
    about = {"wireless": config.wireless.model_dump(mode="json"), "model": size._asdict()}
    print_json({**about, **content})
