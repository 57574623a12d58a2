# SPDX-License-Identifier: Apache-2.0
"""Reading and writing whole entries, probes and cursors, on both servers."""

import json
import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from broker_core.base.errors import (
    AlreadyClosedError,
    ConsumerBusyError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
    UnsupportedVersionError,
    UsageError,
)
from broker_core.base.hashing import partition_of_key
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.client import Client, EntryReader, Span
from broker_core.client.columnar.entry_counting import EntryCount
from broker_core.client.columnar.entry_reader import EARLY_PERMITS
from broker_core.wire.batch import decode_entries, lies_in_block
from broker_core.wire.entry import EntryRef, verify_entry
from tests.client.conftest import Service
from tests.client.helpers import assert_nothing_comes, eventually, numbered, send, take, values


def read_all(reader: EntryReader) -> list[EntryRef]:
    with reader:
        return [entry for entries in reader for entry in entries]


def behind(client: Client, topic: str) -> Position:
    """The position behind the last entry."""
    last = client.last_entry(topic).position
    return Position(last.ledger, last.entry + 1)


def at(entry: EntryRef) -> Position:
    return Position(entry.ledger, entry.entry)


def texts(entries: list[EntryRef]) -> list[str]:
    return [value.decode() for value in decode_entries(entries, ["value"])["value"].to_pylist()]


def test_a_range_is_read_exactly(service: Service, client: Client, topic: str) -> None:
    """[start, end): begins AT the start, ends before the end; indexes are those of the last messages."""
    send(client, topic, 100)
    whole = read_all(client.read_entries(topic, POSITION_EARLIEST, behind(client, topic)))
    assert texts(whole) == numbered(0, 100)
    if service.tells_indexes:
        assert [entry.index for entry in whole] == list(range(9, 100, 10))
        assert all(entry.broker_timestamp > 0 for entry in whole)
    reader = client.read_entries(topic, at(whole[3]), at(whole[7]))
    part = read_all(reader)
    assert texts(part) == numbered(30, 70)
    assert (reader.first_position, reader.next_position) == (at(whole[3]), at(whole[7]))
    assert not reader.ended_early


def test_an_empty_range_is_empty_at_once(client: Client, topic: str) -> None:
    """No subscription is made for nothing."""
    send(client, topic, 10)
    end = behind(client, topic)
    assert read_all(client.read_entries(topic, end, end)) == []


def test_a_range_ends_where_the_topic_ends(client: Client, topic: str) -> None:
    """An end that does not exist (yet) is no reason to wait for ever, and the reader says that it ended early."""
    send(client, topic, 30)
    end = behind(client, topic)
    reader = client.read_entries(topic, POSITION_EARLIEST, Position(end.ledger + 7, 3))
    assert texts(read_all(reader)) == numbered(0, 30)
    assert reader.ended_early
    assert reader.next_position == end
    nothing = client.read_entries(topic, end, Position(end.ledger, end.entry + 5))
    assert read_all(nothing) == []
    assert nothing.first_position is None


def test_reading_waits_for_what_comes(client: Client, topic: str) -> None:
    """Without an end the reader goes on with new entries, until it is closed."""
    send(client, topic, 10)
    reader = client.read_entries(topic, POSITION_EARLIEST, None)
    lists = iter(reader)
    assert texts(next(lists)) == numbered(0, 10)
    send(client, topic, 10, first=10)
    assert texts(next(lists)) == numbered(10, 20)
    reader.close()
    with pytest.raises(AlreadyClosedError):
        next(lists)


def test_a_small_buffer_and_few_permits_lose_nothing(client: Client, topic: str) -> None:
    """The connection is paused while the buffer is full; permits that run out are topped up."""
    with client.create_producer(topic, batching_max_messages=10) as producer:
        for number in range(300):
            producer.send_async(f"m{number}" + " " * 50_000)
    reader = client.read_entries(
        topic, POSITION_EARLIEST, behind(client, topic), buffer_bytes_max=1000, messages_expected=50
    )
    assert [text.strip() for text in texts(read_all(reader))] == numbered(0, 300)


def test_entries_that_are_kept_stay_as_they_came(client: Client, topic: str) -> None:
    """Of all sizes, so that they lie across blocks of memory; what comes later must not be written over them."""
    noise = random.Random(7)
    sizes = [noise.choice([10, 3000, 17_000, 150_000, 900_000, 3_000_000]) for _ in range(60)]
    wanted = [b"%06d" % number + noise.randbytes(size) for number, size in enumerate(sizes)]
    with client.create_producer(topic, batching_enabled=False) as producer:
        for value in wanted:
            producer.send_async(value)
    kept = read_all(client.read_entries(topic, POSITION_EARLIEST, behind(client, topic), buffer_bytes_max=2_000_000))
    assert any(lies_in_block(entry.body) for entry in kept)
    for entry in kept:
        verify_entry(entry.body)
    assert [decode_entries([entry], ["value"])["value"][0].as_py() for entry in kept] == wanted
    assert decode_entries(kept, ["value"])["value"].to_pylist() == wanted


def test_a_broker_that_knows_how_many_are_expected_sends_hardly_more(
    service: Service, client: Client, topic: str
) -> None:
    """What is on its way beyond the end of a range was read and sent for nothing."""
    send(client, topic, 5000)
    whole = read_all(client.read_entries(topic, POSITION_EARLIEST, behind(client, topic)))

    def sent() -> int:
        return int(json.loads(service.admin("GET", f"{topic.replace('://', '/')}/stats"))["msgOutCounter"])

    before = sent()
    reader = client.read_entries(topic, at(whole[0]), at(whole[19]), messages_expected=190)
    assert texts(read_all(reader)) == numbered(0, 190)
    assert sent() - before <= 190 + EARLY_PERMITS + 10


def test_the_first_entry_at_a_position_may_be_in_a_later_ledger(service: Service, client: Client, topic: str) -> None:
    """A probe beyond a ledger's end gives the first entry of the next ledger; behind the last one there is nothing."""
    send(client, topic, 30)
    old = client.last_entry(topic)
    service.admin("PUT", f"{topic.replace('://', '/')}/unload")
    send(client, topic, 20, first=30)
    new = client.last_entry(topic)
    assert new.position.ledger > old.position.ledger
    first = client.first_entry_at(topic, POSITION_EARLIEST)
    found = client.first_entry_at(topic, Position(old.position.ledger, old.position.entry + 1))
    assert first is not None
    assert found is not None
    assert (texts([first])[0], texts([found])[0]) == ("m0", "m30")
    assert at(found) == Position(new.position.ledger, 0)
    assert client.first_entry_at(topic, behind(client, topic)) is None
    whole = read_all(client.read_entries(topic, POSITION_EARLIEST, behind(client, topic)))
    assert texts(whole) == numbered(0, 50)
    if service.tells_indexes:
        places = {index: client.position_of_index(topic, index, at(first), new.position) for index in range(50)}
        assert places == {index: at(whole[index // 10]) for index in range(50)}


def test_what_lies_before_and_behind_a_position_is_told_over_ledgers(
    service: Service, client: Client, topic: str
) -> None:
    """How long a ledger became that is not written any more; -1 where nothing was ever before."""
    send(client, topic, 30)
    service.admin("PUT", f"{topic.replace('://', '/')}/unload")
    send(client, topic, 20, first=30)
    first = client.first_entry_at(topic, POSITION_EARLIEST)
    last = client.last_entry(topic).position
    assert first is not None
    end_of_first = Position(first.ledger, 2)
    for position in (Position(first.ledger, 3), Position(first.ledger, 2**62), Position(last.ledger, 0)):
        before, behind_it = client.bounds_at(topic, position)
        assert behind_it is not None
        assert (before, at(behind_it)) == (end_of_first, Position(last.ledger, 0))
    assert client.bounds_at(topic, Position(last.ledger, last.entry + 1)) == (last, None)
    assert client.bounds_at(topic, POSITION_EARLIEST).before.entry == -1


def test_who_asked_for_the_end_is_soon_gone(service: Service, client: Client, topic: str) -> None:
    """The reader that asks is a subscription that tools show, and its backlog would grow."""
    send(client, topic, 1)

    def subscriptions() -> dict[str, object]:
        stats = json.loads(service.admin("GET", f"{topic.replace('://', '/')}/stats"))
        return dict(stats["subscriptions"])

    for _ in range(2):
        assert client.last_entry(topic).messages == 1
        eventually(lambda: not subscriptions(), "the reader that asked for the end has left")


def test_the_last_entry_tells_position_index_and_messages(service: Service, client: Client, topic: str) -> None:
    """Entry -1 for an empty topic; index of the last message where the broker tells it."""
    client.create_producer(topic).close()
    assert client.last_entry(topic).position.entry == -1
    send(client, topic, 25)
    last = client.last_entry(topic)
    assert (last.position.entry, last.messages) == (2, 5)
    assert last.index == (24 if service.tells_indexes else -1)
    send(client, topic, 1, batched=False)
    assert (client.last_entry(topic).messages, client.last_entry(topic).position.entry) == (1, 3)
    assert client.last_entries([topic, topic]) == [client.last_entry(topic)] * 2
    assert client.last_entries([]) == []


def test_an_index_is_found_between_positions(service: Service, client: Client, topic: str) -> None:
    """position_of_index: inside, before and behind the range; a broker without indexes is named as the reason."""
    send(client, topic, 95)
    first = client.first_entry_at(topic, POSITION_EARLIEST)
    assert first is not None
    low, end = at(first), behind(client, topic)
    if not service.tells_indexes:
        with pytest.raises(UnsupportedVersionError, match="does not tell message indexes"):
            client.position_of_index(topic, 3, low, end)
        return
    assert [client.position_of_index(topic, index, low, end).entry for index in (0, 9, 10, 50, 89, 94)] == [
        0, 0, 1, 5, 8, 9,
    ]  # fmt: skip
    assert client.position_of_index(topic, 3, Position(low.ledger, 4), end).entry == 4
    with pytest.raises(UsageError, match="message 95"):
        client.position_of_index(topic, 95, low, end)


ROWS = pa.record_batch(
    {
        "key": pa.array([None if number % 5 == 4 else f"k{number % 5}" for number in range(5000)]),
        "value": pa.array([f"v{number}".encode() if number % 7 else None for number in range(5000)], pa.binary()),
        "ordering_key": pa.array([b"o"] * 5000, pa.binary()),
        "properties": pa.array([[("n", str(number))] for number in range(5000)], pa.map_(pa.string(), pa.string())),
        "event_time": pa.array([1_700_000_000_000 + number for number in range(5000)], pa.timestamp("ms", "UTC")),
    }
)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_rows_are_messages(service: Service, client: Client, topic: str, compression: str) -> None:
    """Rows written in bulk are what consumers get one by one: every column, each key on its partition, in order."""
    service.create_partitioned(topic, 3)
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    with client.write_rows(topic, compression=compression, batching_max_messages=100) as writer:  # type: ignore[arg-type]
        writer.write(ROWS.slice(0, 1))
        writer.write(ROWS.slice(1, 3000))
        writer.write(ROWS.slice(0, 0))
        writer.write(ROWS.slice(3001))
        writer.flush()
        assert (writer.rows_written, writer.rows_confirmed) == (5000, 5000)
    messages = take(consumer, 5000)
    assert [message.message_id.partition for message in messages if message.key] == [
        partition_of_key(str(message.key), 3) for message in messages if message.key
    ]
    by_number = sorted(messages, key=lambda message: int(message.properties["n"]))
    for number, (message, row) in enumerate(zip(by_number, ROWS.to_pylist(), strict=True)):
        assert (message.key, message.value, message.ordering_key) == (row["key"], row["value"], b"o")
        assert message.event_time_ms == 1_700_000_000_000 + number
    for partition in range(3):
        numbers = [int(each.properties["n"]) for each in messages if each.message_id.partition == partition]
        assert numbers == sorted(numbers)


def test_rows_that_cannot_be_sent_are_refused_whole(client: Client, topic: str) -> None:
    """UsageError before anything of the batch is sent; the writer goes on."""
    with client.write_rows(topic) as writer:
        with pytest.raises(UsageError, match="row 1"):
            writer.write(pa.record_batch({"value": pa.array([b"ok", b"x" * (6 * 1024 * 1024)])}))
        writer.write(pa.record_batch({"value": pa.array([b"fine"])}))
        writer.flush()
        assert writer.rows_confirmed == 1
    assert values(take(client.create_reader(topic), 1)) == ["fine"]


def test_a_cursor_is_acknowledged_without_being_read(client: Client, topic: str) -> None:
    """open_cursor: acks are in force when they return, and the subscription is then an ordinary one."""
    send(client, topic, 50)
    entries = read_all(client.read_entries(topic, POSITION_EARLIEST, behind(client, topic)))
    with client.open_cursor(topic, "job") as cursor:
        cursor.ack_through(at(entries[1]))
        cursor.ack_through(at(entries[0]))
        assert cursor.mark_delete() == at(entries[1])
        with pytest.raises(ConsumerBusyError, match=r"'job'.*in use.*another subscription name"):
            client.open_cursor(topic, "job")
    with client.subscribe(topic, "job") as consumer:
        assert values(take(consumer, 30)) == numbered(20, 50)
    with client.open_cursor(topic, "job", at(entries[4])) as cursor:
        assert cursor.mark_delete() == at(entries[1])
        acks = [cursor.start_ack(at(entry)) for entry in entries[2:5]]
        assert [ack.result() for ack in acks] == [None] * 3
        assert cursor.mark_delete() == at(entries[4])
    assert_nothing_comes(client.subscribe(topic, "job"))


def test_a_new_cursor_begins_where_it_is_told(service: Service, client: Client, new_topic: Callable[[], str]) -> None:
    """A position, also one at the begin of a later ledger: the entry there is the first unacknowledged one."""
    topic = new_topic()
    send(client, topic, 30)
    service.admin("PUT", f"{topic.replace('://', '/')}/unload")
    send(client, topic, 20, first=30)
    entries = read_all(client.read_entries(topic, POSITION_EARLIEST, behind(client, topic)))
    for number in (0, 2, 3, 4):
        name = f"from-{number}"
        client.open_cursor(topic, name, at(entries[number])).close()
        with client.subscribe(topic, name) as consumer:
            assert values(take(consumer, 50 - 10 * number)) == numbered(10 * number, 50)
    client.open_cursor(topic, "end", behind(client, topic)).close()
    assert_nothing_comes(client.subscribe(topic, "end"))


def test_a_cursor_does_not_make_what_was_deleted_anew(
    service: Service, client: Client, new_topic: Callable[[], str]
) -> None:
    """Whoever follows a checkpoint must learn that nothing has kept its data: SUBSCRIBE makes what is missing."""
    topic = new_topic()
    path = topic.replace("://", "/")
    with pytest.raises(TopicNotFoundError):
        client.open_cursor(topic, "job")
    send(client, topic, 10)
    with pytest.raises(SubscriptionNotFoundError, match=r"'job'.*does not exist"):
        client.open_cursor(topic, "job", must_exist=True)
    client.open_cursor(topic, "job").close()
    with client.open_cursor(topic, "job", must_exist=True) as cursor:
        service.admin("PUT", f"{path}/unload")
        assert cursor.mark_delete() is not None
        assert cursor.failure is None
        service.admin("DELETE", f"{path}/subscription/job?force=true")
        with pytest.raises(SubscriptionNotFoundError):
            cursor.mark_delete()
        assert isinstance(cursor.failure, SubscriptionNotFoundError)
        assert json.loads(service.admin("GET", f"{path}/subscriptions")) == []


def test_what_a_broker_forgets_of_a_cursor_can_be_acknowledged_again(
    service: Service, client: Client, new_topic: Callable[[], str]
) -> None:
    """Apache Pulsar now and then forgets the last confirmed acknowledgement when it unloads a topic. The owner sees
    that the cursor was attached anew; the cursor itself repeats nothing, for the log may be another one."""
    topic = new_topic()
    send(client, topic, 20)
    entries = read_all(client.read_entries(topic, POSITION_EARLIEST, behind(client, topic)))
    with client.open_cursor(topic, "job") as cursor:
        cursor.ack_through(at(entries[-1]))
        service.admin("POST", f"{topic.replace('://', '/')}/subscription/job/resetcursor/0")
        eventually(lambda: cursor.session == 2, "the cursor is attached anew")
        assert cursor.mark_delete() != at(entries[-1])
        cursor.ack_through(at(entries[-1]))
        assert cursor.mark_delete() == at(entries[-1])


def test_topics_and_partitions_are_told(service: Service, client: Client, new_topic: Callable[[], str]) -> None:
    """partitions, partition_names, topics_of; asking does not create."""
    plain, parted, missing = new_topic(), new_topic(), new_topic()
    client.create_producer(plain).close()
    service.create_partitioned(parted, 2)
    assert (client.partitions(plain), client.partitions(parted), client.partitions(missing)) == (0, 2, 0)
    assert client.partition_names(parted) == [f"{parted}-partition-0", f"{parted}-partition-1"]
    assert client.partition_names(plain) == [plain]
    client.create_producer(parted).close()
    topics = client.topics_of("public/default")
    assert topics == sorted(topics)
    assert {plain, f"{parted}-partition-0", f"{parted}-partition-1"} <= set(topics)
    assert missing not in topics


def spans(client: Client, topic: str, **bounds: int) -> Span:
    """All that a topic holds, with these bounds and no others."""
    free = {"messages_max": 2**62, "entries_max": 2**62, "bytes_max": 2**62} | bounds
    first = client.first_entry_at(topic, POSITION_EARLIEST)
    assert first is not None
    return Span(topic, at(first), behind(client, topic), free["messages_max"], free["entries_max"], free["bytes_max"])


def test_messages_are_counted_entry_by_entry_over_ledgers(service: Service, client: Client, topic: str) -> None:
    """Single messages and batches; the positions are those of the entries."""
    send(client, topic, 25)
    service.admin("PUT", f"{topic.replace('://', '/')}/unload")
    send(client, topic, 3, batched=False)
    (whole,) = client.count_entries([spans(client, topic)])
    assert list(whole.sums) == [10, 20, 25, 26, 27, 28]
    assert list(whole.positions) == [
        at(entry) for entry in read_all(client.read_entries(topic, POSITION_EARLIEST, behind(client, topic)))
    ]
    assert whole.is_whole
    assert client.count_entries([]) == []


def test_a_count_ends_with_the_entry_that_reaches_a_bound(service: Service, client: Client, topic: str) -> None:
    """So that the driver of a query reads no more than it may; several counts run at once."""
    send(client, topic, 300)
    send(client, topic, 300, batched=False)
    asked = [
        spans(client, topic, messages_max=15),
        spans(client, topic, entries_max=40),
        spans(client, topic, bytes_max=1),
        spans(client, topic, messages_max=450),
    ]
    found = client.count_entries(asked)
    assert [(counted.messages, len(counted.sums)) for counted in found] == [(20, 2), (310, 40), (10, 1), (450, 180)]
    assert not any(counted.is_whole for counted in found)


def test_a_count_sends_hardly_more_than_it_counts(service: Service, client: Client, topic: str) -> None:
    """Permits follow the sizes that are seen."""
    send(client, topic, 5000, batched=False)

    def sent() -> int:
        return int(json.loads(service.admin("GET", f"{topic.replace('://', '/')}/stats"))["msgOutCounter"])

    asked = spans(client, topic, messages_max=100)
    before = sent()
    assert client.count_entries([asked])[0].messages == 100
    assert sent() - before <= 200


def test_a_count_goes_on_where_its_connection_was_lost(
    service: Service, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each entry is counted once."""
    send(client, topic, 200, batched=False)
    note = EntryCount._note
    lost: list[Position] = []

    def noted(count: EntryCount, position: Position, body: bytes) -> None:
        note(count, position, body)
        if len(count._sums) == 50 and not lost:
            lost.append(position)
            assert count._connection is not None
            count._connection.close()

    monkeypatch.setattr(EntryCount, "_note", noted)
    (counted,) = client.count_entries([spans(client, topic)])
    assert lost
    assert list(counted.sums) == list(range(1, 201))
