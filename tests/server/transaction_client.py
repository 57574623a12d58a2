# SPDX-License-Identifier: Apache-2.0
"""A client of transactions by raw frames: each request, the kind of its answer, its code."""

from __future__ import annotations

from typing import NamedTuple

from broker_core.testing.raw_client import RawClient
from broker_core.wire.entry import seal_entry
from broker_core.wire.frames import encode_command
from broker_core.wire.heads import TxnId
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata, TxnAction

OK, PERSISTENCE, NO_COORDINATOR, INVALID_STATUS, NOT_ALLOWED, NOT_FOUND = 0, 2, 20, 21, 22, 24
MINUTE_MS = 60_000


def entry(text: str, sequence_id: int = 0) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    return seal_entry(metadata.SerializeToString(), text.encode())


class Outcome(NamedTuple):
    """An answer about a transaction: its kind, the id in it, its code (0: success)."""

    kind: int
    name: TxnId
    code: int


class TransactionClient(RawClient):
    """One connection; its requests have ids of their own."""

    _request_id = 100

    def request_id(self) -> int:
        self._request_id += 1
        return self._request_id

    def connect_to(self, coordinator: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.TC_CLIENT_CONNECT_REQUEST)
        command.tcClientConnectRequest.request_id = self.request_id()
        command.tcClientConnectRequest.tc_id = coordinator
        return self.ask(command)

    def new(self, coordinator: int = 0, ttl_ms: int = MINUTE_MS) -> TxnId:
        """Begin one, which must succeed."""
        answer = self.try_new(coordinator, ttl_ms)
        assert (answer.kind, answer.code) == (BaseCommand.NEW_TXN_RESPONSE, OK), answer
        return answer.name

    def try_new(self, coordinator: int = 0, ttl_ms: int = MINUTE_MS) -> Outcome:
        command = BaseCommand(type=BaseCommand.NEW_TXN)
        command.newTxn.request_id = self.request_id()
        command.newTxn.tc_id, command.newTxn.txn_ttl_seconds = coordinator, ttl_ms
        return self._outcome(command, "newTxnResponse")

    def add_partition(self, name: TxnId, *topics: str) -> Outcome:
        command = BaseCommand(type=BaseCommand.ADD_PARTITION_TO_TXN)
        asked = command.addPartitionToTxn
        asked.request_id = self.request_id()
        asked.txnid_most_bits, asked.txnid_least_bits = name
        asked.partitions.extend(topics)
        return self._outcome(command, "addPartitionToTxnResponse")

    def add_subscription(self, name: TxnId, topic: str, subscription: str) -> Outcome:
        command = BaseCommand(type=BaseCommand.ADD_SUBSCRIPTION_TO_TXN)
        asked = command.addSubscriptionToTxn
        asked.request_id = self.request_id()
        asked.txnid_most_bits, asked.txnid_least_bits = name
        asked.subscription.add(topic=topic, subscription=subscription)
        return self._outcome(command, "addSubscriptionToTxnResponse")

    def end(self, name: TxnId, *, commit: bool) -> Outcome:
        return self._outcome(self.end_command(name, commit=commit), "endTxnResponse")

    def end_command(self, name: TxnId, *, commit: bool) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.END_TXN)
        asked = command.endTxn
        asked.request_id = self.request_id()
        asked.txnid_most_bits, asked.txnid_least_bits = name
        asked.txn_action = TxnAction.COMMIT if commit else TxnAction.ABORT
        return command

    def _outcome(self, command: BaseCommand, field: str) -> Outcome:
        answer = self.ask(command)
        response = getattr(answer, field)
        assert response.request_id == self._request_id, answer
        code = response.error if response.HasField("error") else OK
        return Outcome(answer.type, TxnId(response.txnid_most_bits, response.txnid_least_bits), code)

    def send_in(self, name: TxnId, text: str, *, producer_id: int = 0, sequence_id: int = 0) -> BaseCommand:
        """SEND under a transaction; the answer."""
        self.socket.sendall(send_frame(name, entry(text, sequence_id), producer_id, sequence_id))
        return self.next_command()


def send_frame(name: TxnId, body: bytes, producer_id: int = 0, sequence_id: int = 0) -> bytes:
    """A whole SEND frame."""
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id = producer_id, sequence_id
    command.send.txnid_most_bits, command.send.txnid_least_bits = name
    frame = encode_command(command)
    return (len(frame) - 4 + len(body)).to_bytes(4, "big") + frame[4:] + body
