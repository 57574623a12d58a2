# SPDX-License-Identifier: Apache-2.0
"""Commands of very many message ids, cut into short ones: together they say the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.errors import RemoteProtocolError
from broker_core.base.limits import BATCH_MESSAGES_MAX
from broker_core.wire.large_commands import IDS_A_PIECE, LONG_FROM_BYTES, LongList
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandAck


def found(command: bytes) -> LongList:
    """Read to its end."""
    long = LongList.of(command)
    assert long is not None
    for _ in long.find():
        pass
    return long


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    ids=st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.lists(st.integers(-5, 2**62), max_size=3)),
        min_size=1,
        max_size=20,
    ),
    ack=st.booleans(),
)
def test_the_short_commands_name_the_same_messages_in_the_same_order(
    ids: list[tuple[int, int, list[int]]], ack: bool
) -> None:
    """Whatever the ids hold, and with everything else that the long command has in each of them."""
    command = BaseCommand(type=BaseCommand.ACK if ack else BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    if ack:
        command.ack.consumer_id, command.ack.ack_type, command.ack.request_id = 7, CommandAck.Individual, 9
    else:
        command.redeliverUnacknowledgedMessages.consumer_id = 7
    ids = ids * (LONG_FROM_BYTES // 6 // len(ids) + 1)  # the shortest takes 6 bytes
    for ledger, entry, words in ids:
        target = command.ack.message_id if ack else command.redeliverUnacknowledgedMessages.message_ids
        target.add(ledgerId=ledger, entryId=entry).ack_set.extend(words)
    long = found(command.SerializeToString())
    assert (long.ids, long.is_ack) == (len(ids), ack)
    merged = BaseCommand()
    pieces = list(long.commands())
    for piece, _is_last in pieces:
        short = BaseCommand.FromString(piece)
        named = short.ack.message_id if ack else short.redeliverUnacknowledgedMessages.message_ids
        assert len(named) <= IDS_A_PIECE
        merged.MergeFrom(short)
    assert merged == command
    assert [is_last for _, is_last in pieces] == [False] * (len(pieces) - 1) + [True]


@pytest.mark.parametrize("odd_at", [0, IDS_A_PIECE - 1, IDS_A_PIECE, 3 * IDS_A_PIECE + 1])
def test_an_unusual_id_among_usual_ones_keeps_its_place(odd_at: int) -> None:
    """Most ids have no ack set, and a piece of them is found at once. One that has keeps its neighbours."""
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id, command.ack.ack_type = 7, CommandAck.Individual
    for entry in range(LONG_FROM_BYTES // 4):
        command.ack.message_id.add(ledgerId=1, entryId=entry, partition=-1)
    command.ack.message_id[odd_at].ack_set.extend(range(100))
    merged = BaseCommand()
    for piece, _ in found(command.SerializeToString()).commands():
        merged.MergeFrom(BaseCommand.FromString(piece))
    assert merged == command


def test_words_that_no_batch_reaches_are_left_out() -> None:
    """The rest of such an id stays what it is, and its neighbours too."""
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id, command.ack.ack_type = 7, CommandAck.Individual
    for entry in range(3):
        command.ack.message_id.add(ledgerId=1, entryId=entry, partition=2)
    command.ack.message_id[1].ack_set.extend(range(200_000))
    merged = BaseCommand()
    for piece, _ in found(command.SerializeToString()).commands():
        assert len(piece) < 200_000
        merged.MergeFrom(BaseCommand.FromString(piece))
    del command.ack.message_id[1].ack_set[BATCH_MESSAGES_MAX // 64 + 1 :]
    assert merged == command


def test_short_commands_and_others_are_left_alone() -> None:
    """They are read as a whole."""
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id, command.ack.ack_type = 7, CommandAck.Individual
    assert LongList.of(command.SerializeToString()) is None
    lookup = BaseCommand(type=BaseCommand.LOOKUP)
    lookup.lookupTopic.topic, lookup.lookupTopic.request_id = "x" * LONG_FROM_BYTES, 1
    assert LongList.of(lookup.SerializeToString()) is None


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * LONG_FROM_BYTES,
        b"\x90\x80\x01" + b"\x1a\x7f" * (LONG_FROM_BYTES // 2),
        b"\x80\x80\x01" + b"\x1f" * LONG_FROM_BYTES,
        b"\x84\x80\x01" + b"\x2a\x02ab" * (LONG_FROM_BYTES // 4),
        b"\x80\x80\x01" + b"\x1a\xff\xff\x03" + b"\x12" * (LONG_FROM_BYTES - 4),
    ],
)
def test_what_cannot_be_read_is_refused(content: bytes) -> None:
    """Sizes that do not fit, unknown kinds of fields, too much beside the ids."""
    with pytest.raises(RemoteProtocolError):
        found(b"\x08\x0a\x52" + content)
