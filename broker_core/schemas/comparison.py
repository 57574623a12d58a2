# SPDX-License-Identifier: Apache-2.0
"""Comparison: two schemas of any type, field by field, and which of the two reads data of the other.

``compatibility`` has the verdict by a strategy; this tells people before they ask for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from broker_core.schemas.avro.described import Column, Difference, columns, differences, pitfalls
from broker_core.schemas.avro.resolving import Conflict, conflicts
from broker_core.schemas.compatibility import objections
from broker_core.schemas.definition import Definition
from broker_core.schemas.info import SchemaType
from broker_core.schemas.protobuf_fields import message_fields
from broker_core.schemas.protobuf_native import root_descriptor
from broker_core.schemas.strategies import Strategy


@dataclass(frozen=True, slots=True)
class ComparedField:
    """A field that differs, with its type in either schema. ``path``: "" for the schema as a whole. ``reasons`` are
    against reading; or where it can be read, why values may be missing or others."""

    path: str
    old: str | None
    new: str | None
    new_reads_old: bool
    old_reads_new: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A schema beside one that comes after it."""

    fields: Sequence[ComparedField]

    @property
    def new_reads_old(self) -> bool:
        """Whether a reader with the new schema can read data of the old one."""
        return all(each.new_reads_old for each in self.fields)

    @property
    def old_reads_new(self) -> bool:
        """Whether a reader with the old schema can read data of the new one."""
        return all(each.old_reads_new for each in self.fields)


def compared(old: Definition, new: Definition) -> Comparison:
    """The comparison of a schema with one that comes after it."""
    return Comparison(tuple(_compared(old, new)))


def told_columns(definition: Definition) -> list[Column]:
    """The fields of a schema; of one without fields its type, under an empty path."""
    if definition.avro is not None:
        return columns(definition.avro)
    if definition.parts is not None:
        parts = {"key": definition.parts.key, "value": definition.parts.value}
        return [
            each._replace(path=_under(name, each.path)) for name, part in parts.items() for each in told_columns(part)
        ]
    if definition.message:
        fields = message_fields(root_descriptor(definition.data))
        return [Column(each.path, f"{each.type} = {each.number[-1]}", None) for each in fields]
    return [Column("", type_in_words(definition), None)]


def type_in_words(definition: Definition) -> str:
    """The type of a schema, with its name or the types of its parts."""
    words = definition.type.name
    if definition.parts is not None:
        key, value = type_in_words(definition.parts.key), type_in_words(definition.parts.value)
        return f"{words} ({key} and {value}, {definition.parts.encoding})"
    return f"{words} {definition.message}" if definition.message else words


def _compared(old: Definition, new: Definition) -> Iterable[ComparedField]:
    if old.parts is not None and new.parts is not None and _have_same_types(old, new):
        for name, was, part in (("key", old.parts.key, new.parts.key), ("value", old.parts.value, new.parts.value)):
            yield from (replace(each, path=_under(name, each.path)) for each in _compared(was, part))
    elif old.avro is not None and new.avro is not None and old.type is new.type:
        yield from _compared_avro(old, new)
    elif old.message and old.message == new.message:
        yield from _compared_messages(old, new)
    elif (old.type, old.message) != (new.type, new.message) or old.type is SchemaType.KEY_VALUE:
        reasons = tuple(objections(old, new, Strategy.FULL))
        yield ComparedField("", type_in_words(old), type_in_words(new), False, False, reasons)


def _have_same_types(old: Definition, new: Definition) -> bool:
    return type_in_words(old) == type_in_words(new)


def _compared_avro(old: Definition, new: Definition) -> Iterable[ComparedField]:
    assert old.avro is not None
    assert new.avro is not None
    found = {each.path: each for each in differences(old.avro, new.avro)}
    of_new, of_old = conflicts(old.avro, new.avro), conflicts(new.avro, old.avro)
    reasons = [
        *_told("the new schema cannot read older data", of_new),
        *_told("the older schema cannot read new data", of_old),
        *_told("readers with the new schema", pitfalls(old.avro, new.avro)),
        *_told("readers with the older schema", pitfalls(new.avro, old.avro)),
    ]
    for path in dict.fromkeys([*found, *(each.path for each in reasons)]):
        was, words = found.get(path, Difference(path, None, None))[1:]
        new_reads, old_reads = (all(each.path != path for each in against) for against in (of_new, of_old))
        told = tuple(each.reason for each in reasons if each.path == path)
        yield ComparedField(path, was, words, new_reads, old_reads, told)


def _compared_messages(old: Definition, new: Definition) -> Iterable[ComparedField]:
    """Fields by their numbers. A broker takes any change of them, and so does whoever reads."""
    before, after = ({each.number: each for each in message_fields(root_descriptor(of.data))} for of in (old, new))
    for number in dict.fromkeys([*after, *before]):
        was, field = before.get(number), after.get(number)
        words = [each and f"{each.type} {each.path.rpartition('.')[2]} = {number[-1]}" for each in (was, field)]
        if words[0] != words[1]:
            path = (field or was or after[number]).path
            is_other = was is not None and field is not None and was.type != field.type
            reasons = ("data of the other type may be read as another value, or not at all",) if is_other else ()
            yield ComparedField(path, words[0], words[1], True, True, reasons)


def _told(what: str, conflicts_of: list[Conflict]) -> list[Conflict]:
    return [Conflict(each.path, f"{what}: {each.reason}") for each in conflicts_of]


def _under(part: str, path: str) -> str:
    return f"{part}.{path}" if path else part
