# SPDX-License-Identifier: Apache-2.0
"""Coordinators of transactions on a scripted broker: friendly ones, whose single answers a test replaces."""

from __future__ import annotations

from typing import Final

from broker_core.base.errors import ServerError
from broker_core.wire.commands import error_code
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.scripted_broker import Handler, Peer, ScriptedBroker, partitions

KINDS: Final = {
    BaseCommand.NEW_TXN: ("newTxn", BaseCommand.NEW_TXN_RESPONSE),
    BaseCommand.ADD_PARTITION_TO_TXN: ("addPartitionToTxn", BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE),
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: ("addSubscriptionToTxn", BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE),
    BaseCommand.END_TXN: ("endTxn", BaseCommand.END_TXN_RESPONSE),
}
"""Requests to a coordinator: the field of each, and the type of its answer."""


def asked(command: BaseCommand) -> pb.CommandEndTxn:
    """The request in ``command``; all kinds of ``KINDS`` have the fields that are looked at."""
    request: pb.CommandEndTxn = getattr(command, KINDS[command.type][0])
    return request


def answered(peer: Peer, command: BaseCommand, failure: ServerError | None = None) -> None:
    """Answer a request to a coordinator."""
    field, kind = KINDS[command.type]
    request = asked(command)
    answer = BaseCommand(type=kind)
    body = getattr(answer, f"{field}Response")
    body.request_id = request.request_id
    if command.type == BaseCommand.NEW_TXN:
        body.txnid_most_bits, body.txnid_least_bits = command.newTxn.tc_id, len(peer.broker.peers[0].received)
    else:
        body.txnid_most_bits, body.txnid_least_bits = request.txnid_most_bits, request.txnid_least_bits
    if failure is not None:
        body.error, body.message = error_code(failure), str(failure)
    peer.send(answer)


def _connected(peer: Peer, command: BaseCommand) -> None:
    said = pb.CommandTcClientConnectResponse(request_id=command.tcClientConnectRequest.request_id)
    peer.send(BaseCommand(type=BaseCommand.TC_CLIENT_CONNECT_RESPONSE, tcClientConnectResponse=said))


def _acknowledged(peer: Peer, command: BaseCommand) -> None:
    if command.ack.HasField("request_id"):
        said = pb.CommandAckResponse(consumer_id=command.ack.consumer_id, request_id=command.ack.request_id)
        peer.send(BaseCommand(type=BaseCommand.ACK_RESPONSE, ackResponse=said))


def coordinating(broker: ScriptedBroker, coordinators: int = 1) -> None:
    """Have ``broker`` be so many coordinators; topics are not partitioned."""

    def of_topic(peer: Peer, command: BaseCommand) -> None:
        of_coordinators = "transaction_coordinator_assign" in command.partitionMetadata.topic
        partitions(coordinators if of_coordinators else 0)(peer, command)

    broker.handlers[BaseCommand.PARTITIONED_METADATA] = of_topic
    broker.handlers[BaseCommand.TC_CLIENT_CONNECT_REQUEST] = _connected
    broker.handlers[BaseCommand.ACK] = _acknowledged
    for kind in KINDS:
        broker.handlers[kind] = answered


def refusing(*failures: ServerError) -> Handler:
    """Answer the first requests with ``failures``, and the next ones well."""
    left = list(failures)
    return lambda peer, command: answered(peer, command, left.pop(0) if left else None)


def losing_first(handler: Handler = answered) -> Handler:
    """End the connection that brings the first request, in place of its answer; ``handler`` has the others."""
    seen: list[BaseCommand] = []

    def lose(peer: Peer, command: BaseCommand) -> None:
        seen.append(command)
        if len(seen) == 1:
            peer.transport.abort()
        else:
            handler(peer, command)

    return lose


def requests(broker: ScriptedBroker, kind: int) -> list[BaseCommand]:
    """All requests of one kind, in their order."""
    return [command for peer in broker.peers for command in peer.received if command.type == kind]
