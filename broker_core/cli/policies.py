# SPDX-License-Identifier: Apache-2.0
"""``pulsarish topic policies`` and ``pulsarish namespace policies``: what is set, and for a topic what is in force.

Policies have Pulsar's names, those of its admin paths, which differ a little between the two; values are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from broker_core.base.errors import UsageError
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.suggest import did_you_mean
from broker_core.cli.namespace import check_namespace
from broker_core.cli.output import Format, Row, format_option, print_rows
from broker_core.cli.target import Target, target_options
from broker_core.cli.topic import existing_topic

if TYPE_CHECKING:
    from broker_core.client.admin import AdminApi

R = TypeVar("R")


def policy_names(level: Literal["namespace", "topic"]) -> Sequence[str]:
    """The policies that can be set at ``level``, under their names there."""
    from broker_core.base.policies import POLICIES

    return [name for each in POLICIES if (name := getattr(each, level))]


def _said_of_topics() -> dict[str, object]:
    """The answers about policies of topics where nothing is set, if these are more than nothing."""
    from broker_core.base.policies import POLICIES

    return {each.topic: each.unset for each in POLICIES if each.topic and each.unset is not None}


def _changes(level_above: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """The options that change policies."""

    def with_options(command: Callable[..., R]) -> Callable[..., R]:
        command = click.option(
            "--unset", "removals", multiple=True, metavar="POLICY", help=f"Leave it to the {level_above} again."
        )(command)
        return click.option(
            "--set", "assignments", multiple=True, metavar="POLICY=JSON", help="Set a policy; may be repeated."
        )(command)

    return with_options


@click.command("policies")
@click.argument("name")
@_changes("namespace")
@click.option("--applied", is_flag=True, help="Show what is in force, also where namespace or broker say it.")
@format_option
@target_options
def topic_policies(
    target: Target,
    name: str,
    assignments: Sequence[str],
    removals: Sequence[str],
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
    changes = _Changes(policy_names("topic"), assignments, removals)
    with existing_topic(target, name) as (admin, topic):
        rows = changes.made(admin, topic, applied=applied)
    print_rows(rows, output, empty=f"nothing is set for {topic}; --applied shows what is in force")


@click.command("policies")
@click.argument("name")
@_changes("broker")
@format_option
@target_options
def namespace_policies(
    target: Target, name: str, assignments: Sequence[str], removals: Sequence[str], output: Format | None
) -> None:
    """Set and print the policies of the namespace NAME, which hold for its topics unless these have their own.

    \b
    pulsarish namespace policies public/default --set messageTTL=3600
    pulsarish namespace policies public/default --set deduplication=true --unset retention
    """
    namespace = NamespaceName.parse(name)
    changes = _Changes(policy_names("namespace"), assignments, removals)
    with target.admin(namespace) as admin:
        check_namespace(admin, namespace)
        rows = changes.made(admin, namespace)
    print_rows(rows, output, empty=f"nothing is set for {namespace}; pulsarish config shows the broker's settings")


class _Changes:
    """Policies that a command line sets and unsets; UsageError if that cannot be."""

    def __init__(self, known: Sequence[str], assignments: Sequence[str], removals: Sequence[str]) -> None:
        self._known = known
        wanted = [self._assignment(each) for each in assignments]
        self._wanted = dict(wanted)
        self._unwanted = [self._checked(each) for each in removals]
        named = [policy for policy, _ in wanted] + self._unwanted
        if twice := next((policy for policy in named if named.count(policy) > 1), None):
            raise UsageError(f'policy "{twice}" is given twice', hint="give each one once, to set or to unset it")

    def made(self, admin: AdminApi, of: TopicName | NamespaceName, *, applied: bool = False) -> list[Row]:
        """Change the policies of ``of``; what holds then."""
        for policy, value in self._wanted.items():
            admin.set_policy(of, policy, value)
        for policy in self._unwanted:
            admin.remove_policy(of, policy)
        found = {policy: admin.policy(of, policy, applied=applied) for policy in self._known}
        if isinstance(of, TopicName) and not applied:
            unset = _said_of_topics()
            found = {policy: value for policy, value in found.items() if value != unset.get(policy)}
        return [{"policy": policy, "value": value} for policy, value in found.items() if value is not None]

    def _assignment(self, text: str) -> tuple[str, Any]:
        policy, sign, value = text.partition("=")
        if not sign:
            raise UsageError(f"--set {text} has no value", hint="write --set POLICY=JSON")
        try:
            read = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"the value of --set {policy} is not JSON: {error} in {value}",
                hint='write a number, true, false, "text" or {...}',
            ) from error
        if self._checked(policy) == "backlogQuota" and not (isinstance(read, dict) and read):
            raise UsageError(
                f"the value of --set backlogQuota is {value}, and it takes a quota for each of its types",
                hint='write {"destination_storage": {"limitSize": 1000000, "policy": "producer_exception"}}',
            )
        return policy, read

    def _checked(self, policy: str) -> str:
        if policy not in self._known:
            raise UsageError(
                f'there is no policy "{policy}"',
                hint=did_you_mean(policy, self._known, otherwise=f"known are {', '.join(self._known)}"),
            )
        return policy
