"""`ebbflow plot`: which files are written, of what, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbflow.experiment import run
from tests.configs import with_settings
from tests.test_cli import ebbflow

SMALL = ("rounds=2", "sessions=4", "engine.workers=1", "partition.devices=4", "window=[2]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plot") / "run"
    run(with_settings(*SMALL, "seeds=[1,2]", "data.limit_train=200"), path)
    return str(path)


def test_each_format_is_written_to_its_file(folder: str, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"curves.{kind}" for kind in ("pdf", "svg", "png")}
    options = [text for kind, path in files.items() for text in (f"--{kind}", str(path))]
    answer = ebbflow("plot", folder, *options)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "".join(f"picture  {path}\n" for path in files.values())
    begins = {kind: path.read_bytes()[:5] for kind, path in files.items()}
    assert begins == {"pdf": b"%PDF-", "svg": b"<?xml", "png": b"\x89PNG\r"}


@pytest.mark.parametrize("spelling", [("--seed", "--methods"), ("--seeds", "--method")])
def test_what_is_shown_can_be_chosen(
    folder: str, tmp_path: Path, spelling: tuple[str, str]
) -> None:
    path = tmp_path / "curves.svg"
    seed, method = spelling
    chosen = ("--algorithm", "fedavg", seed, "1", method, "learned,previous", "--width", "page")
    assert ebbflow("plot", folder, *chosen, "--svg", str(path)).code == 0
    assert 'width="515.52pt"' in path.read_text(encoding="utf-8")  # 7.16 inches


def test_what_cannot_be_gets_one_sentence(folder: str, tmp_path: Path) -> None:
    pdf = ("--pdf", str(tmp_path / "x.pdf"))
    refused = {
        (folder,): "no file is named",
        (folder, "--pdf", "no/such/x.pdf"): "there is no folder no/such",
        (folder, "--pdf", str(tmp_path)): "is a folder: name a file",
        (folder, "--figure", "curve", *pdf): "did you mean curves",
        (folder, "--figure", "devices", *pdf): "has no scores of devices",
        (folder, "--width", "broad", *pdf): "--width 'broad' is no width",
        (folder, "--seed", "x", *pdf): "--seed 'x' are no seeds",
        (folder, "--seed", "9", *pdf): "there is no seed '9'",
        (folder, "--methods", "best", *pdf): "there is no method 'best'",
    }
    for arguments, sentence in refused.items():
        answer = ebbflow("plot", *arguments)
        assert (answer.code, answer.out) == (2, "")
        assert sentence in answer.err
        assert answer.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
