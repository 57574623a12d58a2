# SPDX-License-Identifier: Apache-2.0
"""``pulsarish sub``: list, create, move, delete and look at the subscriptions of a topic, over the admin REST.

What passes over messages asks first, as those are lost for the subscription.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from broker_core.base.clock import SystemClock
from broker_core.base.errors import SubscriptionNotFoundError, UsageError
from broker_core.base.names import TopicName, check_subscription_name
from broker_core.base.positions import MessageId
from broker_core.base.printable import printable_json
from broker_core.base.suggest import did_you_mean
from broker_core.cli.output import Format, Row, entries, format_option, on_terminal, print_rows, say
from broker_core.cli.parameter_types import TIME_FORMS, Seconds, WholeNumber, time_if_one
from broker_core.cli.spark_subs import find_spark_subscriptions, place_options, spark_namespace
from broker_core.cli.target import Target, target_options
from broker_core.cli.topic import confirm, find_stats, shortest, told_if_it_exists, yes_option

if TYPE_CHECKING:
    from broker_core.client.admin import AdminApi
    from broker_core.client.held_readers import HeldBack


_NO_TYPE = "None"
"""The type of a subscription without consumers in statistics."""

subscription_argument = click.argument(
    "subscription", callback=lambda context, parameter, name: check_subscription_name(name)
)


@click.group()
def sub() -> None:
    """List, create, move, delete and look at subscriptions."""


@sub.command("list")
@click.argument("topic", required=False)
@click.option("--spark", is_flag=True, help="Those that the Spark source made, of TOPIC or of more than a topic.")
@place_options
@format_option
@target_options
def list_subscriptions(
    target: Target, topic: str | None, spark: bool, namespace: str | None, everywhere: bool, output: Format | None
) -> None:
    """List the subscriptions of TOPIC with their unread messages, those that are not acknowledged.

    An Apache Pulsar does not tell them; msgBacklog, which it tells, counts entries: a batch is one. Where readers have
    waited for a minute for the end of a transaction, a line on standard error names it.
    """
    if spark:
        with target.admin(spark_namespace(topic, namespace)) as admin:
            made = list(find_spark_subscriptions(admin, topic, namespace, everywhere=everywhere))
        print_rows([each.row() for each in made], output, empty="no subscriptions that the Spark source made")
        return
    if topic is None or namespace is not None or everywhere:
        raise UsageError("a list of all subscriptions is of one topic", hint="name the topic, or add --spark")
    name = TopicName.parse(topic)
    with target.admin(name.namespace_name) as admin:
        stats = find_stats(admin, name)
        held = _long_held_back(admin, [name, *map(TopicName.parse, stats.get("partitions") or {})])
    found = stats.get("subscriptions") or {}
    rows = [_row(subscription, found[subscription]) for subscription in sorted(found)]
    print_rows(rows, output, empty=f"no subscriptions on {name}; make one with: pulsarish consume {topic} -s NAME")
    for each in held:
        say(str(each))


def _long_held_back(admin: AdminApi, topics: list[TopicName]) -> list[HeldBack]:
    from broker_core.client.held_readers import long_held_back

    return list(long_held_back(admin, topics, SystemClock().now_ms()).values())


@sub.command()
@click.argument("topic")
@subscription_argument
@format_option
@target_options
def stats(target: Target, topic: str, subscription: str, output: Format | None) -> None:
    """Print the statistics of one subscription: on a terminal the main ones, else Pulsar's whole object."""
    with existing_subscription(target, topic, subscription) as (_, _, found):
        if (output or ("table" if on_terminal() else "jsonl")) == "table":
            print_rows([_row(subscription, found)], "table")
        else:
            click.echo(printable_json(found, indent=2 if output == "json" else None))


@sub.command()
@click.argument("topic")
@subscription_argument
@click.option("--force", is_flag=True, help="Also if consumers are connected.")
@yes_option
@target_options
def delete(target: Target, topic: str, subscription: str, force: bool, yes: bool) -> None:
    """Delete a subscription: its position is lost, messages that no other one needs may be removed."""
    with existing_subscription(target, topic, subscription) as (admin, name, found):
        backlog = found.get("msgBacklog", 0)
        confirm(f'Delete subscription "{subscription}" of {name} with a backlog of {entries(backlog)}?', yes)
        admin.delete_subscription(name, subscription, force=force)
    say(f'deleted subscription "{subscription}" of {name}')


@sub.command()
@click.argument("topic")
@subscription_argument
@click.option(
    "--from",
    "start",
    default="latest",
    show_default=True,
    metavar="WHERE",
    help=f"Where it begins: earliest, latest, a message id, which is the first to come, or a time: {TIME_FORMS}.",
)
@target_options
def create(target: Target, topic: str, subscription: str, start: str) -> None:
    """Create a subscription, so that what is published from now on is kept for it."""
    name = TopicName.parse(topic)
    where = _place("--from", start)
    if isinstance(where, MessageId):
        _refuse_foreign(where, name)
    with target.admin(name.namespace_name) as admin:
        find_stats(admin, name)
        with told_if_it_exists(f'subscription "{subscription}" of {name}'):
            admin.create_subscription(name, subscription, "earliest" if isinstance(where, int) else where)
        if isinstance(where, int):
            admin.reset_to_time(name, subscription, max(where, 0))
    say(f'created subscription "{subscription}" of {name}')


@sub.command()
@click.argument("topic")
@subscription_argument
@click.option("-n", "--count", type=WholeNumber(1), required=True, help="How many; a batch counts as one.")
@yes_option
@target_options
def skip(target: Target, topic: str, subscription: str, count: int, yes: bool) -> None:
    """Pass over the next messages of a subscription."""
    with _moving(target, topic, subscription, f"skip {count:,}", yes) as (admin, name):
        admin.skip_messages(name, subscription, count)
    say(f'skipped {entries(count)} of subscription "{subscription}" of {name}')


@sub.command()
@click.argument("topic")
@subscription_argument
@yes_option
@target_options
def clear(target: Target, topic: str, subscription: str, yes: bool) -> None:
    """Pass over all messages that a subscription has not acknowledged."""
    with _moving(target, topic, subscription, "clear all", yes) as (admin, name):
        admin.clear_backlog(name, subscription)
    say(f'cleared the backlog of subscription "{subscription}" of {name}')


@sub.command()
@click.argument("topic")
@subscription_argument
@click.option(
    "--older-than", "older_than_s", type=Seconds(0), required=True, metavar="SECONDS", help="Age of messages."
)
@yes_option
@target_options
def expire(target: Target, topic: str, subscription: str, older_than_s: float, yes: bool) -> None:
    """Pass over the messages of a subscription that are too old, up to the first one that is not."""
    with _moving(target, topic, subscription, f"expire those older than {older_than_s:,.0f} s", yes) as (admin, name):
        admin.expire_messages(name, subscription, math.ceil(older_than_s))
    say(f'expired messages of subscription "{subscription}" of {name}')


@sub.command()
@click.argument("topic")
@subscription_argument
@click.option(
    "--to",
    "where",
    required=True,
    metavar="WHERE",
    help=f"earliest, latest, a message id, or a time: {TIME_FORMS}.",
)
@yes_option
@target_options
def reset(target: Target, topic: str, subscription: str, where: str, yes: bool) -> None:
    """Move a subscription, so that it goes on at a time or a message; its consumers reconnect."""
    place = _place("--to", where)
    if isinstance(place, MessageId):
        _refuse_foreign(place, TopicName.parse(topic))
    with _moving(target, topic, subscription, f"reset to {where}, with a backlog", yes) as (admin, name):
        if place == "latest":
            admin.clear_backlog(name, subscription)
        elif isinstance(place, MessageId):
            admin.reset_to_message(name, subscription, place)
        else:
            admin.reset_to_time(name, subscription, 0 if isinstance(place, str) else max(place, 0))
    say(f'subscription "{subscription}" of {name} goes on at {where}')


@sub.command()
@click.argument("topic")
@subscription_argument
@click.argument("message_id")
@yes_option
@target_options
def cancel(target: Target, topic: str, subscription: str, message_id: str, yes: bool) -> None:
    """Take a delayed message back for a subscription, before it is delivered there. Apache Pulsar cannot do it.

    A message that is not delayed is acknowledged by it too, with all others of its batch.
    """
    name, message = TopicName.parse(topic), _message_id("MESSAGE_ID", message_id)
    name = name if message.partition < 0 or name.partition_index >= 0 else name.partition(message.partition)
    with _moving(target, str(name), subscription, f"take {message_id} back, one", yes) as (admin, _):
        admin.cancel_delayed(name, subscription, message)
    say(f'message {message_id} will not come to subscription "{subscription}" of {name}')


def _place(option: str, text: str) -> str | MessageId | int:
    """A place in a topic: an end by its word, a message id, or a publish time in milliseconds."""
    if text in ("earliest", "latest"):
        return text
    time_ms = time_if_one(option, text)
    return _message_id(option, text, "earliest, latest, a time, or ") if time_ms is None else time_ms


def _message_id(option: str, text: str, or_else: str = "") -> MessageId:
    try:
        return MessageId.parse(text)
    except ValueError as error:
        raise UsageError(f"{option} {error}", hint=f"write {or_else}a message id as consume prints it") from error


def _refuse_foreign(message: MessageId, topic: TopicName) -> None:
    """UsageError if ``message`` says that it is of another partition: here the same numbers mean another message."""
    if message.partition not in (-1, topic.partition_index):
        raise UsageError(
            f"message id {message} is of partition {message.partition}, and {topic} is not",
            hint="name that partition as the topic; an id without a partition fits everywhere",
        )


@contextmanager
def _moving(
    target: Target, topic: str, subscription: str, what: str, yes: bool
) -> Iterator[tuple[AdminApi, TopicName]]:
    """Ask before a subscription is moved, then give what moves it; SubscriptionNotFoundError if there is none."""
    with existing_subscription(target, topic, subscription) as (admin, name, found):
        backlog = found.get("msgBacklog", 0)
        confirm(f'Subscription "{subscription}" of {name}: {what} of {entries(backlog)}?', yes)
        yield admin, name


@contextmanager
def existing_subscription(
    target: Target, topic: str, subscription: str
) -> Iterator[tuple[AdminApi, TopicName, dict[str, Any]]]:
    """The admin REST, the topic, and the stats of a subscription that exists there; else the error names the one that
    was probably meant."""
    name = TopicName.parse(topic)
    with target.admin(name.namespace_name) as admin:
        known: dict[str, dict[str, Any]] = find_stats(admin, name).get("subscriptions") or {}
        if subscription not in known:
            raise SubscriptionNotFoundError(
                f'subscription "{subscription}" does not exist: {name} has no such subscription',
                hint=did_you_mean(subscription, known, otherwise=f"see: pulsarish sub list {shortest(name)}"),
            )
        yield admin, name, known[subscription]


def _row(subscription: str, stats: dict[str, Any]) -> Row:
    return {
        "subscription": subscription,
        "type": None if stats.get("type") == _NO_TYPE else stats.get("type"),
        "unread": stats.get("backlogMessages"),
        "msgBacklog": stats.get("msgBacklog", 0),
        "unackedMessages": stats.get("unackedMessages", 0),
        "consumers": len(stats.get("consumers") or ()),
        "activeConsumerName": stats.get("activeConsumerName") or None,
        "durable": bool(stats.get("isDurable", stats.get("durable", True))),
    }
