"""Our rounds in a process of their own, by this ebbflow or by that of another checkout.

    python -m benchmarks.rounds FOLDER ALGORITHM [WORKERS]

The process speaks the protocol of `benchmarks.peer_runs`. Which ebbflow it imports is decided by
PYTHONPATH, and which instructions it uses by the variables of docs/architecture.md.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ebbflow
from benchmarks.contenders import EngineRounds, fast_engine
from benchmarks.peers.protocol import (
    DriverLink,
    Floats,
    mkl_setting,
    read_workload,
    workload_folder,
)
from benchmarks.timing import as_in_a_run
from benchmarks.workloads import imported


def refuse_another_ebbflow() -> None:
    """Refuse to time another ebbflow than the one that PYTHONPATH names first."""
    wanted = Path(os.environ["PYTHONPATH"].partition(os.pathsep)[0])
    found = Path(ebbflow.__file__)
    if not found.resolve().is_relative_to(wanted.resolve()):
        raise SystemExit(f"ebbflow should be that of {wanted}, but is that of {found.parent}")


def main() -> None:
    refuse_another_ebbflow()
    driver, workload = DriverLink(), imported(read_workload(workload_folder()))
    algorithm, *workers = sys.argv[2:]
    with as_in_a_run():
        engine = fast_engine(workload, int(workers[0]) if workers else None)
        rounds = EngineRounds(workload, engine, algorithm=algorithm)

        def theta() -> Floats:
            vector: Floats = rounds.models[0].theta.numpy()
            return vector

        for _ in driver.rounds(theta, ["torch"], note=mkl_setting()):
            rounds()
        engine.close()


if __name__ == "__main__":
    main()
