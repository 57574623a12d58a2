# SPDX-License-Identifier: Apache-2.0
"""Compaction by the numbers of its specification: which messages a view has, and what readers of it see."""

from __future__ import annotations

import tracemalloc

import pytest

from broker_core.base.errors import NotAllowedError
from broker_core.base.positions import POSITION_EARLIEST
from broker_core.broker.compaction import entry_keys
from broker_core.broker.compaction.chunk_groups import UNFINISHED_MS
from broker_core.broker.compaction.entry_keys import LARGE_BYTES
from broker_core.broker.compaction.topic_compaction import Status
from broker_core.broker.requests import SubscriptionType
from broker_core.broker.sinks import Delivery
from broker_core.storage.topic_log import TopicLog
from broker_core.wire.compression import CODECS
from broker_core.wire.entry import read_metadata, seal_entry, split_entry
from broker_core.wire.proto.pulsar_api_pb2 import LZ4, MessageMetadata
from tests.broker.compacted import Table, batch, chunks, single
from tests.broker.world import FAILOVER, LATEST, SHARED, YEAR_MS, ack_through

FIRST = "a=1 b=1 a=2 c=1 b="


def test_the_last_message_of_each_key_is_kept() -> None:
    """7.4.1: a reader gets the view, and what it is told to be the last id is in it; others see the log."""
    table = Table()
    table.put(FIRST)
    table.compact()
    assert table.horizon == 4
    assert table.view() == table.read() == "2:a=2 3:c=1"
    assert table.last_id() == 3
    assert table.read(compacted=False) == "0:a=1 1:b=1 2:a=2 3:c=1 4:b="
    assert table.last_id(compacted=False) == 4


def test_what_came_after_the_view_is_read_from_the_log() -> None:
    """7.4.7: values behind the horizon come after those of the view, tombstones too, until they are compacted."""
    table = Table()
    table.put(FIRST)
    table.compact()
    table.put("d=1 a=")
    assert table.read() == "2:a=2 3:c=1 5:d=1 6:a="
    assert table.last_id() == 6
    table.compact()
    assert table.horizon == 6
    assert table.read() == "3:c=1 5:d=1"
    assert table.last_id() == 5


def test_the_view_outlives_the_log() -> None:
    """7.4.7, 7.4.10: entries that are deleted from the log stay in the view, and readers begin anywhere in it."""
    table = Table()
    table.put(FIRST)
    table.compact()
    table.put("d=1 a=")
    table.compact()
    table.trim()
    assert table.topic.log.entries_count == 0
    assert table.read() == "3:c=1 5:d=1"
    assert table.read(start=table.sent[4]) == "5:d=1"
    assert table.read(start=table.sent[3]) == "3:c=1 5:d=1"
    consumer, mailbox = table.reader()
    table.seen(mailbox)
    consumer.seek(table.sent[3], None, lambda error: None)
    table.world.settle()
    assert mailbox.closed
    again, mailbox = table.world.subscribe(subscription="r4", durable=False, read_compacted=True)
    assert table.seen(mailbox) == "3:c=1 5:d=1"
    assert table.read(compacted=False) == ""
    assert table.last_id(compacted=False) == -1
    again.close()


@pytest.mark.parametrize(("keep", "view"), [(False, "1:a=1"), (True, "0:-=x 1:a=1 2:-=y")])
def test_messages_without_a_key_are_kept_by_setting(keep: bool, view: str) -> None:
    """7.4.2: topicCompactionRetainNullKey keeps all of them, in order."""
    table = Table(topic_compaction_retain_null_key=keep)
    table.put("-=x a=1 -=y")
    table.compact()
    assert table.view() == view


def test_a_reader_at_the_latest_message() -> None:
    """7.4.8: the last message may be in the view: its id is asked for, and sought; exclusively only new ones come."""
    table = Table()
    table.put(FIRST)
    table.compact()
    consumer, _ = table.reader(initial_position=LATEST)
    last = consumer.last_message_id().position
    assert table.number(last) == 3
    consumer.seek(last, None, lambda error: None)
    table.world.settle()
    _, mailbox = table.world.subscribe(subscription="r1", durable=False, read_compacted=True)
    assert table.seen(mailbox) == "3:c=1"
    _, fresh = table.reader(initial_position=LATEST)
    table.put("e=1")
    assert table.seen(fresh) == "5:e=1"


def test_a_view_may_be_empty() -> None:
    """7.4.8: nothing is left where all keys were deleted, and a reader is told so."""
    table = Table()
    table.put("a=1 a=")
    table.compact()
    assert table.horizon == 1
    assert table.read() == ""
    assert table.last_id() == -1
    assert table.topic.compaction.view.number == 0
    table.put("a=3")
    assert table.read() == "2:a=3"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("keep", "kept"), [(False, [2]), (True, [2, 3])])
def test_batches_are_rewritten(codec: str, keep: bool, kept: list[int]) -> None:
    """7.4.3: messages that are left out stay in their places without payload; the count stays as it was."""
    table = Table(topic_compaction_retain_null_key=keep)
    table.put("x=1 x=")  # other entries before it, so that no number is right by chance
    table.put_batch("k1=a k2=b k1=c -=d k3=", codec)
    table.put("k2=e")
    table.compact()
    texts = {2: "2.2:k1=c", 3: "2.3:-=d"}
    assert table.view() == " ".join([*(texts[each] for each in kept), "3:k2=e"])
    entry = table.topic.compaction.view.entry(table.sent[2])
    metadata = read_metadata(entry.body)
    assert list(metadata.compacted_batch_indexes) == kept
    assert (metadata.num_messages_in_batch, metadata.compression, entry.messages) == (5, CODECS[codec], 5)


def test_the_last_id_is_the_last_message_that_is_kept_of_a_batch() -> None:
    """7.4.8: of a rewritten batch the greatest index that was kept."""
    table = Table()
    table.put_batch("a=1 b=1 a=2 c=1")
    table.put("c=")
    table.compact()
    consumer, _ = table.reader(permits=0)
    last = consumer.last_message_id()
    assert (table.number(last.position), last.batch_size - 1) == (0, 2)


def test_batches_that_need_no_change_stay_as_they_are() -> None:
    """7.4.3: a rewritten batch is compacted again, message by message, and one of which all is kept is not touched."""
    table = Table()
    table.put_batch("a=1 b=1 c=1")
    table.compact()
    body = batch(["a=1", "b=1", "c=1"])
    assert table.topic.compaction.view.entry(table.sent[0]).body == body
    table.put("b=2")
    table.compact()
    assert table.view() == "0.0:a=1 0.2:c=1 1:b=2"
    table.put("d=1")
    table.compact()
    table.trim()
    table.put("a=2")
    table.compact()
    assert table.read() == "0.2:c=1 1:b=2 2:d=1 3:a=2"
    table.put("c=2")
    table.compact()
    assert table.read() == "1:b=2 2:d=1 3:a=2 4:c=2"  # nothing is kept of the batch, so its entry is not written


def test_what_a_batch_costs_a_reader_stays_the_same() -> None:
    """7.4.3: permits are counted by the whole batch, as clients do that drop what was left out."""
    table = Table()
    table.put_batch("a=1 a=2 a=3 a=4")
    table.put("b=1")
    table.compact()
    consumer, mailbox = table.reader(permits=5)
    assert table.seen(mailbox) == "0.3:a=4 1:b=1"
    assert consumer.permits == 0


def test_a_live_reader_gets_tombstones() -> None:
    """7.4.9: a reader that has a value is given its tombstone, although a later run has left both out."""
    table = Table()
    table.put("a=1")
    table.compact()
    consumer, mailbox = table.reader(permits=1)
    assert table.seen(mailbox) == "0:a=1"
    table.put("a= b=1")
    table.compact()
    assert table.read() == "2:b=1"
    consumer.flow(10)
    assert table.seen(mailbox) == "1:a= 2:b=1"


def test_a_view_that_nobody_reads_takes_no_memory() -> None:
    """7.4.7: while it is read, its large entries take little more than one of them."""
    size = 1 << 20
    table = Table()
    table.put(" ".join(f"k{number}={'x' * size}" for number in range(8)))
    table.compact()
    table.trim()
    tracemalloc.start()
    try:
        consumer, mailbox = table.reader()
        table.world.settle()
        assert len(mailbox.take()) == 8
        assert tracemalloc.get_traced_memory()[0] < 2 * size
        consumer.close()
        assert tracemalloc.get_traced_memory()[0] < size // 2
    finally:
        tracemalloc.stop()


def test_a_slow_reader_goes_on_in_the_newest_view_where_the_log_is_deleted() -> None:
    """7.4.9: what it has not read of the log and is deleted comes from the newest view, each message once."""
    table = Table()
    table.put("a=1")
    table.compact()
    consumer, mailbox = table.reader(permits=1)
    assert table.seen(mailbox) == "0:a=1"
    table.put("b=1 b=2 c=1")
    table.compact()
    table.trim()
    table.put("b=3")
    consumer.flow(10)
    assert table.seen(mailbox) == "2:b=2 3:c=1 4:b=3"


def test_views_stay_while_they_are_read() -> None:
    """7.4.11: a reader in the middle of the old view goes on in it; its file goes with the last of its readers."""
    table = Table()
    table.put("a=1 b=1 c=1")
    table.compact()
    files = [table.topic.compaction.view.number]
    consumer, mailbox = table.reader(permits=1)
    assert table.seen(mailbox) == "0:a=1"
    table.put("b=2")
    table.compact()
    files.append(table.topic.compaction.view.number)
    assert [f"1-{number}.view" for number in files] == table.world.disk.list_files("/data/compacted")
    consumer.flow(10)
    assert table.seen(mailbox) == "1:b=1 2:c=1 3:b=2"
    consumer.close()
    table.world.settle()
    assert table.world.disk.list_files("/data/compacted") == [f"1-{files[1]}.view"]


def test_chunks_are_kept_together() -> None:
    """7.4.4: the chunks of one message are kept or left out together; the horizon stays before an open one."""
    table = Table()
    table.put("a=1")
    table.send(*chunks("a", 3))
    table.compact()
    assert table.view() == "1:a=part0 2:a=part1 3:a=part2"
    table.put("a=5")
    table.compact()
    assert table.view() == "4:a=5"
    table.send(*chunks("b", 3, "v", end=2))
    table.put("c=1")
    table.compact()
    assert table.horizon == 4
    assert table.read() == "4:a=5 5:b=part0 6:b=part1 7:c=1"
    table.send(*chunks("b", 3, "v", first=2))
    table.compact()
    assert table.view() == "4:a=5 5:b=part0 6:b=part1 7:c=1 8:b=part2"


def test_chunks_that_never_become_a_message_are_left_out() -> None:
    """7.4.4: a group that has got nothing for long is given up; one with a gap never is a message."""
    table = Table()
    table.send(*chunks("a", 3, "gap", end=1), *chunks("a", 3, "gap", first=2))
    table.send(*chunks("b", 2, "old", end=1))
    table.world.clock.advance(3_600_000)
    table.put("c=1")
    table.compact()
    assert (table.horizon, table.view()) == (3, "3:c=1")


def test_chunks_from_before_the_clock_was_set_back_hold_nothing_up() -> None:
    """7.4.4: they would for as long as the clock was ahead."""
    table = Table()
    table.world.clock.step_wall_clock(YEAR_MS)
    table.send(*chunks("a", 3, end=2))
    table.put("b=1")
    table.world.clock.step_wall_clock(-YEAR_MS)
    table.world.clock.advance(UNFINISHED_MS)
    table.compact()
    assert (table.horizon, table.view()) == (2, "2:b=1")


def test_groups_that_an_open_one_cuts_stay_whole() -> None:
    """7.4.4: groups of chunks may overlap; none is cut by the horizon, however old its chunks are."""
    table = Table()
    table.put("z=1")
    table.send(*chunks("a", 2, "early", end=1))
    table.world.clock.advance(3_600_000)
    table.send(*chunks("b", 2, "open", end=1), *chunks("a", 2, "early", first=1))
    table.compact()
    assert (table.horizon, table.view()) == (0, "0:z=1")
    table.send(*chunks("b", 2, "open", first=1))
    table.compact()
    assert table.view() == "0:z=1 1:a=part0 2:b=part0 3:a=part1 4:b=part1"


def test_encrypted_batches_are_kept_whole_and_remove_nothing() -> None:
    """7.4.3: nobody can say which keys they have; single messages compete by their key, which is clear."""
    table = Table()
    keys = [{"key": "k", "value": b"x"}]
    table.put("a=1")
    table.put_batch("a=2 b=2", encryption_keys=keys, partition_key="a")
    table.send(single("c=secret", encryption_keys=keys), single("c=newer", encryption_keys=keys))
    table.compact()
    assert table.view() == "0:a=1 1:encrypted 3:encrypted"


def test_batches_that_cannot_be_read_are_kept_whole() -> None:
    """7.4.3: a batch under an unknown codec, or a broken one, is kept as it is."""
    table = Table()
    table.put("a=1")
    metadata = read_metadata(batch(["a=2", "b=2"]))
    metadata.compression = LZ4  # , which the payload is not
    body = seal_entry(metadata.SerializeToString(), bytes(split_entry(batch(["a=2", "b=2"]))[1]))
    table.send(body, messages=2)
    table.compact()
    view = table.topic.compaction.view
    assert [table.number(entry.position) for entry in view.read(POSITION_EARLIEST, 9, 1 << 20)] == [0, 1]
    assert view.entry(table.sent[1]).body == body


@pytest.mark.parametrize("bodies", [[single("a=1")], chunks("a", 2)])
def test_a_single_message_that_its_producer_counted_as_several(bodies: list[bytes]) -> None:
    """7.4.1: the number comes from its SEND, and nobody has checked it; the run does not fail over it."""
    table = Table()
    table.send(*bodies, messages=5)
    table.put("b=1")
    table.compact()
    assert len(table.view().split()) == len(bodies) + 1
    table.put("a=2")
    table.compact()
    assert table.view().split() == [f"{len(bodies)}:b=1", f"{len(bodies) + 1}:a=2"]


@pytest.mark.parametrize("size", [1, LARGE_BYTES])
def test_a_codec_that_is_no_number(size: int) -> None:
    """7.4.3: a batch whose producer wrote bytes there, which protobuf takes for an unknown field, is a plain one; also
    where it is opened on another thread, whose errors stop the broker."""
    metadata, payload = split_entry(batch([f"a={'x' * size}", "b=1", "a=2"]))
    parsed = MessageMetadata.FromString(bytes(metadata))
    parsed.ClearField("compression")
    garbage = bytes([MessageMetadata.COMPRESSION_FIELD_NUMBER << 3 | 2, 3]) + b"abc"
    table = Table()
    table.send(seal_entry(parsed.SerializeToString() + garbage, bytes(payload)), messages=3)
    table.compact()
    assert table.view() == "0.1:b=1 0.2:a=2"


def test_an_error_of_the_other_thread_fails_the_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """7.4.5: whatever a large batch meets where it is opened, the broker goes on."""

    def broken(*_args: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(entry_keys, "open_batch", broken)
    table = Table()
    table.put_batch(f"a={'x' * LARGE_BYTES}")
    table.topic.compaction.request()
    table.world.settle()
    assert (table.status(), table.topic.compaction.last_error) == (Status.ERROR, "ValueError: broken")


def test_markers_are_left_out() -> None:
    """7.4.1: a marker at the end is no message, and the run comes to its end."""
    table = Table()
    table.put("a=1")
    table.send(single("-=commit", marker_type=21))
    table.compact()
    assert (table.horizon, table.view()) == (1, "0:a=1")


def test_text_and_bytes_are_different_keys() -> None:
    """7.4.1: a key of bytes travels as base64, and is not the text that looks like it."""
    table = Table()
    table.send(single("YQ=text"), single("YQ=bytes", partition_key_b64_encoded=True))
    table.compact()
    assert table.view() == "0:YQ=text 1:YQ=bytes"


def test_empty_and_null_values_are_tombstones() -> None:
    """7.4.1: whatever the client calls it; a tombstone of an unknown key has no effect."""
    table = Table()
    table.put("a=1 b=1 c=1 x=")
    table.send(single("a="), single("b=", null_value=True), single("c=", uncompressed_size=0))
    table.compact()
    assert table.view() == ""


def test_nothing_runs_where_nothing_has_come() -> None:
    """7.4.5: a second request does nothing, and the status stays; so does that of an empty topic."""
    table = Table()
    table.compact()
    assert table.status() is Status.NOT_RUN
    table.put("a=1")
    table.compact()
    number = table.topic.compaction.view.number
    table.compact()
    assert table.status() is Status.SUCCESS
    assert table.topic.compaction.view.number == number


def test_one_run_at_a_time() -> None:
    """7.4.5: a topic that is being compacted cannot be compacted again; runs of different topics come one by one."""
    table = Table()
    table.put("a=1")
    compaction = table.topic.compaction
    compaction.request()
    with pytest.raises(NotAllowedError, match="already"):
        compaction.request()
    other = "persistent://public/default/other"
    table.world.publish(3, other)
    table.world.topic(other).compaction.request()
    assert table.world.topic(other).compaction.status is Status.RUNNING
    table.world.settle()
    assert compaction.status is Status.SUCCESS
    assert table.world.topic(other).compaction.status is Status.SUCCESS


def test_messages_that_come_during_a_run_are_no_part_of_it() -> None:
    """7.4.5: the end of a run is fixed when it begins."""
    table = Table()
    table.put("a=1 a=2")
    compaction = table.topic.compaction
    compaction.request()
    while compaction.is_running:
        table.put("a=9")
        table.world.clock.run_due()
        table.world.commit_once()
    assert table.view().endswith("=9") or table.view() == "1:a=2"
    assert table.read().endswith(f"{len(table.sent) - 1}:a=9")
    assert table.read(compacted=False).count(":") == len(table.sent)


def test_a_run_ends_at_the_readable_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """7.4.5, 1.3.1: a value that readers do not see yet, as that of an open transaction, replaces none."""
    table = Table()
    table.put("a=1 a=2 b=1")
    end = [table.sent[0]]
    monkeypatch.setattr(TopicLog, "readable_end", property(lambda log: min(end[0], log.last_confirmed)))
    table.compact()
    assert (table.horizon, table.view(), table.read(), table.last_id()) == (0, "0:a=1", "0:a=1", 0)
    end[0] = table.sent[2]
    assert table.read() == "0:a=1 1:a=2 2:b=1"
    table.compact()
    assert table.view() == "1:a=2 2:b=1"


def test_failover_consumers_read_the_view_and_share_its_place() -> None:
    """7.4.7: a durable subscription goes on behind what it has acknowledged, in the view as well; the view is that
    of the consumer that is active."""
    table = Table()
    table.put("a=1 b=1 a=2 c=1 d=1")
    table.compact()
    table.trim()
    consumer, mailbox = table.world.subscribe(FAILOVER, read_compacted=True)
    assert table.seen(mailbox) == "1:b=1 2:a=2 3:c=1 4:d=1"
    ack_through(consumer, table.sent[2])
    consumer.close()
    table.world.settle()
    table.world.restart()
    consumer, mailbox = table.world.subscribe(FAILOVER, read_compacted=True)
    assert table.seen(mailbox) == "3:c=1 4:d=1"
    plain, others = table.world.subscribe(FAILOVER, name="a-first")
    consumer.close()
    assert table.seen(others) == ""
    plain.close()


@pytest.mark.parametrize("kind", [SHARED, FAILOVER])
def test_a_subscription_may_be_used_with_and_without_the_view(kind: SubscriptionType) -> None:
    """7.4.7: the next consumer, of whatever type, gets all messages behind what was acknowledged."""
    table = Table()
    table.put("a=1 b=1 a=2 c=1 c=2 d=1")
    table.compact()
    consumer, mailbox = table.world.subscribe(FAILOVER, read_compacted=True)
    assert table.seen(mailbox) == "1:b=1 2:a=2 4:c=2 5:d=1"
    ack_through(consumer, table.sent[1])
    consumer.close()
    plain, mailbox = table.world.subscribe(kind)
    assert table.seen(mailbox) == "2:a=2 3:c=1 4:c=2 5:d=1"
    plain.close()
    _, mailbox = table.world.subscribe(FAILOVER, read_compacted=True)
    assert table.seen(mailbox) == "2:a=2 4:c=2 5:d=1"


def test_figures_of_a_run() -> None:
    """7.4.5: what was removed (as in Pulsar not the value that a tombstone deletes), when a run has ended, how long it
    took."""
    table = Table()
    table.world.clock.advance(10)
    table.put("a=1 a=2 b=1 b= -=x")
    table.compact()
    figures = table.topic.compaction.figures
    assert (figures.removed_last, figures.succeeded, figures.failed) == (3, 1, 0)
    assert figures.succeeded_ms == table.world.clock.now_ms()


def _deliveries(found: list[Delivery]) -> list[tuple[int, int]]:
    return [each.entry.position for each in found]


def test_entries_of_the_view_are_those_of_the_log() -> None:
    """7.4.1, 10.20: id, payload, metadata, message index and broker time are the original's."""
    table = Table()
    table.world.clock.advance(5)
    table.send(single("a=1", properties=[{"key": "p", "value": "q"}], event_time=7, schema_version=b"\x01"))
    table.put("b=1")
    table.compact()
    _, plain = table.reader(compacted=False)
    _, compacted = table.reader()
    table.world.settle()
    assert [each.entry for each in plain.deliveries] == [each.entry for each in compacted.deliveries]
    assert _deliveries(plain.deliveries) == table.sent
