# SPDX-License-Identifier: Apache-2.0
"""An OAuth2 issuer on the loopback interface, for tests: its discovery document, and tokens as a test says."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


class Issuer:
    """An issuer that gives token-1, token-2 and so on; a test may change its answers."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[dict[str, str]] = []
        self.status = 200
        self.answer: dict[str, object] = {}
        self.make: Callable[[], dict[str, object]] = lambda: self.answer
        """What is in an answer beside, or instead of, the usual."""
        self.discovery = 200
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = {"token_endpoint": f"{issuer.url}/token"} if self.path.endswith("openid-configuration") else {}
                self._send(issuer.discovery, found)

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                issuer.asked.append({name: values[0] for name, values in form.items()})
                number = len(issuer.asked)
                self._send(issuer.status, {"access_token": f"token-{number}", "expires_in": 100} | issuer.make())

            def _send(self, status: int, content: Mapping[str, object]) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        port = self.server.server_address[1]
        self.url = f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)


@contextmanager
def running_issuer(tls: ssl.SSLContext | None = None) -> Iterator[Issuer]:
    made = Issuer(tls)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()
