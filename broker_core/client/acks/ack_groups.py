# SPDX-License-Identifier: Apache-2.0
"""Grouping of acknowledgements before they travel. Pure: the owner decides when to ``take`` and sends what it gets.

One object serves one topic or partition. It remembers which messages of each received batch are still open, so that an
entry is acknowledged when its last message is, and it recognises messages whose ack is on its way, so that a
redelivery that crosses an ack is not shown twice. Invariants: the cumulative ack only grows (until ``forget``); each
ack leaves in exactly one ``take``; a bit once cleared stays cleared; the chunks of a message leave in one command.
Source: semantics 3.1, 3.2.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from broker_core.base.invariants import invariant
from broker_core.base.positions import POSITION_EARLIEST, MessageId, Position
from broker_core.wire.ack_sets import words_of_bits

_WHOLE: Final = 1 << 62
"""Stands for "all messages of the entry" where a batch index is compared."""


_CHUNK_ACKS_MAX: Final = 100_000
"""Chunks of one message that leave in one command; more ids would not fit into the 5 MiB that a broker takes."""


class AckCommand(NamedTuple):
    """One ACK to be sent: exactly one id if ``cumulative``, each with the ack set of a partly acknowledged batch."""

    cumulative: bool
    ids: list[tuple[Position, tuple[int, ...] | None]]


class AckGrouping:
    """Acks of one partition that have not been sent."""

    def __init__(self, *, batch_index_acks: bool) -> None:
        """``batch_index_acks``: tell the broker about single messages of a batch, not only about whole entries."""
        self._batch_index_acks = batch_index_acks
        self._open: OrderedDict[Position, int] = OrderedDict()
        self._individual: dict[Position, None] = {}
        self._with_next: set[Position] = set()
        self._partial: dict[Position, int] = {}
        self._cumulative: tuple[Position, int] = (POSITION_EARLIEST, _WHOLE)
        self._cumulative_remaining = 0
        self._cumulative_waits = False
        self._cumulative_confirmed = False

    @property
    def pending_count(self) -> int:
        """Ids that wait; the limit of a group is about the longer of both lists."""
        return max(len(self._individual), len(self._partial), int(self._cumulative_waits))

    def received(self, position: Position, remaining: int) -> None:
        """A batch has arrived of which the messages in ``remaining`` (a bit for each) are not acknowledged.

        It may have crossed an ack that waits here, of which the broker cannot know.
        """
        self._open[position] = remaining & self._partial.get(position, remaining)
        self._open.move_to_end(position)

    def individual(self, message_id: MessageId, *, again: bool = False) -> bool:
        """Acknowledge one message; returns whether its whole entry is acknowledged now.

        ``again``: if a cumulative ack did that before, send that one once more.
        """
        position, index = message_id.position, message_id.batch_index
        if self.is_duplicate(position, index):
            if again:
                self.send_cumulative_again()
            return self.is_duplicate(position, -1)
        remaining = 0 if index < 0 else self._remaining(message_id) & ~(1 << index)
        if remaining == 0:
            self._whole(position)
            return True
        self._open[position] = remaining
        if self._batch_index_acks:
            self._partial[position] = remaining
        return False

    def chunks(self, positions: Iterable[Position]) -> None:
        """Acknowledge entries that leave in one command with what is acknowledged next, the last chunk of a message.

        A broker that stops between two commands would keep the rest of the message for ever, or until it expires.
        """
        for position in positions:
            if not self.is_duplicate(position, -1):
                self._whole(position)
                self._with_next.add(position)

    def cumulative(self, message_id: MessageId, *, again: bool = False) -> None:
        """Acknowledge ``message_id`` and all before it. ``again``: send it even if that was done before."""
        position, index = message_id.position, message_id.batch_index
        reach, remaining = (position, _WHOLE), 0
        if index >= 0:
            remaining = self._remaining(message_id) & ~((2 << index) - 1)
        if remaining:
            self._open[position] = remaining
            if self._batch_index_acks:
                reach = (position, index)
            else:
                # The broker knows whole entries only, so all it can hear now is that the entries before are done.
                reach, remaining = (Position(position.ledger, position.entry - 1), _WHOLE), 0
        if reach > self._cumulative:
            self._cumulative = reach
            self._cumulative_remaining = remaining
            self._cumulative_waits = True
            self._cumulative_confirmed = False
            self._forget_covered(reach)
        elif again:
            self.send_cumulative_again()

    def is_duplicate(self, position: Position, batch_index: int) -> bool:
        """Whether this message (-1: entry) has been acknowledged here, though the broker may not know it yet."""
        if (position, _WHOLE if batch_index < 0 else batch_index) <= self._cumulative:
            return True
        if position in self._individual:
            return True
        remaining = self._partial.get(position)
        return remaining is not None and batch_index >= 0 and not remaining >> batch_index & 1

    def take(self, ids_max: int) -> list[AckCommand]:
        """Commands to be sent now, the cumulative ack first, then lists of at most ``ids_max``."""
        commands: list[AckCommand] = []
        if self._cumulative_waits:
            words = words_of_bits(self._cumulative_remaining) or None
            commands.append(AckCommand(True, [(self._cumulative[0], words)]))
            self._cumulative_waits = False
        done = self._cumulative  # Perhaps in the middle of a batch, of which the rest is acknowledged singly.
        ids: list[tuple[Position, tuple[int, ...] | None]] = [
            (each, None) for each in self._individual if (each, _WHOLE) > done
        ]
        ids += [(each, words_of_bits(left)) for each, left in self._partial.items() if (each, _WHOLE) > done]
        commands += self._cut(ids, ids_max)
        self._individual.clear()
        self._with_next.clear()
        self._partial.clear()
        return commands

    def confirmed(self, sent: AckCommand) -> None:
        """The broker has answered ``sent``: if that is the last cumulative ack, its outcome is known."""
        through = (self._cumulative[0], words_of_bits(self._cumulative_remaining) or None)
        if sent.cumulative and sent.ids == [through] and not self._cumulative_waits:
            self._cumulative_confirmed = True

    def send_cumulative_again(self) -> None:
        """The next ``take`` repeats the cumulative ack: the broker may not have seen the last one."""
        self._cumulative_waits = self._cumulative[0] != POSITION_EARLIEST

    def redelivering(self, positions: Iterable[Position]) -> None:
        """The broker was asked for these entries again: what is open of them is what it will say then."""
        for position in positions:
            self._open.pop(position, None)

    def reattached(self, *, by_broker: bool) -> None:
        """A new attachment: everything that the broker does not count as acknowledged comes again.

        ``by_broker``: it was asked for over a healthy connection, so that nothing sent was lost. If that is known, or
        the last cumulative ack was confirmed, what it covers comes again only where others have moved the subscription
        back: it is shown, and the ack not repeated, which would undo that. Otherwise the ack may be lost, and is sent
        once more.
        """
        self._open.clear()
        if self._cumulative_waits:
            return
        if by_broker or self._cumulative_confirmed:
            self._forget_cumulative()
        else:
            self.send_cumulative_again()

    def handed_over(self) -> None:
        """Unacknowledged messages go to another consumer, or come from one, that may have moved the subscription back:
        a cumulative ack that was sent says nothing of later messages, and is not repeated."""
        if not self._cumulative_waits:
            self._forget_cumulative()

    def forget(self) -> None:
        """Everything may come again: after a seek, or when all is to be redelivered."""
        self._open.clear()
        self._individual.clear()
        self._with_next.clear()
        self._partial.clear()
        self._forget_cumulative()

    def _forget_cumulative(self) -> None:
        self._cumulative = (POSITION_EARLIEST, _WHOLE)
        self._cumulative_remaining = 0
        self._cumulative_waits = self._cumulative_confirmed = False

    def _cut(self, ids: list[tuple[Position, tuple[int, ...] | None]], ids_max: int) -> Iterator[AckCommand]:
        begin = 0
        while begin < len(ids):
            end = begin + ids_max
            while end < min(len(ids), begin + _CHUNK_ACKS_MAX) and ids[end - 1][0] in self._with_next:
                end += 1
            yield AckCommand(False, ids[begin:end])
            begin = end

    def _whole(self, position: Position) -> None:
        self._individual[position] = None
        self._partial.pop(position, None)
        self._open.pop(position, None)

    def _remaining(self, message_id: MessageId) -> int:
        position = message_id.position
        remaining = self._open.get(position)
        if remaining is None:
            remaining = self._partial.get(position)
        if remaining is not None:
            return remaining
        invariant(message_id.batch_size > message_id.batch_index, "%s does not tell the size of its batch", message_id)
        return (1 << message_id.batch_size) - 1

    def _forget_covered(self, reach: tuple[Position, int]) -> None:
        while self._open:
            oldest = next(iter(self._open))
            if (oldest, _WHOLE) > reach:
                return
            del self._open[oldest]
