# SPDX-License-Identifier: Apache-2.0
"""From entries to messages."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import ChecksumMismatchError, PulsarishError, RemoteProtocolError
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId, Position
from broker_core.client import AsyncClient
from broker_core.client.consuming.unpack import Unpacked, unpack
from broker_core.client.messages.message import Message
from broker_core.client.messages.outgoing import outgoing
from broker_core.client.messages.permits import Permits
from broker_core.client.producing.batching import BatchBuilder, EntryEncoder
from broker_core.wire.commands import read_position
from broker_core.wire.entry import seal_entry
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.helpers import WAIT_S
from tests.client.scenes import flows, run
from tests.client.scripted_broker import ScriptedBroker
from tests.wire.single_frames import broker_entry_prefix

HEAD = MessageHead(0, 7, 3, 2, 0, (), -1)


class FakeSource:
    topic = TopicName.parse("t")
    permits = Permits(1)
    attachments = 0
    attached_s = 0.0

    def taken(self, message: Message) -> None:
        """Nobody tracks here."""

    def flow_later(self, permits: int, attachment: int) -> None:
        """Nobody listens."""


def unpacked(body: bytes, head: MessageHead = HEAD) -> Unpacked:
    return unpack(FakeSource(), head, body)


def shown(messages: list[Message]) -> list[object]:
    return [(m.value, m.key, m.ordering_key, m.properties, m.event_time_ms, m.sequence_id) for m in messages]


fields = st.fixed_dictionaries(
    {},
    optional={
        "key": st.one_of(st.none(), st.text(max_size=9), st.binary(max_size=9)),
        "ordering_key": st.one_of(st.none(), st.binary(max_size=9)),
        "properties": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
        "event_time_ms": st.integers(-(2**63), 2**63 - 1),
    },
)


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.binary(max_size=300)), fields), min_size=1, max_size=20),
    st.integers(0, 4),
    st.integers(0, 2**40),
)
def test_what_is_batched_is_unpacked(
    messages: list[tuple[bytes | None, dict[str, object]]], codec: int, first: int
) -> None:
    """Every field comes back, for batches of any size and every codec."""
    encoder = EntryEncoder(codec)
    encoder.producer_name = "p"
    builder = BatchBuilder(encoder, 1000, 1 << 20)
    for number, (value, given_fields) in enumerate(messages):
        builder.add(outgoing(value, **given_fields), first + number, None)  # type: ignore[arg-type]
    (batch,) = builder.take_all(1_700_000_000_000)
    assert builder.take_all(1_700_000_000_000) == []
    assert (batch.messages, batch.sequence_id) == (len(messages), first)
    assert batch.highest_sequence_id == (first + len(messages) - 1 if len(messages) > 1 else -1)
    entry = unpacked(batch.body)
    assert shown(entry.messages) == [
        (
            value,
            given_fields.get("key"),
            given_fields.get("ordering_key"),
            given_fields.get("properties") or {},
            given_fields.get("event_time_ms", 0),
            first + number,
        )
        for number, (value, given_fields) in enumerate(messages)
    ]
    assert all(m.publish_time_ms == 1_700_000_000_000 and m.producer_name == "p" for m in entry.messages)


def batch_of(count: int, **metadata: object) -> bytes:
    """A batch of numbered messages, without sequence ids of their own."""
    members = []
    for number in range(count):
        value = str(number).encode()
        single = pb.SingleMessageMetadata(payload_size=len(value), compacted_out=number == 3).SerializeToString()
        members += [struct.pack(">I", len(single)), single, value]
    whole = pb.MessageMetadata(
        producer_name="p",
        sequence_id=50,
        publish_time=1,
        num_messages_in_batch=count,
        **metadata,  # type: ignore[arg-type]
    )
    return seal_entry(whole.SerializeToString(), b"".join(members))


def test_ids_and_indexes_count_within_the_batch() -> None:
    """The broker's index is that of the last message; ids carry batch index and size; compacted messages are gone."""
    entry = unpacked(broker_entry_prefix(123, 1009) + batch_of(10))
    assert [m.message_id for m in entry.messages] == [MessageId(7, 3, 2, i, 10) for i in range(10) if i != 3]
    assert [m.index for m in entry.messages] == [1000 + i for i in range(10) if i != 3]
    assert [m.sequence_id for m in entry.messages] == [50 + i for i in range(10) if i != 3]
    assert {m.broker_time_ms for m in entry.messages} == {123}
    assert (entry.charged, entry.batch_size) == (10, 10)


def test_acknowledged_messages_of_a_batch_are_left_out_and_cost_nothing() -> None:
    """3.6.6 the ack set of a delivery hides messages, and their permits are not charged."""
    entry = unpacked(batch_of(70), HEAD._replace(ack_set=(0b1001, 0b100000)))
    assert [m.message_id.batch_index for m in entry.messages] == [0, 69]
    assert entry.remaining == 1 | 1 << 69
    assert entry.charged == 3  # the broker counts what compaction has left out


def test_a_batch_of_one_is_a_batch() -> None:
    """num_messages_in_batch present, even as 1, means that the payload is a batch."""
    entry = unpacked(batch_of(1))
    assert [(m.value, m.message_id.batch_size) for m in entry.messages] == [(b"0", 1)]


@given(st.data())
def test_damage_is_found_or_harmless(data: st.DataObject) -> None:
    """A changed byte is a checksum error; under a right checksum it is refused or gives messages, no crash."""
    body = bytearray(batch_of(5))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((ChecksumMismatchError, RemoteProtocolError)):
        unpacked(bytes(body))
    if at >= 6:
        inner = bytes(body[6:])
        size = struct.unpack(">I", inner[:4])[0]
        if size <= len(inner) - 4:
            with contextlib.suppress(PulsarishError):
                entry = unpacked(seal_entry(inner[4 : 4 + size], inner[4 + size :]))
                assert len(entry.messages) <= max(entry.batch_size, 1)


@pytest.mark.parametrize("count", [0, -1, 2_000_000])
def test_absurd_counts_are_refused(count: int) -> None:
    """A batch cannot claim more messages than an entry can hold."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=count)
    with pytest.raises(RemoteProtocolError, match=f"entry 7:3: it states {count} messages"):
        unpacked(seal_entry(metadata.SerializeToString(), b""))


def test_a_payload_of_an_unknown_codec_is_not_shown_as_if_it_were_plain() -> None:
    """1.5: protobuf's runtime drops a number that its list of codecs does not have."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString()
    with pytest.raises(RemoteProtocolError, match="entry 7:3: compression 99 is not one that this version knows"):
        unpacked(seal_entry(metadata + b"\x40\x63", b"squeezed"))


def test_a_batch_that_cannot_be_shown_gives_all_its_permits_back() -> None:
    """4.1.8 (I4.1): the broker took one for each message of it that was open, so the consumer would starve."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=4)
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=4)
        for entry in range(2):
            broker.peers[0].deliver(entry, seal_entry(metadata.SerializeToString(), b"no batch"))
            with pytest.raises(RemoteProtocolError, match=f"entry 1:{entry}"):
                await consumer.receive(WAIT_S)
        await broker.until(lambda: sum(flows(broker)) == 4 + 3 + 4)  # one of each is owed

    run(play)


@pytest.mark.parametrize("cumulative", [False, True])
def test_a_batch_is_acknowledged_without_what_compaction_left_out(cumulative: bool) -> None:
    """3.1.5, 3.4.3 nobody is shown it, so nobody could acknowledge it, and the entry stayed in the backlog for ever."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", read_compacted=True, acknowledgment_group_time_s=0)
        peer = broker.peers[0]
        peer.deliver(0, batch_of(4))  # of which the last one is left out
        messages = [await consumer.receive(WAIT_S) for _ in range(3)]
        for message in messages[:-1]:
            await consumer.acknowledge(message)
        await (consumer.acknowledge_cumulative if cumulative else consumer.acknowledge)(messages[-1])
        await broker.until(lambda: peer.count(BaseCommand.ACK) > 0)
        await client.partitions("t")  # behind which no more comes
        last = [each.ack for each in peer.received if each.type == BaseCommand.ACK][-1]
        assert [(read_position(each), list(each.ack_set)) for each in last.message_id] == [(Position(1, 0), [])]

    run(play)
