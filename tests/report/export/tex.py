"""Debian's LaTeX for tests: installed once where that is possible, or else the reason why not."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock

PACKAGES = ("texlive-latex-base", "texlive-latex-recommended", "poppler-utils")
"""The fewest that have pdflatex, booktabs, longtable and pdftotext: 156 MB on disk."""
FORBIDDEN = "EBBFLOW_NO_APT"
"""The variable that keeps tests from installing anything."""


def _here() -> bool:
    if not all(map(shutil.which, ("pdflatex", "pdftotext", "kpsewhich"))):
        return False
    found = subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True, check=False)
    return found.returncode == 0


@cache
def lacking() -> str:
    """Return why LaTeX cannot be used; nothing, if it can."""
    if _here():
        return ""
    if FORBIDDEN in os.environ:
        return f"LaTeX is missing, and {FORBIDDEN} forbids to install it"
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists() or not shutil.which("apt-get"):
        return f"LaTeX is missing: install {' '.join(PACKAGES)}"
    # Of several workers, one installs and the others wait.
    with FileLock(Path(tempfile.gettempdir()) / "ebbflow-tests-tex.lock", timeout=280):
        if _here():
            return ""
        for command in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            done = subprocess.run(
                ["apt-get", "-qq", *command], capture_output=True, check=False, env=environment
            )
            if done.returncode and command != ["update"]:
                return f"LaTeX is missing, and apt-get could not install {' '.join(PACKAGES)}"
    return "" if _here() else "LaTeX is missing, though apt-get has installed it"


def printed(document: str, folder: Path) -> str:
    """Return the text of the pages that a document gives; skip if there is no LaTeX."""
    if reason := lacking():
        pytest.skip(reason)
    (folder / "table.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error"]
    done = subprocess.run(
        [*command, "table.tex"], cwd=folder, capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-3000:]
    text = subprocess.run(
        ["pdftotext", "-layout", "table.pdf", "-"], cwd=folder, capture_output=True, check=True
    )
    return text.stdout.decode()
