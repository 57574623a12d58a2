# SPDX-License-Identifier: Apache-2.0
"""``Side``: one of two brokers that play the same script: a raw producer and raw consumers of one topic.

Owns how each step is done. Everything is called by the names of the script, never by the broker's ids, so that what two
sides have seen can be compared: ``view`` is all of it that the semantics promise.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatchmethod
from types import TracebackType
from typing import Any, Final, Self

from broker_core.base.positions import MESSAGE_ID_LATEST, Position
from broker_core.wire import commands
from broker_core.wire.ack_sets import bits_of_words, words_of_bits
from broker_core.wire.entry import read_metadata, seal_entry, split_broker_entry
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.lockstep.script import (
    Ack,
    AckSome,
    AckThrough,
    Entry,
    Expire,
    Flow,
    Leave,
    Publish,
    Redeliver,
    Seek,
    Skip,
    Step,
    Subscribe,
    Unload,
    Unsubscribe,
)
from tests.lockstep.seen import SeenConsumer, SeenSubscription
from tests.lockstep.wire import OK, Wire
from tests.server.oracle import Side as Address

NOBODY: Final = "nobody is there"
"""The outcome of a step by a consumer that was refused or is gone, or about an entry that was not sent."""

FOREVER: Final = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}

_TAKEOVERS: Final = (Subscribe, Leave, Unsubscribe, Seek, Unload)


class Side:
    """``topic``: in a namespace that nobody else uses. It has 31 methods: how each step is done is one."""

    def __init__(self, name: str, address: Address, topic: str, unacked_max: int) -> None:
        self._topic = topic
        self._path = topic.replace("://", "/")
        self._unacked_max = unacked_max
        self._faults: list[str] = []
        self._entries: dict[str, Entry] = {}
        self._ids: dict[str, pb.MessageIdData] = {}
        self._subscriptions: dict[str, SeenSubscription] = {}
        self._consumers: dict[int, SeenConsumer] = {}
        self._sent_away: set[int] = set()
        self._producer_is_open = False
        self._admin = address.admin()
        self._create()
        self._wire = Wire(name, address.service_url, self)
        self.collect = self._wire.collect

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._wire.close()
        self._admin.close()

    def _create(self) -> None:
        """The topic, and a namespace where nothing is deleted: when a broker does that is its own affair."""
        namespace = "namespaces/" + "/".join(self._path.split("/")[1:3])
        self._admin.put(namespace).raise_for_status()
        for policy, value in {"retention": FOREVER, "maxUnackedMessagesPerConsumer": self._unacked_max}.items():
            self._admin.post(f"{namespace}/{policy}", json=value).raise_for_status()
        self._admin.put(self._path).raise_for_status()

    # -- what was seen

    def view(self) -> dict[str, Any]:
        """What both sides must have seen when nothing more happens."""
        views = {name: each.view() for name, each in self._subscriptions.items()}
        return {**views, "backlogs": self._backlogs(), "faults": self._faults}

    def may_take_over(self, step: Step) -> bool:
        """Whether another consumer of a Failover subscription may be the active one behind this step."""
        there = [each for seen in self._subscriptions.values() for each in seen.consumers.values()]
        return isinstance(step, _TAKEOVERS) and any(each.asked.kind == "Failover" for each in there)

    def _backlogs(self) -> dict[str, int]:
        stats = self._admin.get(f"{self._path}/stats", params={"getPreciseBacklog": "true"}).json()
        return {name: each["msgBacklog"] for name, each in stats["subscriptions"].items()}

    def _consumer(self, name: str) -> SeenConsumer | None:
        return next((each.consumers[name] for each in self._subscriptions.values() if name in each.consumers), None)

    def _subscription_of(self, consumer: SeenConsumer) -> SeenSubscription:
        return self._subscriptions[consumer.asked.subscription]

    def _through(self, last: str) -> list[str]:
        """``last`` and all entries before it."""
        names = list(self._entries)
        return names[: names.index(last) + 1]

    # -- what comes without being asked for (``Listener``)

    def message_came(self, message: pb.CommandMessage, body: bytes) -> None:
        consumer = self._consumers[message.consumer_id]
        if consumer.id in self._sent_away:
            return
        entry = self._entries[str(read_metadata(split_broker_entry(body)[1]).properties[0].value)]
        bits = bits_of_words(message.ack_set) if message.ack_set else entry.all_bits
        keys = {each.name: each.key for each in self._entries.values()}
        self._subscription_of(consumer).delivered(consumer, entry, bits, message.redelivery_count, keys)

    def consumer_sent_away(self, consumer_id: int) -> None:
        self._sent_away.add(consumer_id)

    def producer_sent_away(self) -> None:
        self._producer_is_open = False

    # -- sending

    @singledispatchmethod
    def do(self, step: Step) -> str:
        """Do one step; the outcome."""
        raise NotImplementedError(step)

    @do.register
    def _(self, step: Publish) -> str:
        if not self._producer_is_open:
            command = BaseCommand(type=BaseCommand.PRODUCER)
            command.producer.topic, command.producer.producer_id = self._topic, 0
            self._wire.ask_until_granted(command, command.producer)
            self._producer_is_open = True
        first = len(self._entries) + 1
        for number, entry in enumerate(step.entries, first):
            self._entries[entry.name] = entry
            for subscription in self._subscriptions.values():
                subscription.left[entry.name] = entry.all_bits
            self._wire.send_entry(0, number, _body(entry, number), entry.messages)
        for number, entry in enumerate(step.entries, first):
            answer = self._wire.receipt(number)
            if answer.type == BaseCommand.SEND_ERROR:
                return pb.ServerError.Name(answer.send_error.error)
            self._ids[entry.name] = answer.send_receipt.message_id
        return OK

    # -- consumers come and go

    @do.register
    def _(self, step: Subscribe) -> str:
        consumer = SeenConsumer(len(self._consumers), step)
        self._consumers[consumer.id] = consumer
        command = self._subscribe_command(consumer)
        outcome = self._wire.ask(command, command.subscribe)
        if outcome == OK:
            everything = {each.name: each.all_bits for each in self._entries.values()}
            subscription = SeenSubscription(everything, self._faults)
            self._subscriptions.setdefault(step.subscription, subscription).consumers[step.consumer] = consumer
            self._wire.flow(consumer.id, step.permits)
        return outcome

    def _subscribe_command(self, consumer: SeenConsumer) -> BaseCommand:
        asked, command = consumer.asked, BaseCommand(type=BaseCommand.SUBSCRIBE)
        body = command.subscribe
        body.topic, body.subscription, body.consumer_id = self._topic, asked.subscription, consumer.id
        body.subType = getattr(pb.CommandSubscribe, asked.kind)
        body.consumer_name, body.initialPosition = asked.consumer, pb.CommandSubscribe.Earliest
        return command

    @do.register
    def _(self, step: Leave) -> str:
        if (consumer := self._consumer(step.consumer)) is None:
            return NOBODY
        command = commands.close_consumer(consumer.id, 0)
        self._sent_away.add(consumer.id)
        self._subscription_of(consumer).left_by(consumer)
        return self._wire.ask(command, command.close_consumer)

    @do.register
    def _(self, step: Unsubscribe) -> str:
        if (consumer := self._consumer(step.consumer)) is None:
            return NOBODY
        command = BaseCommand(type=BaseCommand.UNSUBSCRIBE)
        command.unsubscribe.consumer_id = consumer.id
        if (outcome := self._wire.ask(command, command.unsubscribe)) == OK:
            self._sent_away.add(consumer.id)
            del self._subscriptions[consumer.asked.subscription]
        return outcome

    @do.register
    def _(self, step: Flow) -> str:
        if (consumer := self._consumer(step.consumer)) is None:
            return NOBODY
        self._wire.flow(consumer.id, step.permits)
        return OK

    def _come_back(self, subscriptions: Iterable[SeenSubscription]) -> None:
        """All of their consumers are being sent away. Together they come back, and only then may anything be sent:
        else the first one would get what is for others."""
        for subscription in subscriptions:
            consumers = list(subscription.consumers.values())
            ids = {each.id for each in consumers}
            self._wire.until(lambda ids=ids: ids <= self._sent_away, f"consumers {ids} were sent away")  # type: ignore[misc]
            subscription.begin_anew()
            self._sent_away -= ids
            for consumer in consumers:
                command = self._subscribe_command(consumer)
                if (outcome := self._wire.ask_until_granted(command, command.subscribe)) != OK:
                    self._faults.append(f"{consumer.asked.consumer} could not come back: {outcome}")
            for consumer in consumers:
                self._wire.flow(consumer.id, consumer.asked.permits)

    # -- acknowledging and asking again

    @do.register
    def _(self, step: Ack) -> str:
        ids = [self._ids[each] for each in step.entries if each in self._ids]
        return self._ack(step.consumer, pb.CommandAck.Individual, ids, dict.fromkeys(step.entries, 0))

    @do.register
    def _(self, step: AckSome) -> str:
        if step.entry not in self._ids:
            return NOBODY
        target = pb.MessageIdData()
        target.CopyFrom(self._ids[step.entry])
        target.batch_size = self._entries[step.entry].messages
        target.ack_set.extend(words_of_bits(step.left_bits))
        return self._ack(step.consumer, pb.CommandAck.Individual, [target], {step.entry: step.left_bits})

    @do.register
    def _(self, step: AckThrough) -> str:
        if step.entry not in self._ids:
            return NOBODY
        covered = dict.fromkeys(self._through(step.entry), 0)
        return self._ack(step.consumer, pb.CommandAck.Cumulative, [self._ids[step.entry]], covered)

    def _ack(
        self, name: str, kind: pb.CommandAck.AckType, ids: Sequence[pb.MessageIdData], left: Mapping[str, int]
    ) -> str:
        consumer = self._consumer(name)
        if consumer is None or not ids:
            return NOBODY
        command = BaseCommand(type=BaseCommand.ACK)
        command.ack.consumer_id, command.ack.ack_type = consumer.id, kind
        command.ack.message_id.extend(ids)
        for entry, bits in left.items():  # Before the broker knows: what waits for it may come before the answer.
            self._subscription_of(consumer).acked(entry, bits)
        return self._wire.ask(command, command.ack)

    @do.register
    def _(self, step: Redeliver) -> str:
        if (consumer := self._consumer(step.consumer)) is None:
            return NOBODY
        subscription = self._subscription_of(consumer)
        if step.entries is None:
            subscription.given_back(consumer)
            self._wire.tell(commands.redeliver_all(consumer.id, 0))
            return OK
        asked: dict[SeenConsumer, list[Position]] = defaultdict(list)
        for entry in step.entries:
            # A consumer that has too much and asks for what it does not hold goes on at Pulsar (2.4.7).
            if entry in self._ids and (entry in subscription.held or not self._unacked_max):
                asked[subscription.held.pop(entry, consumer)].append(commands.read_position(self._ids[entry]))
        for owner, positions in asked.items():
            self._wire.tell(*commands.redeliver(owner.id, positions, -1))
        return OK

    @do.register
    def _(self, step: Seek) -> str:
        consumer = self._consumer(step.consumer)
        if consumer is None or (step.entry is not None and step.entry not in self._ids):
            return NOBODY
        command, subscription = BaseCommand(type=BaseCommand.SEEK), self._subscription_of(consumer)
        command.seek.consumer_id = consumer.id
        target = commands.message_id(MESSAGE_ID_LATEST) if step.entry is None else self._ids[step.entry]
        command.seek.message_id.CopyFrom(target)
        outcome = self._wire.ask(command, command.seek)
        if outcome == OK:
            passed = list(self._entries) if step.entry is None else self._through(step.entry)[:-1]
            subscription.left = {name: each.all_bits for name, each in self._entries.items() if name not in passed}
            self._come_back([subscription])
        return outcome

    # -- what an administrator does

    @do.register
    def _(self, step: Unload) -> str:
        outcome = self._request("PUT", "unload")
        self._wire.until(lambda: not self._producer_is_open, "the producer was sent away")
        self._come_back(self._subscriptions.values())
        return outcome

    @do.register
    def _(self, step: Skip) -> str:
        what = "skip_all" if step.count is None else f"skip/{step.count}"
        outcome = self._request("POST", f"subscription/{step.subscription}/{what}")
        if outcome == OK:
            subscription = self._subscriptions[step.subscription]
            for entry in [each for each in self._entries if each in subscription.left][: step.count]:
                subscription.acked(entry)
        return outcome

    @do.register
    def _(self, step: Expire) -> str:
        if (found := self._ids.get(step.entry)) is None:
            return NOBODY
        target = {"ledgerId": found.ledgerId, "entryId": found.entryId, "partitionIndex": -1, "batchIndex": -1}
        outcome = self._request("POST", f"subscription/{step.subscription}/expireMessages", target)
        if outcome == OK:
            for entry in self._through(step.entry):
                self._subscriptions[step.subscription].acked(entry)
        return outcome

    def _request(self, method: str, what: str, body: Mapping[str, int] | None = None) -> str:
        answer = self._admin.request(method, f"{self._path}/{what}", json=body)
        return OK if answer.status_code < 300 else f"status {answer.status_code}"


def _body(entry: Entry, sequence_id: int) -> bytes:
    """``entry`` as a client would send it; its name is a property, as batches have it only inside."""
    now_ms = time.time_ns() // 1_000_000
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=now_ms)
    metadata.partition_key = entry.key
    metadata.properties.add(key="name", value=entry.name)
    if entry.delay_ms:
        metadata.deliver_at_time = now_ms + entry.delay_ms
    if entry.messages == 1:
        return seal_entry(metadata.SerializeToString(), b"")
    metadata.num_messages_in_batch = entry.messages
    single = pb.SingleMessageMetadata(payload_size=0).SerializeToString()
    return seal_entry(metadata.SerializeToString(), (len(single).to_bytes(4, "big") + single) * entry.messages)
