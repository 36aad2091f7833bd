"""What the authors' code runs under the name SCAFFOLD: no drift correction at all."""

from __future__ import annotations

from ebbflow.core.algorithm import Algorithm, Broadcast, LocalRun, Upload, weighted_upload
from ebbflow.core.types import State


def scaffold_authors() -> Algorithm:
    """Return FedAvg with the server step multiplied by the *client's* rate of the round.

    x <- x + eta^(s,t) sum_k p_k (y_k - x); the control variates are computed but never used. This
    is why the published rates for SCAFFOLD are up to thirty times those of the other algorithms.
    """

    def upload(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
        sent, client = weighted_upload(shared, client, run)
        return sent._replace(delta=run.lr * sent.delta), client

    return Algorithm("scaffold-authors", upload=upload)
