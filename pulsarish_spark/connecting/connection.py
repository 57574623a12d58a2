# SPDX-License-Identifier: Apache-2.0
"""Clients of this process: one for each broker address, shared by all readers and writers, never across a fork.

Spark reuses its Python workers, so a client made by one task serves the next ones. Workers are forked and may be killed
at any time; the broker forgets a client when its connection ends.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker_core.base.limits import CONNECTION_TIMEOUT_S, OPERATION_TIMEOUT_S
from broker_core.base.local_access import token_of
from broker_core.base.runtime import RuntimeInfo, default_data_dir
from broker_core.client.credentials.security import Security
from pulsarish_spark.connecting import embedded

if TYPE_CHECKING:
    from broker_core.client import Client
    from broker_core.client.admin import AdminApi

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

ADMIN_TIMEOUT_S: Final = 10.0
"""Time limit of a call of the admin REST: no answer is worth holding a query up for longer."""

_NO_SECURITY: Final = Security()

_lock = threading.Lock()
_clients: dict[tuple[int, str, float, float, Security, bool], Client] = {}
"""The clients of this process, by everything that they are made from: other credentials mean another client."""


def _in_forked_child() -> None:
    global _lock
    _lock = threading.Lock()  # The former one may be held for ever by a thread that the fork has left behind.


os.register_at_fork(after_in_child=_in_forked_child)


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a broker: ``service_url``, or, where that is empty, the embedded broker of ``data_dir``.

    ``seen`` is where the driver found the embedded broker, on ``machine``; it serves executors that do not have its
    directory. On another machine, or in another container of this one, a directory of the same name would be another
    broker's: ``directory`` tells those of one machine apart. ``security`` travels to the
    tasks: files that it names are read there, and a secret that was given as text goes with it. ``admin_url``: its
    admin REST; empty where that is not known, and where the embedded broker tells it. ``compacted``: compacted topics
    are read as such.
    """

    service_url: str = ""
    data_dir: str = ""
    seen: str = ""
    machine: str = ""
    directory: tuple[int, int] | None = None
    operation_timeout_s: float = OPERATION_TIMEOUT_S
    connection_timeout_s: float = CONNECTION_TIMEOUT_S
    security: Security = _NO_SECURITY
    admin_url: str = ""
    compacted: bool = False

    @property
    def embedded_here(self) -> Path | None:
        """The data directory of the embedded broker that this process may find and start."""
        if self.service_url:
            return None
        directory = Path(self.data_dir)
        return None if self.seen and _number_of(directory) != self.directory else directory

    def resolve(self) -> str:
        """The service URL to connect to now; finds or starts the embedded broker."""
        if self.machine and self.machine != this_machine():
            raise embedded.EmbeddedBrokerError(
                f"the embedded broker of {self.data_dir} serves only its own machine, the driver's, and this task runs "
                "on another one",
                hint='run a broker that all can reach: .option("service.url", "pulsar://host:6650")',
            )
        directory = self.embedded_here
        return self.service_url or self.seen if directory is None else embedded.ensure(directory).service_url

    @property
    def credentials(self) -> Security:
        """``security``; for an embedded broker that this process may find, the token in its directory."""
        directory = self.embedded_here
        token = None if directory is None else token_of(directory)
        return self.security if token is None else Security(token=token)

    def for_executors(self) -> Address:
        """This address with what only the driver can find out."""
        if self.service_url:
            return self
        seen, number = self.resolve(), _number_of(Path(self.data_dir))
        return replace(self, seen=seen, machine=this_machine(), directory=number, security=self.credentials)


def _number_of(directory: Path) -> tuple[int, int] | None:
    """The device and the number of the directory that has this name here; None: there is none."""
    try:
        status = directory.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@functools.cache
def this_machine() -> str:
    """The identity of this machine: the number of its last boot, or its name where the system has no such number."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


@contextlib.contextmanager
def connected(address: Address) -> Iterator[Client]:
    """A client for ``address`` for the length of the block, during which an embedded broker is kept running."""
    client = _client_at(address.resolve(), address)
    directory = address.embedded_here
    with contextlib.nullcontext() if directory is None else embedded.guarded(directory):
        yield client


def _client_at(service_url: str, address: Address) -> Client:
    """This process's client for ``service_url``, else as ``address`` says; it stays open for later callers."""
    from broker_core.client import Client

    security = address.credentials
    limits = (address.operation_timeout_s, address.connection_timeout_s)
    key = (os.getpid(), service_url, *limits, security, address.compacted)
    with _lock:
        if key not in _clients:
            _clients[key] = Client(
                service_url,
                operation_timeout_s=address.operation_timeout_s,
                connection_timeout_s=address.connection_timeout_s,
                compacted_entries=address.compacted,
                **security.client_options(),
            )
        return _clients[key]


def open_admin(address: Address) -> AdminApi | None:
    """A connection to the admin REST with the credentials of the client, as a context manager; None: its address is not
    known."""
    from broker_core.client import ClientConfig
    from broker_core.client.admin import AdminApi

    directory = address.embedded_here
    url = address.admin_url if directory is None else embedded.ensure(directory).http_url
    if not url:
        return None
    config = ClientConfig(service_url=address.resolve(), **address.credentials.client_options())
    return AdminApi(url, timeout_s=ADMIN_TIMEOUT_S, authentication=config.identity, tls=config.tls)


def embedded_broker(data_dir: str | os.PathLike[str] | None = None, env: Mapping[str, str] = os.environ) -> RuntimeInfo:
    """Find or start the embedded broker of ``data_dir``, as the source and the sink do where no address is given.

    Returns its ``service_url`` and ``http_url``. Without ``data_dir`` it is the default one of the environment.
    """
    return embedded.ensure(embedded.named_directory(default_data_dir(env) if data_dir is None else data_dir))
