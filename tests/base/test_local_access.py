# SPDX-License-Identifier: Apache-2.0
"""The token of a data directory, and the note by which programs that know an address alone find it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from broker_core.base.errors import ConfigError
from broker_core.base.local_access import TOKEN_FILE, announce, make_token, token_at, token_of, withdraw
from broker_core.base.runtime import DATA_LOCK_FILE, RUNTIME_FILE, RuntimeInfo

SERVICE, HTTP = "pulsar://127.0.0.1:61234", "http://127.0.0.1:61235"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


@contextmanager
def serving(data_dir: Path, service_url: str = SERVICE) -> Iterator[None]:
    """The files of a living broker that has ``data_dir``."""
    info = RuntimeInfo(pid=os.getpid(), service_url=service_url, http_url=HTTP, version="1")
    runtime_file = data_dir / RUNTIME_FILE
    runtime_file.touch()
    number = runtime_file.stat().st_ino
    runtime_file.write_bytes(msgspec.structs.replace(info, file_number=number).encode())
    with open(data_dir / DATA_LOCK_FILE, "w+b") as lock:
        lock.write(b"%d\n" % os.getpid())
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_token_is_made_once_and_for_its_user_alone(tmp_path: Path) -> None:
    """A broker that starts again lets in who was let in before."""
    assert token_of(tmp_path) is None
    token = make_token(tmp_path)
    assert len(token.reveal()) == 43
    assert make_token(tmp_path) == token == token_of(tmp_path)
    assert (tmp_path / TOKEN_FILE).stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == [TOKEN_FILE]


@pytest.mark.parametrize("content", [b"", b"short\n", b"\xff" * 43 + b"\n", b"a" * 42, b"a" * 44 + b"\n"])
def test_a_damaged_token_is_an_error_and_no_token(tmp_path: Path, content: bytes) -> None:
    """An empty file would else let in whoever shows an empty token."""
    (tmp_path / TOKEN_FILE).write_bytes(content)
    for read in (token_of, make_token):
        with pytest.raises(ConfigError, match="holds no token"):
            read(tmp_path)


def test_the_token_of_a_living_broker_is_found_by_both_its_ports(tmp_path: Path, env: dict[str, str]) -> None:
    """By each name of the loopback device; the address of another machine gets none."""
    token = make_token(tmp_path)
    announce(tmp_path, (SERVICE, HTTP), env)
    with serving(tmp_path):
        for url in (SERVICE, HTTP, "pulsar://localhost:61234", "pulsar://[::1]:61234", "https://127.0.0.9:61235/x"):
            assert token_at(url, env) == token, url
        for url in ("pulsar://10.0.0.1:61234", "pulsar://127.0.0.1:61236", "pulsar://localhost", "pulsar://h:x", ""):
            assert token_at(url, env) is None, url


def test_no_token_is_given_away_by_a_note_that_no_living_broker_confirms(tmp_path: Path, env: dict[str, str]) -> None:
    """Another user may have taken the port of a broker that was killed, and with it what is sent there."""
    make_token(tmp_path)
    announce(tmp_path, (SERVICE, HTTP), env)
    assert token_at(SERVICE, env) is None
    with serving(tmp_path, "pulsar://127.0.0.1:7777"):
        assert token_at(SERVICE, env) is None
    with serving(tmp_path):
        assert token_at(SERVICE, env) is not None
        withdraw(tmp_path, (SERVICE,), env)
        assert token_at(SERVICE, env) is None


def test_the_note_of_another_broker_is_not_taken_back(tmp_path: Path, env: dict[str, str]) -> None:
    """A broker that is stopped late finds the note of the one that has its port by now."""
    first, second = tmp_path / "first", tmp_path / "second"
    for data_dir in (first, second):
        data_dir.mkdir()
        announce(data_dir, (SERVICE,), env)
    token = make_token(second)
    withdraw(first, (SERVICE,), env)
    with serving(second):
        assert token_at(SERVICE, env) == token


def test_each_note_is_taken_back_also_where_another_has_gone(tmp_path: Path, env: dict[str, str]) -> None:
    """Whatever order the ports come in."""
    notes = tmp_path / "home" / ".local" / "state" / "pulsarish" / "brokers"
    for gone in ("61234", "61235"):
        announce(tmp_path, (SERVICE, HTTP), env)
        (notes / gone).unlink()
        withdraw(tmp_path, (SERVICE, HTTP), env)
        assert not list(notes.iterdir())


def test_without_a_home_there_is_no_note(tmp_path: Path) -> None:
    """A service account may have none; programs then name the directory."""
    with pytest.raises(ConfigError, match="HOME is not set"):
        announce(tmp_path, (SERVICE,), {})
    withdraw(tmp_path, (SERVICE,), {})
    assert token_at(SERVICE, {}) is None
