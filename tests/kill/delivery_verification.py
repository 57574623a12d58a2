# SPDX-License-Identifier: Apache-2.0
"""The final look of the kill rig at how messages were delivered: gathers what ``delivery_rules`` compares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from broker_core.base.errors import OperationTimeoutError
from broker_core.base.positions import MessageId
from broker_core.client import Client
from broker_core.client import Message as Delivered
from broker_core.client.dead_letters.letter_copies import ORIGIN_MESSAGE_ID, reconsume_times
from tests.kill import delivery_rules as rules
from tests.kill.delivery_rules import Letter
from tests.kill.history import Message, Slot, TopicHistory, Verdict
from tests.kill.records import Delivery, Records
from tests.kill.topics import (
    DEAD_LETTERS,
    DELAYED,
    ONCE,
    POISONED,
    RETRIED,
    RETRIED_DEAD,
    RETRIES_MAX,
    RETRY_LETTERS,
    STICKY,
    WORKERS,
    is_poison,
)
from tests.kill.workload import decode

Log = dict[Slot, Message | None]

_NOTHING_LEFT_S: Final = 6.0
"""What was left unacknowledged and does not come counts as lost: a broker that is held up must not look like that."""
_NO_MESSAGE_S: Final = 10.0
"""The last chunks of a topic may be no message, and then nothing comes though there is something."""


def check_delivery(loads: Sequence[Records], logs: dict[str, Log], client: Client) -> Verdict:
    """Everything in ``delivery_rules``. ``logs``: of each topic, by its name."""
    verdict = Verdict()
    sticky, delayed = _deliveries(loads, STICKY), _deliveries(loads, DELAYED)
    sent = [record for records in loads for record in records.sent]
    due_ms = {Message(each.producer, number): due for each in sent for number, due in each.due_ms.items()}
    known = [Message(each.producer, number) for each in sent for number in each.known]
    verdict.note("K1", STICKY, rules.keys_out_of_order(sticky))
    verdict.note("K2", STICKY, rules.keys_at_two_consumers(sticky))
    verdict.note("D1", DELAYED, rules.early_deliveries(delayed, due_ms))
    verdict.note("D2", DELAYED, rules.never_delivered_in_time(logs[DELAYED], delayed, due_ms))
    verdict.note("U1", ONCE, rules.stored_twice(logs[ONCE]))
    verdict.note("U2", ONCE, rules.known_but_missing(known, logs[ONCE]))
    _check_letters(verdict, loads, logs, client)
    return verdict


def _check_letters(verdict: Verdict, loads: Sequence[Records], logs: dict[str, Log], client: Client) -> None:
    letters, retries, dead = (read_letters(client, topic) for topic in (DEAD_LETTERS, RETRY_LETTERS, RETRIED_DEAD))
    poisoned, retried = (_never_accepted(loads, logs, topic) for topic in (POISONED, RETRIED))
    unacked, unacked_retried, unacked_retries = (
        read_unacked(client, topic) for topic in (POISONED, RETRIED, RETRY_LETTERS)
    )
    verdict.note("L1", POISONED, rules.acknowledged_without_copy(poisoned, unacked, letters))
    verdict.note("L2", POISONED, rules.wrong_copies(logs[POISONED], letters))
    verdict.note("L2", RETRIED, rules.wrong_copies(logs[RETRIED], (*retries, *dead)))
    lost = rules.lost_between_letters(retried, unacked_retried, retries, unacked_retries, dead)
    verdict.note("L3", RETRIED, lost)
    verdict.note("L4", RETRIED, rules.miscounted(retries, dead, RETRIES_MAX))
    for topic, left in ((POISONED, unacked), (RETRIED, unacked_retried), (RETRY_LETTERS, unacked_retries)):
        verdict.note("L5", topic, rules.left_over(left))


def _never_accepted(loads: Sequence[Records], logs: dict[str, Log], topic: str) -> list[Slot]:
    # A message may reach its last delivery without ever being shown: broker or consumer went before it was taken.
    shown = {each.slot for each in _deliveries(loads, topic)}
    log = logs[topic].items()
    return [slot for slot, each in log if each is None or is_poison(each.number) or slot not in shown]


def read_whole_messages(client: Client, topic: str) -> Log:
    """All messages of a topic in their order, those in chunks put together; the id is that of the last chunk."""
    return {Slot.of(message.message_id): decode(message.value or b"") for message in _read_all(client, topic)}


def receipts_of_whole_messages(history: TopicHistory) -> dict[Message, Slot]:
    """Receipts of a topic with chunks, each at the place where its message ends for a reader.

    A broker that was killed may have stored all chunks and confirmed only the first ones. The others are sent again,
    and the receipt is for the second copy of the last chunk, but the message is complete with the first.
    """
    places: dict[Message | None, list[Slot]] = defaultdict(list)
    for slot, message in history.log.items():
        places[message].append(slot)
    return {
        message: max((place for place in places[message] if place <= slot), default=slot)
        for message, slot in history.receipts.items()
    }


def read_letters(client: Client, topic: str) -> list[Letter]:
    """A topic of letters."""
    letters = []
    for message in _read_all(client, topic):
        origin = message.properties.get(ORIGIN_MESSAGE_ID)
        first = None if origin is None else Slot.of(MessageId.parse(origin))
        slot = Slot.of(message.message_id)
        letters.append(Letter(first, decode(message.value or b""), slot, reconsume_times(message)))
    return letters


def read_unacked(client: Client, topic: str) -> set[Slot]:
    """What the workers left unacknowledged."""
    unacked = set()
    with client.subscribe(topic, WORKERS, type="shared") as consumer:
        while True:
            try:
                unacked.add(Slot.of(consumer.receive(_NOTHING_LEFT_S).message_id))
            except OperationTimeoutError:
                return unacked


def _read_all(client: Client, topic: str) -> Iterator[Delivered]:
    with client.create_reader(topic) as reader:
        while reader.has_message_available():
            try:
                yield reader.read_next(_NO_MESSAGE_S)
            except OperationTimeoutError:
                return  # The topic ends with chunks that are no message.


def _deliveries(loads: Sequence[Records], topic: str) -> list[Delivery]:
    consumed = (record for records in loads for record in records.consumed if record.topic == topic)
    return [delivery for record in consumed for delivery in record.deliveries]
