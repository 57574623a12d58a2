# SPDX-License-Identifier: Apache-2.0
"""Compiling ahead: the first use of the codec on a machine takes seconds, later ones load the compiled code."""

from __future__ import annotations

import pyarrow as pa

from broker_core.wire.batch.decode import decode_entries
from broker_core.wire.batch.encode import encode_entries
from broker_core.wire.batch.route import route_rows
from broker_core.wire.entry import EntryRef


def warm_up() -> None:
    """Run every kernel once, so that all are compiled and kept on disk (see ``compiled``), or loaded from there."""
    keys = pa.array([b"a key given as bytes", b"and one given as text", None], pa.binary())
    are_bytes = pa.array([True, False, None])
    properties = pa.array([[("name", "text")], None, None], pa.map_(pa.string(), pa.string()))
    rows = pa.record_batch([keys, are_bytes, keys, properties], names=["key", "key_is_bytes", "value", "properties"])
    entries = encode_entries(rows, producer_name="warm-up", first_sequence_id=0, publish_time_ms=1)
    decode_entries([EntryRef(0, number, entry.body) for number, entry in enumerate(entries)])
    route_rows(rows, 2)
