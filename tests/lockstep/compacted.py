# SPDX-License-Identifier: Apache-2.0
"""Compacted topics in lockstep: random messages with keys, and what readers of the view get on each of two brokers.

A script is played on both: single messages and batches, with keys and without, deletions, runs of compaction, unloads
and trims. After each run, and at the end, both must give readers the same messages, from the beginning and from any
message, there or left out; and so must a durable consumer that goes on where it was. Messages are called by numbers.

What differs on purpose is not played: chunks, encrypted batches, readers that stay connected over a run
(docs/semantics.md, 7.4).
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from broker_core.base.errors import OperationTimeoutError
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MessageId
from broker_core.client import Client, Message
from tests.lockstep.rig import Rivals
from tests.server.oracle import PATIENCE_S
from tests.server.oracle import Side as Address

KEYS: Final = ("red", "green", "blue", None)
Codec = Literal["none", "lz4", "zlib", "zstd", "snappy"]
CODECS: Final[tuple[Codec, ...]] = ("none", "lz4", "zlib", "zstd", "snappy")
ROUNDS: Final = 4
QUIET_S: Final = 1.0
"""When nothing has come for so long, nothing more does."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One message; ``deletes``: it has no value. ``batch``: it is sent with the one before it."""

    number: int
    key: str | None
    deletes: bool
    batch: bool


@dataclass(frozen=True, slots=True)
class Round:
    """Messages, then a run. ``starts``: numbers of messages at which readers begin, or behind which if odd places.
    ``taken``: how many messages the durable consumer acknowledges."""

    sent: tuple[Sent, ...]
    codec: Codec
    unloads: bool
    trims: bool
    starts: tuple[tuple[int, bool], ...]
    taken: int


def make_rounds(seed: int) -> list[Round]:
    """The script of ``seed``."""
    rng, rounds, sent = random.Random(seed), [], 0
    for _ in range(ROUNDS):
        count, batches = rng.randint(1, 8), rng.random() < 0.6
        messages = tuple(
            Sent(sent + number, rng.choice(KEYS), rng.random() < 0.3, batches and rng.random() < 0.6)
            for number in range(count)
        )
        sent += count
        starts = tuple((rng.randrange(sent), rng.random() < 0.5) for _ in range(3))
        chances = rng.random() < 0.3, rng.random() < 0.3
        rounds.append(Round(messages, rng.choice(CODECS), *chances, starts, rng.randint(0, 2)))
    return rounds


@dataclass
class CompactedSide:
    """One of the brokers. ``ids``: of all messages, by number."""

    address: Address
    topic: str
    client: Client
    ids: list[MessageId] = field(default_factory=list)

    def play(self, round_: Round) -> dict[str, object]:
        """Views of readers and consumers after one round."""
        self._send(round_)
        before = self._read(MESSAGE_ID_EARLIEST)
        self._compact()
        if round_.unloads:
            self._request("PUT", "unload")
        if round_.trims:
            self._request("POST", "trim")
        return {
            "before": before,
            "whole": self._read(MESSAGE_ID_EARLIEST),
            "starts": [self._read(self.ids[number], inclusive=at) for number, at in round_.starts],
            "consumer": self._consume(round_.taken),
        }

    def _send(self, round_: Round) -> None:
        for group in _groups(round_.sent):
            options: dict[str, Any] = {"batching_enabled": len(group) > 1, "batching_max_publish_delay_s": 60.0}
            with self.client.create_producer(self.topic, **options, compression=round_.codec) as producer:
                sent = [producer.send_future(_value(each), key=each.key, properties=_name(each)) for each in group]
                producer.flush()
                self.ids += [receipt.result() for receipt in sent]

    def _compact(self) -> None:
        self._request("PUT", "compaction")
        deadline = time.monotonic() + PATIENCE_S
        with self.address.admin() as admin:
            while admin.get(f"{self._path}/compaction").json()["status"] == "RUNNING" and time.monotonic() < deadline:
                time.sleep(0.05)  # a request each time
            end = self._last_sent()
            while self._horizon(admin) < end and time.monotonic() < deadline:
                time.sleep(0.05)  # Apache Pulsar shows the former status for a moment

    def _last_sent(self) -> tuple[int, int]:
        last = self.ids[-1].position
        return last.ledger, last.entry

    def _horizon(self, admin: Any) -> tuple[int, int]:
        cursors = admin.get(f"{self._path}/internalStats").json()["cursors"]
        if "__compaction" not in cursors:
            return -1, -1
        ledger, entry = cursors["__compaction"]["markDeletePosition"].split(":")
        return int(ledger), int(entry)

    def _read(self, start: MessageId, *, inclusive: bool = False) -> list[str]:
        """All that a reader gets from ``start`` on."""
        found = []
        with self.client.create_reader(self.topic, start, inclusive=inclusive, read_compacted=True) as reader:
            while reader.has_message_available():
                found.append(_shown(reader.read_next(PATIENCE_S)))
        return found

    def _consume(self, taken: int) -> list[str]:
        """Messages that a durable consumer gets, of which it acknowledges the first ``taken``."""
        found = []
        with (
            self.client.subscribe(self.topic, "s", initial_position="earliest", read_compacted=True) as consumer,
            suppress(OperationTimeoutError),
        ):
            while True:
                message = consumer.receive(QUIET_S)
                found.append(_shown(message))
                if len(found) == taken:
                    consumer.acknowledge_cumulative(message)
        return found

    @property
    def _path(self) -> str:
        return self.topic.replace("://", "/")

    def _request(self, method: str, what: str) -> None:
        with self.address.admin() as admin:
            admin.request(method, f"{self._path}/{what}").raise_for_status()


def _groups(sent: Sequence[Sent]) -> Iterator[list[Sent]]:
    """The entries of which each has some of ``sent``."""
    group: list[Sent] = []
    for each in sent:
        if group and not each.batch:
            yield group
            group = []
        group.append(each)
    yield group


def _name(sent: Sent) -> dict[str, str]:
    return {"number": str(sent.number)}


def _value(sent: Sent) -> bytes | None:
    return None if sent.deletes else f"value {sent.number}".encode()


def _shown(message: Message) -> str:
    value = message.value or b""
    return f"{message.properties['number']} {message.key!r}={value.decode()}"


@contextmanager
def _side(address: Address, topic: str) -> Iterator[CompactedSide]:
    with address.admin() as admin:
        admin.put(topic.replace("://", "/")).raise_for_status()
    with Client(address.service_url) as client:
        yield CompactedSide(address, topic, client)


def play_compacted(seed: int, rivals: Rivals) -> str | None:
    """Play the script of ``seed`` on both; the first difference, if there is one."""
    topic = f"persistent://public/default/compacted-{uuid.uuid4().hex[:10]}"
    with _side(rivals.ours, topic) as ours, _side(rivals.theirs, topic) as theirs:
        for number, round_ in enumerate(make_rounds(seed)):
            mine, yours = ours.play(round_), theirs.play(round_)
            if mine != yours:
                apart = {what: (mine[what], yours[what]) for what in mine if mine[what] != yours[what]}
                return f"seed {seed}, round {number}: {round_}\nours and theirs: {apart}"
    return None
