"""The settings of a federation's processes: what may be written in ``federation.toml``."""

from __future__ import annotations

import tomllib
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import printable
from ebbflow.flower.launch.ports import LOOPBACK

SETTINGS = "federation.toml"
Port = Annotated[int, Field(ge=0, le=65535)]
"""The number of a port; 0 stands for any that is free, which is then kept."""
Setting = str | int | float | bool
"""A value that Flower passes to an app: of its run, or of one of its nodes."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class GateSection(_Section):
    """``[gate]``: where nodes come to."""

    host: str = LOOPBACK
    """The address to listen on; ``0.0.0.0`` for all of this machine's."""
    port: Port = 0
    name: str = ""
    """The name or address by which nodes reach this machine, if that is not ``host``."""

    @field_validator("host")
    @classmethod
    def _is_address(cls, host: str) -> str:
        try:
            ip_address(host)
        except ValueError:
            raise ValueError(
                f"{host!r} is no address to listen on: give one of this machine's, as in 192.0.2.7"
            ) from None
        return host


class LinkSection(_Section):
    """``[link]``: the SuperLink, which is reached on this machine alone."""

    port: Port = 0


class NodesSection(_Section):
    """``[nodes]``: the nodes that run on this machine."""

    count: Annotated[int, Field(ge=0, le=10_000)] = 0
    preload: tuple[str, ...] = ("torch", "ebbflow.flower.client")
    """What a node imports before its first message: its tasks then begin at once."""
    config: dict[str, Setting] = {}
    """What every node is told beside its number and its folder."""

    @field_validator("preload", mode="before")
    @classmethod
    def _from_list(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


class FederationSettings(_Section):
    """All of ``federation.toml``."""

    gate: GateSection = GateSection()
    link: LinkSection = LinkSection()
    nodes: NodesSection = NodesSection()
    run: dict[str, Setting] = {}
    """What the app is told: values for keys of its ``[tool.flwr.app.config]``."""


def read_settings(folder: Path) -> FederationSettings:
    """Return the settings of the federation in a folder."""
    path = folder / SETTINGS
    try:
        return FederationSettings.model_validate(tomllib.loads(path.read_bytes().decode()))
    except FileNotFoundError:
        raise EbbflowError(
            f"{folder} holds no federation ({SETTINGS} is missing): make one by "
            f"`ebbflow federate init {folder}`"
        ) from None
    except OSError as error:
        raise EbbflowError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise EbbflowError(f"{path}: {printable(place)}: {message}") from None
    except ValueError as error:  # not TOML, or not text
        raise EbbflowError(f"{path} is no TOML file: {error}") from None
