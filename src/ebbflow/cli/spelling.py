"""Options in the singular and in the plural: whichever is written, it is the same option."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_args

import typer

from ebbflow.core.errors import EbbflowError

SINGULAR = (
    "--algorithm",
    "--device",
    "--method",
    "--plugin",
    "--preset",
    "--round",
    "--seed",
    "--session",
    "--target",
    "--window",
)
OTHER = {name: f"{name}s" for name in SINGULAR} | {f"{name}s": name for name in SINGULAR}
"""The other spelling of an option."""
_OPTION = type(typer.Option())


def take_both_spellings(app: typer.Typer) -> None:
    """Let all commands below take such options in both spellings; the help shows one."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = with_both_spellings(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            take_both_spellings(group.typer_instance)


def with_both_spellings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that has a hidden second option for each that can be spelt in two ways."""
    signature = inspect.signature(command, eval_str=True)
    spellings = {
        name: spelling
        for name, parameter in signature.parameters.items()
        if (spelling := _spelling(parameter)) is not None
    }
    own = set(spellings.values())
    twins = {f"{name}_": name for name, spelling in spellings.items() if OTHER[spelling] not in own}
    parameters = list(signature.parameters.values())
    for twin, name in twins.items():
        parameter = signature.parameters[name]
        kind, option = get_args(parameter.annotation)
        hidden = typer.Option(
            OTHER[spellings[name]], hidden=True, metavar=option.metavar, parser=option.parser
        )
        parameters.append(
            parameter.replace(name=twin, default=None, annotation=Annotated[kind | None, hidden])
        )

    @wraps(command)
    def either(**values: Any) -> Any:
        for twin, name in twins.items():
            value = values.pop(twin)
            if value in (None, []):
                continue
            if values[name] not in (None, [], signature.parameters[name].default):
                spelling = spellings[name]
                raise EbbflowError(
                    f"{spelling} and {OTHER[spelling]} are the same option: give one of them"
                )
            values[name] = value
        return command(**values)

    # typer asks for these several times. They have been read now; reading them takes a while.
    either.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    either.__annotations__ = {}
    return either


def _spelling(parameter: inspect.Parameter) -> str | None:
    """Return how a command spells an option that has another spelling."""
    for annotation in get_args(parameter.annotation)[1:]:
        if not isinstance(annotation, _OPTION):
            continue
        # In an annotation, typer takes an option's first name for its default.
        written, more = annotation.default, annotation.param_decls or ()
        for name in (written, *more, f"--{parameter.name}" if written is ... else None):
            if name in OTHER:
                return str(name)
    return None
