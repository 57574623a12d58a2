# SPDX-License-Identifier: Apache-2.0
"""``HeldPort``: a port that stays with one broker while it is killed and started again.

A port that the system chose is free again while its broker is down, and the system gives it to the next who wants any,
to a broker of another test, say. Linux lets a program listen where another's socket is bound but does not listen, if
both allow it, and gives such a port to nobody else.
"""

from __future__ import annotations

import socket
import sys


class HeldPort:
    """``number``: a port of 127.0.0.1, held until ``release``; 0, which is any port, where the system holds none."""

    def __init__(self) -> None:
        self.number = 0
        self._socket = socket.socket()
        if sys.platform == "linux":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(("127.0.0.1", 0))
            self.number = int(self._socket.getsockname()[1])

    def release(self) -> None:
        """Give the port back; a process that listens there is not disturbed."""
        self._socket.close()
