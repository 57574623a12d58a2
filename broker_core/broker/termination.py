# SPDX-License-Identifier: Apache-2.0
"""``Termination``: the end of a topic. No message follows the one that was last when it was asked for; irreversible.

The log refuses appends at once. What was appended before becomes durable first, then the position of the last message
is stored as a property of the topic, then the request is answered. So no id above that position ever exists (I7.3),
and after a crash on the way the topic is not terminated, or it has the end that an answer would have named.
Source: Pulsar docs, "Topics - terminate"; semantics 7.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from broker_core.base.errors import ServerError, ServiceNotReadyError
from broker_core.base.positions import Position
from broker_core.storage.catalogue import INTERNAL_PREFIX, Catalogue
from broker_core.storage.topic_log import TopicLog

PROPERTY: Final = INTERNAL_PREFIX + "terminated"

OnTerminated: TypeAlias = Callable[[Position | ServerError], None]
"""Told the position of the last message (entry -1 if there never was one), or why that is not known."""


class Termination:
    """Whether one topic has ended, and where. ``position``: of its last message; None while it goes on."""

    def __init__(self, log: TopicLog, catalogue: Catalogue, on_terminated: Callable[[], None]) -> None:
        """``on_terminated`` is called once, when the end is durable and before the request is answered."""
        self._log = log
        self._catalogue = catalogue
        self._on_terminated = on_terminated
        self._waiting: list[OnTerminated] = []
        stored = catalogue.topics.property(log.topic_id, PROPERTY)
        self.position = Position(*stored) if stored is not None else None
        if stored is not None:
            log.terminate()

    @property
    def begun(self) -> bool:
        """Whether the topic accepts no more messages."""
        return self.position is not None or bool(self._waiting)

    def request(self, on_done: OnTerminated) -> None:
        """End the topic; if it has ended, only its end is told."""
        if not self._waiting:
            self._log.terminate()
            self._log.add_listener(self._entries_came)
        self._waiting.append(on_done)
        self._entries_came()

    def close(self) -> None:
        """The topic is unloaded, perhaps before its end was durable."""
        self._tell(ServiceNotReadyError(f"{self._log.name} was unloaded while it was being terminated"))

    def _entries_came(self) -> None:
        if not self._log.drained:
            return
        if self.position is None:
            last = self._log.last_confirmed
            self._catalogue.topics.set_property(self._log.topic_id, PROPERTY, list(last))
            self.position = last
            self._on_terminated()
        self._tell(self.position)

    def _tell(self, result: Position | ServerError) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._log.remove_listener(self._entries_came)
        for on_done in waiting:
            on_done(result)
