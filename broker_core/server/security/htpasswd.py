# SPDX-License-Identifier: Apache-2.0
"""Lists of users in the form of htpasswd: which lines are allowed, and whether a password fits a hash.

Allowed are bcrypt and argon2id, whose time and memory are bounded; what Apache Pulsar takes (MD5 and DES) is refused,
for a stolen list would give the passwords away. Empty lines and comments may stand between. Importing this module
imports ``cryptography``, and ``bcrypt`` where a user has such a hash. No error repeats a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from broker_core.base.errors import ConfigError
from broker_core.server.security.identity import AuthenticationFailedError, checked_role

_BCRYPT: Final = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_ARGON2ID: Final = re.compile(
    r"\$argon2id\$v=19\$m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,9})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{22,86}"
)

_BCRYPT_COSTS: Final = range(4, 16)
"""Each step doubles the time; 15 takes two seconds."""

_BCRYPT_BYTES: Final = 72
"""The longest password that bcrypt takes."""

_ARGON2_KIB_MAX: Final = 512 * 1024
_ARGON2_WORK_MAX: Final = 4 * 1024 * 1024
"""Memory in KiB, and memory times passes: some seconds."""
_ARGON2_LANES_MAX: Final = 16

_HINT: Final = "htpasswd -B -C 10 FILE USER"


@dataclass(frozen=True, slots=True, repr=False)
class Users:
    """Hashes of passwords by the name of the user."""

    by_name: dict[bytes, bytes]
    hashes: tuple[bytes, ...]


def parse_users(setting: str, content: bytes) -> Users:
    """The users of ``content``, the value of ``setting``. ConfigError names the first line that is wrong."""
    users: dict[bytes, bytes] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not (text := line.strip()) or text.startswith(b"#"):
            continue
        name, _, hashed = text.partition(b":")
        if (flaw := _flaw_of_name(name) or _flaw_of_hash(hashed)) or name in users:
            raise ConfigError(f"{setting}: line {number}: {flaw or 'its user has a line already'}", hint=_HINT)
        users[name] = hashed
    if not users:
        raise ConfigError(f"{setting} has no user in it", hint=_HINT)
    return Users(users, tuple(users.values()))


def fits(password: bytes, hashed: bytes) -> bool:
    """Whether ``hashed`` was made of ``password``. Takes a moment, whatever the outcome; no password fits a damaged
    hash."""
    try:
        if hashed.startswith(b"$argon2id$"):
            Argon2id.verify_phc_encoded(password, hashed.decode())
            return True
        import bcrypt

        # One that is too long for bcrypt is compared all the same, or the time would tell that the user is there.
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed) and len(password) <= _BCRYPT_BYTES
    except (InvalidKey, ValueError):
        return False


def _flaw_of_name(name: bytes) -> str:
    try:
        checked_role(name.decode())
    except UnicodeDecodeError:
        return "the name is not UTF-8"
    except AuthenticationFailedError as error:
        return str(error)
    return ""


def _flaw_of_hash(hashed: bytes) -> str:
    """Why it is no hash that is slow enough, and not too slow; "" if it is one."""
    text = hashed.decode("ascii", "replace")
    if found := _BCRYPT.fullmatch(text):
        return "" if int(found[1]) in _BCRYPT_COSTS else f"a bcrypt hash has cost {found[1]}; 15 is the most"
    if found := _ARGON2ID.fullmatch(text):
        kib, passes, lanes = (int(each) for each in found.groups())
        is_bounded = kib <= _ARGON2_KIB_MAX and 0 < kib * passes <= _ARGON2_WORK_MAX and 0 < lanes <= _ARGON2_LANES_MAX
        return "" if is_bounded else "an argon2id hash takes more than 512 MiB or a few seconds"
    return "the password is not hashed by bcrypt or argon2id"
