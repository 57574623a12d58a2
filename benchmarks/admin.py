# SPDX-License-Identifier: Apache-2.0
"""The one call of the admin REST that measuring needs: make a topic."""

from __future__ import annotations

import json
import urllib.request
from typing import Final

_TIMEOUT_S: Final = 20.0


def create_topic(http_url: str, name: str, partitions: int) -> None:
    """Create a topic in ``public/default``; with 0 partitions, a plain one."""
    request = urllib.request.Request(
        f"{http_url}/admin/v2/persistent/public/default/{name}" + ("/partitions" if partitions else ""),
        method="PUT",
        data=json.dumps(partitions).encode() if partitions else None,
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()
