"""The flags of the paper's command line, and the keys that they stand for.

The command line imports this before it knows what is asked of it: nothing heavy belongs here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer


class Flag(NamedTuple):
    """One flag: its name without dashes, its type, the key it stands for, and its help.

    Only the first two have to be given; the others have the paper's value when they are left out.
    """

    name: str
    kind: type[str] | type[int] | type[float]
    key: str
    help: str


REQUIRED = ("dataset_name", "algorithm")
METHODS = {
    "initial": "warm_start",
    "previous": "previous",
    "average": "average",
    "continuous": "continuous",
}
"""The flags that switch a way to start on or off, and what it is called here."""
FLAGS = (
    Flag("dataset_name", str, "dataset", "mnist, fmnist, SVHN, cifar10, ..., or digits."),
    Flag("algorithm", str, "algorithm", "avg, prox, moon, scaffold or acg."),
    Flag("cross_session_label_overlap", float, "partition.overlap", "Labels in common: 0 to 1."),
    Flag("in_session_label_dist", str, "partition.kind", "dirichlet, two_shard, half, ..."),
    Flag("dirichlet_alpha", float, "partition.alpha", "Concentration of the Dirichlet draws."),
    Flag("seed", int, "seeds", "A single seed; by default 100, 200 and 300."),
    Flag("initial", int, "methods", "1 or 0: with or without the paper's warm start."),
    Flag("average", int, "methods", "1 or 0."),
    Flag("previous", int, "methods", "1 or 0."),
    Flag("continuous", int, "methods", "1 or 0."),
    Flag("num_clients", int, "partition.devices", "Devices a session; in all, if no Dirichlet."),
    Flag("num_sessions", int, "sessions", "S."),
    Flag("num_sessions_pilot", int, "pilot.sessions", "P."),
    Flag("num_rounds_pilot", int, "pilot.rounds", "T of a pilot session."),
    Flag("num_rounds_actual", int, "rounds", "T of every other session."),
    Flag("lr_config_path", str, "lr.algorithms", "A JSON file; by default the published rates."),
    Flag("momentum", float, "local.momentum", "Of the local steps."),
    Flag("gpu_index", int, "device", "Only heeded with --use-gpu."),
    Flag("num_SGD_training", int, "local.steps", "Local steps."),
    Flag("batch_size_training", int, "local.batch", "Samples per local step."),
    Flag("num_SGD_grad_cal", int, "probe.steps", "Local steps of the probe."),
    Flag("batch_size_grad_cal", int, "probe.batch", "Samples per step of the probe."),
    Flag("prox_alpha", float, "parameters.fedprox.mu", "FedProx: mu."),
    Flag("moon_mu", float, "parameters.moon.mu", "MOON: mu."),
    Flag("moon_tau", float, "parameters.moon.tau", "MOON: tau."),
    Flag("kl_coefficient", float, "parameters.continuous.kl", "What the distillation counts."),
    Flag("acg_beta", float, "parameters.fedacg.beta", "FedACG: beta."),
    Flag("acg_lambda", float, "parameters.fedacg.momentum", "FedACG: lambda."),
    Flag("num_round_grad_cal", int, "probe.rounds", "V."),
    Flag("similarity", str, "parameters.warm_start.distance", "two_norm or inner_product."),
    Flag("similarity_scale", float, "parameters.warm_start.scale", "R."),
)
"""The flags of the paper's launch command, in its order."""


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, which takes ``**flags``, an option for each flag before its own options."""
    own = inspect.signature(command, eval_str=True)
    options = []
    for flag in FLAGS:
        required = flag.name in REQUIRED
        option = typer.Option(f"--{flag.name}", help=flag.help)
        options.append(
            inspect.Parameter(
                flag.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if required else None,
                annotation=Annotated[_hint(flag, required), option],
            )
        )
    for parameter in own.parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            options.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    # What typer reads; a function may have the attribute, but its type does not say so.
    command.__signature__ = own.replace(parameters=options)  # type: ignore[attr-defined]
    return command


def _hint(flag: Flag, required: bool) -> Any:
    return flag.kind if required else flag.kind | None
