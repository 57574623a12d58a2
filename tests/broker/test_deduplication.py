# SPDX-License-Identifier: Apache-2.0
"""Broker deduplication: the decision rules, snapshots, recovery, forgetting, and a model with crashes."""

from __future__ import annotations

import errno

import msgspec
import pytest

from broker_core.base.errors import NotAllowedError, PersistenceServerError, ServiceNotReadyError
from broker_core.base.names import TopicName
from broker_core.base.policies import Policies
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.base.steps import drained
from broker_core.broker.publishing.producer import Producer
from broker_core.broker.requests import AccessMode
from broker_core.broker.upkeep import trim
from broker_core.testing.sim_disk import Policy, SimDisk
from broker_core.wire.entry import read_metadata, seal_entry
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.broker.world import SHARED, SMALL, TOPIC, Answers, World, ack, topic_stats

DEDUPLICATED = msgspec.structs.replace(
    SMALL, broker_deduplication_enabled=True, broker_deduplication_entries_interval=5
)


def entry(name: str, sequence_id: int, highest: int = -1, *, chunk: tuple[int, int] | None = None) -> bytes:
    """An entry of producer ``name``; ``highest`` makes it a batch, ``chunk`` is (number, of how many)."""
    metadata = MessageMetadata(producer_name=name, sequence_id=sequence_id, publish_time=1)
    if highest >= 0:
        metadata.highest_sequence_id = highest
        metadata.num_messages_in_batch = highest - sequence_id + 1
    if chunk is not None:
        metadata.uuid = f"{name}-{sequence_id}"
        metadata.chunk_id, metadata.num_chunks_from_msg = chunk
    return seal_entry(metadata.SerializeToString(), b"x")


def send(producer: Producer, sequence_id: int, highest: int = -1, *, chunk: tuple[int, int] | None = None) -> None:
    messages = 1 if highest < 0 else highest - sequence_id + 1
    body = entry(producer.name, sequence_id, highest, chunk=chunk)
    producer.send(SendHead(0, sequence_id, messages, highest_sequence_id=highest, is_chunk=chunk is not None), body)


def stored(world: World, topic: str = TOPIC) -> list[tuple[str, int]]:
    """Producer name and sequence id of every durable entry, in order."""
    log = world.topic(topic).log
    found: list[tuple[str, int]] = []
    at = log.first_position
    while entries := log.read(log.next_valid(at), 100, 1 << 20):
        for each in entries:
            metadata = read_metadata(each.body)
            found.append((metadata.producer_name, metadata.sequence_id))
        at = entries[-1].position
    return found


def outcome(answers: Answers) -> str:
    """What the newest answer says."""
    newest = answers.outcomes[-1]
    if isinstance(newest, PersistenceServerError):
        return "unknown"
    return "duplicate" if newest == POSITION_EARLIEST else "stored"


VECTORS: list[tuple[list[tuple[int, int]], tuple[int, int], bool, str]] = [
    ([], (0, -1), True, "stored"),
    ([(0, -1)], (0, -1), True, "duplicate"),
    ([(1, -1)], (1, -1), False, "unknown"),
    ([(5, -1)], (3, -1), True, "duplicate"),
    ([(5, -1)], (6, -1), True, "stored"),
    ([(7, 9)], (8, -1), True, "duplicate"),
    ([(7, 9)], (10, -1), True, "stored"),
    ([(9, -1)], (9, 12), True, "duplicate"),
]


@pytest.mark.parametrize(("before", "sent", "settled", "expected"), VECTORS)
def test_the_published_decisions(
    before: list[tuple[int, int]], sent: tuple[int, int], settled: bool, expected: str
) -> None:
    """1.8.4, 1.8.5: the vectors [C]: what was stored or is in flight, what is sent then, what is answered."""
    world = World(DEDUPLICATED)
    producer, answers = world.produce(name="p")
    for sequence_id, highest in before:
        send(producer, sequence_id, highest)
    if settled:
        world.settle()
    send(producer, *sent)
    world.settle()
    assert outcome(answers) == expected
    assert len(stored(world)) == len(before) + (expected == "stored")


def test_nothing_is_compared_while_it_is_off() -> None:
    """1.8.1: off by default; then the same id is stored as often as it is sent, and the last one is not known."""
    world = World()
    producer, answers = world.produce(name="p")
    for _ in range(3):
        send(producer, 0)
    world.settle()
    assert stored(world) == [("p", 0)] * 3
    assert (producer.last_sequence_id, len(answers.receipts)) == (-1, 3)
    assert topic_stats(world.topic()).deduplication_status == "Disabled"


def test_a_marker_in_the_log_says_nothing_about_ids() -> None:
    """1.8.1: control markers are not recorded when the log is replayed."""
    world = World(DEDUPLICATED)
    producer, _ = world.produce(name="p")
    metadata = MessageMetadata(producer_name="marked", sequence_id=7, publish_time=1, marker_type=10)
    world.topic().log.append(seal_entry(metadata.SerializeToString(), b""), 1, lambda error: None)
    send(producer, 3)
    world.settle()
    world.crash()
    assert [world.produce(name=name)[0].last_sequence_id for name in ("p", "marked")] == [3, -1]


def test_a_producer_name_that_is_no_text_stops_no_snapshot() -> None:
    """1.8.6: nobody checks what a client writes into an entry, and recovery reads names from there."""
    world = World(DEDUPLICATED)
    liar, _ = world.produce(name="liar")
    liar.send(SendHead(0, 0), seal_entry(b"\x0a\x02\xff\xfe\x10\x00\x18\x01", b"x"))
    world.settle()
    world.crash(policy="none")
    producer, _ = world.produce(name="p")
    for number in range(10):
        send(producer, number)
    world.settle()
    world.crash(policy="none")
    assert world.produce(name="p")[0].last_sequence_id == 9


def test_names_that_only_a_replicator_brings_are_forgotten_like_others() -> None:
    """1.8.2: not more names than allowed, none for longer than the timeout; one that is connected itself stays."""
    world = World(DEDUPLICATED, broker_deduplication_max_number_of_producers=3)
    replicator, _ = world.produce(name="pulsar.repl.west")
    here, _ = world.produce(name="far-0")
    for number in range(10):
        replicator.send(SendHead(0, number), entry(f"far-{number}", 0))
        world.settle()
    ids = world.topic().deduplication
    assert ids is not None
    assert sorted(ids.ids.pushed) == ["far-0", "far-8", "far-9"]
    world.clock.advance(7 * 3600 * 1000)
    world.settle()
    assert sorted(ids.ids.pushed) == ["far-0"]
    here.close()


def test_names_that_no_producer_may_have_are_not_remembered() -> None:
    """1.8.6, 1.7.1: an entry may state any, of up to a MiB, and each of them would be in each snapshot."""
    world = World(DEDUPLICATED)
    liar, _ = world.produce(name="liar")
    for number in range(3):
        liar.send(SendHead(0, number), entry(f"{number}" * 1000, 0))
    world.settle()
    world.crash(policy="none")
    deduplication = world.topic().deduplication
    assert deduplication is not None
    assert not deduplication.ids.persisted


def test_a_replicator_is_judged_by_the_first_producer() -> None:
    """1.8.2: name and ids are those of the metadata, live and after a crash; the replicator's own do not count."""
    world = World(DEDUPLICATED)
    replicator, answers = world.produce(name="pulsar.repl.west")
    for own, name, sequence_id in ((0, "a", 5), (1, "b", 5), (2, "a", 5), (3, "a", 6), (4, "a", 4)):
        replicator.send(SendHead(0, own), entry(name, sequence_id))
        world.settle()
    assert stored(world) == [("a", 5), ("b", 5), ("a", 6)]
    assert [position == POSITION_EARLIEST for _, position in answers.receipts] == [False, False, True, False, True]
    for _ in range(2):
        assert [world.produce(name=name)[0].last_sequence_id for name in ("a", "b", "c")] == [6, 5, -1]
        world.crash()


def test_only_the_last_chunk_counts() -> None:
    """1.8.3: chunks share one id; of a message sent again all chunks but the last are stored once more."""
    world = World(DEDUPLICATED)
    producer, answers = world.produce(name="p")
    for _ in range(2):
        for number in range(3):
            send(producer, 4, chunk=(number, 3))
            assert producer.last_sequence_id == (4 if number == 2 or len(answers.order) >= 3 else -1)
        world.settle()
    positions = [position for _, position in answers.receipts]
    assert (len(stored(world)), positions[5]) == (5, POSITION_EARLIEST)
    assert POSITION_EARLIEST not in positions[:5]


def test_a_chunked_message_cut_short_by_a_crash_is_sent_again_whole() -> None:
    """1.8.3: recovery does not take a first chunk for the whole message."""
    world = World(DEDUPLICATED)
    producer, _ = world.produce(name="p")
    send(producer, 0, chunk=(0, 2))
    world.settle()
    world.crash()
    again, answers = world.produce(name="p")
    assert again.last_sequence_id == -1
    for number in range(2):
        send(again, 0, chunk=(number, 2))
    world.settle()
    assert POSITION_EARLIEST not in [position for _, position in answers.receipts]


def test_answers_keep_the_order_of_sends() -> None:
    """1.7.7, 1.8.4: a duplicate is answered after what was sent before it."""
    world = World(DEDUPLICATED)
    producer, answers = world.produce(name="p")
    send(producer, 0)
    world.settle()
    for sequence_id in (1, 0, 2):
        send(producer, sequence_id)
    assert answers.order == [0]
    world.settle()
    assert answers.order == [0, 1, 0, 2]
    assert [position == POSITION_EARLIEST for _, position in answers.receipts] == [False, False, True, False]


def test_each_name_has_ids_of_its_own() -> None:
    """1.8.4: the maps are per producer name, also over connections; the broker tells the last id."""
    world = World(DEDUPLICATED)
    one, _ = world.produce(name="one")
    two, _ = world.produce(name="two")
    send(one, 5)
    send(two, 3)
    world.settle()
    one.close()
    again, _ = world.produce(name="one")
    assert (again.last_sequence_id, two.last_sequence_id, world.produce()[0].last_sequence_id) == (5, 3, -1)


def test_the_last_id_counts_what_is_under_way() -> None:
    """1.7.3: the highest accepted id is told, stored or not; of a batch the highest inside."""
    world = World(DEDUPLICATED)
    producer, _ = world.produce(name="p")
    send(producer, 2, 8)
    producer.abandon()
    assert world.produce(name="p")[0].last_sequence_id == 8


def test_a_resend_after_a_lost_connection_is_stored_once() -> None:
    """1.8 (1.8.4): the first answer is Unknown while the entry is under way, then it is a duplicate."""
    world = World(DEDUPLICATED)
    first, _ = world.produce(name="p")
    send(first, 0)
    first.abandon()
    second, answers = world.produce(name="p")
    send(second, 0)
    assert outcome(answers) == "unknown"
    world.settle()
    send(second, 0)
    assert outcome(answers) == "duplicate"
    assert stored(world) == [("p", 0)]


def test_what_could_not_be_stored_may_be_sent_again() -> None:
    """1.8.5: on a failure the accepted ids fall back to the stored ones."""
    world = World(DEDUPLICATED)
    producer, _ = world.produce(name="p")
    send(producer, 0)
    world.settle()
    world.disk.fail(1, forever=True)
    send(producer, 1)
    with pytest.raises(Exception, match="disk failed"):
        world.settle()
    assert producer.last_sequence_id == 0


def test_ids_that_the_disk_refuses_to_give_are_not_forgotten() -> None:
    """1.8.6: the topic is not ready until its entries can be read, or what is sent again would be stored twice."""
    world = World(DEDUPLICATED, managed_ledger_cache_size_mbytes=0, broker_deduplication_entries_interval=100)
    consumer, _ = world.subscribe()
    producer, _ = world.produce(name="p")
    for sequence_id in range(4):
        send(producer, sequence_id)
    world.settle()
    ack(consumer, world.topic().log.last_confirmed)
    world.settle()
    world.crash(policy="all")
    world.topic()  # closes the ledger of before
    world.crash(policy="all")
    world.disk.fail(1, forever=True, kinds=("read",))
    for _ in range(2):
        with pytest.raises(ServiceNotReadyError, match="cannot be read"):
            world.produce(name="p")
    world.disk.heal()
    producer, answers = world.produce(name="p")
    assert producer.last_sequence_id == 3
    send(producer, 3)
    world.settle()
    assert outcome(answers) == "duplicate"
    assert stored(world) == [("p", sequence_id) for sequence_id in range(4)]
    assert world.subscription().backlog_entries() == 3


def test_no_id_outlives_its_entry_in_a_power_loss() -> None:
    """1.8.4, 1.8.6: with durability=async what was confirmed last may be lost; sent again it is stored, and is no
    duplicate of something that is not there."""
    world = World(DEDUPLICATED, durability="async")
    producer, _ = world.produce(name="p")
    for sequence_id in range(8):
        send(producer, sequence_id)
        world.settle()
    for seed in range(60):
        image = World(DEDUPLICATED, world.disk.crash(seed), durability="async")
        again, _ = image.produce(name="p")
        assert again.last_sequence_id == max(sequence_id for _, sequence_id in stored(image))


def test_under_a_durability_of_seconds_snapshots_follow_the_syncs() -> None:
    """1.8.6: a snapshot that was due is taken when what it is of is synced, so that retention and replays go on."""
    world = World(DEDUPLICATED, durability="async")
    producer, _ = world.produce(name="p")
    for sequence_id in range(7):
        send(producer, sequence_id)
        world.settle()
    holder = world.topic().deduplication
    assert holder is not None
    assert holder.released_through < world.topic().log.last_confirmed
    world.store.sync_due()
    world.settle()
    assert holder.released_through == world.topic().log.last_confirmed


@pytest.mark.parametrize("policy", ["none", "all", "random"])
def test_ids_survive_a_crash(policy: Policy) -> None:
    """1.8.6: the snapshot is loaded and the entries behind it are replayed; every stored id is a duplicate then."""
    world = World(DEDUPLICATED)
    producer, _ = world.produce(name="p")
    for sequence_id in range(23):
        send(producer, sequence_id)
        if sequence_id % 3 == 2:
            world.settle()
    world.settle()
    cursor = world.topic().deduplication
    assert cursor is not None
    assert world.topic().log.count_entries(cursor.released_through, world.topic().log.last_confirmed) < 8
    world.crash(policy=policy)
    again, answers = world.produce(name="p")
    assert again.last_sequence_id == 22
    for sequence_id in range(24):
        send(again, sequence_id)
    world.settle()
    assert stored(world) == [("p", sequence_id) for sequence_id in range(24)]
    assert answers.order == list(range(24))


def test_a_snapshot_is_taken_after_some_time() -> None:
    """1.8.6: also of a topic with few entries; and when it is unloaded."""
    world = World(broker_deduplication_enabled=True)
    producer, _ = world.produce(name="p")
    send(producer, 0)
    world.settle()
    cursor = world.topic().deduplication
    assert cursor is not None
    assert cursor.released_through < world.topic().log.last_confirmed
    world.clock.advance(120_000)
    world.settle()
    assert cursor.released_through == world.topic().log.last_confirmed
    send(producer, 1)
    world.settle()
    world.broker.unload(world.topic().name)
    world.settle()
    reloaded = world.topic().deduplication
    assert reloaded is not None
    assert reloaded.released_through == world.topic().log.last_confirmed
    assert world.produce(name="p")[0].last_sequence_id == 1


@pytest.mark.parametrize("of_topic", [True, False])
def test_a_policy_turns_it_on_and_says_how_often_it_takes_a_snapshot(*, of_topic: bool) -> None:
    """1.1.5, 1.8.1, 1.8.6: of a topic that is in use, and off again when the policy is taken back."""
    world = World()
    name = world.topic().name

    def set_policies(policies: Policies) -> None:
        if of_topic:
            drained(world.broker.set_topic_policies(name, policies))
        else:
            drained(world.broker.set_namespace_policies(name.namespace_name, policies))
        world.settle()

    producer, answers = world.produce(name="p")
    set_policies(Policies(deduplication_enabled=True, deduplication_snapshot_interval_seconds=7))
    for _ in range(2):
        send(producer, 0)
        world.settle()
    assert (outcome(answers), stored(world)) == ("duplicate", [("p", 0)])
    cursor = world.topic().deduplication
    assert cursor is not None
    world.clock.advance(6_000)
    world.settle()
    assert cursor.released_through < world.topic().log.last_confirmed
    world.clock.advance(1_000)
    world.settle()
    assert cursor.released_through == world.topic().log.last_confirmed
    set_policies(Policies())
    send(producer, 0)
    world.settle()
    assert (outcome(answers), stored(world)) == ("stored", [("p", 0)] * 2)


def test_snapshots_survive_the_compaction_of_the_cursor_log() -> None:
    """1.8.6: the properties of the internal cursor are part of what is kept."""
    world = World(DEDUPLICATED)
    producer, _ = world.produce(name="p")
    for sequence_id in range(5):
        send(producer, sequence_id)
    world.settle()
    world.store.cursors.compact()
    world.settle()
    world.broker.unload(world.topic().name)
    world.settle()
    world.store.cursors.compact()
    world.settle()
    world.crash(policy="none")
    assert world.produce(name="p")[0].last_sequence_id == 4


def test_producers_that_left_long_ago_are_forgotten() -> None:
    """1.8.6: after 360 min of inactivity; a connected one is kept however quiet it is."""
    world = World(broker_deduplication_enabled=True)
    quiet, _ = world.produce(name="quiet")
    gone, _ = world.produce(name="gone")
    send(quiet, 1)
    send(gone, 1)
    world.settle()
    gone.close()
    world.clock.advance(21_540_000)
    assert world.produce(name="gone")[0].last_sequence_id == 1
    next(each for each in world.topic().producers if each.name == "gone").close()
    for _ in range(4):
        world.clock.advance(6_000_000)
        world.settle()
    assert (quiet.last_sequence_id, world.produce(name="gone")[0].last_sequence_id) == (1, -1)
    world.crash()
    assert [world.produce(name=name)[0].last_sequence_id for name in ("quiet", "gone")] == [1, -1]


def test_the_ids_of_so_many_producers_are_kept() -> None:
    """1.8.6: those who left first are forgotten first."""
    world = World(DEDUPLICATED, broker_deduplication_max_number_of_producers=3)
    for number in range(6):
        producer, _ = world.produce(name=f"p{number}")
        send(producer, 9)
        world.settle()
        producer.close()
    for _ in range(2):
        ids = world.topic().deduplication.ids  # type: ignore[union-attr]
        assert sorted(ids.persisted) == ["p3", "p4", "p5"]
        world.crash()


def test_it_is_not_on_in_name_only_while_the_disk_refuses_the_cursor_log() -> None:
    """1.8.6, reliability row 14: ids could not be kept, so the topic takes no messages from then on; that it was turned
    on is kept."""
    world = World()
    world.publish(1)
    world.subscribe(topic="of others")
    world.broker.close()
    world.settle()
    world.store.close()
    world.disk.before = refuse_cursor_logs
    world.open()
    _, answers = world.produce(name="p")
    drained(world.broker.set_topic_policies(TopicName.parse(TOPIC), Policies(deduplication_enabled=True)))
    world.settle()
    assert answers.closed
    for topic, error in ((TOPIC, ServiceNotReadyError), ("of others", PersistenceServerError)):
        with pytest.raises(error, match=r"cursors/0\.log, which says"):
            world.produce(topic, name="p")
    world.disk.before = None
    world.clock.advance(20_000)
    assert world.topic("of others").subscriptions.keys() == {"s"}
    assert world.produce(name="p")[0].last_sequence_id == -1
    assert world.topic().deduplication is not None


def refuse_cursor_logs(kind: str, path: str) -> None:
    """A disk with a bad place there."""
    if kind == "read" and "/cursors/" in path:
        raise OSError(errno.EIO, "Input/output error")


def test_it_can_be_turned_on_and_off() -> None:
    """1.8 (1.1.5): for one topic, at once, with its producers connected; turning it off forgets all ids for good."""
    world = World()
    topic = world.topic()
    on = DEDUPLICATED
    producer, answers = world.produce(name="p")
    send(producer, 0)
    world.settle()
    topic.apply(on, topic.quotas)
    assert (topic.deduplication is None, producer.last_sequence_id) == (False, -1)
    for sequence_id in (0, 0, 1):
        send(producer, sequence_id)
        world.settle()
    assert [outcome(answers), len(stored(world))] == ["stored", 3]
    topic.apply(SMALL, topic.quotas)
    assert (topic.deduplication is None, producer.last_sequence_id) == (True, -1)
    topic.apply(on, topic.quotas)
    assert producer.last_sequence_id == -1
    world.crash()
    assert world.topic().deduplication is None
    assert world.store.catalogue.subscriptions.internal_cursor(world.topic().topic_id, "pulsar.dedup") is None


def test_an_entry_under_way_while_it_is_turned_on_again_is_known() -> None:
    """1.8.4: the ids that are stored are never above those accepted."""
    world = World(DEDUPLICATED)
    topic = world.topic()
    producer, _ = world.produce(name="p")
    send(producer, 5)
    topic.apply(SMALL, topic.quotas)
    topic.apply(world.settings, topic.quotas)
    world.settle()
    assert producer.last_sequence_id == 5


def test_system_topics_are_not_deduplicated() -> None:
    """1.8.1, 1.1.6: they are the broker's own."""
    world = World(DEDUPLICATED)
    name = "persistent://public/default/__change_events"
    assert world.topic(name).deduplication is None


def test_the_cursor_is_not_a_subscription() -> None:
    """1.1.6: ``pulsar.dedup`` is internal: not listed, not to be subscribed to, and it holds no backlog."""
    world = World(DEDUPLICATED)
    producer, _ = world.produce(name="p")
    send(producer, 0)
    world.settle()
    assert world.topic().subscriptions == {}
    with pytest.raises(NotAllowedError, match=r"pulsar\.dedup"):
        world.subscribe(subscription="pulsar.dedup")
    with pytest.raises(NotAllowedError, match="reserved"):
        world.topic().create_subscription("__compaction")
    world.restart()
    assert world.topic().subscriptions == {}


def test_retention_keeps_what_must_be_replayed() -> None:
    """I7.1, 1.8.6: acknowledged ledgers stay until a snapshot covers them."""
    world = World(broker_deduplication_enabled=True, broker_deduplication_snapshot_interval_seconds=1000)
    consumer, mailbox = world.subscribe(SHARED)
    producer, _ = world.produce(name="p")
    for sequence_id in range(25):
        send(producer, sequence_id)
        world.settle()
    ack(consumer, *mailbox.take())
    world.settle()
    before = world.topic().log.entries_count
    world.clock.advance(300_000)
    world.settle()
    assert world.topic().log.entries_count == before == 25
    world.clock.advance(1_000_000)
    world.settle()
    world.clock.advance(300_000)
    world.settle()
    assert world.topic().log.entries_count < before
    world.crash()
    assert world.produce(name="p")[0].last_sequence_id == 24


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_retention_waits_for_the_snapshot_of_an_unload(durability: str) -> None:
    """I7.1, I1.5: a crash between the ledgers going from the catalogue and the snapshot reaching its log."""
    world = World(
        durability=durability,
        broker_deduplication_enabled=True,
        broker_deduplication_entries_interval=1000,
        retain_without_subscription=False,
    )
    producer, _ = world.produce(name="p")
    for sequence_id in range(10):
        send(producer, sequence_id)
    world.settle()
    world.topic().log.roll_if_due()
    world.settle()
    images: list[SimDisk] = []

    def before(kind: str, path: str) -> None:
        if kind == "write" and "/cursors/" in path:
            images.append(world.disk.crash(policy="none"))

    world.broker.unload(world.topic().name)
    trim(world.topic())
    world.disk.before = before
    world.settle()
    assert world.topic().log.entries_count == 0
    images.append(world.disk.crash(policy="none"))
    for image in images:
        assert World(world.settings, image).produce(name="p")[0].last_sequence_id == 9


def test_a_look_at_what_is_synced_does_not_hide_what_an_unload_leaves() -> None:
    """1.3.2: after a snapshot too, the log of an unloaded topic is kept until its footer is written, or a load would
    take its ledger for one that a crash has left open."""
    world = World(DEDUPLICATED)
    producer, _ = world.produce(name="p")
    for sequence_id in range(6):
        send(producer, sequence_id)
    world.settle()
    log = world.topic().log
    assert log.synced
    world.broker.unload(TopicName.parse(TOPIC))
    assert not log.drained
    world.settle()
    assert log.drained


def test_a_topic_is_not_loaded_while_its_entries_are_under_way() -> None:
    """1.8 (I1.5): what a former life of the topic accepted is unknown until it is stored."""
    world = World(DEDUPLICATED)
    producer, _ = world.produce(name="p")
    send(producer, 0)
    world.broker.unload(TopicName.parse(TOPIC))
    with pytest.raises(ServiceNotReadyError):
        world.topic()
    world.settle()
    again, answers = world.produce(name="p")
    send(again, 0)
    assert outcome(answers) == "duplicate"


def test_whoever_tries_too_early_to_load_a_topic_does_not_end_the_waiting_of_others() -> None:
    """1.8: a LOOKUP is answered when the topic can be had, though somebody came without one and was refused."""
    world = World(DEDUPLICATED)
    producer, _ = world.produce(name="p")
    send(producer, 0)
    name = TopicName.parse(TOPIC)
    world.broker.unload(name)
    told: list[str] = []
    world.broker.loader.when_drained(name, lambda: told.append("before"))
    with pytest.raises(ServiceNotReadyError):
        world.topic()
    world.broker.loader.when_drained(name, lambda: told.append("after"))
    assert not told
    world.settle()
    assert told == ["before", "after"]
    world.topic()


def test_positions_are_those_of_the_entries() -> None:
    """1.8.4 (1.4.3): only a duplicate's receipt carries (-1, -1)."""
    world = World(DEDUPLICATED)
    producer, answers = world.produce(name="p")
    send(producer, 0)
    send(producer, 1)
    world.settle()
    send(producer, 1)
    ledger = answers.receipts[0][1].ledger
    assert [position for _, position in answers.receipts] == [Position(ledger, 0), Position(ledger, 1), (-1, -1)]


def test_an_interval_of_0_means_no_snapshots_by_time() -> None:
    """1.8: as a policy may say; those by number of entries go on, and nothing runs without end."""
    world = World(DEDUPLICATED, broker_deduplication_snapshot_interval_seconds=0)
    producer, _ = world.produce(name="p")
    cursor = world.topic().deduplication
    assert cursor is not None
    begun = cursor.released_through
    for number in range(5):
        assert cursor.released_through == begun
        send(producer, number)
        world.settle()
        world.clock.advance(1_000_000)
        world.settle()
    assert cursor.released_through == world.topic().log.last_confirmed


@pytest.mark.parametrize("mode", [AccessMode.EXCLUSIVE_WITH_FENCING, AccessMode.WAIT_FOR_EXCLUSIVE])
def test_a_name_is_not_forgotten_while_its_next_producer_is_connected(mode: AccessMode) -> None:
    """1.8.4, 1.7.4: whoever takes the name over goes on under its numbers, however long it is silent."""
    world = World(DEDUPLICATED, broker_deduplication_producer_inactivity_timeout_minutes=1)
    first, _ = world.produce(name="p")
    send(first, 0)
    world.settle()
    second, answers = world.produce(name="p", access_mode=mode)
    first.close()
    assert second.accepting
    world.clock.advance(1_000_000)
    world.settle()
    send(second, 0)
    world.settle()
    assert outcome(answers) == "duplicate", outcome(answers)
    assert stored(world) == [("p", 0)]
