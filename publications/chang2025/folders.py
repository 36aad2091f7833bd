"""Where things are: the checkout, the kept results, and the folders of runs.

The kept results belong to the checkout. A copy of this package that was installed from a wheel can
read them; whatever would write there asks for another folder instead.
"""

from __future__ import annotations

from pathlib import Path

from ebbflow.core.errors import EbbflowError

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parents[1]
RESULTS = PACKAGE / "results"
"""The kept results: two small files for each run."""
PAGE = CHECKOUT / "docs" / "reproduction.md"
COSTS_PAGE = CHECKOUT / "docs" / "costs.md"
RUNS = Path("runs") / "paper"
"""The run folders of cells that are being computed, below the working directory."""


def is_checkout() -> bool:
    """Whether this package lies in a checkout of the repository, not among installed packages."""
    return (PACKAGE.parent / "pyproject.toml").is_file()


def writable(path: Path, option: str) -> Path:
    """Return a path that a command is about to write, unless it is inside an installed package."""
    if not is_checkout() and path.resolve().is_relative_to(CHECKOUT):
        raise EbbflowError(
            f"{path} belongs to an installed package, which is never written to: say where with "
            f"{option}"
        )
    return path
