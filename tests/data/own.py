"""Data as users have them, for tests of the loaders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ebbflow.core.types import Dataset


def assert_one_sentence(text: str) -> None:
    """Check that a message is one sentence with a remedy, and no traceback."""
    assert "\n" not in text
    assert "Traceback" not in text
    assert ": " in text or "; " in text
    assert len(text) < 1000


def assert_owned(dataset: Dataset) -> None:
    """Check what data sets whose samples have owners promise."""
    for split in (dataset.train, dataset.test):
        if split.device is None:
            continue
        assert str(split.device.dtype) == "torch.int64"
        assert str(split.device.device) == "cpu"
        assert len(split.device) == len(split)
        assert 0 <= int(split.device.min()) <= int(split.device.max()) < len(dataset.devices)


def write_csv(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def patients(folder: Path, rows: int = 60) -> Path:
    """Write a table with numbers, categories, missing values, owners and labels."""
    draw = np.random.default_rng(3)
    lines = ["age,sex,smokes,site,ward,outcome"]
    for row in range(rows):
        age = f"{draw.normal(50, 10):.1f}" if row % 7 else ""
        sex = ("f", "m", "")[row % 3]
        lines.append(
            f"{age},{sex},{bool(row % 2)},north,ward {1 + row % 11},{('ill', 'well')[row % 2]}"
        )
    return write_csv(folder / "patients.csv", *lines)


def picture(
    path: Path, *, size: tuple[int, int] = (6, 5), mode: str = "RGB", seed: int = 0
) -> Path:
    """Write a random picture; ``size`` is its height and width."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)
    shape = size if mode == "L" else (*size, len(mode))
    pixels = draw.integers(0, 256, size=shape).astype(np.uint8)
    Image.fromarray(pixels, mode=None).save(path)
    return path


def leaf(path: Path, pairs: dict[str, Any], **changes: Any) -> Path:
    """Write a file of LEAF's: ``pairs`` are those of inputs and labels by name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    contents = {
        "users": list(pairs),
        "num_samples": [len(y) for _, y in pairs.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in pairs.items()},
    }
    path.write_text(json.dumps({**contents, **changes}), encoding="utf-8")
    return path
