# SPDX-License-Identifier: Apache-2.0
"""``pulsarish sub peek`` and ``pulsarish topic examine``: messages that are looked at where they lie.

The admin REST says which entry it is; a reader, which leaves no trace, fetches the messages in it, so that they are
shown as ``consume`` shows them. Nothing is acknowledged, and no subscription moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from broker_core.base.names import TopicName
from broker_core.base.positions import ChunkMessageId, MessageId
from broker_core.cli.message_forms import message_format_option, message_printer, raw_option
from broker_core.cli.output import on_terminal, say
from broker_core.cli.parameter_types import WholeNumber
from broker_core.cli.sub import existing_subscription, subscription_argument
from broker_core.cli.target import Target, target_options
from broker_core.cli.topic import existing_topic

if TYPE_CHECKING:
    from broker_core.client import Client, Message
    from broker_core.client.admin import AdminApi, SeenEntry


@click.command()
@click.argument("topic")
@subscription_argument
@click.option(
    "-n",
    "--count",
    type=WholeNumber(1),
    default=1,
    show_default=True,
    help="Of how many entries; a batch is one, and all its messages are shown.",
)
@message_format_option
@raw_option
@target_options
def peek(target: Target, topic: str, subscription: str, count: int, output: str | None, is_raw: bool) -> None:
    """Print the next messages that a subscription has not acknowledged, without taking them."""
    with existing_subscription(target, topic, subscription) as (admin, name, _):
        entries = list(_peeked(admin, name, subscription, count))
    _print_entries(target, name, entries, output, is_raw=is_raw)
    if not entries and on_terminal():
        say(f'the backlog of subscription "{subscription}" of {name} is empty')


@click.command()
@click.argument("name")
@click.option(
    "--from",
    "origin",
    type=click.Choice(["earliest", "latest"]),
    default="latest",
    show_default=True,
    help="Which end to count from.",
)
@click.option(
    "-n",
    "--number",
    type=WholeNumber(1),
    default=1,
    show_default=True,
    help="Which entry, from 1 on; a batch is one.",
)
@message_format_option
@raw_option
@target_options
def examine(target: Target, name: str, origin: str, number: int, output: str | None, is_raw: bool) -> None:
    """Print one entry of the topic NAME, whether acknowledged or not, counted from its end or its beginning.

    Where there are fewer, it is the last one of the other end.
    """
    with existing_topic(target, name) as (admin, topic):
        entry = admin.examined_entry(topic, origin, number)
    _print_entries(target, topic, [entry], output, is_raw=is_raw)


def _peeked(admin: AdminApi, topic: TopicName, subscription: str, count: int) -> Iterator[SeenEntry]:
    """The first entries of a backlog, as many as there are."""
    for place in range(1, count + 1):
        entry = admin.peeked_entry(topic, subscription, place)
        if entry is None:
            return
        yield entry


def _print_entries(
    target: Target, topic: TopicName, entries: list[SeenEntry], output: str | None, *, is_raw: bool
) -> None:
    if not entries:
        return
    with target.client() as client:
        show = message_printer(output, None if is_raw else client)
        for entry in entries:
            if entry.is_later_chunk:
                say(f"{entry.message_id} is a part of a large message that begins before it")
                continue
            for message in _messages_in(client, topic, entry, target.timeout_s):
                show(message)


def _messages_in(client: Client, topic: TopicName, entry: SeenEntry, timeout_s: float) -> Iterator[Message]:
    with client.create_reader(str(topic), entry.message_id, inclusive=True) as reader:
        while reader.has_message_available():
            message = reader.read_next(timeout_s)
            if _begins_at(message).position != entry.message_id.position:
                return
            yield message


def _begins_at(message: Message) -> MessageId:
    found = message.message_id
    return found.first_chunk if isinstance(found, ChunkMessageId) else found
