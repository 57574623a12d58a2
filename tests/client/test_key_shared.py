# SPDX-License-Identifier: Apache-2.0
"""Key_Shared through our client, and batching by key, on both servers."""

from __future__ import annotations

import json
import threading
from collections import defaultdict

import pytest

from broker_core.base.errors import ConfigError, ConsumerAssignError, ConsumerBusyError, OperationTimeoutError
from broker_core.client import Client, Consumer, KeySharedPolicy, Message
from tests.client.conftest import Service, admin_path
from tests.client.helpers import WAIT_S, assert_nothing_comes, eventually, send, take, values

KEYS = [f"key-{number}" for number in range(20)]


def send_keyed(client: Client, topic: str, first: int, end: int, *, batching_type: str = "key_based") -> None:
    """Messages ``first`` to ``end`` - 1, each with one of 20 keys."""
    options = {"batching_type": batching_type, "batching_max_messages": 30, "batching_max_publish_delay_s": 60.0}
    with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        for number in range(first, end):
            producer.send_async(str(number), key=KEYS[number % 20])


class Group:
    """Consumers of one subscription, each drained by a thread of its own; what came is kept in the order of arrival."""

    def __init__(self, wanted: int) -> None:
        self.by_key: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.done = threading.Event()
        self._wanted = wanted
        self._seen: set[int] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def add(self, consumer: Consumer, name: str, leave_after: int = 0) -> None:
        thread = threading.Thread(target=self._drain, args=(consumer, name, leave_after), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _drain(self, consumer: Consumer, name: str, leave_after: int) -> None:
        received = 0
        while not self.done.is_set():
            try:
                message = consumer.receive(0.2)
            except OperationTimeoutError:
                continue
            self.note(message, name)
            consumer.acknowledge(message)
            received += 1
            if leave_after and received >= leave_after:
                consumer.close()
                return

    def note(self, message: Message, name: str) -> None:
        with self._lock:
            number = int(message.value or b"")
            self.by_key[str(message.key)].append((number, name))
            self._seen.add(number)
            if len(self._seen) == self._wanted:
                self.done.set()

    def wait(self) -> None:
        assert self.done.wait(WAIT_S * 2), f"{len(self._seen)} of {self._wanted} came"
        for thread in self._threads:
            thread.join(WAIT_S)


def test_keys_stay_in_order_while_consumers_come_and_go(client: Client, topic: str) -> None:
    """2.9, 2.9.2.8 (I2.11, I2.12) A consumer joins, one leaves in the middle; a key comes in order at first."""
    group = Group(2000)
    consumers = [
        client.subscribe(topic, "s", type="key_shared", consumer_name=name, initial_position="earliest")
        for name in ("a", "b", "c")
    ]
    group.add(consumers[0], "a")
    group.add(consumers[1], "b", leave_after=100)
    group.add(consumers[2], "c")
    send_keyed(client, topic, 0, 1000)
    late = client.subscribe(topic, "s", type="key_shared", consumer_name="d", initial_position="earliest")
    group.add(late, "d")
    send_keyed(client, topic, 1000, 2000)
    group.wait()
    for key, came in group.by_key.items():
        firsts = list(dict.fromkeys(number for number, _ in came))
        assert firsts == sorted(firsts), key
    assert len({name for came in group.by_key.values() for _, name in came}) >= 3
    for consumer in (consumers[0], consumers[2], late):
        consumer.close()


def test_batches_by_key_hold_one_key_each(client: Client, topic: str) -> None:
    """2.10.2 (I1.6) Ordering key before key, messages without either together; sent by their first message."""
    options = {"batching_type": "key_based", "batching_max_publish_delay_s": 10.0}
    with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        for value, key, ordering_key in (
            ("0", "x", None), ("1", None, None), ("2", "y", None), ("3", "x", None),
            ("4", "z", b"o"), ("5", "w", b"o"), ("6", None, None), ("7", "y", None),
        ):  # fmt: skip
            producer.send_async(value, key=key, ordering_key=ordering_key)
    messages = take(client.create_reader(topic), 8)
    assert values(messages) == ["0", "3", "1", "6", "2", "7", "4", "5"]
    entries = [message.message_id.entry for message in messages]
    assert entries == [entries[0] + number // 2 for number in range(8)]
    assert [message.sequence_id for message in messages] == list(range(8))


def test_a_key_of_bytes_is_not_the_text_that_it_travels_as(client: Client, topic: str) -> None:
    """2.10.2 (I1.6): the base64 of one key may be another key, whose messages are none of its batch."""
    keys: list[str | bytes] = [b"abc", "YWJj", b"abc", "YWJj"]
    options = {"batching_type": "key_based", "batching_max_publish_delay_s": 10.0}
    with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        for key in keys:
            producer.send_async("value", key=key)
    messages = take(client.create_reader(topic), 4)
    assert [message.key for message in messages] == [b"abc", b"abc", "YWJj", "YWJj"]
    assert len({message.message_id.position for message in messages}) == 2


def test_all_open_batches_count_for_the_limits(client: Client, topic: str) -> None:
    """2.10.2 Three messages of three keys fill a limit of three."""
    options = {"batching_type": "key_based", "batching_max_messages": 3, "batching_max_publish_delay_s": 1000.0}
    with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        consumer = client.subscribe(topic, "s", initial_position="earliest")
        for key in "abc":
            producer.send_async(key, key=key)
        assert values(take(consumer, 3)) == ["a", "b", "c"]


def test_sequence_ids_of_the_application_are_kept(client: Client, topic: str) -> None:
    """2.10.2 Only ids that the producer chose itself are given anew."""
    options = {"batching_type": "key_based", "batching_max_publish_delay_s": 10.0}
    with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        for sequence_id, key in ((10, "a"), (20, "b"), (30, "a")):
            producer.send_async(str(sequence_id), key=key, sequence_id=sequence_id)
    messages = take(client.create_reader(topic), 3)
    assert [(message.value, message.sequence_id) for message in messages] == [(b"10", 10), (b"20", 20), (b"30", 30)]


def test_batches_by_key_with_ids_of_the_application_survive_deduplication(
    service: Service, client: Client, topic: str
) -> None:
    """2.10.2, 1.8.5: an entry counts up to its highest id; a lower one behind it would pass for sent before."""
    send(client, topic, 1)  # There must be a topic to set a policy of.
    service.admin("POST", f"{admin_path(topic)}/deduplicationEnabled", "true")

    def is_on() -> bool:
        return bool(json.loads(service.admin("GET", f"{admin_path(topic)}/stats"))["deduplicationStatus"] == "Enabled")

    eventually(is_on, "deduplication is on for the topic")
    consumer = client.subscribe(topic, "s")
    options = {"batching_type": "key_based", "batching_max_publish_delay_s": 10.0}
    with client.create_producer(topic, name="chooses", **options) as producer:  # type: ignore[arg-type]
        for sequence_id, key in enumerate("aabba"):
            producer.send_async(str(sequence_id), key=key, sequence_id=sequence_id)
    messages = take(consumer, 5)
    assert [message.sequence_id for message in messages] == [0, 1, 2, 3, 4]
    assert len({message.message_id.position for message in messages}) == 3


@pytest.mark.parametrize("keyed_by", ["key", "ordering_key"])
def test_batches_that_mix_keys_are_told_once_for_each_producer(
    client: Client, topic: str, caplog: pytest.LogCaptureFixture, keyed_by: str
) -> None:
    """2.10.6, 2.10.1 A batch goes whole to the owner of its first key, so who sent it should batch by key."""

    def send_pairs(name: str, *keys: str, **options: str) -> None:
        with client.create_producer(
            topic, name=name, batching_max_messages=2, batching_max_publish_delay_s=60.0, **options  # type: ignore[arg-type]
        ) as producer:  # fmt: skip
            for key in keys:
                producer.send_async("", **{keyed_by: key if keyed_by == "key" else key.encode()})  # type: ignore[arg-type]

    consumer = client.subscribe(topic, "s", type="key_shared")
    send_pairs("careful", "a", "b", "a", "b", batching_type="key_based")
    send_pairs("lucky", "a", "a", "b", "b")
    send_pairs("careless", "a", "b", "a", "b")
    send_pairs("another", "b", "c")
    take(consumer, 14)
    told = [record.getMessage() for record in caplog.records if "consumer mixed keys" in record.getMessage()]
    assert [text.split("producer='")[1].split("'")[0] for text in told] == ["careless", "another"]
    assert all("batching_type=key_based" in text and "subscription='s'" in text for text in told)


def test_batches_that_mix_keys_are_nothing_to_tell_elsewhere(
    client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """2.10.6 Only Key_Shared goes by keys."""
    consumer = client.subscribe(topic, "s", type="shared")
    send_keyed(client, topic, 0, 20, batching_type="default")
    assert len({message.message_id.position for message in take(consumer, 20)}) == 1
    assert "mixed keys" not in caplog.text


def sticky(*ranges: tuple[int, int]) -> KeySharedPolicy:
    return KeySharedPolicy(mode="sticky", sticky_ranges=ranges)


def test_a_consumer_may_bring_its_ranges(client: Client, topic: str) -> None:
    """2.8.1, 2.8.5 The slots of key-1 (5536) and key-2 (21772) go to those who asked for them."""
    low = client.subscribe(topic, "s", type="key_shared", key_shared_policy=sticky((0, 16383)))
    high = client.subscribe(topic, "s", type="key_shared", key_shared_policy=sticky((16384, 65535)))
    with client.create_producer(topic, batching_enabled=False) as producer:
        for key in ("key-1", "key-2", "key-1"):
            producer.send(key, key=key)
    assert values(take(low, 2)) == ["key-1", "key-1"]
    assert values(take(high, 1)) == ["key-2"]


def test_ranges_that_overlap_are_refused(client: Client, topic: str) -> None:
    """2.8.2 The consumer hears of an assignment error and the others stay."""
    first = client.subscribe(topic, "s", type="key_shared", key_shared_policy=sticky((0, 100)))
    with pytest.raises(ConsumerAssignError):
        client.subscribe(topic, "s", type="key_shared", key_shared_policy=sticky((100, 200)))
    first.close()
    client.subscribe(topic, "s", type="key_shared", key_shared_policy=sticky((100, 200))).close()


def test_all_consumers_share_keys_in_the_same_way(client: Client, topic: str) -> None:
    """2.1.2 Another mode is refused while somebody is connected."""
    consumer = client.subscribe(topic, "s", type="key_shared")
    with pytest.raises(ConsumerBusyError):
        client.subscribe(topic, "s", type="key_shared", key_shared_policy=sticky((0, 65535)))
    with pytest.raises(ConsumerBusyError):
        client.subscribe(topic, "s", type="shared")
    consumer.close()
    client.subscribe(topic, "s", type="key_shared", key_shared_policy=sticky((0, 65535))).close()


def test_an_exclusive_consumer_may_filter_by_ranges(client: Client, service: Service, topic: str) -> None:
    """2.2.4 What is outside of its ranges is not delivered."""
    consumer = client.subscribe(topic, "s", key_shared_policy=sticky((0, 16383)))
    with client.create_producer(topic, batching_enabled=False) as producer:
        for key in ("key-2", "key-1", "key-0", "key-1"):
            producer.send(key, key=key)
    assert values(take(consumer, 2)) == ["key-1", "key-1"]
    assert_nothing_comes(consumer)


def test_a_policy_must_make_sense() -> None:
    """2.8.2 Checked before anything is sent."""
    for mode, ranges in (
        ("sticky", ()), ("auto_split", ((0, 1),)), ("sticky", ((5, 4),)), ("sticky", ((0, 65536),)),
        ("sticky", ((0, 9), (9, 12))), ("other", ()),
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            KeySharedPolicy(mode=mode, sticky_ranges=ranges)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        KeySharedPolicy().check_type("shared")
