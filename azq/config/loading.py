"""All settings of a process, gathered from where humans write them, and the TOML that azq writes for them."""

from __future__ import annotations

import json
import logging
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, DotEnvSettingsSource, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from azq.config.base import Section, explain
from azq.config.host import HostSections
from azq.config.run import OF_ONE_KIND, RunSections
from azq.errors import ConfigError


class Config(BaseSettings, RunSections, HostSections):
    """All settings of one azq process: the host's sections, then the run's, which is the order that pydantic takes from these bases."""

    model_config = SettingsConfigDict(env_prefix="AZQ_", env_nested_delimiter="__", extra="forbid", frozen=True)

    def run_sections(self) -> RunSections:
        """The part of the settings that travels with a run."""
        return RunSections(**{name: getattr(self, name) for name in RunSections.model_fields})


APART = "AZQ_APART"  # in the environment of a rehearsal's processes: what is live on this host does not reach them
DESCRIBES_A_RUN = (*RunSections.model_fields, "worker", "inference")  # what a rehearsal takes of a file: no address, no secret


def load(path: Path | None = None, overrides: Iterable[str] = (), base: Mapping[str, Any] | None = None) -> Config:
    """Settings from a TOML file, a service's credentials, the environment and `section.key=value` overrides, in that order.

    `base` holds values below the file's (a preset, a stored run). Without `path`, `azq.toml` is read where it exists. In a rehearsal
    (`AZQ_APART`) neither that one nor credentials are read, and of a file that is named only what describes a run.
    Raises `ConfigError` naming the key, the source and the remedy.
    """
    apart = APART in os.environ
    file = path or Path("azq.toml")
    document: dict[str, Any] = {}
    if file.is_file() and not (apart and path is None):
        document = read_toml(file)
        if apart:
            document = {name: document[name] for name in DESCRIBES_A_RUN if name in document}
    elif path is not None:
        raise ConfigError(f"no configuration file at {path}; create it or drop --config")
    if strays := [name for name in os.environ if names_no_section(name)]:
        raise ConfigError(f"environment variable {min(strays)} names no section; there are: {', '.join(Config.model_fields)}")
    credentials = DotEnvSettingsSource(Config, env_file=None if apart else _credentials())
    written = (document, credentials(), EnvSettingsSource(Config)(), parse_overrides(overrides))
    config = _checked((base or {}, *written), file)
    if gone := sorted({name for layer in written for name in _retired(layer)}):
        logging.getLogger(__name__).warning("settings of earlier versions, without effect: %s; leave them out", ", ".join(gone))
    return config


def _retired(layer: Mapping[str, Any]) -> Iterator[str]:
    """Settings of earlier versions in what a human wrote; a run that azq wrote names them all, and goes on."""
    for section, values in layer.items():
        kind = Config.model_fields[section].annotation
        if isinstance(values, Mapping) and isinstance(kind, type) and issubclass(kind, Section):
            yield from (f"{section}.{name}" for name in values if name in kind.retired)


def given(overrides: Iterable[str] = (), base: Mapping[str, Any] | None = None) -> Config:
    """Settings from `base` and these overrides alone, whatever file, credentials and environment say; raises as `load`."""
    return _checked((base or {}, parse_overrides(overrides)), "preset")


def _checked(layers: Sequence[Mapping[str, Any]], source: object) -> Config:
    """Settings from layers, the last one's over those before."""

    class Layered(Config):
        """What is handed over, and nothing that pydantic would look for itself."""

        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (init_settings,)

    nothing: dict[str, Any] = {}
    try:
        return Layered(**reduce(merge, layers, nothing))
    except ValidationError as error:
        raise ConfigError(explain(error, source)) from None


def forget_environment() -> None:
    """Takes settings, secrets among them, out of this process's environment: for one that has read them and runs code of others."""
    for variable in tuple(os.environ):
        if section_of(variable) in Config.model_fields:
            del os.environ[variable]


def names_no_section(variable: str) -> bool:
    """Whether an environment variable has the form of a setting, `AZQ_SECTION__KEY`, and no such section: a typo that would go unseen."""
    section = section_of(variable)
    return section is not None and section not in Config.model_fields and "__" in variable[len("AZQ_") :]


def section_of(variable: str) -> str | None:
    """The section, or the setting beside them, that an environment variable names if it is azq's; None for any other."""
    name = variable.upper().removeprefix("AZQ_")
    return name.partition("__")[0].lower() if name != variable.upper() else None


def _credentials() -> Path | None:
    """`AZQ_` lines that systemd handed to this service with LoadCredential=azq.env."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    file = Path(folder) / "azq.env" if folder else None
    return file if file is not None and file.is_file() else None


def read_toml(path: Path) -> dict[str, Any]:
    """A file's values; `ConfigError` where it cannot be read."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path} is not readable TOML: {error}; mend the file") from None


def parse_params(texts: Iterable[str]) -> dict[str, Any]:
    """`size=6` and the like as a game's parameters; raises `ConfigError` for what has no '='."""
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--param {text!r} is not of the form key=value")
        values[key.strip()] = _parse_value(value.strip())
    return values


def parse_overrides(overrides: Iterable[str]) -> dict[str, Any]:
    """`search.num_simulations=32` and the like as nested values; raises `ConfigError` for what is not of that form."""
    changes: dict[str, Any] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise ConfigError(f"--set {text!r} is not of the form section.key=value")
        nested: Any = _parse_value(value.strip())
        for part in reversed(parts):
            nested = {part: nested}
        changes = merge(changes, nested)
    return changes


def _parse_value(text: str) -> Any:
    """A value of TOML, Python's True and False, or the text itself; raises `ConfigError` for None, which neither means."""
    if text == "None":
        raise ConfigError("None is no value; leave the key out for its default")
    try:
        return tomllib.loads(f"value = {text.lower() if text in ('True', 'False') else text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values, those of `high` over those of `low`, of which a network of another kind takes over only what any kind has."""
    other = "kind" in high and "kind" in low and high["kind"] != low["kind"]
    merged = {key: value for key, value in low.items() if not (other and key in OF_ONE_KIND)}
    for key, value in high.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values by their dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def to_toml(values: Mapping[str, Any]) -> str:
    """TOML of plain nested values; tables in lists are written inline."""
    tables: list[str] = []
    _write_table((), values, tables)
    return "\n".join(tables)


def _write_table(path: tuple[str, ...], values: Mapping[str, Any], tables: list[str]) -> None:
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    if plain or (path and not values):
        header = [f"[{'.'.join(path)}]"] if path else []
        tables.append("\n".join([*header, *(f"{key} = {toml_value(value)}" for key, value in plain.items()), ""]))
    for key, value in values.items():
        if isinstance(value, Mapping):
            _write_table((*path, key), value, tables)


def toml_value(value: Any) -> str:
    """A value as TOML writes it, on one line."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)  # numbers, booleans and strings are written alike in JSON and TOML
