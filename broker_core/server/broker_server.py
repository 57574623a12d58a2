# SPDX-License-Identifier: Apache-2.0
"""``BrokerServer``: a store, a broker and its ports on one event loop; start and graceful stop.

Stopping loses nothing that was confirmed and confirms what it can: no new clients, no more reading, the commits in
flight end and are answered, then connections, broker and store are closed, in this order.

Fail-stop: when the disk fails, ``on_disk_failure`` is called at once; what it does is the process's business.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from broker_core.base.clock import Clock, SystemClock
from broker_core.base.errors import ConfigError, DiskFailedError, StorageError
from broker_core.base.limits import FRAME_SLACK_BYTES
from broker_core.base.secret import Secret
from broker_core.base.settings import Settings
from broker_core.base.turns import Turns
from broker_core.broker.broker import Broker
from broker_core.server.admin.app import build_app
from broker_core.server.admin.http_endpoint import HttpEndpoint
from broker_core.server.budgets import InputBudget, OutputBudget, PublishBudget
from broker_core.server.connection import Endpoint
from broker_core.server.figures import Figures, LoopFigures, LoopWatch
from broker_core.server.gathered_acks import GatheredAcks
from broker_core.server.schema_threads import SchemaThreads
from broker_core.server.security.authentication import authentication_of
from broker_core.server.security.gate import Gate, check_settings, gate_of
from broker_core.server.security.reach import advertised_host, warn
from broker_core.server.security.revocation import Revocation
from broker_core.server.security.tls import ServerTls, TlsFiles
from broker_core.server.session import Node
from broker_core.server.storage_threads import CommitDriver, Recoveries
from broker_core.storage.catalogue import INCARNATION_BITS
from broker_core.storage.commit import CommitJob
from broker_core.storage.disk import Disk, RealDisk
from broker_core.storage.store import Store
from broker_core.wire.frames import SIZE_BYTES

logger = logging.getLogger(__name__)

_DRAIN_S: Final = 10.0
"""A graceful stop waits this long for the disk, then gives up on what was never confirmed."""

_MIB: Final = 1024 * 1024


class BrokerServer:
    """A whole broker inside the running event loop. Use ``start`` once, then ``stop`` once."""

    def __init__(
        self,
        settings: Settings,
        data_dir: Path,
        *,
        on_disk_failure: Callable[[StorageError], None],
        owners_token: Callable[[], Secret] | None = None,
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> None:
        """``owners_token``: makes or reads the token of the data directory, once that is open. None: without settings
        of authentication everybody is let in."""
        self._settings = settings
        self._data_dir = data_dir
        self._on_disk_failure = on_disk_failure
        self._disk = disk or RealDisk()
        self._clock = clock or SystemClock()
        self._store: Store
        self._authentication = authentication_of(settings, self._clock)
        self._owners_token = owners_token
        self._commits: CommitDriver
        self._recoveries: Recoveries
        self._loop_watch: LoopWatch
        self.tls: ServerTls | None = None
        self._gate: Gate | None = None
        self.node: Node
        self.endpoint: Endpoint
        self.http: HttpEndpoint

    async def start(self, port: int, http_port: int) -> None:
        """Open the store, recover, accept clients. Port 0 takes a free one, -1 none; with TLS the settings say which.

        Raises ConfigError for an address that is not safe, for ports without which nobody could connect and for files
        of TLS that cannot be used, StorageError, or OSError if a port cannot be had.
        """
        host = advertised_host(self._settings)
        self._check_ports(port, http_port)
        if max(self._settings.broker_service_port_tls, self._settings.web_service_port_tls) >= 0:
            self.tls = ServerTls(TlsFiles.of(self._settings), host)
        check_settings(self._settings)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_error)
        incarnation = secrets.randbits(INCARNATION_BITS)
        self._store = Store.open(self._disk, str(self._data_dir), self._clock, self._settings, incarnation)
        try:
            if self._owners_token is not None:
                self._authentication.know_owner(self._owners_token())
            await self._open_ports(loop, host, port, http_port)
            warn(self._settings, has_plain_ports=max(port, http_port) >= 0)
        except BaseException:
            self._store.close()
            raise

    async def _open_ports(self, loop: asyncio.AbstractEventLoop, host: str, port: int, http_port: int) -> None:
        settings = self._settings
        self._store.commits.when_failed(self._on_disk_failure)
        budget = PublishBudget(settings.max_message_publish_buffer_size_in_mb * _MIB)
        self._recoveries = Recoveries(self._store, loop)
        turns = Turns(loop.call_soon, self._clock)
        broker = Broker(self._store, self._clock, loop, settings, recover=self._recoveries.recover, turns=turns)
        self._gate = gate_of(settings, broker, str(self._data_dir), self._clock, loop)
        unfinished = InputBudget(
            settings.max_unfinished_input_size_in_mb * _MIB,
            settings.max_message_size + FRAME_SLACK_BYTES + SIZE_BYTES,
            self._clock,
            loop,
        )
        self.node = Node(
            broker=broker,
            settings=settings,
            clock=self._clock,
            publish_budget=budget,
            commits=self._store.commits,
            turns=turns,
            input_budget=unfinished,
            output_budget=OutputBudget(settings.max_unsent_output_size_in_mb * _MIB),
            acks=GatheredAcks(loop.call_soon),
            figures=Figures(LoopFigures(self._clock)),
            authentication=self._authentication,
            schema_threads=SchemaThreads(loop),
            gate=self._gate,
        )
        self.endpoint = Endpoint(self.node)
        if self._gate is not None:
            revocation = Revocation(self._gate.authorization, self.endpoint.sessions, turns)
            self.node.rights_changed = revocation.rights_changed
            self._authentication.when_failed = self._gate.not_identified
        self.http = HttpEndpoint(build_app(self.node))

        def committed(job: CommitJob, seconds: float) -> None:
            budget.committed()
            broker.upkeep.group_committed()
            self.node.figures.commits.observe(job, seconds)

        self._commits = CommitDriver(
            self._store.commits, self._clock, on_second=self._store.sync_due, on_committed=committed
        )
        await self._take_ports(host, port, http_port)
        self._commits.start()
        self._loop_watch = LoopWatch(self.node.figures.loop)
        await self.endpoint.start()
        await self.http.start()
        if self.tls is not None and settings.tls_cert_refresh_check_duration_sec:
            self.tls.watch(loop, settings.tls_cert_refresh_check_duration_sec)

    def _check_ports(self, port: int, http_port: int) -> None:
        settings = self._settings
        if max(port, settings.broker_service_port_tls) < 0 or max(http_port, settings.web_service_port_tls) < 0:
            raise ConfigError(
                "the broker has neither a plain port nor one with TLS for Pulsar's protocol, or for the admin REST",
                hint="set brokerServicePortTls and webServicePortTls where the plain ports are -1",
            )

    async def _take_ports(self, name: str, port: int, http_port: int) -> None:
        node, settings, name, host = self.node, self._settings, _authority(name), self._settings.bind_address
        if port >= 0:
            node.service_url = f"pulsar://{name}:{await self.endpoint.bind(host, port)}"
        if http_port >= 0:
            node.http_url = f"http://{name}:{await self.http.bind(host, http_port)}"
        if self.tls is None:
            return
        if (port_tls := settings.broker_service_port_tls) >= 0:
            bound = await self.endpoint.bind_tls(host, port_tls, self.tls, node.turns)
            node.service_url_tls = f"pulsar+ssl://{name}:{bound}"
        if (port_tls := settings.web_service_port_tls) >= 0:
            bound = await self.http.bind_tls(host, port_tls, self.tls, node.turns)
            node.http_url_tls = f"https://{name}:{bound}"
        logger.info("encrypted ports taken service=%s http=%s", node.service_url_tls, node.http_url_tls)

    @property
    def connections_open(self) -> int:
        """Clients of either port that are connected now."""
        return self.endpoint.connections_open + self.http.connections_open

    @property
    def connections_made(self) -> int:
        """Clients of either port so far."""
        return self.endpoint.connections_made + self.http.connections_made

    @property
    def at_ease(self) -> bool:
        """Whether little is under way."""
        return not self.node.input_budget.waiting and self.node.publish_budget.in_flight_bytes < _MIB

    async def stop(self) -> None:
        """Stop gracefully. StorageError if the disk fails now; what was never confirmed may then be lost."""
        self.endpoint.stop_accepting()
        if self.tls is not None:
            self.tls.stop()
        self._loop_watch.stop()
        self._authentication.close()
        await self._drain()
        await self.endpoint.close()
        await self.http.close()
        await self._recoveries.stop()
        self.node.schema_threads.stop()
        self.node.broker.close()
        await self._drain()
        await self._commits.stop()
        self._store.close()
        if self._gate is not None:
            self._gate.close()

    async def _drain(self) -> None:
        try:
            await asyncio.wait_for(self._commits.drain(), _DRAIN_S)
        except TimeoutError:
            logger.error("stopping without the last commits because the disk is slow seconds=%g", _DRAIN_S)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, DiskFailedError):
            self._on_disk_failure(error)
            return
        logger.error("a callback failed what=%s", context.get("message"), exc_info=error)


def _authority(host: str) -> str:
    return f"[{host}]" if ":" in host else host
