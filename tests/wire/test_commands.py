# SPDX-License-Identifier: Apache-2.0
"""Reading commands from a peer that may send anything, and the constructors."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base import errors
from broker_core.base.errors import RemoteProtocolError, ServerError, TopicNotFoundError, server_error
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, ChunkMessageId, MessageId, Position
from broker_core.wire import commands
from broker_core.wire.frames import encode_command
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

EVERY_CONSTRUCTOR = [
    commands.connect("test", 20),
    commands.connected("test", 20, 5 << 20),
    commands.ping(),
    commands.pong(),
    commands.success(0),
    commands.error(0, TopicNotFoundError("no such topic")),
    commands.send_error(0, -1, errors.ChecksumMismatchError("damaged")),
    commands.close_producer(0, 3),
    commands.close_consumer(0, -1),
]


@pytest.mark.parametrize("command", EVERY_CONSTRUCTOR, ids=commands.command_name)
def test_every_constructor_makes_a_complete_command(command: BaseCommand) -> None:
    """What is built can be framed, and is read back as it was."""
    assert commands.parse_command(encode_command(command)[8:]) == command


def test_ids_of_zero_are_present() -> None:
    """Request, producer and consumer ids start at 0; they are sent nevertheless."""
    assert commands.success(0).success.HasField("request_id")
    assert commands.close_consumer(0, 0).close_consumer.HasField("consumer_id")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x08",
        b"\x08\x63",  # a type that does not exist
        b"\x08\x0d",  # SUCCESS without its message
        b"\x08\x0d\x6a\x00",  # SUCCESS without its request id
        b"\x08\x04\x22\x03\x0a\x01t",  # SUBSCRIBE of a topic alone
        b"\xff" * 20,
    ],
)
def test_an_incomplete_command_is_refused(raw: bytes) -> None:
    """No handler ever sees a command without the field that its type names."""
    with pytest.raises(RemoteProtocolError):
        commands.parse_command(raw)


def test_text_that_is_not_utf8_is_refused() -> None:
    """Names are str everywhere behind this point, also inside nested and repeated fields."""
    lookup = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic="X", request_id=1))
    lookup.lookupTopic.properties.add(key="Y", value="Z")
    raw = lookup.SerializeToString()
    assert commands.parse_command(raw) == lookup
    for letter in (b"X", b"Y", b"Z"):
        with pytest.raises(RemoteProtocolError, match="UTF-8"):
            commands.parse_command(raw.replace(letter, b"\xff"))


@settings(derandomize=True, deadline=None)
@given(st.sampled_from(EVERY_CONSTRUCTOR), st.data())
def test_damaged_commands_are_read_or_refused(command: BaseCommand, data: st.DataObject) -> None:
    """No input leads to anything but a command or a protocol error."""
    raw = bytearray(command.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RemoteProtocolError):
        commands.parse_command(bytes(raw))


@pytest.mark.parametrize(
    "given_id", [MessageId(3, 7), MessageId(3, 7, 2), MessageId(3, 7, 2, 5, 10), MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST]
)
def test_message_ids_come_back(given_id: MessageId) -> None:
    """Earliest and latest are signed numbers in unsigned fields (semantics 1.4.3)."""
    data = commands.message_id(given_id)
    assert commands.read_message_id(data) == given_id
    assert commands.read_position(data) == given_id.position
    assert data.HasField("partition") == (given_id.partition >= 0)
    assert data.HasField("batch_index") == (given_id.batch_index >= 0)


def test_a_position_becomes_an_entry_level_id() -> None:
    """A position has no partition of its own; the topic's is filled in, and the ack set if there is one."""
    data = commands.message_id(Position(1, 2), 4, [-1, 5])
    assert commands.read_message_id(data) == MessageId(1, 2, 4)
    assert list(data.ack_set) == [-1, 5]


@pytest.mark.parametrize("kind", [ServerError, *ServerError.__subclasses__()])
def test_every_error_survives_the_wire(kind: type[ServerError]) -> None:
    """Each class travels as a code of the protocol, and is the same class on the other side."""
    command = commands.error(1, kind("why"))
    assert command.error.error in pb.ServerError.values()
    assert type(server_error(command.error.error, command.error.message)) is kind


def test_every_code_of_the_protocol_has_an_error_class() -> None:
    """The table in ``base.errors`` is total."""
    kinds: list[type[ServerError]] = [ServerError, *ServerError.__subclasses__()]
    assert {kind.code for kind in kinds} == set(pb.ServerError.values())


def test_a_chunked_id_travels_with_its_first_chunk() -> None:
    """5.1.5: serialised, the id is that of the last chunk with an extra "first chunk id"."""
    made = ChunkMessageId.of(MessageId(1, 2, 5), MessageId(1, 9, 5))
    data = commands.message_id(made)
    assert (data.entryId, data.first_chunk_message_id.entryId, data.first_chunk_message_id.partition) == (9, 2, 5)
    again = commands.read_message_id(data)
    assert (again, again.first_chunk) == (made, made.first_chunk)
