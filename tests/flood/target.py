# SPDX-License-Identifier: Apache-2.0
"""The broker under attack, in a process of its own: its turns, its memory, and how others are served meanwhile."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import psutil
import trustme

from broker_core.base.settings import Settings
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.flood.memory import MIB
from tests.server import credentials
from tests.server.certificates import Authority

HOST: Final = "127.0.0.1"

_LOOK_S: Final = 0.2
_AT_REST_MS: Final = 3.0
"""Between two looks a broker with one client that does little has no longer turn than this."""

_GIVEN_BACK_S: Final = 60.0
"""The broker looks every 5 s whether memory can go back, and less often where that was in vain."""


class Measures(NamedTuple):
    """What one attack did."""

    longest_ms: float
    over: list[float]
    stacks: list[tuple[str, int]]
    turns: int
    collections_ms: list[float]
    """The longest collection of cycles of each generation."""
    peak_mib: float
    """The most that the process had, with what it had before."""
    left_mib: float
    """What it had more than before when the clients were gone."""
    others_ms: float
    others: int


class Turns(NamedTuple):
    """What is told of some turns of the loop."""

    number: int
    longest_ms: float
    over: list[float]
    stacks: Counter[str]
    collections_ms: list[float]

    def and_then(self, later: Turns) -> Turns:
        """These and ``later`` ones."""
        longest_ms = max(self.longest_ms, later.longest_ms)
        return Turns(
            self.number + later.number,
            longest_ms,
            self.over + later.over,
            self.stacks + later.stacks,
            list(map(max, self.collections_ms, later.collections_ms)),
        )


class Target:
    """One broker, with a port for TLS as well; ``tls`` is that of a client. It takes tokens and passwords, and
    clients without any, unless settings say otherwise.

    ``token`` is that of the client who watches it, which needs none where all are let in.
    """

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None, token: str = "") -> None:
        authority = Authority(directory)
        pair = authority.issue("broker", HOST, key_type=trustme.KeyType.RSA)  # the kind that is slow to sign
        files = {"tlsCertificateFilePath": pair.certificate, "tlsKeyFilePath": pair.key}
        known = credentials.settings(directory, anonymousUserRole="anybody")
        chosen = {"brokerServicePortTls": 0, **files, **known, **(settings or {})}
        self.token = token
        self.tls = authority.client()
        self.settings = msgspec.convert(chosen, Settings)
        self.log = directory / "stderr"
        self._log = self.log.open("ab")
        command = [sys.executable, "-m", "tests.flood.measured_broker", "--data-dir", str(directory / "data")]
        command += ["--settings", json.dumps(chosen)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        _ready, self.service_url, self.http_url, self.service_url_tls = self._line().split()
        self._system = psutil.Process(self._process.pid)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def tell(self, what: str) -> None:
        """A line to the broker that is measured; see there."""
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()

    def turns(self) -> Turns:
        """The turns of the loop since the last question."""
        self.tell("")
        return self._turns()

    def harm(self, what: str) -> None:
        """Have the broker do something that must be noticed."""
        self.tell(what)
        self._line()

    def _turns(self) -> Turns:
        answer = json.loads(self._line())
        stacks = Counter(dict(answer["stacks"]))
        return Turns(answer["turns"], answer["longest_ms"], answer["over"], stacks, answer["collections_ms"])

    def rss_mib(self) -> float:
        return float(self._system.memory_info().rss / MIB)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    @contextlib.contextmanager
    def watched(self, left_mib_max: float) -> Iterator[Watch]:
        """Measure what happens in the block, until the clients are let go of and all but ``left_mib_max`` is given back
        (or is not)."""
        with RawClient(self.service_url, timeout_s=300, token=self.token) as first:
            must_succeed(first.open_producer("honest"))  # the turns of the start are over
        before = self.rss_mib()
        watch = Watch(self)
        self.turns()
        watch.start()
        try:
            yield watch
        finally:
            found = self._until_at_rest()
            watch.stop()
            deadline = time.monotonic() + _GIVEN_BACK_S
            while self.rss_mib() > before + left_mib_max and time.monotonic() < deadline:
                time.sleep(0.5)
            watch.measures = Measures(
                *(found.longest_ms, found.over, found.stacks.most_common(4), found.number, found.collections_ms),
                *(watch.peak_mib, self.rss_mib() - before, watch.worst_ms, watch.served),
            )

    def _until_at_rest(self) -> Turns:
        """The turns of the attack, and those in which the broker still does what it has left to do."""
        found = self.turns()
        while True:
            time.sleep(_LOOK_S)
            later = self.turns()
            found = found.and_then(later)
            if later.longest_ms < _AT_REST_MS:
                return found


@dataclass
class Watch:
    """A second look at the broker: its memory, and a client that stores a message and waits for its receipt, always."""

    target: Target
    peak_mib: float = 0.0
    worst_ms: float = 0.0
    served: int = 0
    measures: Measures | None = None
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Begin to look."""
        for work in (self._memory, self._honest):
            self._threads.append(threading.Thread(target=work, daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        for each in self._threads:
            each.join()

    def _memory(self) -> None:
        while not self._over.wait(0.05):
            self.peak_mib = max(self.peak_mib, self.target.rss_mib())

    def _honest(self) -> None:
        body = seal_entry(MessageMetadata(producer_name="h", sequence_id=0, publish_time=1).SerializeToString(), b"x")
        with RawClient(self.target.service_url, timeout_s=300, token=self.target.token) as client:
            must_succeed(client.open_producer("honest"))
            number = 0
            while not self._over.wait(0.02):
                begun = time.monotonic()
                client.send_entry(0, number, body)
                client.next_frame()
                self.worst_ms = max(self.worst_ms, 1000 * (time.monotonic() - begun))
                self.served += 1
                number += 1
