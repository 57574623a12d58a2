# SPDX-License-Identifier: Apache-2.0
"""``pulsarish topic policies``: what is set for a topic, and what is in force, over the admin REST.

Policies have Pulsar's names, those of its admin paths; values are JSON.
"""

from __future__ import annotations

import json
from typing import Any, Final

import click

from broker_core.base.errors import UsageError
from broker_core.base.names import TopicName
from broker_core.base.suggest import did_you_mean
from broker_core.cli.output import Format, format_option, print_rows
from broker_core.cli.target import Target, target_options
from broker_core.cli.topic import find_stats

NAMES: Final = (
    *("retention", "messageTTL", "backlogQuota", "deduplicationEnabled", "deduplicationSnapshotInterval"),
    *("maxProducers", "maxConsumers", "maxConsumersPerSubscription", "maxSubscriptionsPerTopic", "maxMessageSize"),
    *("maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription", "autoSubscriptionCreation"),
    "delayedDelivery",
)


@click.command()
@click.argument("name")
@click.option("--set", "assignments", multiple=True, metavar="POLICY=JSON", help="Set a policy; may be repeated.")
@click.option("--unset", "removals", multiple=True, metavar="POLICY", help="Leave it to the namespace again.")
@click.option("--applied", is_flag=True, help="Show what is in force, also where namespace or broker say it.")
@format_option
@target_options
def policies(
    target: Target,
    name: str,
    assignments: tuple[str, ...],
    removals: tuple[str, ...],
    applied: bool,
    output: Format | None,
) -> None:
    """Set and print the policies of the topic NAME.

    \b
    pulsarish topic policies orders --set messageTTL=3600
    pulsarish topic policies orders --set 'retention={"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}'
    pulsarish topic policies orders --set 'backlogQuota={"destination_storage":
        {"limitSize": 1000000, "policy": "producer_request_hold"}}'
    """
    parsed = TopicName.parse(name)
    wanted = dict(map(_assignment, assignments))
    unwanted = [_known(each) for each in removals]
    with target.admin() as admin:
        find_stats(admin, parsed)
        for policy, value in wanted.items():
            admin.set_topic_policy(parsed, policy, value)
        for policy in unwanted:
            admin.remove_topic_policy(parsed, policy)
        found = {policy: admin.topic_policy(parsed, policy, applied=applied) for policy in NAMES}
    rows = [{"policy": policy, "value": value} for policy, value in found.items() if value is not None]
    print_rows(rows, output, empty=f"nothing is set for {parsed}; --applied shows what is in force")


def _assignment(text: str) -> tuple[str, Any]:
    policy, sign, value = text.partition("=")
    if not sign:
        raise UsageError(f"--set {text} has no value", hint="write --set POLICY=JSON")
    try:
        return _known(policy), json.loads(value)
    except ValueError as error:
        raise UsageError(f"--set {policy}: {value} is not JSON", hint=str(error)) from error


def _known(policy: str) -> str:
    if policy not in NAMES:
        raise UsageError(
            f'there is no policy "{policy}"',
            hint=did_you_mean(policy, NAMES, otherwise=f"known are {', '.join(NAMES)}"),
        )
    return policy
