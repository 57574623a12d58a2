# SPDX-License-Identifier: Apache-2.0
"""Which partition a message goes to."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.client.messages.outgoing import outgoing
from broker_core.client.producing.producer import Router
from broker_core.client.settings.config import ProducerConfig
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.batch import route_rows

KEYS = ["hello", "key-0", "key-1", "Order-3459134"]


def router(config: ProducerConfig, partitions: int = 4, first: int = 0) -> Router:
    return Router(config, partitions, first, VirtualTimers())


@pytest.mark.parametrize(("scheme", "partitions"), [("java", [2, 2, 3, 2]), ("murmur3", [3, 3, 0, 3])])
def test_keys_go_where_the_published_vectors_say(scheme: str, partitions: list[int]) -> None:
    """1.2.3 vectors of both hashes, modulo 4."""
    chosen = router(ProducerConfig(hashing_scheme=scheme))  # type: ignore[arg-type]
    assert [chosen.partition_of(key) for key in KEYS] == partitions


@given(st.text(min_size=0, max_size=20), st.integers(1, 50))
def test_the_same_key_stays_on_one_partition(key: str, partitions: int) -> None:
    """I1.3 same key, same partition, whatever was routed in between and whatever the mode."""
    one, other = router(ProducerConfig(), partitions), router(ProducerConfig(batching_enabled=False), partitions, 7)
    other.partition_of(None)
    assert one.partition_of(key) == one.partition_of(key) == other.partition_of(key)


@given(st.lists(st.one_of(st.text(max_size=9), st.none()), min_size=1, max_size=30))
def test_single_messages_and_rows_with_a_key_go_to_the_same_partition(keys: list[str | None]) -> None:
    """A topic written by messages and by record batches keeps its keys together; also keys of bytes."""
    by_message = router(ProducerConfig())
    for form in (pa.array(keys, pa.string()), pa.array([k and k.encode() for k in keys], pa.binary())):
        routed = route_rows(pa.record_batch({"key": form}), 4)
        for partition, rows in enumerate(routed):
            for row in rows.to_pylist():
                if keys[row] is not None:
                    assert by_message.partition_of(outgoing(b"", key=form[row].as_py()).key) == partition


def test_without_batching_each_keyless_message_steps() -> None:
    """1.2.3 round robin without batching: next partition per message."""
    chosen = router(ProducerConfig(batching_enabled=False), first=2)
    assert [chosen.partition_of(None) for _ in range(6)] == [2, 3, 0, 1, 2, 3]


def test_with_batching_keyless_messages_step_once_per_window() -> None:
    """1.2.3 round robin with batching: one partition for 10 publish delays, so that batches fill."""
    time = VirtualTimers()
    chosen = Router(ProducerConfig(batching_max_publish_delay_s=0.002), 3, 0, time)
    seen = []
    for _ in range(60):
        seen.append(chosen.partition_of(None))
        time.advance(1)
    assert Counter(seen) == {0: 20, 1: 20, 2: 20}
    assert seen == sorted(seen)


def test_single_partition_stays() -> None:
    """1.2.3 single partition: one for each producer, for all keyless messages."""
    chosen = router(ProducerConfig(message_routing_mode="single_partition", batching_enabled=False), first=6)
    assert {chosen.partition_of(None) for _ in range(10)} == {2}
    assert chosen.partition_of("key-1") == 3
