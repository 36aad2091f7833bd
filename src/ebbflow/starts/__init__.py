"""Ways to start a session, one file each; `STARTS` lists them.

Factories are imported on use, so that reading a configuration does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ebbflow.core.registry import RegisteredStart, Registry

if TYPE_CHECKING:
    from ebbflow.core.start import Start

STARTS: Registry[RegisteredStart[Start]] = Registry("method")
"""Starts by name; the arguments of a factory are the keys of ``[parameters.NAME]``."""

AUTO, RECOMMENDED = "auto", "learned"
"""The name that stands for the start we recommend, and that start. A configuration that has been
resolved names the start itself."""


def register_start(
    name: str,
    factory: Callable[..., Start] | str,
    *,
    probes: bool = False,
    keeps: Iterable[str] = ("pilot", "models", "signatures"),
) -> None:
    """Register a way to start sessions under a name.

    Args:
        name: Its name in ``methods``, in configurations and on the command line.
        factory: Returns the start; its arguments, which all need defaults and annotations, are the
            keys of ``[parameters.NAME]``. May also be ``"package.module:function"``.
        probes: Whether it runs the auxiliary rounds of `Situation.probe`.
        keeps: What it needs from earlier sessions: ``pilot``, ``models``, ``starts``,
            ``signatures``, ``teacher``.
    """
    STARTS.register(RegisteredStart(name, factory, probes, frozenset(keeps)))


register_start("learned", "ebbflow.starts.learned:learned", keeps=["pilot", "models", "starts"])
register_start("warm_start", "ebbflow.starts.warm_start:warm_start", probes=True)
register_start("previous", "ebbflow.starts.previous:previous", keeps=())
register_start("average", "ebbflow.starts.average:average", keeps=["models"])
register_start("continuous", "ebbflow.starts.continuous:continuous", keeps=["teacher"])
