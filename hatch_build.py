"""Builds the optional fused kernel where there is a C compiler; without one nothing is missing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/ebbflow/engines/native")
# Fused multiply-add and 256-bit vectors, which every x86 processor of the last ten years has; the
# package asks the processor before it uses the result.
FLAGS = {"x86_64": ["-march=x86-64-v3"], "AMD64": ["-march=x86-64-v3"]}


class BuildKernel(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles softmax.c beside its Python module, also for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and put the library into the wheel; say so and go on if that fails."""
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if self.target_name != "wheel" or compiler is None or sys.platform == "win32":
            return
        folder = Path(self.root) / FOLDER
        library = folder / "_softmax.so"
        command = [
            *compiler.split(),
            *("-std=gnu11", "-O3", "-fPIC", "-shared"),
            *FLAGS.get(platform.machine(), []),
            *("-o", str(library), str(folder / "softmax.c"), "-lm"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(f"the fused kernel was not built: {done.stderr.strip()}")
            return
        build_data["artifacts"].append(str(FOLDER / library.name))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
