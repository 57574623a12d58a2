# SPDX-License-Identifier: Apache-2.0
"""Names and passwords as credentials (method "basic").

A hash takes 50 ms and more, on purpose, so ``identify`` is for threads; a good password is remembered for a minute, by
a hash under a key of this process. A file of users that has changed is read again; one that cannot be used changes
nothing and is told in the log. An unknown user takes as long as a wrong password.
Source: Pulsar docs, "Security - Basic authentication".
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
from collections import OrderedDict
from typing import Final

from broker_core.base.clock import Clock
from broker_core.base.errors import ConfigError
from broker_core.base.pem_files import stamp_of
from broker_core.server.security.htpasswd import Users, fits, parse_users
from broker_core.server.security.identity import AuthenticationFailedError, Credentials, Identity
from broker_core.server.security.key_material import path_of, read_material

logger = logging.getLogger(__name__)

_SETTING: Final = "basicAuthConf"

CREDENTIALS_BYTES_MAX: Final = 4096
"""A user's name and password."""

REMEMBERED_S: Final = 60.0
"""Seconds for which a good password is not computed again."""

_REMEMBERED_MAX: Final = 1024
"""Good passwords that are remembered at a time."""

_LOOK_S: Final = 1.0
"""Seconds between two looks at whether the file has changed."""


class PasswordProvider:
    """Identifies clients by the passwords of a list of users."""

    def __init__(self, setting: str, clock: Clock) -> None:
        """``setting``: the value of basicAuthConf. ConfigError: it cannot be used."""
        self._setting = setting
        self._path = path_of(setting)
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._good: OrderedDict[bytes, tuple[Identity, float]] = OrderedDict()
        self._stamp = self._stamp_now()
        self._looked_s = clock.monotonic()
        self._is_stale = False
        self._users = self._read()

    def remembered(self, credentials: Credentials) -> Identity | None:
        self._look()
        found = self._good.get(self._digest(credentials.data))
        return found[0] if found is not None and self._clock.monotonic() < found[1] else None

    def identify(self, credentials: Credentials) -> Identity:
        """Whose the password is. Takes a moment; may run on several threads at a time."""
        data, users = credentials.data, self._current_users()
        if len(data) > CREDENTIALS_BYTES_MAX:
            raise AuthenticationFailedError(f"name and password have {len(data)} bytes")
        name, _, password = data.partition(b":")
        known = users.by_name.get(name)
        other = users.hashes[int.from_bytes(self._digest(name), "big") % len(users.hashes)]
        if not fits(password, known or other) or known is None:
            raise AuthenticationFailedError("the user is unknown, or the password is wrong")
        identity = Identity(name.decode())
        self._remember(users, data, identity)
        return identity

    def _remember(self, users: Users, data: bytes, identity: Identity) -> None:
        with self._lock:
            if users is not self._users or self._is_stale:
                return  # the list was replaced meanwhile
            self._good[self._digest(data)] = (identity, self._clock.monotonic() + REMEMBERED_S)
            if len(self._good) > _REMEMBERED_MAX:
                self._good.popitem(last=False)

    def _digest(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, key=self._key, digest_size=32).digest()

    def _look(self) -> None:
        """Forget good passwords if the file has changed."""
        now_s = self._clock.monotonic()
        if self._path is None or now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        if (stamp := self._stamp_now()) != self._stamp:
            with self._lock:
                self._stamp, self._is_stale = stamp, True
                self._good.clear()

    def _current_users(self) -> Users:
        """The users, read again if the file has changed: here, on a thread, as there may be many."""
        with self._lock:
            if self._is_stale:
                self._is_stale = False
                try:
                    self._users = self._read()
                    logger.info("users read again file=%s", self._path)
                except ConfigError as error:
                    logger.error("users are those of before reason=%s", error)
            return self._users

    def _read(self) -> Users:
        return parse_users(_SETTING, read_material(_SETTING, self._setting))

    def _stamp_now(self) -> tuple[object, ...]:
        return stamp_of(() if self._path is None else (str(self._path),))
