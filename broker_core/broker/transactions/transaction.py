# SPDX-License-Identifier: Apache-2.0
"""``Transaction``: one transaction that is not over, and what it has touched.

States, with the numbers of Pulsar. OPEN is the only one in which something may be sent or acknowledged; from there a
request or the deadline leads to one of two ends, and no state is ever left for an earlier one:

    OPEN --> COMMITTING --> COMMITTED
      +----> ABORTING ----> ABORTED

COMMITTING and ABORTING last until the decision is durable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from broker_core.base.positions import Position
from broker_core.broker.requests import Requester
from broker_core.broker.transactions.participant import ParticipantKey
from broker_core.wire.heads import TxnId


class TransactionStatus(IntEnum):
    """State of a transaction."""

    OPEN = 0
    COMMITTING = 1
    COMMITTED = 2
    ABORTING = 3
    ABORTED = 4


@dataclass(slots=True, eq=False)
class Transaction:
    """A transaction that is not over.

    Attributes:
        owner: The role that began it; None: anybody may use it.
        topics: Id of each topic that it may have sent to; its entries there come after the position.
        participants: What it has touched since it began or the broker started.
    """

    id: TxnId
    owner: str | None
    started_ms: int
    ttl_ms: int
    status: TransactionStatus = TransactionStatus.OPEN
    topics: dict[int, Position] = field(default_factory=dict)
    participants: set[ParticipantKey] = field(default_factory=set)

    @property
    def deadline_ms(self) -> int:
        """When it is aborted unless it is over before; time in which the broker was down counts. It began in the past:
        where the clock was set back, when that was noticed."""
        return self.started_ms + self.ttl_ms

    @property
    def commits(self) -> bool:
        """Whether its end is a commit."""
        return self.status in (TransactionStatus.COMMITTING, TransactionStatus.COMMITTED)

    def is_of(self, requester: Requester) -> bool:
        """Whether ``requester`` may use it."""
        return self.owner is None or requester.is_superuser or self.owner == requester.role
