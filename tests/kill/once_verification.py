# SPDX-License-Identifier: Apache-2.0
"""The topics of a stream as a read-committed consumer sees them: rows that are lost, or twice, and what hangs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker_core.base.errors import OperationTimeoutError, TopicNotFoundError
from broker_core.client import Client
from broker_core.client.admin import AdminApi
from broker_core.wire.heads import TxnId
from pulsarish_spark.options import Side, write_options
from pulsarish_spark.sink.decisions import Intent, decoded
from tests.kill.once_job import Job

READ_S_MAX: Final = 40.0
END_S_MAX: Final = 20.0
POLL_S: Final = 0.1
_END: Final = b"end"


@dataclass(frozen=True, slots=True)
class Seen:
    """Rows that a consumer was given in the end, beside those that were written."""

    lost: int
    duplicated: int
    strange: int
    """Rows that were never written."""
    hanging: str = ""
    """Why readers wait, or what was left open."""

    @property
    def holds(self) -> bool:
        """Whether each row is there once, and nothing else."""
        return not (self.lost or self.duplicated or self.strange or self.hanging)


def compared(expected: Iterable[str], found: Iterable[str], hanging: str = "") -> Seen:
    """The verdict over rows that were found."""
    wanted, counts = set(expected), Counter(found)
    return Seen(
        lost=len(wanted - counts.keys()),
        duplicated=sum(count - 1 for row, count in counts.items() if row in wanted),
        strange=sum(count for row, count in counts.items() if row not in wanted),
        hanging=hanging,
    )


def look(job: Job, http_url: str, expected: Iterable[str], elsewhere: Iterable[str] = ()) -> Seen:
    """Read all partitions to their ends, and ask about every transaction that a task has told of. Rows that are
    ``elsewhere`` count as found."""
    with Client(job.service_url, operation_timeout_s=60) as client:
        found = [*elsewhere]
        hanging: list[str] = []
        for name in client.partition_names(job.topic):
            rows, is_whole = _read(client, name)
            found += rows
            hanging += [] if is_whole else [f"readers of {name} wait for something"]
        if left := _left_open(client, http_url, job):
            hanging.append(f"{len(left)} transactions are open")
        return compared(expected, found, "; ".join(hanging))


def _read(client: Client, topic: str) -> tuple[list[str], bool]:
    """The rows of a topic, and whether its end was reached."""
    with client.create_producer(topic) as producer:
        producer.send(_END)
    rows: list[str] = []
    with client.create_reader(topic) as reader:
        while True:
            try:
                value = reader.read_next(READ_S_MAX).value or b""
            except (TimeoutError, OperationTimeoutError):
                return rows, False
            if value == _END:
                return rows, True
            rows.append(value.decode())


def _left_open(client: Client, http_url: str, job: Job) -> list[TxnId]:
    """Transactions of the stream that are not over."""
    given = job.sink_options()
    options = write_options({name: value for name, value in given.items() if "rig." not in name}, Side.STREAM_WRITE, {})
    assert options.once is not None
    values, _ = _read(client, options.once.control)
    records = [decoded(value.encode()) for value in values]
    with AdminApi(http_url, timeout_s=END_S_MAX) as admin:
        return [each.txn_id for each in records if isinstance(each, Intent) and _is_open(admin, each.txn_id)]


def _is_open(admin: AdminApi, txn_id: TxnId) -> bool:
    """Whether the coordinator still has it after a while: an end that was asked for may take its time."""
    deadline = time.monotonic() + END_S_MAX
    while time.monotonic() < deadline:
        try:
            admin.transaction(txn_id)
        except TopicNotFoundError:
            return False
        time.sleep(POLL_S)
    return True
