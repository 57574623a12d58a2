# SPDX-License-Identifier: Apache-2.0
"""A producer of chunks that nobody in their right mind would send: one by one, in any order, with any numbers."""

from __future__ import annotations

import time

from broker_core.base.positions import Position
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto import pulsar_api_pb2 as pb


class RawChunks:
    """Sends to one topic over a connection of its own."""

    def __init__(self, service_url: str, topic: str) -> None:
        self.connection = RawClient(service_url)
        lookup = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
        lookup.lookupTopic.topic, lookup.lookupTopic.request_id = topic, 0
        self.connection.ask(lookup)  # answered once a topic is recovered that was in use when its broker was killed
        must_succeed(self.connection.open_producer(topic))
        self.sent = 0

    def send(
        self,
        name: str,
        count: int,
        part: bytes = b"abcdefghij",
        *,
        total: int = -1,
        age_s: float = 0,
        key: str | None = None,
    ) -> Position:
        """``A0`` of ``count``: the first chunk of message A, sent ``age_s`` ago by its own account."""
        uuid = name.rstrip("0123456789")
        metadata = pb.MessageMetadata(
            producer_name="raw", sequence_id=self.sent, publish_time=int((time.time() - age_s) * 1000), uuid=uuid,
            chunk_id=int(name.removeprefix(uuid)), num_chunks_from_msg=count,
            total_chunk_msg_size=count * len(part) if total < 0 else total, partition_key=key,
        )  # fmt: skip
        self.connection.send_entry(0, self.sent, seal_entry(metadata.SerializeToString(), part))
        self.sent += 1
        receipt = self.connection.next_command().send_receipt
        return Position(receipt.message_id.ledgerId, receipt.message_id.entryId)
