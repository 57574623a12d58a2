# SPDX-License-Identifier: Apache-2.0
"""Compatibility of schemas of any type: the reasons against a schema beside others, by a strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from broker_core.base.errors import IncompatibleSchemaError
from broker_core.schemas.avro.resolving import conflicts
from broker_core.schemas.avro.types import AvroType
from broker_core.schemas.definition import Definition, KeyValueDefinition, definition_of
from broker_core.schemas.info import SchemaInfo
from broker_core.schemas.strategies import Strategy

_REASONS_TOLD: Final = 3
_REASON_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """A version of a topic's schema. ``info`` None: a tombstone, behind which the schema begins anew. ``user``: the
    role that added it. ``added_ms``: since 1970."""

    version: int
    info: SchemaInfo | None
    user: str = ""
    added_ms: int = 0


LARGE_BYTES: Final = 16 * 1024
"""From here on a schema is large: its definition, some fifteen times as large, is made anew for each comparison, as
very many clients may wait with one at the same time."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A schema that is to be used with a topic. It is parsed when its definition is asked for, which may take long."""

    info: SchemaInfo

    @property
    def is_large(self) -> bool:
        """Whether its definition takes too much to be kept."""
        return len(self.info.data) > LARGE_BYTES

    @property
    def definition(self) -> Definition:
        """InvalidSchemaError: it is not valid."""
        return definition_of(self.info) if self.is_large else self._kept

    @cached_property
    def _kept(self) -> Definition:
        return definition_of(self.info)

    def check_beside(
        self,
        entries: Sequence[Entry],
        strategy: Strategy,
        parsed: Callable[[SchemaInfo], Definition] = definition_of,
    ) -> None:
        """IncompatibleSchemaError with the reasons of ``strategy`` against the schema beside these versions.
        ``parsed``: makes, or has, their definitions."""
        definition = self.definition
        for each in entries:
            if each.info is None:
                continue
            reasons = objections(parsed(each.info), definition, strategy)
            if reasons:
                raise IncompatibleSchemaError(
                    f"Incompatible schema: not compatible with version {each.version} by {strategy.name}: "
                    f"{_told(reasons)}"
                )


def _told(reasons: Sequence[str]) -> str:
    told = "; ".join(each[:_REASON_CHARACTERS_MAX] for each in reasons[:_REASONS_TOLD])
    return told if len(reasons) <= _REASONS_TOLD else f"{told}; and {len(reasons) - _REASONS_TOLD} more"


def objections(old: Definition, new: Definition, strategy: Strategy) -> list[str]:
    """Reasons of ``strategy`` against ``new`` where ``old`` is; none if they are compatible."""
    if strategy is Strategy.ALWAYS_COMPATIBLE:
        return []
    if strategy in (Strategy.ALWAYS_INCOMPATIBLE, Strategy.UNDEFINED):
        return ["no other schema is allowed"]
    if old.type is not new.type:
        return [f"exists schema type {old.type.name}, new schema type {new.type.name}"]
    if old.avro is not None and new.avro is not None:
        return _objections_of_avro(old.avro, new.avro, strategy)
    if old.parts is not None and new.parts is not None:
        return _objections_of_key_value(old.parts, new.parts, strategy)
    if old.message != new.message:
        return [f"Protobuf root message change is not allowed, it was {old.message} and is {new.message}"]
    return []


def _objections_of_avro(old: AvroType, new: AvroType, strategy: Strategy) -> list[str]:
    reasons = []
    if strategy.reads_older:
        reasons += [f"the new schema cannot read older data: {each}" for each in conflicts(old, new)]
    if strategy.is_read_by_older:
        reasons += [f"the older schema cannot read new data: {each}" for each in conflicts(new, old)]
    return reasons


def _objections_of_key_value(old: KeyValueDefinition, new: KeyValueDefinition, strategy: Strategy) -> list[str]:
    if (old.key.type, old.value.type) != (new.key.type, new.value.type):
        were, are = (f"{each.key.type.name} and {each.value.type.name}" for each in (old, new))
        return [f"Key schemas or Value schemas are different schema type, {were} before and {are} now"]
    if old.encoding != new.encoding:
        return [f"keys were {old.encoding}, and are {new.encoding}"]
    of_keys = objections(old.key, new.key, strategy)
    of_values = objections(old.value, new.value, strategy)
    return [f"key: {each}" for each in of_keys] + [f"value: {each}" for each in of_values]
