"""trace: show what a trace holds and how it would be cut into sessions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ebbflow.cli.options import Settings, help_if_alone
from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.core.errors import EbbflowError

if TYPE_CHECKING:
    from ebbflow.config.schema import ScheduleSettings

app = typer.Typer(
    help="Look at traces of joins and leaves.",
    invoke_without_command=True,
    epilog=examples("ebbflow trace show wards.csv --interval 1d"),
)
app.callback()(help_if_alone)


@app.command(
    "show",
    epilog=examples(
        "ebbflow trace show wards.csv --interval 1d",
        "ebbflow trace show wards.csv --cut change --picture wards.png",
        "ebbflow trace show wards.csv --interval 12h --json",
    ),
)
def trace_show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace: CSV, JSON Lines, JSON.")],
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A TOML file with the configuration."),
    ] = None,
    settings: Settings = None,
    interval: Annotated[
        str | None,
        typer.Option("--interval", metavar="DURATION", help="The length of a session, such as 1d."),
    ] = None,
    cut: Annotated[
        str | None,
        typer.Option("--cut", metavar="interval|change|newcomers", help="Where sessions begin."),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            "--unit", metavar="DURATION", help="What the trace's numbers count, such as 1h."
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="A picture to draw.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Print every session.")] = False,
    as_json: Annotated[bool, json_option("everything")] = False,
) -> None:
    """Show who is there when, what is odd, and the sessions of a cut; nothing is trained."""
    options = {"interval": interval, "cut": cut, "unit": unit}
    choice = _schedule(file, config, settings or [], options)
    if picture is not None:
        from ebbflow.report.partition_report import check_picture

        check_picture(picture)
    from ebbflow.analysis.traces import stays_of, trace_cut, trace_facts, trace_record
    from ebbflow.config.schedules import scheduled_trace, trace_times

    trace = scheduled_trace(choice, odd="mend")
    facts = trace_facts(trace)
    refusal, sessions = None, None
    try:
        sessions = trace_cut(trace, trace_times(choice, trace).cut)
    except EbbflowError as error:  # everything else can be shown all the same
        refusal = error
    if as_json:
        print_json(trace_record(trace, facts, sessions))
    else:
        from rich.console import Console

        from ebbflow.core.names import printable
        from ebbflow.report.trace_report import fact_lines, oddity_lines, trace_session_table

        for line in (*fact_lines(trace, facts), *oddity_lines(trace, choice.odd == "stop")):
            typer.echo(printable(line))
        if sessions is not None:
            Console().print(trace_session_table(trace, sessions, everything))
    if picture is not None:
        from ebbflow.data.traces.trace import numbered_events
        from ebbflow.report.trace_report import trace_picture

        names, _ = numbered_events(trace.events)
        trace_picture(trace, names, stays_of(trace), sessions, picture)
        if not as_json:
            typer.echo(f"picture   {picture}")
    if refusal is not None:
        raise refusal


def _schedule(
    file: Path, config: Path | None, settings: list[str], options: dict[str, str | None]
) -> ScheduleSettings:
    """Return the schedule of a configuration, with this trace and these options on top."""
    from ebbflow.config.merge import Layers, literal

    layers = Layers()
    if config is not None:
        layers.add_file(config)
    for setting in settings:
        layers.add_setting(setting)
    layers.add({"schedule": {"kind": "trace", "file": str(file)}}, "FILE")
    for name, text in options.items():
        if text is not None:
            layers.add_key(f"schedule.{name}", literal(text), f"--{name}")
    return layers.config().schedule
