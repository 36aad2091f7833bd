"""What docs/models.md shows runs, and names what there is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from ebbflow.models import MODELS

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def test_python_on_the_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "models.md", "exec"), {})


def test_every_model_and_each_of_its_parameters_is_on_the_page() -> None:
    lines = re.findall(r"^\| (`[a-z0-9]+`(?:, `[a-z0-9]+`)*) \|(.*)$", PAGE, flags=re.MULTILINE)
    documented = {name: rest for names, rest in lines for name in re.findall(r"`(\w+)`", names)}
    assert list(documented) == list(MODELS)
    for name, builder in MODELS.items():
        for parameter in list(inspect.signature(builder).parameters.values())[2:]:
            default = (
                f'"{parameter.default}"' if parameter.annotation == "str" else parameter.default
            )
            assert f"`{parameter.name} = {default}`" in documented[name]
