# SPDX-License-Identifier: Apache-2.0
"""``LedgerHolder``: what still needs entries of a topic, so that retention must keep their ledgers.

Durable subscriptions and deduplication are holders; ``Topic.ledger_holders`` lists them.
"""

from __future__ import annotations

from typing import Protocol

from broker_core.base.positions import Position
from broker_core.storage.commit import OnDurable


class LedgerHolder(Protocol):
    """A part of a topic that needs entries. It may need entries again that it has released, until ``when_released`` has
    answered."""

    @property
    def released_through(self) -> Position:
        """It needs no entry up to this position, the position included."""
        ...

    def when_released(self, on_durable: OnDurable) -> None:
        """Call ``on_durable`` when ``released_through`` is durable, so that it holds after a crash as well; whatever
        the durability, for the deletion that waits for it is synced."""
        ...
