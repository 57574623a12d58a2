# SPDX-License-Identifier: Apache-2.0
"""Admin calls that a broker redirects, as each broker of a cluster does with what another one serves."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from broker_core.base.errors import RemoteProtocolError
from broker_core.base.names import TopicName
from broker_core.client import AuthenticationToken
from broker_core.client.admin import AdminApi
from broker_core.client.credentials.tls import TlsSettings

TOPIC = TopicName.parse("t")
PATH = f"/admin/v2/persistent/public/default/{TOPIC.local}/partitions"
TIMEOUT_S = 60.0


class Port:
    """A web port that answers every request with ``redirect``, or, without one, that there are three partitions."""

    def __init__(self) -> None:
        self.redirect = ""
        self.asked: list[tuple[str, str]] = []
        """Paths, and the credentials that came with them."""
        port = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                port.asked.append((self.path, self.headers["Authorization"] or ""))
                content = b"" if port.redirect else b'{"partitions": 3}'
                self.send_response(307 if port.redirect else 200)
                if port.redirect:
                    self.send_header("Location", port.redirect)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Tests have no use for it."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"localhost:{self.server.server_port}"


@contextlib.contextmanager
def listening(context: ssl.SSLContext | None = None) -> Iterator[Port]:
    """A port, with TLS if there is a ``context``."""
    port = Port()
    if context is not None:
        port.server.socket = context.wrap_socket(port.server.socket, server_side=True)
    thread = threading.Thread(target=port.server.serve_forever)
    thread.start()
    try:
        yield port
    finally:
        port.server.shutdown()
        thread.join()
        port.server.server_close()


def test_a_call_goes_on_to_the_broker_that_serves_the_topic() -> None:
    """With its credentials, and each call is asked of the first broker."""
    with listening() as first, listening() as owner:
        first.redirect = f"http://{owner.address}{PATH}?authoritative=true"
        identity = AuthenticationToken("secret")
        with AdminApi(f"http://{first.address}/", timeout_s=TIMEOUT_S, authentication=identity) as api:
            assert [api.partitions(TOPIC), api.partitions(TOPIC)] == [3, 3]
    assert first.asked == 2 * [(PATH, "Bearer secret")]
    assert owner.asked == 2 * [(f"{PATH}?authoritative=true", "Bearer secret")]


def test_redirects_without_an_end_are_one_clear_line() -> None:
    """As while the brokers do not agree who serves a topic."""
    with listening() as port, AdminApi(f"http://{port.address}", timeout_s=TIMEOUT_S) as api:
        port.redirect = f"http://{port.address}{PATH}"
        with pytest.raises(RemoteProtocolError, match="was redirected 5 times, last to http://localhost:"):
            api.partitions(TOPIC)


def test_a_redirect_to_no_address_is_one_clear_line() -> None:
    """The broker says nothing that could be asked."""
    with listening() as port, AdminApi(f"http://{port.address}", timeout_s=TIMEOUT_S) as api:
        port.redirect = "broker-2"
        with pytest.raises(RemoteProtocolError, match='redirects to "broker-2", which is no admin URL'):
            api.partitions(TOPIC)


def test_a_redirect_does_not_lead_out_of_tls(tmp_path: Path) -> None:
    """The token is not sent to where it could be read."""
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", key_type=trustme.KeyType.RSA).configure_cert(context)
    trusting = TlsSettings(trust_path=str(tmp_path / "ca.pem"))
    identity = AuthenticationToken("secret")
    with listening(context) as first, listening() as plain:
        first.redirect = f"http://{plain.address}{PATH}"
        url = f"https://{first.address}"
        with (
            AdminApi(url, timeout_s=TIMEOUT_S, authentication=identity, tls=trusting) as api,
            pytest.raises(RemoteProtocolError, match="which is without TLS"),
        ):
            api.partitions(TOPIC)
    assert plain.asked == []


@pytest.mark.parametrize("target", ["http://me:hush@h", "ftp://me:hush@h", "http://me:hush@[::1", "http://[::1"])
def test_a_redirect_that_leads_nowhere_is_told_without_a_password(target: str) -> None:
    """It is the broker's text, and no URL of ours."""
    with listening() as first, AdminApi(f"http://{first.address}", timeout_s=TIMEOUT_S) as admin:
        first.redirect = target
        with pytest.raises(RemoteProtocolError, match="redirects to") as failed:
            admin.partitions(TOPIC)
        assert "hush" not in str(failed.value)
