"""The command line of a package of trials, whose results are kept and told on a page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Say = Callable[[str], None]
Trial = Callable[[Say], Any]


def run_trials(
    module: str,
    about: str | None,
    trials: Mapping[str, Trial],
    results: Path,
    page: Callable[[], None],
) -> None:
    """Run the trials that the command line names, keep what came of each, and write the page."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument("trials", nargs="*", choices=[[], *trials], metavar="TRIAL")
    parser.add_argument("--page", action="store_true", help="write the page")
    options = parser.parse_args()
    results.mkdir(exist_ok=True)
    for name in options.trials:
        found = trials[name](lambda sentence: print(sentence, file=sys.stderr, flush=True))
        (results / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found, indent=1))
    if options.page:
        page()
