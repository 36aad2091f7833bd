"""Counts what the code base consists of: `python -m benchmarks.house [CHECKOUT]`.

Lines and modules by part, class names that mean more than one thing, places outside the registries
that name an algorithm, and the longest signature.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PARTS = {
    "product": ("src/ebbflow",),
    "publication": ("publications", "src/ebbflow/reproduction", "src/ebbflow/paper"),
    "benchmarks": ("benchmarks", "src/ebbflow/bench"),
    "tests": ("tests",),
}
"""The folders of each part, in this edition and in the first."""
NAMES = frozenset(
    {"fedavg", "fedprox", "scaffold", "scaffold-authors", "moon", "fedacg", "fedavgm"}
    | {"fedadam", "fedyogi", "feddyn"}
)
REGISTRIES = ("algorithms/", "config/paper_rows.py", "paper/presets.py")
"""Where algorithms are named by right: their own room, and the presets of the paper's rows."""


def modules(checkout: Path, part: str) -> list[Path]:
    """Return the Python files of one part."""
    others = [folder for name, folders in PARTS.items() if name != part for folder in folders]
    return [
        path
        for folder in PARTS[part]
        for path in sorted((checkout / folder).rglob("*.py"))
        if part != "product" or not _within(path, checkout, others)
    ]


def _within(path: Path, checkout: Path, folders: list[str]) -> bool:
    return any(path.is_relative_to(checkout / folder) for folder in folders)


def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


def repeated_classes(paths: list[Path]) -> dict[str, list[Path]]:
    """Return the public class names that are defined more than once, and where."""
    places: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def named_algorithms(paths: list[Path]) -> Iterator[tuple[Path, int, str]]:
    """Yield every string outside the registries that is an algorithm's name."""
    for path in paths:
        if any(part in path.as_posix() for part in REGISTRIES):
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Constant) and node.value in NAMES:
                yield path, node.lineno, str(node.value)


def longest_signature(paths: list[Path]) -> tuple[int, str, Path]:
    """Return the most parameters that a function has, commands of the command line aside."""
    longest = (0, "", Path())
    for path in paths:
        if "cli" in path.parts:
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                own = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                count = len([name for name in own if name not in ("self", "cls")])
                longest = max(longest, (count, node.name, path))
    return longest


def main() -> None:
    """Print the counts."""
    checkout = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    for part in PARTS:
        paths = modules(checkout, part)
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
        print(f"{part}: {lines:,} lines in {len(paths)} modules")
    code = [
        path
        for part in ("product", "publication", "benchmarks")
        for path in modules(checkout, part)
    ]
    twice = repeated_classes([path for path in code if "peers" not in path.parts])
    print(f"class names with two meanings: {len(twice)} {', '.join(twice)}")
    places = list(named_algorithms(modules(checkout, "product")))
    print(f"places of the product that name an algorithm: {len(places)}")
    for path, line, name in places:
        print(f"  {path.relative_to(checkout)}:{line} {name}")
    count, name, path = longest_signature(modules(checkout, "product"))
    print(f"longest signature of the product: {count} parameters, {name} in {path.name}")


if __name__ == "__main__":
    main()
