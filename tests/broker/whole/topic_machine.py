# SPDX-License-Identifier: Apache-2.0
"""The life of one topic in random histories: what is sent, stored and deleted, and what survives stops and power loss.

Owns the model of the log and all ways to start again. Power is lost between actions and in the middle of them: at the
k-th change of the disk during a commit, an orderly stop, a retention check or a recovery. Who consumes, and how, is the
subclass's; sisters of it add what else a topic can do.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core.base.errors import ServerError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.base.settings import Settings
from broker_core.broker.topic import Topic
from broker_core.storage.topic_log import TopicLog
from broker_core.testing.sim_disk import POLICIES, SimDisk
from broker_core.wire.ack_sets import all_bits
from tests.broker.whole.entry import Entry
from tests.broker.whole.model import SubscriptionModel
from tests.broker.whole.sender import Sender
from tests.broker.world import EARLIEST, TINY, World, image_before

NAMES = ("one", "two")
"""The subscriptions."""

KEYS = "abc"
SIZES = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(KEYS)), min_size=2, max_size=8)
PICK = st.integers(0, 100)
CALM_STEPS = 20
"""Between two actions that end all consumers, so that something happens in between."""

calm = precondition(lambda self: self.steps_since_end >= CALM_STEPS)


class TopicMachine(RuleBasedStateMachine):
    """``log``: what is stored; ``models``: what must be true of each subscription."""

    tuning: ClassVar[Settings] = TINY

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.tuning)
        self.log: dict[Position, Entry] = {}
        self.models = {
            name: SubscriptionModel(name, self.log, self.world.clock, self.tuning, self.learn_new) for name in NAMES
        }
        self.steps_since_end = 0
        self.names = 0
        self.sender = Sender("p", self.send_failed)
        self._watched: Topic = None  # type: ignore[assignment] # loaded right after

    @initialize()
    def begin(self) -> None:
        for name in NAMES:
            self.topic.create_subscription(name, EARLIEST)
        self.world.settle()
        self.connect_senders()

    def teardown(self) -> None:
        if sys.exc_info()[0] is None:  # else the history has failed, or was given up
            self.finish()
        self.world.abandon()
        World.running.remove(self.world)

    def finish(self) -> None:
        """The end of a history without a failure: what must be possible from anywhere."""

    # -- sending

    def connect_senders(self) -> None:
        """After a start: the client is a new one, too, and does not know what the former one has sent."""
        self.sender = Sender("p", self.send_failed)
        self.sender.connect(self.topic)

    def senders(self) -> dict[str, Sender]:
        return {"p": self.sender}

    def send(self, entry: Entry) -> None:
        """Send it by a producer that may send now."""
        self.sender.send(entry)

    def send_failed(self, sender: Sender, error: ServerError) -> None:
        raise AssertionError("nothing can be wrong with what was sent") from error

    @property
    def topic(self) -> Topic:
        """Loaded, and watched: what is stored is known here before anybody is given it."""
        topic = self.world.topic()
        if topic is not self._watched:
            self._watched = topic
            topic.log.add_listener(self.learn_new)
            self.learn_new()
        return topic

    def learn_new(self) -> None:
        """Take note of what is stored now, and that it is what was sent."""
        senders = self.senders()
        last = next(reversed(self.log), None)
        for position, entry in stored_entries(self._watched.log, last).items():
            assert last is None or position > last, "ids rise (I1.1)"
            senders[entry.producer].stored(position, entry._replace(stored_ms=0))
            self.log[position] = entry
            for model in self.models.values():
                model.learn(position, entry.messages)
        assert not any(sender.confirmed for sender in senders.values()), "confirmed, but not stored"

    @rule(entries=SIZES, wait=st.booleans())
    def publish(self, entries: list[tuple[int, str]], wait: bool) -> None:
        for messages, key in entries:
            self.send(Entry(messages, key))
        if wait:
            self.settle()

    def pick_entry(self, number: int) -> Position:
        positions = list(self.log)
        return positions[number % len(positions)]

    # -- time

    def settle(self) -> None:
        self.world.settle()
        for model in self.models.values():
            model.safe = dict(model.open)

    @rule()
    def commit(self) -> None:
        """One group commit; what it makes durable may be delivered from then on."""
        self.world.commit_once()

    @rule()
    def turn(self) -> None:
        """One callback of the loop."""
        self.world.clock.run_one()

    @rule(ms=st.sampled_from([1, 150, 300, 1000]))
    def wait(self, ms: int) -> None:
        self.world.clock.advance(ms)

    # -- retention

    @rule()
    def retain(self) -> None:
        """7.1, 1.3.4 (I7.1): only a prefix that every subscription has acknowledged is deleted."""
        self.world.clock.advance(self.tuning.retention_check_interval_in_seconds * 1000)
        self.settle()
        self.compare_with_the_log()

    def compare_with_the_log(self) -> None:
        """What is there is what was sent."""
        self.learn_new()
        forget_what_is_gone(self.topic.log, self.log, self.models.values())
        assert stored_entries(self.topic.log) == self.log, "not what was sent"

    # -- stops

    @calm
    @rule()
    def restart(self) -> None:
        """3.6.2: an orderly stop keeps everything."""
        self.stop_and_start()
        self.after_start()

    def stop_and_start(self) -> None:
        for model in self.models.values():
            model.abandoned()
        self.world.restart()
        for model in self.models.values():
            model.safe = dict(model.open)

    @calm
    @rule(seed=st.integers(0, 1000), policy=st.sampled_from(POLICIES))
    def lose_power(self, seed: int, policy: Any) -> None:
        """3.6.4 (I3.7): between two actions."""
        self.start_on(self.world.disk.crash(seed, policy))
        self.after_start()

    @calm
    @rule(
        what=st.sampled_from(["commits", "stop", "retention", "recovery"]),
        change=st.integers(1, 40),
        seed=st.integers(0, 1000),
        policy=st.sampled_from(POLICIES),
    )
    def lose_power_during(self, what: str, change: int, seed: int, policy: Any) -> None:
        """3.6.4, 3.7 (I3.7, I6.7): at any change of the disk; after it if there are not so many."""
        actions: dict[str, Callable[[], None]] = {
            "commits": self.settle,
            "stop": self.stop_and_start,
            "retention": lambda: self.world.clock.advance(self.tuning.retention_check_interval_in_seconds * 1000),
        }
        if what == "recovery":
            self.start_on(self.world.disk.crash(seed + 1, policy), before_change=(change, seed, policy))
            self.after_start()
        else:
            self.lose_power_in(actions[what], change, seed, policy)

    def lose_power_in(self, action: Callable[[], None], change: int, seed: int, policy: Any) -> None:
        """Lose power at the ``change``-th change of the disk within ``action``, or after it."""
        caught = self.watch(self.world.disk, change, seed, policy)
        action()
        self.world.disk.before = None
        if caught:
            image, known = caught[0]
            self.restore(known)
            self.start_on(image)
        else:
            self.start_on(self.world.disk.crash(seed, policy))
        self.after_start()

    def watch(self, disk: SimDisk, change: int, seed: int, policy: Any) -> list[tuple[SimDisk, Any]]:
        """``image_before``, with what was known then."""
        return image_before(disk, change, seed, policy, self.known)

    def known(self) -> Any:
        """Everything that clients know now, to go back to."""
        of_models = {name: (dict(each.open), dict(each.safe)) for name, each in self.models.items()}
        of_senders = {name: (deque(each.unanswered), deque(each.expected)) for name, each in self.senders().items()}
        return dict(self.log), of_models, of_senders

    def restore(self, known: Any) -> None:
        """Forget what was learned after the power had gone."""
        log, of_models, of_senders = known
        self.log.clear()
        self.log.update(log)
        for name, model in self.models.items():
            model.open, model.safe = of_models[name]
        for name, sender in self.senders().items():
            sender.unanswered, sender.expected = of_senders[name]

    def start_on(self, image: SimDisk, before_change: tuple[int, int, Any] | None = None) -> None:
        """Start on what the disk has kept; with ``before_change``, lose power once more during that."""
        for model in self.models.values():
            model.abandoned()
        for sender in self.senders().values():
            sender.cut_off()
        world = self.world
        world.abandon()
        world.disk, world.clock = image, world.clock.stopped()
        for model in self.models.values():
            model.clock = world.clock
        caught = self.watch(image, *before_change) if before_change else []
        world.open()
        if before_change:
            self.world.topic()
            world.settle()
            image.before = None
            self.start_on(caught[0][0] if caught else image.crash(before_change[1], before_change[2]))

    def after_start(self) -> None:
        """Confirmed entries are there; acks lie between those that were durable and those asked for (I3.7)."""
        self.steps_since_end = 0
        _ = self.topic  # learns what was stored without a receipt
        self.compare_with_the_log()
        for name, model in self.models.items():
            for position, found in self.acknowledged(name).items():
                assert model.open[position] & ~found == 0, f"{position}: acknowledgements were invented"
                assert found & ~model.safe[position] == 0, f"{position}: durable acknowledgements were lost"
                model.open[position] = model.safe[position] = found
        self.connect_senders()

    def acknowledged(self, name: str) -> dict[Position, int]:
        """What the broker holds to be unacknowledged, as bits."""
        cursor = self.world.subscription(name).cursor
        return {
            position: 0 if cursor.is_acked(position) else cursor.partial.get(position, all_bits(entry.messages))
            for position, entry in self.log.items()
        }

    # -- after every step

    @invariant()
    def cursors_agree_with_the_model(self) -> None:
        """3.6.8 (I3.1, I3.2, I3.9)."""
        self.steps_since_end += 1
        if not self.world.broker.registry.loaded(self._watched.name):
            return
        for name, model in self.models.items():
            subscription = self.world.subscription(name)
            assert self.acknowledged(name) == model.open
            unacked = model.unacked()
            assert subscription.cursor.backlog_entries() == len(unacked)
            assert subscription.backlog.messages() == sum(bits.bit_count() for bits in model.open.values())
            if unacked:
                assert subscription.cursor.first_unacked() == unacked[0]
            assert all(position > subscription.cursor.mark_delete for position in subscription.cursor.deleted)


def stored_entries(log: TopicLog, after: Position | None = None) -> dict[Position, Entry]:
    """What is durable in ``log`` behind a position."""
    found: dict[Position, Entry] = {}
    start = POSITION_EARLIEST if after is None else Position(after.ledger, after.entry + 1)
    while batch := log.read(start, 100, 1 << 20):
        found |= {stored.position: Entry.of(stored) for stored in batch}
        start = Position(batch[-1].position.ledger, batch[-1].position.entry + 1)
    return found


def forget_what_is_gone(log: TopicLog, known: dict[Position, Entry], models: Collection[SubscriptionModel]) -> None:
    """Leave out of ``known`` and ``models`` what was deleted: a prefix, which was acknowledged by everybody."""
    kept = {ledger.id for ledger in log.ledgers()}
    gone = [position for position in known if position.ledger not in kept]
    assert gone == list(known)[: len(gone)], "a hole in the log"
    for position in gone:
        for model in models:
            model.forget(position)
        del known[position]
