# SPDX-License-Identifier: Apache-2.0
"""The notice that systemd, or whatever started the broker as a service of ``Type=notify``, waits for.

The manager names a socket in the environment; a datagram there says that the broker is ready. Without the name nobody
waits. Source: sd_notify(3).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Final

from broker_core.cli.output import say

ENV_SOCKET: Final = "NOTIFY_SOCKET"

_TIMEOUT_S: Final = 5.0
"""A manager that does not read its socket must not keep a broker from serving."""


def tell_ready(env: Mapping[str, str]) -> None:
    """Say that both ports accept connections. A manager that cannot be reached is told to people, and nothing else: it
    ends the service by itself when its own time is over."""
    address = env.get(ENV_SOCKET, "")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notice:
            notice.settimeout(_TIMEOUT_S)
            notice.connect("\0" + address[1:] if address.startswith("@") else address)
            notice.send(b"READY=1")
    except OSError as error:
        say(f"the service manager at {address} was not told that the broker is ready: {error.strerror or error}")
