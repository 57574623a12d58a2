# SPDX-License-Identifier: Apache-2.0
"""``ReadProgress``: which message one partition's consumer is at, and what it must drop after a seek or a reconnect.
Pure.

A subscription that is not durable (a reader's) lives at the broker only as long as it has its consumer, so a reader
itself remembers where it goes on: behind the last message that the application has taken, else at its start. The broker
knows a durable subscription's place; its consumer drops only what lies before the target of its own last seek.

The calls for an attachment are ``attaching``, ``attached`` when the broker has accepted it, ``pin`` and ``take_held``
if entries are ``held``, ``take_owed``; those for a seek are ``seeking``, then ``sought`` or ``seek_failed``.
Invariants: nothing is shown of what the broker had sent before a seek or a rewind; after a reconnect a reader sees
every message behind the last one taken, and none twice. All calls are made on the event loop's thread, except
``taken``, which is made under the lock of the receiver queue. Source: semantics 1.4.6, 1.9, 4.2.5, 4.4.
"""

from __future__ import annotations

from typing import NamedTuple

from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, MessageId, Position
from broker_core.client.messages.message import Message, StartPoint
from broker_core.wire.heads import MessageHead


class BeforeSeek(NamedTuple):
    """The state to return to if a seek fails."""

    start: StartPoint | None
    skip: StartPoint | None
    last_taken: MessageId | None
    sought_ms: int | None


class ReadProgress:
    """Progress of one topic or partition's consumer. ``start`` None: where the subscription stands at the broker."""

    __slots__ = (
        "_is_seeking",
        "_sent_again_on",
        "_skip_is_new",
        "_sought_ms",
        "_start",
        "_trusted",
        "durable",
        "epoch",
        "held",
        "last_taken",
        "owed_permits",
        "registrations",
        "skip",
    )  # fmt: skip

    def __init__(self, start: StartPoint | None, *, durable: bool) -> None:
        self.durable = durable
        self.last_taken: MessageId | None = None
        """The furthest message that the application has; None at the beginning, and after a seek."""
        self.epoch = 0
        """Count of rewinds: an entry with a lower epoch was sent before the last one."""
        self.registrations = 0
        """Count of attachments, without those made only to find the start."""
        self.owed_permits = 0
        """Permits to send as soon as the consumer is attached."""
        self._start = start
        self.skip = start
        """Messages before this point must not be shown (``split``); None: all may be."""
        self._skip_is_new = False
        self._sought_ms: int | None = None
        self._sent_again_on: object = None
        self._trusted = False
        self._is_seeking = False
        self.held: list[tuple[MessageHead, bytes]] | None = None
        """Entries that came while the broker alone knows where this reader begins, until it is asked; else None."""

    # -- attachments

    def attaching(self, permits: int, connection: object) -> None:
        """A new attachment begins with ``permits``; the queue is empty."""
        self.owed_permits = permits
        self._trusted, self._sent_again_on = self._sent_again_on is connection, None
        if not self.durable:
            if self.last_taken is not None:
                self._start = StartPoint(MessageId(*self.last_taken), inclusive=False)
            self.skip = self._start
        elif not self._skip_is_new:
            # Other consumers may have moved the cursor back since the seek, so nothing is dropped any more.
            self.skip = None
        start = self._start
        knows_start = start is not None and start.message_id != MESSAGE_ID_LATEST and not start.rollback_s
        self.held = None if self.durable or knows_start else []

    def start_at_broker(self, first_chunk_needed: Position | None) -> MessageId | Position | None:
        """The start of a subscription that the broker does not remember, so that no chunk is missed."""
        if self._start is None or self.durable:
            return None
        start = self._start.message_id.first_chunk
        needed = first_chunk_needed
        return start if needed is None or needed >= start.position else needed

    @property
    def rollback_s(self) -> int:
        """Seconds before now at which the subscription begins; 0: the start is not a time."""
        return self._start.rollback_s if self._start is not None else 0

    def attached(self) -> None:
        """The broker has accepted the consumer."""
        self.registrations += 1
        self._skip_is_new = False

    def seek_again_ms(self, mark_delete: Position | None) -> int | None:
        """The time to seek to once more, None if the broker's answer can be trusted.

        A reader that stands before the first message may have been sent there by its time. But a subscription begins
        there too if the broker made it anew because the topic was unloaded, or the connection lost, after the seek. If
        a second seek leads to the same place, the time does.
        """
        if self._trusted or self._starts_at_latest or mark_delete is None or mark_delete.entry >= 0:
            return None
        return self._sought_ms or None

    def sent_again(self, connection: object) -> None:
        """The second seek is done, and the broker has detached the consumer for it: the next attachment counts.

        Its answer can be trusted if it is the next one on this connection: with another one comes a new subscription.
        """
        self._sent_again_on = connection
        self.registrations -= 1

    def pin(self, last: MessageId, mark_delete: Position | None) -> None:
        """Remember by a message where this reader begins, so that a later reconnect does not pass anything over.

        "Latest" means another message later, and where a time has led is known to the broker alone.
        """
        if self._starts_at_latest:
            self._start = self.skip = StartPoint(last, inclusive=False)
        elif mark_delete is not None:
            self._start = self.skip = StartPoint(MessageId(*mark_delete), inclusive=False)

    def take_held(self) -> list[tuple[MessageHead, bytes]]:
        """Entries that were held until the start was known.

        Apache Pulsar may finish a read that it had begun before a seek, and sends its entries without permits.
        """
        held, self.held = self.held, None
        return held or []

    def take_owed(self) -> int:
        """The permits to send, now that the consumer is attached."""
        owed, self.owed_permits = self.owed_permits, 0
        return owed

    @property
    def _starts_at_latest(self) -> bool:
        return self._start is not None and self._start.message_id == MESSAGE_ID_LATEST

    # -- entries

    def is_stale(self, consumer_epoch: int) -> bool:
        """Whether an entry was sent before the last seek or rewind. ``consumer_epoch`` -1: the broker tells none."""
        return self._is_seeking or 0 <= consumer_epoch < self.epoch

    def split(self, messages: list[Message]) -> tuple[list[Message], list[Message]]:
        """The messages of one entry: those that may be shown, and those that lie before the start."""
        skip = self.skip
        if skip is None or not messages or messages[0].message_id.position > skip.message_id.position:
            return messages, []
        shown: list[Message] = []
        passed: list[Message] = []
        for message in messages:
            (passed if skip.skips(message) else shown).append(message)
        return shown, passed

    def taken(self, message_id: MessageId) -> None:
        """The application has got this message."""
        before = self.last_taken
        # On Shared, redelivered messages come between newer ones.
        if before is None or message_id > before:
            self.last_taken = message_id

    # -- moves

    def rewound(self) -> None:
        """The broker is asked for everything again that is not acknowledged. The queue has been emptied before."""
        self.epoch += 1
        if self.durable:
            self.last_taken = None

    def seeking(self, target: MessageId | int, *, inclusive: bool) -> BeforeSeek:
        """A seek begins: to a message, or to a publish time in milliseconds. The queue has been emptied before."""
        before = BeforeSeek(self._start, self.skip, self.last_taken, self._sought_ms)
        start = StartPoint(target, inclusive) if isinstance(target, MessageId) else None
        if self.durable and target in (MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST):
            start = None
        self._start = self.skip = start
        self._sought_ms = None if isinstance(target, MessageId) or self.durable else target
        self.last_taken = None
        self._is_seeking = self._skip_is_new = True
        return before

    def sought(self, *, still_attached: bool) -> None:
        """The broker has moved the subscription; if it has detached the consumer, the next attachment drops as well."""
        self._is_seeking = False
        if still_attached:
            self._skip_is_new = False

    def seek_failed(self, before: BeforeSeek) -> None:
        """The broker has refused, or it is unknown what it did: the next attachment goes on where this one was."""
        self._start, self.skip, self.last_taken, self._sought_ms = before
        self._is_seeking = self._skip_is_new = False

    def is_lost(self, target: MessageId | int, registrations: int, *, same_connection: bool) -> bool:
        """Whether a reader that was sent to a time has lost its place, since it was attached anew more than once.

        ``registrations``: how many there were when the seek was done. Only the broker knows the place, and only as long
        as the subscription has its consumer.
        """
        by_time = not self.durable and not isinstance(target, MessageId)
        return by_time and not (same_connection and self.registrations <= registrations + 1)

    def precedes(self, last: MessageId, mark_delete: Position | None) -> bool:
        """Whether ``last``, the topic's last message, lies behind what was taken, or behind the start if nothing was.

        ``mark_delete``: how far the subscription is acknowledged, None if the broker does not tell.
        """
        if last.entry < 0:
            return False
        taken = self.last_taken
        start = self._start if taken is None else StartPoint(taken, inclusive=False)
        if start is not None and not start.rollback_s:
            if not start.follows(last):
                return False
            if not self.durable:
                return True
        # Other consumers of the subscription may have taken, and acknowledged, what follows.
        return mark_delete is None or last.position > mark_delete
