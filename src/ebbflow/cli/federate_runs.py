"""federate init, run, resume and demo: from nothing to a federation that has run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ebbflow.cli import federate
from ebbflow.cli.federate import Folder
from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.cli.values import whole
from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.core.names import printable

if TYPE_CHECKING:
    from ebbflow.flower.launch.driving import Driver
    from ebbflow.flower.launch.federation_settings import Setting
    from ebbflow.flower.launch.launcher import Federation

app = federate.app
DEMO_TURNS = "0 1 2, 2 3 4"
DEMO_NODES = 5
Nodes = Annotated[
    int,
    typer.Option("--nodes", metavar="N", parser=whole("--nodes", 5), help="How many nodes."),
]


@app.command(
    short_help="Make the folder of a federation that runs as it is.",
    epilog=examples(
        "ebbflow federate init wards",
        "ebbflow federate init wards --nodes 12 --host fl.example.org",
    ),
)
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make.")],
    nodes: Nodes = 5,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="A name or address by which nodes on other machines reach the server.",
        ),
    ] = None,
    as_json: Annotated[bool, json_option("what was made")] = False,
) -> None:
    """Make a federation: app, settings, certificates, keys, and digits divided among the nodes."""
    from ebbflow.flower.launch.programs import require_flower

    require_flower()
    from ebbflow.flower.launch.making import make_federation

    make_federation(folder, nodes, host or [])
    here = shlex.quote(str(folder))
    if as_json:
        print_json({"folder": folder, "nodes": nodes, "next": f"ebbflow federate run {here}"})
        return
    typer.echo(f"{printable(str(folder))} holds a federation of {nodes} nodes; see its README.md")
    typer.echo(f"next: ebbflow federate run {here}")


@app.command(
    short_help="Run a federation on this machine.",
    epilog=examples("ebbflow federate run wards", "ebbflow federate run wards --no-nodes"),
)
def run(
    folder: Folder,
    no_nodes: Annotated[
        bool, typer.Option("--no-nodes", help="Start no nodes: all are on other machines.")
    ] = False,
    as_json: Annotated[bool, json_option("what came of it")] = False,
) -> None:
    """Start a federation's server, its nodes on this machine and its app, and follow it.

    When the app is done, or at Ctrl-C, everything ends. Models, checkpoints and records are in
    DIR/run/history.
    """
    _run(folder, resume=False, nodes=not no_nodes, as_json=as_json)


@app.command(
    short_help="Go on with a federation that was stopped or killed.",
    epilog=examples("ebbflow federate resume wards", "ebbflow federate resume wards --json"),
)
def resume(
    folder: Folder,
    no_nodes: Annotated[
        bool, typer.Option("--no-nodes", help="Start no nodes: all are on other machines.")
    ] = False,
    as_json: Annotated[bool, json_option("what came of it")] = False,
) -> None:
    """Go on from the last round that was saved, whatever was killed: app, server or all of it.

    What still runs goes on; what does not is started again.
    """
    _run(folder, resume=True, nodes=not no_nodes, as_json=as_json)


@app.command(
    short_help="See a real federation with nodes that come and go.",
    epilog=examples(
        "ebbflow federate demo",
        "ebbflow federate demo --start warm_start --algorithm scaffold --out runs/scaffold",
    ),
)
def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where results go.")] = Path(
        "runs/federation"
    ),
    start: Annotated[
        str, typer.Option("--start", metavar="NAME", help="How sessions start.")
    ] = "learned",
    algorithm: Annotated[
        str, typer.Option("--algorithm", metavar="NAME", help="What trains them.")
    ] = "fedavg",
    sessions: Annotated[
        int,
        typer.Option(
            "--sessions",
            metavar="N",
            parser=whole("--sessions", 4, least=1),
            help="How many sessions.",
        ),
    ] = 4,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds", metavar="N", parser=whole("--rounds", 3, least=1), help="Rounds of each."
        ),
    ] = 3,
    as_json: Annotated[bool, json_option("the table")] = False,
) -> None:
    """Run a server, a gate and five nodes here, let nodes leave and come back, and compare.

    Two groups of nodes take turns; the node in the middle always stays. Everything is encrypted,
    nodes have keys, and nothing listens but on 127.0.0.1. In the end the simulator computes the
    same sessions, and both tables stand side by side.
    """
    from ebbflow.flower.launch.programs import require_flower

    require_flower()
    from ebbflow.flower.launch.launcher import Federation, clean, taken_up
    from ebbflow.flower.launch.making import make_federation

    settings: dict[str, Setting] = {
        "turns": DEMO_TURNS,
        "start": start,
        "algorithm": algorithm,
        "sessions": sessions,
        "rounds": rounds,
    }
    _check_names(start, algorithm)
    made = make_federation(out, DEMO_NODES, run=settings)
    here = shlex.quote(str(out))
    _say(
        f"a federation in {printable(str(out))}; should this be killed: "
        f"ebbflow federate clean {here} --all"
    )
    try:
        federation = Federation(made.path)
        with taken_up(federation):
            _say(f"server and gate are up, at {federation.address}")
            _followed(_driver(federation, nodes=True))
        rows = _compared(made.path, settings)
    except BaseException as error:
        # What has failed is looked into and resumed; what was interrupted is of no use.
        clean(made.path, everything=not isinstance(error, Exception))
        raise
    clean(made.path)
    if as_json:
        print_json({"folder": out, "rounds": rows[0], "equal": rows[1]})
        return
    _print_table(rows[0])
    same = "the same to the last bit" if rows[1] else "DIFFERENT"
    typer.echo(f"final models of federation and simulator: {same}")
    typer.echo(f"picture: {printable(str(out / 'federation.png'))}")


def _check_names(start: str, algorithm: str) -> None:
    """Refuse what the server's part of the app would refuse when everything is up."""
    from ebbflow.algorithms import ALGORITHMS
    from ebbflow.flower.terms import Starting
    from ebbflow.starts import AUTO, STARTS

    if algorithm not in ALGORITHMS:
        raise unknown(algorithm, ALGORITHMS, "algorithm", "--algorithm")
    if start not in {AUTO, *STARTS}:
        raise unknown(start, STARTS, "start", "--start")
    Starting(start)  # some are for simulations alone


def _run(folder: Path, *, resume: bool, nodes: bool, as_json: bool) -> None:
    from ebbflow.flower.launch.launcher import Federation, taken_up

    federation = Federation(folder)
    from ebbflow.flower.launch.driving import Recorded

    begun = Recorded(federation.folder.run / "history").begun
    here = shlex.quote(str(folder))
    if begun and not resume:
        raise EbbflowError(
            f"{folder} has been begun: go on by `ebbflow federate resume {here}`, or move "
            f"{folder / 'run' / 'history'} away to begin again"
        )
    if resume and not begun:
        raise EbbflowError(
            f"{folder} has nothing to go on from: begin by `ebbflow federate run {here}`"
        )
    with taken_up(federation):
        _say(f"server and gate are up, at {federation.address}")
        driver = _driver(federation, nodes=nodes)
        _followed(driver)
        last: dict[str, Any] = next(reversed(driver.recorded.rounds()), {})
    if as_json:
        print_json({"folder": folder, "last": last})
    else:
        typer.echo(f"done: {printable(str(folder / 'run' / 'history'))} has the models and records")


def _driver(federation: Federation, *, nodes: bool) -> Driver:
    from ebbflow.flower.launch.driving import Driver, turns_of

    turns = turns_of(str(federation.settings.run.get("turns", "")))
    return Driver(federation, turns, _say, local_nodes=nodes)


def _followed(driver: Driver) -> None:
    """Follow a run to its end, and say what to do if it has failed."""
    from ebbflow.flower.launch.driving import ServerDiedError

    folder = driver.federation.folder
    resume = f"`ebbflow federate resume {shlex.quote(str(folder.path))}`"
    try:
        seen = driver.go()
    except ServerDiedError as error:
        raise EbbflowError(f"{error} by {resume}") from None
    if seen.outcome != "completed":
        raise EbbflowError(
            f"the app ended early ({seen.outcome}{': ' if seen.details else ''}{seen.details}): "
            f"see {folder.log('executor')}, then {resume}"
        )


def _compared(folder: Path, settings: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """Return the federation's rounds beside the simulator's, and draw them."""
    from ebbflow.flower.launch.making import divided_digits
    from ebbflow.flower.saving import final_theta
    from ebbflow.flower.strategy import Local
    from ebbflow.rehearsing import federation_scores, model_digest, rehearse, training_settings
    from ebbflow.report.federation_figure import federation_picture

    history = folder / "run" / "history"
    found, local = federation_scores(history), Local()
    members = {score.session: score.members for score in found}
    _say("the simulator computes the same sessions")
    twin = rehearse(
        divided_digits(DEMO_NODES),
        list(members.values()),
        algorithm=settings["algorithm"],
        start=settings["start"],
        rounds=settings["rounds"],
        seed=1,
        settings={"model.kind": "softmax", **training_settings(local)},
    )
    title = f"{settings['algorithm']}, {settings['start']}: a federation of {DEMO_NODES} nodes"
    federation_picture(found, folder / "federation.png", title)
    rows = [
        {
            "session": real.session,
            "round": real.round,
            "devices": list(real.members),
            "federation": real.accuracy,
            "simulator": simulated.accuracy,
        }
        for real, simulated in zip(found, twin.scores, strict=True)
    ]
    return rows, model_digest(final_theta(history)) == twin.digest


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("session", "round", "devices", "federation", "simulator")
    for row in rows:
        devices = " ".join(map(str, row["devices"]))
        scores = (f"{row[name]:.2f} %" for name in ("federation", "simulator"))
        table.add_row(str(row["session"]), str(row["round"]), devices, *scores)
    Console().print(table)


def _say(sentence: str) -> None:
    typer.echo(printable(sentence), err=True)
