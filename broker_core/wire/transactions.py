# SPDX-License-Identifier: Apache-2.0
"""The commands of transactions as a client sends them, and the id of a transaction in other commands and in entries.

Knows the protocol's traps: both halves of an id travel or none, and ``txn_ttl_seconds`` holds milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.base.positions import to_signed64, to_unsigned64
from broker_core.wire.heads import TxnId
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

_SIZE_BYTES = 4


def shown(txn_id: TxnId) -> str:
    """The id as Pulsar writes it in texts and paths: ``(0,5)``."""
    return f"({to_unsigned64(txn_id.most_bits)},{to_unsigned64(txn_id.least_bits)})"


def set_txn_id(target: pb.MessageMetadata | pb.CommandAck | pb.CommandSend, txn_id: TxnId) -> None:
    """Have an entry or a command belong to a transaction."""
    target.txnid_most_bits = to_unsigned64(txn_id.most_bits)
    target.txnid_least_bits = to_unsigned64(txn_id.least_bits)


def tc_client_connect(coordinator: int, request_id: int) -> BaseCommand:
    """Asks a broker to serve this client as a coordinator."""
    asked = pb.CommandTcClientConnectRequest(request_id=request_id, tc_id=coordinator)
    return BaseCommand(type=BaseCommand.TC_CLIENT_CONNECT_REQUEST, tcClientConnectRequest=asked)


def new_txn(coordinator: int, ttl_ms: int, request_id: int) -> BaseCommand:
    """Asks for a transaction that is aborted unless it has ended in ``ttl_ms``."""
    asked = pb.CommandNewTxn(request_id=request_id, txn_ttl_seconds=ttl_ms, tc_id=coordinator)
    return BaseCommand(type=BaseCommand.NEW_TXN, newTxn=asked)


def read_new_txn(answer: BaseCommand) -> TxnId:
    """The id of the transaction that was begun."""
    begun = answer.newTxnResponse
    return TxnId(to_signed64(begun.txnid_most_bits), to_signed64(begun.txnid_least_bits))


def add_partitions_to_txn(txn_id: TxnId, topics: Sequence[str], request_id: int) -> BaseCommand:
    """Tells the coordinator that messages of the transaction go to ``topics``: plain topics, or single partitions."""
    asked = pb.CommandAddPartitionToTxn(
        request_id=request_id,
        txnid_most_bits=to_unsigned64(txn_id.most_bits),
        txnid_least_bits=to_unsigned64(txn_id.least_bits),
        partitions=topics,
    )
    return BaseCommand(type=BaseCommand.ADD_PARTITION_TO_TXN, addPartitionToTxn=asked)


def add_subscription_to_txn(txn_id: TxnId, topic: str, subscription: str, request_id: int) -> BaseCommand:
    """Tells the coordinator that messages of ``topic`` are acknowledged on ``subscription`` within the transaction."""
    asked = pb.CommandAddSubscriptionToTxn(
        request_id=request_id,
        txnid_most_bits=to_unsigned64(txn_id.most_bits),
        txnid_least_bits=to_unsigned64(txn_id.least_bits),
        subscription=[pb.Subscription(topic=topic, subscription=subscription)],
    )
    return BaseCommand(type=BaseCommand.ADD_SUBSCRIPTION_TO_TXN, addSubscriptionToTxn=asked)


def end_txn(txn_id: TxnId, action: pb.TxnAction, request_id: int) -> BaseCommand:
    """Asks the coordinator to commit or to abort a transaction."""
    asked = pb.CommandEndTxn(
        request_id=request_id,
        txnid_most_bits=to_unsigned64(txn_id.most_bits),
        txnid_least_bits=to_unsigned64(txn_id.least_bits),
        txn_action=action,
    )
    return BaseCommand(type=BaseCommand.END_TXN, endTxn=asked)


def txn_send_frame_head(
    txn_id: TxnId,
    producer_id: int,
    sequence_id: int,
    num_messages: int,
    body_len: int,
    highest_sequence_id: int = -1,
    is_chunk: bool = False,
) -> bytes:
    """``hot_commands.send_frame_head`` for an entry of a transaction."""
    send = pb.CommandSend(producer_id=producer_id, sequence_id=to_unsigned64(sequence_id))
    if num_messages != 1:
        send.num_messages = num_messages
    if highest_sequence_id >= 0:
        send.highest_sequence_id = highest_sequence_id
    if is_chunk:
        send.is_chunk = True
    set_txn_id(send, txn_id)
    command = BaseCommand(type=BaseCommand.SEND, send=send).SerializeToString()
    size = len(command)
    return (_SIZE_BYTES + size + body_len).to_bytes(_SIZE_BYTES, "big") + size.to_bytes(_SIZE_BYTES, "big") + command
