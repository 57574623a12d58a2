# SPDX-License-Identifier: Apache-2.0
"""Credentials of test clients: keys and tokens, users and their hashes, and CONNECT with any of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import bcrypt
import jwt

from broker_core.base.limits import PROTOCOL_VERSION
from broker_core.testing.raw_client import RawClient
from broker_core.wire import commands
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

SECRET: Final = bytes(range(32))
"""The secret of test tokens."""

PASSWORD: Final = "p:assword"
"""The password of user ``basil``; it has a colon in it."""

A_DAY_S: Final = 24 * 3600.0
"""Life of a token that does not end while tests run, which begins as they are collected."""

COST: Final = 4
"""The quickest that bcrypt does."""


def token(role: str = "reader", *, lives_s: float | None = None, **claims: Any) -> str:
    """A token of ``role``, good for ever or for so long from now."""
    if lives_s is not None:
        claims["exp"] = time.time() + lives_s
    return jwt.encode({"sub": role, **claims}, SECRET, algorithm="HS256")


def secret_file(folder: Path) -> Path:
    """A file with ``SECRET``, for its owner only."""
    return private(folder / "secret.key", SECRET)


def users_file(folder: Path, users: Mapping[str, str] | None = None) -> Path:
    """A file of users and their hashed passwords; ``basil`` where none are named."""
    lines = [
        b"%s:%s\n" % (name.encode(), bcrypt.hashpw(password.encode(), bcrypt.gensalt(COST)))
        for name, password in (users or {"basil": PASSWORD}).items()
    ]
    return private(folder / "users", b"".join(lines))


def private(path: Path, content: bytes) -> Path:
    """A file for its owner only, replaced at once if it is there."""
    fresh = path.with_name(path.name + ".fresh")
    fresh.touch(0o600)
    fresh.write_bytes(content)
    return fresh.replace(path)


def settings(folder: Path, **more: object) -> dict[str, object]:
    """Settings of a broker that takes tokens and passwords."""
    return {
        "authenticationEnabled": True,
        "tokenSecretKey": secret_file(folder).as_uri(),
        "basicAuthConf": users_file(folder).as_uri(),
        **more,
    }


def connect(method: str | None, data: bytes | str = b"", *, refresh: bool = False, **fields: Any) -> BaseCommand:
    """CONNECT with these credentials; ``refresh``: the client can be asked for others."""
    command = commands.connect("raw", PROTOCOL_VERSION)
    command.connect.ClearField("auth_method_name")
    if method is not None:
        command.connect.auth_method_name = method
    command.connect.auth_data = data.encode() if isinstance(data, str) else data
    command.connect.feature_flags.supports_auth_refresh = refresh
    for name, value in fields.items():
        setattr(command.connect, name, value)
    return command


def auth_response(method: str, data: bytes | str) -> BaseCommand:
    """AUTH_RESPONSE with these credentials."""
    given = pb.AuthData(auth_method_name=method, auth_data=data.encode() if isinstance(data, str) else data)
    body = pb.CommandAuthResponse(client_version="raw", response=given, protocol_version=PROTOCOL_VERSION)
    return BaseCommand(type=BaseCommand.AUTH_RESPONSE, authResponse=body)


def assert_refused(service_url: str, command: BaseCommand) -> None:
    """The broker answers CONNECT as Pulsar refuses it, without a reason, and closes."""
    with RawClient(service_url, connect=False) as client:
        answer = client.ask(command)
        assert answer.type == BaseCommand.ERROR
        assert answer.error.request_id == 2**64 - 1
        assert answer.error.error == pb.AuthenticationError
        assert answer.error.message == "Failed to authenticate"
        assert client.ended_by_broker()


def kind_of(value: object) -> str:
    """The name of a test's parameter that is another in each process: a token has a time, a certificate a key."""
    return type(value).__name__
