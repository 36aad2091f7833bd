"""Rewrites kept results whose settings have got other names since.

The parameters of starts were sections of a configuration (``warm_start.scale``) and are
``parameters.warm_start.scale`` now, and the starts that are compared by default have changed. Both
change the digest that tells whether a result belongs to a cell. This script reads the settings of
every kept result as any version wrote them, writes them down as this version does, and computes the
digest again; curves and everything else stay as they are. Running it twice changes nothing.

    python -m chang2025.migrate_results
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from chang2025.folders import RESULTS
from chang2025.results import compact
from ebbflow.config.merge import read_written
from ebbflow.core.files import write_atomically
from ebbflow.sweeps.digests import digest, result_settings


def migrate(path: Path) -> bool:
    """Rewrite one result's facts; return whether anything changed."""
    before = path.read_text(encoding="utf-8")
    facts = json.loads(before)
    config = read_written(facts["config"], str(path))
    facts["hash"], facts["config"] = digest(config), result_settings(config)
    after = compact(facts)
    if after == before:
        return False
    write_atomically(path, after.encode())
    return True


def main() -> None:
    """Migrate every kept result; takes no arguments."""
    ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter).parse_args()
    paths = sorted(RESULTS.glob("*-s*.json"))
    changed = sum(migrate(path) for path in paths)
    print(f"{changed} of {len(paths)} results rewritten")


if __name__ == "__main__":
    main()
