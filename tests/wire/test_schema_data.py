# SPDX-License-Identifier: Apache-2.0
"""Large commands without the data of their schema: all else is as it was, and hostile ones cost little."""

from __future__ import annotations

import pytest

from broker_core.base.errors import RemoteProtocolError
from broker_core.wire.large_commands import FIELDS_MAX, give_schema_data, without_schema_data
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSubscribe, Schema

TEXT = b'{"type":"record"}' * 100_000


def a_schema(text: bytes = TEXT) -> Schema:
    return Schema(name="s", schema_data=text, type=Schema.Avro, properties=[{"key": "a", "value": "1"}])


def with_schema(kind: str, text: bytes = TEXT) -> BaseCommand:
    command = BaseCommand(type=kind)
    if kind == "PRODUCER":
        command.producer.topic, command.producer.producer_id, command.producer.request_id = "t", 1, 2
        command.producer.schema.CopyFrom(a_schema(text))
        command.producer.user_provided_producer_name = False  # behind the schema
    elif kind == "SUBSCRIBE":
        command.subscribe.topic, command.subscribe.subscription = "t", "s"
        command.subscribe.subType = CommandSubscribe.Exclusive
        command.subscribe.consumer_id, command.subscribe.request_id = 1, 2
        command.subscribe.schema.CopyFrom(a_schema(text))
        command.subscribe.initialPosition = CommandSubscribe.Earliest
    else:
        command.getOrCreateSchema.request_id, command.getOrCreateSchema.topic = 2, "t"
        command.getOrCreateSchema.schema.CopyFrom(a_schema(text))
    return command


@pytest.mark.parametrize("kind", ["PRODUCER", "SUBSCRIBE", "GET_OR_CREATE_SCHEMA"])
def test_data_is_taken_out_and_put_back(kind: str) -> None:
    """1.3.1: fields before and behind the schema stay, its name and its properties."""
    rest, data = without_schema_data(with_schema(kind).SerializeToString())
    command = BaseCommand.FromString(rest)
    assert command == with_schema(kind, b"")
    give_schema_data(command, data)
    assert command == with_schema(kind)


def test_data_that_is_there_twice_is_read_as_protobuf_reads_it() -> None:
    """1.3.1: the last one counts, wherever it stands."""
    first, second = with_schema("PRODUCER"), BaseCommand(type="PRODUCER")
    second.producer.schema.schema_data = b"last"
    rest, data = without_schema_data(first.SerializePartialToString() + second.SerializePartialToString())
    command = BaseCommand.FromString(rest)
    give_schema_data(command, data)
    assert command == with_schema("PRODUCER", b"last")


def test_a_command_that_brings_no_schema_stays_as_it_is() -> None:
    """Long texts of other commands, and of other fields of these, are not for this module to judge."""
    command = BaseCommand(type=BaseCommand.LOOKUP)
    command.lookupTopic.topic, command.lookupTopic.request_id = "t" * 100_000, 1
    assert without_schema_data(command.SerializeToString()) == (command.SerializeToString(), b"")


def test_a_command_of_very_many_fields_is_refused() -> None:
    """Stepping over millions of them would hold up everybody else."""
    command = with_schema("PRODUCER")
    for _ in range(FIELDS_MAX):
        command.producer.metadata.add(key="", value="")
    with pytest.raises(RemoteProtocolError, match=f"more than {FIELDS_MAX} fields"):
        without_schema_data(command.SerializeToString())


def test_a_command_that_is_cut_anywhere_is_refused_or_read_by_nobody() -> None:
    """No cut makes a command of another meaning."""
    whole = with_schema("PRODUCER", b"text").SerializeToString()
    for end in range(1, len(whole)):
        try:
            without_schema_data(whole[:end])
        except RemoteProtocolError:
            continue
        assert end == 2, "only the type, which is a command of nothing"


def test_a_field_does_not_end_behind_the_message_that_holds_it() -> None:
    """A length that lies is told as such."""
    with pytest.raises(RemoteProtocolError, match="a field has no end"):
        without_schema_data(b"\x08\x05\x2a\x02\x0a\x7f" + b"x" * 200)
