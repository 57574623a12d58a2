# SPDX-License-Identifier: Apache-2.0
"""``pulsarish sub``: list, delete and look at the subscriptions of a topic, over the admin REST."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from broker_core.base.errors import SubscriptionNotFoundError
from broker_core.base.names import TopicName
from broker_core.base.suggest import did_you_mean
from broker_core.cli.output import Format, Row, format_option, on_terminal, print_rows, say
from broker_core.cli.target import Target, target_options
from broker_core.cli.topic import confirm, find_stats

if TYPE_CHECKING:
    from broker_core.client.admin import AdminApi


@click.group()
def sub() -> None:
    """List, delete and look at subscriptions."""


@sub.command("list")
@click.argument("topic")
@format_option
@target_options
def list_subscriptions(target: Target, topic: str, output: Format | None) -> None:
    """List the subscriptions of TOPIC with their backlog."""
    name = TopicName.parse(topic)
    with target.admin() as admin:
        found = find_stats(admin, name).get("subscriptions") or {}
    rows = [_row(subscription, found[subscription]) for subscription in sorted(found)]
    print_rows(rows, output, empty=f"no subscriptions on {name}; make one with: pulsarish consume {topic} -s NAME")


@sub.command()
@click.argument("topic")
@click.argument("subscription")
@format_option
@target_options
def stats(target: Target, topic: str, subscription: str, output: Format | None) -> None:
    """Print the statistics of one subscription: on a terminal the main ones, else Pulsar's whole object."""
    with target.admin() as admin:
        found = _find(admin, TopicName.parse(topic), subscription)
    if (output or ("table" if on_terminal() else "jsonl")) == "table":
        print_rows([_row(subscription, found)], "table")
    else:
        click.echo(json.dumps(found, ensure_ascii=False, indent=2 if output == "json" else None))


@sub.command()
@click.argument("topic")
@click.argument("subscription")
@click.option("--force", is_flag=True, help="Also if consumers are connected.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@target_options
def delete(target: Target, topic: str, subscription: str, force: bool, yes: bool) -> None:
    """Delete a subscription: its position is lost, messages that no other one needs may be removed."""
    name = TopicName.parse(topic)
    with target.admin() as admin:
        backlog = _find(admin, name, subscription).get("msgBacklog", 0)
        confirm(f'Delete subscription "{subscription}" of {name} with a backlog of {backlog:,} messages?', yes)
        admin.delete_subscription(name, subscription, force=force)
    say(f'deleted subscription "{subscription}" of {name}')


def _find(admin: AdminApi, topic: TopicName, subscription: str) -> dict[str, Any]:
    known: dict[str, dict[str, Any]] = find_stats(admin, topic).get("subscriptions") or {}
    if subscription not in known:
        raise SubscriptionNotFoundError(
            f'subscription "{subscription}" does not exist: {topic} has {len(known)} subscriptions, not this one',
            hint=did_you_mean(subscription, known, otherwise=f"see: pulsarish sub list {topic.local}"),
        )
    return known[subscription]


def _row(subscription: str, stats: dict[str, Any]) -> Row:
    return {
        "subscription": subscription,
        "type": stats.get("type") or None,
        "msgBacklog": stats.get("msgBacklog", 0),
        "unackedMessages": stats.get("unackedMessages", 0),
        "consumers": len(stats.get("consumers") or ()),
        "activeConsumerName": stats.get("activeConsumerName") or None,
        "durable": bool(stats.get("isDurable", stats.get("durable", True))),
    }
