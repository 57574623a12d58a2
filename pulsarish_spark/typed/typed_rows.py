# SPDX-License-Identifier: Apache-2.0
"""From decoded messages to the columns of a source whose values have a schema: the seam between the decoder of entries
and the maker of columns.

Each message is decoded by the version that it was written with; a version is fetched when its first message comes, and
never again in a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.base.errors import PulsarishError
from broker_core.base.names import TopicName
from broker_core.values.decoding import Flaw
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.rows.columns import ColumnMaker
from pulsarish_spark.rows.schema import BAD_RECORD_COLUMN, TopicColumns
from pulsarish_spark.rows.typed_values import KEY, VALUE, TypedValues
from pulsarish_spark.typed.bad_records import BadRecords

if TYPE_CHECKING:
    from broker_core.client import Client

UNREADABLE_MAX: Final = 1000
"""Versions that the topic does not have, or the query cannot read, of which the broker is asked: each costs a round
trip, and anybody may write messages that name others. Then only numbers up to the newest version are asked for."""

_NO_VERSION: Final = "the message has no schema version, and schemalessAs is bad"


class TypedRowMaker:
    """Makes batches for one topic partition whose values have a schema."""

    def __init__(
        self, client: Client, key: TopicPartition, name: str, columns: TopicColumns, typed: TypedValues
    ) -> None:
        self._client = client
        self._topic = key.topic
        self._typed = typed
        self._schema = columns.arrow_schema()
        self._decoder = typed.decoder()
        self._unreadable: dict[int, str] = {}
        self._names = columns.names
        partitioned = name != key.topic
        self._own = tuple(each for each in columns.names if each != VALUE and not (typed.has_keys and each == KEY))
        self._others = ColumnMaker(key, TopicColumns(self._own, columns.shown_topic), partitioned=partitioned)
        named = TopicName.parse(key.topic).partition_index
        self._bad = BadRecords(client, name, key.partition if partitioned else named, typed.rules)

    def make(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns for decoded ``rows``, without those that are no rows because they are bad records."""
        values, flaws = self._decoded(rows)
        if flaws and (kept := self._bad.kept(rows, flaws)) is not None:
            rows, values = rows.filter(kept), values.filter(kept)
        elif flaws and BAD_RECORD_COLUMN in self._own:
            rows = rows.append_column(BAD_RECORD_COLUMN, _reasons(rows.num_rows, flaws))
        made = dict(zip(self._own, self._others.make(rows).columns, strict=True))
        typed = self._columns(values)
        arrays = [array for name in self._names for array in (typed[name] if name in typed else [made[name]])]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _columns(self, values: pa.Array) -> dict[str, list[pa.Array]]:
        """The columns that stand in place of value and key."""
        if not self._typed.has_keys:
            return {VALUE: self._lifted(values)}
        key, value = values.flatten()
        return {KEY: [key], VALUE: self._lifted(value)}

    def _lifted(self, values: pa.Array) -> list[pa.Array]:
        is_lifted = self._typed.rules.flatten and pa.types.is_struct(values.type)
        return values.flatten() if is_lifted else [values]

    def _decoded(self, rows: pa.RecordBatch) -> tuple[pa.Array, list[Flaw]]:
        values, versions = rows.column(VALUE), rows.column("schema_version")
        schemaless = self._typed.rules.schemaless_as
        without: dict[int, Flaw] = {}
        if versions.null_count and schemaless != "schema":
            if schemaless == "bad":
                has_none = pc.and_(versions.is_null(), values.is_valid())
                without = {row: Flaw(row, _NO_VERSION) for row in pc.indices_nonzero(has_none).to_pylist()}
            values = pc.if_else(versions.is_null(), None, values)
        self._learn(versions)
        keys = rows.column(KEY) if self._typed.has_keys else None
        found = self._decoder.decode(values, versions, keys)
        flaws = [self._explained(flaw, versions) for flaw in found.flaws] if self._unreadable else found.flaws
        if schemaless == "null":  # A key without a version is nothing to fail on either.
            flaws = [flaw for flaw in flaws if versions[flaw.row].is_valid]
        return found.rows, sorted([*without.values(), *(each for each in flaws if each.row not in without)])

    def _learn(self, versions: pa.Array) -> None:
        """Tell the decoder of the versions that it does not know yet."""
        for version in versions.unique().drop_null().to_pylist():
            is_new = not self._decoder.knows(version) and version not in self._unreadable
            if is_new and (len(self._unreadable) < UNREADABLE_MAX or 0 <= version <= self._newest):
                self._fetch(version)

    @cached_property
    def _newest(self) -> int:
        """The number of the topic's newest version; -1 without one. No message of a task names a later one."""
        found = self._client.get_schema(self._topic)
        return -1 if found is None else found.version

    def _fetch(self, version: int) -> None:
        # Asked for anew: this process may know the version from before the topic was deleted and made anew.
        writer = self._client.get_schema(self._topic, version, anew=True)
        if writer is None:
            self._unreadable[version] = f"the topic has no version {version} of its schema"
            return
        try:
            self._decoder.add(version, writer.info)
        except PulsarishError as error:
            self._unreadable[version] = f"values of version {version} cannot be read by the query's schema: {error}"

    def _explained(self, flaw: Flaw, versions: pa.Array) -> Flaw:
        return Flaw(flaw.row, self._unreadable.get(versions[flaw.row].as_py(), flaw.reason))


def _reasons(count: int, flaws: Sequence[Flaw]) -> pa.Array:
    """The column of reasons."""
    reasons: list[str | None] = [None] * count
    for flaw in flaws:
        reasons[flaw.row] = flaw.reason
    return pa.array(reasons, pa.string())
