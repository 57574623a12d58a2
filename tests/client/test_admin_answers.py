# SPDX-License-Identifier: Apache-2.0
"""Answers of the admin REST that end too early."""

from __future__ import annotations

import socket
import threading

import pytest

from broker_core.base.errors import ConnectionLostError
from broker_core.client.admin import AdminTransport
from broker_core.client.credentials.tls import TlsSettings


def test_answer_that_is_cut_off_is_no_answer() -> None:
    """A broker that dies behind the head of its answer has said nothing: no empty object, no half of a list."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_half() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}")

        thread = threading.Thread(target=answer_half)
        thread.start()
        transport = AdminTransport(f"http://127.0.0.1:{server.getsockname()[1]}", 10.0, TlsSettings())
        with pytest.raises(ConnectionLostError, match="IncompleteRead"):
            transport.ask("GET", "/admin/v2/tenants", None, {})
        transport.close()
        thread.join()
