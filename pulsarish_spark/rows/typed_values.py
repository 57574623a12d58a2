# SPDX-License-Identifier: Apache-2.0
"""Typed values: the schema that a read decodes values by, the columns that they become, and what becomes of those that
cannot be decoded. It travels to the executors. Knows no clients; how rows are decoded is in ``typed``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from broker_core.schemas.info import SchemaInfo, SchemaType

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.values.decoder import ValueDecoder

OnBadRecord = Literal["fail", "null", "skip", "dead-letter"]
SchemalessAs = Literal["schema", "null", "bad"]

VALUE: Final = "value"
KEY: Final = "key"

_OF_ERRORS: Final = frozenset(("schema_version", "ledger", "entry", "batch_index"))
_OF_LETTERS: Final = frozenset(("key", "key_is_bytes", "ordering_key", "event_time", "properties"))


@dataclass(frozen=True, slots=True)
class ValueRules:
    """The rules that options say. ``dead_letter_topic``: of ``dead-letter``, else empty."""

    recursive_depth: int = 0
    schemaless_as: SchemalessAs = "schema"
    on_bad_record: OnBadRecord = "fail"
    flatten: bool = False
    dead_letter_topic: str = ""
    subscription: str = ""


@dataclass(frozen=True, slots=True)
class TypedValues:
    """``schema``: the one that all values are read by, of whatever version they are. ``version``: its number in the
    topic, None for a schema of the user's."""

    schema: SchemaInfo
    version: int | None = None
    rules: ValueRules = ValueRules()

    @property
    def has_keys(self) -> bool:
        """Whether the schema says what keys are, too."""
        return self.schema.type is SchemaType.KEY_VALUE

    def decoder(self) -> ValueDecoder:
        """A decoder into the columns, which knows no version yet. PulsarishError where there can be none."""
        from broker_core.values.decoder import ValueDecoder

        return ValueDecoder(self.schema, recursive_depth=self.rules.recursive_depth)

    def columns(self) -> dict[str, list[pa.Field]]:
        """The columns that stand in place of ``value`` and, of KEY_VALUE, of ``key``. PulsarishError where there can be
        none."""
        import pyarrow as pa

        found = self.decoder().arrow
        key, value = (found.field(KEY).type, found.field(VALUE).type) if self.has_keys else (None, found)
        is_lifted = self.rules.flatten and pa.types.is_struct(value)
        columns = {VALUE: list(value) if is_lifted else [pa.field(VALUE, value)]}
        return columns if key is None else columns | {KEY: [pa.field(KEY, key)]}

    def decoded(self, names: tuple[str, ...]) -> set[str]:
        """The columns that the decoder of entries must give, if these columns are to be made."""
        if VALUE not in names and not (self.has_keys and KEY in names):
            return set()
        letters = _OF_LETTERS if self.rules.dead_letter_topic else set[str]()
        return {VALUE, *_OF_ERRORS, *letters, *((KEY,) if self.has_keys else ())}
