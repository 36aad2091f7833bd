"""MLflow: one of its runs for each tracked run, in one experiment.

They go where MLFLOW_TRACKING_URI or ``mlflow.set_tracking_uri`` say, or else into a store of files
in the run folder, ``mlflow/mlruns``. MLFLOW_EXPERIMENT_NAME and MLFLOW_EXPERIMENT_ID hold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbflow.core.names import shortened
from ebbflow.trackers.identities import Identities
from ebbflow.trackers.tracking import Scalars, TrackedOutcome, TrackedRun, Tracker

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

EXPERIMENT = "ebbflow"
SECONDS = 5.0
"""Time between two messages to a server, unless a session ends."""
MOST_METRICS, MOST_PARAMETERS, LONGEST_VALUE = 1000, 100, 500
"""What MLflow takes in one message."""
FILES_ALLOWED = "MLFLOW_ALLOW_FILE_STORE"
STATES: dict[TrackedOutcome, str] = {
    "finished": "FINISHED",
    "stopped": "KILLED",
    "failed": "FAILED",
    "ended": "FAILED",
}


class MlflowLog(Tracker):
    """Logs to a server of MLflow, or into files of its own."""

    name = library = "mlflow"

    def open(self) -> None:
        """Find the server or the files."""
        import mlflow  # noqa: PLC0415 - for those who have it

        if mlflow.is_tracking_uri_set():  # type: ignore[no-untyped-call] # it has no types
            self._client = mlflow.MlflowClient()
        else:
            self._client = _file_client(self.own_folder() / "mlruns")
        self._identities = Identities(None if self.folder is None else self.folder / self.name)
        self._experiment = _experiment(self._client)
        self._names: dict[TrackedRun, str] = {}
        self._logged: dict[TrackedRun, set[tuple[str, int]]] = {}
        self._waiting: dict[TrackedRun, list[Metric]] = {}
        self._sent_at = time.monotonic()

    def is_complete(self, run: TrackedRun) -> bool:
        """Whether everything was logged before."""
        return self._identities.is_complete(run)

    def begin(self, run: TrackedRun) -> None:
        """Begin one of its runs, or find out what of it was logged before."""
        name = self._identities.find(run)
        if name is None:
            name = self._create(run)
            self._identities.note(run, name)
            self._logged[run] = set()
        else:
            self._client.update_run(name, status="RUNNING")
            self._logged[run] = {
                (metric.key, metric.step)
                for key in self._client.get_run(name).data.metrics
                for metric in self._client.get_metric_history(name, key)
            }
        self._names[run] = name
        self._waiting[run] = []

    def _create(self, run: TrackedRun) -> str:
        from mlflow.entities import Param  # noqa: PLC0415

        tags = {} if self.folder is None else {"ebbflow.run": self.folder.name}
        created = self._client.create_run(self._experiment, run_name=run.title, tags=tags)
        name: str = created.info.run_id
        parameters = [
            Param(key, shortened(str(value), LONGEST_VALUE))
            for key, value in _flat(self.settings_of(run))
        ]
        for first in range(0, len(parameters), MOST_PARAMETERS):
            self._client.log_batch(name, params=parameters[first : first + MOST_PARAMETERS])
        return name

    def log(self, scalars: Scalars) -> None:
        """Put numbers aside, and send them if it is time to."""
        from mlflow.entities import Metric  # noqa: PLC0415

        now = int(time.time() * 1000)
        self._waiting[scalars.run] += [
            Metric(name, value, now, scalars.step)
            for name, value in scalars.values.items()
            if (name, scalars.step) not in self._logged[scalars.run]
        ]
        if scalars.moment == "end" or time.monotonic() - self._sent_at > SECONDS:
            for run in self._waiting:
                self._send(run)
            self._sent_at = time.monotonic()

    def _send(self, run: TrackedRun) -> None:
        waiting, self._waiting[run] = self._waiting[run], []
        for first in range(0, len(waiting), MOST_METRICS):
            self._client.log_batch(self._names[run], waiting[first : first + MOST_METRICS])

    def end(self, run: TrackedRun, outcome: TrackedOutcome) -> None:
        """Send what is left, and say how it ended; a method that could not go on has failed."""
        self._send(run)
        name = self._names.pop(run)
        del self._waiting[run], self._logged[run]
        self._client.set_terminated(name, status=STATES[outcome])
        if outcome in ("finished", "ended"):
            self._identities.note(run, name, complete=True)


def _file_client(folder: Path) -> MlflowClient:
    """Return a client for files of its own: all that its small package can write without a server.

    MLflow wants to be asked for them by a variable.
    """
    from mlflow import MlflowClient  # noqa: PLC0415

    with _set(FILES_ALLOWED, "true"):
        return MlflowClient(tracking_uri=folder.absolute().as_uri())


@contextmanager
def _set(variable: str, value: str) -> Iterator[None]:
    """Set a variable for a moment, unless the user has."""
    before = os.environ.get(variable)
    os.environ.setdefault(variable, value)
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]


def _experiment(client: MlflowClient) -> str:
    """Return the number of the experiment that the user's variables name, or of our own."""
    if number := os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return number
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    found = client.get_experiment_by_name(name)
    created: str = client.create_experiment(name) if found is None else found.experiment_id
    return created


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings by dotted key, as a configuration's are written."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
