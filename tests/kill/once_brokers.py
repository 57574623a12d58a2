# SPDX-License-Identifier: Apache-2.0
"""Brokers with transactions that a rig kills and starts again on their data and ports: ours, and an Apache Pulsar."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import psutil

from tests.apache_pulsar.start import SHORT_LIVED, TRANSACTIONS, ApachePulsar, started, wait_until_ready
from tests.apache_pulsar.start import running as running_pulsar
from tests.apache_pulsar.web import Web
from tests.kill.brokers import BrokerSeries

BROKERS: Final = ("pulsarish", "apache")
END_S_MAX: Final = 60.0
SETTINGS: Final = {**TRANSACTIONS, "managedLedgerMaxEntriesPerLedger": "5000"}


class Killable(Protocol):
    """A broker that serves, and can be killed."""

    @property
    def service_url(self) -> str: ...
    @property
    def http_url(self) -> str: ...

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""

    def start_again(self) -> None:
        """Returns when it serves."""


class OurBroker(BrokerSeries):
    """Ours."""

    def start_again(self) -> None:
        self.start()
        self.wait_ready()


class PulsarSeries:
    """A standalone Apache Pulsar, and those that follow it."""

    def __init__(self, first: ApachePulsar) -> None:
        self.service_url, self.http_url = first.service_url, first.http_url
        self._directory = Path(first.directory)
        self._command = psutil.Process(first.pid).cmdline()
        self._pid = first.pid
        self._next: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        gone = os.pidfd_open(self._pid)
        signal.pidfd_send_signal(gone, signal.SIGKILL)
        select.select([gone], [], [], END_S_MAX)
        os.close(gone)
        if self._next is not None:
            self._next.wait()
            self._next = None

    def start_again(self) -> None:
        log = self._directory / "log"
        self._next = started(self._directory, self._command, log)
        self._pid = self._next.pid
        wait_until_ready(self._next, Web(self.http_url, {}), log)

    def close(self) -> None:
        """End the one that runs; the first one is not ours to end."""
        if self._next is not None:
            self.kill()


@contextmanager
def serving(kind: str, folder: Path) -> Iterator[Killable]:
    """A broker of one of ``BROKERS``, with its data in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "pulsarish":
        with OurBroker(folder / "data", SETTINGS) as ours:
            ours.start_again()
            yield ours
        return
    with running_pulsar(folder / "data", TRANSACTIONS, SHORT_LIVED) as first:
        pulsar = PulsarSeries(first)
        try:
            yield pulsar
        finally:
            pulsar.close()
