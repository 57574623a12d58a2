# SPDX-License-Identifier: Apache-2.0
"""``AuditLog``: each refusal for a lack of rights and each change by the admin REST, as lines of JSON in a file.

Owns the file: it is for its owner alone, begins anew at a size, and is found again where somebody has moved it away. A
log that cannot be written is a warning and no reason to stop. A line names role, address, operation, resource and
verdict: no payload, no header, no query and no body of a request. A client that is refused over and over must not
rotate the lines of others away: of the refusals of one address the first of each minute have lines, and the others are
counted in one.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.private_files import private_opener

logger = logging.getLogger(__name__)

AUDIT_FILE: Final = "audit.log"

Verdict = Literal["refused", "allowed"]

_TEXT_CHARACTERS_MAX: Final = 2000
"""Characters of one value. Names of topics have at most 1 KiB, a path may have any length."""

MINUTE_S: Final = 60.0
REFUSALS_A_MINUTE: Final = 20
"""Refusals of one address that have lines of their own; a day of them is some 10 MiB."""

_ADDRESSES_MAX: Final = 1000
"""Addresses that are told apart in a minute; refusals of all others are counted together."""

_MANY: Final = "many"

_RETRY_S: Final = 1.0
"""Seconds between two attempts to open a file that could not be opened."""


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One line, but for its time.

    Attributes:
        verdict: "refused" for a lack of rights, "allowed" for a change that was let through.
        role: Role that the client proved; "" if none.
        original_role: Role for which it spoke, if it is a proxy.
        address: Host and port of the client.
        method: Wire command, or HTTP method.
        operation: Pulsar's name of the operation, "" where it has none.
        resource: Topic, namespace, tenant or subscription that the operation was about.
        path: Path of an HTTP request, without its query.
        status: HTTP status of the answer.
        more_refusals: Refusals of the address, or of many, in the last minute that have no lines of their own.
    """

    verdict: Verdict
    role: str = ""
    original_role: str = ""
    address: str = ""
    method: str = ""
    operation: str = ""
    resource: str = ""
    path: str = ""
    status: int = 0
    more_refusals: int = 0


class AuditLog:
    """The file ``path``, which is made by the first event. ``size_max_bytes`` 0: nothing is kept."""

    def __init__(self, path: str, size_max_bytes: int, clock: Clock, timers: Timers) -> None:
        self._path = path
        self._size_max_bytes = size_max_bytes
        self._clock = clock
        self._timers = timers
        self._refusals: Counter[str] = Counter()
        """Refusals of this minute, by address."""
        self._minute: TimerHandle | None = None
        self._fd = -1
        self._size_bytes = 0
        self._lost = 0
        self._failed_s = -_RETRY_S

    def record(self, event: AuditEvent) -> None:
        """Write ``event``, unless it is one refusal of very many, or count it as lost."""
        if self._size_max_bytes and (event.verdict != "refused" or self._has_its_own_line(event)):
            self._record(event)

    def _has_its_own_line(self, refusal: AuditEvent) -> bool:
        address = refusal.address.rpartition(":")[0] or refusal.address  # some have no port
        if address not in self._refusals and len(self._refusals) >= _ADDRESSES_MAX:
            address = _MANY
        self._refusals[address] += 1
        if self._minute is None:
            self._minute = self._timers.call_later(MINUTE_S, self._minute_is_over)
        return self._refusals[address] <= REFUSALS_A_MINUTE

    def _minute_is_over(self) -> None:
        """Write how many refusals have had no lines."""
        self._minute = None
        refusals, self._refusals = self._refusals, Counter()
        for address, count in refusals.items():
            if count > REFUSALS_A_MINUTE:
                more = count - REFUSALS_A_MINUTE
                self._record(AuditEvent(verdict="refused", address=address, more_refusals=more))

    def _record(self, event: AuditEvent) -> None:
        try:
            self._write(self._line(event))
        except OSError as error:
            self._lose(error)
            return
        if self._lost:
            logger.warning("audit log is written again path=%s lost=%d", self._path, self._lost)
            self._lost = 0

    def close(self) -> None:
        """Write what is only counted, and let go of the file."""
        if self._minute is not None:
            self._minute.cancel()
            self._minute_is_over()
        self._let_go()

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _line(self, event: AuditEvent) -> bytes:
        time = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        values = {
            name: value[:_TEXT_CHARACTERS_MAX] if isinstance(value, str) else value
            for name, value in msgspec.to_builtins(event).items()
        }
        return msgspec.json.encode({"time": time.replace("+00:00", "Z"), **values}) + b"\n"

    def _write(self, line: bytes) -> None:
        if self._lost and self._clock.monotonic() - self._failed_s < _RETRY_S:
            raise OSError("the last attempt failed")
        self._open()
        if self._size_bytes and self._size_bytes + len(line) > self._size_max_bytes:
            self._let_go()
            os.replace(self._path, f"{self._path}.1")
            self._open()
        self._size_bytes += os.write(self._fd, line)

    def _open(self) -> None:
        """Have the file that is at the path now."""
        with suppress(FileNotFoundError):
            if self._fd >= 0 and os.path.samestat(os.fstat(self._fd), os.stat(self._path)):
                return
        self._let_go()
        self._fd = private_opener(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._size_bytes = os.fstat(self._fd).st_size

    def _lose(self, error: OSError) -> None:
        if not self._lost:
            logger.warning("audit log cannot be written path=%s reason=%s", self._path, error)
        if not self._lost or self._clock.monotonic() - self._failed_s >= _RETRY_S:
            self._failed_s = self._clock.monotonic()
        self._lost += 1
        self._let_go()
