# SPDX-License-Identifier: Apache-2.0
"""Service URLs."""

from urllib.parse import urlsplit

import pytest

from broker_core.base.errors import ConfigError, RemoteProtocolError
from broker_core.client import Client
from broker_core.client.admin import AdminTransport
from broker_core.client.connecting.service_url import BrokerAddress, parse_service_url
from broker_core.client.credentials.tls import TlsSettings
from tests.client.conftest import Service


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("pulsar://127.0.0.1:6651", [("127.0.0.1", 6651)]),
        ("pulsar://localhost", [("localhost", 6650)]),
        ("pulsar://[::1]:7000/", [("::1", 7000)]),
        ("pulsar://[fe80::1]", [("fe80::1", 6650)]),
        ("pulsar://a:1,b:2,c", [("a", 1), ("b", 2), ("c", 6650)]),
        ("pulsar+ssl://a:1,b", [("a", 1), ("b", 6651)]),
    ],
)
def test_hosts_and_ports_are_read(url: str, addresses: list[tuple[str, int]]) -> None:
    """Every form that Pulsar's clients take."""
    assert [(each.host, each.port) for each in parse_service_url(url)] == addresses


@pytest.mark.parametrize(
    "url", ["", "localhost:6650", "http://localhost", "pulsar://", "pulsar://a:x", "pulsar://a:0", "pulsar://a:70000",
            "pulsar://[::1", "pulsar://a,,b", "pulsar+ssl://", "pulsar+tls://a"]
)  # fmt: skip
def test_other_urls_are_refused_with_what_to_write(url: str) -> None:
    """The error names the URL and the right form."""
    with pytest.raises(ConfigError) as refused:
        parse_service_url(url)
    assert repr(url) in str(refused.value)
    assert "pulsar://" in refused.value.hint


def test_an_address_prints_as_a_service_url() -> None:
    """Errors show addresses in the form in which users write them."""
    assert str(BrokerAddress("::1", 6650)) == "pulsar://[::1]:6650"
    assert str(BrokerAddress("host", 6651, tls=True)) == "pulsar+ssl://host:6651"


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    """Other protocols' URLs have one; where it belongs is said instead."""
    for url in (
        "pulsar://me:hush-hush@host:6650",
        "http://me:hush-hush@host",
        "me:hush-hush@host",
        "pulsar://h,m:hush@h",
    ):
        with pytest.raises(ConfigError, match="names a user or a password") as refused:
            parse_service_url(url)
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize("port", ["٦٦٥٠", "6" * 5000, "-1", "+6650", "6_650", "6650.0"])
def test_a_port_is_five_plain_digits_at_most(port: str) -> None:
    """Thousands of digits were an error of Python's own, and digits of another script a port."""
    with pytest.raises(ConfigError, match="which is no host:port"):
        parse_service_url(f"pulsar://host:{port}")


@pytest.mark.parametrize(
    "url",
    ["ftp://me:hush@h", "http://me:hush@h:99999", "http://me:hush@[::1", "me:hush@h", "http://[::1", "http://h:x"],
)
def test_a_wrong_admin_url_is_told_without_its_password(url: str) -> None:
    """Whatever else is wrong with it."""
    with pytest.raises(ConfigError) as refused:
        AdminTransport(url, 1.0, TlsSettings())
    assert "hush" not in str(refused.value)


def test_the_port_of_the_admin_rest_is_recognised(service: Service) -> None:
    """The error names the address and says which port is meant."""
    wrong = f"pulsar://{urlsplit(service.http_url).netloc}"
    with pytest.raises(RemoteProtocolError, match=rf"the peer speaks HTTP \({wrong}\); give the port of"):
        Client(wrong, operation_timeout_s=60).last_entry("t")
