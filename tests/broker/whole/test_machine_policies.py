# SPDX-License-Identifier: Apache-2.0
"""Random histories under changing policies: message expiry, retention, backlog quotas (7.1 to 7.3, I7.1, I7.2)."""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from broker_core.base.errors import ProducerBlockedQuotaError, ProducerBlockedQuotaException
from broker_core.base.policies import NO_POLICIES, BacklogQuota, Policies, Retention
from broker_core.base.positions import Position
from broker_core.base.steps import drained
from tests.broker.whole.entry import Entry
from tests.broker.whole.machine import WholeBrokerMachine
from tests.broker.whole.sender import Sender
from tests.broker.whole.topic_machine import KEYS, PICK
from tests.broker.world import TINY, YEAR_MS

NEVER = 30_000
"""An interval beyond every history: what is done now and then is done by rules here."""

TTLS_S = st.sampled_from([None, 1, 3])
RETENTIONS = st.sampled_from([None, None, Retention(5, -1), Retention(-1, -1)])
QUOTAS = st.sampled_from([None, None, "consumer_backlog_eviction", "producer_request_hold", "producer_exception"])
ENTRY = st.tuples(st.integers(1, 4), st.sampled_from(KEYS), st.sampled_from([0, 0, 4000, YEAR_MS, -YEAR_MS]))


class PoliciesMachine(WholeBrokerMachine):
    """``policies``: what is set for the topic."""

    tuning = msgspec.structs.replace(
        TINY, message_expiry_check_interval_in_minutes=NEVER, backlog_quota_check_interval_in_seconds=60 * NEVER
    )

    def __init__(self) -> None:
        super().__init__()
        self.policies = NO_POLICIES

    def learn_new(self) -> None:
        """7.2: each entry has the broker's time, whatever the clock of its producer says."""
        known = len(self.log)
        super().learn_new()
        for entry in list(self.log.values())[known:]:
            assert abs(entry.stored_ms - self.world.clock.now_ms()) < YEAR_MS // 2, "not the broker's time"

    @rule(entries=st.lists(ENTRY, min_size=1, max_size=6), wait=st.booleans())
    def publish_aged(self, entries: list[tuple[int, str, int]], wait: bool) -> None:
        """Clocks of producers go back and forth, by a year, and count for nothing."""
        for messages, key, age_ms in entries:
            self.send(Entry(messages, key, published_ms=self.world.clock.now_ms() - age_ms))
        if wait:
            self.settle()

    @rule(ttl_s=TTLS_S, retention=RETENTIONS, quota=QUOTAS, which=PICK)
    def set_policies(self, ttl_s: int | None, retention: Retention | None, quota: str | None, which: int) -> None:
        """1.1.5: the limit of a quota is one that is just reached somewhere."""
        limit_bytes = self.bytes_behind(self.pick_entry(which)) if self.log else 0
        size = None if quota is None else {"destination_storage": BacklogQuota(limit_bytes, policy=quota)}  # type: ignore[arg-type]
        self.policies = Policies(
            message_ttl_in_seconds=ttl_s,
            retention_policies=retention,
            backlog_quota_map=size,  # type: ignore[arg-type] # one of its keys
        )
        drained(self.world.broker.set_topic_policies(self.topic.name, self.policies))
        self.settle()

    # -- expiry

    @rule()
    def expire(self) -> None:
        """I7.2: an unbroken run of expired messages at the head of each backlog, and nothing else."""
        self.settle()
        ttl_s = self.policies.message_ttl_in_seconds
        if ttl_s:
            before_ms = self.world.clock.now_ms() - ttl_s * 1000
            for model in self.models.values():
                expired = None
                for position in model.unacked():
                    if self.log[position].stored_ms >= before_ms:
                        break
                    expired = position
                if expired is not None:
                    model.acked_through(expired, 0)
        self.world.broker.upkeep.expire()
        self.settle()

    # -- quotas

    @property
    def quota(self) -> BacklogQuota | None:
        return (self.policies.backlog_quota_map or {}).get("destination_storage")

    def bytes_behind(self, position: Position) -> int:
        log = self.topic.log
        return log.bytes_between(position, log.last_confirmed)

    @property
    def is_exceeded(self) -> bool:
        slowest = min(self.topic.subscriptions[name].cursor.mark_delete for name in self.models)
        return self.quota is not None and self.bytes_behind(slowest) >= self.quota.limit_bytes

    @rule()
    def enforce_quotas(self) -> None:
        """7.3: the oldest messages go until the quota holds, or producers do."""
        self.settle()
        quota = self.quota
        if quota is not None and self.is_exceeded and quota.policy == "consumer_backlog_eviction":
            last = next(reversed(self.log), None)
            enough = (each for each in self.log if self.bytes_behind(each) < quota.limit_bytes)
            target = next(enough, last)
            for model in self.models.values():
                if target is not None and model.unacked() and model.unacked()[0] <= target:
                    model.acked_through(target, 0)
        self.world.broker.upkeep.enforce_quotas()
        is_held = self.is_exceeded and quota is not None and quota.policy != "consumer_backlog_eviction"
        assert not (is_held and self.sender.is_connected), "7.3: producing goes on"
        self.settle()

    def send(self, entry: Entry) -> None:
        """Producers that were sent away try again, and are let in unless the quota is exceeded."""
        if not self.sender.is_connected:
            try:
                self.sender.connect(self.topic)
            except (ProducerBlockedQuotaError, ProducerBlockedQuotaException):
                assert self.is_exceeded, "refused though the quota holds"
                return
        super().send(entry)

    def connect_senders(self) -> None:
        """A new client, which connects when it has something to send."""
        self.sender = Sender("p", self.send_failed)

    # -- retention

    @rule()
    def retain(self) -> None:
        """7.1: nothing goes before its time, acknowledged or not."""
        before = {ledger.id: ledger.last_ms or ledger.created_ms for ledger in self.topic.log.ledgers()}
        super().retain()
        kept = {ledger.id for ledger in self.topic.log.ledgers()}
        minutes = (self.policies.retention_policies or Retention()).minutes
        for ledger, last_ms in before.items():
            if ledger not in kept and minutes:
                assert 0 < minutes * 60_000 < self.world.clock.now_ms() - last_ms, "7.1: deleted too early"

    def after_start(self) -> None:
        assert self.world.broker.policies.of_topic(self.topic.name) == self.policies, "policies are lost"
        super().after_start()


TestPolicies = PoliciesMachine.TestCase
TestPolicies.settings = settings(
    max_examples=35, stateful_step_count=80, deadline=None, derandomize=True, print_blob=True
)
