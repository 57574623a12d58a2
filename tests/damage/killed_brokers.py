# SPDX-License-Identifier: Apache-2.0
"""Data directories of real broker processes on the real disk, most of them killed with SIGKILL, to be damaged.

What clients were told goes into the account: every receipt and every acknowledgement that was answered must be in the
directory that is left, before anything is damaged. The damages themselves are done in memory, to the very bytes.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.base.settings import DEFAULT_SETTINGS
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire import commands
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandAck, CommandSubscribe
from tests.broker.delayed.entries import delayed_body
from tests.broker.world import World
from tests.damage.histories import (
    DELAYED,
    LATEST_DELAY_MS,
    SETTINGS,
    SUBSCRIPTIONS,
    TOPICS,
    Files,
    History,
    JudgementError,
    WorldAt,
    catalogue,
    note_confirmed,
)
from tests.schemas.infos import avro
from tests.server.schema_client import on_wire

STEPS: Final = 12
_TIMEOUT_S: Final = 120.0


class RealLife:
    """The lives of some brokers, one after the other on the same directory."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.history = History(seed, self.chance.choice(("kill", "kill", "clean stop")), real=True)
        self.told: dict[tuple[str, Position], bytes] = {}
        self.acked: set[tuple[str, str, Position]] = set()
        self.schemas: dict[tuple[str, int], bytes] = {}
        self.data_dir = folder / "data"
        named = msgspec.to_builtins(SETTINGS)
        usual = msgspec.to_builtins(DEFAULT_SETTINGS)
        self.broker = RunningBroker(self.data_dir, {name: each for name, each in named.items() if each != usual[name]})
        self.client: RawClient

    def live(self) -> History:
        """All of them, to the end of the last."""
        with self.broker:
            for life in range(lives := self.chance.randint(2, 3)):
                if life:
                    self.broker.start()
                with RawClient(self.broker.service_url, broker_entry_metadata=False, timeout_s=_TIMEOUT_S) as client:
                    self.client = client
                    self._act(begin=life == 0)
                    if life < lives - 1 or self.history.end == "kill":
                        self.broker.kill()
                    else:
                        self.broker.stop()
                self.history.older.append(self._files())
        self._take_account()
        return self.history

    def _act(self, *, begin: bool) -> None:
        actions = [self._publish] * 3 + [self._acknowledge] * 3 + [self._publish_delayed]
        actions += [self._bring_schema] * 2
        chosen = ([self._publish_delayed] if begin else []) + self.chance.choices(actions, k=STEPS)
        for topic in TOPICS if begin else ():
            for name in SUBSCRIPTIONS:
                self._subscribe(topic, name)
                self._close_consumer()
            self._send(topic, [delayed_body(0, f"<{topic}>")])
        for action in chosen:
            action()

    def _publish(self) -> None:
        count = self.chance.randint(1, 5)
        text = "x" * self.chance.choice((0, 10, 700))
        bodies = [delayed_body(0, f"<{self.history.seed}/{len(self.told)}/{number}>{text}") for number in range(count)]
        self._send(self.chance.choice(TOPICS), bodies)

    def _bring_schema(self) -> None:
        """A new one, with a producer that goes at once."""
        topic = self.chance.choice(TOPICS)
        info = avro(f"f{len(self.schemas)}=0", doc="x" * self.chance.choice((0, 10, 700)))
        command = BaseCommand(type=BaseCommand.PRODUCER)
        command.producer.topic, command.producer.producer_id, command.producer.request_id = topic, 0, 4
        command.producer.schema.CopyFrom(on_wire(info))
        version = must_succeed(self.client.ask(command)).producer_success.schema_version
        self.schemas[topic, int.from_bytes(version, "big")] = info.data
        self._close_producer()

    def _close_producer(self) -> None:
        close = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
        close.close_producer.producer_id, close.close_producer.request_id = 0, 1
        must_succeed(self.client.ask(close))

    def _send(self, topic: str, bodies: list[bytes]) -> list[Position]:
        must_succeed(self.client.open_producer(topic))
        for number, body in enumerate(bodies):
            self.client.send_entry(0, number, body)
        positions = []
        for body in bodies:
            receipt = self.client.next_command()
            assert receipt.type == BaseCommand.SEND_RECEIPT, receipt
            position = commands.read_position(receipt.send_receipt.message_id)
            self.told[topic, position] = body
            positions.append(position)
        self._close_producer()
        return positions

    def _subscribe(self, topic: str, name: str, permits: int = 0) -> None:
        must_succeed(self.client.subscribe(topic, name, kind=CommandSubscribe.Shared, permits=permits))

    def _close_consumer(self) -> None:
        close = BaseCommand(type=BaseCommand.CLOSE_CONSUMER)
        close.close_consumer.consumer_id, close.close_consumer.request_id = 0, 2
        must_succeed(self.client.ask(close))

    def _acknowledge(self) -> None:
        """Take some of what is unacknowledged, and acknowledge some of that, with an answer."""
        topic, name = self.chance.choice(TOPICS), self.chance.choice(SUBSCRIPTIONS)
        left = sum(1 for at, each in self.told if at == topic and (topic, name, each) not in self.acked)
        self._take(topic, name, min(left, self.chance.randint(1, 6)))

    def _take(self, topic: str, name: str, count: int) -> None:
        if not count:
            return
        self._subscribe(topic, name, permits=count)
        positions = []
        for _ in range(count):
            message = self.client.next_command()
            assert message.type == BaseCommand.MESSAGE, message
            positions.append(commands.read_position(message.message.message_id))
        chosen = [each for each in positions if self.chance.random() < 0.6]
        if chosen:
            ack = BaseCommand(type=BaseCommand.ACK)
            ack.ack.consumer_id, ack.ack.ack_type, ack.ack.request_id = 0, CommandAck.Individual, 3
            for each in chosen:
                ack.ack.message_id.add(ledgerId=each.ledger, entryId=each.entry)
            must_succeed(self.client.ask(ack))
            self.acked |= {(topic, name, each) for each in chosen}
        self._close_consumer()

    def _publish_delayed(self) -> None:
        """Some with times far ahead, which are read and indexed by the time that the one behind them comes."""
        now_ms = time.time_ns() // 1_000_000
        ahead = LATEST_DELAY_MS // 2
        times = [now_ms + ahead + self.chance.randrange(ahead) for _ in range(self.chance.randint(4, 9))]
        positions = self._send(DELAYED, [delayed_body(at, str(at)) for at in times])
        self.history.delays.update(zip(positions, times, strict=True))
        self._subscribe(DELAYED, "s", permits=1)
        (due,) = self._due_now()
        ack = BaseCommand(type=BaseCommand.ACK)
        ack.ack.consumer_id, ack.ack.ack_type, ack.ack.request_id = 0, CommandAck.Individual, 3
        ack.ack.message_id.add(ledgerId=due.ledger, entryId=due.entry)
        must_succeed(self.client.ask(ack))
        self.acked.add((DELAYED, "s", due))
        self._close_consumer()

    def _due_now(self) -> list[Position]:
        """One that is not delayed, sent to who is subscribed on the same connection: receipt and message come in any
        order."""
        must_succeed(self.client.open_producer(DELAYED))
        body = delayed_body(0, f"<due {len(self.told)}>")
        self.client.send_entry(0, 0, body)
        answers = {each.type: each for each in (self.client.next_command(), self.client.next_command())}
        position = commands.read_position(answers[BaseCommand.SEND_RECEIPT].send_receipt.message_id)
        assert commands.read_position(answers[BaseCommand.MESSAGE].message.message_id) == position
        self.told[DELAYED, position] = body
        self._close_producer()
        return [position]

    def _files(self) -> Files:
        found = (path for path in sorted(self.data_dir.rglob("*")) if path.is_file())
        return {f"/data/{path.relative_to(self.data_dir)}": path.read_bytes() for path in found}

    def _take_account(self) -> None:
        """What the directory holds, as another broker finds it, and whether that is all that clients were told."""
        history = self.history
        history.files = history.older.pop()
        folders = [path for path in sorted(self.data_dir.rglob("*")) if path.is_dir()]
        history.folders = ["/data", *(f"/data/{path.relative_to(self.data_dir)}" for path in folders)]
        world = WorldAt(history.disk(), time.time_ns() // 1_000_000)
        try:
            history.rows = catalogue(world.store.catalogue)
            note_confirmed(history, world)
            self._compare_schemas(world)
        finally:
            world.abandon()
            World.running.remove(world)
        for (topic, position), body in self.told.items():
            if history.entries[topic].get(position) != body:
                raise JudgementError(f"entry {position} of {topic} was confirmed, and is not in what the broker left")
        for topic, name, position in self.acked:
            through, single = history.cursors[topic, name]
            if position > through and position not in single:
                raise JudgementError(f"{name} of {topic} had acknowledged {position}, and that is forgotten")

    def _compare_schemas(self, world: WorldAt) -> None:
        for (topic, version), data in self.schemas.items():
            entry = world.broker.schemas.version(TopicName.parse(topic), version)
            if entry is None or entry.info is None or entry.info.data != data:
                raise JudgementError(f"version {version} of the schema of {topic} was told, and is not there")


def make_real_history(seed: int) -> History:
    """The history of a seed. The times at which a kill strikes differ from run to run."""
    with tempfile.TemporaryDirectory(prefix="pulsarish-damage-") as folder:
        return RealLife(seed, Path(folder)).live()
