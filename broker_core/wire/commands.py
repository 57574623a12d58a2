# SPDX-License-Identifier: Apache-2.0
"""Reading commands, and small constructors for those that both ends send or that are easily built wrong.

Code that needs a command that is not here fills in a ``BaseCommand`` itself; ``frames.encode_command`` makes the frame.
Knows the protocol's traps (signed ids, answers that must name their outcome), not what a broker or client does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from broker_core.base.errors import RemoteProtocolError, ServerError
from broker_core.base.positions import ChunkMessageId, MessageId, Position, to_signed64, to_unsigned64
from broker_core.wire.core.hot_commands import ack_ids
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageIdData

_FIELD_OF_TYPE: Final = {
    number: BaseCommand.DESCRIPTOR.fields_by_number[number].name for number in BaseCommand.Type.values()
}
"""A command's type has the number of the field that holds it."""

_REDELIVERED_AT_ONCE: Final = 1000
"""Ids in one request to give entries again."""

ENTRIES_AT_ONCE: Final = 2_000
"""Entries of one ACK: an id has 31 bytes at most, and usually 15. Our broker reads a larger command in steps."""

_WITHOUT_TEXT: Final = frozenset(
    {BaseCommand.ACK, BaseCommand.FLOW, BaseCommand.SEND, BaseCommand.SEND_RECEIPT, BaseCommand.MESSAGE}
)
"""Frequent commands that hold no text, so that none needs to be checked."""


def parse_command(command: bytes, parts_max: int = sys.maxsize) -> BaseCommand:
    """Read a serialised command: the field that its type names is there, required fields too, all text is UTF-8.

    Raises RemoteProtocolError otherwise, also for a command type that this version does not know, and for one with more
    parts (properties and the like) than ``parts_max``.
    """
    try:
        parsed = BaseCommand.FromString(command)
    except DecodeError as error:
        raise RemoteProtocolError(f"a command of {len(command)} bytes cannot be read: {error}") from error
    if not parsed.HasField("type"):
        raise RemoteProtocolError("a command has no type, or one that this version does not know")
    field = _FIELD_OF_TYPE[parsed.type]
    if not parsed.HasField(field) or not parsed.IsInitialized():
        raise RemoteProtocolError(f"command {command_name(parsed)} lacks required fields")
    if parsed.type not in _WITHOUT_TEXT:
        _check_text(parsed, parts_max)
    return parsed


def field_of(kind: int) -> str:
    """The field of BaseCommand that holds commands of that type."""
    return _FIELD_OF_TYPE[kind]


def command_name(command: BaseCommand) -> str:
    """``SUBSCRIBE`` and the like, for messages."""
    return BaseCommand.Type.Name(command.type)


@cache
def _may_hold_text(kind: Descriptor) -> bool:
    """Whether there may be text in such a message: thousands of ranges, say, need no look at each."""
    return any(field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE) for field in kind.fields)


def _check_text(message: Message, parts_max: int) -> None:
    for field, value in message.ListFields():
        if field.is_repeated and len(value) > parts_max:
            raise RemoteProtocolError(f"a command has {len(value)} {field.name}, more than the {parts_max} allowed")
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if not _may_hold_text(field.message_type):
                continue
            for part in value if field.is_repeated else (value,):
                _check_text(part, parts_max)
        elif field.type == FieldDescriptor.TYPE_STRING:
            for text in value if field.is_repeated else (value,):
                # The runtime hands out bytes where a string field does not hold UTF-8.
                if not isinstance(text, str):
                    raise RemoteProtocolError(f"field {field.name} of a command is not UTF-8 text")


# -- message ids


def message_id(
    position: Position | MessageId, partition: int = -1, ack_set: Iterable[int] | None = None
) -> MessageIdData:
    """``position`` as it travels. A MessageId brings its own partition and batch index; -1 is left out."""
    data = MessageIdData(ledgerId=to_unsigned64(position.ledger), entryId=to_unsigned64(position.entry))
    if isinstance(position, MessageId):
        partition = position.partition if partition < 0 else partition
        if position.batch_index >= 0:
            data.batch_index = position.batch_index
        if position.batch_size > 0:
            data.batch_size = position.batch_size
        if isinstance(position, ChunkMessageId):
            data.first_chunk_message_id.CopyFrom(message_id(position.first_chunk, partition))
    if partition >= 0:
        data.partition = partition
    if ack_set is not None:
        data.ack_set.extend(ack_set)
    return data


def read_message_id(data: MessageIdData) -> MessageId:
    """The inverse of ``message_id``; the ack set stays in ``data``."""
    last = MessageId(
        to_signed64(data.ledgerId), to_signed64(data.entryId), data.partition, data.batch_index, data.batch_size
    )
    if data.HasField("first_chunk_message_id"):
        return ChunkMessageId.of(read_message_id(data.first_chunk_message_id), last)
    return last


def read_position(data: MessageIdData) -> Position:
    """Ledger and entry of ``data``."""
    return Position(to_signed64(data.ledgerId), to_signed64(data.entryId))


# -- answers and errors


def success(request_id: int) -> BaseCommand:
    """The plain positive answer."""
    return BaseCommand(type=BaseCommand.SUCCESS, success=pb.CommandSuccess(request_id=request_id))


def error(request_id: int, failure: ServerError) -> BaseCommand:
    """The negative answer to any request that has no answer type of its own."""
    body = pb.CommandError(request_id=request_id, error=error_code(failure), message=str(failure))
    return BaseCommand(type=BaseCommand.ERROR, error=body)


def send_error(producer_id: int, sequence_id: int, failure: ServerError) -> BaseCommand:
    """The refusal of one SEND."""
    body = pb.CommandSendError(
        producer_id=producer_id,
        sequence_id=to_unsigned64(sequence_id),
        error=error_code(failure),
        message=str(failure),
    )
    return BaseCommand(type=BaseCommand.SEND_ERROR, send_error=body)


def error_code(failure: ServerError) -> pb.ServerError:
    """The code under which ``failure`` travels; ``base.errors.server_error`` is the way back."""
    return cast("pb.ServerError", failure.code)  # the generated enum is an int that only stubs know as a class


# -- connection


def connect(client_version: str, protocol_version: int) -> BaseCommand:
    """The first command of a client, without authentication. Asks for broker entry metadata."""
    body = pb.CommandConnect(
        client_version=client_version,
        protocol_version=protocol_version,
        auth_method_name="none",
        feature_flags=pb.FeatureFlags(supports_broker_entry_metadata=True),
    )
    return BaseCommand(type=BaseCommand.CONNECT, connect=body)


def connected(server_version: str, protocol_version: int, max_message_size: int) -> BaseCommand:
    """The answer to ``connect``; ``protocol_version`` is the lower of both ends, ``max_message_size`` in bytes."""
    body = pb.CommandConnected(
        server_version=server_version, protocol_version=protocol_version, max_message_size=max_message_size
    )
    return BaseCommand(type=BaseCommand.CONNECTED, connected=body)


def auth_challenge(server_version: str, protocol_version: int, method: str) -> BaseCommand:
    """Asks a client for fresh credentials, by the text that Pulsar's brokers send for that."""
    body = pb.CommandAuthChallenge(
        server_version=server_version,
        protocol_version=protocol_version,
        challenge=pb.AuthData(auth_method_name=method, auth_data=b"PulsarAuthRefresh"),
    )
    return BaseCommand(type=BaseCommand.AUTH_CHALLENGE, authChallenge=body)


def ping() -> BaseCommand:
    """Asks for a sign of life."""
    return BaseCommand(type=BaseCommand.PING, ping=pb.CommandPing())


def pong() -> BaseCommand:
    """The sign of life."""
    return BaseCommand(type=BaseCommand.PONG, pong=pb.CommandPong())


def close_producer(producer_id: int, request_id: int) -> BaseCommand:
    """From a client a request; from a broker, with any request id, news: the client comes back by itself."""
    body = pb.CommandCloseProducer(producer_id=producer_id, request_id=to_unsigned64(request_id))
    return BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=body)


def redeliver(consumer_id: int, positions: Sequence[Position], partition: int) -> Iterator[BaseCommand]:
    """Asks for entries again, whoever gets them then; in several commands where they are many (semantics 4.2.5)."""
    for at in range(0, len(positions), _REDELIVERED_AT_ONCE):
        ids = [message_id(each, partition) for each in positions[at : at + _REDELIVERED_AT_ONCE]]
        yield _redelivery(pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id, message_ids=ids))


def redeliver_all(consumer_id: int, epoch: int) -> BaseCommand:
    """Asks for all again that the consumer has not acknowledged; ``epoch``: of what comes then."""
    return _redelivery(pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id, consumer_epoch=epoch))


def _redelivery(body: pb.CommandRedeliverUnacknowledgedMessages) -> BaseCommand:
    return BaseCommand(type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=body)


def entry_acks(consumer_id: int, entries: Mapping[int, Sequence[int]], partition: int) -> Iterator[pb.CommandAck]:
    """The ACKs of very many whole entries, by ledger, without request ids, made at a fifth of what protobuf takes.

    Each names entries of one ledger. ``partition`` -1: the topic is not partitioned.
    """
    for ledger, numbers in entries.items():
        for at in range(0, len(numbers), ENTRIES_AT_ONCE):
            ack = pb.CommandAck.FromString(ack_ids(ledger, numbers[at : at + ENTRIES_AT_ONCE], partition))
            ack.consumer_id = consumer_id
            ack.ack_type = pb.CommandAck.Individual
            yield ack


def close_consumer(consumer_id: int, request_id: int) -> BaseCommand:
    """As ``close_producer``. A broker uses request id -1, which travels as the largest number."""
    body = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=to_unsigned64(request_id))
    return BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=body)
