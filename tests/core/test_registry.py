"""Registries: names, what is known of them, and parameters checked by a factory's annotations."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Literal

import pytest
from pydantic import Field

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.errors import EbbflowError
from ebbflow.core.registry import Registered, Registry
from ebbflow.models import MODELS
from ebbflow.starts import STARTS


def recipe(
    size: int, share: Annotated[float, Field(ge=0, le=1)] = 0.5, kind: Literal["a", "b"] = "a"
) -> str:
    return f"{size} {share} {kind}"


def test_a_name_is_given_once() -> None:
    registry: Registry[Registered[str]] = Registry("algorithm")
    registry.register(Registered("one", recipe))
    with pytest.raises(EbbflowError, match="there is already an algorithm called 'one'"):
        registry.register(Registered("one", recipe))
    registry.unregister("one")
    assert list(registry) == []


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(EbbflowError, match=r"^methods: there is no method 'warm': did you mean wa"):
        STARTS.find("warm", "methods")


def test_a_factory_gets_its_parameters() -> None:
    record = Registered("recipe", recipe)
    assert record.build({"share": 1, "kind": "b"}, 3) == "3 1.0 b"
    assert record.defaults == {"share": 0.5, "kind": "a"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"share": 2.0}, r"^parameters\.recipe\.share = 2\.0 is refused: input should be less"),
        ({"share": "much"}, r"share = 'much' is refused: input should be a valid number"),
        ({"kind": "c"}, r"kind = 'c' is refused: input should be 'a' or 'b'"),
        ({"shore": 1.0}, r"no parameter 'shore': did you mean share\? known are share, kind"),
        ({"size": 1}, r"no parameter 'size'"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused(
    parameters: dict[str, object], message: str
) -> None:
    with pytest.raises(EbbflowError, match=message):
        Registered("recipe", recipe).build(parameters, 3)


def test_names_and_facts_are_known_without_torch() -> None:
    code = (
        "import sys; from ebbflow.algorithms import ALGORITHMS; from ebbflow.starts import STARTS; "
        "assert ALGORITHMS['scaffold'].vectors == 2 and STARTS['warm_start'].probes; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("registry", [ALGORITHMS, STARTS, MODELS], ids=lambda r: r.what)
def test_every_parameter_has_an_annotation_that_accepts_its_default(
    registry: Registry[Registered[object]],
) -> None:
    for record in registry.values():
        assert record.checked(record.defaults) == record.defaults
