# SPDX-License-Identifier: Apache-2.0
"""Random histories with several producers of one topic: deduplication, access modes, the end of the topic (I1.5, I7.3).

Producers live longer than the broker: whatever has no answer is sent again by their next connection, and is stored
once. ``Sender`` checks that of every entry which is seen in the log. A topic that was terminated is deleted some time
later, and one of the same name begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from broker_core.base.errors import (
    PersistenceServerError,
    ProducerBusyError,
    ProducerFencedError,
    ServerError,
    ServiceNotReadyError,
    TopicTerminatedError,
)
from broker_core.base.positions import Position
from broker_core.broker.requests import AccessMode
from broker_core.broker.topic import Topic
from tests.broker.whole.entry import Entry
from tests.broker.whole.machine import WholeBrokerMachine
from tests.broker.whole.sender import Sender
from tests.broker.whole.topic_machine import KEYS, NAMES, calm
from tests.broker.world import EARLIEST, TINY

WHO = st.sampled_from(KEYS)
MODES = st.sampled_from([AccessMode.SHARED, AccessMode.SHARED, *AccessMode])
RARELY = st.integers(0, 3)


class Publisher(Sender):
    """A producer's client that comes back under its name. ``topic_epoch``: what it was given with exclusive access."""

    mode = AccessMode.SHARED
    topic_epoch: int | None = None
    connections = 0
    must_reconnect = False
    must_resend = False

    def come(self, topic: Topic, mode: AccessMode) -> None:
        """Connect in ``mode``; as the successor of its former connection if that is the same. Raises if refused."""
        if mode is not self.mode or mode is AccessMode.SHARED:
            self.topic_epoch = None
        self.mode = mode
        self.connections += 1
        self.must_reconnect = False
        self.connect(topic, access_mode=mode, epoch=self.connections, topic_epoch=self.topic_epoch)
        if self.is_connected:
            self.ready()

    def ready(self) -> None:
        assert self.producer is not None
        self.topic_epoch = self.producer.topic_epoch
        assert self.producer.last_sequence_id >= self.seen_through, "1.7.3: what is stored is forgotten (I1.5)"
        self.must_resend = True

    def go_on(self) -> None:
        """Outside of the broker's calls: what follows from what was heard in them."""
        if self.must_reconnect:
            self.cut_off()
        elif self.must_resend and self.is_connected:
            self.resend()
        self.must_resend = False

    def receipt(self, sequence_ids: Sequence[int], highest_sequence_ids: Sequence[int], first: Position) -> None:
        if not self.must_reconnect:
            super().receipt(sequence_ids, highest_sequence_ids, first)

    @property
    def seen_through(self) -> int:
        """The highest id that is stored for sure."""
        return (self.expected[0].sequence_id if self.expected else self.next_id) - 1


class PublishersMachine(WholeBrokerMachine):
    """``ending``: the topic was asked to end; ``end``: its last position, once that is known.

    ``safe_end`` and ``safe_epoch`` are what was durable last: clients are told no sooner.
    """

    tuning = msgspec.structs.replace(
        TINY,
        broker_deduplication_enabled=True,
        broker_deduplication_entries_interval=20,
        broker_deduplication_snapshot_interval_seconds=600,
    )

    def __init__(self) -> None:
        super().__init__()
        self.publishers = {name: Publisher(name, self.send_failed) for name in KEYS}
        self.safe_epoch = -1
        self.ending = False
        self.end: Position | None = None
        self.safe_end: Position | None = None
        self.ids_at_end: dict[str, int] = {}

    def senders(self) -> dict[str, Any]:
        return self.publishers

    def connect_senders(self) -> None:
        """They come when they want."""

    @property
    def topic(self) -> Topic:
        """One that is still being unloaded may be had a little later."""
        try:
            return super().topic
        except ServiceNotReadyError:
            self.world.settle()
            return super().topic

    # -- producers

    @rule(who=WHO, mode=MODES)
    def come(self, who: str, mode: AccessMode) -> None:
        """1.7.4: with exclusive access one is alone, and who was away meanwhile may not come back with it."""
        publisher = self.publishers[who]
        if publisher.producer is not None:
            return
        topic = self.topic
        try:
            publisher.come(topic, mode)
        except TopicTerminatedError:
            assert self.ending
        except (ProducerBusyError, ProducerFencedError):
            assert len(topic.producers) or topic.producers.waiting or publisher.topic_epoch is not None
            publisher.topic_epoch = None
        else:
            assert not self.ending
            if mode is not AccessMode.SHARED:
                self.settle()

    @rule(who=WHO)
    def lose_connection(self, who: str) -> None:
        """What is under way may be stored, and nobody is told."""
        self.publishers[who].cut_off()

    def send(self, entry: Entry) -> None:
        """Each key has its producer, which connects if it can."""
        publisher = self.publishers[entry.key]
        if publisher.producer is None and not self.ending:
            self.come(entry.key, AccessMode.SHARED)
        publisher.go_on()
        if publisher.is_connected:
            publisher.send(entry)

    def send_failed(self, sender: Sender, error: ServerError) -> None:
        """1.8.4, 7.5: not known yet, so send again with the next connection; or never to be stored."""
        if isinstance(error, TopicTerminatedError):
            assert self.ending
        else:
            assert isinstance(error, PersistenceServerError)
        self.publishers[sender.name].must_reconnect = True

    # -- the topic

    @rule(settle=st.booleans())
    @calm
    def unload(self, settle: bool) -> None:
        """1.8: also while entries are under way."""
        self.steps_since_end = 0
        topic = self.topic
        for model in self.models.values():
            model.abandoned()
        self.world.broker.unload(topic.name)
        if settle:
            self.settle()

    @rule()
    def compact(self) -> None:
        """The log of the cursors, deduplication's among them, is written anew."""
        self.world.store.cursors.compact()

    @calm
    @precondition(lambda self: not self.ending)
    @rule(luck=RARELY, settle=st.booleans())
    def terminate(self, luck: int, settle: bool) -> None:
        """7.5: nothing is stored behind what was last when it was asked for, while entries were under way."""
        if luck:
            return
        self.publish([(1, key) for key in KEYS], wait=False)
        self.ask_to_end(asked=True)
        self.ids_at_end = {name: each.next_id for name, each in self.publishers.items()}
        self.topic.terminate(self.ended)
        self.publish([(1, key) for key in KEYS], wait=False)
        if settle:
            self.settle()

    def ended(self, result: Position | ServerError) -> None:
        if isinstance(result, Position):
            self.learn_new()
            last = next(reversed(self.log), None)
            assert last is None or result == last, "7.5: not the last one"
            late = [name for name, each in self.publishers.items() if each.seen_through >= self.ids_at_end[name]]
            assert not late, f"7.5: {late} have sent later, and it is stored"
            self.end = result
        else:  # unloaded before it was durable
            self.ask_to_end(asked=False)

    def ask_to_end(self, *, asked: bool) -> None:
        self.ending = asked
        for model in self.models.values():
            model.is_ending = asked

    @calm
    @precondition(lambda self: self.end is not None)
    @rule()
    def begin_anew(self) -> None:
        """Deleted with all that it held, its sequence ids and its end; the name may be used again."""
        for publisher in self.publishers.values():
            publisher.cut_off()
        self.settle()
        topic = self.topic
        self.world.broker.deletion.delete_topic(topic.name, force=True)
        self.log.clear()
        for model in self.models.values():
            model.abandoned()
            model.open, model.safe = {}, {}
        self.publishers = {name: Publisher(name, self.send_failed) for name in KEYS}
        self.safe_epoch, self.end, self.safe_end = -1, None, None
        self.ask_to_end(asked=False)
        self.steps_since_end = 0
        for name in NAMES:
            self.topic.create_subscription(name, EARLIEST)
        self.settle()

    def settle(self) -> None:
        super().settle()
        self.safe_end = self.end
        if self.world.broker.registry.loaded(self._watched.name):
            self.safe_epoch = _epoch(self.topic)

    def known(self) -> Any:
        return super().known(), self.end, self.safe_end, self.safe_epoch

    def restore(self, known: Any) -> None:
        of_topic, self.end, self.safe_end, self.safe_epoch = known
        super().restore(of_topic)

    def after_start(self) -> None:
        """I7.3: an end that was told is the end; one that was asked for may have been lost."""
        found = self.topic.terminated
        assert self.safe_end in (None, found), "the end of the topic is lost"
        assert found is None or (self.ending and self.end in (None, found))
        self.end = self.safe_end = found
        self.ask_to_end(asked=found is not None)
        super().after_start()

    def finish(self) -> None:
        """I1.5: whatever was sent and could be stored is stored, once."""
        for publisher in self.publishers.values():
            publisher.cut_off()
        self.world.settle()
        for publisher in self.publishers.values():
            while not self.ending and (publisher.unanswered or publisher.expected):
                publisher.come(self.topic, AccessMode.SHARED)
                publisher.go_on()
                self.world.settle()
                publisher.cut_off()
                assert not publisher.unanswered
                assert not publisher.expected, "confirmed, but not stored"
        super().finish()
        for model in self.models.values():
            assert self.end is None or all(client in model.told_end for client in model.clients), "7.5: not told"

    # -- after every step

    @invariant()
    def exclusive_is_alone(self) -> None:
        """1.7.4: and epochs do not fall."""
        for publisher in self.publishers.values():
            publisher.go_on()
        if not self.world.broker.registry.loaded(self._watched.name):
            return
        topic = self.topic
        connected = [each for each in self.publishers.values() if each.is_connected]
        assert {each.name for each in topic.producers} == {each.name for each in connected}
        assert len(connected) <= 1 or all(each.mode is AccessMode.SHARED for each in connected)
        assert _epoch(topic) >= self.safe_epoch

    @invariant()
    def nothing_is_behind_the_end(self) -> None:
        """I7.3"""
        assert self.end is None or not self.log or next(reversed(self.log)) <= self.end


def _epoch(topic: Topic) -> int:
    return -1 if topic.producers.epoch is None else topic.producers.epoch


TestPublishers = PublishersMachine.TestCase
TestPublishers.settings = settings(
    max_examples=35, stateful_step_count=80, deadline=None, derandomize=True, print_blob=True
)
