# SPDX-License-Identifier: Apache-2.0
"""``pulsarish topic``: list, create, grow, end, delete and look at topics, over the admin REST."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import click

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ExistsError, NotAllowedError, TopicNotFoundError, UsageError
from broker_core.base.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, NamespaceName, TopicName
from broker_core.base.printable import printable, printable_json
from broker_core.base.suggest import meant_topic
from broker_core.cli.output import Format, Row, counted, format_option, human_bytes, on_terminal, print_rows, say
from broker_core.cli.parameter_types import NUMBER_MAX, WholeNumber
from broker_core.cli.target import Target, target_options

if TYPE_CHECKING:
    from broker_core.client.admin import AdminApi

_DEFAULT = f"{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}"

_CONFLICT: Final = 409

_RUNNING, _FAILED = "RUNNING", "ERROR"

_COMPACTION_COLUMNS: Final = ("topic", "status", "lastError", "entries", "size")

_LOOK_AGAIN_S: Final = 0.2
"""How often is asked whether a compaction has ended."""

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
"""The option of a command that uses ``confirm``."""


@click.group()
def topic() -> None:
    """List, create, grow, end, delete and look at topics."""


@topic.command("list")
@click.argument("namespace", default=_DEFAULT)
@format_option
@target_options
def list_topics(target: Target, namespace: str, output: Format | None) -> None:
    """List the topics of NAMESPACE (tenant/namespace; default public/default): messages stored, and unread ones.

    unread is that of the subscription that is farthest behind. An Apache Pulsar tells neither; msgBacklog, which it
    tells, counts entries: a batch is one. msgInCounter begins anew when a topic is loaded.
    """
    name = NamespaceName.parse(namespace)
    rows = []
    with target.admin(name) as admin:
        for topic, partitions in admin.topics(name).items():
            with suppress(TopicNotFoundError):  # It was deleted meanwhile.
                rows.append(_topic_row(topic, partitions, admin.topic_stats(topic, partitions)))
    example = shortest(TopicName.parse(f"{name}/hello"))
    empty = f"no topics in {name} yet; make one with: pulsarish produce {example} -m hi"
    print_rows(rows, output, empty=empty, columns=_columns(rows))


@topic.command()
@click.argument("name")
@click.option(
    "-p",
    "--partitions",
    type=WholeNumber(0),
    default=0,
    show_default=True,
    help="Number of partitions; 0 makes a topic without partitions.",
)
@click.option("--if-not-exists", is_flag=True, help="Leave a topic that exists, and has so many partitions, as it is.")
@format_option
@target_options
def create(target: Target, name: str, partitions: int, if_not_exists: bool, output: Format | None) -> None:
    """Create the topic NAME. Exit code 9 if it exists."""
    made = TopicName.parse(name)
    with target.admin(made.namespace_name) as admin:
        _create(admin, made, partitions, if_not_exists=if_not_exists)
    print_rows([{"topic": str(made), "partitions": partitions}], output)


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--force", is_flag=True, help="Also if producers or subscriptions use it.")
@yes_option
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@target_options
def delete(target: Target, names: tuple[str, ...], force: bool, yes: bool, dry_run: bool) -> None:
    """Delete topics with all their messages and subscriptions."""
    doomed = [TopicName.parse(name) for name in names]
    with target.admin(doomed[0].namespace_name) as admin:
        for name in doomed:
            held = find_stats(admin, name)
            # Not how many messages: that counter begins anew whenever the topic is loaded.
            stored = human_bytes(held.get("storageSize", 0))
            subscriptions = counted(len(_subscriptions(held)), "subscription", "subscriptions")
            what = f"{name} with {stored} of messages and {subscriptions}"
            if dry_run:
                say(f"would delete {what}")
                continue
            confirm(f"Delete {what}?", yes)
            admin.delete_topic(name, force=force)
            say(f"deleted {name}")


@topic.command()
@click.argument("name")
@click.option("--internal", is_flag=True, help="What lies behind it instead: ledgers and cursors, as JSON.")
@format_option
@target_options
def stats(target: Target, name: str, internal: bool, output: Format | None) -> None:
    """Print the statistics of the topic NAME: on a terminal the main ones, else Pulsar's whole object."""
    parsed = TopicName.parse(name)
    with target.admin(parsed.namespace_name) as admin:
        found = find_stats(admin, parsed)
        partitions = admin.partitions(parsed)
        if internal:
            found = admin.internal_stats(parsed, partitions)
    if internal or (output or ("table" if on_terminal() else "jsonl")) != "table":
        whole = output == "json" or (internal and on_terminal())
        click.echo(printable_json(found, indent=2 if whole else None))
        return
    members: dict[str, Any] = found.get("partitions") or {}
    rows = [_topic_row(TopicName.parse(member), 0, members[member]) for member in sorted(members, key=_partition_order)]
    rows = [_topic_row(parsed, partitions, found), *rows]
    print_rows(rows, "table", columns=_columns(rows))


@topic.command("update-partitions")
@click.argument("name")
@click.option("-p", "--partitions", type=WholeNumber(1), required=True, help="The new number; it can only grow.")
@format_option
@target_options
def update_partitions(target: Target, name: str, partitions: int, output: Format | None) -> None:
    """Give the partitioned topic NAME more partitions.

    Subscriptions get the new partitions from their beginning. Keys may move to other partitions.
    """
    with existing_topic(target, name) as (admin, grown):
        before = admin.partitions(grown)
        if not before:
            raise UsageError(f"{grown} has no partitions", hint="create one with: pulsarish topic create NAME -p N")
        if partitions < before:
            raise UsageError(f"{grown} has {before} partitions, their number can only grow", hint="choose a larger one")
        admin.grow_partitions(grown, partitions)
    print_rows([{"topic": str(grown), "partitions": partitions}], output)


@topic.command()
@click.argument("name")
@target_options
def unload(target: Target, name: str) -> None:
    """Disconnect all clients of the topic NAME, which come back by themselves, and free its memory."""
    with existing_topic(target, name) as (admin, unloaded):
        admin.unload(unloaded)
    say(f"unloaded {unloaded}")


@topic.command()
@click.argument("name")
@yes_option
@format_option
@target_options
def terminate(target: Target, name: str, yes: bool, output: Format | None) -> None:
    """End the topic NAME for good: nobody can produce to it any more, what is there can still be consumed."""
    with existing_topic(target, name) as (admin, ended):
        confirm(f"End {ended} for good?", yes)
        ends = admin.terminate(ended)
    print_rows([{"topic": str(each), "lastMessageId": str(last)} for each, last in ends.items()], output)


@topic.command()
@click.argument("name")
@click.option("--wait", is_flag=True, help="Return when it has ended; exit code 1 if it has failed.")
@format_option
@target_options
def compact(target: Target, name: str, wait: bool, output: Format | None) -> None:
    """Compact the topic NAME: of each key, readers with readCompacted get the last message only.

    All others, and what is stored, stay as they are. Nothing happens where nothing has come since the last time. From
    then on no retention deletes what was not compacted; deleting the subscription __compaction ends that, and deletes
    what compaction has kept.
    """
    with existing_topic(target, name) as (admin, compacted):
        _begin_compaction(admin, compacted)
        rows = _compactions(admin, compacted)
        while wait and any(row["status"] == _RUNNING for row in rows):
            SystemClock().sleep(_LOOK_AGAIN_S)
            rows = _compactions(admin, compacted)
    print_rows(rows, output, columns=_COMPACTION_COLUMNS)
    failed = [row for row in rows if row["status"] == _FAILED]
    if wait and failed:
        raise NotAllowedError(f"{failed[0]['topic']} was not compacted: {failed[0]['lastError']}")


@topic.command()
@click.argument("name")
@format_option
@target_options
def compaction(target: Target, name: str, output: Format | None) -> None:
    """Show how the last compaction of the topic NAME went: NOT_RUN, RUNNING, SUCCESS or ERROR.

    NOT_RUN is the answer as well where the topic was not compacted since it was last loaded.
    """
    with existing_topic(target, name) as (admin, compacted):
        rows = _compactions(admin, compacted)
    print_rows(rows, output, columns=_COMPACTION_COLUMNS)


def _begin_compaction(admin: AdminApi, compacted: TopicName) -> None:
    from broker_core.client.admin import AdminRefusedError

    try:
        admin.compact(compacted)
    except AdminRefusedError as error:
        if error.status != _CONFLICT:
            raise
        say(f"{compacted} is being compacted already")


def _compactions(admin: AdminApi, compacted: TopicName) -> list[Row]:
    """The status of a topic, or of each partition, with the size of the view."""
    rows: list[Row] = []
    for each in [compacted.partition(index) for index in range(admin.partitions(compacted))] or [compacted]:
        view = admin.internal_stats(each, 0).get("compactedLedger") or {}
        sizes = {"entries": max(view.get("entries", 0), 0), "size": max(view.get("size", 0), 0)}
        rows.append({"topic": str(each), **admin.compaction(each), **sizes})
    return rows


@topic.command()
@click.argument("name")
@click.option(
    "--step",
    "step_s",
    type=WholeNumber(1, NUMBER_MAX // 1000),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Width.",
)
@format_option
@target_options
def delayed(target: Target, name: str, step_s: int, output: Format | None) -> None:
    """Show how many delayed messages of the topic NAME fall due when. Apache Pulsar cannot tell.

    They are known, and counted, from when a Shared or Key_Shared consumer made the broker read them.
    """
    from datetime import UTC, datetime

    with existing_topic(target, name) as (admin, parsed):
        due: dict[int, int] = {}
        for each in [parsed.partition(index) for index in range(admin.partitions(parsed))] or [parsed]:
            for time_ms, count in admin.due_times(each, step_s * 1000).items():
                due[time_ms] = due.get(time_ms, 0) + count
    rows = [
        {"from": datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(), "messages": due[time_ms]}
        for time_ms in sorted(due)
    ]
    print_rows(rows, output, empty=f"no Shared or Key_Shared consumer of {parsed} waits for delayed messages")


def _create(admin: AdminApi, made: TopicName, partitions: int, *, if_not_exists: bool) -> None:
    try:
        with told_if_it_exists(str(made)):
            admin.create_topic(made, partitions)
    except ExistsError:
        found = _partitions_if_there(admin, made)
        if found is not None and found != partitions:
            has = counted(found, "partition", "partitions") if found else "no partitions"
            raise ExistsError(
                f"{made} exists and has {has}, not {partitions}",
                hint=f"see: pulsarish topic update-partitions {shortest(made)} -p N; partitions can only become more",
            ) from None
        if not if_not_exists or found is None:
            raise


@contextmanager
def told_if_it_exists(what: str) -> Iterator[None]:
    """ExistsError where the broker refuses to make ``what`` because of a conflict."""
    from broker_core.client.admin import AdminRefusedError

    try:
        yield
    except AdminRefusedError as error:
        if error.status != _CONFLICT:
            raise
        raise ExistsError(f"{what} is not made: {error.message}", hint=error.hint) from error


def _partitions_if_there(admin: AdminApi, topic: TopicName) -> int | None:
    """How many partitions ``topic`` has; None if it does not exist."""
    partitions = admin.partitions(topic)
    with suppress(TopicNotFoundError):
        admin.topic_stats(topic, partitions)
        return partitions
    return None


@contextmanager
def existing_topic(target: Target, name: str) -> Iterator[tuple[AdminApi, TopicName]]:
    """The admin REST and a topic that exists; else the error names the topic that was probably meant."""
    topic = TopicName.parse(name)
    with target.admin(topic.namespace_name) as admin:
        find_stats(admin, topic)
        yield admin, topic


def find_stats(admin: AdminApi, topic: TopicName) -> dict[str, Any]:
    """The stats of a topic. If it does not exist, the error names the topic that was probably meant."""
    try:
        return admin.topic_stats(topic, admin.partitions(topic))
    except TopicNotFoundError as error:
        raise TopicNotFoundError(
            f'topic "{topic}" does not exist: the broker has no such topic', hint=_advice(admin, topic)
        ) from error


def confirm(question: str, yes: bool) -> None:
    """Ask a person before something is lost; without a terminal, ``--yes`` must have been given.

    NotAllowedError if the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        asked = question.rstrip("?").replace(": ", ", ")  # of an error, the part behind a colon is its reason
        raise UsageError(f"{asked}: nobody can be asked, as stdin is not a terminal", hint="add --yes")
    if not click.confirm(printable(question), err=True):
        raise NotAllowedError("nothing was done: you said no")


def _advice(admin: AdminApi, topic: TopicName) -> str:
    create = f"create it with: pulsarish topic create {shortest(topic)}"
    if topic.partition_index >= 0:
        create = f"see: pulsarish topic stats {shortest(topic.base)}"
    try:
        meant = meant_topic(topic, admin.topics(topic.namespace_name))
    except (TopicNotFoundError, NotAllowedError):
        return create
    return f"{meant} {create}" if meant else create


def shortest(topic: TopicName) -> str:
    """As one would write it."""
    return topic.local if str(topic.namespace_name) == _DEFAULT and topic.persistent else str(topic)


def _topic_row(topic: TopicName, partitions: int, stats: dict[str, Any]) -> Row:
    subscriptions = _subscriptions(stats)
    return {
        "topic": str(topic),
        "partitions": partitions,
        "messages": stats.get("messagesStored"),
        "unread": most_unread(subscriptions.values()),
        "msgInCounter": stats.get("msgInCounter", 0),
        "msgBacklog": max((held.get("msgBacklog", 0) for held in subscriptions.values()), default=0),
        "storageSize": stats.get("storageSize", 0),
        "subscriptions": sorted(subscriptions),
    }


def most_unread(subscriptions: Iterable[dict[str, Any]]) -> int | None:
    """Unread messages of the subscription that is farthest behind; None if the broker does not tell."""
    told = [each.get("backlogMessages") for each in subscriptions]
    return None if any(count is None for count in told) else max(map(int, told), default=0)  # type: ignore[arg-type] # the line itself


def _columns(rows: Sequence[Row]) -> Collection[str]:
    """The columns of a table: messages, where the broker tells them, and else entries."""
    told = any(row["messages"] is not None for row in rows)
    counts = ("messages", "unread") if told else ("msgInCounter", "msgBacklog")
    return ("topic", "partitions", *counts, "storageSize", "subscriptions")


def _subscriptions(stats: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return stats.get("subscriptions") or {}


def _partition_order(name: str) -> int:
    return TopicName.parse(name).partition_index
