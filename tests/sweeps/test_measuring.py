"""What cells take, told by a process that measures it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbflow.sweeps.estimates import measured
from tests.sweeps.wishes import planned

LOUD = """\
import os
print("hello", flush=True)
os.write(1, b"from C\\n")
"""


def test_what_a_plugin_prints_is_no_answer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "loud.py"
    plugin.write_text(LOUD)
    plan = planned({"seeds": [1]})
    found = measured(plan.cells, tmp_path / "sweep", [], [str(plugin)])
    assert found["s1"].memory > 10**6
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "hello\n" in printed.err and "from C\n" in printed.err
