# SPDX-License-Identifier: Apache-2.0
"""A few messages through an installed package: broker, client and codec. ``test_wheel.sh`` runs a copy elsewhere."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire import core
from broker_core.wire.batch import decode_entries, encode_entries
from broker_core.wire.entry import EntryRef


def main() -> None:
    """Ends with an error if anything is not as it should be."""
    assert core.COMPILED, core.HINT
    assert core.__file__.startswith(sys.prefix), core.__file__
    rows = pa.record_batch({"key": pa.array(["a", "b"]), "value": pa.array([b"1", b"2"])})
    (entry,) = encode_entries(rows, producer_name="p", first_sequence_id=0, publish_time_ms=1)
    assert decode_entries([EntryRef(0, 0, entry.body)], ("key", "value")).num_rows == 2
    with (
        tempfile.TemporaryDirectory() as folder,
        RunningBroker(Path(folder, "data")) as broker,
        Client(broker.service_url) as client,
    ):
        consumer = client.subscribe("topic", "subscription")
        client.create_producer("topic").send(b"a value")
        message = consumer.receive(30)
        assert message.value == b"a value"
        consumer.acknowledge(message)
    sys.stdout.write("the wheel works\n")


if __name__ == "__main__":
    main()
