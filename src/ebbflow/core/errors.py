"""Errors that a user can act on."""


class EbbflowError(Exception):
    """Something the user can mend: one sentence with the value, the place and the remedy.

    The command line prints the sentence alone and exits with code 2; any other exception is a
    bug of ours and keeps its traceback.
    """


class TrainingError(EbbflowError):
    """Training went wrong at a place that can be named: session, round, device, step."""
