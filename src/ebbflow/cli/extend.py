"""extend: more seeds for a run that is there."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from ebbflow.cli import values
from ebbflow.cli.experiments import display_of, show, stopping, trackers_of
from ebbflow.cli.options import AsJson, Plugins, Quiet, RunPath, Trackers
from ebbflow.cli.printing import examples
from ebbflow.core import seed_lists

app = typer.Typer()


@app.command(
    short_help="Add seeds to a run, and compute them.",
    epilog=examples(
        "ebbflow extend runs/mine --seeds 4,5", "ebbflow extend runs/mine --seeds 4-6 --quiet"
    ),
)
def extend(
    folder: RunPath,
    seeds: Annotated[
        str,
        typer.Option(
            "--seeds", metavar=values.INTEGERS, help="Seeds to add, and ranges, as in 7,4-6."
        ),
    ],
    plugin: Plugins = None,
    log: Trackers = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Add seeds to a run, finished or not, and go on from its last checkpoint.

    The outcome is that of a run with all seeds from the start.
    """
    from ebbflow.cli.run_log import RunLog
    from ebbflow.runs.extending import with_seeds

    new, trackers, run_log = seed_lists.seeds(seeds), trackers_of(log), RunLog(folder)
    with stopping(folder, run_log.leave) as signals, run_log.listening(signals):
        # Before torch is imported, so that a slip is told at once.
        config = with_seeds(folder, new)
        from ebbflow import experiment
        from ebbflow.core.malloc import use_one_arena
        from ebbflow.plugins import load_recorded
        from ebbflow.runs.environment import other_instructions

        use_one_arena()
        load_recorded(config.plugins, plugin or [])
        if warning := other_instructions(folder, longer=True):
            typer.echo(f"warning: {warning}", err=True)
            run_log.warn(warning)
        with closing(display_of(config, quiet)) as display:
            outcome = experiment.extend(
                folder,
                new,
                callbacks=[display, run_log, *trackers, signals],
                stop=signals.requested,
            )
        show(outcome, config, as_json, quiet)
