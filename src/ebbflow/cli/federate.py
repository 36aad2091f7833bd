"""federate: a real federation's processes, taken up and down, looked at, and nodes for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ebbflow.cli.options import help_if_alone
from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.cli.values import whole
from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import printable

if TYPE_CHECKING:
    from ebbflow.flower.launch.federation_settings import Setting
    from ebbflow.flower.launch.launcher import Federation

app = typer.Typer(
    help="Run a real federation: server, gate and nodes (needs Flower).",
    invoke_without_command=True,
    epilog=examples(
        "ebbflow federate demo",
        "ebbflow federate init wards",
        "ebbflow federate run wards",
        "ebbflow federate status wards",
    ),
)
app.callback()(help_if_alone)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The federation's folder.")]
_INTERVAL = 0.2


@app.command(
    short_help="Start a federation's server and gate.",
    epilog=examples("ebbflow federate up wards", "ebbflow federate up wards --json"),
)
def up(
    folder: Folder,
    as_json: Annotated[bool, json_option("where nodes come to, and the processes")] = False,
) -> None:
    """Start whatever is not running of a federation's server and gate, and go.

    They run until `ebbflow federate down`. If one of them was killed, this starts it again, and
    the others go on; a server that is back within a minute loses nothing.
    """
    from ebbflow.flower.launch.ending import ending_by_signals
    from ebbflow.flower.launch.launcher import Federation
    from ebbflow.flower.launch.processes import recorded

    federation = Federation(folder)
    before = any(record.running for record in recorded(folder))
    with ending_by_signals() as leaving:
        try:
            federation.up()
        except BaseException:
            with leaving():
                if not before:  # half a federation is of no use
                    federation.down()
            raise
    if as_json:
        print_json({"address": federation.address, "processes": _processes(folder)})
        return
    name = printable(str(folder))
    typer.echo(f"nodes come to {federation.address}")
    numbers = list(federation.folder.public_keys())
    if numbers:
        typer.echo(f"a node on this machine: ebbflow federate node {name} {numbers[0]}")
        typer.echo(
            f"a node on another machine: take {name}/certificates/ca.crt and "
            f"{name}/keys/node{numbers[0]} there, into a folder of the same layout, then: "
            f"ebbflow federate node {name} {numbers[0]} --server {federation.address}"
        )
    typer.echo(f"the end: ebbflow federate down {name}")


@app.command(
    short_help="Run a node of a federation.",
    epilog=examples(
        "ebbflow federate node wards 0",
        "ebbflow federate node wards 3 --server 192.0.2.7:8443 --config data=ward3.csv",
    ),
)
def node(
    folder: Folder,
    number: Annotated[
        int,
        typer.Argument(
            metavar="NUMBER",
            parser=whole("NUMBER", 0, least=0),
            help="The node's number.",
        ),
    ],
    server: Annotated[
        str,
        typer.Option("--server", metavar="ADDRESS", help="Where its gate listens, as HOST:PORT."),
    ] = "",
    root_certificates: Annotated[
        Path | None,
        typer.Option(
            "--root-certificates",
            metavar="FILE",
            help="The certificate to know the server by; certificates/ca.crt of DIR.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="Its private key; keys/nodeNUMBER of DIR."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="What the app is told on this node."),
    ] = None,
    as_json: Annotated[bool, json_option("the node, once it is in,")] = False,
) -> None:
    """Run a node on this machine until Ctrl-C.

    On the server's machine DIR is the federation's folder. Elsewhere it is a folder with the files
    certificates/ca.crt and keys/nodeNUMBER (or name them by options) for what the node keeps, and
    --server says where to go. A node that was killed is let in again after a minute.
    """
    from ebbflow.flower.launch.ending import ending_by_signals
    from ebbflow.flower.launch.federation_settings import (
        SETTINGS,
        FederationSettings,
        read_settings,
    )
    from ebbflow.flower.launch.launcher import Federation, NodeOrigin
    from ebbflow.flower.launch.programs import require_flower

    alone = bool(server) and not (folder / SETTINGS).exists()
    settings = FederationSettings() if alone else read_settings(folder)
    require_flower()
    if not folder.is_dir():
        raise EbbflowError(f"{folder} is no folder: make one with the node's key and ca.crt in it")
    origin = NodeOrigin(server, root_certificates, key, dict(map(_setting, config or [])))
    federation = Federation(folder, settings)
    with ending_by_signals() as leaving:
        try:
            federation.start_node(number, origin)
            _follow(federation, number, as_json)
        finally:
            with leaving():
                federation.stop_node(number)


@app.command(
    short_help="End all processes of a federation.",
    epilog=examples("ebbflow federate down wards", "ebbflow federate down wards --json"),
)
def down(folder: Folder, as_json: Annotated[bool, json_option("what was ended")] = False) -> None:
    """End every process that was started for a federation on this machine, and all they started.

    Nodes leave first, then the gate and the server. Whatever does not end within some seconds is
    killed. Processes of anybody else are never touched, not even one that has got the number of
    a process that was recorded here.
    """
    from ebbflow.flower.launch.launcher import down as end

    _check(folder)
    _tell_ended(end(folder), as_json)


@app.command(
    short_help="End a federation, and delete what only its processes needed.",
    epilog=examples("ebbflow federate clean wards", "ebbflow federate clean wards --all"),
)
def clean(
    folder: Folder,
    everything: Annotated[
        bool, typer.Option("--all", help="Delete the whole folder, with models, data and keys.")
    ] = False,
    as_json: Annotated[bool, json_option("what was ended")] = False,
) -> None:
    """End a federation as `down` does, also after a crash, and delete what is then of no use.

    The server's database and Flower's own files go; settings, keys, the app, logs, what nodes keep
    and what was learned stay.
    """
    from ebbflow.flower.launch.launcher import clean as tidy

    _check(folder)
    _tell_ended(tidy(folder, everything=everything), as_json)


@app.command(
    short_help="Show what runs of a federation, and which nodes are in.",
    epilog=examples("ebbflow federate status wards", "ebbflow federate status wards --json"),
)
def status(folder: Folder, as_json: Annotated[bool, json_option("all of it")] = False) -> None:
    """Show the processes of a federation on this machine, its nodes and its runs."""
    from ebbflow.flower.launch.launcher import LINK, Federation

    federation = Federation(folder)
    processes = _processes(folder)
    nodes: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    if any(each["name"] == LINK and each["running"] for each in processes):
        nodes, runs = _seen(federation)
    if as_json:
        content = {"address": federation.address, "processes": processes}
        print_json({**content, "nodes": nodes, "runs": runs})
        return
    if not processes:
        typer.echo(f"nothing runs: `ebbflow federate up {printable(str(folder))}` starts it")
    for each in processes:
        state = f"process {each['pid']}" if each["running"] else "has ended"
        typer.echo(f"{each['name']:10} {state:16} {each['log']}")
    for each in nodes:
        typer.echo(f"node {each['number']:<5} {each['status']}")
    for each in runs:
        typer.echo(f"run  {each['run']}  {each['status']} {each['outcome']}".rstrip())


def _processes(folder: Path) -> list[dict[str, Any]]:
    from ebbflow.flower.launch.processes import recorded

    return [
        {"name": each.name, "pid": each.pid, "running": each.running, "log": each.log}
        for each in recorded(folder)
    ]


def _seen(federation: Federation) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the nodes and the runs that the server knows."""
    from ebbflow.flower.gate.keys import key_bytes
    from ebbflow.flower.launch.control import NoAnswerError

    numbers = {key_bytes(path): n for n, path in federation.folder.public_keys().items()}
    with federation.control() as control:
        try:
            known, past = control.nodes(), control.runs()
        except NoAnswerError as error:
            typer.echo(str(error), err=True)
            return [], []
    nodes = [
        {"number": numbers[node.public_key], "id": node.node_id, "status": node.status}
        for node in known
        if node.public_key in numbers
    ]
    runs = [{"run": run.run_id, "status": run.status, "outcome": run.outcome} for run in past]
    return sorted(nodes, key=lambda node: node["number"]), runs


def _follow(federation: Federation, number: int, as_json: bool) -> None:
    """Say what a node does, until it ends or this command is interrupted."""
    from ebbflow.flower.launch.folder import node_name
    from ebbflow.flower.launch.host import node_state

    home, name, said = federation.folder.node_home(number), node_name(number), None
    while federation.processes.running(name) is not None:
        state = node_state(home)
        if state and state != said:
            typer.echo(f"node {number}: {printable(str(state['says']))}", err=True)
            if as_json and state["state"] == "in":
                print_json({"node": number, "state": "in", "pid": state["pid"]})
            said = state
        time.sleep(_INTERVAL)
    raise EbbflowError(f"{name} has ended: see {federation.folder.log(name)}")


def _tell_ended(names: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"ended": names})
    else:
        typer.echo(f"ended {', '.join(names)}" if names else "nothing was running")


def _check(folder: Path) -> None:
    if not folder.is_dir():
        raise EbbflowError(f"{folder} is no folder: name that of a federation")


def _setting(text: str) -> tuple[str, Setting]:
    """Return a key and its value, which is a text if TOML knows nothing better."""
    import tomllib

    key, equals, value = text.partition("=")
    if not (equals and key.strip()):
        raise EbbflowError(f"--config {text!r} sets nothing: write KEY=VALUE")
    try:
        found = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        found = value
    if not isinstance(found, str | int | float | bool):
        raise EbbflowError(f"--config {text!r} is more than Flower passes on: write one value")
    return key.strip(), found
