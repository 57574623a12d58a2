# SPDX-License-Identifier: Apache-2.0
"""The calls of the admin REST that measuring needs: make a topic, compact one."""

from __future__ import annotations

import json
import urllib.request
from typing import Final

_TIMEOUT_S: Final = 20.0


def create_topic(http_url: str, name: str, partitions: int) -> None:
    """Create a topic in ``public/default``; with 0 partitions, a plain one."""
    if partitions:
        _asked(http_url, f"{name}/partitions", "PUT", json.dumps(partitions).encode())
    else:
        _asked(http_url, name, "PUT")


def compact(http_url: str, name: str) -> None:
    """Begin to compact a topic of ``public/default``."""
    _asked(http_url, f"{name}/compaction", "PUT")


def compaction_status(http_url: str, name: str) -> str:
    """``RUNNING``, ``SUCCESS`` and others."""
    return str(json.loads(_asked(http_url, f"{name}/compaction"))["status"])


def _asked(http_url: str, path: str, method: str = "GET", body: bytes | None = None) -> bytes:
    url = f"{http_url}/admin/v2/persistent/public/default/{path}"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        return bytes(answer.read())
