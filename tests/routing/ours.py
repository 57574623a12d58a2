# SPDX-License-Identifier: Apache-2.0
"""Where this client sends keys: as single messages, and as rows of a record batch, compiled or not."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import pyarrow as pa

from broker_core.base.hashing import HashingScheme
from broker_core.client.messages.outgoing import outgoing
from broker_core.client.producing.producer import Router
from broker_core.client.settings.config import ProducerConfig
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire import batch
from tests.routing.clients import Routes
from tests.routing.keys import PARTITIONS


def single_routes(keys: Iterable[str | bytes], scheme: HashingScheme) -> Routes:
    """What a producer does."""
    config = ProducerConfig(hashing_scheme=scheme)
    routers = [Router(config, partitions, 0, VirtualTimers()) for partitions in PARTITIONS]
    return {key: [each.partition_of(outgoing(b"", key=key).key) for each in routers] for key in keys}


def rows_routes(keys: Iterable[str | bytes], scheme: HashingScheme, codec: ModuleType = batch) -> Routes:
    """What the columnar writer does."""
    given = list(keys)
    are_bytes = pa.array([isinstance(key, bytes) for key in given])
    data = pa.array([key.encode() if isinstance(key, str) else key for key in given], pa.binary())
    rows = pa.record_batch({"key": data, "key_is_bytes": are_bytes})
    routes: Routes = {key: [0] * len(PARTITIONS) for key in given}
    for at, partitions in enumerate(PARTITIONS):
        for partition, part in enumerate(codec.route_rows(rows, partitions, scheme=scheme)):
            for row in part.to_pylist():
                routes[given[row]][at] = partition
    return routes
