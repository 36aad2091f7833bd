"""Merges the layers of a configuration; later layers win.

The layers are a TOML file (above the presets that it names), presets, command-line shortcuts and
``--set a.b=c``. Every value remembers its layer, so that an error can say where to look.
"""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ebbflow.config.presets import preset
from ebbflow.config.resolve import resolve
from ebbflow.config.resolved import Config
from ebbflow.config.schema import Settings, as_list
from ebbflow.core.errors import EbbflowError, nearest
from ebbflow.core.names import printable

LARGEST_FILE = 16 * 2**20
LONGEST_VALUE = 200
DEEPEST_KEY = 8
FORMER_SECTIONS = ("warm_start", "continuous")
"""Starts whose parameters used to have their own section, as in ``warm_start.scale``."""


class Layers:
    """Configuration layers on top of each other, each value with the place it came from."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.places: dict[str, str] = {}
        self.notes: list[str] = []
        """Sentences for the user about keys that have been renamed."""

    def add(self, values: Mapping[str, Any], place: str) -> None:
        """Add a nested mapping on top."""
        for written, value in leaves(values):
            path = self._renamed(written, place)
            node = self.values
            *parents, last = path
            for parent in parents:
                below = node.setdefault(parent, {})
                if not isinstance(below, dict):
                    self._refuse_hidden(parent, below)
                    below = node[parent] = {}
                node = below
            hidden = node.get(last)
            node[last] = copy.deepcopy(value)
            key = ".".join(path)
            self._forget_replaced(path, bool(hidden) and isinstance(hidden, dict))
            self.places[key] = place

    def _forget_replaced(self, path: tuple[str, ...], section: bool) -> None:
        """Forget the places of values that a value replaces: above it, and below a section."""
        for depth in range(1, len(path)):
            self.places.pop(".".join(path[:depth]), None)
        if section:
            below = ".".join(path) + "."
            for old in [old for old in self.places if old.startswith(below)]:
                del self.places[old]

    def _renamed(self, path: tuple[str, ...], place: str) -> tuple[str, ...]:
        """Return the current path of a value, and note if it was renamed."""
        if len(path) == 2 and path[0] in FORMER_SECTIONS:
            new = ("parameters", *path)
            self.notes.append(f"{'.'.join(path)} ({place}) is called {'.'.join(new)} now")
            return new
        return path

    def _refuse_hidden(self, section: str, value: Any) -> None:
        """Raise an error if a value stands where a section belongs, before keys replace it."""
        if any(key.startswith(f"{section}.") for key in keys()):
            raise EbbflowError(
                f"{section} = {value!r} ({self.places[section]}) is refused: {section} is a "
                f"section; write {section}.KEY instead"
            )

    def add_file(self, path: Path) -> None:
        """Add the presets that a TOML file names in ``preset``, then the file, on top."""
        self.add_written(read_toml(path), path)

    def add_written(self, values: Mapping[str, Any], path: Path) -> None:
        """Do the same with what a file holds."""
        own = {key: value for key, value in values.items() if key != "preset"}
        for name in as_list(values.get("preset", [])):
            self.add_preset(str(name), str(path))
        if "plugins" in own:
            own["plugins"] = absolute_paths(own["plugins"], path.parent)
        self.add(own, str(path))

    def copy(self) -> Layers:
        """Return the same layers, to put others on top."""
        return copy.deepcopy(self)

    def add_preset(self, name: str, place: str = "--preset") -> None:
        """Add a preset on top; ``place`` is where it was named."""
        self.add(preset(name, place), f"preset {name}")

    def add_setting(self, text: str) -> None:
        """Add one ``a.b=c`` on top; c is a TOML value, or a string without quotes."""
        key, equals, value = text.partition("=")
        path = [part.strip() for part in key.split(".")]
        if not equals or not all(path):
            raise EbbflowError(
                f'--set "{text}" is not of the form key=value, as in --set rounds=50'
            )
        self.add_key(".".join(path), literal(value.strip()), f"--set {text}")

    def add_key(self, key: str, value: Any, place: str) -> None:
        """Add the value of one dotted key on top."""
        for part in reversed(key.split(".")):
            value = {part: value}
        self.add(value, place)

    def plugins(self) -> list[str]:
        """Return the plugins that the layers name, to be loaded before `config` is called.

        None if they are not named as they should be, which `config` will explain.
        """
        self._refuse_odd_text()
        named = absolute_paths(self.values.get("plugins", []), Path())
        return named if all(isinstance(text, str) and text for text in named) else []

    def config(self) -> Config:
        """Return the resolved configuration, or raise an error that says what is wrong with it."""
        self._refuse_odd_text()
        try:
            return resolve(Settings.model_validate(self.values))
        except ValidationError as error:
            raise EbbflowError(self._explain(error)) from None

    def _refuse_odd_text(self) -> None:
        """Raise an error if a name or text holds a character that no path and no name has."""
        for path, value in leaves(self.values):
            texts = [part for part in as_list(value) if isinstance(part, str)]
            for text in (*path, *texts):
                if printable(text) != text:
                    key = ".".join(path)
                    place = self.places.get(key, "")
                    raise EbbflowError(
                        f"{key} ({place}) is refused: {text!r} holds a character that cannot be "
                        "shown"
                    )

    def _explain(self, error: ValidationError) -> str:
        errors = error.errors(include_url=False)
        first = errors[0]
        parts = (key.split(".") for key in self.places)
        written = {".".join(path[:n]) for path in parts for n in range(1, len(path) + 1)}
        key = self._written(first["loc"], written)
        place = next((p for k, p in self.places.items() if k == key or k.startswith(key + ".")), "")
        where = f" ({place})" if place else ""
        if first["type"] == "extra_forbidden":
            return f"unknown key {key}{where}{_suggestion(key)}"
        # If a value may have several types, pydantic reports an error for each of them.
        reasons = [str(e["msg"]) for e in errors if self._written(e["loc"], written) == key]
        reasons = [reason.removeprefix("Value error, ") for reason in dict.fromkeys(reasons)]
        value = first["input"]
        shown = "a table" if isinstance(value, dict) else _shown(value)
        text = ", or ".join(f"{reason[0].lower()}{reason[1:]}" for reason in reasons)
        return f"{key} = {shown}{where} is refused: {text}"

    @staticmethod
    def _written(location: tuple[int | str, ...], written: set[str]) -> str:
        """Return the key that the user wrote, without pydantic's indices and union branches."""
        path = [str(part) for part in location]
        while path and ".".join(path) not in written:
            path.pop()
        return ".".join(path) or ".".join(str(part) for part in location)


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a TOML file holds."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise EbbflowError(
                f"{path} is larger than any configuration ({LARGEST_FILE // 2**20} MiB): check "
                "the path"
            )
        return tomllib.loads(content.decode())
    except FileNotFoundError:
        raise EbbflowError(f"there is no configuration file {path}: check the path") from None
    except OSError as error:
        raise EbbflowError(f"{path} cannot be read ({error.strerror}): check the path") from None
    except RecursionError:
        raise EbbflowError(f"{path} is nested too deeply: no setting is") from None
    except ValueError as error:  # no TOML, no UTF-8, or a number of too many digits
        raise EbbflowError(f"{path} is not valid TOML: {error}") from None


def _shown(value: Any) -> str:
    """Return a value as it might have been written, cut short if it is long."""
    try:
        text = json.dumps(value, default=str)
    except (ValueError, RecursionError):  # a number of too many digits, lists without end
        return "a value of this size"
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def read_written(config: dict[str, Any], place: str) -> Config:
    """Return a configuration that this or an earlier version wrote to a file."""
    layers = Layers()
    layers.add(config, place)
    return layers.config()


def leaves(
    values: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every value of a nested mapping with its path; an empty mapping is a value."""
    if len(path) > DEEPEST_KEY:
        raise EbbflowError(f"the key {'.'.join(path)} is nested too deeply: no setting is")
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def absolute_paths(value: Any, folder: Path) -> list[Any]:
    """Return the paths in a list, which are relative to a folder, as absolute ones.

    What is no path is left as it is, for the check of the settings to refuse.
    """
    return [_absolute(entry, folder) for entry in as_list(value)]


def _absolute(path: Any, folder: Path) -> Any:
    if not isinstance(path, str) or not path:
        return path
    try:
        return str((folder / Path(path).expanduser()).resolve())
    except (OSError, RuntimeError, ValueError):  # nobody's home, links in a circle, a zero byte
        return path


def literal(text: str) -> Any:
    """Parse a text as a TOML value; return the text itself if it is not one.

    >>> literal("0.5"), literal("mnist")
    (0.5, 'mnist')
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def keys(section: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """Yield every dotted key that a configuration may hold.

    >>> "partition.overlap" in set(keys())
    True
    """
    for name, info in section.model_fields.items():
        kind = info.annotation
        optional = [part for part in get_args(kind) if part is not type(None)]
        if len(optional) == 1:
            kind = optional[0]
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _suggestion(key: str) -> str:
    known = list(keys())
    by_last = {name.rsplit(".", 1)[-1]: name for name in known}
    close = nearest(key, known, 0.6)
    if close is None:
        last = nearest(key.rsplit(".", 1)[-1], by_last, 0.8)
        close = by_last[last] if last else None
    return f": did you mean {close}?" if close else "; see docs/configuration.md for all keys"
