# SPDX-License-Identifier: Apache-2.0
"""Names and passwords: lists of users, what is remembered, files that change, slow checks beside the event loop."""

from __future__ import annotations

import asyncio
import base64
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import bcrypt
import pytest
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from broker_core.base.errors import ConfigError, ServiceNotReadyError, TooManyRequestsError
from broker_core.server.security.authentication import Authentication
from broker_core.server.security.failed_attempts import ADDRESSES_MAX, BURST, LATE_MAX, SHUT_OUT_S, FailedAttempts
from broker_core.server.security.htpasswd import fits, parse_users
from broker_core.server.security.identity import AuthenticationFailedError, Credentials, Identity
from broker_core.server.security.passwords import REMEMBERED_S, PasswordProvider
from broker_core.testing.virtual_timers import VirtualTimers
from tests.server.credentials import COST, PASSWORD, users_file

BASIL = Credentials("basic", f"basil:{PASSWORD}".encode())


def hashed(password: bytes, cost: int = COST) -> bytes:
    return bcrypt.hashpw(password, bcrypt.gensalt(cost))


def argon2id(password: bytes, memory_kib: int = 64) -> bytes:
    made = Argon2id(salt=b"salt of 16 bytes", length=32, iterations=1, lanes=1, memory_cost=memory_kib)
    return made.derive_phc_encoded(password).encode()


def inline(content: bytes) -> str:
    """A list of users as the value of the setting itself."""
    return f"data:;base64,{base64.b64encode(content).decode()}"


def test_a_password_of_either_hash_names_its_user() -> None:
    """bcrypt as htpasswd and others write it, and argon2id. A colon belongs to the password."""
    plain = hashed(b"b:c")
    lines = [b"# users", b"", b"ann:" + plain, b"bob:" + plain.replace(b"$2b$", b"$2y$"), b"cid:" + argon2id(b"b:c")]
    users = PasswordProvider(inline(b"\n".join(lines) + b"\r\n"), VirtualTimers())
    for name in ("ann", "bob", "cid"):
        assert users.identify(Credentials("basic", f"{name}:b:c".encode())) == Identity(name)
        for wrong in (f"{name}:b", f"{name}:", name, f"{name}:b:c ", f"{name.upper()}:b:c"):
            with pytest.raises(AuthenticationFailedError):
                users.identify(Credentials("basic", wrong.encode()))


@pytest.mark.parametrize(
    "data", [b"", b":", b"basil", b":" + PASSWORD.encode(), b"\xff:x", b"basil:\0", b"basil:" + b"x" * 100_000]
)
def test_what_is_no_password_is_refused(tmp_path: Path, data: bytes) -> None:
    """Never by another error."""
    users = PasswordProvider(str(users_file(tmp_path)), VirtualTimers())
    with pytest.raises(AuthenticationFailedError):
        users.identify(Credentials("basic", data))


def test_a_password_that_bcrypt_would_cut_is_not_its_beginning() -> None:
    """bcrypt knows 72 bytes; more of them are another password."""
    assert fits(b"x" * 72, hashed(b"x" * 72))
    assert not fits(b"x" * 73, hashed(b"x" * 72))


@pytest.mark.parametrize(
    "damaged", [b"$2b$04$" + b"A" * 53, b"$argon2id$v=19$m=8,t=1,p=4$c2FsdHNhbHRzYWw$" + b"A" * 43]
)
def test_no_password_fits_a_damaged_hash(damaged: bytes) -> None:
    """It has the form of one, so it stops no start."""
    assert not fits(b"", damaged)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"ann:secret", "not hashed by bcrypt or argon2id"),
        (b"ann:", "not hashed"),
        (b"ann", "not hashed"),
        (b"ann:$apr1$salt$psERymPPF1rQSKA1bi8cW1", "not hashed"),
        (b"ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "not hashed"),
        (b"ann:rqXexS6ZhobKA", "not hashed"),
        (b"ann:$6$salt$" + b"x" * 86, "not hashed"),
        (b"ann:$argon2i$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$" + b"A" * 43, "not hashed"),
        (b"ann:$argon2id$v=19$m=9999999,t=1,p=1$c2FsdHNhbHRzYWw$" + b"A" * 43, "more than 512 MiB"),
        (b"ann:$argon2id$v=19$m=65536,t=9999,p=1$c2FsdHNhbHRzYWw$" + b"A" * 43, "more than 512 MiB"),
        (b"ann:$2b$31$" + b"A" * 53, "cost 31"),
        (b":$2b$04$" + b"A" * 53, "the role is missing"),
        (b"a\x01:$2b$04$" + b"A" * 53, "control characters"),
        (b"\xff:$2b$04$" + b"A" * 53, "not UTF-8"),
        (b"ann:$2b$04$" + b"A" * 53 + b"\nann:$2b$04$" + b"A" * 53, "its user has a line already"),
    ],
)
def test_a_line_that_protects_nobody_stops_the_start(line: bytes, why: str) -> None:
    """By its number, without its content; DES, MD5, SHA-1 and plain passwords above all."""
    with pytest.raises(ConfigError, match=f"basicAuthConf: line .*{why}") as refused:
        parse_users("basicAuthConf", b"# users\n" + line)
    assert "psERymPP" not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_list_without_users_is_refused() -> None:
    """Nobody could come in."""
    for content in (b"", b"\n# nobody\n"):
        with pytest.raises(ConfigError, match="no user"):
            parse_users("basicAuthConf", content)


def test_a_good_password_is_remembered_for_a_minute(tmp_path: Path) -> None:
    """Its hash is not computed again; a wrong one is never remembered."""
    clock = VirtualTimers()
    users = PasswordProvider(str(users_file(tmp_path)), clock)
    assert users.remembered(BASIL) is None
    users.identify(BASIL)
    clock.advance(round(REMEMBERED_S * 1000) - 1)
    assert users.remembered(BASIL) == Identity("basil")
    clock.advance(1)
    assert users.remembered(BASIL) is None
    with pytest.raises(AuthenticationFailedError):
        users.identify(Credentials("basic", b"basil:wrong"))
    assert users.remembered(Credentials("basic", b"basil:wrong")) is None


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    """A user who is taken out is refused within a second, remembered or not; one who is new comes in."""
    clock = VirtualTimers()
    users = PasswordProvider(str(users_file(tmp_path)), clock)
    users.identify(BASIL)
    users_file(tmp_path, {"new": "password"})
    clock.advance(1000)
    assert users.remembered(BASIL) is None
    with pytest.raises(AuthenticationFailedError):
        users.identify(BASIL)
    assert users.identify(Credentials("basic", b"new:password")) == Identity("new")


@pytest.mark.parametrize(
    "spoil", [lambda path: path.write_bytes(b"rubbish"), Path.unlink, lambda path: path.chmod(0o644)]
)
def test_a_file_that_cannot_be_used_changes_nothing(
    tmp_path: Path, spoil: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    """Half an edit locks nobody out; it is told."""
    clock = VirtualTimers()
    path = users_file(tmp_path)
    users = PasswordProvider(path.as_uri(), clock)
    spoil(path)
    if path.exists():
        path.touch()
    clock.advance(1000)
    assert users.remembered(BASIL) is None
    assert users.identify(BASIL) == Identity("basil")
    assert "users are those of before" in caplog.text


def test_an_unknown_user_takes_as_long_as_a_wrong_password(tmp_path: Path) -> None:
    """Or the time would tell who is there: processor time, which no other process has a part in."""
    users = PasswordProvider(inline(b"basil:" + hashed(PASSWORD.encode(), 8)), VirtualTimers())

    def median_s(data: bytes) -> float:
        times = []
        for _ in range(9):
            begun_s = time.thread_time()
            with pytest.raises(AuthenticationFailedError):
                users.identify(Credentials("basic", data))
            times.append(time.thread_time() - begun_s)
        return statistics.median(times)

    known_s, unknown_s = median_s(b"basil:wrong"), median_s(b"nobody:wrong")
    assert known_s / 3 < unknown_s < known_s * 3


# -- slow checks beside the event loop


class Gate:
    """A slow provider that is opened by the test."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def remembered(self, credentials: Credentials) -> Identity | None:
        return Identity("known") if credentials.data == b"known" else None

    def identify(self, credentials: Credentials) -> Identity:
        assert self.opened.wait(60)
        if credentials.data == b"bad":
            raise AuthenticationFailedError("bad")
        return Identity(credentials.data.decode())


async def checked(authentication: Authentication, data: bytes, address: str = "10.0.0.1") -> Identity:
    found = authentication.check(Credentials("slow", data), address)
    return found if isinstance(found, Identity) else await found


def test_slow_checks_leave_the_loop_alone() -> None:
    """They wait for threads, and no more than 64 wait; who is remembered does not."""
    gate = Gate()
    authentication = Authentication({"slow": gate}, "", VirtualTimers())

    async def run() -> None:
        waiting = [asyncio.ensure_future(checked(authentication, b"%d" % number)) for number in range(64)]
        await asyncio.sleep(0)
        assert await checked(authentication, b"known") == Identity("known")
        with pytest.raises(ServiceNotReadyError):
            await checked(authentication, b"one more")
        gate.opened.set()
        assert [each.role for each in await asyncio.gather(*waiting)] == [str(number) for number in range(64)]
        assert await checked(authentication, b"later") == Identity("later")
        authentication.close()

    asyncio.run(run())


def test_an_address_that_guesses_is_refused_unchecked() -> None:
    """Ten wrong passwords, then one a second; other addresses and known passwords come in."""
    gate, clock = Gate(), VirtualTimers()
    gate.opened.set()
    authentication = Authentication({"slow": gate}, "", clock)

    async def run() -> None:
        for _ in range(BURST):
            with pytest.raises(AuthenticationFailedError):
                await checked(authentication, b"bad")
        for data in (b"bad", b"good"):
            with pytest.raises(TooManyRequestsError):
                await checked(authentication, data)
        assert await checked(authentication, b"known") == Identity("known")
        assert await checked(authentication, b"good", "10.0.0.2") == Identity("good")
        clock.advance(1000)
        assert await checked(authentication, b"good") == Identity("good")
        authentication.close()

    asyncio.run(run())


@pytest.mark.parametrize("address", ["10.0.0.1", "2001:db8::1", "127.0.0.1", "::1"])
def test_an_address_that_goes_on_failing_is_shut_out_for_a_minute(address: str) -> None:
    """Spec 9.3: never the loopback address, which users of the machine share; slow failures are forgotten."""
    clock = VirtualTimers()
    failed = FailedAttempts(clock)
    for _ in range(BURST + LATE_MAX - 1):
        failed.add(address)
    assert not failed.is_shut_out(address)
    clock.advance(2000)
    for _ in range(LATE_MAX):
        failed.add(address)
    assert not failed.is_shut_out(address)
    for _ in range(LATE_MAX):
        failed.add(address)
    shut_out = address not in ("127.0.0.1", "::1")
    assert failed.is_shut_out(address) is shut_out
    assert not failed.is_shut_out("10.0.0.2")
    clock.advance(round(SHUT_OUT_S * 1000) - 1)
    assert failed.is_shut_out(address) is shut_out
    clock.advance(1)
    assert not failed.is_shut_out(address)


def test_failures_are_counted_for_a_bounded_number_of_machines() -> None:
    """A machine has a network of IPv6 for itself, and could take another address for each attempt."""
    clock = VirtualTimers()
    failed = FailedAttempts(clock)
    for number in range(BURST):
        failed.add(f"2001:db8::{number:x}")
    assert failed.are_too_many("2001:db8::ffff")
    assert not failed.are_too_many("2001:db8:0:1::1")
    for number in range(ADDRESSES_MAX):
        failed.add(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert not failed.are_too_many("2001:db8::ffff")
