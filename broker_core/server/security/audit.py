# SPDX-License-Identifier: Apache-2.0
"""``AuditLog``: each refusal for a lack of rights and each change by the admin REST, as lines of JSON in a file.

Owns the file: it is for its owner alone, begins anew at a size, and is found again where somebody has moved it away. A
log that cannot be written is a warning and no reason to stop. A line names role, address, operation, resource and
verdict: no payload, no header, no query and no body of a request.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from broker_core.base.clock import Clock
from broker_core.base.private_files import private_opener

logger = logging.getLogger(__name__)

AUDIT_FILE: Final = "audit.log"

Verdict = Literal["refused", "allowed"]

_TEXT_CHARACTERS_MAX: Final = 2000
"""Characters of one value. Names of topics have at most 1 KiB, a path may have any length."""

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


class AuditLog:
    """The file ``path``, which is made by the first event. ``size_max_bytes`` 0: nothing is kept."""

    def __init__(self, path: str, size_max_bytes: int, clock: Clock) -> None:
        self._path = path
        self._size_max_bytes = size_max_bytes
        self._clock = clock
        self._fd = -1
        self._size_bytes = 0
        self._lost = 0
        self._failed_s = -_RETRY_S

    def record(self, event: AuditEvent) -> None:
        """Write ``event``, or count it as lost."""
        if not self._size_max_bytes:
            return
        try:
            self._write(self._line(event))
        except OSError as error:
            self._lose(error)
            return
        if self._lost:
            logger.warning("audit log is written again path=%s lost=%d", self._path, self._lost)
            self._lost = 0

    def close(self) -> None:
        """Let go of the file."""
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
            self.close()
            os.replace(self._path, f"{self._path}.1")
            self._open()
        self._size_bytes += os.write(self._fd, line)

    def _open(self) -> None:
        """Have the file that is at the path now."""
        with suppress(FileNotFoundError):
            if self._fd >= 0 and os.path.samestat(os.fstat(self._fd), os.stat(self._path)):
                return
        self.close()
        self._fd = private_opener(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._size_bytes = os.fstat(self._fd).st_size

    def _lose(self, error: OSError) -> None:
        if not self._lost:
            logger.warning("audit log cannot be written path=%s reason=%s", self._path, error)
        if not self._lost or self._clock.monotonic() - self._failed_s >= _RETRY_S:
            self._failed_s = self._clock.monotonic()
        self._lost += 1
        self.close()
