# SPDX-License-Identifier: Apache-2.0
"""``CheckedSettings``: a set of declared settings that is valid once it is made.

Each field declares its type, bounds, default and meaning, as the broker's settings do (``base.settings``); a value that
the declaration does not accept is a ConfigError that names the setting and what it accepts. Fields of other types than
numbers, truth values, texts and dicts of texts (policies, listeners) check themselves. A number of another kind of
Python, such as numpy's, counts as one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Annotated, Any, Literal, Self, get_args, get_origin, get_type_hints

import msgspec

from broker_core.base.accepted_values import accepts
from broker_core.base.errors import ConfigError
from broker_core.base.suggest import did_you_mean

_name_in = re.compile(r"`\$\.(\w+)").search
_PLAIN = (bool, int, float, str, type(None))
_declaring = threading.Lock()
_declarations: dict[type[CheckedSettings], Any] = {}


class CheckedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all sets of settings."""

    def __post_init__(self) -> None:
        checked = _checked_fields(type(self))
        values = {name: _plain(getattr(self, name)) for name in checked.__struct_fields__}
        try:
            msgspec.convert(values, checked)
        except msgspec.ValidationError as error:
            found = _name_in(str(error))
            raise _refusal(self, found.group(1) if found else "") from error
        for name, value in values.items():
            if not _is_utf8(value):
                raise ConfigError(f"{name} {value!r} is not possible", hint="use what UTF-8 can express")

    @classmethod
    def of(cls, options: Mapping[str, object]) -> Self:
        """Settings from keyword arguments; ConfigError for a name that is no setting."""
        for name in options:
            if name not in cls.__struct_fields__:
                known = ", ".join(cls.__struct_fields__)
                hint = did_you_mean(name, cls.__struct_fields__, otherwise=f"there are {known}")
                raise ConfigError(f'setting "{name}" is unknown', hint=hint)
        return cls(**options)


def _checked_fields(settings: type[CheckedSettings]) -> Any:
    """The declaration of those fields that msgspec checks, as a struct of its own.

    One thread at a time makes it ready: msgspec shows what it knows of a struct to other threads before it is complete,
    and a thread that uses that ends the process. What is ready takes no lock, which a fork could find held for ever.
    """
    if (ready := _declarations.get(settings)) is not None:
        return ready
    with _declaring:
        return _declarations.get(settings) or _declarations.setdefault(settings, _declared(settings))


def _declared(settings: type[CheckedSettings]) -> Any:
    hints = get_type_hints(settings, include_extras=True)
    fields = [(name, hints[name]) for name in settings.__struct_fields__ if _is_plain(hints[name])]
    checked = msgspec.defstruct(settings.__name__, fields)
    msgspec.json.Decoder(checked)  # All that msgspec learns at the first use of a struct it learns here.
    return checked


def _is_plain(hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_plain(get_args(hint)[0])
    return hint in _PLAIN or origin is Literal or (origin is not None and all(map(_is_plain, get_args(hint))))


def _plain(value: object) -> object:
    """``value`` as a number of Python's own, if it is a number of another kind."""
    if isinstance(value, _PLAIN) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _is_utf8(value: object) -> bool:
    texts = (*value, *value.values()) if isinstance(value, Mapping) else (value,)
    try:
        "".join(each for each in texts if isinstance(each, str)).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refusal(settings: CheckedSettings, name: str) -> ConfigError:
    kinds = {field.name: field.type for field in msgspec.inspect.type_info(_checked_fields(type(settings))).fields}  # type: ignore[attr-defined]
    return ConfigError(f"{name} {getattr(settings, name)!r} is not possible", hint=f"use {accepts(kinds[name])}")
