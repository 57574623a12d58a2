# SPDX-License-Identifier: Apache-2.0
"""The options of both sides that say who the client is and whom it believes, as the client declares them.

Owns which names of pulsar-spark and of the Java client mean them. Spark hides the values of options whose names contain
token, secret or password from what it prints (spark.redaction.regex); authParams is not among these, so secrets belong
into a file that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker_core.base.errors import ConfigError
from broker_core.client.credentials.security import SECURITY_SETTINGS, Security, security_texts
from pulsarish_spark.options.option import Option, Side
from pulsarish_spark.options.parsing import flag, text_of

ALIAS_BEGINNINGS: Final = ("pulsar.client.", "pulsar.admin.")
"""pulsar-spark takes each setting twice, as its admin client needs the same; this source has one client."""

SECURING: Final = (
    *(
        Option(
            setting.name,
            Side.ANY,
            text_of,
            setting.example,
            f"{setting.meaning} Also ${setting.env}.",
            tuple(beginning + setting.name for beginning in ALIAS_BEGINNINGS),
        )
        for setting in SECURITY_SETTINGS
    ),
    Option(
        "useTls",
        Side.ANY,
        flag,
        "true",
        "As in the Java client: true makes TLS of a service URL that begins with pulsar://.",
        ("pulsar.client.useTls", "pulsar.client.enableTls"),
    ),
)


def security_of(given: Mapping[str, Any], environment: Mapping[str, str]) -> Security:
    """What the options say, and the environment of the driver beside them."""
    texts = {setting.name: given[setting.name] for setting in SECURITY_SETTINGS if setting.name in given}
    return Security.of(security_texts(environment, texts))


def url_with_tls(url: str, given: Mapping[str, Any]) -> str:
    """``url`` as useTls changes it."""
    wanted = given.get("useTls")
    if wanted is False and url.startswith("pulsar+ssl://"):
        raise ConfigError("option useTls is false, and the service URL begins with pulsar+ssl://", hint="remove useTls")
    return url.replace("pulsar://", "pulsar+ssl://", 1) if wanted else url
