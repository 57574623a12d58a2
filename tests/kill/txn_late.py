# SPDX-License-Identifier: Apache-2.0
"""Raw clients that send under a transaction whose end was answered, and the history that comes of it.

Apache Pulsar accepts such a message right after a commit. It belongs to a transaction that is forgotten: readers of the
topic stop in front of it, and everybody's later messages are hidden with it, until another transaction that writes to
the topic ends. And it tells aborted messages by their metadata, in which a Go client does not name the transaction.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from broker_core.base.names import TopicName
from broker_core.client.admin import AdminApi
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.entry import seal_entry
from broker_core.wire.heads import TxnId
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.kill.txn_history import History, Transaction
from tests.server.transaction_client import OK, TransactionClient, send_frame


class Case(NamedTuple):
    """How a transaction ends, and whether the metadata of its messages name it, as those of a Java client do."""

    commits: bool
    names_it: bool


CASES: Final = {
    "late-commit": Case(commits=True, names_it=True),
    "late-abort": Case(commits=False, names_it=True),
    "late-abort-unnamed": Case(commits=False, names_it=False),
}
"""By topic."""


def late_histories(service_url: str, http_url: str) -> dict[str, History]:
    """The history of each topic to which a client sends late."""
    histories = {}
    for topic, case in CASES.items():
        with AdminApi(http_url, timeout_s=60.0) as admin:
            admin.create_topic(TopicName.parse(topic), 0)
        with TransactionClient(service_url) as client:
            histories[topic] = _late_history(client, topic, case)
    return histories


def _late_history(client: TransactionClient, topic: str, case: Case) -> History:
    full_name = str(TopicName.parse(topic))
    client.connect_to(0)
    must_succeed(_looked_up(client, full_name))
    must_succeed(client.open_producer(full_name))
    txn_id = client.new()
    assert client.add_partition(txn_id, full_name).code == OK
    txn = Transaction("ended", {topic: ["in time"]}, asked="commit" if case.commits else "abort")
    named = txn_id if case.names_it else None
    assert _is_accepted(client, txn_id, _body("in time", 0, named), 0)
    txn.asked_at = time.monotonic() if case.commits else txn.asked_at
    assert client.end(txn_id, commit=case.commits).code == OK
    txn.answered_at, txn.outcome = time.monotonic(), "ok"
    if _is_accepted(client, txn_id, _body("late", 1, named), 1):
        txn.late = {topic: ["late"]}
    plain = Transaction("plain", {topic: ["plain"]}, asked="commit", asked_at=time.monotonic())
    client.send_entry(0, 2, _body("plain", 2))
    assert client.next_command().type == BaseCommand.SEND_RECEIPT
    plain.answered_at, plain.outcome = time.monotonic(), "ok"
    return History([txn, plain])


def _looked_up(client: RawClient, topic: str) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.LOOKUP)
    command.lookupTopic.topic, command.lookupTopic.request_id = topic, 0
    return client.ask(command)


def _is_accepted(client: TransactionClient, txn_id: TxnId, body: bytes, sequence_id: int) -> bool:
    """Whether a SEND under ``txn_id`` is answered by a receipt."""
    client.socket.sendall(send_frame(txn_id, body, 0, sequence_id))
    return client.next_command().type == BaseCommand.SEND_RECEIPT


def _body(text: str, sequence_id: int, named: TxnId | None = None) -> bytes:
    metadata = MessageMetadata(producer_name="late", sequence_id=sequence_id, publish_time=1)
    if named is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = named
    return seal_entry(metadata.SerializeToString(), text.encode())
