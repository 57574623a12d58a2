# SPDX-License-Identifier: Apache-2.0
"""Reads the broker's settings from where people put them, and remembers where each value came from.

    default  <  file (TOML)  <  environment (PULSARISH_<SNAKE_NAME>)  <  --set NAME=VALUE  <  an option of its own

``broker_core.base.settings`` declares names, types and bounds; nothing of that is repeated here. A name may be written
as in Pulsar (``maxMessageSize``) or in snake case. An unknown name is an error that names the nearest known one. The
environment is shared with other tools (container platforms invent ``PULSARISH_PORT`` by themselves), so an unknown
variable there is an error only if it is nearly one of ours.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, get_args

import msgspec

from broker_core.base.accepted_values import accepts, text_of
from broker_core.base.errors import ConfigError
from broker_core.base.secret import HIDDEN
from broker_core.base.settings import SECRET_SETTINGS, Settings
from broker_core.base.suggest import closest, did_you_mean

ENV_PREFIX: Final = "PULSARISH_"
_ENV_LIKENESS_MIN: Final = 0.85
ORIGIN_DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting, as documentation and error texts show it."""

    name: str  # Pulsar's, or ours in the same style
    field: str  # in code
    default: object
    accepts: str  # "an integer from 1024 to 268435456"
    description: str
    type: msgspec.inspect.Type

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.field.upper()


@dataclass(frozen=True, slots=True)
class Resolved:
    """A complete set of settings, and the origin of each by its name."""

    settings: Settings
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Given:
    """One value as somebody wrote it. ``text`` values come from the shell and are converted by the setting's type."""

    name: str
    value: object
    origin: str
    text: bool


@cache
def declared() -> dict[str, Setting]:
    """Every setting by its outside name, in the order of the declaration."""
    types = {field.encode_name: field for field in msgspec.inspect.type_info(Settings).fields}  # type: ignore[attr-defined]
    annotations = {field.encode_name: field.type for field in msgspec.structs.fields(Settings)}
    return {
        name: Setting(
            name=name,
            field=field.name,
            default=field.default,
            accepts=accepts(field.type),
            description=get_args(annotations[name])[-1],
            type=annotations[name],
        )
        for name, field in types.items()
    }


def resolve(
    *, file: Path | None, env: Mapping[str, str], assignments: Sequence[str], options: Mapping[str, str] | None = None
) -> Resolved:
    """The settings that these sources make together. ConfigError names the source of what is wrong.

    ``options`` holds settings that have a command-line option of their own, by outside name.
    """
    fields: dict[str, object] = {}
    origins = dict.fromkeys(declared(), ORIGIN_DEFAULT)
    sources: list[Iterable[_Given]] = [
        _from_environment(env),
        _from_assignments(assignments),
        (_Given(name, value, "command line", text=True) for name, value in (options or {}).items()),
    ]
    if file is not None:
        sources.insert(0, _from_file(file))
    for source in sources:
        for given in source:
            setting = declared()[given.name]
            fields[setting.field] = _convert(setting, given)
            origins[given.name] = given.origin
    return Resolved(Settings(**fields), origins)  # type: ignore[arg-type]


def _from_file(path: Path) -> Iterator[_Given]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f'configuration file "{path}" cannot be read: {error.strerror}', hint="check the path given to --config"
        ) from error
    except (ValueError, RecursionError) as error:  # also what is in it and not allowed of Python: endless digits
        raise ConfigError(
            f'configuration file "{path}" is not TOML: {error}',
            hint='write one NAME = VALUE on each line, a text in quotes: durability = "sync"',
        ) from error
    seen: dict[str, str] = {}
    for key, value in values.items():
        name = _known(key, f"file {path}")
        if name in seen:
            raise ConfigError(f'file {path} sets {name} twice, as "{seen[name]}" and "{key}"', hint="keep one of them")
        seen[name] = key
        yield _Given(name, value, f"file {path}", text=False)


def _from_environment(env: Mapping[str, str]) -> Iterator[_Given]:
    by_env = {setting.env: setting for setting in declared().values()}
    for variable in sorted(env):
        if setting := by_env.get(variable):
            yield _Given(setting.name, env[variable], f"environment {variable}", text=True)
        elif variable.startswith(ENV_PREFIX):
            meant = closest(variable, by_env, likeness_min=_ENV_LIKENESS_MIN)
            if meant:
                raise ConfigError(
                    f"environment variable {variable} is not a setting", hint=f"did you mean {meant}? unset it if not"
                )


def _from_assignments(assignments: Sequence[str]) -> Iterator[_Given]:
    for assignment in assignments:
        key, found, value = assignment.partition("=")
        if not found:
            raise ConfigError(f'--set "{assignment}" has no value', hint=f"write --set {key or 'NAME'}=VALUE")
        name = _known(key.strip(), "--set")
        if declared()[name].field in SECRET_SETTINGS and not value.strip().startswith("file:"):
            raise ConfigError(
                f"{name} is not taken from the command line, which every user of the machine can read",
                hint=f"write --set {name}=file:///path, or put the value into {declared()[name].env}",
            )
        yield _Given(name, value.strip(), "--set", text=True)


def _known(key: str, origin: str) -> str:
    settings = declared()
    if key in settings:
        return key
    for setting in settings.values():
        if key == setting.field:
            return setting.name
    hint = did_you_mean(key, settings, otherwise="see: pulsarish config show")
    raise ConfigError(f'setting "{key}" is unknown (from {origin})', hint=hint)


def _convert(setting: Setting, given: _Given) -> object:
    value = given.value
    if isinstance(value, str) and not _is_text(value):
        raise ConfigError(f"{setting.name} (from {given.origin}) is not UTF-8", hint="write it as text")
    if given.text and isinstance(value, str) and isinstance(setting.default, tuple):
        value = [each.strip() for each in value.split(",")]
    try:
        return msgspec.convert(value, setting.type, strict=not given.text)
    except msgspec.ValidationError as error:
        shown = HIDDEN if setting.field in SECRET_SETTINGS else text_of(given.value)
        raise ConfigError(
            f"{setting.name} = {shown} (from {given.origin}) is not valid: it takes {setting.accepts}",
            hint=f"the default is {text_of(setting.default)}",
        ) from error


def _is_text(value: str) -> bool:
    """Not if the shell handed over bytes that are none."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
