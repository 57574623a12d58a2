# SPDX-License-Identifier: Apache-2.0
"""Options that say how a broker is trusted and who asks: their names, and that secrets stay secret."""

from __future__ import annotations

import re

import pytest

from broker_core.base.errors import ConfigError
from broker_core.client.credentials.security import SECURITY_SETTINGS
from pulsarish_spark.options import Side, address_options, read_options
from tests.spark.test_options import NO_ENVIRONMENT, reading


def test_security_is_said_by_our_names_and_by_those_of_pulsar_spark() -> None:
    """Of its client and of its admin client, which may say the same; useTls makes TLS of the URL."""
    ours = reading(topic="t", service__url="pulsar+ssl://h:6651", tokenFile="/t", tlsTrustCertsFilePath="/ca").address
    theirs = {
        "topic": "t", "service.url": "pulsar://h:6651", "pulsar.client.usetls": "true",
        "pulsar.client.authpluginclassname": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "pulsar.client.authparams": "token:hush-hush", "pulsar.client.tlstrustcertsfilepath": "/ca",
        "pulsar.admin.authpluginclassname": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "pulsar.admin.authparams": "token:hush-hush", "pulsar.client.tlshostnameverificationenable": "false",
    }  # fmt: skip
    address = read_options(theirs, Side.BATCH_READ, NO_ENVIRONMENT).address
    assert (ours.service_url, ours.security.token_file) == ("pulsar+ssl://h:6651", "/t")
    assert address.service_url == ours.service_url
    assert address.security.auth_params.reveal() == "token:hush-hush"
    assert address.security.tls_trust_certs_file_path == ours.security.tls_trust_certs_file_path == "/ca"
    assert not address.security.tls_hostname_verification_enable
    assert "hush" not in repr(address)


def test_credentials_of_the_environment_go_to_a_named_broker_only() -> None:
    """The embedded broker asks for none."""
    environment = {"PULSARISH_CLIENT_TOKEN": "hush-hush", "HOME": "/nowhere"}
    named = {"topic": "t", "service.url": "pulsar://h"}
    assert read_options(named, Side.READ, environment).address.security.token.reveal() == "hush-hush"
    assert not read_options({"topic": "t"}, Side.READ, environment).address.security.token


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"token": "hush", "tokenFile": "/t"}, "tokenFile and token are both ways to say who the client is"),
        ({"tokn": "hush"}, 'option "tokn" is unknown; did you mean token?'),
        ({"pulsar.client.authParam": "hush"}, "did you mean pulsar.client.authParams?"),
        ({"authPluginClassName": "basic", "authParams": "hush"}, "parameters for basic cannot be read"),
        ({"pulsar.client.authParams": "hush", "pulsar.admin.authParams": "hush2"}, "mean the same"),
        ({"pulsar.client.tlsTrustStorePassword": "hush"}, "give PEM files"),
        ({"useTls": "false", "service.url": "pulsar+ssl://h"}, "remove useTls"),
        ({"service.url": "pulsar://me:hush@h"}, "names a user or a password"),
        ({"service.url": "me:hush@h"}, "names a user or a password"),
        ({"service.url": "pulsar://me:hu/hush@h"}, "names a user or a password"),
        ({"admin.url": "http://me:hush@h:99999999"}, "names a user or a password"),
        ({"admin.url": "ftp://me:hush@h"}, "names a user or a password"),
    ],
)
def test_wrong_security_is_one_line_without_the_secret(options: dict[str, str], words: str) -> None:
    """What is wrong and what to do."""
    given = {"topic": "t", "service.url": "pulsar://h", **options}
    with pytest.raises(ConfigError) as refused:
        read_options(given, Side.BATCH_READ, NO_ENVIRONMENT)
    assert words in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("variable", ["PULSARISH_SERVICE_URL", "PULSARISH_HTTP_URL"])
@pytest.mark.parametrize("url", ["pulsar://me:hush@h", "http://me:hush@h", "me:hush@h"])
def test_wrong_addresses_of_the_environment_are_told_without_the_secret(variable: str, url: str) -> None:
    """As those of options."""
    with pytest.raises(ConfigError, match="names a user or a password") as refused:
        read_options({"topic": "t"}, Side.READ, {"PULSARISH_SERVICE_URL": "pulsar://h", variable: url})
    assert "hush" not in str(refused.value)


def test_spark_hides_the_options_that_hold_a_token() -> None:
    """Their names match the default of spark.redaction.regex; that of authParams cannot, which its meaning says."""
    hidden = re.compile("(?i)secret|password|token|access[.]?key")
    secret = {setting.name for setting in SECURITY_SETTINGS if setting.is_secret}
    assert {name for name in secret if not hidden.search(name)} == {"authParams"}


def test_a_broker_is_named_with_its_security() -> None:
    """What asks a broker besides the read, as a probe of lag does, is let in as the read is."""
    options = {"service.url": "pulsar+ssl://broker:6651", "token": "abc"}
    asked = address_options(options, NO_ENVIRONMENT)
    assert asked == read_options({**options, "topic": "flights"}, Side.READ, NO_ENVIRONMENT).address
