# SPDX-License-Identifier: Apache-2.0
"""Random histories under a limit of what all subscriptions of a broker leave unacknowledged (2.4.12)."""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis.stateful import invariant

from tests.broker.whole.machine import WholeBrokerMachine
from tests.broker.whole.model import SINGLE_ACTIVE, SubscriptionModel
from tests.broker.world import TINY

LIMIT = 12
SHARE = 4


class BrokerLimitMachine(WholeBrokerMachine):
    """The limit is reached by both subscriptions together, or by one alone before it reaches its own."""

    tuning = msgspec.structs.replace(
        TINY,
        max_unacked_messages_per_broker=LIMIT,
        max_unacked_messages_per_subscription_on_broker_blocked=SHARE / LIMIT,
    )

    def unacked(self, model: SubscriptionModel) -> int:
        return 0 if model.kind in SINGLE_ACTIVE else sum(map(model.unacked_of, model.clients))

    def has_too_much(self, model: SubscriptionModel) -> bool:
        total = sum(map(self.unacked, self.models.values()))
        return super().has_too_much(model) or (total >= LIMIT // 2 and self.unacked(model) >= SHARE // 2)

    @invariant()
    def whoever_has_more_than_a_share_stops(self) -> None:
        """2.4.12: the total is the sum, and at the limit none with more than a share goes on."""
        total = sum(map(self.unacked, self.models.values()))
        assert self.topic.unacked.messages == total
        for name, model in self.models.items():
            if total >= LIMIT and self.unacked(model) > SHARE:
                assert self.is_held_up_by_limit(name)


TestBrokerLimit = BrokerLimitMachine.TestCase
TestBrokerLimit.settings = settings(
    max_examples=30, stateful_step_count=100, deadline=None, derandomize=True, print_blob=True
)
