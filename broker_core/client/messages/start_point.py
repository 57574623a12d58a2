# SPDX-License-Identifier: Apache-2.0
"""The two ends of what a consumer may still see: where it begins, and the topic's last message. Values, no I/O.

Source: semantics 1.4.5, 1.4.6, 5.1.5.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker_core.base.errors import UsageError
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, MessageId, Position
from broker_core.client.messages.message import Message

_ENDS: Final[dict[object, MessageId]] = {"earliest": MESSAGE_ID_EARLIEST, "latest": MESSAGE_ID_LATEST}


def message_id_at(place: object) -> MessageId:
    """The id that the name of a topic's end stands for, and an id itself; UsageError for anything else."""
    if isinstance(place, MessageId):
        return place
    named = _ENDS.get(place) if isinstance(place, str) else None
    if named is None:
        raise UsageError(
            f"{place!r} is no place in a topic",
            hint='name a MessageId, "earliest" or "latest"; a seek also takes whole milliseconds since the epoch',
        )
    return named


class StartPoint(NamedTuple):
    """The start: at ``message_id`` or behind it. The broker sends the entry in both cases; we drop the rest.

    ``rollback_s``: not there but, if it is behind that, with messages published in the last so many seconds.
    """

    message_id: MessageId
    inclusive: bool
    rollback_s: int = 0

    @property
    def _bound(self) -> MessageId:
        """A message in chunks begins with its first one, and ends with its last (semantics 5.1.5)."""
        return self.message_id.first_chunk if self.inclusive else self.message_id

    def skips(self, message: Message) -> bool:
        """Whether ``message`` lies before the start."""
        here, start = message.message_id, self._bound
        if here.position != start.position:
            return here.position < start.position
        if start.batch_index < 0:
            return not self.inclusive
        return here.batch_index < start.batch_index or (here.batch_index == start.batch_index and not self.inclusive)

    def follows(self, last: MessageId) -> bool:
        """Whether ``last`` is at or behind the first message to be shown."""
        start = self._bound
        if last.position != start.position:
            return last.position > start.position
        if start.batch_index < 0 or last.batch_index < 0:
            return self.inclusive
        return last.batch_index >= start.batch_index if self.inclusive else last.batch_index > start.batch_index


class LastMessage(NamedTuple):
    """``message_id``: the last one of ``topic``, entry -1 if there is none. ``mark_delete``: of this subscription."""

    message_id: MessageId
    mark_delete: Position | None
    topic: str
