"""How long the tutorials take: every block of docs/tutorials.md, run as a user would.

    python -m benchmarks.tutorials

writes the seconds of each path into the page. Installing is not in them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "tutorials.md"
MARKS = "<!-- times -->\n", "<!-- /times -->"


def paths(page: str) -> dict[str, list[tuple[str, str]]]:
    """Return the blocks of each path, by its heading: a language and a text."""
    sections = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    return {
        section.splitlines()[0]: re.findall(
            r"```(python|console)\n(.*?)```", section, flags=re.DOTALL
        )
        for section in sections
    }


def walk(blocks: list[tuple[str, str]], folder: Path) -> float:
    """Run blocks in an empty folder, and return the seconds that they take."""
    began = time.monotonic()
    environment = {**os.environ, "EBBFLOW_STATE": str(folder / "state")}
    here = folder
    for number, (kind, block) in enumerate(blocks):
        if kind == "python":
            (here / f"block-{number}.py").write_text(block, encoding="utf-8")
            commands = [[f"block-{number}.py"]]
        else:
            commands = [shlex.split(line.removeprefix("$ ")) for line in block.splitlines()]
        for words in commands:
            if words[0] == "cd":
                here = here / words[1]
                continue
            program = ["-m", *words] if words[0] == "ebbflow" else words[words[0] == "python" :]
            command = [sys.executable, *program]
            subprocess.run(command, cwd=here, env=environment, check=True, capture_output=True)
    return time.monotonic() - began


def main() -> None:
    """Walk every path, and write the times into the page."""
    page = PAGE.read_text(encoding="utf-8")
    rows = ["| path | seconds |", "| --- | --- |"]
    for name, blocks in paths(page).items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(f"| {name} | {walk(blocks, Path(folder)):.0f} |")
            print(rows[-1])
    table = "\n" + "\n".join(rows) + "\n\n"
    start, end = (re.escape(mark) for mark in MARKS)
    page = re.sub(f"{start}.*?{end}", MARKS[0] + table + MARKS[1], page, flags=re.DOTALL)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
