"""What is said of the processor's instructions is what the libraries use."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ebbflow.core import processor
from ebbflow.core.processor import described, flags, maker, onednn_instructions

AVX2 = frozenset({"sse4_1", "avx", "avx2", "fma"})
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
BF16 = AVX512 | {"avx512_vnni", "avx512_bf16"}
AMX = BF16 | {"avx_vnni", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"}
x86 = pytest.mark.skipif(
    platform.machine() != "x86_64" or "avx2" not in flags(),
    reason="needs Linux on an x86 processor with AVX2",
)


@pytest.mark.parametrize(
    ("flags", "limit", "used"),
    [
        (frozenset(), "", ""),
        (frozenset({"neon", "sve"}), "", ""),
        (AVX2, "", "AVX2"),
        (AVX2, "AVX512_CORE", "AVX2"),
        (AVX512, "", "AVX512_CORE"),
        (BF16, "", "AVX512_CORE_BF16"),
        (BF16, "AVX512_CORE", "AVX512_CORE"),
        (BF16, "AVX2", "AVX2"),
        (BF16, "avx2", "AVX2"),
        (BF16, "AVX2_VNNI", "AVX2"),
        (BF16, "nonsense", "AVX512_CORE_BF16"),
        (BF16, "ALL", "AVX512_CORE_BF16"),
        (AMX, "", "AVX512_CORE_AMX"),
        (AMX, "AVX512_CORE_BF16", "AVX512_CORE_BF16"),
        (AMX, "AVX2_VNNI", "AVX2_VNNI"),
    ],
)
def test_onednn_uses_the_best_up_to_the_limit(flags: frozenset[str], limit: str, used: str) -> None:
    assert onednn_instructions(flags, limit) == used


def test_flags_are_read_where_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "_CPU_INFO", tmp_path / "cpuinfo")
    assert flags() == frozenset()
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2\n\nflags\t\t: x\n")
    assert flags() == {"fpu", "avx2"}
    (tmp_path / "cpuinfo").write_text("Features\t: fp asimd\n")
    assert flags() == {"fp", "asimd"}
    assert maker() == "unknown"
    for line in ("vendor_id\t: AuthenticAMD\n", "CPU implementer\t: AuthenticAMD\n"):
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{line}")
        assert maker() == "AuthenticAMD"
    (tmp_path / "cpuinfo").write_text("model name\t: A: B\n")
    assert flags() == frozenset()


def test_only_what_is_used_is_described() -> None:
    used = {"MKL_CBWR": "AVX2,STRICT", "torch": "AVX2", "oneDNN": "AVX2"}
    variables = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert described(used | variables) == "torch AVX2, oneDNN AVX2, MKL_CBWR AVX2,STRICT"
    assert described({}) == ""


SCRIPT = """
import json, torch
from ebbflow import experiment
from ebbflow.core.processor import instructions
torch.nn.functional.conv2d(torch.randn(4, 16, 16, 16), torch.randn(8, 16, 3, 3))
print(json.dumps(instructions()))
"""
SAID = {
    "AVX2": "Intel AVX2",
    "AVX2_VNNI": "Intel AVX2 with Intel DL Boost",
    "AVX512_CORE": "Intel AVX-512 with AVX512BW, AVX512VL, and AVX512DQ extensions",
    "AVX512_CORE_VNNI": "Intel AVX-512 with Intel DL Boost",
    "AVX512_CORE_BF16": "Intel AVX-512 with Intel DL Boost and bfloat16 support",
}
"""How oneDNN describes what it uses."""


@x86
@pytest.mark.parametrize(
    "held", [{}, {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}], ids=["no", "AVX2"]
)
def test_the_libraries_use_what_is_said(held: dict[str, str]) -> None:
    names = ("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA")
    free = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=free | held | {"ONEDNN_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    *log, last = done.stdout.splitlines()
    said = json.loads(last)
    (isa,) = (line.partition("isa:")[2] for line in log if "isa:" in line)
    assert isa == SAID.get(said["oneDNN"], isa)
    assert said.items() >= held.items()
    assert held or not any(name in said for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"))
    if held:
        wanted = {"torch": "AVX2", "oneDNN": "AVX2", "MKL_CBWR": "AVX2,STRICT"}
        assert said == wanted | held
