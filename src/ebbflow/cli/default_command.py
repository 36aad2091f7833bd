"""A group of commands one of which need not be named."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

HELP = ("-h", "--help")


class DefaultCommandGroup(TyperGroup):
    """A group whose first command is meant if none is named: ``sweep FILE`` is ``sweep run FILE``.

    Alone, or with a request for help, it shows its help as other groups do.
    """

    @property
    def default(self) -> str:
        """The command that is meant."""
        return next(iter(self.commands))

    def with_command(self, arguments: list[str]) -> list[str]:
        """Return arguments that name a command."""
        if not arguments or arguments[0] in (*self.commands, *HELP):
            return arguments
        return [self.default, *arguments]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments in which the command may be missing."""
        return list(super().parse_args(ctx, self.with_command(args)))
