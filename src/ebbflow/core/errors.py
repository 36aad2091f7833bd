"""Errors that a user can act on."""

from __future__ import annotations

from collections.abc import Iterable


class EbbflowError(Exception):
    """An error the user can fix: one sentence with the value, the place and the remedy.

    The command line prints the sentence, preceded by ``details`` if there are any, and exits with
    code 2; any other exception is a bug and keeps its traceback.
    """

    details = ""


class TrainingError(EbbflowError):
    """Training failed at a known place: session, round, device, step."""


class EbbflowWarning(UserWarning):
    """Something that a user should know, and need not act on."""


class RunStoppedError(Exception):
    """A run was asked to stop, and has been saved after its last finished round."""


class HookError(Exception):
    """A hook or a model raised an exception that is not ours.

    The message names the place (session, round, device, step); the exception itself is the cause,
    with its traceback. Most likely a bug in the hook, so the command line shows all of it.
    """


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the known name closest to a misspelt one, or None if none is close enough.

    >>> nearest("warm_strat", ["previous", "warm_start"])
    'warm_start'
    """
    import difflib  # noqa: PLC0415 - `ebbflow --help` needs no suggestions

    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return matches[0] if matches else None


def unknown(name: str, known: Iterable[str], what: str, where: str) -> EbbflowError:
    """Return the error for an unknown name, with the closest known one and the list of all.

    >>> str(unknown("avg", ["fedavg", "moon"], "algorithm", "--algorithm"))
    "--algorithm: there is no algorithm 'avg': did you mean fedavg? known are fedavg, moon"
    """
    names = list(known)
    close = nearest(name, names)
    hint = f"did you mean {close}? " if close else ""
    return EbbflowError(f"{where}: there is no {what} {name!r}: {hint}known are {', '.join(names)}")
