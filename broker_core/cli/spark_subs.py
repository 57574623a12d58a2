# SPDX-License-Identifier: Apache-2.0
"""``pulsarish sub list --spark`` and ``pulsarish sub clean``: subscriptions that the Spark source made, and left.

Found by their marks or generated names over the admin REST, on any Pulsar. Only what nobody is connected to is deleted:
the broker itself refuses the others at the moment of deletion. What goes, and with which backlog, is told before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from broker_core.base.clock import SystemClock
from broker_core.base.errors import (
    ConnectionLostError,
    NotAllowedError,
    OperationTimeoutError,
    TopicNotFoundError,
    UsageError,
)
from broker_core.base.names import NamespaceName, TopicName
from broker_core.cli.output import Row, counted, entries, say
from broker_core.cli.parameter_types import Seconds
from broker_core.cli.target import Target, target_options
from broker_core.cli.topic import confirm, find_stats, yes_option

if TYPE_CHECKING:
    from broker_core.client.admin import AdminApi
    from broker_core.client.spark_marks import SparkMark

R = TypeVar("R")

_USES: Final = ("lastMarkDeleteAdvancedTimestamp", "lastAckedTimestamp", "lastConsumedFlowTimestamp")
"""Fields that tell when a subscription was used, milliseconds since the epoch; 0: not since it was loaded."""


@dataclass(frozen=True, slots=True)
class Part:
    """A subscription on a plain topic or on one partition. ``backlog`` counts entries: a batch is one."""

    topic: TopicName
    backlog: int
    consumers: int
    used_ms: int


@dataclass(frozen=True, slots=True)
class SparkSubscription:
    """A subscription of Spark's on a topic, or on those partitions that have it."""

    topic: TopicName
    name: str
    mark: SparkMark
    parts: tuple[Part, ...]

    @property
    def backlog(self) -> int:
        return sum(part.backlog for part in self.parts)

    @property
    def consumers(self) -> int:
        return sum(part.consumers for part in self.parts)

    @property
    def used_ms(self) -> int | None:
        """When it was used last, or made, as far as anybody knows; None: nobody knows."""
        return max(self.mark.created_ms or 0, *(part.used_ms for part in self.parts)) or None

    def row(self) -> Row:
        """The row of the table that lists it."""
        return {
            "subscription": self.name,
            "topic": str(self.topic),
            "msgBacklog": self.backlog,
            "consumers": self.consumers,
            "kind": self.mark.kind or None,
            "created": _time_text(self.mark.created_ms),
            "lastUsed": _time_text(self.used_ms),
            "host": self.mark.host or None,
            "application": self.mark.application or None,
        }

    def __str__(self) -> str:
        return f'subscription "{self.name}" of {self.topic} with a backlog of {entries(self.backlog)}'


def place_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options that say where to look beside one topic."""
    for option in (
        click.option("--everywhere", is_flag=True, help="In all namespaces of all tenants."),
        click.option("--namespace", metavar="TENANT/NAMESPACE", help="In all topics of this namespace."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("topic", required=False)
@place_options
@click.option(
    "--older-than",
    "unused_s",
    type=Seconds(0),
    default=0,
    metavar="SECONDS",
    help="Only what was not used for so long.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@yes_option
@target_options
def clean(
    target: Target,
    topic: str | None,
    namespace: str | None,
    everywhere: bool,
    unused_s: float,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete subscriptions that the Spark source made and nobody is connected to, of TOPIC or of more.

    A query that is stopped looks like one that was given up: whoever starts it again is told that its subscription is
    gone, and what was deleted meanwhile is lost to it. A query was used when it was made and when it last acknowledged
    something or asked for messages, which brokers forget when they load a topic anew.
    """
    with target.admin(spark_namespace(topic, namespace)) as admin:
        found = list(find_spark_subscriptions(admin, topic, namespace, everywhere=everywhere))
        chosen = [each for each in found if _is_left(each, unused_s)]
        for each in chosen:
            say(f"{'would delete' if dry_run else 'to delete:'} {each}")
        if not chosen:
            say(f"nothing to delete among {len(found)} of Spark's subscriptions")
        elif not dry_run:
            backlog = sum(each.backlog for each in chosen)
            what = counted(len(chosen), "subscription", "subscriptions")
            confirm(f"Delete {what} with a backlog of {entries(backlog)}?", yes)
            are_deleted = [_is_deleted(admin, each) for each in chosen]
            if not all(are_deleted):
                raise NotAllowedError("not all of them were deleted: the broker has refused those that are named above")


def find_spark_subscriptions(
    admin: AdminApi, topic: str | None, namespace: str | None, *, everywhere: bool
) -> Iterator[SparkSubscription]:
    """Spark's subscriptions in one place, in order of names; UsageError unless exactly one place is named."""
    if (topic is not None) + (namespace is not None) + everywhere != 1:
        raise UsageError("say where to look, once", hint="name a topic, or give --namespace NAME, or --everywhere")
    if topic is not None:
        yield from _of_topic(TopicName.parse(topic), find_stats(admin, TopicName.parse(topic)))
        return
    names = [NamespaceName.parse(namespace)] if namespace is not None else _all_namespaces(admin)
    for name in names:
        for found, partitions in admin.topics(name).items():
            if found.is_internal:
                continue
            with suppress(TopicNotFoundError):  # It was deleted meanwhile.
                yield from _of_topic(found, admin.topic_stats(found, partitions))


def spark_namespace(topic: str | None, namespace: str | None) -> NamespaceName | None:
    """The namespace of the one place, as far as one is named."""
    if topic is not None:
        return TopicName.parse(topic).namespace_name
    return None if namespace is None else NamespaceName.parse(namespace)


def _all_namespaces(admin: AdminApi) -> Iterator[NamespaceName]:
    for tenant in admin.tenants():
        yield from admin.namespaces(tenant)


def _of_topic(topic: TopicName, stats: dict[str, Any]) -> Iterator[SparkSubscription]:
    from broker_core.client.spark_marks import mark_of

    members: dict[str, dict[str, Any]] = stats.get("partitions") or {str(topic): stats}
    parts: dict[str, list[Part]] = {}
    marks: dict[str, SparkMark] = {}
    for member, its in members.items():
        for name, held in (its.get("subscriptions") or {}).items():
            mark = mark_of(name, held.get("subscriptionProperties") or {})
            if mark is None or not held.get("isDurable", held.get("durable", True)):
                continue
            marks[name] = mark if mark.kind or name not in marks else marks[name]
            parts.setdefault(name, []).append(_part(TopicName.parse(member), held))
    for name in sorted(parts):
        yield SparkSubscription(topic, name, marks[name], tuple(parts[name]))


def _part(topic: TopicName, held: dict[str, Any]) -> Part:
    used_ms = max(int(held.get(name) or 0) for name in _USES)
    return Part(topic, int(held.get("msgBacklog", 0)), len(held.get("consumers") or ()), used_ms)


def _is_left(found: SparkSubscription, unused_s: float) -> bool:
    """Whether it may go. Says why one stays."""
    if found.consumers:
        say(f"in use, stays: {found}")
        return False
    if not unused_s:
        return True
    if found.used_ms is None:
        say(f"nobody knows when it was used last, stays: {found}")
        return False
    age_s = (SystemClock().now_ms() - found.used_ms) / 1000
    if age_s < unused_s:
        say(f"used {max(age_s, 0):,.0f} s ago, stays: {found}")
        return False
    return True


def _is_deleted(admin: AdminApi, found: SparkSubscription) -> bool:
    """Delete it, on each partition by itself; whether it is gone everywhere. Says what was done."""
    from broker_core.client.admin import AdminRefusedError

    is_gone = True
    for part in found.parts:
        what = f'subscription "{found.name}" of {part.topic}'
        try:
            admin.delete_subscription(part.topic, found.name, force=False)
        except TopicNotFoundError:
            say(f"gone already: {what}")
        except AdminRefusedError as error:  # Somebody has connected since it was looked at.
            say(f"not deleted: {what}: {error.message}")
            is_gone = False
        except (ConnectionLostError, OperationTimeoutError):
            say(f"not known whether it was deleted: {what}")
            raise
        else:
            say(f"deleted {what} with a backlog of {entries(part.backlog)}")
    return is_gone


def _time_text(time_ms: int | None) -> str | None:
    return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
