# SPDX-License-Identifier: Apache-2.0
"""Open transactions as both brokers tell of them: requests to our broker and to a real Apache Pulsar with transactions.

Ids are each broker's own: LEAST stands for the number of the transaction, LEDGER and ENTRY for the message that it has
acknowledged.
"""

from __future__ import annotations

import uuid
from typing import Final

import pytest

from broker_core.testing.raw_client import must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.apache_pulsar.start import ApachePulsar
from tests.server.oracle import Ask, Both, N, Side, T, answer_to, compare, difference
from tests.server.test_admin_transactions import acknowledge
from tests.server.transaction_client import OK, TransactionClient, entry

pytestmark = pytest.mark.pulsar

B: Final = "/admin/v3/transactions"
OF_COORDINATORS: Final = (
    *("state", "leastSigBits", "lowWaterMark", "ongoingTxnSize", "recoverStartTime", "recoverEndTime"),
)
OF_TRANSACTIONS: Final = ("txnId", "status", "openTimestamp", "timeoutAt", "producedPartitions", "ackedPartitions")
OF_BUFFERS: Final = (
    *("state", "maxReadPosition", "lastSnapshotTimestamps", "ongoingTxnSize", "totalAbortedTransactions"),
    *("snapshotType", "recoverStartTime", "recoverEndTime"),
)
OF_PENDING: Final = ("state", "ongoingTxnSize", "recoverStartTime", "recoverEndTime")
ASSIGN: Final = "persistent://pulsar/system/transaction_coordinator_assign-partition-0"
NEVER: Final = "0/99999999"

OPEN: Final = [
    Ask("GET", f"{B}/coordinators", same=False),
    Ask("GET", f"{B}/coordinatorStats?coordinatorId=0", same=False, fields=OF_COORDINATORS),
    Ask("GET", f"{B}/coordinatorStats", same=False, fields=tuple(f"0.{each}" for each in OF_COORDINATORS)),
    Ask("GET", f"{B}/coordinatorStats?coordinatorId=4000", same=False),
    Ask("GET", f"{B}/transactionMetadata/0/LEAST", same=False, fields=OF_TRANSACTIONS),
    Ask("GET", f"{B}/transactionMetadata/{NEVER}", same=False),
    Ask("GET", f"{B}/transactionMetadata/4000/0", same=False),
    Ask("GET", f"{B}/transactionMetadata/0/x", same=False),
    Ask("GET", f"{B}/slowTransactions/1000", same=False, fields=tuple(f"(0,LEAST).{each}" for each in OF_TRANSACTIONS)),
    Ask("GET", f"{B}/slowTransactions/1000?coordinatorId=0", same=False, fields=("(0,LEAST)",)),
    Ask("GET", f"{B}/slowTransactions/99999999999", same=False),
    Ask("GET", f"{B}/transactionBufferStats/{{}}/t", same=False, fields=OF_BUFFERS),
    Ask("GET", f"{B}/transactionBufferStats/{{}}/t?lowWaterMarks=true", same=False, fields=("lowWaterMarks",)),
    Ask("GET", f"{B}/transactionBufferStats/{{}}/nothing", same=False),
    Ask("GET", f"{B}/transactionInBufferStats/{{}}/t/0/LEAST", same=False, fields=("startPosition", "aborted")),
    Ask("GET", f"{B}/transactionInBufferStats/{{}}/t/{NEVER}", same=False, fields=("aborted",)),
    Ask("GET", f"{B}/pendingAckStats/{{}}/t/s", same=False, fields=OF_PENDING),
    Ask("GET", f"{B}/pendingAckStats/{{}}/t/nope", same=False),
    Ask("GET", f"{B}/pendingAckStats/{{}}/nothing/s", same=False),
    Ask("GET", f"{B}/transactionInPendingAckStats/{{}}/t/s/0/LEAST", same=False, fields=("cumulativeAckPosition",)),
    Ask("GET", f"{B}/transactionInPendingAckStats/{{}}/t/s/{NEVER}", same=False),
    Ask("GET", f"{B}/positionStatsInPendingAck/{{}}/t/s/LEDGER/ENTRY"),
    Ask("GET", f"{B}/positionStatsInPendingAck/{{}}/t/s/LEDGER/999999"),
    Ask("POST", f"{B}/abortTransaction/{NEVER}", same=False),
    Ask("POST", f"{B}/abortTransaction/0/LEAST", same=False),
]
ENDED: Final = [
    Ask("GET", f"{B}/transactionMetadata/0/LEAST", same=False),
    Ask("GET", f"{B}/transactionInBufferStats/{{}}/t/0/LEAST", same=False, fields=("aborted",)),
    Ask("POST", f"{B}/transactionCoordinator/replicas", "1", same=False),
]


@pytest.fixture
def both(broker: RunningBroker, apache_pulsar_transactions: ApachePulsar) -> Both:
    ours = Side(broker.http_url, broker.service_url)
    theirs = Side(apache_pulsar_transactions.http_url, apache_pulsar_transactions.service_url)
    return Both(ours, theirs, f"public/o{uuid.uuid4().hex[:8]}")


def opened(client: TransactionClient, topic: str) -> dict[str, str]:
    """A transaction that has sent and acknowledged: what stands for its numbers."""
    for name in (topic, ASSIGN):  # a broker of Apache Pulsar's serves what was looked up
        looked_up = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic={"topic": name, "request_id": 1})
        assert not client.ask(looked_up).lookupTopicResponse.HasField("error")
    must_succeed(client.subscribe(topic, "s", 0))
    must_succeed(client.open_producer(topic))
    client.send_entry(0, 0, entry("n0"))
    first = client.next_command().send_receipt.message_id
    client.connect_to(0)
    transaction = client.new(0)
    assert client.add_partition(transaction, topic).code == OK
    assert client.add_subscription(transaction, topic, "s").code == OK
    assert client.send_in(transaction, "a0", sequence_id=1).HasField("send_receipt")
    acknowledge(client, transaction, first.ledgerId, first.entryId, cumulative=False)
    return {"LEAST": str(transaction.least_bits), "LEDGER": str(first.ledgerId), "ENTRY": str(first.entryId)}


def differences(both: Both, asks: list[Ask], numbers: list[dict[str, str]]) -> list[str]:
    found = []
    for ask in asks:
        answers = []
        for side, of_side in zip(both.sides, numbers, strict=True):
            with side.admin() as admin:
                status, content = answer_to(admin, ask._replace(path=_filled(ask.path, of_side)), both.namespace)
            if isinstance(content, dict):
                content = {_named(name, of_side): value for name, value in content.items()}
            answers.append((status, content))
        if not ask.may_differ and (apart := difference(ask, *answers)):
            found.append(f"{ask.method} {ask.path}: {apart}")
    return found


def _filled(text: str, numbers: dict[str, str]) -> str:
    for name, number in numbers.items():
        text = text.replace(name, number)
    return text


def _named(text: str, numbers: dict[str, str]) -> str:
    return "(0,LEAST)" if text == f"(0,{numbers['LEAST']})" else text


def test_open_transactions_are_told_as_pulsars_are(both: Both) -> None:
    """9.9.1, 9.9.2: coordinators, transactions, their parts of topics and subscriptions, and an abort."""
    assert compare(both, [Ask("PUT", N), Ask("PUT", T, "{}")]) == []
    topic = f"persistent://{both.namespace}/t"
    with TransactionClient(both.ours.service_url) as ours, TransactionClient(both.theirs.service_url) as theirs:
        numbers = [opened(client, topic) for client in (ours, theirs)]
        assert differences(both, [*OPEN, *ENDED], numbers) == []
