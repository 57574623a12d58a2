# SPDX-License-Identifier: Apache-2.0
"""``pulsarish txn``: list, look at and abort open transactions, over the admin REST.

An Apache Pulsar tells neither which topics a transaction holds back nor how many messages wait; there both are empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from broker_core.base.errors import UsageError
from broker_core.base.moments import time_text
from broker_core.base.names import TopicName
from broker_core.base.printable import printable_json
from broker_core.cli.output import Format, Row, counted, format_option, on_terminal, print_rows, say
from broker_core.cli.parameter_types import NUMBER_MAX
from broker_core.cli.target import Target, target_options
from broker_core.cli.topic import confirm, shortest, yes_option

if TYPE_CHECKING:
    from broker_core.wire.heads import TxnId

_ID: Final = re.compile(r"\(?(\d{1,19})[,:](\d{1,19})\)?")


def _parsed_id(context: click.Context, parameter: click.Parameter, text: str) -> TxnId:
    from broker_core.wire.heads import TxnId

    match = _ID.fullmatch(text.replace(" ", ""))
    if match is None or max(map(int, match.groups())) > NUMBER_MAX:
        raise UsageError(f'"{text}" is not the id of a transaction', hint="write it as txn list prints it, or as 0,5")
    return TxnId(int(match[1]), int(match[2]))


_transaction_argument = click.argument("transaction", callback=_parsed_id)


@click.group()
def txn() -> None:
    """List, look at and abort open transactions."""


@txn.command("list")
@format_option
@target_options
def list_transactions(target: Target, output: Format | None) -> None:
    """List the open transactions, the oldest first: since when, whose, where, and what they block.

    HOLDSBACK has the topics whose readers wait for the end of this transaction, MESSAGESHELDBACK the stored messages
    of these topics that wait, its own included.
    """
    with target.admin() as admin:
        found = admin.open_transactions()
    rows = [_row(each) for each in sorted(found.values(), key=lambda each: int(each["openTimestamp"]))]
    print_rows(rows, output, empty="no open transactions")


@txn.command()
@_transaction_argument
@format_option
@target_options
def show(target: Target, transaction: TxnId, output: Format | None) -> None:
    """Print one open transaction: on a terminal its topics and subscriptions, else Pulsar's whole object."""
    with target.admin() as admin:
        found = admin.transaction(transaction)
    if (output or ("table" if on_terminal() else "jsonl")) != "table":
        click.echo(printable_json(found, indent=2 if output == "json" else None))
        return
    row = _row(found)
    whose = f" of {row['owner']}" if row["owner"] else ""
    say(f"transaction {row['txnId']}{whose} is {row['status']} since {row['since']}, and aborted at {row['abortedAt']}")
    print_rows(list(_parts(found)), "table", empty="it has sent nothing and acknowledged nothing")


@txn.command()
@_transaction_argument
@yes_option
@target_options
def abort(target: Target, transaction: TxnId, yes: bool) -> None:
    """Abort an open transaction: its messages are dropped, what it acknowledged is delivered again."""
    name = f"({transaction.most_bits},{transaction.least_bits})"
    with target.admin() as admin:
        row = _row(admin.transaction(transaction))
        places = counted(
            len(row["topics"]) + len(row["subscriptions"]), "topic or subscription", "topics or subscriptions"
        )
        confirm(f"Abort transaction {name}, open since {row['since']}, of {places}?", yes)
        admin.abort_transaction(transaction)
    say(f"aborted transaction {name}")


def _row(found: Mapping[str, Any]) -> Row:
    produced = found.get("producedPartitions") or {}
    acked = found.get("ackedPartitions") or {}
    is_told = all("holdsBack" in each for each in produced.values())
    held = [_shortest(topic) for topic in sorted(produced) if produced[topic].get("holdsBack")]
    opened_ms = int(found["openTimestamp"])
    return {
        "txnId": found["txnId"],
        "status": found["status"],
        "since": time_text(opened_ms),
        "abortedAt": time_text(opened_ms + int(found["timeoutAt"])),
        "owner": found.get("owner"),
        "topics": [_shortest(topic) for topic in sorted(produced)],
        "subscriptions": [f"{_shortest(topic)} {name}" for topic in sorted(acked) for name in sorted(acked[topic])],
        "holdsBack": held if is_told else None,
        "messagesHeldBack": sum([each.get("messagesHeldBack") or 0 for each in produced.values()]) if is_told else None,
    }


def _parts(found: Mapping[str, Any]) -> Iterator[Row]:
    """Each topic that a transaction has sent to, then each subscription that it has acknowledged on."""
    for topic, part in sorted((found.get("producedPartitions") or {}).items()):
        held = {name: part.get(name) for name in ("startPosition", "holdsBack", "messagesHeldBack")}
        yield {"topic": _shortest(topic), "subscription": None, **held}
    for topic, subscriptions in sorted((found.get("ackedPartitions") or {}).items()):
        for name in sorted(subscriptions):
            nothing = dict.fromkeys(("startPosition", "holdsBack", "messagesHeldBack"))
            yield {"topic": _shortest(topic), "subscription": name, **nothing}


def _shortest(topic: str) -> str:
    return shortest(TopicName.parse(topic))
