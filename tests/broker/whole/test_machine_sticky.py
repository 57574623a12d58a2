# SPDX-License-Identifier: Apache-2.0
"""Random histories of a whole broker where Key_Shared consumers bring their ranges (I2.10; 2.8)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import settings
from hypothesis.stateful import invariant, rule

from broker_core.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from broker_core.broker.dispatch.key_shared.selectors import slot_of
from broker_core.broker.requests import KeySharedMode, KeySharedPolicy, SubscribeRequest, SubscriptionType
from tests.broker.clients import Client
from tests.broker.whole.machine import WholeBrokerMachine
from tests.broker.whole.model import SubscriptionModel
from tests.broker.whole.topic_machine import KEYS

_SLOTS = sorted(slot_of(key.encode()) for key in KEYS)
BORDERS = (0, *(below + (above - below) // 2 for below, above in pairwise(_SLOTS)), 65536)
"""Between two of these lies the slot of one key."""


class StickyBrokerMachine(WholeBrokerMachine):
    """Each consumer wants the slots of one key or of two; who wants any of another's is refused, without a trace."""

    def request(self, model: SubscriptionModel, client: Client, kind: SubscriptionType) -> SubscribeRequest:
        request = super().request(model, client, kind)
        if kind is not SubscriptionType.KEY_SHARED:
            return request
        first = self.names % len(KEYS)
        last = min(first + 1 + self.names // len(KEYS) % 2, len(KEYS))
        wanted = ((BORDERS[first], BORDERS[last] - 1),)
        return replace(request, key_shared=KeySharedPolicy(KeySharedMode.STICKY, wanted))

    def must_be_refused(self, model: SubscriptionModel, request: SubscribeRequest) -> bool:
        taken = [each for client in model.clients for each in client.consumer.request.key_shared.ranges]
        wanted = request.key_shared.ranges
        overlaps = any(a <= d and c <= b for a, b in wanted for c, d in taken)
        return super().must_be_refused(model, request) or overlaps

    def is_held_up(self, name: str) -> bool:
        """What nobody has brought the slot of waits for somebody who does."""
        return super().is_held_up(name) or self.models[name].kind is SubscriptionType.KEY_SHARED

    def finish(self) -> None:
        """I2.10: what fell into holes is not lost."""
        for name, model in self.models.items():
            while model.kind is SubscriptionType.KEY_SHARED:
                self.leave(name, 0)
        super().finish()

    @invariant()
    def keys_are_with_those_who_brought_them(self) -> None:
        for model in self.models.values():
            for position, client in model.owner.items():
                ranges = client.consumer.request.key_shared.ranges
                slot = slot_of(self.log[position].key.encode())
                assert not ranges or any(start <= slot <= end for start, end in ranges), "not its key"

    @rule()
    def settle_down(self) -> None:
        """I2.10: what nobody can take never blocks what somebody can."""
        super().settle_down()
        for name, model in self.models.items():
            dispatcher = self.world.subscription(name).dispatcher
            if not isinstance(dispatcher, KeySharedDispatcher) or dispatcher.stats().blocked:
                continue
            ready = {client.consumer for client in model.clients if client.is_available}
            for position in set(model.unacked()) - set(model.owner):
                owner = dispatcher.selector.select(slot_of(self.log[position].key.encode()))
                assert owner not in ready, f"{position} waits, though {owner} could take it"


TestStickyBroker = StickyBrokerMachine.TestCase
TestStickyBroker.settings = settings(
    max_examples=25, stateful_step_count=80, deadline=None, derandomize=True, print_blob=True
)
