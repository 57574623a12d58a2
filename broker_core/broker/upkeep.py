# SPDX-License-Identifier: Apache-2.0
"""``Upkeep``: what a broker does to its topics at intervals.

Retention, message expiry, backlog quotas, the end of unused subscriptions and of unused topics and a look at the room
on the disk each have an interval of their own.

Retention deletes whole ledgers that all of the topic's ledger holders have released, oldest first. Holders are durable
subscriptions, which release what they have acknowledged, and deduplication. The topic's retention policy decides when a
released ledger is deleted: by age of the newest entry, by size of what is left, at once, or never. Safety: nothing is
deleted before its release is durable, so that after a crash no subscription finds a gap where it had unacknowledged
entries (semantics I7.1). Non-durable subscriptions do not hold anything back.
 Topics that were not used since the start are not in memory; so that their data is trimmed and
expired too, each retention check also visits up to ``_VISITS`` of those that have ledgers, one after the other through
all of them, and unloads them again at the next check. Knows when, not how. Source: semantics 7.1, 7.2, 7.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from broker_core.base.clock import TimerHandle, Timers
from broker_core.base.errors import PersistenceServerError, ServerError, ServiceNotReadyError, StorageError
from broker_core.base.names import TopicName
from broker_core.base.policies import Retention
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.consumer import OnDone
from broker_core.broker.directory.topic_loader import TopicLoader
from broker_core.broker.directory.topic_registry import TopicRegistry
from broker_core.broker.inactive_topics import InactiveTopics
from broker_core.broker.limits import backlog_quota
from broker_core.broker.limits.disk_reserve import DiskReserve
from broker_core.broker.topic import Topic


def trim(topic: Topic, *, retained: bool = True, on_done: OnDone = lambda _error: None) -> None:
    """Start deleting ledgers; it happens once all holders have released it durably.

    ``retained``: what is acknowledged is kept as long as the policy says; otherwise it goes at once. ``on_done`` hears
    when that is over: the next group commit makes the deletion durable.
    """
    topic.log.roll_if_due()
    subscribed = any(each.durable for each in topic.subscriptions.values())
    kept_whole = topic.settings.retain_without_subscription and Retention.of(topic.settings).nothing
    if retained and not subscribed and kept_whole:
        on_done(None)
        return
    released = _released_through(topic)
    if topic.reserve.low and released >= topic.log.last_confirmed:
        topic.log.roll()  # no producer writes to it now, so it would stay open, and the disk full, for hours
    if _deletable_through(topic, released, retained) is None:
        on_done(None)
        return

    holders = topic.ledger_holders
    left = len(holders) + 1
    failure: StorageError | None = None

    def passed(error: StorageError | None) -> None:
        nonlocal left, failure
        failure = failure or error
        left -= 1
        if left == 0:
            on_done(_delete(topic, released, retained) if failure is None else _not_released(failure))

    for holder in holders:
        holder.when_released(passed)
    passed(None)  # not before each was asked, and also without any holder


def _released_through(topic: Topic) -> Position:
    """No holder needs an entry up to this position."""
    return min([topic.log.last_confirmed, *(each.released_through for each in topic.ledger_holders)])


def _deletable_through(topic: Topic, released: Position, retained: bool) -> Position | None:
    """The last entry of the newest ledger that may go, all older ones included; None if not even the oldest may."""
    retention = Retention.of(topic.settings)
    now_ms = topic.age_clock.now_ms()
    left_bytes = topic.log.size_bytes
    through: Position | None = None
    for ledger in topic.log.ledgers():
        end = Position(ledger.id, ledger.entries - 1)
        left_bytes -= ledger.size_bytes
        age_ms = now_ms - (ledger.last_ms or ledger.created_ms)
        if not ledger.closed or end > released or (retained and not retention.allows_deletion(age_ms, left_bytes)):
            break
        through = end
    return through


def _delete(topic: Topic, released: Position, retained: bool) -> ServerError | None:
    """Delete the ledgers, unless a seek or a new subscription has meanwhile gone back behind ``released``; why it was
    not done, if it was not."""
    if topic.closed:
        return ServiceNotReadyError(f"{topic.name} was unloaded, or deleted, before it was trimmed", hint="try again")
    through = _deletable_through(topic, min(released, _released_through(topic)), retained)
    if through is None:
        return None
    try:
        deleted = topic.log.trim(Position(through.ledger, through.entry + 1))
    except StorageError as error:
        # The store has failed and has told its owner. This runs inside a commit, which has more listeners to tell.
        logger.error("trim failed topic=%s error=%s", topic.name, error)
        return _not_released(error)
    if deleted:
        logger.info("trimmed topic=%s ledgers=%s", topic.name, deleted)
        topic.trimmed()
    return None


def _not_released(error: StorageError) -> ServerError:
    return PersistenceServerError(f"nothing was deleted: {error.message}")


logger = logging.getLogger(__name__)

_VISITS: Final = 20
"""Topics loaded for one check. Loading one takes about a millisecond, and its cursors take memory until the next."""

_LOOKED_THROUGH: Final = 500
"""Topics among which those to visit are chosen for one check; most may be loaded, which the check has seen already."""

_LOOK_S: Final = 1.0
"""How often the disk is asked how much is free: other programs may fill it too."""

_MAKE_ROOM_S: Final = 5.0
"""How often deletable data is looked for while the disk is nearly full: senders wait for it, by default for 30 s."""


_TOPICS_A_TURN: Final = 500
"""Loaded topics that are looked at in one turn of the loop: most need nothing and take some microseconds."""


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Upkeep:
    """The timers of all checks. They run from the start."""

    registry: TopicRegistry
    loader: TopicLoader
    timers: Timers
    settings: InitVar[Settings]
    reserve: DiskReserve
    inactive: InactiveTopics
    _armed: dict[str, TimerHandle] = field(default_factory=dict, init=False)
    _closed: bool = field(default=False, init=False)
    _visited: list[TopicName] = field(default_factory=list, init=False)
    _visited_through: int = field(default=0, init=False)

    def __post_init__(self, settings: Settings) -> None:
        self._every(settings.retention_check_interval_in_seconds, self.retain)
        self._every(settings.message_expiry_check_interval_in_minutes * 60, self.expire)
        self._every(settings.backlog_quota_check_interval_in_seconds, self.enforce_quotas)
        self._every(settings.subscription_expiry_check_interval_in_minutes * 60, self.end_unused_subscriptions)
        self._every(settings.broker_delete_inactive_topics_frequency_seconds, self.end_inactive_topics)
        self._every(settings.broker_service_compaction_monitor_interval_in_seconds, self.compact)
        if self.reserve.watched:
            self._every(_LOOK_S, self.look_at_disk)
            self._every(_MAKE_ROOM_S, self.make_room)

    def close(self) -> None:
        """Stop all checks."""
        self._closed = True
        for timer in self._armed.values():
            timer.cancel()
        self._armed.clear()

    def retain(self) -> None:
        """Delete what retention lets go, of loaded topics and of a few others."""
        self._act_on_each(trim, then=self._let_go)

    def expire(self) -> None:
        """Pass over messages beyond their time to live."""
        self._act_on_each(expire_topic)

    def enforce_quotas(self) -> None:
        """Act on backlogs beyond their quotas."""
        self._act_on_each(backlog_quota.enforce)

    def end_unused_subscriptions(self) -> None:
        """Delete durable subscriptions that had no consumer for longer than their topic allows."""
        self._act_on_each(end_unused_subscriptions)

    def end_inactive_topics(self) -> None:
        """Delete topics that nobody used for longer than they allow."""
        self._act_on_each(self.inactive.look)

    def compact(self) -> None:
        """Compact topics that have got more since the last time than their threshold."""
        if not self.reserve.low:
            self._act_on_each(lambda topic: topic.compaction.start_if_due())

    def look_at_disk(self) -> None:
        """Send producers away when the disk has become nearly full; while it is, none comes back."""
        was_low = self.reserve.low
        self.reserve.look()
        if self.reserve.low and not was_low:
            for topic in self.registry.loaded_topics():
                topic.producers.disconnect_all()

    def make_room(self) -> None:
        """Delete what retention lets go, more often than usual, while the disk is nearly full."""
        if self.reserve.low:
            self._act_on_each(trim)

    def group_committed(self) -> None:
        """Look at the disk at once if much was written since the last look. Called after each group commit."""
        if self.reserve.due:
            self.look_at_disk()

    def _act_on_each(self, act: Callable[[Topic], object], then: Callable[[], None] = lambda: None) -> None:
        """Call ``act`` with every loaded topic, some in each turn of the loop, as there may be many; then ``then``."""
        topics = iter(self.registry.loaded_topics())

        def act_on_some() -> None:
            some = list(islice(topics, _TOPICS_A_TURN))
            for topic in some:
                if not topic.closed:
                    act(topic)
            if len(some) < _TOPICS_A_TURN:
                then()
            elif not self._closed:
                self.timers.call_later(0, act_on_some)

        act_on_some()

    # -- topics that are not used

    def _let_go(self) -> None:
        """Unload the topics that were visited last time, unless they have clients by now, and visit others."""
        visited, self._visited = self._visited, []
        for name in visited:
            topic = self.registry.loaded(name)
            if topic is not None and topic.compaction.is_running:
                self._visited.append(name)
            elif topic is not None and not topic.has_clients:
                self.loader.unload(name)
        self._visit()

    def _visit(self) -> None:
        rows = self.registry.catalogue.topics.with_ledgers(self._visited_through, _LOOKED_THROUGH)
        named = ((topic_id, TopicName.parse(text)) for topic_id, text in rows)
        found = list(islice((each for each in named if self.registry.loaded(each[1]) is None), _VISITS))
        if len(found) == _VISITS:
            self._visited_through = found[-1][0]
        else:
            self._visited_through = rows[-1][0] if len(rows) == _LOOKED_THROUGH else 0
        for _, name in found:
            self.timers.call_later(0, partial(self._visit_one, name))  # one turn of the loop each

    def _visit_one(self, name: TopicName) -> None:
        if not self._closed and self.registry.loaded(name) is None:
            self.loader.when_loadable(name, partial(self._visit_loadable, name))

    def _visit_loadable(self, name: TopicName, refusal: ServerError | None) -> None:
        if self._closed or self.registry.loaded(name) is not None:
            return
        try:
            if refusal is not None:
                raise refusal
            topic = self.loader.load(name)
        except (ServerError, StorageError) as error:
            logger.warning("topic not visited topic=%s error=%s", name, error)
            return
        self._visited.append(name)
        end_unused_subscriptions(topic)
        expire_topic(topic, at_once=True)
        backlog_quota.enforce(topic)
        trim(topic)
        self.inactive.look_at_visited(topic)
        topic.compaction.start_if_due()

    # -- timers

    def _every(self, interval_s: float, act: Callable[[], None]) -> None:
        def due() -> None:
            arm()
            act()

        def arm() -> None:
            self._armed[act.__name__] = self.timers.call_later(interval_s, due)

        arm()


def expire_topic(topic: Topic, *, at_once: bool = False) -> None:
    """Pass every subscription of the topic over the messages beyond their time to live (semantics 7.2)."""
    ttl_s = topic.settings.ttl_duration_default_in_seconds
    if ttl_s:
        for subscription in topic.subscriptions.values():
            topic.expire(subscription, ttl_s, at_once=at_once)


def end_unused_subscriptions(topic: Topic) -> None:
    """Delete the durable subscriptions of the topic that had no consumer for longer than it allows."""
    limit_ms = topic.settings.subscription_expiration_time_minutes * 60_000
    for subscription in list(topic.subscriptions.values()) if limit_ms else ():
        unused_ms = topic.age_clock.now_ms() - subscription.last_active_ms
        if subscription.durable and not subscription.consumers and unused_ms > limit_ms:
            logger.info("unused subscription deleted topic=%s subscription=%s", topic.name, subscription.name)
            topic.delete_subscription(subscription.name)
