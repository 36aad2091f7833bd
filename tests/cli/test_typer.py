"""The command line works with every version of typer that the package accepts."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLDEST = "0.16.0"
CLICK = "8.2.1"  # the newest that typer 0.16 was written for
# What `import typer` offers in that version.
NAMES = {
    "Abort", "Argument", "BadParameter", "CallbackParam", "Context", "Exit", "FileBinaryRead",
    "FileBinaryWrite", "FileText", "FileTextWrite", "Option", "Typer", "clear", "colors", "confirm",
    "echo", "echo_via_pager", "edit", "format_filename", "get_app_dir", "get_binary_stream",
    "get_terminal_size", "get_text_stream", "getchar", "launch", "open_file", "pause",
    "progressbar", "prompt", "run", "secho", "style", "unstyle",
}  # fmt: skip
COMMAND_LINES = (
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "publications").rglob("*.py"),
    *(ROOT / "benchmarks").glob("*.py"),
)


def test_the_oldest_version_is_the_declared_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (typer,) = (text for text in project["dependencies"] if text.startswith("typer"))
    assert OLDEST.startswith(typer.removeprefix("typer>="))


def test_no_name_is_used_that_the_oldest_typer_lacks() -> None:
    used = set()
    for path in COMMAND_LINES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id == "typer":
                    used.add(node.attr)
            elif isinstance(node, ast.Import):
                assert not any(re.match(r"typer\.|click\b", name.name) for name in node.names), path
            elif isinstance(node, ast.ImportFrom):
                imported = {(node.module, name.name) for name in node.names}
                # Typer's own pages name these.
                others = imported - {
                    ("typer.core", f"Typer{kind}") for kind in ("Command", "Group")
                }
                assert not any(re.match(r"(typer|click)\b", str(module)) for module, _ in others)
    assert {"Typer", "Option", "BadParameter"} <= used <= NAMES


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which `import typer` gives the oldest version."""
    folder = str(tmp_path_factory.mktemp("typer"))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
    done = subprocess.run(
        [*pip, f"typer=={OLDEST}", f"click=={CLICK}"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"typer {OLDEST} cannot be installed here: {done.stderr.splitlines()[-1]}")
    path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ("--help", 0, "Compare ways to start a session"),
        ("compare --help", 0, "--preset"),
        ("--version", 0, "."),
        ("presets show demo", 0, "sessions"),
        ("--nosuch", 2, "ebbflow: No such option"),
        ("compare --rounds", 2, "ebbflow: Option '--rounds' requires an argument"),
        ("bound here --iterations none", 2, "ebbflow: --iterations 'none' is no whole number"),
        ("resume", 2, "ebbflow: Missing argument 'DIR'"),
        ("nosuch", 2, "ebbflow: No such command 'nosuch'"),
        ("compar", 2, "did you mean compare?"),
        ("compare --sesions 3", 2, "did you mean --sessions?"),
        ("compare -h", 0, "Examples:"),
        ("compare --seed 1 --seeds 2", 2, "are the same option"),
        ("compare --algorithms nosuch --dry-run", 2, "there is no algorithm 'nosuch'"),
        ("export nowhere --csv", 2, "ebbflow: nowhere"),
        ("history show here five", 2, "SESSION 'five' is no whole number"),
        ("resume nowhere", 2, "ebbflow: nowhere"),
    ],
)
def test_the_oldest_typer_serves(
    oldest: dict[str, str], arguments: str, code: int, text: str
) -> None:
    program = (
        f"import typer; assert typer.__version__ == {OLDEST!r}\n"
        f"import sys; sys.argv = ['ebbflow', *{arguments.split()}]\n"
        "from ebbflow.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=oldest, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert text in (done.stderr if code else done.stdout)
    if code:
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
