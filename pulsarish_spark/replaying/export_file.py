# SPDX-License-Identifier: Apache-2.0
"""The file of an exported batch: a Parquet file whose metadata say what it holds, written whole or not at all.

Under ``pulsarish.export`` it has a JSON document, which docs/losses.md explains. Any reader of Parquet can read the
rows. Knows nothing of brokers and checkpoints.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from broker_core.base.errors import PulsarishError, UsageError
from broker_core.base.runtime import scheme_of
from broker_core.schemas.info import SchemaInfo, SchemaType
from pulsarish_spark.rows.schema import KNOWN_COLUMNS, TopicColumns
from pulsarish_spark.rows.typed_values import TypedValues, ValueRules
from pulsarish_spark.whole_file import whole_file

FORM: Final = 1
_WORD: Final = "pulsarish.export"
_TYPED: Final = "values"

_UNREADABLE: Final = (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""Errors of pyarrow for a file that is not there, or damaged, wherever in it."""

BATCH_ROWS: Final = 16_384
"""Rows of one Arrow batch of a replay at most, as of a read."""


@dataclass(frozen=True, slots=True)
class ExportFile:
    """A file that was read as far as its metadata. ``said``: its document; ``group_rows``: rows of each row group.

    ``typed``: the schema that values were decoded by; None where they are bytes.
    """

    path: str
    columns: tuple[str, ...]
    said: Mapping[str, Any]
    group_rows: tuple[int, ...]
    typed: TypedValues | None = None

    @property
    def arrow_schema(self) -> pa.Schema:
        """The types of the source."""
        return TopicColumns(self.columns, typed=self.typed).arrow_schema()

    def batches(self, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """The rows of some row groups, with the types of the source; UsageError where the file is damaged."""
        schema = self.arrow_schema
        for batch in self._read(groups):
            yield batch.cast(schema)

    def _read(self, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """One group after the other: batches over several would have many rows of groups that are small since their
        rows are large."""
        try:
            with pq.ParquetFile(self.path, page_checksum_verification=True) as file:
                for group in groups:
                    rows = 0
                    for batch in file.iter_batches(BATCH_ROWS, row_groups=[group]):
                        rows += batch.num_rows
                        yield batch
                    if rows != self.group_rows[group]:  # The headers of pages have no checksums.
                        raise _damaged(self.path, f"it has {rows} of {self.group_rows[group]} rows")
        except _UNREADABLE as error:
            raise _damaged(self.path, str(error)) from error


def _damaged(path: str, why: str) -> UsageError:
    return UsageError(
        f"{path} cannot be read: {' '.join(why.split())}", hint="it is damaged, or was replaced; export the batch again"
    )


def local_path(path: str | os.PathLike[str]) -> str:
    """``path``, which a user has given; UsageError for a URL, under which there is no file of this machine."""
    text = os.fspath(path).removeprefix("file://")
    if scheme_of(text):
        raise UsageError(
            f"{os.fspath(path)} is a URL, and files are read and written on this machine alone",
            hint="copy it, or mount what it lies in, and give the path here",
        )
    return os.path.expanduser(text)


def write_export(
    path: str | os.PathLike[str],
    columns: TopicColumns,
    batches: Iterable[pa.RecordBatch],
    said: Callable[[], Mapping[str, Any]],
) -> int:
    """Write ``batches`` to a new file; returns the number of rows. ``said``: what else the document has, asked last.

    UsageError if there is a file already, or it cannot be written. Where an iteration fails nothing stays.
    """
    target = Path(path)
    _check_new(target)
    rows = 0
    schema = columns.arrow_schema()
    try:
        with whole_file(target) as new:
            with pq.ParquetWriter(new, schema, compression="zstd", write_page_checksum=True) as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    rows += batch.num_rows
                typed = {} if columns.typed is None else {_TYPED: _document(columns.typed)}
                document = {"form": FORM, "columns": list(columns.names), "rows": rows, **typed, **said()}
                writer.add_key_value_metadata({_WORD: json.dumps(document)})
            _check_new(target)  # Again: another export may have been quicker.
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror or error}", hint="give another path") from error
    except pa.ArrowNotImplementedError as error:  # Of records without fields.
        hint = "leave that column out, or export bytes: valueFormat=raw"
        raise UsageError(f"{target} cannot be written: {error}", hint=hint) from error
    return rows


def _check_new(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} is there already", hint="what it holds may be all that is left; give another name")


def open_export(path: str | os.PathLike[str]) -> ExportFile:
    """The file at ``path``; UsageError if it is none, or one of a newer version."""
    path = local_path(path)
    try:
        metadata = pq.read_metadata(path)
        names = metadata.schema.to_arrow_schema().names
    except _UNREADABLE as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it is no Parquet file"
        raise UsageError(
            f"{path} cannot be replayed: {reason}",
            hint="give a file of pulsarish_spark.export_batch, under a path that driver and executors share",
        ) from error
    said = _said(metadata)
    if said.get("form") != FORM or not {*said.get("columns", ["none"])} <= {*KNOWN_COLUMNS}:
        raise UsageError(
            f"{path} cannot be replayed: it was not exported, or by a newer version",
            hint="give a file of pulsarish_spark.export_batch; spark.read.parquet reads the rows of any",
        )
    try:
        typed = _typed(said[_TYPED]) if _TYPED in said else None
        file = ExportFile(path, tuple(said["columns"]), said, _group_rows(metadata), typed)
        expected = file.arrow_schema.names
    except (KeyError, TypeError, AttributeError, binascii.Error, PulsarishError) as error:
        raise _damaged(path, f"its schema of values cannot be read: {error}") from error
    if sum(file.group_rows) != said.get("rows") or names != expected:
        raise _damaged(path, "its parts contradict each other")
    return file


def _group_rows(metadata: pq.FileMetaData) -> tuple[int, ...]:
    return tuple(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))


def _document(typed: TypedValues) -> dict[str, Any]:
    return {
        "type": typed.schema.type.name,
        "data": base64.b64encode(typed.schema.data).decode(),
        "properties": dict(typed.schema.properties),
        "version": typed.version,
        "recursiveDepth": typed.rules.recursive_depth,
        "flattenValue": typed.rules.flatten,
    }


def _typed(said: Mapping[str, Any]) -> TypedValues:
    schema = SchemaInfo(SchemaType[said["type"]], base64.b64decode(said["data"]), dict(said["properties"]))
    rules = ValueRules(recursive_depth=int(said["recursiveDepth"]), flatten=bool(said["flattenValue"]))
    return TypedValues(schema, said["version"], rules)


def replay(path: str | os.PathLike[str]) -> pa.RecordBatchReader:
    """The rows of a file of ``export_batch`` on this machine, partition by partition in their order, without Spark.

    Batches are read while they are taken. Raises UsageError if the file is not there, or is none, and for a URL.
    """
    file = open_export(path)
    return pa.RecordBatchReader.from_batches(file.arrow_schema, file.batches(range(len(file.group_rows))))


def _said(metadata: pq.FileMetaData) -> Mapping[str, Any]:
    """Its document; empty if it has none that can be read."""
    try:
        found = json.loads((metadata.metadata or {}).get(_WORD.encode(), b"{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
