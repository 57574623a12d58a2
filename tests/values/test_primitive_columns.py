# SPDX-License-Identifier: Apache-2.0
"""Columns of primitive values: the vectors of each type, and lengths that are wrong."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from broker_core.schemas.info import SchemaType
from broker_core.values.decoding import Flaw
from broker_core.values.primitives import arrow_type, decode_primitive


@pytest.mark.parametrize(
    ("kind", "data", "shown"),
    [
        ("BOOLEAN", "01", True),
        ("BOOLEAN", "00", False),
        ("INT8", "fe", -2),
        ("INT16", "0102", 258),
        ("INT32", "ffffffff", -1),
        ("INT64", "0000000000000001", 1),
        ("FLOAT", "3fc00000", 1.5),
        ("DOUBLE", "c004000000000000", -2.5),
        ("STRING", "c3a9", "é"),
        ("BYTES", "00ff", b"\x00\xff"),
        ("DATE", "0000000005265c00", dt.datetime(1970, 1, 2, tzinfo=dt.UTC)),
        ("TIME", "00000000000003e8", 1_000_000_000),
        ("TIMESTAMP", "0000018bcfe5687b", dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, dt.UTC)),
        ("INSTANT", "000000000000000100001388", dt.datetime(1970, 1, 1, 0, 0, 1, 5, dt.UTC)),
        ("LOCAL_DATE", "0000000000002acd", dt.date(2000, 1, 1)),
        ("LOCAL_TIME", "000000003b9aca00", 1_000_000_000),
        ("LOCAL_DATE_TIME", "0000000000002acd000000003b9aca00", dt.datetime.fromisoformat("2000-01-01T00:00:01")),
    ],
)  # fmt: skip
def test_bytes_are_the_value(kind: str, data: str, shown: Any) -> None:
    found = decode_primitive(SchemaType[kind], pa.array([bytes.fromhex(data), None], pa.binary()))
    found.rows.validate(full=True)
    assert found.rows.type == arrow_type(SchemaType[kind])
    assert (found.rows.to_pylist(), found.flaws) == ([shown, None], [])


@pytest.mark.parametrize("kind", [each for each in SchemaType if each.is_primitive and each.value > 4])
def test_another_length_is_a_flaw(kind: SchemaType) -> None:
    found = decode_primitive(kind, pa.array([b"", b"\0" * 20], pa.binary()))
    assert found.rows.to_pylist() == [None, None]
    assert [each.row for each in found.flaws] == [0, 1]
    assert found.flaws[1].reason.startswith("it has 20 bytes, and a ")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("DATE", "7fffffffffffffff"),
        ("TIMESTAMP", "8000000000000000"),
        ("INSTANT", "7fffffffffffffff00000000"),
        ("INSTANT", "000000000000000000000000"[:16] + "ffffffff"),
        ("INSTANT", "00000000000000003b9aca00"),
        ("LOCAL_DATE", "0000000080000000"),
        ("LOCAL_TIME", "ffffffffffffffff"),
        ("LOCAL_TIME", "00004e94914f0000"),
        ("LOCAL_DATE_TIME", "7fffffffffffffff0000000000000000"),
        ("LOCAL_DATE_TIME", "000000000000000000004e94914f0000"),
    ],
)
def test_value_out_of_the_columns_range_is_a_flaw(kind: str, data: str) -> None:
    """Dates beyond microseconds in 64 bits, or beyond 32 bits of days; more nanoseconds than a day or a second has."""
    found = decode_primitive(SchemaType[kind], pa.array([bytes.fromhex(data)], pa.binary()))
    assert found.flaws == [Flaw(0, f"it is no {kind}, or none that the column can hold")]
    assert found.rows.to_pylist() == [None]
