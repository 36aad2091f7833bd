"""Plugins: Python files and installed packages that register algorithms, starts and more.

A plugin is a file named by ``--plugin`` or by ``plugins`` in a configuration, or a module named by
an entry point of the group ``ebbflow.plugins``. It registers what it offers when it is imported.

A run records its plugins in its configuration, each as ``path@sha256:digest``. A run folder cannot
make anybody run code: a plugin that it records is loaded only if the user names it again, or has
run exactly this content at exactly this path on this account before (`ebbflow.runs.trust`).
"""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NamedTuple

from ebbflow.config.merge import Layers
from ebbflow.core.errors import EbbflowError, EbbflowWarning
from ebbflow.core.files import sha256
from ebbflow.runs import records
from ebbflow.runs.trust import Plugin, trust, trusted

GROUP = "ebbflow.plugins"
_RECORDED = re.compile(r"(.+)@sha256:([0-9a-f]{64})")
_DIGEST = "__ebbflow_digest__"
"""What a loaded plugin's module calls the digest of its content."""


class PluginError(EbbflowError):
    """A plugin that cannot be loaded; ``details`` is its traceback."""

    def __init__(self, sentence: str, details: str) -> None:
        super().__init__(sentence)
        self.details = details


class _Entry(NamedTuple):
    """A plugin in a configuration: its path, and its digest if a run has recorded it."""

    path: Path
    digest: str | None

    @classmethod
    def of(cls, text: str) -> _Entry:
        recorded = _RECORDED.fullmatch(text)
        return cls(Path(recorded[1]), recorded[2]) if recorded else cls(Path(text), None)


# --- what the user names -------------------------------------------------------------------------


def load_configured(layers: Layers, named: Iterable[Path | str] = ()) -> None:
    """Load all plugins of a new run, and record them in its configuration.

    Those are the installed ones, those in ``named``, and those that the configuration names.
    """
    load_installed()
    given = [load_file(Path(path)) for path in named]
    place = layers.places.get("plugins", "")
    entries = [_Entry.of(text) for text in layers.plugins()]
    # What a run has written down is no word of the user's, even if the user names that file.
    own = [entry for entry in entries if entry.digest is None and not _written_by_run(place)]
    loaded = [load_file(entry.path, f"the plugin {entry.path} ({place})") for entry in own]
    theirs = [entry for entry in entries if entry not in own]
    loaded += _load_needed(theirs, given, place)
    if plugins := dict.fromkeys([*loaded, *given]):
        layers.add_key("plugins", [f"{p.path}@sha256:{p.digest}" for p in plugins], place)


def _written_by_run(place: str) -> bool:
    """Whether a value comes from a run's config.toml, or from a file that lies in a run folder."""
    path = Path(place)
    others = (records.ENVIRONMENT, records.METRICS, records.EVENTS, records.SUMMARY)
    try:
        if any((path.parent / name).exists() for name in others):
            return True
        return path.is_file() and path.read_bytes().startswith(b"# digest")
    except OSError:  # no path at all, such as a long --set; then nothing is taken on trust
        return True


def trust_recorded(entries: Iterable[str]) -> None:
    """Note the plugins that a new run has recorded, so that it can be resumed without naming them.

    All of them were named by the user, now or on an earlier day.
    """
    found = [_Entry.of(text) for text in entries]
    trust(Plugin(str(entry.path), entry.digest) for entry in found if entry.digest)


# --- what a run has recorded ---------------------------------------------------------------------


def load_recorded(entries: Sequence[str], named: Iterable[Path | str] = ()) -> None:
    """Load the plugins that a run needs: those that the user names, and trusted ones.

    A plugin that is named stands for the recorded one with the same content or the same file name.
    """
    load_installed()
    given = [load_file(Path(path)) for path in named]
    trust(given)
    _load_needed([_Entry.of(text) for text in entries], given, "the run")


def load_trusted(entries: Iterable[str]) -> list[str]:
    """Load installed plugins and, of these, the trusted ones; return a sentence on each other."""
    load_installed()
    found = [_load_if_trusted(_Entry.of(text)) for text in entries]
    return [reason for reason in found if isinstance(reason, str)]


def warn_of_lacking(entries: Iterable[str]) -> None:
    """Load trusted plugins for a command that can do without, and warn of those it lacks."""
    for reason in load_trusted(entries):
        text = f"{reason}; without it, the costs of what it registers are rough"
        warnings.warn(text, EbbflowWarning, stacklevel=2)


def _load_needed(entries: Iterable[_Entry], given: Sequence[Plugin], place: str) -> list[Plugin]:
    """Return the loaded plugins, one for each entry; raise an error if one cannot be loaded."""
    needed = []
    for entry in entries:
        found = _among(given, entry) or _load_if_trusted(entry)
        if isinstance(found, str):
            raise EbbflowError(f"{place} needs a plugin: {found}")
        needed.append(found)
    return needed


def _among(given: Sequence[Plugin], entry: _Entry) -> Plugin | None:
    """Return the plugin, of those that the user has named, that stands for a recorded one."""
    same = next((plugin for plugin in given if plugin.digest == entry.digest), None)
    alike = next((plugin for plugin in given if Path(plugin.path).name == entry.path.name), None)
    if same is None and alike is not None and entry.digest is not None:
        text = (
            f"the plugin {alike.path} is not the one that was run before: its content was changed, "
            "and what follows may differ"
        )
        warnings.warn(text, EbbflowWarning, stacklevel=2)
    return same or alike


def _load_if_trusted(entry: _Entry) -> Plugin | str:
    """Load a plugin if its path and content are trusted; if not, return why, and the remedy."""
    path = entry.path
    if not path.is_file():
        return f"{path} is missing; name it by --plugin PATH, wherever it is now"
    known = {plugin.digest for plugin in trusted() if plugin.path == str(path)}
    if entry.digest is not None:
        known &= {entry.digest}
    # A file that nobody on this account has named is not even read.
    if not known:
        return (
            f"{path} is not trusted, because it was never run from this account; read it, and if "
            f"you trust it, name it by --plugin {path}"
        )
    what = f"the plugin {path}"
    content = _content(path, what)
    if sha256(content) not in known:
        return (
            f"{path} was changed since; restore it, or go on with the changed one by --plugin "
            f"{path}"
        )
    return _load(path, content, what)


# --- loading -------------------------------------------------------------------------------------


def load_installed() -> None:
    """Load the plugins of installed packages."""
    for entry_point in entry_points(group=GROUP):
        _load_entry_point(entry_point)


def _load_entry_point(entry_point: EntryPoint) -> None:
    try:
        entry_point.load()
    except Exception as error:  # whatever a plugin raises, it is the plugin's
        raise _broken(f"the installed plugin {entry_point.name}", error) from error


def load_file(path: Path, what: str | None = None) -> Plugin:
    """Import a file that the user has named, so that it registers what it offers.

    ``what`` is what an error calls it.
    """
    what = what or f"--plugin {path}"
    if not path.is_file():
        raise EbbflowError(f"{what}: there is no such file; check the path")
    if path.suffix != ".py":
        raise EbbflowError(f"{what} is no Python file: name one that ends with .py")
    return _load(path.resolve(), _content(path, what), what)


def _content(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise EbbflowError(f"{what} cannot be read ({reason}): check its permissions") from None


def _load(path: Path, content: bytes, what: str) -> Plugin:
    """Run a plugin's content as a module, once; a file that was imported otherwise is left alone.

    The content is given, and not read again, so that nothing else is run than what was judged.
    """
    name, digest = f"ebbflow_plugin_{path.as_posix()}", sha256(content)
    if name in sys.modules:
        if sys.modules[name].__dict__.get(_DIGEST) != digest:
            raise EbbflowError(f"{what} was changed after it had been loaded: start Python again")
        return Plugin(str(path), digest)
    if _is_imported(path):
        return Plugin(str(path), digest)
    spec = spec_from_file_location(name, path)
    if spec is None:
        raise EbbflowError(f"{what} is no Python file: name one that ends with .py")
    module = module_from_spec(spec)
    vars(module)[_DIGEST] = digest
    sys.modules[name] = module
    try:
        exec(compile(content, path, "exec", dont_inherit=True), vars(module))
    except Exception as error:  # whatever a plugin raises, it is the plugin's
        del sys.modules[name]
        raise _broken(what, error) from error
    return Plugin(str(path), digest)


def _is_imported(path: Path) -> bool:
    """Whether the user's own code has imported a file under a name of its own."""
    modules = list(sys.modules.values())
    return any(getattr(module, "__dict__", {}).get("__file__") == str(path) for module in modules)


def _broken(what: str, error: Exception) -> PluginError:
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    details = "".join(traceback.format_exception(error))
    return PluginError(f"{what} cannot be loaded ({reason}): mend it, or leave it out", details)
