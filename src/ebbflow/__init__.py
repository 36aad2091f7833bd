"""ebbflow: federated learning when devices come and go.

>>> import ebbflow
>>> records = ebbflow.compare("digits", sessions=4, rounds=2, seeds=[1], devices=4)
>>> sorted({row["method"] for row in records.rows})
['average', 'learned', 'previous', 'warm_start']

Everything that an extension needs is here: docs/extending.md shows how to add an algorithm, a
start, a model or a data set.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebbflow.aggregation import AGGREGATIONS as AGGREGATIONS
    from ebbflow.aggregation import register_aggregation as register_aggregation
    from ebbflow.algorithms import ALGORITHMS as ALGORITHMS
    from ebbflow.algorithms import register_algorithm as register_algorithm
    from ebbflow.api import compare as compare
    from ebbflow.api import dataset as dataset
    from ebbflow.api import extend as extend
    from ebbflow.api import resume as resume
    from ebbflow.api import run as run
    from ebbflow.core.aggregation import Aggregation as Aggregation
    from ebbflow.core.algorithm import Affine as Affine
    from ebbflow.core.algorithm import Algorithm as Algorithm
    from ebbflow.core.algorithm import Broadcast as Broadcast
    from ebbflow.core.algorithm import LocalRun as LocalRun
    from ebbflow.core.algorithm import Population as Population
    from ebbflow.core.algorithm import Upload as Upload
    from ebbflow.core.algorithm import average as average
    from ebbflow.core.algorithm import cross_entropy as cross_entropy
    from ebbflow.core.algorithm import weighted_upload as weighted_upload
    from ebbflow.core.errors import EbbflowError as EbbflowError
    from ebbflow.core.rng import generator as generator
    from ebbflow.core.rng import torch_generator as torch_generator
    from ebbflow.core.start import Situation as Situation
    from ebbflow.core.start import Start as Start
    from ebbflow.core.start import StartingPoint as StartingPoint
    from ebbflow.core.survey import SurveyPlan as SurveyPlan
    from ebbflow.core.tasks import register_loss as register_loss
    from ebbflow.core.tasks import register_metric as register_metric
    from ebbflow.core.types import Dataset as Dataset
    from ebbflow.core.types import Examples as Examples
    from ebbflow.core.types import Layout as Layout
    from ebbflow.core.types import Model as Model
    from ebbflow.core.types import ModelState as ModelState
    from ebbflow.core.types import Output as Output
    from ebbflow.core.types import PastSession as PastSession
    from ebbflow.core.types import Session as Session
    from ebbflow.core.vector import mix as mix
    from ebbflow.data.datasets import DATASETS as DATASETS
    from ebbflow.data.datasets import register_dataset as register_dataset
    from ebbflow.models import MODELS as MODELS
    from ebbflow.models import from_module as from_module
    from ebbflow.models import register_model as register_model
    from ebbflow.outcomes.loading import load as load
    from ebbflow.outcomes.one_run import Records as Records
    from ebbflow.outcomes.several_runs import Runs as Runs
    from ebbflow.runs.records import Round as Round
    from ebbflow.simulation.callbacks import Callback as Callback
    from ebbflow.simulation.callbacks import MethodEnded as MethodEnded
    from ebbflow.simulation.callbacks import ResumePoint as ResumePoint
    from ebbflow.simulation.callbacks import RoundFinished as RoundFinished
    from ebbflow.simulation.callbacks import RunFinished as RunFinished
    from ebbflow.simulation.callbacks import RunStarted as RunStarted
    from ebbflow.simulation.callbacks import SessionFinished as SessionFinished
    from ebbflow.simulation.callbacks import SessionStarted as SessionStarted
    from ebbflow.starts import STARTS as STARTS
    from ebbflow.starts import register_start as register_start
    from ebbflow.sweeps.front import sweep as sweep
    from ebbflow.trackers import tracker as tracker

__version__ = "0.1.0"

_HOMES = {
    "ebbflow.aggregation": ["AGGREGATIONS", "register_aggregation"],
    "ebbflow.algorithms": ["ALGORITHMS", "register_algorithm"],
    "ebbflow.api": ["compare", "dataset", "extend", "resume", "run"],
    "ebbflow.core.aggregation": ["Aggregation"],
    "ebbflow.core.algorithm": [
        "Affine",
        "Algorithm",
        "Broadcast",
        "LocalRun",
        "Population",
        "Upload",
        "average",
        "cross_entropy",
        "weighted_upload",
    ],
    "ebbflow.core.errors": ["EbbflowError"],
    "ebbflow.core.rng": ["generator", "torch_generator"],
    "ebbflow.core.start": ["Situation", "Start", "StartingPoint"],
    "ebbflow.core.survey": ["SurveyPlan"],
    "ebbflow.core.tasks": ["register_loss", "register_metric"],
    "ebbflow.core.types": [
        "Dataset",
        "Examples",
        "Layout",
        "Model",
        "ModelState",
        "Output",
        "PastSession",
        "Session",
    ],
    "ebbflow.core.vector": ["mix"],
    "ebbflow.data.datasets": ["DATASETS", "register_dataset"],
    "ebbflow.models": ["MODELS", "from_module", "register_model"],
    "ebbflow.outcomes.loading": ["load"],
    "ebbflow.outcomes.one_run": ["Records"],
    "ebbflow.outcomes.several_runs": ["Runs"],
    "ebbflow.runs.records": ["Round"],
    "ebbflow.simulation.callbacks": [
        "Callback",
        "MethodEnded",
        "ResumePoint",
        "RoundFinished",
        "RunFinished",
        "RunStarted",
        "SessionFinished",
        "SessionStarted",
    ],
    "ebbflow.starts": ["STARTS", "register_start"],
    "ebbflow.sweeps.front": ["sweep"],
    "ebbflow.trackers": ["tracker"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: PLE0604 - strings, all of them
    *_HOME_OF
]


def __getattr__(name: str) -> Any:
    # Lazily, so that `ebbflow --help` need not wait for torch.
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ebbflow' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
