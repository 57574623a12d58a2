# SPDX-License-Identifier: Apache-2.0
"""A consumer's client in a random history: it counts its permits and shows whatever it is told to a judge.

Owns what any client knows by itself. What it may be given is the judge's to say: the model of a machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.sinks import Delivery


class Judge(Protocol):
    """Knows which messages must come, and fails if others do."""

    def delivered_to(self, client: Client, delivery: Delivery) -> None: ...

    def ended(self, client: Client) -> None: ...


@dataclass(eq=False)
class Client:
    """``granted`` and ``spent`` are permits, in messages; ``seen``: what came and was not acknowledged by it."""

    judge: Judge
    name: str
    priority: int = 0
    writable: bool = True
    closed: bool = False
    granted: int = 0
    spent: int = 0
    active: bool | None = None
    seen: list[Position] = field(default_factory=list)
    consumer: Consumer = None  # type: ignore[assignment] # set right after subscribing

    @property
    def permits(self) -> int:
        return self.granted - self.spent

    @property
    def is_available(self) -> bool:
        return self.permits > 0 and self.writable and not self.consumer.blocked

    def flow(self, permits: int) -> None:
        """Grant more."""
        self.granted += permits
        self.consumer.flow(permits)

    def pause_or_resume(self) -> None:
        """The connection takes nothing now, or something again."""
        self.writable = not self.writable
        if self.writable:
            self.consumer.writable_again()

    # -- ConsumerSink

    def deliver(self, deliveries: list[Delivery]) -> None:
        assert deliveries
        assert not self.closed, "delivered to a closed consumer"
        assert self.writable, "delivered to a connection that takes nothing"
        for delivery in deliveries:
            self.judge.delivered_to(self, delivery)

    def active_changed(self, active: bool) -> None:
        assert self.active is not active, "told the same twice (2.3.4.2)"
        self.active = active

    def end_of_topic(self) -> None:
        self.judge.ended(self)

    def closed_by_broker(self) -> None:
        self.closed = True
