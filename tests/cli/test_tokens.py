# SPDX-License-Identifier: Apache-2.0
"""``pulsarish keys`` and ``pulsarish token``: what is written, what is printed, and what is refused."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import jwt
import pulsar
import pytest

from broker_core.cli.keys import PAIR_ALGORITHMS
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Done, Pulsarish

FOREVER = b"never expires"


def rows(done: Done) -> list[dict[str, object]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def made_token(lonely: Pulsarish, *more: str, key: str = "key") -> str:
    done = lonely("token", "create", "--subject", "reader", "--key", key, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


def test_a_new_secret_is_private_random_and_never_overwritten(lonely: Pulsarish, tmp_path: Path) -> None:
    """32 bytes for their owner; the lines on stderr say how to go on, and nothing is on stdout."""
    for name in ("key", "other"):
        done = lonely("keys", "create", name)
        assert (done.returncode, done.stdout) == (0, b"")
        assert f"tokenSecretKey={(tmp_path / name).as_uri()}".encode() in done.stderr
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    key = (tmp_path / "key").read_bytes()
    assert len(key) == 32
    assert key != (tmp_path / "other").read_bytes()
    again = lonely("keys", "create", "key")
    assert again.returncode == 9
    assert b"exists" in again.stderr
    assert (tmp_path / "key").read_bytes() == key


def test_nothing_is_written_beside_an_old_key(lonely: Pulsarish, tmp_path: Path) -> None:
    """Neither through a link nor if one of the pair is there."""
    os.symlink(tmp_path / "elsewhere", tmp_path / "link")
    assert lonely("keys", "create", "link").returncode == 9
    (tmp_path / "pair.pub").write_bytes(b"old")
    assert lonely("keys", "create", "pair", "--algorithm", "ES256").returncode == 9
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "pair").exists()
    assert (tmp_path / "pair.pub").read_bytes() == b"old"


@pytest.mark.parametrize("algorithm", ["HS256", *PAIR_ALGORITHMS])
def test_a_token_is_made_shown_and_verified(lonely: Pulsarish, tmp_path: Path, algorithm: str) -> None:
    """By each kind of key; only the token itself is on stdout."""
    lonely("keys", "create", "key", "--algorithm", algorithm)
    public = "key" if algorithm == "HS256" else "key.pub"
    done = lonely("token", "create", "--subject", "reader", "--expires", "30d", "--key", "key")
    assert done.stderr == b""
    assert done.stdout.count(b"\n") == 1
    text = done.stdout.decode().strip()
    claims = jwt.decode(text, options={"verify_signature": False})
    assert claims["sub"] == "reader"
    assert claims["exp"] - claims["iat"] == 30 * 86_400
    (tmp_path / "token").write_text(text + "\n")
    (shown,) = rows(lonely("token", "inspect", "token"))
    assert (shown["subject"], shown["algorithm"], shown["claims"]) == ("reader", algorithm, claims)
    assert text.rpartition(".")[2] not in json.dumps(shown)
    for key in {"key", public}:
        (verified,) = rows(lonely("token", "validate", "-", "--key", key, stdin=text.encode()))
        assert verified["subject"] == "reader"
        assert str(verified["expires"]).startswith("20")


def test_a_token_for_ever_is_told(lonely: Pulsarish) -> None:
    """On stderr, beside the token."""
    lonely("keys", "create", "key")
    done = lonely("token", "create", "--subject", "reader", "--key", "key")
    assert FOREVER in done.stderr
    assert "exp" not in jwt.decode(done.stdout.decode().strip(), options={"verify_signature": False})


def test_an_audience_and_another_algorithm(lonely: Pulsarish) -> None:
    """An RSA key signs with any of its algorithms; a token is for the broker that it names."""
    lonely("keys", "create", "key", "--algorithm", "RS256")
    text = made_token(lonely, "--algorithm", "PS512", "--audience", "broker-1", "--expires", "1h")
    assert jwt.get_unverified_header(text)["alg"] == "PS512"
    given = ("token", "validate", "-", "--key", "key.pub")
    assert lonely(*given, "--audience", "broker-1", stdin=text.encode()).returncode == 0
    assert lonely(*given, "--audience", "broker", stdin=text.encode()).returncode == 4
    wrong = lonely("token", "create", "--subject", "a", "--key", "key", "--algorithm", "HS256")
    assert wrong.returncode == 2
    assert b"none of the key's" in wrong.stderr


def test_what_is_not_good_is_exit_code_4(lonely: Pulsarish, tmp_path: Path) -> None:
    """Expired, of another key, garbage; the token is not repeated."""
    lonely("keys", "create", "key")
    lonely("keys", "create", "other")
    expired = jwt.encode({"sub": "reader", "exp": 1_000_000_000}, (tmp_path / "key").read_bytes())
    for text in (expired, made_token(lonely, key="other"), "garbage"):
        done = lonely("token", "validate", "-", "--key", "key", stdin=text.encode())
        assert done.returncode == 4
        assert done.stdout == b""
        assert text.encode() not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("token", "create", "--key", "key"), b"--subject"),
        (("token", "create", "--subject", "a"), b"--key"),
        (("token", "create", "--subject", " ", "--key", "key"), b"cannot be a role"),
        (("token", "create", "--subject", "a\nb", "--key", "key"), b"cannot be a role"),
        (("token", "create", "--subject", "a", "--key", "missing"), b"cannot be read"),
        (("token", "create", "--subject", "a", "--key", "open"), b"others than its owner may read"),
        (("token", "create", "--subject", "a", "--key", "short"), b"256 are the least"),
        (("token", "create", "--subject", "a", "--key", "pair.pub"), b"no secret to sign with"),
        (("token", "create", "--subject", "a", "--key", "key", "--expires", "0"), b"--expires"),
        (("token", "create", "--subject", "a", "--key", "key", "--expires", "-1h"), b"--expires"),
        (("token", "inspect", "missing"), b"cannot be read"),
        (("token", "inspect", "short"), b"this is no token"),
        (("keys", "create", "new", "--algorithm", "none"), b"--algorithm"),
    ],
)
def test_wrong_use_is_exit_code_2(lonely: Pulsarish, tmp_path: Path, arguments: tuple[str, ...], why: bytes) -> None:
    """With the reason, and nothing on stdout."""
    lonely("keys", "create", "key")
    lonely("keys", "create", "pair", "--algorithm", "ES256")
    for name, mode in (("open", 0o644), ("short", 0o600)):
        (tmp_path / name).write_bytes(b"x" * (64 if name == "open" else 8))
        (tmp_path / name).chmod(mode)
    done = lonely(*arguments)
    assert done.returncode == 2
    assert why in done.stderr
    assert done.stdout == b""


def test_a_secret_is_not_taken_from_the_command_line(lonely: Pulsarish, tmp_path: Path) -> None:
    """Every user of the machine can read it there; a path says nothing. Errors and ``config show`` hide it."""
    done = lonely("config", "show", "--set", "tokenSecretKey=data:;base64,MARKER")
    assert done.returncode == 2
    assert b"PULSARISH_TOKEN_SECRET_KEY" in done.stderr
    assert b"MARKER" not in done.stderr
    (tmp_path / "settings.toml").write_text('tokenSecretKey = ["MARKER"]')
    wrong = lonely("config", "show", "--config", "settings.toml")
    assert wrong.returncode == 2
    assert b"tokenSecretKey = ***" in wrong.stderr
    assert b"MARKER" not in wrong.stderr
    shown = rows(lonely("config", "show", "--set", "basicAuthConf=file:///users", PULSARISH_TOKEN_SECRET_KEY="MARKER"))
    values = {row["name"]: row["value"] for row in shown}
    assert values["tokenSecretKey"] == values["basicAuthConf"] == "***"


def test_the_commands_of_a_token_lead_to_a_broker(lonely: Pulsarish, tmp_path: Path) -> None:
    """As the page says: a key, a broker that wants tokens, a token for one client; another token is exit code 4."""
    lonely("keys", "create", "key")
    lonely("keys", "create", "other")
    for name in ("key", "other"):
        (tmp_path / f"{name}.token").write_text(made_token(lonely, "--expires", "1h", key=name) + "\n")
    settings = {"authenticationEnabled": True, "tokenSecretKey": (tmp_path / "key").as_uri()}
    with RunningBroker(tmp_path / "data", settings) as broker:
        where = ("--service-url", broker.service_url, "--http-url", broker.http_url)
        good, bad = (*where, "--token-file", "key.token"), (*where, "--token-file", "other.token")
        assert lonely("produce", "hello", "-m", "hi", *good).returncode == 0
        received = lonely("consume", "hello", "--exit", "-o", "raw", *good)
        assert (received.returncode, received.stdout) == (0, b"hi\n")
        assert rows(lonely("topic", "list", *good))
        for refused in (bad, where):
            assert lonely("produce", "hello", "-m", "hi", *refused).returncode == 4
            assert lonely("topic", "list", *refused).returncode == 4


def test_the_token_of_a_data_directory_is_printed_for_its_owner(lonely: Pulsarish, tmp_path: Path) -> None:
    """It is what official clients are given; a directory without one says why."""
    where = ("--data-dir", str(tmp_path / "d"))
    none = lonely("token", "show", *where)
    assert (none.returncode, none.stdout) == (2, b"")
    assert b"has no token" in none.stderr
    with RunningBroker(tmp_path / "d", is_open=False) as broker:
        shown = lonely("token", "show", *where)
        client = pulsar.Client(
            broker.service_url, authentication=pulsar.AuthenticationToken(shown.stdout.decode().strip())
        )
        client.create_producer("shown")
        client.close()
    assert shown.stderr == b""
