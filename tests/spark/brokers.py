# SPDX-License-Identifier: Apache-2.0
"""``Broker``: a running broker, ours or a real Apache Pulsar, and what an administrator and writers do on it in tests.

Topics have short names here and lie in public/default. Knows nothing of Spark.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import pyarrow as pa

from broker_core.base.local_access import token_at
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId, Position
from broker_core.client import Client
from broker_core.client.admin import AdminApi
from broker_core.client.connecting.subscribing import ReaderKind

Kind = Literal["pulsarish", "apache", "apache-indexed"]

TIMEOUT_S: Final = 120.0

_READERS: Final = tuple(f"{kind}-" for kind in get_args(ReaderKind))
"""How the subscriptions begin that our client's readers have, which brokers list until they have let go of them."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker and what tests do with it beside Spark."""

    service_url: str
    http_url: str
    kind: Kind = "pulsarish"
    restart: Callable[[], None] | None = None
    """Stop it and start it again on its data; None where that takes too long."""

    @property
    def tells_indexes(self) -> bool:
        """Whether clients learn the index of a message. Apache Pulsar does so only if it is configured to."""
        return self.kind != "apache"

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """One admin REST call."""
        token = token_at(self.http_url, os.environ)  # of an embedded broker
        request = urllib.request.Request(
            f"{self.http_url}/admin/v2/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {token.reveal()}"} if token else {}),
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    @contextmanager
    def control(self) -> Iterator[AdminApi]:
        """All other calls of an administrator."""
        with AdminApi(self.http_url, timeout_s=TIMEOUT_S) as api:
            yield api

    # -- topics

    def create(self, topic: str, partitions: int) -> str:
        """Make a topic; 0 partitions: a plain one."""
        with self.control() as api:
            api.create_topic(TopicName.parse(topic), partitions)
        return topic

    def topic_exists(self, topic: str) -> bool:
        """Whether there is a topic, a partitioned one, or a partition of that name."""
        base = "persistent/public/default"
        found = {str(name) for path in (base, f"{base}/partitioned") for name in self.admin("GET", path)}
        return any(name.partition("-partition-")[0] == str(TopicName.parse(topic)) for name in found)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        with self.control() as api:
            api.grow_partitions(TopicName.parse(topic), partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic although clients use it."""
        with self.control() as api:
            api.delete_topic(TopicName.parse(topic), force=True)

    def unload(self, topic: str) -> None:
        """What a moved bundle and a restarted broker do to a topic. Apache Pulsar begins a new ledger then.

        If it does so while it makes the ledger of a cursor, it forgets acknowledgements that it has confirmed: nine of
        ten in a row, and the topic's ledgers stay for ever. Tests of what follows from acknowledgements need them.
        """
        eventually(lambda: not self._is_making_cursors(topic), f"the cursors of {topic} have ledgers")
        with self.control() as api:
            api.unload(TopicName.parse(topic))

    def _is_making_cursors(self, topic: str) -> bool:
        name = TopicName.parse(topic)
        with self.control() as api:
            partitions = api.partitions(name)
            stats = api.internal_stats(name, partitions)
        each = stats["partitions"].values() if partitions else [stats]
        return any(cursor["state"] == "SwitchingLedger" for one in each for cursor in one["cursors"].values())

    def trim(self, topic: str) -> None:
        """Delete the ledgers that nobody needs any more; Apache Pulsar answers before it has done so."""
        self.admin("POST", f"persistent/public/default/{topic}/trim")

    def ledgers(self, topic: str) -> list[int]:
        """The ledgers of a plain topic or one partition, oldest first."""
        with self.control() as api:
            return [int(each["ledgerId"]) for each in api.internal_stats(TopicName.parse(topic), 0)["ledgers"]]

    def drop_acknowledged(self, topic: str) -> None:
        """Delete all that every subscription has acknowledged; return when it is gone. Others come back meanwhile."""
        self.drop_acknowledged_before(topic, self.ledgers(topic)[-1])

    def drop_acknowledged_before(self, topic: str, ledger: int) -> None:
        """The same of the ledgers before one, which are acknowledged whole."""
        old = [each for each in self.ledgers(topic) if each < ledger]

        def are_gone() -> bool:
            self.trim(topic)  # Again: an acknowledgement was on its way, or a client had a look at one of them.
            return not set(old) & set(self.ledgers(topic))

        try:
            eventually(are_gone, f"the ledgers {old} of {topic} are gone")
        except TimeoutError as error:
            error.add_note(f"what may keep them: {self.cursors(topic)}")
            raise

    def cursors(self, topic: str) -> dict[str, Any]:
        """What the broker tells of the cursors of a plain topic or one partition, those of readers among them."""
        with self.control() as api:
            found: dict[str, Any] = api.internal_stats(TopicName.parse(topic), 0)["cursors"]
        return found

    # -- subscriptions

    def subscribe(self, topic: str, subscription: str, at: Literal["earliest", "latest"] = "earliest") -> None:
        """Make a subscription."""
        with self.control() as api:
            api.create_subscription(TopicName.parse(topic), subscription, at)

    def unsubscribe(self, topic: str, subscription: str) -> None:
        """Delete a subscription although clients use it."""
        with self.control() as api:
            api.delete_subscription(TopicName.parse(topic), subscription, force=True)

    def skip(self, topic: str, subscription: str, entries: int) -> None:
        """Pass over the next entries; ``topic`` is a plain topic or one partition."""
        with self.control() as api:
            api.skip_messages(TopicName.parse(topic), subscription, entries)

    def skip_all(self, topic: str, subscription: str) -> None:
        """Pass over the whole backlog."""
        with self.control() as api:
            api.clear_backlog(TopicName.parse(topic), subscription)

    def expire(self, topic: str, subscription: str, older_than_s: int) -> None:
        """Pass over what is older; what the TTL does at its next check."""
        with self.control() as api:
            api.expire_messages(TopicName.parse(topic), subscription, older_than_s)

    def rewind(self, topic: str, subscription: str) -> None:
        """Put a subscription before the first message that is there."""
        with self.control() as api:
            api.reset_to_time(TopicName.parse(topic), subscription, 0)

    def reset(self, topic: str, subscription: str, to: Position) -> None:
        """Put a subscription right before an entry of a plain topic or one partition."""
        with self.control() as api:
            api.reset_to_message(TopicName.parse(topic), subscription, MessageId(to.ledger, to.entry))

    def subscriptions(self, topic: str) -> list[str]:
        """Names of the durable subscriptions of a plain topic or one partition."""
        found = self.admin("GET", f"persistent/public/default/{topic}/subscriptions")
        return [str(name) for name in found if not str(name).startswith(_READERS)]

    def backlog(self, topic: str, subscription: str = "") -> int:
        """Messages that a subscription has not acknowledged, as tools see it; of the only one if none is named."""
        found = self.admin("GET", f"persistent/public/default/{topic}/stats")["subscriptions"]
        (name,) = [subscription] if subscription else self.subscriptions(topic)
        return int(found[name]["msgBacklog"])

    def mark_delete(self, topic: str, subscription: str) -> Position:
        """The last entry up to which a subscription of a plain topic or one partition is acknowledged."""
        return MessageId.parse(self.cursors(topic)[subscription]["markDeletePosition"]).position

    # -- messages

    def end(self, topic: str) -> Position:
        """The place behind the last entry of a plain topic or one partition that has some."""
        with Client(self.service_url) as client:
            last = client.last_entry(f"persistent://public/default/{topic}").position
        return Position(last.ledger, last.entry + 1)

    def send(self, topic: str, values: Sequence[str], client: Client | None = None, **options: Any) -> None:
        """Write rows with the bulk writer of ``client`` or a new one; ``options`` are the writer's own."""
        opened = nullcontext(client) if client is not None else Client(self.service_url)
        with opened as client, client.write_rows(topic, **options) as writer:
            writer.write(pa.record_batch({"key": pa.array(values), "value": pa.array(values)}))
            writer.flush()

    def send_one_by_one(self, topic: str, values: Sequence[str]) -> None:
        """Write every value as an entry of its own."""
        self.send(topic, values, batching_max_messages=1)


def numbers(start: int, end: int) -> list[str]:
    """What most tests write: numbers as text."""
    return [str(i) for i in range(start, end)]


def eventually(check: Callable[[], bool], what: str) -> None:
    """Return when ``check`` holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"in {TIMEOUT_S:g} s it never became true that {what}")
        time.sleep(0.02)
