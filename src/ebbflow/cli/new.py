"""new: a folder with everything that a first experiment on one's own data needs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ebbflow.cli.printing import examples, json_option, print_json
from ebbflow.core.errors import EbbflowError

app = typer.Typer()

ENDING = ".txt"
"""What the templates' names end with, so that nobody takes them for modules or tests of ours."""
NEXT = ("python data.py", "ebbflow compare experiment.toml")


@app.command(
    short_help="Make a small project to start from.",
    epilog=examples("ebbflow new wards", "ebbflow new wards --json"),
)
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make.")],
    as_json: Annotated[bool, json_option("what was made")] = False,
) -> None:
    """Make a small project of your own: data, trace, settings, plugins and a test."""
    from ebbflow.core.files import make_folder, write_atomically

    _refuse_used(folder)
    files = starter_files()
    try:
        make_folder(folder.absolute())
        for name, content in files.items():
            write_atomically(folder / name, content)
    except OSError as error:
        raise EbbflowError(
            f"{folder} cannot be written ({error.strerror}): choose another folder"
        ) from None
    if as_json:
        print_json({"folder": folder, "files": sorted(files), "next": list(NEXT)})
        return
    typer.echo(f"{folder} holds a project that runs as it is; its README.md says what is what")
    first, second = NEXT
    typer.echo(f"next: cd {shlex.quote(str(folder))} && {first}")
    typer.echo(f"then: {second}")


def starter_files() -> dict[str, bytes]:
    """Return the content of every file of a new project, by name."""
    from importlib import resources

    return {
        entry.name.removesuffix(ENDING): entry.read_bytes()
        for entry in (resources.files("ebbflow") / "starter").iterdir()
        if entry.name.endswith(ENDING)
    }


def _refuse_used(folder: Path) -> None:
    """Raise an error unless a folder is empty or not there yet."""
    try:
        used = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise EbbflowError(
            f"{folder} cannot be read ({error.strerror}): choose another folder"
        ) from None
    if used:
        raise EbbflowError(f"{folder} exists and is not an empty folder: choose another one")
