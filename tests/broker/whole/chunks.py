# SPDX-License-Identifier: Apache-2.0
"""Which consumer of a Shared subscription must get a chunk of a large message (semantics 5.2, I5.8)."""

from __future__ import annotations

from broker_core.wire.entry_peek import ChunkPlace
from tests.broker.clients import Client


class ChunkModel:
    """``holder``: of each message that is under way, who was sent its first chunk."""

    def __init__(self) -> None:
        self.holder: dict[str, Client] = {}

    def delivered(self, chunk: ChunkPlace | None, client: Client) -> bool:
        """Check a delivery; whether the consumer was bound to be this one."""
        if chunk is None:
            return False
        holder = self.holder.get(chunk.uuid, client)
        is_bound = chunk.uuid in self.holder
        assert holder is client, f"I5.8: {chunk} went to {client.name}, those before to {holder.name}"
        if chunk.chunk_id == chunk.chunks - 1:
            self.holder.pop(chunk.uuid, None)
        elif chunk.chunk_id == 0:
            self.holder[chunk.uuid] = client
        return is_bound

    def may_go(self, chunk: ChunkPlace | None) -> bool:
        """Whether nothing holds it back but want of consumers."""
        holder = None if chunk is None else self.holder.get(chunk.uuid)
        return holder is None or holder.is_available

    def left(self, client: Client) -> None:
        self.holder = {uuid: holder for uuid, holder in self.holder.items() if holder is not client}
