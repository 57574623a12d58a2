# SPDX-License-Identifier: Apache-2.0
"""Entries of a shared subscription that cannot be decoded, copied to a dead letter topic.

A copy is the entry as it is stored, so whoever has its key or its codec can read it there: metadata and payload stay,
encrypted, compressed or batched as they are, and the metadata get the properties of Pulsar's dead letters. Where a
broker refuses such a copy, or nobody can read the metadata, the bytes of the entry are the value of a message with
these properties. A task that is run again sends its copies again: at least once, as all dead letters.
Source: semantics 4.6.4.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from broker_core.base.errors import NotAllowedError, PulsarishError, RemoteProtocolError, RowsUnconfirmedError
from broker_core.base.limits import MESSAGE_BYTES_MAX_DEFAULT
from broker_core.base.positions import MessageId
from broker_core.client.columnar.entry_writer import EncodedRows
from broker_core.client.dead_letters.letter_copies import ORIGIN_MESSAGE_ID, REAL_SUBSCRIPTION, REAL_TOPIC
from broker_core.wire.batch import EncodedEntry
from broker_core.wire.entry import EntryRef, read_metadata, seal_entry, split_entry

if TYPE_CHECKING:
    from broker_core.client import Client

logger = logging.getLogger(__name__)

_REFUSALS = (NotAllowedError, RemoteProtocolError)
"""Why a copy of an entry as it is cannot be stored."""


@dataclass(frozen=True, slots=True)
class DeadEntries:
    """Where entries of ``subscription`` go that cannot be decoded. It travels to the executors."""

    topic: str
    subscription: str

    def take(self, client: Client, name: str, partition: int, entry: EntryRef, failure: PulsarishError) -> None:
        """Store a copy of ``entry`` of the topic or partition ``name``; returns when the broker has it."""
        origin = str(MessageId(entry.ledger, entry.entry, partition))
        properties = {REAL_TOPIC: name, ORIGIN_MESSAGE_ID: origin, REAL_SUBSCRIPTION: self.subscription}
        try:
            self._send_as_it_is(client, entry, properties)
            form = "as it was"
        except _REFUSALS:
            with client.create_producer(self.topic, batching_enabled=False, chunking_enabled=True) as producer:
                producer.send(bytes(entry.body), properties=properties)
            form = "its bytes as the value of a message"
        logger.warning(
            "entry given up what=%s effect=%s", f"{name}: {failure.message}", f"it is stored in {self.topic}, {form}"
        )

    def _send_as_it_is(self, client: Client, entry: EntryRef, properties: dict[str, str]) -> None:
        """One of ``_REFUSALS`` where that is not possible."""
        metadata = read_metadata(entry.body)
        known = {pair.key for pair in metadata.properties}
        for key, value in properties.items():
            if key not in known:  # Where a message was first stays the same in every copy.
                metadata.properties.add(key=key, value=value)
        body = seal_entry(metadata.SerializeToString(), split_entry(entry.body)[1])
        if len(body) > MESSAGE_BYTES_MAX_DEFAULT:
            raise NotAllowedError(f"an entry of {len(body)} bytes, perhaps once in chunks, may be too large for one")
        copy = EncodedEntry(body, metadata.num_messages_in_batch, 0, 0)
        try:
            with client.write_rows(self.topic) as writer:
                writer.send([EncodedRows(0, copy, np.zeros(1, np.int64))])
        except RowsUnconfirmedError as error:
            if isinstance(error.__cause__, _REFUSALS):
                raise error.__cause__ from error
            raise
