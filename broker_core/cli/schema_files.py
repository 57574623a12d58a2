# SPDX-License-Identifier: Apache-2.0
"""Schemas in files: a definition alone, or an object with type, schema and properties as Pulsar's tools have it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from broker_core.base.errors import UsageError
from broker_core.schemas.info import SchemaInfo, SchemaType

R = TypeVar("R")

STDIN: Final = "-"

_TYPES: Final = {each.name.lower(): each for each in SchemaType if not (each.is_bytes or each.is_of_clients)}


def type_option(name: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """The option ``name``, which gives a command ``kind``."""
    return click.option(
        name,
        "kind",
        type=click.Choice(list(_TYPES)),
        help="Type of the schema that a definition in a file is. [default: what the file says, or that of the topic's "
        "schema, or avro]",
    )


def type_named(name: str | None) -> SchemaType | None:
    """The type that ``type_option`` was given; None for no type's name."""
    return None if name is None else _TYPES.get(name)


def schema_in_file(path: str, kind: SchemaType | None, latest: SchemaInfo | None) -> SchemaInfo:
    """The schema of a file, or of stdin; ``latest``: that of the topic, whose type is the default. UsageError if it
    cannot be read; InvalidSchemaError if it is none."""
    from broker_core.schemas.definition import definition_of

    text = _content(path)
    whole = _whole(text)
    if whole is not None and kind is not None and whole.type is not kind:
        raise UsageError(f'"{path}" is a schema of type {whole.type.name}, and not {kind.name}', hint="omit --type")
    default = SchemaType.AVRO if latest is None else latest.type
    info = whole or _bare(text, kind or default)
    definition_of(info)  # its errors are better told here than by a broker
    return info


def _content(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f'"{path}" cannot be read: {error.strerror}') from error


def _whole(text: bytes) -> SchemaInfo | None:
    """The schema of an object that says its type in capitals, which no definition does."""
    from broker_core.schemas.rest_forms import from_rest

    try:
        row: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    row = row.get("schemaInfo", row) if isinstance(row, dict) else None  # as pulsar-admin prints it
    if not isinstance(row, dict) or row.get("type") not in SchemaType.__members__:
        return None
    return from_rest(row["type"], row.get("schema", ""), row.get("properties"))


def _bare(text: bytes, kind: SchemaType) -> SchemaInfo:
    if kind is SchemaType.KEY_VALUE:
        raise UsageError(
            "a KEY_VALUE schema needs the types of its two definitions",
            hint='write {"type": "KEY_VALUE", "schema": {"key": ..., "value": ...}, "properties": {"key.schema.type": '
            '"AVRO", "value.schema.type": "AVRO", "kv.encoding.type": "SEPARATED"}}',
        )
    return SchemaInfo(kind, b"" if kind.is_primitive else text.strip())
