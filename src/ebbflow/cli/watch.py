"""watch: the report of runs in a browser, while they go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from ebbflow.cli import completion
from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.cli.values import INTEGER, whole
from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import printable

app = typer.Typer()

GIVES_WAY = 10
"""By how much the priority is lowered: a run that computes comes first."""


@app.command(
    short_help="Show the report of a run in a browser while it goes on.",
    epilog=examples(
        "ebbflow watch runs/demo --open",
        "ebbflow watch runs --port 8080",
        "ebbflow watch runs/demo --json",
    ),
)
def watch(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Run folders, or folders that hold several.",
            autocompletion=completion.run_folders,
        ),
    ],
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar=INTEGER,
            parser=whole("--port", 8080, least=0),
            help="The port to listen on; by default any that is free.",
            show_default=False,
        ),
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = False,
    as_json: Annotated[bool, json_option("the address (url, port and pid)")] = False,
) -> None:
    """Show the report of runs on a page that follows them, on this machine only.

    The runs may be going on, be finished, or not have begun. The page stays until you stop this
    command by Ctrl-C.
    """
    from ebbflow.report.live.lifetime import until_ended

    with until_ended() as ends:
        import os

        from ebbflow.report.live.server import LiveServer
        from ebbflow.report.live.watching import Watching

        _check(runs)
        os.nice(GIVES_WAY)
        with LiveServer(Watching(runs, _tell), port) as server:
            if as_json:
                place = {"url": server.url, "port": server.port, "pid": os.getpid()}
                print_json(place, in_a_line=True)
            else:
                typer.echo(server.url)
                _tell("press Ctrl-C to stop; who knows this address can see the page")
            with _opened(server.url, browser):
                server.serve(ends)


def _check(runs: Sequence[Path]) -> None:
    """Raise an error if a path cannot become a run; say so if there is none yet."""
    from ebbflow.runs.finding import run_folders

    for path in runs:
        if path.exists() and not path.is_dir():
            raise EbbflowError(f"{path} is no folder: name a run folder, or one that holds some")
        try:
            run_folders([path])
        except EbbflowError:
            _tell(f"{path} holds no run yet: the page shows it as soon as it begins")


@contextmanager
def _opened(url: str, wanted: bool) -> Iterator[None]:
    """Open the page in a browser, by way of a file that only its owner can read.

    The command line of a browser can be read by every user of the machine, and the address is a
    secret.
    """
    import html
    import tempfile
    import threading
    import webbrowser

    if not wanted:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="ebbflow-") as folder:
        path = Path(folder) / "watch.html"
        path.touch(mode=0o600)
        where = html.escape(url)
        path.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={where}">'
            f'<title>ebbflow</title><a href="{where}">ebbflow</a>\n',
            encoding="utf-8",
        )

        def show() -> None:
            if not webbrowser.open(path.as_uri()):
                _tell("no browser could be opened: copy the address into one")

        # Some browsers are waited for, and the page must be there meanwhile.
        threading.Thread(target=show, daemon=True).start()
        yield


def _tell(sentence: str) -> None:
    with suppress(OSError):  # nobody may be listening any more
        typer.echo(printable(sentence), err=True)
