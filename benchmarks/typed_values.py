# SPDX-License-Identifier: Apache-2.0
"""Values to columns on one core, beside Spark's from_avro and from_json.

    python -m benchmarks.typed_values [--quick]

A record has ten flat fields: 86 bytes in Avro, 212 in JSON. Ours is the decoder alone, in batches of 10,000 rows; Spark
reads the same bytes from its cache with one task into the noop sink, and what that costs without the function is taken
off. Rows a second of CPU, of all processes, in the same run.
"""

from __future__ import annotations

import io
import json
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import report
from benchmarks.compare import Sample, Side, in_turn
from benchmarks.kafka.recipe import PeerUnavailableError, resolve
from benchmarks.measure import CpuMeter, Figure, timed
from benchmarks.parts import quick_wanted
from benchmarks.spark_cases import new_session
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.values.decoder import ValueDecoder

_BATCH: Final = 10_000
_TIMES: Final = 4
"""Rounds over all rows, as CPU seconds are counted in hundredths."""
_POM: Final = Path(__file__).parent / "avro" / "pom.xml"
_FIELDS: Final[dict[str, Any]] = {
    "id": "long",
    "user": "string",
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "amount": "double",
    "city": ["null", "string"],
    "count": "int",
    "ok": "boolean",
    "score": ["null", "double"],
    "note": "string",
    "ratio": "float",
}
_SCHEMA: Final = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in _FIELDS.items()]}
)
# In JSON the time is a number of milliseconds, which from_json would take for seconds.
_COLUMNS: Final = (
    "id long, user string, at long, amount double, city string, count int, ok boolean, score double, note string, "
    "ratio float"
)


class _Format(NamedTuple):
    """Payloads of one format, and what Spark has for them."""

    kind: SchemaType
    payloads: pa.Array
    function: Callable[[Any], Any]


def run(*, quick: bool) -> list[Figure]:
    """Both formats; Avro without Spark's function where its jar cannot be had."""
    import fastavro
    from pyspark.sql import functions
    from pyspark.sql.avro.functions import from_avro

    rows, runs = (20_000, 1) if quick else (500_000, 5)
    records = _records(rows)
    schema = fastavro.parse_schema(json.loads(_SCHEMA))
    avro = pa.array([_as_avro(fastavro.schemaless_writer, schema, each) for each in records], pa.binary())
    text = pa.array([json.dumps(each).encode() for each in records], pa.binary())
    try:
        jars = sorted(resolve(_POM, "spark-avro-4.2.0").glob("*.jar"))
    except PeerUnavailableError as missing:
        sys.stderr.write(f"from_avro is left out: {missing}\n")
        jars = []
    session = new_session(jars)
    formats = (
        _Format(SchemaType.AVRO, avro, lambda value: from_avro(value, _SCHEMA)),
        _Format(SchemaType.JSON, text, lambda value: functions.from_json(value.cast("string"), _COLUMNS)),
    )
    figures: list[Figure] = []
    try:
        with tempfile.TemporaryDirectory() as scratch:
            for each in formats:
                has_function = bool(jars) or each.kind is SchemaType.JSON
                figures += _measure(session, Path(scratch), each, runs, with_spark=has_function)
    finally:
        session.stop()
    return figures


def _measure(session: Any, scratch: Path, format_: _Format, runs: int, *, with_spark: bool) -> list[Figure]:
    rows = len(format_.payloads)
    sides: dict[str, Side] = {"pulsarish": partial(_decode, _decoder(format_.kind), format_.payloads)}
    if with_spark:
        path = scratch / f"{format_.kind.name}.parquet"
        pq.write_table(pa.table({"value": format_.payloads}), path)
        frame = session.read.parquet(str(path)).coalesce(1).cache()
        typed = frame.select(format_.function(frame.value).alias("row")).select("row.*")
        sides["spark"] = lambda: Sample({"": rows / max(_cpu_s(typed) - _cpu_s(frame), 1e-3)})
    name = f"{format_.kind.name}: values to columns, ten fields"
    return in_turn(name, sides, runs, unit="rows/s of CPU", warm_ups=2)


def _cpu_s(frame: Any) -> float:
    return timed(frame.write.format("noop").mode("overwrite").save, CpuMeter()).cpu_s


def _decoder(kind: SchemaType) -> ValueDecoder:
    decoder = ValueDecoder(SchemaInfo(kind, _SCHEMA.encode()))
    decoder.add(0, SchemaInfo(kind, _SCHEMA.encode()))
    return decoder


def _decode(decoder: ValueDecoder, payloads: pa.Array) -> Sample:
    versions = pa.array([0] * _BATCH, pa.int64())

    def work() -> None:
        for at in [*range(0, len(payloads), _BATCH)] * _TIMES:
            part = payloads.slice(at, _BATCH)
            assert not decoder.decode(part, versions[: len(part)]).flaws

    return Sample({"": _TIMES * len(payloads) / timed(work, CpuMeter()).cpu_s})


def _records(count: int) -> list[dict[str, Any]]:
    chance = random.Random(1)
    return [
        {
            "id": chance.randrange(10**12),
            "user": f"user-{chance.randrange(10**9):012d}",
            "at": 1_700_000_000_000 + chance.randrange(10**9),
            "amount": chance.random() * 1000,
            "city": chance.choice((None, "Oslo", "Amsterdam")),
            "count": chance.randrange(1000),
            "ok": chance.random() < 0.5,
            "score": chance.choice((None, 1.5)),
            "note": "x" * chance.randrange(20, 40),
            "ratio": 0.5,
        }
        for _ in range(count)
    ]


def _as_avro(write: Callable[..., None], schema: Any, record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    write(out, schema, record)
    return out.getvalue()


def main() -> int:
    """The table on stdout."""
    figures: Sequence[Figure] = run(quick=quick_wanted(__doc__))
    print(report.figure_table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
