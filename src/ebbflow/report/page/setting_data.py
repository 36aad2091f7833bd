"""The configuration of a run, what it was made with, and the command that repeats it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from ebbflow.analysis.views.run_view import RunView
from ebbflow.config.merge import Layers, leaves
from ebbflow.config.resolved import Config
from ebbflow.config.toml_text import toml
from ebbflow.core.errors import EbbflowError
from ebbflow.report.page.plain import text
from ebbflow.runs.records import CONFIG

LONGEST_VALUE = 300
MAIN = (
    *("dataset", "algorithm", "methods", "seeds", "sessions", "rounds"),
    *("partition.kind", "model.kind"),
)
"""Settings that are told even if they are the default."""


class SettingFacts(TypedDict):
    """A setting that is worth telling, and its default."""

    key: str
    value: str
    default: str


class SettingSection(TypedDict):
    """The main settings and those that are not the default, all of them, and the environment."""

    changed: list[SettingFacts]
    toml: str
    environment: list[tuple[str, str]]
    command: str


def setting_section(view: RunView) -> SettingSection:
    """Return how a run was made, and how it is made again."""
    values = settings_of(view.config)
    usual = settings_of(_usual(view.config))
    return SettingSection(
        changed=[
            SettingFacts(key=key, value=written(value), default=written(usual.get(key)))
            for key, value in values.items()
            if key in MAIN or value != usual.get(key)
        ],
        # TOML has no null; what is left out means the same.
        toml=toml({key: value for key, value in values.items() if value is not None}),
        environment=_environment(view.environment),
        command=repeating(view.folder),
    )


def settings_of(config: Config) -> dict[str, Any]:
    """Return every setting by its dotted key; a bare table is none."""
    content = config.model_dump(mode="json")
    return {".".join(path): value for path, value in leaves(content) if value != {}}


def written(value: Any) -> str:
    """Return a value as a configuration has it, and a dash for none."""
    return "–" if value is None else text(json.dumps(value, ensure_ascii=False), LONGEST_VALUE)


def _usual(config: Config) -> Config:
    """Return the defaults for the data set, the model, the algorithms and the methods of a run."""
    layers = Layers()
    for key in ("dataset", "task", "algorithm", "methods"):
        layers.add_key(key, getattr(config, key), "the run")
    try:
        return layers.config()
    except EbbflowError:  # a plugin that is not loaded here
        return Layers().config()


def repeating(folder: Path | None) -> str:
    """Return the command that makes a run again.

    >>> repeating(Path("runs/my run"))
    "ebbflow compare 'runs/my run/config.toml' --out 'runs/my run-again'"
    """
    if folder is None:
        return ""
    again = folder.with_name(f"{folder.name}-again") if folder.name else Path("again")
    return f"ebbflow compare {_quoted(folder / CONFIG)} --out {_quoted(again)}"


def _quoted(path: Path) -> str:
    return shlex.quote(text(str(path), 4000))


def _environment(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a run was made with, in short lines."""
    versions = environment.get("versions", {})
    data = environment.get("dataset", {})
    facts = {
        **{name: str(version) for name, version in versions.items()},
        "Python": environment.get("python"),
        "system": environment.get("platform"),
        "processor": environment.get("processor"),
        "cores": environment.get("cores"),
        "instructions": ", ".join(
            f"{name} {value}" for name, value in environment.get("instructions", {}).items()
        ),
        "data set": data.get("name"),
        "samples": " + ".join(
            f"{data[part]:,} {words}"
            for part, words in (("train", "training"), ("test", "test"))
            if part in data
        ),
        "digest of the data": data.get("digest"),
    }
    return [(text(name), text(str(value))) for name, value in facts.items() if value]
