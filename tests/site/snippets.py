"""Listings of the pages, and what can be checked of those that no test runs."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import typer

from ebbflow.cli import app
from ebbflow.config.merge import Layers, keys
from ebbflow.core.errors import EbbflowError

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(`{3,}|~{3,})([\w-]*)\n(.*?)^\1[ ]*$", re.DOTALL | re.MULTILINE)
REASON = re.compile(r"<!-- not run: (\S.*?) -->\s*\Z", re.DOTALL)
CHECKED = ("console", "python", "toml")
# A listing without a language that looks like one of these has to say why it is not run.
LOOKS_LIKE = re.compile(r"^(\$ |import |from \w+ import |\[\w+\]$)", re.MULTILINE)
SHELL = ("cd", "export", "git", "pip", "source", "ssh")
"""Programs of a reader's own machine, which are none of ours to check."""
FREE_KEYS = ("parameters.", "lr.algorithms.")
"""Keys below which names are free: those of plugins, too."""


class Listing(NamedTuple):
    """A listing on a page: its language, its text, why it is not run, and where it begins."""

    page: str
    language: str
    text: str
    reason: str | None
    line: int

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"docs/{self.page}:{self.line}"


def listings(page: str, text: str) -> Iterator[Listing]:
    """Yield the listings of a page."""
    for found in FENCE.finditer(text):
        reason = REASON.search(text[: found.start()])
        line = text.count("\n", 0, found.start()) + 1
        yield Listing(page, found[2], found[3], reason[1] if reason else None, line)


def commands(text: str) -> Iterator[str]:
    """Yield the commands of a console listing, without comments and with continued lines joined."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if line.startswith("$ "):
            yield line.removeprefix("$ ")


def problems(listing: Listing) -> Iterator[str]:
    """Yield what is wrong with a listing that no test runs."""
    if listing.reason is None:
        if listing.language == "python":
            yield f"{listing.place} is run by no test and gives no reason (<!-- not run: ... -->)"
        if not listing.language and LOOKS_LIKE.search(listing.text):
            yield f"{listing.place} looks like code, has no language and gives no reason"
    if listing.language == "toml" and listing.reason is None:
        yield from (f"{listing.place}: {text}" for text in wrong_settings(listing.text))
    if listing.language == "console":
        for command in commands(listing.text):
            yield from (f"{listing.place}: {text}" for text in wrong_command(command))


def wrong_settings(text: str) -> Iterator[str]:
    """Yield why a listing in TOML is no configuration."""
    layers = Layers()
    try:
        values = tomllib.loads(text)
        values.pop("plugins", None)  # which would be loaded, and register what the rest names
        if isinstance(values.get("methods"), list):
            values.pop("methods")
        for name in values.pop("preset", []):
            layers.add_preset(name)
        layers.add(values, "the page")
        layers.config()
    except (tomllib.TOMLDecodeError, EbbflowError) as error:
        yield str(error)


def wrong_command(text: str) -> Iterator[str]:
    """Yield what is wrong with a command line."""
    if within := re.fullmatch(r"\w+=\$\((.*)\)", text):
        text = within[1]
    words = shlex.split(text, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):  # variables of the environment
        words = words[1:]
    if "&&" in words:
        cut = words.index("&&")
        yield from wrong_command(shlex.join(words[cut + 1 :]))
        words = words[:cut]
    for end in (">", "|"):
        words = words[: words.index(end)] if end in words else words
    if not words or words[0] in SHELL:
        return
    program = Path(words[0]).name
    if program == "ebbflow":
        yield from wrong_arguments(words[1:])
    elif program == "make":
        targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        wanted = [word for word in words[1:] if "=" not in word]
        yield from (f"make has no target {word}" for word in wanted if word not in targets)
    elif program.startswith("python"):
        yield from wrong_program(words[1:])
    else:
        yield f"no test knows the program {words[0]}"


def wrong_program(words: list[str]) -> Iterator[str]:
    """Yield what is wrong with the arguments of Python."""
    if words[0] != "-m" or words[1] in ("venv", "pytest"):
        return
    known = importlib.util.find_spec(words[1].split(".")[0]) is not None
    if not known or importlib.util.find_spec(words[1]) is None:
        yield f"there is no module {words[1]}"


@cache
def root() -> Any:
    """Return the command line."""
    return typer.main.get_command(app)


def wrong_arguments(words: list[str]) -> Iterator[str]:
    """Yield why ebbflow does not take these arguments; nothing is run."""
    command, name = root(), "ebbflow"
    while hasattr(command, "commands") and words:
        words = getattr(command, "with_command", list)(words)  # one may be meant without a name
        if words[0].startswith("-"):
            break
        if words[0] not in command.commands:
            yield f"{name} has no command {words[0]}"
            return
        name = f"{name} {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    # The parser alone: a context of the command would call what options such as
    # --install-completion call.
    parser = command.make_parser(typer.Context(command, info_name=name))
    try:
        given, left, _ = parser.parse_args(list(words))
    except Exception as error:  # typer's own kinds differ from version to version
        yield f"{name} {shlex.join(words)}: {getattr(error, 'message', error)}"
        return
    if left:
        yield f"{name} does not take {left[0]}"
    if "help" not in given:
        for parameter in command.params:
            if parameter.required and not _is_given(given.get(parameter.name)):
                yield f"{name}: missing {parameter.name}"
    settings = given.get("settings")
    for setting in settings if isinstance(settings, list) else []:
        key = setting.partition("=")[0]
        if key not in set(keys()) and not key.startswith(FREE_KEYS):
            yield f"{name}: there is no key {key}"


def _is_given(value: object) -> bool:
    """Whether an argument was given: newer versions of click have a sign of their own for that."""
    return value is not None and type(value).__name__ != "Sentinel"
