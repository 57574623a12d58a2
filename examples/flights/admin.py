# SPDX-License-Identifier: Apache-2.0
"""The broker's admin REST, as far as the job needs it: a topic with partitions, the backlog of its subscriptions.

The paths and the JSON are Pulsar's own, so this works on any Pulsar cluster.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any, Final

_TIMEOUT_S: Final = 60.0


def create_topic(http_url: str, topic: str, partitions: int) -> None:
    """Create ``topic`` in ``public/default`` with so many partitions."""
    _call(http_url, "PUT", f"{topic}/partitions", partitions)


def backlogs(http_url: str, topic: str) -> dict[str, int]:
    """For each subscription of a partitioned topic, how many messages it has not acknowledged yet."""
    stats = _call(http_url, "GET", f"{topic}/partitioned-stats")
    return {name: int(subscription["msgBacklog"]) for name, subscription in stats["subscriptions"].items()}


def _call(http_url: str, method: str, path: str, body: object = None) -> Any:
    request = urllib.request.Request(
        f"{http_url}/admin/v2/persistent/public/default/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        text = answer.read()
    return json.loads(text) if text else None
