# SPDX-License-Identifier: Apache-2.0
"""``failOnDataLoss``: what is said, and done, when messages between two offsets are not there any more.

True: DataLossError, which fails the query. False: one warning, and reading goes on with what is there. Finding the loss
is the business of those who read (``range_reader``, ``position_driver``); all texts are here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker_core.base.errors import PulsarishError

logger = logging.getLogger(__name__)

_HINT: Final = (
    "retention or somebody deleted them; restore them, start a new checkpoint, "
    'or go on without them: .option("failOnDataLoss", "false")'
)

_NAMED_MAX: Final = 200
"""Characters of a list of entries that an error repeats."""


class DataLossError(PulsarishError):
    """Messages that a query should have read are gone."""


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """What to do about lost messages."""

    fail: bool

    def report(self, text: str) -> None:
        """Raise DataLossError or warn."""
        if self.fail:
            raise DataLossError(text, hint=_HINT)
        logger.warning("data loss what=%s effect=%s", text, "reading goes on because failOnDataLoss is false")


def _count(messages: int) -> str:
    return "an unknown number of messages" if messages < 0 else f"{messages} message{'s' if messages != 1 else ''}"


def lost_start(what: str, wanted: str, found: str, messages: int) -> str:
    """The start that a user named was deleted."""
    return f"{what} is {wanted}, but the first message still there is {found}: {_count(messages)} lost"


def lost_beginning(partition: object, found: str, messages: int) -> str:
    """A partition was added to a topic that is read, and does not begin with its first message."""
    return f"partition {partition} was added, but the first message still there is {found}: {_count(messages)} lost"


def lost_gap(partition: object, wanted: str, found: str, messages: int) -> str:
    """A range does not go on where it should."""
    return f"partition {partition} should go on at {wanted}, but the next message is {found}: {_count(messages)} lost"


def lost_before(partition: object, wanted: str, found: str | None, why: str, entries: int) -> str:
    """Checkpoint, subscription and broker disagree; so many entries are known to be missing, perhaps more."""
    comes = "there is nothing at or behind it" if found is None else f"the next message is {found}"
    known = f"at least {entries} {'entry' if entries == 1 else 'entries'}" if entries else _count(-1)
    return f"partition {partition} should go on at {wanted}, but {comes}, and {why}: {known} lost"


def lost_topic(partition: object, wanted: str, found: str) -> str:
    """Message indexes go back: these are other messages than those before."""
    return f"partition {partition} should go on at {wanted}, but {found} comes next: it was deleted or replaced"


def lost_tail(partition: object, wanted: str, end: str, messages: int) -> str:
    """A range ends too early."""
    return f"partition {partition} has nothing between {wanted} and {end}: {_count(messages)} lost"


def lost_end(partition: object, start: str, end: str) -> str:
    """The topic now ends before the place that was read already: it was deleted and made again, or restored."""
    return f"partition {partition} ends at {end}, before {start} where reading should go on: it was deleted or replaced"


def lost_chunks(partition: object, what: str) -> str:
    """A message in chunks is not there whole."""
    return f"partition {partition}: {what}: 1 message lost"


def lost_partition(partition: object, start: str) -> str:
    """A partition that was read does not exist any more."""
    return f"partition {partition}, to be read on at {start}, does not exist any more"


def left_partition(partition: object, start: str, subscription: str) -> str:
    """The options do not name it any more."""
    return (
        f'partition {partition}, to be read on at {start}, is not read any more; its subscription "{subscription}" '
        "stays on the broker and keeps what was not read, until somebody deletes it"
    )


def subscription_gone(partition: object, subscription: str, wanted: str) -> str:
    """The subscription is made anew, and nothing is known to be lost."""
    return (
        f'subscription "{subscription}" of partition {partition} was deleted; it is made anew at {wanted}, '
        "and what comes there is still known"
    )


def subscription_renamed(partition: object, former: str, subscription: str, wanted: str) -> str:
    """The user has given a running checkpoint another subscription."""
    return (
        f'the checkpoint of partition {partition} was made with subscription "{former}"; "{subscription}" begins at '
        f"{wanted}. The former one stays on the broker and keeps what was not read, until somebody deletes it"
    )


def moved_ahead(partition: object, subscription: str, mark_delete: str, wanted: str) -> str:
    """The subscription no longer keeps what is to be read, and all of it is still there."""
    return (
        f'subscription "{subscription}" of partition {partition} stands behind {mark_delete}, ahead of {wanted} where '
        "reading goes on: somebody has skipped or reset it, or messages have expired; what is there is read, "
        "but the broker may delete it any moment"
    )


def lost_entries(partition: object, gone: Mapping[int, str]) -> str:
    """Entries of a batch, by ledger, that are not there any more."""
    named = "; ".join(f"{ledger}:{entries}" for ledger, entries in gone.items())
    shown = named if len(named) <= _NAMED_MAX else named[:_NAMED_MAX] + "..."
    return (
        f"partition {partition} does not have the entries {shown} any more, which the checkpoint has in this batch; "
        "they were acknowledged by another consumer, or deleted: an unknown number of messages lost"
    )


def lost_subscription(partition: object, subscription: str) -> str:
    """A subscription that a query shares was deleted."""
    return (
        f'subscription "{subscription}" of partition {partition} was deleted, and with it which messages were not '
        "processed yet; a new one begins with the first message that is there"
    )


def lost_queue(partition: object, subscription: str) -> str:
    """A partition whose messages a query shares was deleted."""
    return f'partition {partition} does not exist any more, nor what subscription "{subscription}" had not processed'
