# SPDX-License-Identifier: Apache-2.0
"""Calling code of the application from inside the client: its errors are logged and stop nothing else.

Owns the two kinds of observers that an application may give: interceptors, which see every message, and the listener of
a consumer's events. They run where the event happens: on the client's own thread, ``before_send`` and
``before_consume`` on the caller's. Source: Pulsar docs, "Interceptors", ``ConsumerEventListener``; semantics 2.3, 7.5,
7.11.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, ParamSpec, TypeVar

from broker_core.base.errors import PulsarishError
from broker_core.base.positions import MessageId, Position
from broker_core.client.messages.message import Message
from broker_core.client.messages.outgoing import OutgoingMessage

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def call_application(callback: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
    """The result of ``callback``; None if it raises, which is logged."""
    try:
        return callback(*arguments, **named)
    except Exception:  # an application's mistake must not stop the others
        logger.exception("application callback failed callback=%r", callback)
        return None


class ConsumerEventListener:
    """Hears what happens to a consumer. ``topic``: full name of the topic or partition. Override what matters."""

    def became_active(self, topic: str) -> None:
        """A Failover consumer is now the one that gets the messages of ``topic``."""

    def became_inactive(self, topic: str) -> None:
        """A Failover consumer stands by for ``topic``, also if it has just come."""

    def reached_end_of_topic(self, topic: str) -> None:
        """``topic`` was terminated, and everything in it is acknowledged. Told once; again if messages came again."""


class ProducerInterceptor:
    """Sees every message of a producer. Override what matters."""

    def before_send(self, message: OutgoingMessage) -> OutgoingMessage:
        """The message to be sent: ``message``, or another (``message._replace(...)``)."""
        return message

    def on_send_acknowledgement(
        self, message: OutgoingMessage, message_id: MessageId | None, failure: PulsarishError | None
    ) -> None:
        """The fate of ``message``: its id, or why it has none."""

    def close(self) -> None:
        """The producer is closed."""


class ConsumerInterceptor:
    """Sees every message of a consumer, and what is acknowledged. Override what matters."""

    def before_consume(self, message: Message) -> Message:
        """The message that the application gets: ``message``, perhaps changed."""
        return message

    def on_acknowledge(self, message_id: MessageId) -> None:
        """A message was acknowledged by the application."""

    def on_acknowledge_cumulative(self, message_id: MessageId) -> None:
        """A message and all before it were acknowledged by the application."""

    def on_negative_acks_send(self, topic: str, positions: Sequence[Position]) -> None:
        """The delay of negative acks is over, and these entries are asked for again."""

    def on_ack_timeout_send(self, topic: str, positions: Sequence[Position]) -> None:
        """Entries were not acknowledged in time, and are asked for again."""

    def close(self) -> None:
        """The consumer is closed."""


I = TypeVar("I", ProducerInterceptor, ConsumerInterceptor)  # noqa: E741 - as usual for a type variable, one letter


class Interceptors(Generic[I]):
    """Interceptors in their order. False if there are none, so that nothing is spent on them."""

    __slots__ = ("_all",)

    def __init__(self, interceptors: Iterable[I]) -> None:
        self._all: tuple[I, ...] = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._all)

    def passed(self, step: Callable[[I], Callable[[T], T]], value: T) -> T:
        """``value`` after the ``step`` of each; one that raises is passed over."""
        for each in self._all:
            changed = call_application(step(each), value)
            if changed is not None:
                value = changed
        return value

    def told(self, step: Callable[[I], Callable[P, object]], *arguments: P.args, **named: P.kwargs) -> None:
        """Call the ``step`` of each."""
        for each in self._all:
            call_application(step(each), *arguments, **named)
