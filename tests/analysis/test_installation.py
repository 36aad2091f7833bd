"""The doctor: what it says of a good installation, and of one that lacks something."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import typer

from ebbflow.analysis import installation, kernel_timing
from ebbflow.analysis.installation import HealthCheck, PackageNeed, check_installation
from ebbflow.analysis.kernel_timing import KernelTiming, time_kernel
from ebbflow.cli import doctor
from ebbflow.engines import native
from ebbflow.engines.native import loading

REQUIRED = [
    "numpy>=2.0",
    "torch>=2.6",
    "dp-accounting>=0.6; extra == 'privacy'",
    'tokenizers>=0.21; extra == "text"',
    "ebbflow[privacy,text]; extra == 'dev'",
    "pytest>=8.3; extra == 'dev'",
    "tomli>=2; python_version < '3.11'",
]
Versions = Callable[[dict[str, str]], None]


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> Versions:
    """Return a function that says which versions are installed; what it does not name is not."""

    def install(known: dict[str, str]) -> None:
        def version(name: str) -> str:
            if name not in known:
                raise PackageNotFoundError(name)
            return known[name]

        monkeypatch.setattr(installation, "version", version)
        monkeypatch.setattr(installation, "requires", lambda _name: REQUIRED)

    return install


def named(checks: list[HealthCheck], name: str) -> HealthCheck:
    (found,) = (check for check in checks if check.name == name)
    return found


def test_this_installation_is_healthy() -> None:
    checks = list(check_installation())
    assert [check for check in checks if check.state == "broken"] == []
    names = [check.name for check in checks]
    assert len(names) == len(set(names))
    wanted = {"ebbflow", "command", "python", "packages", "kernel", "training", "processor"}
    wanted |= {"threads", "gpu", "memory", "here", "cache", "data", "digits", "mnist", "agnews"}
    assert wanted <= set(names)
    json.dumps([check._asdict() for check in checks])


def test_without_torch_the_other_checks_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("libtorch.so: cannot open shared object file\nand more")

    monkeypatch.setattr(installation, "_kernel", broken)
    checks = list(check_installation())
    reason = "OSError: libtorch.so: cannot open shared object file"
    assert named(checks, "kernel") == ("kernel", "broken", reason, {})
    assert named(checks, "training").state == "ok"
    assert named(checks, "digits").state == "ok"


# --- packages and extras -------------------------------------------------------------------------


def test_packages_that_are_missing_or_old_are_broken(versions: Versions) -> None:
    versions({"torch": "2.5.1+cpu"})
    numpy, torch, rest = installation._packages()
    assert numpy[:3] == ("numpy", "broken", "numpy is missing: pip install --upgrade numpy")
    assert torch.detail == "torch 2.5.1+cpu is older than 2.6: pip install --upgrade torch"
    assert rest[:3] == ("packages", "ok", "0 others")


def test_a_condition_that_is_no_extra_is_left_to_pip(versions: Versions) -> None:
    versions({"numpy": "2.0", "torch": "2.13.0+cpu"})
    (check,) = installation._packages()
    assert check[:3] == ("packages", "ok", "torch 2.13.0+cpu, numpy 2.0, 0 others")


def test_every_missing_extra_comes_with_its_command(versions: Versions) -> None:
    versions({"dp-accounting": "0.6.0"})
    privacy, text = installation._extras()
    assert privacy[:3] == ("extra privacy", "ok", "dp-accounting 0.6.0")
    detail = 'tokenizers is missing: pip install "ebbflow[text]"'
    assert text[:3] == ("extra text", "missing", detail)
    assert text.facts == {"remedy": 'pip install "ebbflow[text]"'}


def test_requirements_are_read_from_the_metadata(versions: Versions) -> None:
    versions({})
    assert list(installation._requirements()) == [
        PackageNeed("numpy", "2.0", ""),
        PackageNeed("torch", "2.6", ""),
        PackageNeed("dp-accounting", "0.6", "privacy"),
        PackageNeed("tokenizers", "0.21", "text"),
        PackageNeed("pytest", "8.3", "dev"),
    ]


def test_a_package_that_is_not_installed_is_told_apart(versions: Versions) -> None:
    versions({})
    own = next(iter(installation._ebbflow()))
    assert own.state == "broken"
    assert "not installed: pip install ." in own.detail


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ebbflow").touch()
    return tmp_path / "bin" / "ebbflow"


def test_the_command_is_the_one_on_the_path(scripts: Path) -> None:
    check = installation._command(scripts, str(scripts))
    assert check[:3] == ("command", "ok", str(scripts))


def test_a_command_that_is_not_on_the_path(scripts: Path) -> None:
    check = installation._command(scripts, None)
    assert check.state == "missing"
    assert check.detail == f"{scripts}, which is not on the PATH: add {scripts.parent} to it"
    scripts.with_name("activate").touch()
    check = installation._command(scripts, None)
    assert check.detail.endswith(f"run `source {scripts.parent}/activate`")


def test_a_command_of_another_installation_comes_first(scripts: Path, tmp_path: Path) -> None:
    other = tmp_path / "ebbflow"
    other.touch()
    check = installation._command(scripts, str(other))
    assert check.state == "missing"
    assert f"the PATH leads to {other}" in check.detail


def test_no_command_at_all(tmp_path: Path) -> None:
    check = installation._command(tmp_path / "ebbflow", None)
    assert check.state == "missing"
    assert f"{sys.executable} -m ebbflow" in check.detail


# --- the kernel ----------------------------------------------------------------------------------


@pytest.fixture
def fresh_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return where the kernel is looked for; it is looked for again, and not remembered."""
    monkeypatch.setattr(native, "_loaded", native._loaded.__wrapped__)
    monkeypatch.setattr(loading, "LIBRARY", tmp_path / "_kernels.so")
    return tmp_path / "_kernels.so"


def test_a_kernel_that_was_not_built(fresh_kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.library() is None
    monkeypatch.setattr("shutil.which", lambda _name: None)
    (check,) = installation._kernel()
    assert check.state == "missing"
    assert "not built when ebbflow was installed, for want of a C compiler" in check.detail
    assert check.detail.endswith("install a C compiler such as gcc, and then ebbflow once more")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    (check,) = installation._kernel()
    assert "there is a compiler now (/bin/cc): `pip install -v" in check.detail


@pytest.mark.parametrize(
    ("variable", "reason"),
    [
        ("", "it needs AVX2, which the processor does not have"),
        ("default", "it needs AVX2, and ATEN_CPU_CAPABILITY=default holds torch below that"),
    ],
)
def test_a_processor_without_avx2(
    fresh_kernel: Path, monkeypatch: pytest.MonkeyPatch, variable: str, reason: str
) -> None:
    fresh_kernel.touch()
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", variable)
    assert native.why_missing() == reason
    (check,) = installation._kernel()
    assert check.state == "missing"
    assert check.detail == f"{reason}: softmax regression and dense networks take longer"


def test_a_kernel_that_cannot_be_loaded(
    fresh_kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX2")
    fresh_kernel.write_bytes(b"no library")
    assert native.why_missing().startswith("it cannot be loaded (")
    assert native.library() is None


def test_what_the_kernel_is_worth_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "why_missing", lambda: "")
    monkeypatch.setattr(kernel_timing, "time_kernel", lambda: KernelTiming(0.004, 0.02, 1e-7))
    (check,) = installation._kernel()
    assert check.state == "ok"
    assert "takes 4.0 ms, and 20.0 ms without it: 5.0 times as fast" in check.detail
    assert check.facts["ratio"] == pytest.approx(5)


@pytest.mark.parametrize("difference", [0.1, float("nan")])
def test_a_kernel_that_computes_something_else_is_broken(
    monkeypatch: pytest.MonkeyPatch, difference: float
) -> None:
    monkeypatch.setattr(native, "why_missing", lambda: "")
    timing = KernelTiming(0.004, 0.02, difference)
    monkeypatch.setattr(kernel_timing, "time_kernel", lambda: timing)
    (check,) = installation._kernel()
    assert check.state == "broken"
    assert "set engine.fused = false" in check.detail


def test_the_timed_rounds_agree() -> None:
    timing = time_kernel(rounds=1)
    assert timing.difference < 1e-5  # single precision, some 4,000 additions
    assert timing.fused > 0 and timing.mapped > 0


# --- folders and data ----------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(**_named: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    check = installation._writable(tmp_path, "here", "use --out")
    assert check.state == "missing"
    assert check.detail == f"{tmp_path} cannot be written to (Permission denied): use --out"


def test_a_data_folder_that_is_none_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBBFLOW_DATA", "/nowhere")
    check = named(list(check_installation()), "data")
    assert check.state == "broken"
    assert "EBBFLOW_DATA is set to '/nowhere'" in check.detail


# --- the command line ----------------------------------------------------------------------------


def run(monkeypatch: pytest.MonkeyPatch, checks: list[HealthCheck], as_json: bool) -> int:
    """Run the command on these outcomes and return its exit code."""
    monkeypatch.setattr(installation, "check_installation", lambda: iter(checks))
    try:
        doctor.doctor(as_json)
    except typer.Exit as end:
        return end.exit_code
    return 0


OK = HealthCheck("python", "ok", "3.13.0", {"version": "3.13.0"})
MISSING = HealthCheck("mnist", "missing", "not here: ebbflow data get mnist", {})
BROKEN = HealthCheck("numpy", "broken", "numpy is missing", {})


def test_what_is_missing_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, [OK, MISSING], as_json=False) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "ok    python        3.13.0",
        "--    mnist         not here: ebbflow data get mnist",
    ]
    assert err == ""


def test_what_is_broken_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, [OK, BROKEN], as_json=False) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[1] == "FAIL  numpy         numpy is missing"
    assert err == "ebbflow cannot run as it should: the lines marked FAIL say why\n"


@pytest.mark.parametrize("checks", [[OK, MISSING], [OK, BROKEN]], ids=["healthy", "broken"])
def test_everything_as_json(
    checks: list[HealthCheck],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = BROKEN in checks
    assert run(monkeypatch, checks, as_json=True) == int(broken)
    out, err = capsys.readouterr()
    assert err == ""
    said = json.loads(out)
    assert said["healthy"] is not broken
    assert said["checks"] == [check._asdict() for check in checks]
