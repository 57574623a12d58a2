# SPDX-License-Identifier: Apache-2.0
"""What the kill rig does before the first kill and after the last: makes the topics, reads them from first to last."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from broker_core.base.errors import OperationTimeoutError
from broker_core.base.names import TopicName
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.client import Client
from broker_core.client.admin import AdminApi
from broker_core.wire.batch import decode_entries
from tests.kill.brokers import BrokerSeries, look_at_log_and_disk
from tests.kill.delivery_verification import check_delivery, read_whole_messages, receipts_of_whole_messages
from tests.kill.history import Message, Slot, Verdict, check_topic
from tests.kill.load import ROLES
from tests.kill.records import histories, load
from tests.kill.topics import (
    DELAYED,
    DELIVERY_PRODUCERS,
    KEEPER,
    KEYS,
    LARGE,
    LETTER_TOPICS,
    ONCE,
    PARTED,
    PARTITIONS,
    PLAIN,
    POISONED,
    RETRIED,
    STICKY,
    partitions_of,
)
from tests.kill.workload import decode

_PLAIN_TOPICS: Final = (PLAIN, STICKY, DELAYED, ONCE, LARGE, POISONED, RETRIED)
_TOPICS: Final = (*_PLAIN_TOPICS, *partitions_of(PARTED))
_HTTP_TIMEOUT_S: Final = 60.0


@dataclass(slots=True)
class Summary:
    """What a run comes to. ``kill_seconds`` leaves the final look out."""

    seed: int
    kills: int = 0
    killed_while_starting: int = 0
    stopped_in_order: int = 0
    cold_starts: int = 0
    kill_seconds: float = 0.0
    seconds: float = 0.0
    unknown: dict[str, int] = field(default_factory=dict)
    """How often the client of each producer gave a message up; producers that never heard of that are not in it."""
    never_confirmed: int = 0
    """Messages of those that were not confirmed later either."""
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def violations(self) -> list[str]:
        return self.verdict.violations

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON takes it."""
        return asdict(self)

    def text(self) -> str:
        """The report as people read it."""
        found = self.verdict
        others = f"besides {self.stopped_in_order} stops in order and {self.cold_starts} cold starts"
        lines = [
            f"kills                  {self.kills:,} ({self.killed_while_starting} while starting), {others}",
            f"seconds                {self.seconds:.0f}, {self.kills / self.kill_seconds:.1f} kills a second",
            f"receipts               {found.receipts:,}, lost or misplaced {self._broken('R')}",
            f"given up by clients    {self._given_up()}",
            f"messages in the log    {found.stored:,}, of them {found.repeated:,} repeats of unconfirmed sends",
            f"deliveries             {found.delivered:,}",
            f"confirmed acks         {found.acked:,}, lost {self._broken('C')}",
            f"keys                   out of order {self._broken('K1')}, at two consumers {self._broken('K2')}",
            f"delayed messages       early {self._broken('D1')}, lost {self._broken('D2')}",
            f"deduplication          stored twice {self._broken('U1')}, refused but not stored {self._broken('U2')}",
            f"dead letters           lost {self._broken('L1')}, wrong {self._broken('L2')}",
            f"retry letters          lost {self._broken('L3')}, miscounted {self._broken('L4')}",
            f"left over in the end   {self._broken('L5')}",
            f"violations             {len(self.violations)} (seed {self.seed})",
            *(f"  {text}" for text in self.violations),
        ]
        return "\n".join(lines)

    def _given_up(self) -> str:
        each = ", ".join(f"{producer} {count:,}" for producer, count in self.unknown.items())
        text = f"{sum(self.unknown.values()):,}, never confirmed {self.never_confirmed:,}"
        return f"{text} ({each})" if each else text

    def _broken(self, kind: str) -> int:
        return sum(count for rule, count in self.verdict.broken.items() if rule.startswith(kind))


def create_topics(brokers: BrokerSeries) -> None:
    """Make the topics, each with the subscription that keeps everything."""
    with AdminApi(brokers.http_url, timeout_s=_HTTP_TIMEOUT_S) as admin:
        for topic in (*_PLAIN_TOPICS, *LETTER_TOPICS):
            admin.create_topic(TopicName.parse(topic), 0)
        admin.create_topic(TopicName.parse(PARTED), PARTITIONS)
        admin.set_policy(TopicName.parse(ONCE), "deduplicationEnabled", True)
    with Client(brokers.service_url) as client:
        for topic in (*_TOPICS, *LETTER_TOPICS):
            client.subscribe(topic, KEEPER, initial_position="earliest").close()


def verify(summary: Summary, folder: Path, brokers: BrokerSeries, patience_s: float) -> None:
    """Add to ``summary`` what the rules, the broker's own log and the offline check find.

    A topic that does not go on for ``patience_s`` is read no further.
    """
    loads = load(folder / f"{role}.json" for role in ROLES)
    topics = histories(loads)
    sent = [each for records in loads for each in records.sent]
    summary.unknown = {each.producer: len(each.unknown) for each in sent if each.unknown}
    summary.never_confirmed = sum(len(each.given_up()) for each in sent)
    for plan in DELIVERY_PRODUCERS:
        if plan.batches_by_key:
            topics[plan.topic].keys[plan.name] = KEYS
    with (
        Client(brokers.service_url) as client,
        Client(brokers.service_url, operation_timeout_s=patience_s) as patient,
    ):
        for topic in _TOPICS:
            if topic == LARGE:
                topics[topic].log = read_whole_messages(client, topic)
            else:
                topics[topic].log = read_log(patient, topic, summary.violations)
        topics[LARGE].receipts = receipts_of_whole_messages(topics[LARGE])
        for topic in _TOPICS:
            # Of what the workers may give up, rules L1 and L3 say what must have been delivered.
            drained = topic not in (POISONED, RETRIED)
            summary.verdict.add(check_topic(topic, topics[topic], drained=drained))
        summary.verdict.add(check_delivery(loads, {topic: topics[topic].log for topic in _TOPICS}, client))
    brokers.stop()
    summary.violations.extend(look_at_log_and_disk(folder))


def read_log(client: Client, topic: str, violations: list[str]) -> dict[Slot, Message | None]:
    """All messages of one topic, in their order. What cannot be read is a violation, and missing for the rules."""
    log: dict[Slot, Message | None] = {}
    try:
        last = client.last_entry(topic).position  # which reads that entry, and so waits for one that is lost
        for entries in client.read_entries(topic, POSITION_EARLIEST, Position(last.ledger, last.entry + 1)):
            batch = decode_entries(entries, {"ledger", "entry", "batch_index", "value"})
            columns = (batch.column(name).to_pylist() for name in ("ledger", "entry", "batch_index", "value"))
            for ledger, entry, index, value in zip(*columns, strict=True):
                log[Slot(ledger, entry, index)] = decode(value)
    except OperationTimeoutError as stalled:  # a subscription stops in front of what is damaged
        violations.append(f"{topic}: {stalled}")
    return log
