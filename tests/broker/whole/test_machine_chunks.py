# SPDX-License-Identifier: Apache-2.0
"""Random histories with messages in chunks on their way through a broker (I5.8), some of which never become whole."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from broker_core.wire.entry_peek import ChunkPlace
from tests.broker.whole.entry import Entry
from tests.broker.whole.machine import WHICH, WholeBrokerMachine
from tests.broker.world import SHARED

STREAMS = st.integers(0, 2)
CHUNKS = st.sampled_from([2, 3, 3, 5])
SENDS = st.lists(st.tuples(STREAMS, CHUNKS, st.integers(0, 15)), min_size=2, max_size=9)


class ChunksMachine(WholeBrokerMachine):
    """``streams``: messages that are being sent side by side; of each the chunk that comes next."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[int, ChunkPlace] = {}

    def connect_senders(self) -> None:
        self.streams = {}
        super().connect_senders()

    @rule(sends=SENDS, wait=st.booleans())
    def publish_chunks(self, sends: list[tuple[int, int, int]], wait: bool) -> None:
        """5.1: chunks of several messages between each other; now and then one is missing."""
        for stream, chunks, luck in sends:
            if stream not in self.streams:
                self.names += 1
                self.streams[stream] = ChunkPlace(f"message-{self.names}", 0, chunks)
            chunk = self.streams.pop(stream)
            if luck:
                self.send(Entry(chunk=chunk))
            if chunk.chunk_id + 1 < chunk.chunks:
                self.streams[stream] = chunk._replace(chunk_id=chunk.chunk_id + 1)
        if wait:
            self.settle()

    @rule(name=WHICH, permits=st.integers(1, 4))
    def sharer_comes(self, name: str, permits: int) -> None:
        """5.2: with little room, so that chunks have to wait for it."""
        self.somebody_comes(name, SHARED, permits)

    @rule(name=WHICH, permits=st.tuples(st.integers(1, 2), st.integers(4, 9)), sends=SENDS, leaves=st.booleans())
    def chunks_for_two(self, name: str, permits: tuple[int, int], sends: list[Any], leaves: bool) -> None:
        """5.2: one has little room, the other much. Whose chunks wait gets more room later, or leaves."""
        for each in permits:
            self.subscribe(name, SHARED, 0, each, 0)
        self.publish_chunks(sends, wait=True)
        if leaves:
            self.leave(name, -2)
            self.settle_down()


TestChunks = ChunksMachine.TestCase
TestChunks.settings = settings(
    max_examples=35, stateful_step_count=80, deadline=None, derandomize=True, print_blob=True
)
