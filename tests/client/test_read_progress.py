# SPDX-License-Identifier: Apache-2.0
"""Where a consumer is in its topic: seeks, rewinds and reconnects at any moment, against a model of a broker."""

from collections import deque
from typing import Literal, get_args

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, MessageId, Position
from broker_core.client.consuming.read_progress import ReadProgress
from broker_core.client.messages.message import Message, StartPoint
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb
from tests.client.test_permits import FakeSource

LEDGER = 1
MS_OF_AN_ENTRY = 10
"""The first entry is published when it is this late, each other one so much later."""
PERMITS = 7

SOURCE = FakeSource(PERMITS)

Target = MessageId | int
SecondSeek = Literal["kept", "detached", "lost", "detached and lost"]
"""What becomes of the consumer when a reader that may have lost its place is sent to its time once more."""


class ModelBroker:
    """One topic and one subscription of it, which goes with its consumer if it is not durable."""

    def __init__(self, *, durable: bool) -> None:
        self.durable = durable
        self.sizes: list[int] = []
        self.exists = False
        self.begins_at = 0
        """Entries before this one are acknowledged."""
        self.read_at = 0
        self.acked: set[MessageId] = set()
        """Of the entries behind that."""

    def ids(self, entry: int) -> list[MessageId]:
        size = self.sizes[entry]
        if size == 1:
            return [MessageId(LEDGER, entry)]
        return [MessageId(LEDGER, entry, -1, index, size) for index in range(size)]

    def all_ids(self) -> list[MessageId]:
        return [each for entry in range(len(self.sizes)) for each in self.ids(entry)]

    @property
    def last(self) -> MessageId:
        return self.ids(len(self.sizes) - 1)[-1] if self.sizes else MessageId(LEDGER, -1)

    @property
    def mark_delete(self) -> Position:
        return Position(LEDGER, self.begins_at - 1)

    def entry_of(self, target: Target | Position) -> int:
        """Where a subscription goes that is sent to ``target``."""
        if isinstance(target, int):
            return min(len(self.sizes), max(0, -(-target // MS_OF_AN_ENTRY) - 1))
        if target == MESSAGE_ID_EARLIEST:
            return 0
        return min(len(self.sizes), max(0, target.entry) if target != MESSAGE_ID_LATEST else len(self.sizes))

    def move(self, entry: int) -> None:
        self.begins_at = self.read_at = entry
        self.acked.clear()

    def ack(self, message_id: MessageId) -> None:
        self.acked.add(message_id)
        while self.begins_at < len(self.sizes) and self.acked >= set(self.ids(self.begins_at)):
            self.begins_at += 1

    def unacked(self) -> list[MessageId]:
        return [each for each in self.all_ids() if each.entry >= self.begins_at and each not in self.acked]


class ReadProgressMachine(RuleBasedStateMachine):
    """Plays the consumer around a ``ReadProgress``: taken messages are compared with those that are next."""

    @initialize(
        durable=st.booleans(),
        sizes=st.lists(st.integers(1, 3), max_size=5),
        start=st.one_of(st.sampled_from([MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST]), st.integers(0, 9)),
        inclusive=st.booleans(),
    )
    def begin(self, durable: bool, sizes: list[int], start: MessageId | int, inclusive: bool) -> None:
        self.broker = ModelBroker(durable=durable)
        self.broker.sizes += sizes
        ids = self.broker.all_ids()
        if isinstance(start, int):
            start = ids[start % len(ids)] if ids else MESSAGE_ID_EARLIEST
        self.progress = ReadProgress(None if durable else StartPoint(start, inclusive), durable=durable)
        self.attached = False
        self.connection = object()
        self.wire: deque[tuple[int, int]] = deque()
        self.queue: deque[MessageId] = deque()
        self.next = start
        """Of a reader: it is shown, or what is behind it."""
        self.is_next_shown = inclusive
        self.broker.exists = durable
        self.taken: MessageId | None = None
        self.hidden: list[MessageId] = []
        if start == MESSAGE_ID_EARLIEST:
            self.is_next_shown = True

    # -- what has to be seen

    def expected(self) -> list[MessageId]:
        """What the application still has to get, in order, of what is published."""
        if self.broker.durable:
            unacked = [each for each in self.broker.unacked() if each not in self.hidden]
            return [each for each in unacked if self.taken is None or each > self.taken]
        start = self.next
        ids = self.broker.all_ids()
        if start == MESSAGE_ID_LATEST:
            return []
        if start.batch_index < 0:
            first = start.entry if self.is_next_shown else start.entry + 1
            return [each for each in ids if each.entry >= first]
        return [each for each in ids if each > start or (each == start and self.is_next_shown)]

    def goes_on_behind(self, message_id: MessageId) -> None:
        self.next, self.is_next_shown = message_id, False

    # -- the consumer's part

    def arrive(self, epoch: int, entry: int) -> None:
        """As ``TopicConsumer.message``, without permits."""
        head = MessageHead(0, LEDGER, entry, -1, 0, (), epoch)
        if self.progress.held is not None:
            self.progress.held.append((head, b""))
        elif not self.progress.is_stale(epoch):
            messages = [
                Message(SOURCE, each, b"", pb.MessageMetadata(), None, 0, -1, -1)
                for each in self.broker.ids(entry)
                if each not in self.broker.acked
            ]
            shown, passed = self.progress.split(messages)
            for each in passed:
                if self.broker.durable:
                    assert each.message_id in self.hidden
                    self.broker.ack(each.message_id)
            self.queue += [each.message_id for each in shown]

    def lose(self) -> None:
        self.connection = object()
        self.attached = False
        self.wire.clear()
        self.broker.exists = self.broker.durable

    def attach_once(self, published_meanwhile: int, pushed_meanwhile: int, second_seek: SecondSeek) -> bool:
        progress, broker = self.progress, self.broker
        self.queue.clear()
        progress.attaching(PERMITS, self.connection)
        start = progress.start_at_broker(None)
        if not broker.exists:
            broker.exists = True
            broker.move(broker.entry_of(start) if start is not None else 0)
        broker.read_at = broker.begins_at
        progress.attached()
        epoch = progress.epoch
        self.wire.clear()
        for _ in range(pushed_meanwhile):
            self.push_one(epoch)
        broker.sizes += [1] * published_meanwhile
        if progress.held is not None:
            while self.wire:
                self.arrive(*self.wire.popleft())
            again_ms = progress.seek_again_ms(broker.mark_delete)
            if again_ms is not None:
                broker.move(broker.entry_of(again_ms))
                if second_seek in ("detached", "detached and lost"):
                    progress.sent_again(self.connection)
                if second_seek in ("lost", "detached and lost"):
                    self.lose()
                if second_seek != "kept":
                    return False
            if self.next == MESSAGE_ID_LATEST:
                self.goes_on_behind(broker.last)
            progress.pin(broker.last, broker.mark_delete)
            for head, _ in progress.take_held():
                self.arrive(head.consumer_epoch, head.entry)
        progress.owed_permits += 1
        assert (progress.take_owed(), progress.owed_permits) == (PERMITS + 1, 0)
        self.attached = True
        return True

    def push_one(self, epoch: int) -> None:
        if self.broker.read_at < len(self.broker.sizes):
            self.wire.append((epoch, self.broker.read_at))
            self.broker.read_at += 1

    # -- what happens

    @rule(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3))
    def publish(self, sizes: list[int]) -> None:
        self.broker.sizes += sizes

    @precondition(lambda self: self.attached)
    @rule(entries=st.integers(1, 3))
    def push(self, entries: int) -> None:
        for _ in range(entries):
            self.push_one(self.progress.epoch)

    @precondition(lambda self: self.wire)
    @rule()
    def deliver(self) -> None:
        self.arrive(*self.wire.popleft())

    @precondition(lambda self: self.queue)
    @rule(count=st.integers(1, 4), acked=st.booleans())
    def take(self, count: int, acked: bool) -> None:
        for _ in range(min(count, len(self.queue))):
            message_id = self.queue.popleft()
            assert message_id == self.expected()[0]
            self.progress.taken(message_id)
            self.taken = message_id
            if not self.broker.durable:
                self.goes_on_behind(message_id)
            elif acked:
                for each in self.broker.unacked():
                    if each <= message_id:
                        self.broker.ack(each)

    @precondition(lambda self: not self.attached)
    @rule(
        published=st.integers(0, 2),
        pushed=st.integers(0, 3),
        second_seeks=st.lists(st.sampled_from(get_args(SecondSeek)), max_size=3),
    )
    def attach(self, published: int, pushed: int, second_seeks: list[SecondSeek]) -> None:
        self.taken, self.hidden = None, []
        # Apache Pulsar alone pushes without permits, what it had begun to read, and it detaches for each seek.
        final: SecondSeek = "detached" if pushed else "kept"
        possible = [each for each in second_seeks if each != "kept" or not pushed]
        for second_seek in (*possible, final, final):
            if self.attach_once(published, pushed, second_seek):
                return
        raise AssertionError("a second seek on the same connection leads to where the time does")

    @precondition(lambda self: self.attached)
    @rule()
    def lose_the_connection(self) -> None:
        self.lose()

    @precondition(lambda self: self.attached)
    @rule()
    def rewind(self) -> None:
        if self.broker.durable:  # A reader has no way to ask for it.
            self.queue.clear()
            self.progress.rewound()
            self.taken = None
            self.broker.read_at = self.broker.begins_at

    @precondition(lambda self: self.attached)
    @rule(entry=st.integers(0, 9))
    def another_consumer_resets_the_cursor(self, entry: int) -> None:
        if self.broker.durable:
            self.lose()
            self.queue.clear()
            self.broker.move(min(entry, len(self.broker.sizes)))

    @precondition(lambda self: self.attached)
    @rule(
        kind=st.sampled_from(["earliest", "latest", "id", "id", "ms"]),
        number=st.integers(0, 60),
        inclusive=st.booleans(),
        pushed=st.integers(0, 2),
        outcome=st.sampled_from(["kept", "detached", "unloaded", "refused", "lost"]),
    )
    def seek(self, kind: str, number: int, inclusive: bool, pushed: int, outcome: str) -> None:
        to = self.target(kind, number)
        for _ in range(pushed):
            self.push_one(self.progress.epoch)
        self.queue.clear()
        before = self.progress.seeking(to, inclusive=inclusive)
        while self.wire:
            self.arrive(*self.wire.popleft())  # sent before the seek: dropped
        assert not self.queue
        if outcome in ("refused", "lost"):
            self.progress.seek_failed(before)
            if outcome == "lost" and self.broker.durable:
                self.broker.move(self.broker.entry_of(to))
            self.lose()
            return
        self.broker.move(self.broker.entry_of(to))
        self.taken, self.hidden = None, []
        self.aim(to, inclusive)
        hidden = self.hidden
        keeps = outcome == "kept" and to != MESSAGE_ID_LATEST
        self.progress.sought(still_attached=keeps)
        if not keeps:
            before_attaching = self.progress.registrations
            exists = self.broker.exists
            self.lose()
            self.broker.exists = self.broker.durable or (exists and outcome != "unloaded")
            self.attach(0, pushed, ["detached"] if inclusive else [])
            self.hidden = hidden
            if not isinstance(to, int) or self.broker.durable:
                assert not self.progress.is_lost(to, before_attaching, same_connection=False)
            else:
                assert not self.progress.is_lost(to, before_attaching, same_connection=True)
                assert self.progress.is_lost(to, before_attaching, same_connection=False)

    def target(self, kind: str, number: int) -> Target:
        ids = self.broker.all_ids()
        if kind == "ms":
            return number % (MS_OF_AN_ENTRY * (len(self.broker.sizes) + 1))
        if kind == "id" and ids:
            return ids[number % len(ids)]
        return MESSAGE_ID_LATEST if kind == "latest" else MESSAGE_ID_EARLIEST

    def aim(self, to: Target, inclusive: bool) -> None:
        """The seek is done: this is what the application has to see next."""
        if not self.broker.durable:
            if isinstance(to, int):
                self.next, self.is_next_shown = MessageId(LEDGER, self.broker.entry_of(to)), True
            else:
                self.next, self.is_next_shown = to, inclusive or to == MESSAGE_ID_EARLIEST
        elif isinstance(to, MessageId) and to not in (MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST):
            here = self.broker.ids(to.entry)
            self.hidden = [each for each in here if each < to or (each == to and not inclusive)]

    @precondition(lambda self: self.attached)
    @rule()
    def everything_comes(self) -> None:
        """Nothing is lost: what was published is there when the broker has pushed it all."""
        for _ in self.broker.sizes:
            self.push_one(self.progress.epoch)
        while self.wire:
            self.arrive(*self.wire.popleft())
        assert list(self.queue) == self.expected()
        has_more = bool(self.expected())
        if not self.broker.durable and self.broker.sizes:
            assert self.progress.precedes(self.broker.last, self.broker.mark_delete) == has_more


TestReadProgress = ReadProgressMachine.TestCase
