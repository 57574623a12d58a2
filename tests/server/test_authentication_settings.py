# SPDX-License-Identifier: Apache-2.0
"""Settings of authentication: whatever is not clear stops the start, in one line, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from broker_core.base.errors import ConfigError
from broker_core.base.secret import HIDDEN
from broker_core.base.settings import SECRET_SETTINGS, Settings, shown
from broker_core.server.security.authentication import Authentication, authentication_of
from broker_core.server.security.identity import AuthenticationFailedError, Credentials, Identity
from broker_core.testing.running_broker import BrokerExitedError, RunningBroker
from broker_core.testing.virtual_timers import VirtualTimers
from tests.server.credentials import PASSWORD, secret_file, settings, token, users_file


def made(**values: object) -> Authentication:
    return authentication_of(msgspec.convert(values, Settings), VirtualTimers(2_000_000_000_000))


def test_a_broker_without_settings_is_open() -> None:
    """As long as nobody asks for more."""
    assert not made().is_required


def test_methods_with_settings_are_on(tmp_path: Path) -> None:
    """And no others, whatever a client calls its method."""
    both = made(**settings(tmp_path))
    assert both.methods == {"token", "basic"}
    assert both.identify(Credentials("token", token().encode())) == Identity("reader")
    assert both.identify(Credentials("basic", f"basil:{PASSWORD}".encode())) == Identity("basil")
    only = made(authenticationEnabled=True, tokenSecretKey=secret_file(tmp_path).as_uri(), anonymousUserRole="anybody")
    for method in ("basic", "tls", "Token", "sasl", "athenz", "NONE", "x" * 10_000):
        with pytest.raises(AuthenticationFailedError):
            only.identify(Credentials(method, token().encode()))
    for method in ("", "none"):
        assert only.identify(Credentials(method)) == Identity("anybody")
        with pytest.raises(AuthenticationFailedError):
            both.identify(Credentials(method))


def test_the_secret_wins_over_the_public_key(tmp_path: Path) -> None:
    """As for Pulsar; the public key is then not even read."""
    both = made(**settings(tmp_path), tokenPublicKey="/no/such/file")
    assert both.identify(Credentials("token", token().encode())) == Identity("reader")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"tokenSecretKey": "", "basicAuthConf": ""}, "no method has settings"),
        ({"tokenSecretKey": "", "basicAuthConf": "", "anonymousUserRole": "anybody"}, "no method has settings"),
        ({"tokenSecretKey": "", "basicAuthConf": "", "tlsTrustCertsFilePath": "ca.pem"}, "no method has settings"),
        ({"authenticationEnabled": False}, "tokenSecretKey is set, and authenticationEnabled is not"),
        ({"tokenSecretKey": "file:///no/such/file"}, "cannot be read"),
        ({"tokenSecretKey": "data:;base64,c2hvcnQ="}, "256 are the least"),
        ({"tokenSecretKey": "", "tokenPublicKey": "data:,x"}, "no public key"),
        ({"basicAuthConf": "data:,ann:secret"}, "not hashed"),
        ({"tokenAudienceClaim": "aud"}, "tokenAudience is not"),
        ({"tokenAudience": "broker"}, "tokenAudienceClaim is not"),
        ({"anonymousUserRole": "a\nb"}, "anonymousUserRole cannot be a role"),
    ],
)
def test_unclear_settings_stop_the_start(tmp_path: Path, more: dict[str, object], why: str) -> None:
    """Never is a broker open because a setting was not understood."""
    with pytest.raises(ConfigError, match=why) as refused:
        made(**{**settings(tmp_path), **more})
    assert "\n" not in str(refused.value)


def test_the_family_of_a_public_key_is_the_one_that_was_set(tmp_path: Path) -> None:
    """An EC key under the default, RS256, is somebody's mistake."""
    subprocess.run(
        [sys.executable, "-m", "broker_core", "keys", "create", "--algorithm", "ES256", tmp_path / "key"], check=True
    )
    public = {"authenticationEnabled": True, "tokenPublicKey": str(tmp_path / "key.pub")}
    with pytest.raises(ConfigError, match=r"verifies ES256, and tokenPublicAlg is RS256; set tokenPublicAlg = ES256"):
        made(**public)
    assert made(**public, tokenPublicAlg="ES256").methods == {"token"}


def test_a_process_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    """Exit code 2 and one line; no data directory was made."""
    key = secret_file(tmp_path)
    key.chmod(0o644)
    broker = RunningBroker(tmp_path / "data", {"authenticationEnabled": True, "tokenSecretKey": key.as_uri()})
    with pytest.raises(BrokerExitedError, match="exit code 2") as ended:
        broker.start()
    assert "others than its owner may read" in str(ended.value)
    assert "Traceback" not in str(ended.value)
    assert not (tmp_path / "data").exists()


def test_values_that_may_be_secret_are_not_shown() -> None:
    """Not by the admin REST, not by the command line, not in a log."""
    fields = {field.name: field.encode_name for field in msgspec.structs.fields(Settings)}
    assert {name for name in fields if any(word in name for word in ("secret", "password", "basic"))} == SECRET_SETTINGS
    given = msgspec.convert({fields[name]: "MARKER" for name in SECRET_SETTINGS}, Settings)
    assert "MARKER" not in repr(given)
    assert {shown(given)[fields[name]] for name in SECRET_SETTINGS} == {HIDDEN}
    assert set(shown(given)) == set(fields.values())


def test_an_open_broker_loads_no_cryptography() -> None:
    """It starts faster, and holds less."""
    code = "import sys, broker_core.server.process; print({'jwt', 'cryptography', 'bcrypt'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_broker_of_passwords_loads_nothing_for_tokens(tmp_path: Path) -> None:
    """Each method brings its own."""
    users = users_file(tmp_path).as_uri()
    code = f"""
import sys
from broker_core.base.clock import SystemClock
from broker_core.base.settings import Settings
from broker_core.server.security.authentication import authentication_of
authentication_of(Settings(authentication_enabled=True, basic_auth_conf={users!r}), SystemClock())
print("jwt" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
