"""What a federation's owner tells its SuperLink: which nodes may come, what to run, how it went.

These are the requests that ``flwr supernode register``, ``flwr run``, ``flwr list`` and
``flwr log`` send. They are sent from here because each of those commands takes seconds to start,
and because ``flwr run`` rewrites the app's ``pyproject.toml`` and looks into the user's settings.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ebbflow.core.errors import EbbflowError
from ebbflow.flower.gate.keys import key_bytes
from ebbflow.flower.launch.federation_settings import Setting
from ebbflow.flower.launch.programs import private_environment, require_flower

ONLINE = "online"
FINISHED, COMPLETED = "finished", "completed"


@dataclass(frozen=True)
class SeenNode:
    """A node as the SuperLink knows it."""

    node_id: int
    status: str
    """``registered``, ``online`` or ``offline``; a node that was killed is online for a minute."""
    public_key: bytes
    activated: str
    """When it last came in."""


@dataclass(frozen=True)
class SeenRun:
    """A run as the SuperLink knows it."""

    run_id: int
    status: str
    """``pending``, ``starting``, ``running`` or ``finished``."""
    outcome: str
    """Of a finished run: ``completed``, ``failed`` or ``stopped``."""
    details: str

    @property
    def finished(self) -> bool:
        """Whether it has ended, one way or another."""
        return self.status == FINISHED

    @property
    def succeeded(self) -> bool:
        """Whether it has ended as it should."""
        return self.finished and self.outcome == COMPLETED


class Control:
    """A connection to a SuperLink on this machine; close it after use."""

    def __init__(self, address: str, root_certificates: Path) -> None:
        require_flower()
        with private_environment():
            from flwr.supercore.control import ControlHttpClient  # noqa: PLC0415 - it takes a while
            from flwr.supercore.interceptors import (  # noqa: PLC0415
                RuntimeVersionHttpInterceptor,
            )

            self._client = ControlHttpClient.from_server_address(
                server_address=address,
                insecure=False,
                root_certificates=root_certificates.read_bytes(),
                interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
            )
        self._address = address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._client.close()

    def nodes(self) -> list[SeenNode]:
        """Return all nodes that are registered."""
        from flwr.proto.control_pb2 import ListNodesRequest  # noqa: PLC0415

        answer = self._asked("list its nodes", self._client.ListNodes, ListNodesRequest())
        return [
            SeenNode(int(each.node_id), each.status, each.public_key, each.last_activated_at)
            for each in answer.nodes_info
        ]

    def register(self, public_key: Path) -> int:
        """Let a node with this public key come in; return its number. Twice is no mistake."""
        from flwr.proto.control_pb2 import RegisterNodeRequest  # noqa: PLC0415

        key = key_bytes(public_key)
        known = {each.public_key: each.node_id for each in self.nodes()}
        if key in known:
            return known[key]
        request = RegisterNodeRequest(public_key=key, name=public_key.stem)
        answer = self._asked(f"register {public_key}", self._client.RegisterNode, request)
        return int(answer.node_id)

    def start_run(self, app: Path, settings: Mapping[str, Setting] | None = None) -> int:
        """Run the app in a folder with some of its settings changed; return the run's number."""
        if not (app / "pyproject.toml").is_file():
            raise EbbflowError(f"{app} holds no pyproject.toml: name the folder of a Flower app")
        with private_environment():
            from flwr.cli.build import build_fab_from_disk  # noqa: PLC0415
            from flwr.common.serde import fab_to_proto, user_config_to_proto  # noqa: PLC0415
            from flwr.proto.control_pb2 import StartRunRequest  # noqa: PLC0415
            from flwr.supercore.fab import Fab  # noqa: PLC0415
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of what Flower itself uses
                content = build_fab_from_disk(app)
        except Exception as error:
            reason = getattr(error, "message", None) or error
            raise EbbflowError(f"{app} is no Flower app that can be sent: {reason}") from error
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        request = StartRunRequest(
            fab=fab_to_proto(fab), override_config=user_config_to_proto(dict(settings or {}))
        )
        answer = self._asked(f"run {app}", self._client.StartRun, request)
        if not answer.HasField("run_id"):
            raise EbbflowError(f"the SuperLink did not start {app}: an app may have up to 10 MB")
        return int(answer.run_id)

    def runs(self) -> list[SeenRun]:
        """Return the last runs, the newest first."""
        from flwr.proto.control_pb2 import ListRunsRequest  # noqa: PLC0415

        answer = self._asked("list its runs", self._client.ListRuns, ListRunsRequest())
        newest = sorted(answer.run_dict.values(), key=lambda run: run.pending_at, reverse=True)
        return [_seen(each) for each in newest]

    def run(self, run_id: int) -> SeenRun:
        """Return how a run is going."""
        from flwr.proto.control_pb2 import ListRunsRequest  # noqa: PLC0415

        request = ListRunsRequest(run_id=run_id)
        answer = self._asked(f"say how run {run_id} is going", self._client.ListRuns, request)
        return _seen(answer.run_dict[run_id])

    def stop_run(self, run_id: int) -> None:
        """Stop a run."""
        from flwr.proto.control_pb2 import StopRunRequest  # noqa: PLC0415

        request = StopRunRequest(run_id=run_id)
        self._asked(f"stop run {run_id}", self._client.StopRun, request)

    def log(self, run_id: int) -> Iterator[str]:
        """Yield what a run's server prints, from its beginning to its end."""
        from flwr.proto.control_pb2 import StreamLogsRequest  # noqa: PLC0415

        for part in self._client.StreamLogs(StreamLogsRequest(run_id=run_id, after_timestamp=0.0)):
            yield part.log_output

    def _asked(self, what: str, call: Any, request: Any) -> Any:
        """Return the SuperLink's answer; say it in a sentence if there is none."""
        import httpx  # noqa: PLC0415

        try:
            return call(request)
        except httpx.HTTPStatusError as error:
            reason = error.response.text[:300] or error.response.status_code
            raise EbbflowError(f"the SuperLink refuses to {what}: {reason}") from error
        except httpx.HTTPError as error:
            raise NoAnswerError(
                f"the SuperLink at {self._address} does not answer ({error}), so it cannot {what}: "
                "see whether it is up by `ebbflow federate status`"
            ) from error


class NoAnswerError(EbbflowError):
    """The SuperLink does not answer: it is not up, or being started again."""


def _seen(run: Any) -> SeenRun:
    status = run.status
    return SeenRun(int(run.run_id), status.status, status.sub_status, status.details)
