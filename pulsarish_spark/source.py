# SPDX-License-Identifier: Apache-2.0
"""The format ``pulsarish``: what Spark finds by name. It checks options early and hands over to readers and writers.

Reads are checked in ``schema()``, which runs at ``load()``; writes where the writer is made, before any task. Imports
nothing heavy, because Spark imports it in every process that looks for formats.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from broker_core.base.errors import ConfigError
from pulsarish_spark.plain_errors import plain_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsarish_spark.batch_reader import PulsarishBatchReader, PulsarishReplayReader
    from pulsarish_spark.rows.typed_values import TypedValues
    from pulsarish_spark.sink.writer import PulsarishBatchWriter, PulsarishStreamWriter
    from pulsarish_spark.stream_reader import PulsarishStreamReader

FORMAT = "pulsarish"

SPARK_MIN = (4, 2)
"""Spark's first version that gives ``latestOffset`` of a Python source where to begin and how far to go."""


class PulsarishSource(DataSource):
    """``spark.read``, ``readStream``, ``df.write`` and ``writeStream`` with ``.format("pulsarish")``."""

    _typed: TypedValues | None = None
    """The target schema as ``schema()`` found it. Spark takes this object to the readers, which have the same one."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @plain_errors
    def schema(self) -> StructType:
        from pulsarish_spark.options import Side, read_options, replay_file
        from pulsarish_spark.rows.schema import spark_schema

        if path := replay_file(dict(self.options)):
            from pulsarish_spark.replaying.export_file import open_export

            export = open_export(path)
            return spark_schema(export.columns, export.typed)
        options = read_options(dict(self.options), Side.READ, os.environ)
        if options.values.is_typed:
            from pulsarish_spark.typed.target_schema import with_typed_values

            self._typed = with_typed_values(options).typed
        return spark_schema(options.columns, self._typed)

    @plain_errors
    def reader(self, schema: StructType) -> PulsarishBatchReader | PulsarishReplayReader:
        from pulsarish_spark.batch_reader import PulsarishBatchReader, PulsarishReplayReader
        from pulsarish_spark.options import replay_file

        if path := replay_file(dict(self.options)):
            return PulsarishReplayReader(path, schema)
        return PulsarishBatchReader(dict(self.options), schema, self._typed)

    @plain_errors
    def streamReader(self, schema: StructType) -> PulsarishStreamReader:  # noqa: N802 - Spark's name
        _check_spark(pyspark.__version__)
        from pulsarish_spark.stream_reader import PulsarishStreamReader

        return PulsarishStreamReader(dict(self.options), schema, self._typed)

    @plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> PulsarishBatchWriter:
        from pulsarish_spark.options import Side, write_options
        from pulsarish_spark.sink.writer import PulsarishBatchWriter, schemas_of

        options = write_options(dict(self.options), Side.BATCH_WRITE, os.environ)
        if overwrite:
            raise ConfigError("a topic cannot be overwritten, only appended to", hint='use .mode("append")')
        return PulsarishBatchWriter(options, schemas_of(options, schema))

    @plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> PulsarishStreamWriter:  # noqa: N802 - Spark's name
        from pulsarish_spark.options import Side, write_options
        from pulsarish_spark.sink.writer import PulsarishStreamWriter, schemas_of

        options = write_options(dict(self.options), Side.STREAM_WRITE, os.environ)
        if overwrite:
            raise ConfigError(
                'outputMode("complete") replaces the whole result in every batch, which a topic cannot do',
                hint='use outputMode("append") with a watermark, or foreachBatch to write what changed',
            )
        return PulsarishStreamWriter(options, schemas_of(options, schema))


def register(spark: SparkSession) -> None:
    """Make the format known to ``spark`` and to this thread, where Spark does not discover it by itself.

    That is where discovery of ``pyspark_pulsarish`` does not work, and for a batch write in a thread that has not made
    the session: Spark looks for its format in the session that is active in the thread, and a new thread has none.
    """
    spark.dataSource.register(PulsarishSource)
    spark.createDataFrame([], "nothing int")  # The one public call by which a session becomes the thread's active one.


def _check_spark(version: str) -> None:
    """ConfigError if this Spark is too old for streams. Older ones ask for a last offset and tell no limits."""
    if tuple(map(int, version.split(".")[:2])) < SPARK_MIN:
        raise ConfigError(
            f"streams need Spark 4.2 or 4.3, this is {version}, which tells a Python source no limits",
            hint="pip install 'pyspark>=4.2,<4.4'",
        )
