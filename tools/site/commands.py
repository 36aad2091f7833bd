"""Every command with its arguments and options, put into docs/reference/commands.md.

They are read from the command line itself, which is also what ``--help`` prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PAGE = "reference/commands.md"
MARK = "<!-- commands -->"
VALUES = {"<path>": "PATH", "<float>": "NUMBER", "<int>": "NUMBER", "<int range>": "NUMBER"}
"""What takes the place of a type's name; of all others, TEXT."""


class CommandPart(NamedTuple):
    """An argument or an option: how it is written, what it means, and its anchor."""

    written: str
    meaning: str
    anchor: str


class CommandEntry(NamedTuple):
    """A command, by the words that call it."""

    words: tuple[str, ...]
    text: str
    parts: tuple[CommandPart, ...]
    epilogue: str = ""

    @property
    def anchor(self) -> str:
        """The anchor of its heading."""
        return "-".join(self.words)


def entries(command: Any, words: tuple[str, ...] = ("ebbflow",)) -> Iterator[CommandEntry]:
    """Yield a command and all commands below it, without hidden ones."""
    context = typer.Context(command, info_name=" ".join(words))
    anchor = "-".join(words)
    parts = []
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is None:  # hidden
            continue
        written = re.sub(r"<[^>]*>", lambda kind: VALUES.get(kind[0], "TEXT"), record[0])
        written = written.strip() if parameter.opts[0].startswith("-") else written.split()[0]
        name = max(parameter.opts, key=len).lstrip("-")
        parts.append(CommandPart(written, record[1], f"{anchor}--{name}"))
    epilogue = (command.epilog or "").replace("\b", "")
    yield CommandEntry(words, command.help or "", tuple(parts), epilogue)
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from entries(below, (*words, name))


def listings(epilogue: str) -> Iterator[str]:
    r"""Yield what a command's help ends with: examples as one would type them, and other lines.

    >>> print(*listings("\nExamples:\n  ebbflow doctor\n"), sep="\n")
    ~~~console
    $ ebbflow doctor
    ~~~
    """
    for paragraph in filter(None, (part.strip() for part in epilogue.split("\n\n"))):
        title, *lines = paragraph.splitlines()
        if title == "Examples:":
            yield "\n".join(["~~~console", *(f"$ {line.strip()}" for line in lines), "~~~"])
        else:
            yield "\n".join([f"{title}\n", "~~~text", *(line[2:] for line in lines), "~~~"])


def section(entry: CommandEntry) -> str:
    """Return what the page says of a command."""
    level = "#" * min(len(entry.words) + 1, 4)
    lines = [f"{level} {' '.join(entry.words)} {{ #{entry.anchor} }}", "", entry.text, ""]
    for listing in listings(entry.epilogue):
        lines += [listing, ""]
    if entry.parts:
        lines += ["| argument or option | what it is |", "|---|---|"]
        lines += [
            f"| `{part.written}`{{ #{part.anchor} }} | {part.meaning.replace('|', '&#124;')} |"
            for part in entry.parts
        ]
        lines.append("")
    return "\n".join(lines)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put all commands where the page has its mark."""
    if page.file.src_uri != PAGE:
        return markdown
    from ebbflow.cli import app  # noqa: PLC0415 - only this page needs it

    root, *rest = entries(typer.main.get_command(app))
    return markdown.replace(MARK, "\n".join(section(entry) for entry in (root, *rest)))
